"""Where in the user's code a call came from."""

from __future__ import annotations

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from leapp._spec import SourceLine

if TYPE_CHECKING:
    from types import CodeType, FrameType


class Place(NamedTuple):
    """A line as the recorder notes it: cheap to take, turned into a ``SourceLine`` only when somebody reads it."""

    code: CodeType
    line: int
    module: str


_OWN_FOLDER: Final = str(Path(__file__).parents[1]) + "/"
_SITE_FOLDERS: Final = tuple(
    {str(Path(sysconfig.get_path(key))) + "/" for key in ("purelib", "platlib")},
)


@lru_cache(maxsize=4096)
def is_machinery(filename: str) -> bool:
    """Whether a file belongs to torch or to us, whose frames are never what the user wants to see."""
    if filename.startswith(_OWN_FOLDER):
        return True
    if filename.startswith("<"):
        return filename != "<stdin>" and not filename.startswith(("<ipython", "<string"))
    return "/torch/" in filename and filename.startswith(_torch_folder())


@lru_cache(maxsize=1)
def _torch_folder() -> str:
    torch = sys.modules.get("torch")
    file = getattr(torch, "__file__", None)
    return str(Path(file).parent) + "/" if file else "\0"


def caller(depth: int = 1) -> Place:
    """The innermost frame that is neither ours nor torch's; ``depth`` skips frames that are known to be."""
    frame: FrameType | None = sys._getframe(depth)
    last = frame
    while frame is not None:
        last = frame
        if not is_machinery(frame.f_code.co_filename):
            break
        frame = frame.f_back
    assert last is not None
    return Place(last.f_code, last.f_lineno, last.f_globals.get("__name__", ""))


def innermost_frame() -> FrameType:
    """The innermost frame that is not ours: torch's own checks are guards too."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_FOLDER):
        frame = frame.f_back
    return frame


@lru_cache(maxsize=65536)
def source_line(place: Place, root: Path) -> SourceLine:
    """A place as evidence shows it: the file relative to the project, or to the site-packages folder it lies in."""
    filename = place.code.co_filename
    file = filename
    for folder in (str(root) + "/", *_SITE_FOLDERS):
        if filename.startswith(folder):
            file = filename[len(folder) :]
            break
    module = Path(filename).stem if place.module == "__main__" else place.module
    return SourceLine(file, place.line, f"{module}:{place.code.co_qualname}")
