"""A bundle's metadata as frozen values, their JSON form, and the text that holds the schema still.

Every record becomes a JSON object with its field names as keys. Readers ignore keys that they do not know, so a later
leapp may add some without raising ``READER_LEVEL``; whatever an older reader must not overlook raises it.
``schema.lock`` mirrors the records: change one, raise ``SCHEMA_VERSION``, run ``python -m leapp.bundle.schema``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast

from leapp._spec import JSON, Port, TensorSpec
from leapp.bundle._tree import BUNDLE_FILE, EVIDENCE_INDEX, is_evidence, name_problem, path_problem, text_problem
from leapp.errors import BundleFormatError, BundleTooNewError, BundleValueError

SCHEMA_VERSION: Final = 1
"""Of everything in this module. Written into each file; only ever grows."""

READER_LEVEL: Final = 1
"""The least level that a reader of what we write needs, and the highest that we can read."""

BROUGHT: Final = "brought"
"""How an artifact was made that a node brought along."""

FAILED: Final = "failed"
PARTIAL: Final = "partial"
UNFIT: Final = {
    FAILED: "a check of its build did not pass: do not deploy it",
    PARTIAL: "it has the models of one node alone, as `leapp build --only` writes them; `leapp build` writes all",
}
"""Statuses of bundles that are not to be used, each with the reason in words."""
STATUSES: Final = ("ok", *UNFIT)

MAX_METADATA_BYTES: Final = 64 << 20
"""No honest metadata file comes near; a larger one is refused before it is read."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MD5: Final = re.compile(r"[0-9a-f]{32}")

LOCK_FILE: Final = Path(__file__).with_name("schema.lock")


# --- records -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One content file of a bundle."""

    path: str
    media_type: str
    size: int
    sha256: str

    @classmethod
    def read(cls, fields: Fields) -> FileEntry:
        """Take the record from parsed JSON."""
        return cls(
            fields.path("path"), fields.text("media_type"), fields.count("size"), fields.pattern("sha256", _SHA256)
        )


@dataclass(frozen=True, slots=True)
class BundleManifest:
    """``bundle.json``: what a bundle is and which files are its content."""

    schema: int
    requires: int
    """The reader level that is needed to load the bundle."""
    status: str
    """``ok``, or one of ``UNFIT``."""
    name: str
    version: str
    files: tuple[FileEntry, ...]
    """Sorted by path; every content file except ``bundle.json`` itself, no evidence."""
    digest: str
    """sha256 of this file's canonical JSON without the digest: the identity of the bundle."""

    @classmethod
    def read(cls, fields: Fields) -> BundleManifest:
        """Take the record from parsed JSON. Raises BundleTooNewError before anything else is looked at."""
        fields.check_level()
        manifest = cls(
            fields.count("schema"),
            fields.count("requires"),
            fields.choice("status", STATUSES),
            fields.part("name"),
            fields.text("version"),
            fields.records("files", FileEntry.read),
            fields.pattern("digest", _SHA256),
        )
        fields.check_paths([entry.path for entry in manifest.files])
        for entry in manifest.files:
            if entry.path == BUNDLE_FILE or is_evidence(entry.path, manifest.name):
                raise fields.error("files", f"{entry.path!r} cannot be content")
        return manifest


@dataclass(frozen=True, slots=True)
class PortEntry:
    """An input or output of a node; the order in its list is positional."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    semantics: Mapping[str, JSON]

    @classmethod
    def of(cls, port: Port) -> PortEntry:
        """The record of a port."""
        return cls(port.name, port.spec.dtype, tuple(port.spec.shape), dict(port.semantics))

    def port(self) -> Port:
        """The port of a record."""
        return Port(self.name, TensorSpec(self.dtype, self.shape), self.semantics)

    @classmethod
    def read(cls, fields: Fields) -> PortEntry:
        """Take the record from parsed JSON."""
        return cls(fields.part("name"), fields.text("dtype"), fields.counts("shape"), fields.mapping("semantics"))


@dataclass(frozen=True, slots=True)
class Artifact:
    """One model file of a node. Their order in the node manifest is the order of preference."""

    format: str
    backend: str
    """``jit``, ``pt2`` or ``onnx``: the loader."""
    path: str
    """Relative to the bundle, POSIX."""
    sha256: str
    md5: str
    """For old readers of the runtime file; no safeguard."""
    size: int
    opset_version: int | None = None
    ir_version: int | None = None
    method: str | None = None
    """How it was made where there is more than one way: ``script`` or ``trace``; ``brought``: not by LEAPP."""
    data_paths: tuple[str, ...] = ()
    """Files with external data beside the model file, relative to the bundle."""
    external: bool = False
    """The file was not copied into the bundle: it is looked for, by its digest, in the runtime's model folders."""

    @classmethod
    def read(cls, fields: Fields) -> Artifact:
        """Take the record from parsed JSON."""
        return cls(
            fields.text("format"),
            fields.text("backend"),
            fields.path("path"),
            fields.pattern("sha256", _SHA256),
            fields.pattern("md5", _MD5),
            fields.count("size"),
            fields.optional("opset_version", fields.count),
            fields.optional("ir_version", fields.count),
            fields.optional("method", fields.text),
            fields.paths("data_paths"),
            fields.boolean("external"),
        )


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that is part of a recording."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    """Of its contiguous little-endian bytes."""

    @classmethod
    def read(cls, fields: Fields) -> Constant:
        """Take the record from parsed JSON."""
        return cls(fields.text("name"), fields.text("dtype"), fields.counts("shape"), fields.pattern("sha256", _SHA256))


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What replayed artifacts were allowed to differ by; ``atol`` in the output's own unit."""

    rtol: float
    atol: float

    @classmethod
    def read(cls, fields: Fields) -> Tolerances:
        """Take the record from parsed JSON."""
        return cls(fields.number("rtol"), fields.number("atol"))


@dataclass(frozen=True, slots=True)
class NodeManifest:
    """``nodes/<node>/manifest.json``: one node, its files and what its recording is made of."""

    schema: int
    node: str
    inputs: tuple[PortEntry, ...]
    outputs: tuple[PortEntry, ...]
    artifacts: tuple[Artifact, ...]
    ops: Mapping[str, int]
    """How often each target occurs in the recording."""
    constants: tuple[Constant, ...]
    tolerances: Tolerances
    graph_sha256: str | None
    """Of the recording without its constants' values; None where nothing was recorded."""
    weights_sha256: str | None
    """Of all constants."""
    warp_segments: int = 0

    @classmethod
    def read(cls, fields: Fields) -> NodeManifest:
        """Take the record from parsed JSON."""
        return cls(
            fields.count("schema"),
            fields.part("node"),
            fields.records("inputs", PortEntry.read),
            fields.records("outputs", PortEntry.read),
            fields.records("artifacts", Artifact.read),
            fields.count_map("ops"),
            fields.records("constants", Constant.read),
            fields.record("tolerances", Tolerances.read),
            fields.optional("graph_sha256", fields.sha256),
            fields.optional("weights_sha256", fields.sha256),
            fields.count("warp_segments"),
        )


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """One evidence file."""

    path: str
    size: int
    sha256: str

    @classmethod
    def read(cls, fields: Fields) -> EvidenceFile:
        """Take the record from parsed JSON."""
        return cls(fields.path("path"), fields.count("size"), fields.pattern("sha256", _SHA256))


@dataclass(frozen=True, slots=True)
class EvidenceIndex:
    """``evidence/index.json``: every evidence file except itself, sorted by path."""

    schema: int
    files: tuple[EvidenceFile, ...]

    @classmethod
    def read(cls, fields: Fields) -> EvidenceIndex:
        """Take the record from parsed JSON."""
        index = cls(fields.count("schema"), fields.records("files", EvidenceFile.read))
        fields.check_paths([entry.path for entry in index.files])
        if any(entry.path == EVIDENCE_INDEX for entry in index.files):
            raise fields.error("files", "it lists itself")
        return index


RECORDS: Final = (
    BundleManifest,
    FileEntry,
    NodeManifest,
    PortEntry,
    Artifact,
    Constant,
    Tolerances,
    EvidenceIndex,
    EvidenceFile,
)


# --- values -> JSON ------------------------------------------------------------------------------------------------


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


def to_json(record: _Dataclass) -> dict[str, JSON]:
    """A record as a JSON object. Raises BundleValueError for a value that JSON cannot hold as it is."""
    return {field.name: _json(getattr(record, field.name), field.name) for field in dataclasses.fields(record)}


def _json(value: Any, where: str) -> JSON:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _json(getattr(value, field.name), f"{where}.{field.name}") for field in _fields(value)}
    if isinstance(value, tuple):
        return [_json(each, f"{where}[{index}]") for index, each in enumerate(value)]
    return plain(value, where)


def _fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


def plain(value: Any, where: str) -> JSON:
    """``value`` in exact built-in types, maps sorted by key, tuples as lists.

    Raises BundleValueError, which names the place, for what is not the same after a way through JSON.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if problem := text_problem(value):
            raise BundleValueError(where=where, why=f"{value!r} cannot be written: {problem}")
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BundleValueError(where=where, why=f"{value} is not a finite number")
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BundleValueError(where=where, why=f"the key {key!r} is a {type(key).__name__}, not text")
        return {cast("str", plain(key, where)): plain(value[key], f"{where}.{key}") for key in sorted(value)}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(each, f"{where}[{index}]") for index, each in enumerate(value)]
    raise BundleValueError(where=where, why=f"a {type(value).__name__} cannot be written")


# --- JSON -> values ------------------------------------------------------------------------------------------------

_T = TypeVar("_T")


def parse_json(data: bytes, path: Path | str) -> dict[str, Any]:
    """A JSON object from bytes.

    Raises BundleFormatError for anything else: other values, twice the same key, NaN, too deep, too large.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ValueError(f"the key {twice!r} occurs twice")
        return result

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    if len(data) > MAX_METADATA_BYTES:
        raise BundleFormatError(path=str(path), why=f"{len(data)} bytes are too large for metadata")
    try:
        value = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=refuse)
    except RecursionError as error:
        raise BundleFormatError(path=str(path), why="it is nested too deeply") from error
    except ValueError as error:  # malformed text or JSON, numbers with too many digits
        raise BundleFormatError(path=str(path), why=str(error)) from error
    if not isinstance(value, dict):
        raise BundleFormatError(path=str(path), why=f"expected an object, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object and typed readers of its fields; errors carry file and key path."""

    value: Mapping[str, Any]
    file: str
    where: str = ""

    def error(self, key: str, why: str) -> BundleFormatError:
        """An error that names the file and the place."""
        return BundleFormatError(path=self.file, why=f"{self._place(key)}: {why}")

    def check_level(self) -> None:
        """Raise BundleTooNewError where the file needs a newer reader."""
        needs = self.count("requires")
        if needs > READER_LEVEL:
            raise BundleTooNewError(path=self.file, needs=needs, has=READER_LEVEL)

    def check_paths(self, paths: Sequence[str]) -> None:
        """Demand that ``files`` names each path once, in order."""
        for before, after in pairwise(paths):
            if before == after:
                raise self.error("files", f"{after!r} is listed twice")
            if before > after:
                raise self.error("files", f"{after!r} is out of order")

    def text(self, key: str) -> str:
        """A string of valid Unicode text."""
        return self._text(key, self._get(key))

    def part(self, key: str) -> str:
        """A string that can be one part of a path."""
        text = self.text(key)
        if problem := name_problem(text):
            raise self.error(key, f"{text!r} cannot be used as a name: {problem}")
        return text

    def path(self, key: str) -> str:
        """A string that names a file inside the bundle."""
        return self._path(key, self._get(key))

    def paths(self, key: str) -> tuple[str, ...]:
        """A list of strings that name files inside the bundle."""
        return tuple(self._path(f"{key}[{index}]", each) for index, each in enumerate(self._list(key)))

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """One of a few strings."""
        text = self.text(key)
        if text not in choices:
            raise self.error(key, f"expected one of {', '.join(choices)}, got {text!r}")
        return text

    def pattern(self, key: str, pattern: re.Pattern[str]) -> str:
        """A string that matches as a whole."""
        text = self.text(key)
        if not pattern.fullmatch(text):
            raise self.error(key, f"expected {pattern.pattern}, got {text[:80]!r}")
        return text

    def sha256(self, key: str) -> str:
        """A sha256 digest in lower-case hex."""
        return self.pattern(key, _SHA256)

    def count(self, key: str) -> int:
        """A whole number, zero or more."""
        return self._count(key, self._get(key))

    def counts(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers, zero or more."""
        return tuple(self._count(f"{key}[{index}]", each) for index, each in enumerate(self._list(key)))

    def count_map(self, key: str) -> dict[str, int]:
        """A map of whole numbers, zero or more."""
        return {name: self._count(f"{key}.{name}", each) for name, each in self.mapping(key).items()}

    def number(self, key: str) -> float:
        """A number."""
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected a number, got {_kind(value)}")
        return value

    def boolean(self, key: str) -> bool:
        """True or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self.error(key, f"expected a boolean, got {_kind(value)}")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        """An object with free keys and values."""
        return dict(self._object(key, self._get(key)))

    def optional(self, key: str, read: Callable[[str], _T]) -> _T | None:
        """What ``read`` finds, or None for null."""
        return None if self._get(key) is None else read(key)

    def record(self, key: str, read: Callable[[Fields], _T]) -> _T:
        """A nested record."""
        return read(self._inner(key, self._get(key)))

    def records(self, key: str, read: Callable[[Fields], _T]) -> tuple[_T, ...]:
        """A list of nested records."""
        return tuple(read(self._inner(f"{key}[{index}]", each)) for index, each in enumerate(self._list(key)))

    def _place(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _get(self, key: str) -> Any:
        if key not in self.value:
            raise self.error(key, "it is missing")
        return self.value[key]

    def _list(self, key: str) -> list[Any]:
        value = self._get(key)
        if not isinstance(value, list):
            raise self.error(key, f"expected a list, got {_kind(value)}")
        return value

    def _object(self, key: str, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.error(key, f"expected an object, got {_kind(value)}")
        return value

    def _inner(self, key: str, value: Any) -> Fields:
        return Fields(self._object(key, value), self.file, self._place(key))

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.error(key, f"expected a string, got {_kind(value)}")
        if problem := text_problem(value):
            raise self.error(key, problem)
        return value

    def _path(self, key: str, value: Any) -> str:
        text = self._text(key, value)
        if problem := path_problem(text):
            raise self.error(key, f"the path {text!r} cannot be used: {problem}")
        return text

    def _count(self, key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"expected an integer, got {_kind(value)}")
        if value < 0:
            raise self.error(key, f"expected zero or more, got {value}")
        return value


# --- the lock ------------------------------------------------------------------------------------------------------


def lock_text() -> str:
    """The schema as text: each record, its fields in order, their types."""
    lines = [f"schema {SCHEMA_VERSION}, reader level {READER_LEVEL}"]
    for record in RECORDS:
        lines += ["", record.__name__]
        lines += [f"  {field.name}: {field.type}" for field in dataclasses.fields(record)]
    return "\n".join(lines) + "\n"


def update_lock(path: Path = LOCK_FILE) -> None:
    """Write ``schema.lock``. Raises ValueError where the schema changed and its version did not."""
    text = lock_text()
    if path.exists():
        old = path.read_text("utf-8")
        version = int(old.split(",", 1)[0].removeprefix("schema "))
        if old != text and version >= SCHEMA_VERSION:
            raise ValueError(f"a record changed: raise SCHEMA_VERSION above {version} first")
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    update_lock()
