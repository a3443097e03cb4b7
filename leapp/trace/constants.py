"""Storages at a moment: which plain tensors a recording used, with which content, under which name.

A constant is one storage at one moment. It is copied at its first use and compared byte by byte at every later use:
version counters miss writes that come through NumPy or ``.data``. Above ``REFERENCE_LIMIT_BYTES`` it is kept by
reference with a digest that is checked again when the recording is written.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from leapp import _dtypes
from leapp.errors import ConstantChangedError, ConstantKindError, UnrecordableOpError
from leapp.trace._ranges import Ranges
from leapp.trace.recorder import OpInfo, free_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from types import TracebackType

    from torch import fx

    from leapp.trace.recorder import Recorder
    from leapp.trace.source import Place


_reading: Any = torch._C.DisableTorchFunction
"""The same where only shape, strides and addresses are read: nothing is dispatched, and it costs less."""

no_modes_below: Any = torch._C._DisableTorchDispatch
"""Context in which no dispatch mode sees anything."""


class no_hooks:  # noqa: N801 - stands where torch's own contexts stand
    """Context in which no ``__torch_function__`` and no mode, ours or the user's, sees what we do ourselves."""

    __slots__ = ("_below", "_function")

    def __enter__(self) -> None:
        self._function = torch._C.DisableTorchFunction()
        self._function.__enter__()
        # Hidden for as long as the object lives.
        self._below: Any = torch._C._DisableTorchDispatch() if torch._C._len_torch_dispatch_stack() else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._below = None
        self._function.__exit__(kind, error, trace)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a stand-in of ``torch.func`` stands for; any other tensor itself."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


class Casts:
    """Which plain tensor is a cast of which other one: under autocast a weight's cast keeps the weight's name."""

    def __init__(self) -> None:
        self._sources: dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]]] = {}

    def note(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """``result`` was cast from ``source``."""
        if _has_memory(result):
            self._sources[result.untyped_storage()._cdata] = weakref.ref(result), weakref.ref(source)

    def source(self, address: int) -> torch.Tensor | None:
        """What the tensor at a storage address was cast from; None where it is no cast, or gone."""
        result, source = self._sources.get(address, (None, None))
        alive = result() if result is not None else None
        if alive is None or source is None or alive.untyped_storage()._cdata != address:
            return None
        return source()


REFERENCE_LIMIT_BYTES: Final = 8 << 20
"""Constants above this size are not copied."""

_INLINE_LIMIT_BYTES: Final = 4096
"""Contiguous constants up to this size are compared as one bytes object."""

_USED_LIMIT: Final = 1 << 14

ANONYMOUS: Final = "_tensor_constant"


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as an ordinary tensor outside autograd, without any hook of ours or of a subclass."""
    with no_hooks(), torch.no_grad():
        detached = tensor.detach()
        if type(detached) is not torch.Tensor:
            detached = detached.as_subclass(torch.Tensor)
        return detached


def bytes_digest(tensor: torch.Tensor) -> str:
    """sha256 of a CPU tensor's elements in row-major order; dtype and shape are not part of it."""
    with no_hooks(), torch.no_grad():
        flat = tensor.detach().contiguous()
        size = flat.numel() * flat.element_size()
        if not size:
            return hashlib.sha256(b"").hexdigest()
        buffer = (ctypes.c_char * size).from_address(flat.data_ptr())
        return hashlib.sha256(buffer).hexdigest()


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two CPU tensors of equal shape and dtype hold the same bytes; NaN equals itself, 0.0 is not -0.0."""
    with no_hooks(), torch.no_grad():
        one, other = (each.detach().cpu().resolve_conj().resolve_neg().contiguous() for each in (first, second))
        size = one.numel() * one.element_size()
        if size != other.numel() * other.element_size():
            return False
        return not size or not _memcmp(one.data_ptr(), other.data_ptr(), size)


_memcmp: Any = ctypes.CDLL(None).memcmp
"""Several times as fast as torch.equal on words of bytes."""
_memcmp.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


Step = tuple[Any, tuple[Any, ...]]
"""A function and what it takes after the tensor."""

Geometry = tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]


@dataclass(eq=False)
class Constant:
    """One constant of a recording."""

    node: fx.Node
    live: torch.Tensor
    """The user's memory, as the first use saw it."""
    snapshot: torch.Tensor
    """Its content at that moment, on the CPU; ``live`` itself above the size limit."""
    inline: bytes | None
    digest: str | None
    version: int
    name: str | None
    """Qualified name in the outermost module; None when it has none."""
    traced: bool = False
    """Its memory belongs to the trace: an input, or a buffer that a recorded call wrote or handed on a view of."""
    is_input: bool = False
    watched: bool = False
    """It is a registered buffer of a module that was given, and was taken for an input at first."""
    parameter: bool = False
    """It is a parameter, or a view of one, whether or not the module that holds it was ever called."""
    latest: bool = False
    """It is what the memory of its geometry held last."""

    def unchanged(self) -> bool:
        """Whether the user's memory still holds what was recorded."""
        if self.inline is not None:
            return ctypes.string_at(self.live.data_ptr(), len(self.inline)) == self.inline
        if self.digest is not None:
            return _version(self.live) == self.version
        return same_bytes(_on_cpu(self.live), self.snapshot)

    def unchanged_in(self, view: torch.Tensor, steps: tuple[Step, ...]) -> bool:
        """Whether the part that ``view`` sees still holds what was recorded; ``steps`` lead there."""
        if self.digest is not None:
            return _version(self.live) == self.version
        return same_bytes(_on_cpu(view), _taken(self.snapshot, steps))

    def take_copy(self) -> None:
        """Stop going by reference: the memory is about to be written."""
        if self.digest is not None:
            self.snapshot, self.digest = _packed(self.live), None

    def forget(self) -> None:
        """Nothing reads what it held: it is as good as zeros, which are the same in every entry."""
        self.snapshot, self.digest = torch.zeros(self.live.shape, dtype=self.live.dtype), None

    def content(self) -> str:
        """A digest of what was recorded."""
        return self.digest if self.digest is not None else bytes_digest(self.snapshot)


def _content_of(untyped: Any) -> bytes:
    """The bytes of a storage on the CPU."""
    with no_hooks():
        seen: bytes = torch.empty(0, dtype=torch.uint8).set_(untyped).numpy().tobytes()
    return seen


class _Used(NamedTuple):
    """What was found for a tensor at an earlier use."""

    tensor: weakref.ref[torch.Tensor]
    untyped: int
    """Address of its own storage object."""
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    constant: Constant
    stored: _Storage


@dataclass
class _Storage:
    """All constants taken from one storage; ``keeper`` holds it so that its address is not given out again."""

    keeper: Any
    memory: int
    made_inside: bool
    """Its first tensor was made while the node was open."""
    address: int
    """What it is known by: that of its first storage object."""
    written: bool = False
    after: bytes | None = None
    """What it held after the last recorded write, where others may write it unseen; None where nobody can."""
    constants: list[Constant] = field(default_factory=list)
    """All of them, in the order of their first use."""
    reach: Ranges[Constant] = field(default_factory=Ranges)
    """Those that may be used again, by the memory they see; of one geometry the latest moment only."""
    latest: dict[Geometry, Constant] = field(default_factory=dict)
    earlier: dict[tuple[Geometry, str], Constant] = field(default_factory=dict)
    """Former moments of a geometry, by their content."""
    references: list[Constant] = field(default_factory=list)
    """Those kept by reference."""

    def add(self, constant: Constant) -> None:
        """Note a constant at its first use."""
        self.constants.append(constant)
        if constant.digest is not None:
            self.references.append(constant)
        self.make_latest(constant)

    def make_latest(self, constant: Constant) -> None:
        """This is the moment of its geometry that the memory holds now."""
        geometry = _geometry(constant.live)
        former = self.latest.get(geometry)
        if former is not None:
            self.reach.discard(former)
            self.earlier[geometry, former.content()] = former
            former.latest = False
        self.latest[geometry] = constant
        constant.latest = True
        self.reach.add(constant, *byte_range(constant.live))

    def touching(self, tensor: torch.Tensor) -> list[Constant]:
        """Constants that may be used again and share memory with ``tensor``, the latest first."""
        return self.reach.touching(*byte_range(tensor))


class Constants:
    """The constants of one recording."""

    def __init__(self, recorder: Recorder, node_name: str, casts: Casts | None = None) -> None:
        self._recorder = recorder
        self._casts = casts or Casts()
        self._node_name = node_name
        self._storages: dict[int, _Storage] = {}
        self._extents: Ranges[_Storage] = Ranges()
        """All of them that lie in the program's own memory, by the addresses they reach over."""
        self._used: dict[int, _Used] = {}
        """By id of a tensor that was used before and is a constant as a whole."""
        self.changes = 0
        """Counts what may make a node that stood for some memory stand for it no longer."""
        self._watched = False
        self.in_trace: set[int] = set()
        """Addresses of storages that the trace owns, at least in part."""
        self.arrays_in_trace = False
        """NumPy's memory is among them: other storages may lie over it."""
        self._made: dict[int, StorageWeakRef] = {}
        self._came_of: dict[int, frozenset[int | None]] = {}
        """Of those that were made: the older storages that they were computed of, by a call that was not recorded."""
        self._handed_out: dict[int, Any] = {}
        """Storages of traced values that the user's code was given, by address; kept, so that no address comes back."""
        self._views: dict[tuple[fx.Node, Geometry], fx.Node] = {}
        """Of memory of the trace: a constant and what a view sees -> the node of that view."""
        self._references: dict[str, Constant] = {}
        self._module_names: dict[int, tuple[Any, dict[int, tuple[str, torch.Tensor]]]] = {}
        self._given: list[torch.nn.Module] = []
        """Modules that ``annotate.module`` was given."""
        self.roles: dict[str, str] = {}
        """Of those that are left in the end: ``parameter``, ``buffer`` or ``constant``. Evidence only."""
        self._searched = 0
        """How many names of modules were looked at so far."""

    def use(self, tensor: torch.Tensor, place: Place, made_inside: bool | None = None) -> tuple[fx.Node, int, int]:
        """The graph node, memory and storage address of a plain tensor that a recorded call is about to read.

        ``made_inside`` says whether its memory came into being while the node was open; None: what was noticed.
        """
        return self.used_again(tensor) or self.use_anew(tensor, place, made_inside)

    def use_anew(self, tensor: torch.Tensor, place: Place, made_inside: bool | None = None) -> tuple[fx.Node, int, int]:
        """The same where ``used_again`` was asked already, and gave None."""
        self._refuse_kinds(tensor, place)
        if tensor.is_neg() or tensor._is_zerotensor():
            return self._detached_copy(tensor, place)
        if tensor.is_conj():
            with torch.no_grad():
                node, memory, address = self.use(tensor.detach().conj(), place)
            info = OpInfo(place, memory, (), tensor.dtype, tuple(tensor.shape))
            return self._recorder.call("call_function", torch.conj, "conj", (node,), {}, info), memory, address
        with _reading():
            untyped = tensor.untyped_storage()
        address = untyped._cdata
        stored = self._storages.get(address)
        if stored is None:
            stored = self._overlapping(untyped) or self._new_storage(untyped, self._recorder.new_memory(), made_inside)
            if address in self._handed_out and address not in self.in_trace:
                raise UnrecordableOpError(
                    node=self._node_name,
                    op="a tensor over the storage of a traced value",
                    where=f"{place.code.co_filename}:{place.line}",
                    why="its memory was taken with .untyped_storage() or .storage(), which no recording holds",
                    advice="Use the traced tensor itself, or a view of it.",
                )
            address = stored.address
        found = self._in_trace(stored, tensor, place) if address in self.in_trace else None
        found = found or self._known(stored, tensor, place) or self._add(stored, tensor, place)
        if address not in self.in_trace and not tensor.is_complex():
            self._note_use(stored, tensor, untyped)
        return found, stored.memory, address

    def _note_use(self, stored: _Storage, tensor: torch.Tensor, untyped: Any) -> None:
        with _reading():
            constant = stored.latest.get(_geometry(tensor))
            if constant is None:
                return  # a view, of which each use has nodes of its own
            if len(self._used) > _USED_LIMIT:
                self._used.clear()
            self._used[id(tensor)] = _Used(
                weakref.ref(tensor), untyped._cdata, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype,
                constant, stored,
            )  # fmt: skip

    def used_again(self, tensor: torch.Tensor) -> tuple[fx.Node, int, int] | None:
        """What ``use`` would give, for a small part of its work: None unless all that it looks at is as it was.

        It needs no hooks to be off.
        """
        used = self._used.get(id(tensor))
        if used is None or used.tensor() is not tensor:
            return None
        _, untyped, start, shape, strides, dtype, constant, stored = used
        with _reading():
            as_before = (
                constant.latest
                and stored.address not in self.in_trace
                and tensor.data_ptr() == start
                and tensor.untyped_storage()._cdata == untyped
                and tensor.shape == shape
                and tensor.stride() == strides
                and tensor.dtype is dtype
                and not tensor.is_neg()
                and constant.unchanged()
            )
        return (constant.node, stored.memory, stored.address) if as_before else None

    def _new_storage(self, untyped: Any, memory: int, made_inside: bool | None) -> _Storage:
        address = untyped._cdata
        inside = self._is_made_inside(address) if made_inside is None else made_inside
        stored = self._storages[address] = _Storage(untyped, memory, inside, address)
        if untyped.device.type == "cpu":
            start = untyped.data_ptr()
            self._extents.add(stored, start, start + untyped.nbytes())
        return stored

    def _overlapping(self, untyped: Any) -> _Storage | None:
        """A storage over the same memory: each crossing from NumPy to torch makes another one."""
        if untyped.device.type != "cpu":
            return None
        start = untyped.data_ptr()
        return next(iter(self._extents.touching(start, start + untyped.nbytes())), None)

    def known(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """Address and memory number of the storage that a tensor lies in, where the recording has met it."""
        with no_hooks():
            untyped = tensor.untyped_storage()
            stored = self._storages.get(untyped._cdata) or self._overlapping(untyped)
        return None if stored is None else (stored.address, stored.memory)

    def _in_trace(self, stored: _Storage, tensor: torch.Tensor, place: Place) -> fx.Node | None:
        """The node of a tensor that sees memory of the trace; None when it sees none."""
        touching = [each for each in stored.touching(tensor) if each.traced]
        if not touching:
            return None
        for constant in touching:
            found = self._seen_through(constant, tensor, stored, place)
            if found is not None:
                return found
        wider = self._widened(stored, tensor, place)
        found = self._seen_through(wider, tensor, stored, place) if wider is not None else None
        if found is not None:
            return found
        raise UnrecordableOpError(
            node=self._node_name,
            op="a tensor that shares memory with a recorded write or an input",
            where=f"{place.code.co_filename}:{place.line}",
            why="it reaches beyond what the trace knows of that memory",
            advice="Take the view inside the node, from the tensor that annotate.input_tensors() returned.",
        )

    def _seen_through(self, constant: Constant, tensor: torch.Tensor, stored: _Storage, place: Place) -> fx.Node | None:
        """The constant itself where ``tensor`` sees just that, or a view of it; None where it is no view."""
        if _same_geometry(constant.live, tensor):
            return constant.node
        # One node for a view, however often it is taken: the user's object may stand for it, or be looked up anew.
        key = constant.node, _geometry(tensor)
        if key not in self._views:
            found = self._view(constant, tensor, stored.memory, place)
            if found is None:
                return None
            self._views[key] = found
        return self._views[key]

    def _widened(self, stored: _Storage, tensor: torch.Tensor, place: Place) -> Constant | None:
        """One constant in the place of all that ``tensor`` touches: what was one becomes a view of it.

        A row was written, and now the whole table is read. What lies beside the row was not seen by the recording
        before, so its content now is its content then.
        """
        low, high = byte_range(tensor)
        parts: list[Constant] = []
        while True:
            reached = [each for each in stored.reach.touching(low, high) if each.traced]
            if len(reached) == len(parts):
                break
            parts = reached
            low = min(low, *(byte_range(each.live)[0] for each in parts))
            high = max(high, *(byte_range(each.live)[1] for each in parts))
        if any(each.is_input for each in parts):
            return None
        seen = (tensor, *(part.live for part in parts))
        # Complex numbers are pairs of real ones, not the other way round.
        base = _memory_between(next((each for each in seen if not each.is_complex()), tensor), low, high)
        if base is None:
            return None
        ways = [(part, steps) for part in parts if (steps := view_steps(base, part.live)) is not None]
        if len(ways) < len(parts) or view_steps(base, tensor) is None:
            return None
        snapshot = _packed(base)
        for part, steps in ways:
            _taken(snapshot, steps).copy_(part.snapshot)
        chosen = {id(part) for part in parts}
        first = next(index for index, each in enumerate(stored.constants) if id(each) in chosen)
        name = stored.constants[first].name
        with self._recorder.graph.inserting_before(stored.constants[first].node):
            node = self._recorder.constant(
                name or ANONYMOUS, place, memory=stored.memory, dtype=base.dtype, shape=base.shape
            )
        for part, steps in ways:
            with self._recorder.graph.inserting_before(part.node):
                source = self._view_nodes(node, steps[:-1], part.live, stored.memory, place)
            target, args = steps[-1]
            part.node.op, part.node.target, part.node.args = "call_function", target, (source, *args)
            stored.reach.discard(part)
        wider = Constant(node, base, snapshot, None, None, 0, name, traced=True)
        stored.constants = [each for each in stored.constants if id(each) not in chosen]
        stored.constants.insert(first, wider)
        stored.latest[_geometry(base)] = wider
        stored.reach.add(wider, low, high)
        return wider

    def _known(self, stored: _Storage, tensor: torch.Tensor, place: Place) -> fx.Node | None:
        """The node of a constant that still holds what was recorded, the latest moment first."""
        geometry = _geometry(tensor)
        same = stored.latest.get(geometry)
        if same is not None:
            if same.unchanged():
                return same.node
            with torch.no_grad():
                again = stored.earlier.get((geometry, bytes_digest(_on_cpu(tensor))))
            if again is not None and again.digest is None:
                stored.make_latest(again)
                return again.node
        for constant in stored.touching(tensor):
            steps = view_steps(constant.live, tensor)
            if steps is not None and constant.unchanged_in(tensor, steps):
                return self._view(constant, tensor, stored.memory, place)
        return None

    def add_input(self, node: fx.Node, memory: int, tensor: torch.Tensor) -> None:
        """An input's memory: plain views of it, taken before it was declared, are views of the input."""
        self.changes += 1
        live = plain(tensor)
        untyped = live.untyped_storage()
        stored = self._storages.get(untyped._cdata) or self._overlapping(untyped)
        if stored is None:
            stored = self._new_storage(untyped, memory, made_inside=True)
        stored.add(Constant(node, live, live, None, None, 0, None, traced=True, is_input=True))
        self.in_trace.add(stored.address)

    def no_input(self, node: fx.Node, name: str, live: torch.Tensor, content: torch.Tensor) -> None:
        """What was taken for an input is a constant: nothing wrote it, and ``content`` is what it holds."""
        stored = self._storages.get(live.untyped_storage()._cdata) or self._overlapping(live.untyped_storage())
        constant = next(each for each in stored.constants if each.node is node) if stored is not None else None
        assert constant is not None
        constant.is_input, constant.name, constant.watched = False, name, True
        if content.numel() * content.element_size() > REFERENCE_LIMIT_BYTES and live.device.type == "cpu":
            constant.digest = bytes_digest(live)
        else:
            constant.snapshot = content

    def about_to_write(self, address: int) -> None:
        """A call may write this memory: what it holds is copied where it was kept by reference."""
        self.changes += 1
        stored = self._storages.get(address)
        if stored is not None:
            for constant in stored.references:
                constant.take_copy()
            stored.references.clear()

    def mark_written(self, address: int, tensor: torch.Tensor) -> None:
        """From now on this memory is part of the trace: a recorded call wrote it."""
        self.changes += 1
        stored = self._storages.get(address) or self._overlapping(tensor.untyped_storage())
        if stored is None:
            return
        stored.written = True
        if stored.after is not None:
            stored.after = _content_of(stored.keeper)
        self.mark_owned(stored.address, tensor)

    def watch(self, address: int) -> None:
        """A recorded call wrote a plain array of NumPy's, which tells nobody when it is written by others."""
        stored = self._storages.get(address)
        if stored is not None:
            stored.after = _content_of(stored.keeper)
            self._watched = True

    def check_watched(self, tensor: torch.Tensor, place: Place) -> None:
        """Refuse memory of the trace that was written by a call that nobody heard of."""
        if not self._watched:
            return
        untyped = tensor.untyped_storage()
        stored = self._storages.get(untyped._cdata) or self._overlapping(untyped)
        if stored is not None and stored.after is not None and stored.after != _content_of(stored.keeper):
            raise UnrecordableOpError(
                node=self._node_name,
                op="a write into a plain array",
                where=f"{place.code.co_filename}:{place.line}",
                why="the array was written by a recorded call first, and then by one that NumPy tells nobody of",
                advice="Write the array that the recorded call gave back: y = np.add(a, b, out=x); y *= 2.",
            )

    def mark_owned(self, address: int, tensor: torch.Tensor) -> None:
        """From now on what ``tensor`` sees is part of the trace, if it is memory of a constant."""
        self.changes += 1
        stored = self._storages.get(address) or self._overlapping(tensor.untyped_storage())
        if stored is None:
            return
        if tensor.is_conj():
            with torch.no_grad():
                tensor = tensor.detach().conj()
        touching = stored.touching(tensor)
        if not touching or any(each.traced for each in touching):
            return
        self.in_trace.add(stored.address)
        # The one that the call used: the same geometry first, then one that covers it, the latest of each.
        target = next((each for each in touching if _same_geometry(each.live, tensor)), None) or next(
            (each for each in touching if _covers(each.live, tensor)), None
        )
        for each in touching:
            if each is target:
                each.traced = True
            else:
                stored.reach.discard(each)

    def sees_trace(self, things: tuple[Any, ...]) -> bool:
        """Whether a plain tensor among ``things``, at any depth, lies in a storage that the trace owns.

        A stand-in of torch.func may stand for one that does.
        """
        for thing in things:
            if isinstance(thing, torch.Tensor):
                if torch._C._functorch.is_functorch_wrapped_tensor(thing):
                    return True
                if _has_memory(thing) and self._lies_in_trace(thing):
                    return True
            elif isinstance(thing, (list, tuple)) and self.sees_trace(tuple(thing)):
                return True
        return False

    def _lies_in_trace(self, tensor: torch.Tensor) -> bool:
        untyped = tensor.untyped_storage()
        if untyped._cdata in self.in_trace:
            return True
        if not self.arrays_in_trace or untyped._cdata in self._storages:
            return False
        stored = self._overlapping(untyped)
        return stored is not None and stored.address in self.in_trace

    def hand_out(self, storage: Any) -> None:
        """The user's code took the storage of a traced value."""
        self._handed_out[storage._cdata] = storage

    def given_by(self, result: Any, arguments: Iterable[Any]) -> None:
        """Tensors that a call gave while the node was open: their memory does not outlive it.

        Those that are views of an argument are as old as that one.
        """
        made = list(_tensors_in((result,)))
        if not made:
            return
        given = {_address(each) for each in _tensors_in(arguments)}
        came_of: set[int | None] = set()
        for address in given:
            came_of |= self._came_of[address] if address is not None and self._is_made_inside(address) else {address}
        for each in made:
            if _address(each) not in given:
                self.made_inside(each, came_of)

    def made_inside(self, tensor: torch.Tensor, came_of: Collection[int | None] = ()) -> None:
        """A plain tensor came into being while the node was open: its memory does not outlive the node.

        ``came_of``: the storages, older than the node, whose content it was computed of.
        """
        if _has_memory(tensor):
            storage = tensor.untyped_storage()
            # Of the storage, not of the tensor: a parameter made of a tensor outlives it.
            if not self._is_made_inside(storage._cdata):
                self._made[storage._cdata] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._came_of[storage._cdata] = frozenset(came_of)

    def is_made_inside(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of a plain tensor came into being while the node was open, as far as it was noticed."""
        address = _address(tensor)
        return address is not None and self._is_made_inside(address)

    def _is_made_inside(self, address: int) -> bool:
        # An address is given out again when its storage is gone, so only one that lives counts.
        reference = self._made.get(address)
        return reference is not None and not reference.expired()  # type: ignore[no-untyped-call]

    def written(self, *, from_outside: bool = False) -> list[Constant]:
        """Constants whose memory received a recorded write. ``from_outside``: which was there before the node."""
        return [
            constant
            for stored in self._storages.values()
            if stored.written and not (from_outside and stored.made_inside)
            for constant in stored.constants
            if constant.node in self._recorder.info and not constant.is_input
        ]

    def computed_of(self, written: Constant) -> bool:
        """Whether a constant that is left was computed, in the node, of what this written memory held before."""
        address = next(address for address, stored in self._storages.items() if written in stored.constants)
        return any(
            address in self._came_of[each]
            for each, stored in self._storages.items()
            if self._is_made_inside(each) and any(constant.node in self._recorder.info for constant in stored.constants)
        )

    def unwritten(self) -> dict[fx.Node, torch.Tensor]:
        """What the constants hold that no recorded call writes."""
        return {
            constant.node: constant.snapshot
            for stored in self._storages.values()
            if not stored.written
            for constant in stored.constants
            if not constant.is_input
        }

    def finish(self) -> dict[str, torch.Tensor]:
        """Name what is left after pruning; gives attribute path -> CPU tensor that nobody else writes."""
        alive: list[Constant] = []
        for stored in self._storages.values():
            used = [each for each in stored.constants if each.node in self._recorder.info and not each.is_input]
            alive += used
            for constant in used if self._given else ():
                if not constant.watched:  # a module may have been given after the first use
                    name, _ = self._qualified_name(constant.live, stored)
                    constant.name = name or constant.name
        position = {node: index for index, node in enumerate(self._recorder.graph.nodes)}
        alive.sort(key=lambda constant: position[constant.node])
        result: dict[str, torch.Tensor] = {}
        targets: dict[fx.Node, str] = {}
        anonymous = 0
        roles = self._roles()
        for constant in alive:
            if constant.name is None:
                target = f"{ANONYMOUS}{anonymous}"
                anonymous += 1
            else:
                target = free_name(constant.name, result)
            constant.node.target = target
            targets[constant.node] = target
            result[target] = constant.snapshot
            role = "parameter" if constant.parameter else "constant"
            self.roles[target] = "buffer" if constant.watched else roles.get(constant.name or "", role)
        self._recorder.free_names(targets, lambda node: targets[node].replace(".", "_"))
        self._references = {targets[constant.node]: constant for constant in alive if constant.digest is not None}
        self._views.clear()
        self._module_names.clear()  # no module lives on for its names
        self._given.clear()
        return result

    def _roles(self) -> dict[str, str]:
        """Qualified name -> what it is in its module."""
        return {
            name: "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
            for _, named in self._module_names.values()
            for name, tensor in named.values()
        }

    def digests(self) -> dict[str, str]:
        """Digests of the large constants, after making sure that they did not move since their use."""
        result = {}
        for name, constant in self._references.items():
            assert constant.digest is not None
            if bytes_digest(constant.live) != constant.digest:
                raise ConstantChangedError(node=self._node_name, name=name)
            result[name] = constant.digest
        return result

    def _add(self, stored: _Storage, tensor: torch.Tensor, place: Place) -> fx.Node:
        name, owner = self._qualified_name(tensor, stored)
        base = owner if owner is not None and _covers(owner, tensor) else self._base(tensor)
        if base is not tensor and view_steps(base, tensor) is None:
            base = tensor  # not expressible as a view of its base: store what was used, as it is
        live = plain(base)
        size = live.numel() * live.element_size()
        by_reference = size > REFERENCE_LIMIT_BYTES and live.device.type == "cpu"
        snapshot = live if by_reference else _packed(live)
        inline = None
        if size <= _INLINE_LIMIT_BYTES and live.is_contiguous() and live.device.type == "cpu":
            inline = ctypes.string_at(live.data_ptr(), size) if size else b""
        node = self._recorder.constant(
            name or ANONYMOUS, place, memory=stored.memory, dtype=live.dtype, shape=live.shape
        )
        constant = Constant(
            node, live, snapshot, inline, bytes_digest(live) if by_reference else None, _version(live), name,
            parameter=any(isinstance(each, torch.nn.Parameter) for each in (tensor, tensor._base)),
        )  # fmt: skip
        stored.add(constant)
        if _same_geometry(live, tensor):
            return node
        view = self._view(constant, tensor, stored.memory, place)
        assert view is not None
        self._views[node, _geometry(tensor)] = view
        return view

    def _detached_copy(self, tensor: torch.Tensor, place: Place) -> tuple[fx.Node, int, int]:
        """A lazy negation (``x.conj().imag``), which no file holds: copied at each use, shared with nothing."""
        with no_hooks(), torch.no_grad():
            copy = tensor.detach().resolve_neg().to("cpu", copy=True)
        stored = self._new_storage(copy.untyped_storage(), self._recorder.new_memory(), made_inside=True)
        return self._add(stored, copy, place), stored.memory, stored.address

    def _base(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor whose view this is, where that is not much larger; else the tensor itself."""
        base = tensor._base
        if base is None or base.is_conj() or base.is_neg() or not _covers(base, tensor):
            return tensor
        if base.numel() > 16 * max(tensor.numel(), 64):
            return tensor  # read for a small part only; a write widens it when more of it is used
        return base

    def _view(self, constant: Constant, tensor: torch.Tensor, memory: int, place: Place) -> fx.Node | None:
        """Emit ``tensor`` as a view of a constant of the same storage; None where it is none."""
        steps = view_steps(constant.live, tensor)
        return None if steps is None else self._view_nodes(constant.node, steps, tensor, memory, place)

    def _view_nodes(
        self, node: fx.Node, steps: tuple[Step, ...], tensor: torch.Tensor, memory: int, place: Place
    ) -> fx.Node:
        for index, (target, args) in enumerate(steps):
            last = index == len(steps) - 1
            form = (tensor.dtype, tuple(tensor.shape)) if last else (None, None)
            info = OpInfo(place, memory, (), *form)
            node = self._recorder.call("call_function", target, target.__name__, (node, *args), {}, info)
        return node

    def _refuse_kinds(self, tensor: torch.Tensor, place: Place) -> None:
        kind, advice = "", ""
        if tensor.is_quantized:
            kind, advice = "quantised", "t.dequantize()"
        elif tensor.layout is not torch.strided:
            kind, advice = f"{str(tensor.layout).removeprefix('torch.')}", "t.to_dense()"
        elif tensor.device.type == "meta":
            kind, advice = "meta", "a tensor with data"
        elif _dtypes.name_of(tensor.dtype) not in _dtypes.BY_NAME:
            kind, advice = str(tensor.dtype).removeprefix("torch."), "t.to(torch.float32)"
        if kind:
            raise ConstantKindError(
                node=self._node_name, kind=kind, where=f"{place.code.co_filename}:{place.line}", advice=advice
            )

    def name_after(self, module: torch.nn.Module) -> None:
        """Parameters and buffers of this module have their qualified names in it, whoever uses them."""
        if all(module is not each for each in self._given):
            self._given.append(module)

    def _qualified_name(self, tensor: torch.Tensor, stored: _Storage) -> tuple[str | None, torch.Tensor | None]:
        """Name and owner of a parameter or buffer: in a module that was given, or the outermost one that is running."""
        outermost = outermost_module()
        for module in (*self._given, *(() if outermost is None else (outermost,))):
            found = self._name_in(module, tensor, stored.keeper._cdata)
            if found[0] is not None:
                return found
        return None, None

    def _name_in(
        self, module: torch.nn.Module, tensor: torch.Tensor, address: int
    ) -> tuple[str | None, torch.Tensor | None]:
        known = self._module_names.get(id(module))
        if known is None or (address not in known[1] and self._worth_searching(len(known[1]))):
            # Names may have been given since the last look.
            known = (module, _tensors_by_storage(module))
            self._module_names[id(module)] = known
            self._searched += len(known[1])
        found = known[1].get(address)
        if found is not None and _covers(found[1], tensor):
            return found
        source = self._casts.source(address)
        if source is not None and source.shape == tensor.shape and _has_memory(source):
            with no_hooks():
                return known[1].get(source.untyped_storage()._cdata, (None, None))[0], None
        return None, None

    def _worth_searching(self, names: int) -> bool:
        """Whether one more look at all names leaves their number below that of what was recorded, or is cheap."""
        return self._searched + names <= 2048 + len(self._recorder.info)


def _tensors_by_storage(module: torch.nn.Module) -> dict[int, tuple[str, torch.Tensor]]:
    named: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        # A transform of torch.func may have put its stand-ins in the place of the weights.
        tensor = unwrapped(tensor)  # noqa: PLW2901 - what has a memory
        if _has_memory(tensor) and tensor.device.type != "meta":
            with no_hooks():
                named.setdefault(tensor.untyped_storage()._cdata, (name.replace("_orig_mod.", ""), tensor))
    return named


_MODULE_CALLS: Final = frozenset(("_wrapped_call_impl", "_call_impl"))


def outermost_module() -> torch.nn.Module | None:
    """The outermost ``nn.Module`` whose ``__call__`` is on this thread's stack.

    Read from the stack itself: constants are rare, and no hook has to be installed in every module.
    """
    frame = sys._getframe(1)
    found = None
    module_file = torch.nn.Module._call_impl.__code__.co_filename
    current: Any = frame
    while current is not None:
        code = current.f_code
        if code.co_name in _MODULE_CALLS and code.co_filename == module_file:
            found = current.f_locals.get("self")
        current = current.f_back
    # A compiled module is the original under a wrapper.
    if found is not None and type(found).__name__ == "OptimizedModule":
        found = found._orig_mod
    return found if isinstance(found, torch.nn.Module) else None


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in one storage: not a sparse one, a stand-in of torch.func, or a lazy parameter."""
    return (
        not torch.nn.parameter.is_lazy(tensor)
        and tensor.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _tensors_in(things: Iterable[Any]) -> Iterator[torch.Tensor]:
    for thing in things:
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, (list, tuple)):
            yield from _tensors_in(thing)


def _address(tensor: torch.Tensor) -> int | None:
    """What a tensor's storage is known by; None where it has none."""
    if not _has_memory(tensor):
        return None
    with _reading():
        address: int = tensor.untyped_storage()._cdata
        return address


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.device.type == "cpu" else tensor.detach().cpu()


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on the CPU with standard strides."""
    with no_hooks(), torch.no_grad():
        return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _memory_between(tensor: torch.Tensor, low: int, high: int) -> torch.Tensor | None:
    """Memory of a tensor's storage as a dense tensor: itself or its base where that is it, else a row of elements."""
    for each in (tensor, tensor._base):
        if each is None or each.dtype != tensor.dtype or each.is_conj() or each.is_neg():
            continue
        if each.is_contiguous() and byte_range(each) == (low, high):
            return plain(each)
    size = tensor.element_size()
    first = tensor.data_ptr() - tensor.storage_offset() * size
    if (low - first) % size or (high - low) % size:
        return None
    with no_hooks(), torch.no_grad():
        row = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return row.set_(tensor.untyped_storage(), (low - first) // size, ((high - low) // size,), (1,))


def _geometry(tensor: torch.Tensor) -> Geometry:
    """Equal for tensors that see the same elements in the same order."""
    shape = tuple(tensor.shape)
    strides = tuple(stride for size, stride in zip(shape, tensor.stride(), strict=True) if size != 1)
    return tensor.data_ptr(), tensor.dtype, shape, strides if tensor.numel() else ()


def _same_geometry(first: torch.Tensor, second: torch.Tensor) -> bool:
    with _reading():
        return _geometry(first) == _geometry(second)


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First and one past the last byte address that a tensor may touch."""
    with _reading():
        start = tensor.data_ptr()
        if not tensor.numel():
            return start, start
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return start, start + (last + 1) * tensor.element_size()


def _covers(base: torch.Tensor, view: torch.Tensor) -> bool:
    (low, high), (first, last) = byte_range(base), byte_range(view)
    return low <= first and last <= high


def view_steps(base: torch.Tensor, view: torch.Tensor) -> tuple[Step, ...] | None:
    """The calls that turn ``base`` into ``view``: permutations, slices along one axis, strides over dense memory.

    Both lie in one storage; None when ``view`` reaches outside ``base`` or sees it in no such way. Indices count
    elements of a packed copy of ``base``, which is what a recording stores.
    """
    if not _covers(base, view) or not view.numel():
        return None
    with no_hooks(), torch.no_grad():
        if base.dtype != view.dtype:
            return _steps_between_kinds(base.detach(), view.detach())
        offset = (view.data_ptr() - base.data_ptr()) // base.element_size()
        base_layout = list(zip(base.shape, base.stride(), strict=True))
        view_layout = list(zip(view.shape, view.stride(), strict=True))
        if offset == 0 and sorted(base_layout) == sorted(view_layout):
            order: list[int] = []
            for pair in view_layout:
                order.append(next(i for i, other in enumerate(base_layout) if other == pair and i not in order))
            return ((torch.permute, (tuple(order),)),)
        sliced = _one_slice(base, view, offset)
        if sliced is not None:
            return (sliced,)
        if not base.is_contiguous():
            return None  # its packed copy lies in another order
        if view.is_contiguous():
            part = (torch.narrow, (0, offset, view.numel()))
            return ((torch.reshape, ((-1,),)), part, (torch.reshape, (tuple(view.shape),)))
        strided = (torch.as_strided, (tuple(view.shape), tuple(view.stride()), offset))
        return (strided,)


def _steps_between_kinds(base: torch.Tensor, view: torch.Tensor) -> tuple[Step, ...] | None:
    """Real parts of complex memory, and complex numbers made of pairs of real ones."""
    if base.is_complex() and torch.view_as_real(base).dtype == view.dtype:
        parts = torch.view_as_real(base)
        if _same_geometry(parts, view):
            return ((torch.view_as_real, ()),)
        steps = view_steps(parts, view)
        return None if steps is None else ((torch.view_as_real, ()), *steps)
    if view.is_complex() and torch.view_as_real(view).dtype == base.dtype:
        pairs = torch.view_as_real(view)
        if _same_geometry(base, pairs):
            return ((torch.view_as_complex, ()),)
        steps = view_steps(base, pairs)
        return None if steps is None else (*steps, (torch.view_as_complex, ()))
    return None


def _taken(tensor: torch.Tensor, steps: tuple[Step, ...]) -> torch.Tensor:
    for target, args in steps:
        tensor = target(tensor, *args)
    return tensor


def _one_slice(base: torch.Tensor, view: torch.Tensor, offset: int) -> Step | None:
    """``base[..., start:stop, ...]`` or ``base[..., index, ...]`` along a single axis."""
    shape, strides = tuple(base.shape), tuple(base.stride())
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if not stride or offset % stride or offset // stride >= size:
            continue
        start = offset // stride
        rest_shape, rest_strides = shape[:axis] + shape[axis + 1 :], strides[:axis] + strides[axis + 1 :]
        if tuple(view.shape) == rest_shape and tuple(view.stride()) == rest_strides:
            return torch.select, (axis, start)
        if view.dim() == base.dim() and tuple(view.stride()) == strides:
            length = view.shape[axis]
            others = all(view.shape[i] == shape[i] for i in range(base.dim()) if i != axis)
            if others and start + length <= size:
                return torch.narrow, (axis, start, length)
    return None
