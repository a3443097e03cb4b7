"""What is wrong with a manifest, as values that print like a compiler's messages."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leapp.manifest.positions import KeyPath

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend; ``str()`` gives the line that users read."""

    file: str
    """As the user named it."""
    message: str
    key: str = ""
    """Key path in TOML's own spelling; empty when the whole file is meant."""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}, {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


def key_text(path: KeyPath) -> str:
    """A key path as it would be written in TOML: ``nodes."observation.state".formats``, ``session.inputs[1]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + _key(part)
    return text


def _key(key: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
    return key if _BARE.match(key) else json.dumps(key, ensure_ascii=False).replace("\x7f", "\\u007f")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that ``word`` was probably meant to be."""
    by_lower = {each.lower(): each for each in known}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that ends in a space and names the nearest of ``known``; empty where none is near."""
    near = nearest(word, known)
    return "" if near is None else f"Did you mean {near!r}? "


def kind_of(value: object) -> str:
    """What a value of a TOML document is, in words."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "a string"
        case int():
            return "an integer"
        case float():
            return "a float"
        case list():
            return "a list"
        case dict():
            return "a table"
        case dt.datetime() | dt.date() | dt.time():
            return "a date or time"
        case _:
            return f"a {type(value).__name__}"
