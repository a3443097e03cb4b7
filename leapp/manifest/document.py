"""A TOML file -> plain values, with the line of every key; what is wrong with its text, as problems."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp._canonical import sha256
from leapp.manifest.positions import KeyPath, key_lines
from leapp.manifest.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was parsed; ``data`` is None where that failed, and ``problem`` says why."""

    data: dict[str, Any] | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    problem: Problem | None = None
    sha256: str = ""
    """Of the file's bytes; empty where they were not read or understood."""


def read_document(path: Path) -> Document:
    """Parse a TOML file. Whatever is wrong with it is a value: nothing is raised."""

    def wrong(message: str, line: int | None = None, column: int | None = None) -> Document:
        return Document(problem=Problem(str(path), message, line=line, column=column))

    try:
        raw = path.read_bytes()
    except OSError as error:
        return wrong(f"cannot be read: {error.strerror}.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return wrong("not valid TOML: not UTF-8 text.", raw.count(b"\n", 0, error.start) + 1)
    try:
        return Document(tomllib.loads(text), key_lines(text), sha256=sha256(raw))
    except RecursionError:
        return wrong("nested too deeply.")
    except ValueError as error:  # TOMLDecodeError, and integers with more digits than Python converts
        place = _TOML_PLACE.search(str(error))
        line, column = (int(each) for each in place.groups()) if place and place[1] else (None, None)
        if place and line is None:
            line = text.rstrip("\n").count("\n") + 1
        what = str(error)[: place.start()] if place else str(error)
        return wrong(f"not valid TOML: {what}.", line, column)
