"""TOML files -> manifests. Every problem of every file is reported at once, with file, line and key path."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from leapp._spec import FORMAT_NAMES, Start
from leapp.errors import ManifestError
from leapp.manifest.callables import missing_callable
from leapp.manifest.document import read_document
from leapp.manifest.model import (
    PORT_HINTS,
    SEMVER,
    Choices,
    Entry,
    ExportSettings,
    FromFile,
    Manifest,
    NodeSettings,
    Pipeline,
    PortHint,
    Probe,
    Range,
    Session,
    Structure,
    element_names,
    is_foreign,
    matches,
)
from leapp.manifest.positions import KeyPath, line_of
from leapp.manifest.problems import Problem, hint, key_text, kind_of, nearest, nearest_file
from leapp.semantics import PortFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

ROOT_MARKS: Final = ("pyproject.toml", ".git")
_VALID: Final = "a manifest is valid by itself"


class Known(Protocol):
    """Remembers what was found true of bytes, as ``leapp.build.known`` does from one command to the next."""

    def holds(self, *statement: str) -> bool:
        """Whether this was found true before."""

    def add(self, *statement: str) -> None:
        """It was found true."""


def load(paths: Sequence[Path], *, version: str | None = None, known: Known | None = None) -> list[Manifest]:
    """Read manifests; folders are searched for ``*.toml``, sorted by path, without hidden files and folders.

    Args:
        paths: files and folders; a file that is named twice is read once.
        version: takes the place of every ``pipeline.version``, as ``leapp build --version`` wants it.
        known: documents that were valid by themselves when they were last looked at; they are not validated again. What
            hangs on the disk or on other manifests is looked at each time.

    Raises:
        ManifestError: with all problems of all files; ``facts["problems"]`` holds them as ``Problem`` values.
    """
    problems: list[Problem] = []
    files: dict[Path, Path] = {}
    for given in paths:
        for path in _find(given, problems):
            files.setdefault(_absolute(path), path)
    if version is not None and re.fullmatch(SEMVER, version) is None:
        problems.append(Problem("--version", f"{version!r} is not a version of Semantic Versioning 2.0."))
    drafts = [_Draft.read(path) for path in files.values()]
    manifests = [draft.check(version, known) for draft in drafts]
    _check_names(drafts, version)
    for draft in drafts:
        problems += sorted(draft.problems, key=lambda each: (each.line or 0, each.key))
    if problems:
        detail = "\n".join(str(each) for each in problems)
        raise ManifestError(count=len(problems), detail=detail, problems=problems)
    return [manifest for manifest in manifests if manifest is not None]


def load_one(path: Path, *, version: str | None = None) -> Manifest:
    """Read one file. Raises ManifestError as ``load`` does, and also when ``path`` is a folder."""
    if path.is_dir():
        problem = Problem(str(path), "is a folder; name one manifest.")
        raise ManifestError(count=1, detail=str(problem), problems=[problem])
    return load([path], version=version)[0]


def find_root(manifest: Path) -> Path:
    """The project of a manifest: the nearest folder above with ``pyproject.toml`` or ``.git``, else its own folder."""
    folder = _absolute(manifest).parent
    for each in (folder, *folder.parents):
        if any((each / mark).exists() for mark in ROOT_MARKS):
            return each
    return folder


def _find(given: Path, problems: list[Problem]) -> list[Path]:
    if given.is_dir():
        found = []
        for folder, folders, names in os.walk(given):
            folders[:] = [each for each in folders if not each.startswith(".")]
            # A project file is never a manifest; it is met when a whole project is named.
            found += [
                Path(folder, each)
                for each in names
                if each.endswith(".toml") and not each.startswith(".") and each != "pyproject.toml"
            ]
        if not found:
            problems.append(Problem(str(given), _no_manifests(given)))
        return sorted(found)
    if not given.exists():
        problems.append(Problem(str(given), f"no such file or folder.{_did_you_mean(given)}"))
        return []
    if given.name == "pyproject.toml":  # as `leapp build *.toml` takes it along
        problems.append(Problem(str(given), "a project file, not a manifest: leave it out, or name a folder."))
        return []
    if given.suffix != ".toml":
        problems.append(Problem(str(given), f"not a manifest: {_why_not(given)}"))
        return []
    return [given]


def _no_manifests(folder: Path) -> str:
    if (folder / "bundle.json").is_file():
        return "a bundle, not a manifest: `leapp verify` and `leapp inspect` take it."
    return "no manifest (*.toml) in this folder."


def _why_not(file: Path) -> str:
    shown = shlex.quote(str(file))
    if file.suffix == ".py":
        return f"a Python file. `leapp init --from {shown}` writes the manifest of an annotated one."
    if file.suffix == ".lock" and file.with_suffix(".toml").is_file():
        return f"a lock. Its manifest is {file.with_suffix('.toml')}."
    return "its name does not end in .toml."


def _did_you_mean(missing: Path) -> str:
    """A hint at a file beside the missing one whose name is near."""
    try:
        return hint(nearest_file(missing.name, sorted(each.name for each in missing.parent.iterdir())))
    except OSError:  # no such folder, or not ours to read: there is nothing to hint at
        return ""


def _absolute(path: Path) -> Path:
    """Without ``..``, and without following links: a manifest belongs to the project that it is named in."""
    return Path(os.path.normpath(path.absolute()))


@dataclass
class _Draft:
    """A file on its way to a manifest; whatever is wrong gathers in ``problems``."""

    path: Path
    root: Path
    data: dict[str, Any] | None = None
    sha256: str = ""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    wrong: set[KeyPath] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> _Draft:
        """Parse the file; ``data`` stays None where that fails."""
        document = read_document(path)
        problems = [] if document.problem is None else [document.problem]
        return cls(path, find_root(path), document.data, document.sha256, document.lines, problems)

    def problem(self, path: KeyPath, message: str) -> None:
        self.wrong.add(path)
        self.problems.append(Problem(str(self.path), message, key_text(path), line_of(self.lines, path)))

    def get(self, kind: type[T], *path: str | int) -> T | None:
        """The value at ``path`` if it is there, is a ``kind``, and nothing is wrong with it or what it is in."""
        value: Any = self.data
        for length, key in enumerate(path, 1):
            if path[:length] in self.wrong:
                return None
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return None
        return value if isinstance(value, kind) else None

    def texts(self, *path: str | int) -> Iterator[tuple[KeyPath, str]]:
        """The sound strings of a list, each with its path."""
        for index in range(len(self.get(list, *path) or ())):
            text = self.get(str, *path, index)
            if text is not None:
                yield (*path, index), text

    def keys(self, *path: str | int) -> tuple[str, ...]:
        return tuple(self.get(dict, *path) or ())

    def check(self, version: str | None, known: Known | None) -> Manifest | None:
        """Apply all rules; the manifest when none is broken."""
        if self.data is None:
            return None
        self.validate(self.data, known)
        if is_foreign(self.data):
            return None
        for rule in _RULES:
            rule(self)
        return None if self.problems else _manifest(self, self.data, version)

    def validate(self, data: Mapping[str, Any], known: Known | None) -> None:
        """Look at the document by itself, unless these very bytes are known to be valid."""
        if known is not None and known.holds(_VALID, self.sha256):
            return
        from leapp.manifest import schema  # pydantic takes long to import

        for path, message in schema.check(data):
            self.problem(path, message)
        if known is not None and not self.problems:
            known.add(_VALID, self.sha256)


def _check_entry(draft: _Draft) -> None:
    text = draft.get(str, "pipeline", "entry")
    if text is None:
        return
    entry = Entry.parse(text)  # cannot fail: a text that it refuses is known to be wrong
    if entry.file is not None and _need_file(draft, ("pipeline", "entry"), entry.file) and entry.callable:
        with contextlib.suppress(OSError):  # a file that cannot be read is told by the build
            why = missing_callable(_resolved(draft.root, entry.file).read_bytes(), entry.callable)
            if why:
                draft.problem(("pipeline", "entry"), f"{entry.file!r} {why}")
    for table in ("pipeline", "probe"):
        args, argv = draft.keys(table, "args"), tuple(draft.texts(table, "argv"))
        if entry.is_script and args:
            draft.problem((table, "args"), f"args are for a callable, and {text!r} is a script: use argv.")
        if argv and not entry.is_script:
            draft.problem((table, "argv"), f"argv is for a script, and {text!r} is a callable: use args.")


def _check_formats(draft: _Draft) -> None:
    for table in (("export",), *(("nodes", name) for name in draft.keys("nodes"))):
        file = "<node>" if table == ("export",) else table[-1]
        by_suffix: dict[str, list[str]] = {}
        for _, name in draft.texts(*table, "formats"):
            by_suffix.setdefault(FORMAT_NAMES[name].suffix, []).append(name)
        for suffix, names in by_suffix.items():
            if len(names) > 1:
                both = " and ".join(repr(name) for name in names)
                draft.problem((*table, "formats"), f"{both} write the same file, {file}{suffix}: keep one of them.")


def _check_session(draft: _Draft) -> None:
    python = draft.get(str, "session", "python")
    if python and "/" in python and not os.access(draft.root / python, os.X_OK):
        draft.problem(("session", "python"), f"no interpreter {python!r}: looked for {_resolved(draft.root, python)}.")
    elif python and "/" not in python and shutil.which(python) is None:
        draft.problem(("session", "python"), f"no program {python!r} in PATH; write a path, or leave it out.")
    for path, pattern in draft.texts("session", "inputs"):
        if next(matches(draft.root, pattern), None) is None:
            looked = f"looked for {_resolved(draft.root, pattern)}.{_no_project(draft)}"
            draft.problem(path, f"{pattern!r} matches no file: {looked}")


def _check_probe(draft: _Draft) -> None:
    for original in draft.keys("probe", "inputs"):
        path = ("probe", "inputs", original)
        replacement = draft.get(str, *path)
        if replacement is not None and _need_file(draft, path, original):
            _need_file(draft, path, replacement)
    for port in draft.keys("probe", "ports"):
        path = ("probe", "ports", port)
        given = draft.keys(*path)
        if draft.get(dict, *path) is not None and len(given) != 1:
            got = " and ".join(repr(each) for each in given) or "none"
            draft.problem(path, f"expected exactly one of {', '.join(PORT_HINTS)}, got {got}.")
        file = draft.get(str, *path, "file")
        if file is not None:
            _need_file(draft, (*path, "file"), file)


def _check_free_values(draft: _Draft) -> None:
    """Values that are free must still be values that JSON can record."""
    for path, dates in ((("pipeline", "args"), False), (("probe", "args"), False), (("metadata",), True)):
        for inner, value in _leaves(path, draft.get(dict, *path)):
            if isinstance(value, float) and not math.isfinite(value):
                draft.problem(inner, f"expected a finite number, got {value}.")
            elif isinstance(value, (dt.date, dt.time)) and not dates:
                draft.problem(
                    inner, f"expected a JSON value, got {kind_of(value)}: quote it and let the callable read it."
                )


def _check_onnx_metadata(draft: _Draft) -> None:
    known = draft.keys("metadata")
    for table in (("export",), *(("nodes", name) for name in draft.keys("nodes"))):
        for path, key in draft.texts(*table, "onnx", "metadata"):
            if key not in known:
                advice = hint(nearest(key, known), f"Its keys: {', '.join(known) or 'none'}.")
                draft.problem(path, f"[metadata] has no key {key!r}.{advice}")


_RULES: Final = (
    _check_entry,
    _check_formats,
    _check_session,
    _check_probe,
    _check_free_values,
    _check_onnx_metadata,
)


def _check_names(drafts: Iterable[_Draft], version: str | None) -> None:
    """No two pipelines with one name and version, nor with names that a registry cannot tell apart."""
    first: dict[str, tuple[str, str]] = {}  # lower-case name -> name, place of the first one
    taken: dict[tuple[str, str], str] = {}
    for draft in drafts:
        name = draft.get(str, "pipeline", "name")
        if name is None:
            continue
        path = ("pipeline", "name")
        here = f"{draft.path}:{line_of(draft.lines, path)}"
        other, place = first.setdefault(name.lower(), (name, here))
        if other != name:
            draft.problem(path, f"{name!r} and {other!r} ({place}) differ only in case; registries ignore it.")
            continue
        number = version or draft.get(str, "pipeline", "version")
        if number is None:
            continue
        place = taken.setdefault((name, number), here)
        if place != here:
            draft.problem(
                path, f"{place} declares {name!r} {number} as well; give one of them another name or version."
            )


def _need_file(draft: _Draft, path: KeyPath, name: str) -> bool:
    target = _resolved(draft.root, name)
    if target.is_file():
        return True
    if target.is_dir():
        draft.problem(path, f"{name!r} is a folder, not a file.")
    else:
        draft.problem(path, f"no file {name!r}: looked for {target}.{_did_you_mean(target)}{_no_project(draft)}")
    return False


def _no_project(draft: _Draft) -> str:
    """Why a path is looked up beside the manifest, where nothing says what the project is."""
    if any((draft.root / mark).exists() for mark in ROOT_MARKS):
        return ""
    marks = " or ".join(ROOT_MARKS)
    return f" No folder above has a {marks}, so paths are looked up beside the manifest; `git init` where they begin."


def _resolved(root: Path, name: str) -> Path:
    return Path(os.path.normpath(root / name))


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves((*path, index), inner)
    else:
        yield path, value


# --- a valid document -> model ---------------------------------------------------------------------------------------
# What is not written down is left to the defaults of the model, which are those that the schema shows.


def _manifest(draft: _Draft, data: Mapping[str, Any], version: str | None) -> Manifest:
    pipeline = _frozen(data["pipeline"])
    probe = _frozen(data.get("probe", {}))
    own_version = pipeline["version"]
    return Manifest(
        path=_absolute(draft.path),
        shown=str(draft.path),
        root=draft.root,
        pipeline=Pipeline(**pipeline | {"entry": Entry.parse(pipeline["entry"]), "version": version or own_version}),
        export=ExportSettings(**_exported(data.get("export", {}))),
        nodes={name: _node(table) for name, table in data.get("nodes", {}).items()},
        session=Session(**_frozen(data.get("session", {}), numbers=("timeout_s",))),
        probe=Probe(**probe | {"ports": {port: _hint(hint) for port, hint in probe.get("ports", {}).items()}}),
        allow={key: tuple(value) for key, value in sorted(data.get("allow", {}).items()) if value},
        metadata={key: _json(value) for key, value in data.get("metadata", {}).items()},
        schema=data["schema"],
        lines=draft.lines,
        own_version=own_version,
    )


def _frozen(table: Mapping[str, Any], numbers: Sequence[str] = ()) -> dict[str, Any]:
    """The values of a table as the model has them: lists as tuples, and 600 as 600.0 where any number may stand."""
    return {
        key: float(value) if key in numbers else tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
    }


def _node(table: Mapping[str, Any]) -> NodeSettings:
    starts = {port: Start.parse(text) for port, text in table.get("state", {}).items()}
    ports = {
        port: PortFacts(
            facts.get("kind"),
            element_names(facts.get("element_names")),
            facts.get("unit"),
            facts.get("range"),
            facts.get("description"),
        )
        for port, facts in table.get("ports", {}).items()
    }
    return NodeSettings(**_exported(table), state=starts, ports=ports, reset=table.get("reset"))


def _exported(table: Mapping[str, Any]) -> dict[str, Any]:
    settings = _frozen({key: table[key] for key in ("formats", "rtol", "atol") if key in table}, ("rtol", "atol"))
    if "formats" in settings:
        settings["formats"] = tuple(FORMAT_NAMES[name] for name in settings["formats"])
    onnx = _frozen(table.get("onnx", {}))
    return settings | {"onnx_metadata" if key == "metadata" else key: value for key, value in onnx.items()}


def _hint(table: Mapping[Any, Any]) -> PortHint:
    ((kind, value),) = table.items()
    match kind:
        case "range":
            low, high = value
            return Range(float(low), float(high))
        case "choices":
            return Choices(tuple(value))
        case "file":
            return FromFile(value)
        case _:
            return Structure(kind)


def _json(value: Any) -> Any:
    """TOML's values in JSON's; dates and times become ISO 8601 text."""
    if isinstance(value, dict):
        return {key: _json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_json(inner) for inner in value]
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else value
