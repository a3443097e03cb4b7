"""TOML files -> manifests. Every problem of every file is reported at once, with file, line and key path."""

from __future__ import annotations

import datetime as dt
import math
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leapp._spec import FORMAT_NAMES, Start
from leapp.errors import ManifestError
from leapp.manifest import schema
from leapp.manifest.document import read_document
from leapp.manifest.model import (
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
    matches,
)
from leapp.manifest.positions import KeyPath, line_of
from leapp.manifest.problems import Problem, hint, key_text, kind_of, nearest, nearest_file
from leapp.semantics import PortFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

ROOT_MARKS: Final = ("pyproject.toml", ".git")


def load(paths: Sequence[Path], *, version: str | None = None) -> list[Manifest]:
    """Read manifests; folders are searched for ``*.toml``, sorted by path, without hidden files and folders.

    Args:
        paths: files and folders; a file that is named twice is read once.
        version: takes the place of every ``pipeline.version``, as ``leapp build --version`` wants it.

    Raises:
        ManifestError: with all problems of all files; ``facts["problems"]`` holds them as ``Problem`` values.
    """
    problems: list[Problem] = []
    files: dict[Path, Path] = {}
    for given in paths:
        for path in _find(given, problems):
            files.setdefault(_absolute(path), path)
    if version is not None and re.fullmatch(schema.SEMVER, version) is None:
        problems.append(Problem("--version", f"{version!r} is not a version of Semantic Versioning 2.0."))
    drafts = [_Draft.read(path) for path in files.values()]
    manifests = [draft.check(version) for draft in drafts]
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
            problems.append(Problem(str(given), "no manifest (*.toml) in this folder."))
        return sorted(found)
    if not given.exists():
        problems.append(Problem(str(given), f"no such file or folder.{_did_you_mean(given)}"))
        return []
    if given.name == "pyproject.toml":  # as `leapp build *.toml` takes it along
        problems.append(Problem(str(given), "a project file, not a manifest: leave it out, or name a folder."))
        return []
    if given.suffix != ".toml":
        problems.append(Problem(str(given), "not a manifest: its name does not end in .toml."))
        return []
    return [given]


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
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    wrong: set[KeyPath] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> _Draft:
        """Parse the file; ``data`` stays None where that fails."""
        document = read_document(path)
        problems = [] if document.problem is None else [document.problem]
        return cls(path, find_root(path), document.data, document.lines, problems)

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

    def check(self, version: str | None) -> Manifest | None:
        """Apply all rules; the manifest when none is broken."""
        if self.data is None:
            return None
        table, found = schema.check(self.data)
        for path, message in found:
            self.problem(path, message)
        if schema.is_foreign(self.data):
            return None
        for rule in _RULES:
            rule(self)
        return None if table is None or self.problems else _manifest(self, table, version)


def _check_entry(draft: _Draft) -> None:
    text = draft.get(str, "pipeline", "entry")
    if text is None:
        return
    entry = Entry.parse(text)  # cannot fail: a text that it refuses is known to be wrong
    if entry.file is not None:
        _need_file(draft, ("pipeline", "entry"), entry.file)
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
    hints = list(schema.PORT_HINTS)
    for port in draft.keys("probe", "ports"):
        path = ("probe", "ports", port)
        given = draft.keys(*path)
        if draft.get(dict, *path) is not None and len(given) != 1:
            got = " and ".join(repr(each) for each in given) or "none"
            draft.problem(path, f"expected exactly one of {', '.join(hints)}, got {got}.")
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


# --- validated tables -> model --------------------------------------------------------------------------------------


def _manifest(draft: _Draft, table: schema.ManifestTable, version: str | None) -> Manifest:
    return Manifest(
        path=_absolute(draft.path),
        shown=str(draft.path),
        root=draft.root,
        pipeline=Pipeline(
            name=table.pipeline.name,
            version=version or table.pipeline.version,
            entry=Entry.parse(table.pipeline.entry),
            args=table.pipeline.args,
            argv=tuple(table.pipeline.argv),
            # As written: the runtime file shows 50 as 50, not as 50.0.
            frequency_hz=None if draft.data is None else draft.data["pipeline"].get("frequency_hz"),
            trace=table.pipeline.trace,
        ),
        export=_export(table.export),
        nodes={name: _node(node) for name, node in table.nodes.items()},
        session=Session(
            python=table.session.python,
            pass_env=tuple(table.session.pass_env),
            seed=table.session.seed,
            threads=table.session.threads,
            timeout_s=table.session.timeout_s,
            network=table.session.network,
            inputs=tuple(table.session.inputs),
        ),
        probe=Probe(
            args=table.probe.args,
            argv=None if table.probe.argv is None else tuple(table.probe.argv),
            seed=table.probe.seed,
            inputs=table.probe.inputs,
            runs=table.probe.runs,
            ports={port: _hint(hint) for port, hint in table.probe.ports.items()},
        ),
        allow={key: tuple(value) for key, value in table.allow.model_dump(by_alias=True).items() if value},
        metadata={key: _json(value) for key, value in table.metadata.items()},
        schema=table.schema_,
        lines=draft.lines,
        own_version=table.pipeline.version,
    )


def _export(table: schema.ExportTable) -> ExportSettings:
    return ExportSettings(**_exported(table))


def _node(table: schema.NodeTable) -> NodeSettings:
    starts = {port: Start.parse(text) for port, text in table.state.items()}
    ports = {
        port: PortFacts(
            facts.kind,
            None if facts.element_names is None else schema.element_names(facts.element_names),
            facts.unit,
            facts.range,
            facts.description,
        )
        for port, facts in table.ports.items()
    }
    return NodeSettings(**_exported(table), state=starts, ports=ports, reset=table.reset)


def _exported(table: schema.ExportTable) -> dict[str, Any]:
    return {
        "formats": None if table.formats is None else tuple(FORMAT_NAMES[name] for name in table.formats),
        "opset": table.onnx.opset,
        "ir_version": table.onnx.ir_version,
        "rtol": table.rtol,
        "atol": table.atol,
        "onnx_metadata": None if table.onnx.metadata is None else tuple(table.onnx.metadata),
    }


def _hint(table: schema.PortTable) -> PortHint:
    if table.range is not None:
        return Range(*table.range)
    if table.choices is not None:
        return Choices(tuple(table.choices))
    if table.file is not None:
        return FromFile(table.file)
    if table.one_hot:
        return Structure("one-hot")
    return Structure("unit-quaternion" if table.unit_quaternion else "permute")


def _json(value: Any) -> Any:
    """TOML's values in JSON's; dates and times become ISO 8601 text."""
    if isinstance(value, dict):
        return {key: _json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_json(inner) for inner in value]
    return value.isoformat() if isinstance(value, (dt.date, dt.time)) else value
