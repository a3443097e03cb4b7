"""How wide text is, in the one font that pictures are drawn with: the TrueType font inside Pillow.

No font of the machine takes part, so that a picture has the same bytes everywhere.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from leapp.report.text import visible

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

_SIGNS: Final = frozenset(chr(code) for code in range(32, 127)) | frozenset("©«°±·»…™")
"""What the font has glyphs for."""


@functools.cache
def font(size: float) -> FreeTypeFont:
    """Pillow's own font in a size in pixels."""
    from PIL import ImageFont

    built_in: Any = ImageFont.load_default(size)
    # Shaping is done by libraries that some machines have and others lack: never use them.
    basic: FreeTypeFont = built_in.font_variant(layout_engine=ImageFont.Layout.BASIC)
    return basic


@functools.lru_cache(maxsize=4096)
def width_of(text: str, size: float) -> float:
    """The width of text, in pixels."""
    # Measured large and scaled: in its own size the font rounds every letter to whole pixels.
    return font(64).getlength(text) * size / 64


def shortened(text: str, size: float, limit: float) -> str:
    """Text in signs that the font has, with its middle left out where it is wider than ``limit`` pixels.

    Other signs are written as their code: a picture that shows empty boxes for a name says nothing.
    """
    shown = written(text)
    if width_of(shown, size) <= limit:
        return shown
    low, high = 1, len(shown)
    while low < high:  # the most signs that fit
        middle = (low + high + 1) // 2
        if width_of(_cut(shown, middle), size) <= limit:
            low = middle
        else:
            high = middle - 1
    return _cut(shown, low)


def written(text: str) -> str:
    """Text in signs that the font has."""
    shown = visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return "".join(sign if sign in _SIGNS else sign.encode("unicode_escape").decode() for sign in shown)


def _cut(text: str, signs: int) -> str:
    """The beginning and the end of a text; names that differ mostly differ at an end."""
    last = signs // 2
    return f"{text[: signs - last]}…{text[len(text) - last :]}"
