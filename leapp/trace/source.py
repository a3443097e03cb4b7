"""Where in the user's code a call came from."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leapp._spec import SourceLine

if TYPE_CHECKING:
    from types import FrameType


class Place(NamedTuple):
    """A line as the recorder notes it: cheap to take, turned into a ``SourceLine`` only when somebody reads it."""

    code: CodeType
    line: int
    module: str


_place: Callable[..., Place] = tuple.__new__
"""Makes a ``Place`` in a third of the time that its own constructor takes: one is made for every recorded call."""

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
    return "/torch/" in filename and filename.startswith(_folder_of("torch"))


@lru_cache(maxsize=4096)
def is_of_numpy(filename: str) -> bool:
    """Whether a file is one of NumPy's own."""
    return "/numpy/" in filename and filename.startswith(_folder_of("numpy"))


def _folder_of(package: str) -> str:
    file = getattr(sys.modules.get(package), "__file__", None)
    return str(Path(file).parent) + "/" if file else "\0"


@lru_cache(maxsize=4096)
def is_nobodys(filename: str) -> bool:
    """Whether a file is ours, torch's or NumPy's."""
    return is_machinery(filename) or is_of_numpy(filename)


def caller(depth: int = 1) -> Place:
    """The innermost frame that is not ours, torch's or NumPy's; ``depth`` skips frames that are known to be."""
    frame = sys._getframe(depth)
    while is_nobodys((code := frame.f_code).co_filename) and (outer := frame.f_back) is not None:
        frame = outer
    return _place(Place, (code, frame.f_lineno, frame.f_globals.get("__name__", "")))


Runner = Callable[[Callable[..., Any], Any, Any], Any]
_runners: dict[tuple[int, int], tuple[CodeType, Runner]] = {}
"""id and line of a user's code -> the code, and what runs a function as if it were called there."""
_RUNNERS_LIMIT: Final = 1 << 14


def _run(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def runner(depth: int = 1) -> Runner:
    """What runs a function so that warnings of compiled code name the user's line.

    Such code warns in the name of the frame that is running, of which it takes the file, the line and the module.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return _run
    code, line = frame.f_code, frame.f_lineno
    found = _runners.get((id(code), line))
    if found is None:
        if len(_runners) > _RUNNERS_LIMIT:
            _runners.clear()
        there = _ONE_LINE.replace(co_filename=code.co_filename, co_name=code.co_name, co_firstlineno=line)
        found = _runners[id(code), line] = code, FunctionType(there, frame.f_globals)
    return found[1]


def _one_line() -> CodeType:
    """The code of ``_run`` on a single line, which is then its first."""
    names: dict[str, Any] = {}
    exec("def run(function, args, kwargs): return function(*args, **kwargs)", names)  # noqa: S102 - a text of ours
    code: CodeType = names["run"].__code__
    return code


_ONE_LINE: Final = _one_line()


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
