"""HTML that cannot be broken by what it shows: text is escaped because of its type, not because somebody remembered.

A template engine would be a dependency for one page; this is what that page needs of one.
"""

from __future__ import annotations

import html
from typing import TypeAlias

from leapp.report.text import visible


class Html(str):
    """Finished markup. Everything else that is put into an element is text and is escaped."""

    __slots__ = ()


Content: TypeAlias = "Html | str | int | None"

_VOID = frozenset({"br", "col", "hr", "link", "meta", "path", "rect", "line"})


def element(name: str, /, *content: Content, **attributes: str | float | None) -> Html:
    """One element. Attributes that are None are left out; ``class_`` and ``stroke_width`` lose and turn underscores."""
    opened = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not content:
        return Html(f"<{name}{opened}/>")
    return Html(f"<{name}{opened}>{join(*content)}</{name}>")


def join(*content: Content) -> Html:
    """Several pieces after one another."""
    return Html("".join(_escaped(piece) for piece in content if piece is not None))


def table(head: tuple[Content, ...], rows: list[tuple[Content, ...]], *, numbers: frozenset[int] = frozenset()) -> Html:
    """A table in a box of its own that scrolls sideways; the columns in ``numbers`` are set flush right."""

    def cells(kind: str, row: tuple[Content, ...]) -> Html:
        return element(
            "tr", *(element(kind, cell, class_="n" if at in numbers else None) for at, cell in enumerate(row))
        )

    body = element("tbody", *(cells("td", row) for row in rows))
    return element("div", element("table", element("thead", cells("th", head)), body), class_="scroll", tabindex="0")


def _escaped(piece: Content) -> str:
    return piece if isinstance(piece, Html) else visible(html.escape(str(piece)))
