"""Where an array was made that no hook saw, and whether traced data went in.

SciPy, OpenCV and other compiled readers take the buffer of a traced array. NumPy tells nobody of the call; its result
shows up later, as a plain array made while the node was open, when a recorded operation uses it as a constant. So the
memory of arrays is watched: while a node is open in a thread, the array allocator of that thread (NEP 49, one context
variable of NumPy's) is a copy of the one before that runs a line of Python after each block it gave out. That line
looks at the Python frame that is running and notes, by the block's address, the place and whether the expression that
is being evaluated there holds a traced object, or an array that came of one.

What goes in is judged by what stands in the source (``savgol_filter(x, 5, 2)`` holds ``x``; ``hi - lo`` and
``np.zeros(x.shape)`` hold no data of the trace), read from the frame without running anything of the user's. A function
of a library that was called with traced data has read it where the array outlives the call: SciPy makes a result by its
shape first and has it filled later. Inside the call it counts as what the library itself wrote down.

How it is done safely. The allocator's ``malloc`` is called by NumPy with no way to report an error, so no Python may
decide what it returns: a signal handler or a debugger can raise at any line. Here a ctypes callback calls a ctypes
function, both in C. The function's result is an object of ``_Block``, whose ``_check_retval_`` (C as well) gives the
plain address; only then is the object released, and its ``__del__`` is what looks at the frames. Whatever it raises,
the address is already on its way; Python tells ``sys.unraisablehook``, and ours lets the user's next line raise it.
``free`` is the allocator's own: nothing of ours runs for an array that outlives its node, nor at exit. All that NumPy
may keep a pointer to is never freed. A block costs 2 to 4 us; where none of it must be seen, ``pause`` and ``resume``
are a change of a context variable each.

What is not seen: memory that NumPy did not allocate (pybind11, capsules, other libraries' arrays); buffers of the
user's that a compiled function fills (``cv2.resize(x, size, dst=out)``); numbers that a compiled reader returns; code
run in another thread or another ``contextvars`` context; implementations other than CPython. Functions compiled by
numba allocate by themselves, so their calls are looked at instead, if numba was imported before the node opened. The
rest is left to the probe of a build.
"""

from __future__ import annotations

import _thread
import ast
import atexit
import contextvars
import ctypes
import functools
import itertools
import operator
import sys
import sysconfig
import threading
import weakref
from functools import lru_cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from leapp.trace._lineage import value_of
from leapp.trace._syntax import assignments_in, innermost_around
from leapp.trace.source import Place, caller, is_machinery

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from types import CodeType, FrameType


_F = TypeVar("_F", bound="Callable[..., Any]")


_interface: Any = np.ndarray.__array_interface__.__get__  # ours tells of a read


class Made(NamedTuple):
    """An array that was made while a node was open, by a call that was not recorded."""

    place: Place
    """The line of the user's code that made it, or that made the array which it came of."""
    reads_trace: bool
    """Whether traced data went in, as far as the source tells."""
    function: str
    """What made it, as users know it: ``scipy.signal.savgol_filter``."""
    of_list: bool = False
    """Whether a ufunc or an operator of NumPy's made it: these take elements out of a list in C."""
    written: str = ""
    """The array, as the source names it, that traced data were assigned to elements of: ``place`` is that line."""
    outlives: bool = False
    """Whether that array is older than the entry of the node, for all that is known."""


# --- what the core calls -------------------------------------------------------------------------------------------


def begin(owns: Callable[[np.ndarray[Any, Any]], bool] | None = None) -> None:
    """The first node of a session opens in this thread: its arrays are watched. Another session may do so already.

    ``owns`` tells of a plain array whether it lies in memory of the trace.
    """
    state = _thread_state
    state.owners = (*state.owners, owns)
    if state.open:
        return
    file = caller().code.co_filename
    state.own = package_of(file) if _in_library(file) else ""
    with _lock:
        _watching.append(_thread.get_ident())
        _hook()
        _wrap_numba()
    state.before = _install()
    state.open = True


def end() -> None:
    """The last node that a session has in this thread is closed."""
    state = _thread_state
    state.owners = state.owners[:-1]
    if state.owners or not state.open:
        return
    state.open = False
    resume(state.before)
    state.before = None
    with _lock:
        _watching.remove(_thread.get_ident())
        if not _watching:
            _unhook()
            _unwrap_numba()


def forget() -> None:
    """A session is over: what was made in it is of no use any more."""
    if not _watching:
        _notes.clear()
        _returned.clear()


def pause() -> Any:
    """Arrays made from now on are ours; hand what this gives to ``resume``."""
    variable = _allocator
    if variable is None:
        return None
    before = variable.get()
    variable.set(_originals.get(id(before), before))
    return before


def resume(before: Any) -> None:
    """The allocator that ``pause`` found is used again."""
    if before is not None and _allocator is not None:
        _allocator.set(before)


def unwatched(function: _F) -> _F:
    """Arrays that ``function`` makes are ours."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        before = pause()
        try:
            return function(*args, **kwargs)
        finally:
            resume(before)

    return called  # type: ignore[return-value]


def watched(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` as the user's own code does, in the middle of what is ours."""
    before = None if _allocator is None else _allocator.get()
    mine = _ours.get(id(before)) if _thread_state.open else None
    if mine is None:
        return function(*args, **kwargs)
    resume(mine)
    try:
        return function(*args, **kwargs)  # the names of this line are what the note looks at
    finally:
        resume(before)


def is_noted(array: np.ndarray[Any, Any]) -> bool:
    """Whether ``where_made`` knows an array."""
    return _note_of(array) is not None


def where_made(array: np.ndarray[Any, Any]) -> Made | None:
    """Where an array, or the one that it is a view of, was made; None for one that was there before the node.

    Also None for one made by a recorded call, and for what this module cannot see.
    """
    note = _note_of(array)
    if note is None:
        return None
    origin = _read_by(note)
    shown = origin or note
    if isinstance(shown, _Write):
        return shown.made
    site = shown.site if isinstance(shown, _Note) else shown
    assert site is not None  # only _ITSELF has none
    if isinstance(site.node, ast.Compare) and array.dtype != np.bool_:
        origin = None  # ``np.float32(3) < x``: the number as an array, which NumPy makes for its own comparison
    name = shown.function if isinstance(shown, _Note) else ""
    of_list = origin is not None and isinstance(shown, _Note) and shown.of_list
    return Made(site.place(), origin is not None, name or _spelled(site), of_list)


# --- what is noted -------------------------------------------------------------------------------------------------


class _Store(NamedTuple):
    """``NAME[...] = value`` in a function's source."""

    target: tuple[str, ...]
    mentions: tuple[tuple[str, ...], ...]
    line: int
    text: str


_stores: Final[dict[int, tuple[CodeType, tuple[_Store, ...]]]] = {}
"""By id of a code object, which is kept."""
_FRAMES_ASKED: Final = 16


def where_written(array: np.ndarray[Any, Any]) -> Made | None:
    """The assignment that put traced data into elements of a plain array, which NumPy does without a word.

    Looked for in the functions that are running: an assignment to a name that means this array, of an expression that
    names a traced value. None where there is none.
    """
    owner = _owner_of(array)
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES_ASKED):
        while frame is not None and is_machinery(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None or _in_library(frame.f_code.co_filename):
            return None
        for store in _stores_of(frame.f_code):
            there = values_of(frame, (store.target,))
            if (
                there
                and isinstance(there[0], np.ndarray)
                and _owner_of(there[0]) is owner
                and first_traced(frame, store.mentions) is not None
            ):
                return _write_of(frame, store, array)
        frame = frame.f_back
    return None


def _owner_of(array: np.ndarray[Any, Any]) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _stores_of(code: CodeType) -> tuple[_Store, ...]:
    known = _stores.get(id(code))
    if known is None:
        if len(_stores) > _SITES_LIMIT:
            _stores.clear()
        found = []
        for node in assignments_in(code):
            mentions = tuple(dict.fromkeys(mentions_of(node.value)))
            for target in node.targets:
                path = path_of(target.value) if isinstance(target, ast.Subscript) else None
                if path is not None and mentions:
                    found.append(_Store(path, mentions, node.lineno, ast.unparse(node)))
        known = _stores[id(code)] = code, tuple(found)
    return known[1]


class _Site:
    """What one instruction of one code object evaluates, worked out once."""

    __slots__ = ("code", "instruction", "library", "mentions", "module", "node")

    def __init__(self, frame: FrameType) -> None:
        self.code = frame.f_code
        self.instruction = frame.f_lasti
        self.module: str = frame.f_globals.get("__name__", "")
        self.library = _in_library(self.code.co_filename)
        self.node: ast.AST | None = innermost_around(self.code, self.instruction)
        if self.node is None:  # no source: all that the function can see
            names: Iterable[tuple[str, ...]] = ((name,) for name in (*self.code.co_varnames, *self.code.co_freevars))
        else:
            if isinstance(self.node, ast.stmt):
                self.node = _head(self.node)
            names = mentions_of(self.node) if self.node is not None else ()
        self.mentions: tuple[tuple[str, ...], ...] = tuple(dict.fromkeys(names))
        """The names that the expression takes values from: ``("self", "mean")`` for ``self.mean``."""

    def place(self) -> Place:
        """Its line."""
        position = next(itertools.islice(self.code.co_positions(), self.instruction // 2, None), None)
        line = position[0] if position is not None else None
        return Place(self.code, line or self.code.co_firstlineno, self.module)


_sites: Final[dict[tuple[int, int], _Site]] = {}
"""By id of the code object, whose own hash looks at all it holds, and instruction. A site keeps its code."""
_SITES_LIMIT: Final = 1 << 13


def _site_of(frame: FrameType) -> _Site:
    key = id(frame.f_code), frame.f_lasti
    site = _sites.get(key)
    if site is None:
        if len(_sites) > _SITES_LIMIT:
            _sites.clear()
        site = _sites[key] = _Site(frame)
    return site


class _Note:
    """A block at its birth, where traced data went in or may have."""

    __slots__ = ("activation", "function", "of_list", "origin", "outer", "site")

    def __init__(self, site: _Site | None) -> None:
        self.site = site
        """The instruction of the user's code."""
        self.origin: _Note | None = None
        """Itself where the running expression held traced data; the note of the array that held them, where one did."""
        self.outer: _Note | None = None
        """The same for the call of a library that was under way."""
        self.activation: tuple[int, CodeType] | None = None
        """That call's outermost frame."""
        self.function = ""
        """What made it, where it can be told at that moment only."""
        self.of_list = False
        """Whether it is what a ufunc or an operator made of a list."""


class _Write(_Note):
    """Traced data were assigned to elements of a plain array, and came in through it."""

    __slots__ = ("made",)

    def __init__(self, made: Made) -> None:
        super().__init__(None)
        self.made = made


def _write_of(frame: FrameType, store: _Store, array: np.ndarray[Any, Any]) -> Made:
    place = Place(frame.f_code, store.line, frame.f_globals.get("__name__", ""))
    # Of memory that NumPy did not allocate nobody knows how old it is.
    outlives = _note_of(array) is None and _owner_of(array).base is None
    return Made(place, reads_trace=True, function=store.text, written=".".join(store.target), outlives=outlives)


class _ThreadState(threading.local):
    open: bool = False
    own: str = ""
    """The folder of the installed package that opened the node: its code is the user's own."""
    noting: bool = False
    before: Any = None
    owners: tuple[Callable[[np.ndarray[Any, Any]], bool] | None, ...] = ()
    """Of each session that has a node open, what tells of an array whether it lies in memory of the trace."""


_thread_state: Final = _ThreadState()
_lock: Final = threading.Lock()
_watching: Final[list[int]] = []
"""The threads that have a node open."""
_notes: Final[dict[int, _Note | _Site]] = {}
"""Address of a block -> its note; only the site, where no traced data went in."""
_returned: Final[dict[int, tuple[weakref.ref[Any], _Note]]] = {}
"""Address -> array that a compiled function returned in memory of its own."""
_NOTES_LIMIT: Final = 1 << 17


def _note_of(array: np.ndarray[Any, Any]) -> _Note | _Site | None:
    base: Any = array.base
    while isinstance(base, np.ndarray):
        array, base = base, base.base
    if base is None:
        # An address that was given out again by another allocator is told by the array.
        return _notes.get(_interface(array)["data"][0]) if _handler_name(array) == _NAME else None
    if not _returned:
        return None
    owner, note = _returned.get(_interface(array)["data"][0], (None, None))
    return note if owner is not None and owner() is array else None


def _read_by(note: _Note | _Site) -> _Note | None:
    """The note of the array through which traced data came into this one; None where none did."""
    if type(note) is not _Note:
        return None
    if note.origin is not None:
        return note.origin
    if note.outer is None or note.activation is None:
        return None
    name, code = note.activation
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if id(frame) == name and frame.f_code is code:
            return None  # the library's own scratch, while its call is under way
        frame = frame.f_back
    return note.outer


def _note(address: int, frame: FrameType) -> None:
    """A block was given out while ``frame`` ran."""
    if len(_notes) > _NOTES_LIMIT:
        _notes.clear()
    site = _site_of(frame)
    origin = _carried(frame, site.mentions) if site.mentions else None
    if origin is None and not site.library:
        _notes[address] = site
        return
    user, outermost = _users_frame(frame)
    site = _site_of(user)
    note = _Note(site)
    if outermost is not None:
        note.activation = id(outermost), outermost.f_code
        outer = _carried(user, site.mentions) if site.mentions else None
        note.outer = note if outer is _ITSELF else outer
    note.origin = note if origin is _ITSELF else origin
    if note.origin is note or note.outer is note:
        note.function = _public_name(user, site)
        note.of_list = _takes_list(user, site, note.function)
    _notes[address] = note


def _users_frame(frame: FrameType) -> tuple[FrameType, FrameType | None]:
    """The innermost frame that is of no library, and the one that it called, where it is not ``frame`` itself."""
    outermost = None
    own = _thread_state.own
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not _in_library(file) or (own and file.startswith(own)):
            break
        outermost, frame = frame, frame.f_back
    return frame, outermost


# --- what an expression holds --------------------------------------------------------------------------------------

_FORM: Final = frozenset("shape dtype ndim size strides itemsize nbytes flags device __class__ __name__".split())
"""Attributes that tell the form of an array and nothing of its data."""
_FORM_CALLS: Final = frozenset("len type isinstance issubclass id callable hasattr shape ndim size result_type".split())
_CARRIERS: Final = frozenset((list, tuple, dict, set, frozenset))
_WHOLE: Final = frozenset(
    (np.ndarray, int, float, bool, str, bytes, type, np.ufunc, ModuleType, FunctionType, BuiltinFunctionType)
)
"""Classes whose instances have no parts worth a look."""
_WIDTH: Final = 64
"""Of a container this many elements are looked at."""
_ITSELF: Final = _Note(None)
"""Stands for a traced object, which no note is about."""


def _head(statement: ast.stmt) -> ast.expr | None:
    """The expression that a statement evaluates before its body runs."""
    for name in ("value", "iter", "test", "subject", "exc"):
        found = getattr(statement, name, None)
        if isinstance(found, ast.expr):
            return found
    return None


def mentions_of(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """The names that an expression takes values from; not those of which it asks the form alone."""
    path = path_of(node)
    if path is not None:
        if _FORM.isdisjoint(path[1:]):
            yield path
        return
    if isinstance(node, ast.Attribute) and node.attr in _FORM:
        return
    if isinstance(node, ast.Call):
        called = path_of(node.func)
        if called is not None:
            if called[-1] in _FORM_CALLS:
                return
            if called[:-1]:
                yield called[:-1]
        else:
            yield from mentions_of(node.func)
        for each in (*node.args, *node.keywords):
            yield from mentions_of(each)
        return
    if isinstance(node, ast.GeneratorExp | ast.ListComp) and isinstance(node.elt, ast.Constant):
        for each in node.generators:  # sum(1 for _ in x) counts
            for condition in each.ifs:
                yield from mentions_of(condition)
        return
    for child in ast.iter_child_nodes(node):
        yield from mentions_of(child)


def path_of(node: ast.AST) -> tuple[str, ...] | None:
    """``("np", "linalg", "norm")`` for names and attributes of names; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else None


def _carried(frame: FrameType, mentions: Collection[tuple[str, ...]]) -> _Note | None:
    """The note of the array that brings traced data into an expression; ``_ITSELF`` for a traced object."""
    found = first_traced(frame, mentions)
    if found is not None:
        return found
    for store in _stores_of(frame.f_code):
        # The array that an element of the trace was assigned to, as the function says, holds traced data.
        if store.target in mentions and first_traced(frame, store.mentions) is not None:
            there = values_of(frame, (store.target,))
            if there and type(there[0]) is np.ndarray:
                return _Write(_write_of(frame, store, there[0]))
    return None


def first_traced(frame: FrameType, mentions: Iterable[tuple[str, ...]]) -> _Note | None:
    """The same, whatever was assigned to elements of an array."""
    for thing in values_of(frame, mentions):
        found = _carries(thing) or _first_carried(_parts(thing))
        if found is not None:
            return found
    return None


def _first_carried(things: Iterable[Any]) -> _Note | None:
    for thing in things:
        found = _carries(thing)
        if found is None and type(thing) in (list, tuple):  # np.stack([a, b]), called with its arguments in a tuple
            found = next(filter(None, map(_carries, thing[:_WIDTH])), None)
        if found is not None:
            return found
    return None


def values_of(frame: FrameType, paths: Iterable[tuple[str, ...]]) -> list[Any]:
    """The objects that the paths name now: nothing of the user's runs."""
    names, outer = frame.f_locals, frame.f_globals
    found = []
    for path in paths:
        root = path[0]
        thing = names[root] if root in names else outer.get(root)
        if len(path) > 1:
            for attribute in path[1:]:
                if _carries(thing) is not None:
                    break
                thing = _attributes(thing).get(attribute)
        if thing is not None:
            found.append(thing)
    # Before Python 3.13 the frame keeps what it was asked for, and an array that is referred to once more cannot be
    # resized. A dict that somebody else has (who called locals(), or a debugger) is left alone.
    if (
        type(names) is dict
        and frame.f_code.co_flags & _OPTIMIZED
        and sys.getrefcount(names) <= _FRAMES_OWN
        and sys.gettrace() is None
    ):
        names.clear()
    return found


_OPTIMIZED: Final = 1
"""inspect.CO_OPTIMIZED: the names of a function, not those of a module or class."""
_FRAMES_OWN: Final = 3
"""References to a frame's dict of names that only we asked for: the frame's, ours, and that of the question."""


def _attributes(thing: Any) -> dict[str, Any]:
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return _slots(thing)
    return found if type(found) is dict else {}


def _slots(thing: Any) -> dict[str, Any]:
    """What an object keeps in ``__slots__``; read in C, so that nothing of the user's runs."""
    found = {}
    for kind in type.mro(type(thing)) if type(type(thing)) is type else ():
        for name, member in vars(kind).items():
            if type(member) is MemberDescriptorType and not name.startswith("__"):
                try:
                    found[name] = member.__get__(thing)
                except AttributeError:
                    continue  # nothing was put there yet
    return found


def _parts(thing: Any) -> list[Any]:
    """What a container holds, one level deep, and what an object has as its own attributes."""
    kind = type(thing)
    if kind in _WHOLE:
        return []
    if kind in _CARRIERS:
        return list(itertools.islice(thing.values() if kind is dict else thing, _WIDTH))
    return list(itertools.islice(_attributes(thing).values(), _WIDTH))


def _carries(thing: Any) -> _Note | None:
    if value_of(thing) is not None:
        return _ITSELF
    if not isinstance(thing, np.ndarray):
        return _carries(thing.obj) if type(thing) is memoryview else None
    note = _note_of(thing)
    if note is not None:
        return _read_by(note)
    base: Any = thing.base
    while isinstance(base, (np.ndarray, memoryview)):
        if value_of(base) is not None:
            return _ITSELF
        base = base.base if isinstance(base, np.ndarray) else base.obj
    before = pause()  # an array that the question needs asks no question of its own
    try:
        owned = any(owns(thing) for owns in _thread_state.owners if owns is not None)
    finally:
        resume(before)
    return _ITSELF if owned else None


# --- names and places ----------------------------------------------------------------------------------------------

_LIBRARIES: Final = tuple({sysconfig.get_path(key) + "/" for key in ("purelib", "platlib", "stdlib", "platstdlib")})
_NUMPY_FOLDER: Final = str(Path(np.__file__).parent) + "/"


@lru_cache(maxsize=4096)
def _in_library(filename: str) -> bool:
    return is_machinery(filename) or filename.startswith((*_LIBRARIES, _NUMPY_FOLDER)) or "/site-packages/" in filename


def package_of(filename: str) -> str:
    """The folder of the installed package that a file belongs to."""
    above, mark, below = filename.rpartition("/site-packages/")
    return f"{above}{mark}{below.partition('/')[0]}" if mark else filename


def _spelled(site: _Site) -> str:
    node = site.node.func if isinstance(site.node, ast.Call) else site.node
    text = ast.unparse(node) if node is not None else "a call"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _public_name(frame: FrameType, site: _Site) -> str:
    """The name of what is called as its library documents it, else as the user spelled it."""
    path = path_of(site.node.func) if isinstance(site.node, ast.Call) else None
    if path is None:
        return ""
    modules = [each for each in values_of(frame, (path[:1],)) if type(each) is ModuleType]
    if modules:
        return ".".join((modules[0].__name__, *path[1:]))
    called = next(iter(values_of(frame, (path,))), None)
    return public_name(called) if called is not None and len(path) == 1 else ""


def _takes_list(frame: FrameType, site: _Site, name: str) -> bool:
    """Whether it is an operator beside a list, or a call of a ufunc, or of one of its methods, that is given one."""
    node = site.node
    if isinstance(node, ast.BinOp):
        given = [node.left, node.right]
    elif isinstance(node, ast.Call) and isinstance(
        getattr(np, name.removeprefix("numpy.").split(".")[0], None), np.ufunc
    ):
        given = node.args
    else:
        return False
    paths = [path for path in map(path_of, given) if path is not None]
    return any(isinstance(each, (ast.List, ast.Tuple, ast.ListComp)) for each in given) or any(
        type(each) in (list, tuple) for each in values_of(frame, paths)
    )


def public_name(function: Any) -> str:
    """``scipy.signal.savgol_filter`` for a function that is defined in a private module below; "" where none is."""
    if not isinstance(function, (FunctionType, BuiltinFunctionType, np.ufunc, type)):
        return ""  # anything else may compute its attributes
    module, name = getattr(function, "__module__", None), function.__name__
    if not isinstance(module, str):
        return name
    parts = module.split(".")
    public = next((index for index, part in enumerate(parts) if part.startswith("_")), len(parts))
    for length in range(1, public + 1):
        shown = ".".join(parts[:length])
        if _attributes(sys.modules.get(shown)).get(name) is function:
            return f"{shown}.{name}"
    return f"{module}.{name}" if module not in ("__main__", "builtins") else name


# --- the allocator -------------------------------------------------------------------------------------------------

_NAME: Final = "leapp"


class _Allocator(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class _Handler(ctypes.Structure):
    """``PyDataMem_Handler`` of NumPy's C API."""

    _fields_ = (("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("allocator", _Allocator))


class _Block(ctypes.c_void_p):
    """A block as it comes out of the allocator; released when its address is on its way to NumPy."""

    _check_retval_ = operator.attrgetter("value")

    def __del__(self) -> None:
        state = _thread_state
        if not state.open or state.noting:  # in a context that was copied inside a node; an array made by a look at one
            _notes.pop(self.value or 0, None)
        elif self.value is not None:
            state.noting = True
            try:
                _note(self.value, sys._getframe(1))
            finally:
                state.noting = False


class _Thread(int):
    """A thread's identifier. Assigning a class of exceptions to ``raises`` lets that thread raise one.

    An assignment, because a call is followed by a look at what is to be raised: it would be raised in our own frame,
    and dropped there. After an assignment and a return, the first to look is the user's line.
    """

    raises = property(
        fset=ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
            ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
        )
    )


_hooks: Final[list[Any]] = []
"""What was told of exceptions that nobody can catch, before a node opened; empty while none is open."""


def _unraisable(told: Any) -> None:
    """An interrupt that came while a block was noted belongs to the user's code, which is about to go on."""
    if told.object is not _Block.__del__:
        _hooks[0](told)
    elif not issubclass(told.exc_type, (RecursionError, MemoryError)):  # else there is no room to take a note
        error, kind = told.exc_value, told.exc_type
        if error is not None:  # Python takes a class, and makes an instance of it: this very one
            kind = type(kind.__name__, (kind,), {"__new__": lambda *_: error})
        thread = _Thread(_thread.get_ident())
        thread.raises = kind


def _hook() -> None:
    if sys.unraisablehook is not _unraisable:
        _hooks[:] = [sys.unraisablehook]
        sys.unraisablehook = _unraisable


def _unhook() -> None:
    if sys.unraisablehook is _unraisable:
        sys.unraisablehook = _hooks[0]


_multiarray: Any = sys.modules["numpy._core._multiarray_umath"]
"""Where NumPy keeps its C API; not part of what it declares."""
_CAPSULE: Final = b"mem_handler"
_SET_HANDLER: Final = 304
_GET_HANDLER: Final = 305
"""Positions in NumPy's table of C functions; fixed since NumPy 1.22."""

_allocator: contextvars.ContextVar[Any] | None = None
"""NumPy's own variable; None until it was needed, and where it cannot be had."""
_ours: Final[dict[int, Any]] = {}
"""id of an allocator -> the one of ours that stands for it."""
_originals: Final[dict[int, Any]] = {}
"""id of one of ours -> what it stands for."""
_immortal: Final[list[Any]] = []
_handler_name: Any = _multiarray.get_handler_name


def _install() -> Any:
    """Use an allocator of ours in this context; gives the one before. Does nothing where it cannot be."""
    if sys.implementation.name != "cpython":
        return None
    api = _c_api()
    before = api.get_handler()
    if id(before) not in _originals:
        mine = _ours.get(id(before)) or _allocator_over(before, api)
        if mine is None:
            return None
        if _allocator is None:
            api.set_handler(mine)
            _find_variable(mine)
        else:
            _allocator.set(mine)
    return before


class _Api(NamedTuple):
    get_handler: Any
    set_handler: Any
    pointer: Any


@lru_cache(maxsize=1)
def _c_api() -> _Api:
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = (ctypes.c_size_t * (_GET_HANDLER + 1)).from_address(pointer(_multiarray._ARRAY_API, None))
    return _Api(
        ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER]),
        ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER]),
        pointer,
    )


def _allocator_over(before: Any, api: _Api) -> Any:
    """A capsule of an allocator that runs ``before`` and notes what it gives out; None for a version we do not know."""
    source = _Handler.from_address(api.pointer(before, _CAPSULE))
    if source.version != 1:
        return None
    handler = _Handler.from_buffer_copy(source)
    handler.name = _NAME.encode()
    kept: list[Any] = [before, handler]
    size, address = ctypes.c_size_t, ctypes.c_void_p
    for name, arguments in {
        "malloc": (address, size),
        "calloc": (address, size, size),
        "realloc": (address, address, size),
    }.items():
        # PYFUNCTYPE: the lock is held throughout, as NumPy's own cache of small blocks needs it.
        inner = ctypes.PYFUNCTYPE(_Block, *arguments)(getattr(source.allocator, name))
        outer = ctypes.PYFUNCTYPE(address, *arguments)(inner)
        setattr(handler.allocator, name, ctypes.cast(outer, address).value)
        kept += (inner, outer)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, address, ctypes.c_char_p, address)(("PyCapsule_New", ctypes.pythonapi))
    # Capsules keep the pointer to their name.
    name_kept = ctypes.create_string_buffer(_CAPSULE)
    mine = make(ctypes.addressof(handler), ctypes.cast(name_kept, ctypes.c_char_p), None)
    kept += (name_kept, mine)
    for each in kept:  # arrays may outlive this module
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    _immortal.extend(kept)
    _ours[id(before)] = mine
    _originals[id(mine)] = before
    return mine


def _find_variable(mine: Any) -> None:
    """NumPy's context variable: changed directly, it costs a fifth of a call through ctypes."""
    global _allocator  # noqa: PLW0603 - found once per process
    context = contextvars.copy_context()
    _allocator = next((each for each in context if context[each] is mine), None)
    atexit.register(_at_exit)


def _at_exit() -> None:
    """A program that ends inside a node: nothing is looked at while the interpreter goes."""
    while _thread_state.open:
        end()


# --- numba ---------------------------------------------------------------------------------------------------------


def _wrap_numba() -> None:
    kind = _numba_dispatcher()
    if kind is not None and "__call__" not in kind.__dict__:
        kind.__call__ = _calling(kind.__call__)


def _unwrap_numba() -> None:
    kind = _numba_dispatcher()
    if kind is not None and hasattr(kind.__dict__.get("__call__"), "__wrapped__"):
        del kind.__call__


def _numba_dispatcher() -> Any:
    return getattr(sys.modules.get("numba.core.dispatcher"), "Dispatcher", None)


def _calling(original: Any) -> Any:
    """Arrays that a compiled function returns are noted where traced data went in."""

    @functools.wraps(original)
    def called(function: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(function, *args, **kwargs)
        if _thread_state.open:
            _note_returned(function, (*args, *kwargs.values()), result)
        return result

    return called


def _note_returned(function: Any, args: tuple[Any, ...], result: Any) -> None:
    found = next(filter(None, (_carries(each) or _first_carried(_parts(each)) for each in args)), None)
    note = _Note(_site_of(_users_frame(sys._getframe(2))[0]))
    if found is not None:
        note.origin = note if found is _ITSELF else found
    note.function = public_name(getattr(function, "py_func", None))
    for array in result if isinstance(result, tuple) else (result,):
        base: Any = array.base if isinstance(array, np.ndarray) else None
        if base is not None and not isinstance(base, np.ndarray):
            if len(_returned) > _NOTES_LIMIT:
                _returned.clear()
            _returned[_interface(array)["data"][0]] = weakref.ref(array), note


__all__ = [
    "Made",
    "begin",
    "end",
    "forget",
    "is_noted",
    "pause",
    "public_name",
    "resume",
    "unwatched",
    "watched",
    "where_made",
]
