"""What is wrong with a manifest, as values that print like a compiler's messages."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leapp.manifest.positions import KeyPath

_NEAR: Final = 0.6
"""Share of letters that two names have in common, in order, for one to be taken for the other mistyped."""
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
    """The one of ``known`` that ``word`` was probably meant to be; None where none is near.

    Names of as many parts (``node/port``) are near where each part is: a part in common says nothing of the others.
    """
    likeness = {each: _likeness(word, each) for each in known}
    best = max(likeness, key=likeness.__getitem__, default=None)
    return best if best is not None and likeness[best] > 0 else None


def _likeness(word: str, other: str) -> float:
    """Between 0 and 1, case aside; 0 where they are too far apart to be one name."""
    pairs = [*zip(word.lower().split("/"), other.lower().split("/"), strict=False)]
    if word.count("/") != other.count("/"):
        pairs = [(word.lower(), other.lower())]
    ratios = [1.0 if a == b else difflib.SequenceMatcher(None, a, b).ratio() for a, b in pairs]
    return sum(ratios) / len(ratios) if min(ratios) >= _NEAR else 0.0


def nearest_file(name: str, known: Iterable[str]) -> str | None:
    """The one of some names of files or folders that ``name`` was probably meant to be; None where none is near.

    A file of another kind is meant only where its name is the same up to the suffix.
    """
    stem, suffix = _stem_and_suffix(name)
    parts = {each: _stem_and_suffix(each) for each in known}
    alike = {own: each for each, (own, kind) in parts.items() if kind == suffix}
    near = nearest(stem, alike)
    return alike[near] if near is not None else next((each for each, (own, _) in parts.items() if own == stem), None)


def _stem_and_suffix(name: str) -> tuple[str, str]:
    path = PurePath(name)
    return path.stem, path.suffix.lower()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence that ends in a space and names the nearest of ``known``; empty where none is near."""
    near = nearest(word, known)
    return "" if near is None else f"Did you mean {near!r}? "


def hint(near: str | None, otherwise: str = "") -> str:
    """A sentence that begins with a space and names what is near; where nothing is, ``otherwise`` in its place."""
    return f" Did you mean {near!r}?" if near is not None else otherwise and f" {otherwise}"


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
