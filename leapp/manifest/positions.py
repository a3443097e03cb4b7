"""On which line of a TOML text each key stands.

``tomllib`` gives values without positions, and no well-kept parser gives them either, so this scanner walks the text a
second time. It runs only on text that ``tomllib`` accepted: it finds its way and judges nothing.
"""

from __future__ import annotations

import bisect
import re
import tomllib
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys from the top of a document to a value; an integer is an index into an array."""

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACES: Final = re.compile(r"[ \t]*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]+")
# A multi-line string may end in up to five quotes; the last three close it, the others belong to it.
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_ONE_LINE_STRING: Final = re.compile(r'"(?:\\.|[^"\\])*"' r"|'[^']*'")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Map each key path of a valid TOML document to the line, counted from 1, where it is first named.

    A table that is only implied has the line of the first key or header that implies it. Elements of arrays are keys
    too: ``("session", "inputs", 0)``. Recursion is as deep as the arrays and inline tables of the text, which is less
    than ``tomllib`` itself needed.
    """
    return _Scanner(text).document()


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """The line of ``path``, or of the nearest thing around it that is written down."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


class _Scanner:
    """One walk over a text; every method starts at ``at`` and leaves it behind what it read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[KeyPath, int] = {}
        self.tables_in: dict[KeyPath, int] = {}  # array of tables -> how many of its tables were opened

    def document(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self.skip(_BLANK)
        while self.at < len(self.text):
            if self.text.startswith("[[", self.at):
                table = self.array_header()
            elif self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
            self.skip(_BLANK)
        return self.lines

    def header(self) -> KeyPath:
        """``[a.b]``."""
        start = self.at
        self.at += 1
        path = self.resolve((), self.key(), start)
        self.at += 1
        return path

    def array_header(self) -> KeyPath:
        """``[[a.b]]``: one more table in the array ``a.b``."""
        start = self.at
        self.at += 2
        *outer, last = self.key()
        self.at += 2
        array = (*self.resolve((), tuple(outer), start), last)
        number = self.tables_in.get(array, 0)
        self.tables_in[array] = number + 1
        self.mark(array, start)
        self.mark((*array, number), start)
        return (*array, number)

    def resolve(self, path: KeyPath, keys: tuple[str, ...], start: int) -> KeyPath:
        """Follow ``keys`` from ``path``; an array of tables stands for the table that was opened last in it."""
        for key in keys:
            path = (*path, key)
            self.mark(path, start)
            if path in self.tables_in:
                path = (*path, self.tables_in[path] - 1)
        return path

    def pair(self, table: KeyPath) -> None:
        """``a.b = value``."""
        start = self.at
        path = table
        for key in self.key():
            path = (*path, key)
            self.mark(path, start)
        self.at += 1
        self.skip(_SPACES)
        self.value(path)

    def key(self) -> tuple[str, ...]:
        """``a . "b" . 'c'`` with the blanks around it."""
        parts: list[str] = []
        while True:
            self.skip(_SPACES)
            if self.text[self.at] in "\"'":
                raw = self.skip(_ONE_LINE_STRING)
                # tomllib knows the escapes of the version at hand.
                parts.append(tomllib.loads(f"key = {raw}")["key"] if "\\" in raw else raw[1:-1])
            else:
                parts.append(self.skip(_BARE_KEY))
            self.skip(_SPACES)
            if self.text[self.at] != ".":
                return tuple(parts)
            self.at += 1

    def value(self, path: KeyPath) -> None:
        match self.text[self.at]:
            case '"' | "'":
                self.skip(_STRING)
            case "[":
                self.array(path)
            case "{":
                self.inline_table(path)
            case _:
                self.skip(_SCALAR)

    def array(self, path: KeyPath) -> None:
        self.at += 1
        number = 0
        self.skip(_BLANK)
        while self.text[self.at] != "]":
            self.mark((*path, number), self.at)
            self.value((*path, number))
            number += 1
            self.skip_comma()
        self.at += 1

    def inline_table(self, path: KeyPath) -> None:
        self.at += 1
        self.skip(_BLANK)
        while self.text[self.at] != "}":
            self.pair(path)
            self.skip_comma()
        self.at += 1

    def skip_comma(self) -> None:
        self.skip(_BLANK)
        if self.text[self.at] == ",":
            self.at += 1
            self.skip(_BLANK)

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise AssertionError(f"not TOML at {self.at}: {self.text[self.at : self.at + 40]!r}")
        self.at = match.end()
        return match.group()

    def mark(self, path: KeyPath, offset: int) -> None:
        self.lines.setdefault(path, bisect.bisect_left(self.newlines, offset) + 1)
