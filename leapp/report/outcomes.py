"""The records that commands give machines, as suites of checks: what JUnit files and a CI's pages are made from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_IN_TEXT: Final = re.compile(r"(?<![\w./-])([\w./~@+-]+\.py):(\d+)")
"""A line of a source as our texts name it."""
_IN_TRACEBACK: Final = re.compile(r'^\s*File "([^"<>]+)", line (\d+)', re.MULTILINE)


NOTED: Final[Mapping[str, str]] = {
    "escape": "a value was read as a Python value",
    "branch": "a branch on a value",
    "guard": "a check that only raises",
    "constant": "meant to be fixed",
    "reader": "an array that compiled code made",
    "untraced": "a call that was not recorded",
    "random": "random numbers were drawn",
    "hidden-state": "memory that carries values from tick to tick",
}
"""What a session notes of a line, by its kind."""
_MEANT: Final = frozenset({"guard", "constant"})
"""Kinds that nobody has to look at."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line that a text speaks of."""

    file: str
    """As it was named: absolute, or relative to the project or the working folder; empty: no file."""
    line: int | None
    text: str
    wrong: bool = True
    """Something failed; else it is worth knowing."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was checked."""

    name: str
    problem: str = ""
    """What a person gets to read; empty: it passed."""
    details: str = ""
    """What helps to understand it: a traceback, or the end of what was printed."""
    kind: str = ""
    """Class of the error, or in a word what is wrong."""
    unchecked: bool = False
    """It could not be checked: bad input, an entry that failed, a fault of ours."""
    file: str = ""
    line: int | None = None

    @property
    def text(self) -> str:
        """All that a person gets to read."""
        return "\n\n".join(part for part in (self.problem, self.details) if part)


@dataclass(frozen=True, slots=True)
class Suite:
    """All that was checked of one pipeline, bundle or manifest."""

    name: str
    command: str
    cases: tuple[Case, ...]
    file: str = ""
    """The manifest, where there is one."""
    root: str = ""
    """The project's folder, which files in texts may be relative to."""
    time_s: float = 0.0
    digest: str = ""
    seen: tuple[Place, ...] = ()
    """Lines worth a look even where all is well: there values left the trace."""

    @property
    def failed(self) -> tuple[Case, ...]:
        """Cases that did not pass."""
        return tuple(case for case in self.cases if case.problem)

    def places(self) -> Iterator[Place]:
        """Where each problem is, without repeating a line; then what is worth knowing."""
        told: set[tuple[str, int | None]] = set()
        for case in self.failed:
            found = [Place(case.file, case.line, case.problem)] if case.file else [*_places(case)]
            for place in found or [Place(self.file, None, case.text)]:
                told.add((place.file, place.line))
                yield place
        for place in self.seen:
            if (place.file, place.line) not in told:
                yield place


def _places(case: Case) -> Iterator[Place]:
    """The lines that a problem names, each with its part of the text; else where the entry raised its error."""
    found = [(line, match) for line in case.problem.splitlines() if (match := _IN_TEXT.search(line))]
    alone = len({(match[1], match[2]) for _, match in found}) == 1
    for line, match in found[:1] if alone else found:
        yield Place(match[1], int(match[2]), case.problem if alone else line.strip())
    frames = [*_IN_TRACEBACK.finditer(case.details)]
    if frames and not found:
        # Frames of installed packages help nobody who looks at a change of their own.
        own = [each for each in frames if "site-packages" not in each[1]] or frames
        yield Place(own[-1][1], int(own[-1][2]), case.text)


def suites(records: Iterable[Mapping[str, Any]]) -> tuple[Suite, ...]:
    """One suite per record, or per file where a record holds the problems of several manifests.

    Args:
        records: what a command prints with ``--json``, in its order.
    """
    return tuple(suite for record in records for suite in _suites(record))


def _suites(record: Mapping[str, Any]) -> Iterator[Suite]:
    command = record["command"]
    error = record["error"] or {}
    if error.get("problems"):
        by_file: dict[str, list[Case]] = {}
        for each in error["problems"]:
            key = f", {each['key']}" if each["key"] else ""
            name = f"line {each['line']}{key}" if each["line"] else each["key"] or "the whole file"
            where = ":".join(str(part) for part in (each["file"], each["line"], each["column"]) if part is not None)
            text = f"{where}{key}: {each['message']}"
            case = Case(name, text, kind=error["class"], unchecked=True, file=each["file"], line=each["line"])
            by_file.setdefault(each["file"], []).append(case)
        for file, cases in by_file.items():
            yield Suite(file, command, tuple(cases), file=file)
        return
    rows = record.get("checks") or ()
    yield Suite(
        _name(record),
        command,
        (*_whole(record, rows), *(_row(row) for row in rows), *_problems(record), *_reproduction(record)),
        file=record.get("manifest") or "",
        root=record.get("root") or "",
        time_s=record.get("wall_s") or 0.0,
        digest=record.get("digest") or "",
        seen=tuple(
            Place(each["file"], each["line"], _seen_text(each), wrong=False)
            for each in record.get("escapes") or ()
            if each["kind"] not in _MEANT
        ),
    )


def _seen_text(note: Mapping[str, Any]) -> str:
    return f"Node {note['node']!r}, {note['op']}: {NOTED.get(note['kind'], note['kind'])}. The model may have it fixed."


def _name(record: Mapping[str, Any]) -> str:
    """The pipeline, else what was given on the command line."""
    if record.get("name"):
        return f"{record['name']} {record['version']}" if record.get("version") else str(record["name"])
    return str(record.get("bundle") or record.get("manifest") or f"leapp {record['command']}")


def _whole(record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[Case]:
    """The command itself: it passes where all that is wrong has a case of its own."""
    error = record["error"]
    if error is not None:
        unchecked = record["exit_code"] > 1
        yield Case(record["command"], error["message"], error["details"], kind=error["class"], unchecked=unchecked)
        return
    explained = record["ok"] or record.get("problems") or any(not row["ok"] for row in rows)
    if explained:
        yield Case(record["command"])
    else:  # a bundle that is whole and not to be used says why in its first note
        text = next(iter(record.get("notes") or ()), "It is not as it should be.")
        yield Case(record["command"], text, kind=record.get("status") or "failed")


def _row(row: Mapping[str, Any]) -> Case:
    name = "/".join(part for part in (row["node"], row["format"], row["port"]) if part)
    if row["ok"]:
        return Case(name)
    where = f" at {row['where']}" if row["where"] else ""
    return Case(name, f"{row['node']} ({row['format']}) {row['port']}{where}: {row['note']}", kind="difference")


def _problems(record: Mapping[str, Any]) -> Iterator[Case]:
    """What ``verify`` found; lines of other commands are in their rows already."""
    for each in record.get("problems") or ():
        if isinstance(each, dict):
            yield Case(
                f"{each['kind']}: {each['path']}",
                f"{each['path']}: {each['kind']}: {each['detail']}",
                kind=each["kind"],
            )


def _reproduction(record: Mapping[str, Any]) -> Iterator[Case]:
    found = record.get("reproduction")
    if found:
        blames = "; ".join(each["text"] for each in found["blames"])
        text = f"It came out otherwise once more{': ' if blames else '.'}{blames}"
        yield Case("reproduction", "" if found["reproduced"] else text, kind="" if found["reproduced"] else "differs")


def shown_path(path: str, roots: Sequence[str], workspace: str) -> str:
    """A file as a CI's pages know it: relative to the checkout, where it lies in it.

    Args:
        path: absolute, or relative to one of ``roots``; the first of them that has it counts.
        roots: folders; empty ones are passed over.
        workspace: folder of the checkout; empty: unknown.
    """
    if not path:
        return path
    tried = [os.path.join(root, path) for root in roots if root]  # noqa: PTH118  # a path of a text, never opened
    full = next((each for each in tried if os.path.lexists(each)), path)
    if workspace and os.path.isabs(full):  # noqa: PTH117
        relative = os.path.relpath(os.path.realpath(full), os.path.realpath(workspace))
        if not relative.startswith(".."):
            return relative.replace(os.sep, "/")
    return path
