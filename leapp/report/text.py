"""Lines and tables for a terminal: coloured where a person looks, plain text everywhere else."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STYLES: Final[Mapping[str, str]] = {
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "soft": "dim",
    "title": "bold",
    "": "",
}


class Cell(str):
    """A table cell or line with a meaning that a terminal shows as a colour."""

    __slots__ = ("style",)
    style: str

    def __new__(cls, text: object, style: str = "") -> Self:
        """``style`` is a key of ``STYLES``."""
        cell = super().__new__(cls, text)
        cell.style = style
        return cell


class Printer:
    """Writes to one stream. Decides once whether a person looks at it."""

    def __init__(self, stream: IO[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.styled = wants_style(self.stream, os.environ if environment is None else environment)
        self._console: Any = None

    @property
    def console(self) -> Any:
        """Rich's console, made when it is needed: plain output never imports rich."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self.stream, highlight=False, soft_wrap=True, emoji=False)
        return self._console

    def line(self, *cells: str) -> None:
        """One line; cells follow one another without a space. Control characters are made visible."""
        if not self.styled:
            self.stream.write("".join(visible(cell) for cell in cells) + "\n")
            return
        self.console.print(*(_rich_text(cell) for cell in cells), sep="")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> None:
        """A table; columns in ``numbers`` are set flush right. Nothing is printed where there are no rows."""
        if not rows:
            return
        if not self.styled:
            self.stream.write(plain_table(head, rows, numbers))
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
        for at, title in enumerate(head):
            table.add_column(title, justify="right" if at in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_rich_text(cell) for cell in row))
        self.console.print(table, soft_wrap=False)


def wants_style(stream: IO[str], environment: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that a person watches: not with ``NO_COLOR``, in CI, or on a dumb terminal."""
    if any(environment.get(name) for name in ("NO_COLOR", "CI")) or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Aligned columns two spaces apart, without lines, for logs and pipes."""
    cells = [[visible(str(cell)).replace("\n", " ") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = (
        "  ".join(
            cell.rjust(width) if at in numbers else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )
    return "\n".join(lines) + "\n"


def visible(text: str) -> str:
    r"""Control characters as ``\x1b``, so that no name can move the cursor, or hide what a reader sees."""
    if text.isprintable():
        return str(text)
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def size_text(size_bytes: int) -> str:
    """A size for people, in powers of 1000 as disks and registries count."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    size = size_bytes / 1000
    for unit in ("kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rich_text(cell: str) -> Any:
    from rich.text import Text

    return Text(visible(cell), style=STYLES[getattr(cell, "style", "")])
