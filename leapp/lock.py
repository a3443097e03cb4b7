"""A lock: the digests that a manifest is expected to give, in ``NAME.lock`` beside ``NAME.toml``, for each platform.

It is met when the digest of the bundle is equal. What else it holds, down to the files that were read and the versions
of the tool chain, explains a digest that is not. Neither torch nor NumPy is needed here.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from leapp.bundle.digests import BundleDigests, NodeDigests, digests_of
from leapp.bundle.read import Bundle, load
from leapp.errors import LockError, OutputFileError
from leapp.manifest.document import read_document
from leapp.manifest.positions import KeyPath, line_of
from leapp.manifest.problems import Problem, hint, key_text, kind_of, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

SUFFIX: Final = ".lock"
SCHEMA_VERSION: Final = 1
MAX_CONSTANTS: Final = 64
"""A node with more constants is locked by the one digest of them all: nobody reviews thousands of lines."""

_HEAD: Final = """\
# The bundle that {manifest} gives, for each platform. `leapp build` fails where it gives another one.
# Written by `leapp lock`; `leapp lock --update` accepts what differs.
"""
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_PLATFORM: Final = re.compile(r"[a-z0-9]+-\w+")
_TOP: Final = ("schema", "name")


@dataclass(frozen=True, slots=True)
class Lock:
    """What a lock file holds."""

    name: str
    """Of the pipeline."""
    sections: Mapping[str, BundleDigests]
    """By platform, as ``linux-x86_64``. Each has the version that it was taken of."""

    @property
    def platforms(self) -> tuple[str, ...]:
        """What it speaks of, sorted."""
        return tuple(sorted(self.sections))

    def with_section(self, section: BundleDigests) -> Lock:
        """The lock with one section put in, in the place of the one of the same platform."""
        return replace(self, sections={**self.sections, section.platform: section})


# --- what a bundle gives --------------------------------------------------------------------------------------------


def of_bundle(bundle: Bundle | Path) -> Lock:
    """The lock of one bundle: a single section. No file is read but metadata, and the record of what was read.

    Raises NotABundleError, BundleFormatError, BundleTooNewError or BundleDigestError, as reading the bundle does.
    """
    section = section_of(bundle)
    return Lock(section.name, {section.platform: section})


def section_of(bundle: Bundle | Path) -> BundleDigests:
    """The digests of a bundle in the form that a lock keeps. Raises as ``of_bundle`` does."""
    return in_lock(digests_of(bundle if isinstance(bundle, Bundle) else load(bundle)))


def in_lock(digests: BundleDigests) -> BundleDigests:
    """What a lock keeps of digests: no constants where there are very many, no versions of what was not there."""
    nodes = {
        name: node if len(node.constants) <= MAX_CONSTANTS else replace(node, constants={})
        for name, node in sorted(digests.nodes.items())
    }
    toolchain = {key: value for key, value in digests.toolchain.items() if value is not None}
    return replace(digests, nodes=nodes, toolchain=toolchain)


def met(locked: BundleDigests, built: BundleDigests, *, any_version: bool = False) -> bool:
    """Whether a bundle is the one that is locked.

    Args:
        locked: a section of a lock.
        built: what the bundle gives.
        any_version: a bundle of another version counts, when nothing but its version differs: it is what
            ``leapp build --version`` makes of a locked manifest.
    """
    if any_version and locked.version != built.version:
        return _content(locked) == _content(built)
    return locked.bundle == built.bundle


def _content(digests: BundleDigests) -> BundleDigests:
    """All digests that the content of a bundle has beside its version."""
    return replace(in_lock(digests), bundle="", version="", inputs=None, packages=None, builder=None)


# --- files ---------------------------------------------------------------------------------------------------------


def beside(manifest: Path) -> Path:
    """The lock file of a manifest, whether it is there or not."""
    return manifest.with_suffix(SUFFIX)


def read(path: Path, *, name: str | None = None) -> Lock:
    """Read a lock file.

    Args:
        path: the file.
        name: the pipeline that it has to be of; None: any.

    Raises:
        LockError: with all problems of the file; ``facts["problems"]`` holds them as ``Problem`` values.
    """
    document = read_document(path)
    if document.data is None:
        assert document.problem is not None  # one of the two is there
        raise _error([_merge_marks(path) or document.problem])
    reader = _Reader(str(path), document.lines)
    lock = reader.lock(document.data)
    if name is not None and lock.name not in {name, ""}:
        reader.problem(("name",), f"this is the lock of {lock.name!r}, not of {name!r}.")
    if reader.problems:
        raise _error(reader.problems)
    return lock


def _merge_marks(path: Path) -> Problem | None:
    """What most often makes a lock unreadable."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    at = next((number for number, line in enumerate(lines, 1) if line.startswith(b"<<<<<<< ")), None)
    return None if at is None else Problem(str(path), "a merge left its marks here.", line=at)


def read_if_there(path: Path, *, name: str | None = None) -> Lock | None:
    """As ``read``; None where there is no such file."""
    return read(path, name=name) if os.path.lexists(path) else None


def find(place: Path, name: str) -> Path:
    """The lock of a pipeline: ``place`` itself, or the one in that folder that bears the name.

    Raises LockError where there is none, or a file that has to be looked into is none.
    """
    if not place.is_dir():
        return place
    found = next((path for path in sorted(place.glob(f"*{SUFFIX}")) if read(path).name == name), None)
    if found is None:
        raise _error([Problem(str(place), f"no lock (*{SUFFIX}) of {name!r} in this folder.")])
    return found


def write(path: Path, lock: Lock) -> None:
    """Write a lock file, whole: who reads it meanwhile finds the old one or the new one.

    Raises OutputFileError where the operating system refuses.
    """
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}-", delete=False
        ) as file:
            file.write(text_of(lock, path.with_suffix(".toml").name))
        try:
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
            os.chmod(file.name, mode)  # noqa: PTH101  # a temporary file is its owner's alone
            os.replace(file.name, path)  # noqa: PTH105
        except BaseException:
            os.unlink(file.name)  # noqa: PTH108
            raise
    except OSError as error:
        raise OutputFileError(path=str(path), why=error.strerror or str(error)) from error


def _umask() -> int:
    # There is no other way to ask for it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# --- text ----------------------------------------------------------------------------------------------------------


def text_of(lock: Lock, manifest: str) -> str:
    """A lock as TOML: sorted, one digest on a line.

    Args:
        lock: what to write.
        manifest: name of the manifest's file, for the comment on top.
    """
    tables: list[tuple[KeyPath, Mapping[str, Any]]] = [((), {"schema": SCHEMA_VERSION, "name": lock.name})]
    for platform, section in sorted(lock.sections.items()):
        tables += _tables(platform, in_lock(section))
    blocks = []
    for path, values in tables:
        head = f"[{key_text(path)}]\n" if path else ""
        blocks.append(head + "".join(f"{key_text((key,))} = {_value(value)}\n" for key, value in values.items()))
    return "\n".join([_HEAD.format(manifest=manifest), *blocks])


def _tables(platform: str, section: BundleDigests) -> Iterator[tuple[KeyPath, dict[str, str]]]:
    digests = {"bundle": section.bundle, "contract": section.contract, "initial_values": section.initial_values}
    yield (platform,), {**_digests(digests), "version": section.version}
    if section.builder is not None:
        yield (platform, "builder"), _sorted(section.builder)
    if section.inputs is not None:
        yield (platform, "inputs"), _digests(section.inputs)
    for name, node in sorted(section.nodes.items()):
        path = (platform, "nodes", name)
        yield (
            path,
            _digests({"graph": node.graph, "ports": node.ports, "settings": node.settings, "weights": node.weights}),
        )
        if node.artifacts:
            yield (*path, "artifacts"), _digests(node.artifacts)
        if node.constants:
            yield (*path, "constants"), _digests(node.constants)
    if section.packages is not None:
        yield (platform, "packages"), _sorted(section.packages)
    yield (platform, "toolchain"), _sorted(section.toolchain)


def _sorted(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in sorted(values.items()) if value is not None}


def _digests(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: f"sha256:{value}" for key, value in sorted(values.items()) if value is not None}


def _value(value: str | int) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- reading -------------------------------------------------------------------------------------------------------


def _error(problems: Iterable[Problem]) -> LockError:
    found = sorted(problems, key=lambda each: (each.line or 0, each.key))
    return LockError(count=len(found), detail="\n".join(map(str, found)), problems=found)


class _Reader:
    """Takes a parsed file apart; what is wrong gathers in ``problems``, and stands for nothing in the result."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int]) -> None:
        self.file, self.lines = file, lines
        self.problems: list[Problem] = []

    def problem(self, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self.file, message, key_text(path), line_of(self.lines, path)))

    def lock(self, data: Mapping[str, Any]) -> Lock:
        schema = data.get("schema")
        if type(schema) is int and schema != SCHEMA_VERSION:
            # Nothing else of it needs to be as we know it.
            newer = "; a newer LEAPP wrote it" if schema > SCHEMA_VERSION else ""
            self.problem(("schema",), f"this version of LEAPP reads locks with schema = {SCHEMA_VERSION}{newer}.")
            return Lock("", {})
        if schema is None:
            self.missing(("schema",), "key")
        elif type(schema) is not int:
            self.problem(("schema",), f"expected an integer, got {kind_of(schema)}.")
        name = self.text(data, (), "name")
        sections = {}
        for key, value in data.items():
            if key in _TOP:
                continue
            if isinstance(value, dict) and _PLATFORM.fullmatch(key):
                sections[key] = self.section(value, key, name)
            elif isinstance(value, dict):
                self.problem((key,), "not a platform: sections are called as linux-x86_64 is.")
            else:
                self.unknown((key,), _TOP)
        return Lock(name, sections)

    def section(self, table: Mapping[str, Any], platform: str, name: str) -> BundleDigests:
        at: KeyPath = (platform,)
        known = (
            *("bundle", "contract", "initial_values", "version"),
            *("builder", "inputs", "nodes", "packages", "toolchain"),
        )
        self.only(table, at, known)
        nodes = self.table(table, at, "nodes", needed=True)
        return BundleDigests(
            name=name,
            version=self.text(table, at, "version"),
            platform=platform,
            bundle=self.digest(table, at, "bundle") or "",
            contract=self.digest(table, at, "contract") or "",
            initial_values=self.digest(table, at, "initial_values", needed=False),
            nodes={
                node: self.node(each, (*at, "nodes", node))
                for node, each in nodes.items()
                if self.is_table(each, (*at, "nodes", node))
            },
            inputs=self.digests(table, at, "inputs") if "inputs" in table else None,
            toolchain=self.texts(table, at, "toolchain", needed=True),
            packages=self.texts(table, at, "packages") if "packages" in table else None,
            builder=self.texts(table, at, "builder") if "builder" in table else None,
        )

    def node(self, table: Mapping[str, Any], at: KeyPath) -> NodeDigests:
        self.only(table, at, ("graph", "ports", "settings", "weights", "artifacts", "constants"))
        return NodeDigests(
            ports=self.digest(table, at, "ports") or "",
            settings=self.digest(table, at, "settings") or "",
            graph=self.digest(table, at, "graph", needed=False),
            weights=self.digest(table, at, "weights", needed=False),
            artifacts=self.digests(table, at, "artifacts"),
            constants=self.digests(table, at, "constants"),
        )

    def digests(self, table: Mapping[str, Any], at: KeyPath, key: str) -> dict[str, str]:
        found = {each: self.digest(self.table(table, at, key), (*at, key), each) for each in self.table(table, at, key)}
        return {each: digest for each, digest in found.items() if digest is not None}

    def texts(self, table: Mapping[str, Any], at: KeyPath, key: str, *, needed: bool = False) -> dict[str, str]:
        found = self.table(table, at, key, needed=needed)
        return {each: self.text(found, (*at, key), each) for each in found}

    def digest(self, table: Mapping[str, Any], at: KeyPath, key: str, *, needed: bool = True) -> str | None:
        if not needed and key not in table:
            return None
        text = self.text(table, at, key)
        match = _DIGEST.fullmatch(text)
        if match is None and text:
            self.problem((*at, key), f"expected sha256: and 64 digits of 0-9a-f, got {text!r}.")
        return match[1] if match else None

    def text(self, table: Mapping[str, Any], at: KeyPath, key: str) -> str:
        """A string that is not empty; empty where anything is wrong with it."""
        if key not in table:
            self.missing((*at, key), "key")
            return ""
        value = table[key]
        if not isinstance(value, str):
            self.problem((*at, key), f"expected a string, got {kind_of(value)}.")
            return ""
        if not value:
            self.problem((*at, key), "must not be empty.")
        return value

    def table(self, table: Mapping[str, Any], at: KeyPath, key: str, *, needed: bool = False) -> Mapping[str, Any]:
        """A table in a table; empty where there is none."""
        if key not in table:
            if needed:
                self.missing((*at, key), "table")
            return {}
        value = table[key]
        return value if self.is_table(value, (*at, key)) else {}

    def is_table(self, value: object, path: KeyPath) -> bool:
        if not isinstance(value, dict):
            message = f"expected a table, got {kind_of(value)}."
            if not any(each.key == key_text(path) for each in self.problems):
                self.problem(path, message)
            return False
        return True

    def only(self, table: Mapping[str, Any], at: KeyPath, known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                self.unknown((*at, key), known)

    def unknown(self, path: KeyPath, known: tuple[str, ...]) -> None:
        advice = hint(nearest(str(path[-1]), known), f"Known keys: {', '.join(known)}.")
        self.problem(path, f"unknown key.{advice}")

    def missing(self, path: KeyPath, kind: str) -> None:
        self.problem(path, f"this {kind} is required and missing.")
