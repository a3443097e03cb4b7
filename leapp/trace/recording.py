"""One entry of a node while it is recorded: what was declared, what plain arrays stand for, and its closing."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import torch

from leapp import _dtypes
from leapp._spec import NodeSpec, Port, SourceLine, TensorSpec
from leapp.errors import (
    ConstantKindError,
    ForeignValueError,
    InputWrittenError,
    NodeReopenedError,
    OutputNotTracedError,
    SharedInputError,
    StaleValueError,
    StateFedError,
    StateNameError,
    StateNotTracedError,
    StateNotUpdatedWarning,
    StateStartError,
    TensorClassError,
    UnrecordableOpError,
    UnusedInputWarning,
    WireLostWarning,
)
from leapp.graph._base import NodeGraph
from leapp.replay import causes_text
from leapp.trace import generators
from leapp.trace._arrays import has_torch_dtype, is_array, owner_of, tensor_of
from leapp.trace._lineage import PortId, Value, plain_class, value_of
from leapp.trace._lineage import plain as plain_of
from leapp.trace._tree import Leaf
from leapp.trace.alias import old_content_is_read
from leapp.trace.array_class import TracedNpArray, plain_array, wrapped
from leapp.trace.constants import Constants, byte_range, no_hooks, plain, same_bytes
from leapp.trace.copies import keep_copies
from leapp.trace.escapes import state_name
from leapp.trace.made import is_noted, where_made, where_written
from leapp.trace.module_state import Buffer, check_none_came, is_watchable, registered
from leapp.trace.recorder import NO_MEMORY, OpInfo, Recorder, free_name
from leapp.trace.scalar import settle
from leapp.trace.source import Place, source_line
from leapp.trace.state import BUFFER, DECLARED, States
from leapp.trace.tensor import TRACED, mark, unmark

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from torch import fx

    from leapp._spec import JSON
    from leapp.trace.session import Session
    from leapp.trace.variation import Variation

    _Used: TypeAlias = tuple[torch.Tensor, fx.Node, int, int]

_SAME_VALUES: Final = frozenset({torch.clone, torch.detach, "contiguous", "cpu"})
"""Calls that give what they take, in the same shape and dtype."""

_SHORT_BYTES: Final = 1024
"""Constants up to this size are compared as they are, whatever memory they lie in."""


@dataclass
class _Watched:
    """A registered buffer while its node is open."""

    buffer: Buffer
    input: _Input | None
    """None where there is nothing to trace: it is None, or of a kind that cannot be."""
    place: Place


@dataclass(frozen=True)
class Sample:
    """One entry's values by port name: copies on the CPU, owned by the recording."""

    inputs: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor]


@dataclass
class _Input:
    port: str
    tensor: torch.Tensor
    live: torch.Tensor
    """Its memory as it was declared; the object itself may become another view, by ``t_()``."""
    before: torch.Tensor
    """Its content when it was declared."""
    memory: int
    node: fx.Node
    """What stands for it in the graph."""
    place: Place
    semantics: Mapping[str, JSON]
    order: int = 0
    """Place among the states, from 1, which come after the ordinary inputs; 0 for those."""


class Recording:
    """One entry of a node, from its first ``input_tensors`` to its ``output_tensors``."""

    def __init__(self, session: Session, name: str, place: Place, entry: int, *, traced: bool = True) -> None:
        self.session = session
        self.traced = traced
        """Inputs become traced; else they stay plain: the node brings its model, and nothing is to be recorded."""
        self.name = name
        self.entry = entry
        self.pinned: list[Any] = []
        """Values given to ``annotate.constant``, in order."""
        self.place = place
        self.open = True
        self.thread = session.thread()
        self.thread_name = session.thread_name()
        self.recorder = Recorder()
        self.constants = Constants(self.recorder, name, session.casts)
        self.wires: dict[str, PortId] = {}
        self.graph: NodeGraph | None = None
        self.sample: Sample | None = None
        self._short_constants: dict[int, tuple[weakref.ref[Any], tuple[Any, ...], _Used]] = {}
        self._inputs: dict[str, _Input] = {}
        """By port, in order of declaration; those of states come last in the interface."""
        self.states = States(name, self.where)
        self._watched: list[_Watched] = []
        self._modules: list[torch.nn.Module] = []
        """Modules all of whose buffers are watched."""
        self._registered: list[tuple[torch.Tensor, Place]] = []
        """Memory of plain arrays that are written through what ``annotate.register_buffer`` gave for them."""
        self._undecided: list[tuple[set[fx.Node], Callable[[], None]]] = []
        """Reads of watched buffers, which mean something if one of these turns out to be state."""
        self.broken: BaseException | None = None
        """An error that another thread met with a value of this entry."""
        self._port_of: dict[int, str] = {}
        """id of an input's tensor -> its port."""
        self.arrays: dict[int, tuple[weakref.ref[Any], Value]] = {}
        """id of an array that owns a recorded result's memory -> the array, and what it stands for."""
        self.unproved: dict[int, tuple[weakref.ref[Any] | None, bytes]] = {}
        """id of such an array that NumPy fills without telling -> the array, and what it must hold to count as one."""
        self.written_owners: dict[int, Any] = {}
        """id of an array -> the array, which owns memory that the node made and a recorded call wrote."""
        self.translated = False
        """Calls of NumPy were recorded as torch's."""
        self._meant: dict[int, weakref.ref[Any]] = {}
        """id of an array that owns memory which is meant to be fixed -> the array."""
        self.partial = False
        """It has outputs that no recorded call leads to, so its graph says nothing: the node brings its model."""
        self.drew_random = False
        """A draw is part of the recording: its sample cannot be replayed."""
        self._drawn_by_name = False
        self.notes_before = len(session.escapes.notes)
        self._random_before = torch.random.get_rng_state()
        self._other_random_before = generators.states()

    # --- what the tracer asks -------------------------------------------------------------------------------------

    def where(self, place: Place) -> str:
        """A place as messages show it."""
        return str(source_line(place, self.session.root))

    def foreign(self, value: Value, place: Place) -> ForeignValueError:
        """The error for a value of another node that a call of this one took."""
        owner = value.recording.name if value.recording is not None else str(value.origin)
        if owner == self.name:
            state = state_name(self._inputs)
            return StaleValueError(owner=owner, user=self.name, where=self.where(place), state=state)
        return ForeignValueError(owner=owner, user=self.name, where=self.where(place))

    def random_state(self) -> torch.Tensor:
        """State of torch's generator before a call that may draw."""
        return torch.random.get_rng_state()

    def note_random(self, op: str, before: torch.Tensor) -> None:
        """Report a recorded call that did draw."""
        if not torch.equal(before, torch.random.get_rng_state()):
            self._drawn_by_name = True
            self.drew_random = True
            self.session.escapes.random(op, self.name, recorded=True)

    def drew_by_name(self) -> None:
        """A draw was reported with its line, so the check at the end need not repeat it."""
        self._drawn_by_name = True

    # --- declaration ----------------------------------------------------------------------------------------------

    def add_inputs(self, leaves: Sequence[Leaf], place: Place) -> dict[int, Any]:
        """Declare inputs: tensors handed in become traced themselves; gives a traced view for each array, by id."""
        return self._declare(leaves, place, [0] * len(leaves))

    def add_states(self, leaves: Sequence[Leaf], place: Place) -> dict[int, Any]:
        """Declare state with its values of this tick, as ``add_inputs`` does inputs."""
        for leaf in leaves:
            known = self._inputs.get(leaf.port)
            if known is not None and not known.order:
                raise StateNameError(
                    node=self.name, state=leaf.port, where=self.where(place),
                    why=f"an input has the same name, declared at {self.where(known.place)}",
                )  # fmt: skip
        self.states.check_new(leaves, place)
        starts = {leaf.port: port for leaf in leaves if (port := self._start_input(leaf, place)) is not None}
        own = [leaf._replace(tensor=_twin(leaf.tensor)) if leaf.port in starts else leaf for leaf in leaves]
        orders = [self.states.next_order() for _ in leaves]
        made = self._declare(own, place, orders)
        self.states.declare(leaves, orders, place, starts)
        return made | {
            id(leaf.tensor): made.get(id(twin.tensor), twin.tensor)
            for leaf, twin in zip(leaves, own, strict=True)
            if twin is not leaf
        }

    def _start_input(self, leaf: Leaf, place: Place) -> str | None:
        """The input that a state starts from, where it is handed in as it came in; None for a value from outside."""
        value = value_of(leaf.tensor)
        if value is None or value.recording is not self:
            return None
        node = value.fx
        while node is not None and node.target in _SAME_VALUES:
            (node,) = node.all_input_nodes
        copied = as_tensor(leaf.tensor)
        for item in self._inputs.values():
            if item.node is node and copied.shape == item.before.shape and same_bytes(plain(copied).cpu(), item.before):
                return item.port
        raise StateStartError(node=self.name, state=leaf.port, where=self.where(place))

    @property
    def has_inputs(self) -> bool:
        """Whether anything was declared yet."""
        return bool(self._inputs)

    def place_of(self, port: str) -> Place:
        """The user's line that declared an input."""
        item = self._inputs.get(port)
        return item.place if item is not None else self.place

    def watch_module(self, model: torch.nn.Module, names: Sequence[str] | None, place: Place) -> None:
        """Trace the registered buffers of a module; when the node closes, those that changed are state."""
        buffers = registered(self.name, model, names, self.where(place))
        for buffer in buffers:
            value = value_of(buffer.tensor)
            if value is not None and value.recording is not None and value.recording.name != self.name:
                raise self.foreign(value, place)
        for held in [each.tensor for each in buffers if each.tensor is not None]:
            before = self._lineage(held)
            if before is None or before.origin is None:
                continue
            if before.recording is None or _altered(held, before):
                self._lost_wire(before.origin.port, before.origin, place)
        self.constants.name_after(model)
        if names is None:
            self._modules.append(model)
        known = {(id(each.buffer.owner), each.buffer.attribute) for each in self._watched}
        for buffer in buffers:
            tensor = buffer.tensor
            if (id(buffer.owner), buffer.attribute) in known or id(tensor) in self._port_of:
                continue  # watched already, or declared as an input
            item = self._watch(buffer.name, tensor, place) if tensor is not None and is_watchable(tensor) else None
            self._watched.append(_Watched(buffer, item, place))

    def _watch(self, name: str, tensor: torch.Tensor, place: Place) -> _Input:
        """A placeholder for a buffer, which becomes a constant if nothing changes it."""
        address = tensor.untyped_storage()._cdata
        known = self.constants.known(tensor)
        memory = known[1] if known is not None else self.recorder.new_memory()
        node = self.recorder.placeholder(name, memory=memory, dtype=tensor.dtype, shape=tensor.shape, state=True)
        self.constants.add_input(node, memory, tensor)
        self._port_of[id(tensor)] = name
        mark(tensor, Value(self, node, memory, address), self.session)
        return _Input(name, tensor, plain(tensor), _copy(tensor), memory, node, place, {}, self.states.next_order())

    def register_buffers(self, leaves: Sequence[Leaf], place: Place) -> dict[int, Any]:
        """Trace plain memory that the node writes; gives a traced view for each array, by id."""
        for leaf in leaves:
            if leaf.tensor is not None and is_array(leaf.tensor):
                self._check_array(leaf)
            value = value_of(leaf.tensor)
            known = value is None or value.buffer or value.recording is self
            if value is not None and not (known and (value.recording is None or value.recording.name == self.name)):
                raise self.foreign(value, place)
        made = {id(leaf.tensor): self._register(leaf.tensor, place) for leaf in leaves}
        return {key: thing for key, thing in made.items() if thing is not None}

    def _register(self, thing: Any, place: Place) -> Any:
        value = value_of(thing)
        if value is not None and value.recording is self:
            return None
        array = plain_array(thing) if is_array(thing) else None
        if array is None:
            node, memory, address = self.constants.use(thing, place)
            tensor = thing
        else:
            with no_hooks():
                tensor, node, memory, address = self.use_array(array, place, made_inside=False)
            self.constants.arrays_in_trace = True
            self.constants.watch(address)
            self._registered.append((tensor, place))
        self.constants.about_to_write(address)
        self.constants.mark_owned(address, tensor)
        value = Value(self, node, memory, address)
        value.buffer = True
        if array is not None:
            return wrapped(array[...], value)
        mark(thing, value, self.session)
        return None

    def read(self, op: str, *things: Any, array: bool = False) -> None:
        """Traced values among ``things`` are about to be read as Python values.

        What it means of a buffer is decided at the end. ``array``: the reader is NumPy's.
        """
        report = self.session.escapes.reading(op, self.name, array=array)
        values = list(_values_in(things)) if self._watched else []
        behind = [self._buffers_behind(value.fx) for value in values]
        if behind and None not in behind:
            self._undecided.append((set().union(*(each for each in behind if each is not None)), report))
        else:
            report()

    def _buffers_behind(self, node: fx.Node | None) -> set[fx.Node] | None:
        """The watched buffers that a value was computed from; None where it was computed from anything else too."""
        info = self.recorder.info
        written = {memory for each in info.values() for memory in each.written}
        watched = {each.input.node for each in self._watched if each.input is not None}
        found: set[fx.Node] = set()
        pending, seen = [node], {node}
        while pending:
            node = pending.pop()
            if node is None or info[node].memory in written:
                return None
            if node in watched:
                found.add(node)
            elif node.op == "placeholder":
                return None
            sources = [each for each in node.all_input_nodes if each not in seen]
            seen.update(sources)
            pending.extend(sources)
        return found

    def _declare(self, leaves: Sequence[Leaf], place: Place, orders: Sequence[int]) -> dict[int, Any]:
        ports: dict[int, str] = {}
        for leaf in leaves:
            twin = ports.setdefault(id(leaf.tensor), leaf.port)
            if twin != leaf.port:
                raise SharedInputError(node=self.name, first=twin, second=leaf.port)
            known = self._inputs.get(leaf.port)
            if known is not None and known.order:
                raise StateNameError(
                    node=self.name, state=leaf.port, where=self.where(place),
                    why=f"it was declared as state at {self.where(known.place)}",
                )  # fmt: skip
            if known is not None:
                raise NodeReopenedError(
                    node=self.name, port=leaf.port, first=self.where(known.place), second=self.where(place)
                )
            self._check_input(leaf, place)
        made = {
            id(leaf.tensor): self._add_input(leaf, place, order) for leaf, order in zip(leaves, orders, strict=True)
        }
        return {key: thing for key, thing in made.items() if thing is not None}

    def _check_input(self, leaf: Leaf, place: Place) -> None:
        kind = type(leaf.tensor)
        if is_array(leaf.tensor):
            self._check_array(leaf)
        elif torch._C._functorch.is_functorch_wrapped_tensor(leaf.tensor):
            raise TensorClassError(
                node=self.name, port=leaf.port, kind="stand-in of a torch.func transform",
                why="a transform around a node hands in tensors without a memory of their own",
                advice="Enter the node outside the transform, and transform inside it",
            )  # fmt: skip
        elif kind not in (torch.Tensor, torch.nn.Parameter, *TRACED):
            raise TensorClassError(
                node=self.name, port=leaf.port, kind=f"{kind.__module__}.{kind.__qualname__}",
                why="a class with behaviour of its own would lose it in the export",
                advice="Hand in a plain torch.Tensor or Parameter; for a subclass, t.as_subclass(torch.Tensor)",
            )  # fmt: skip
        twin = self._port_of.get(id(leaf.tensor))
        if twin is not None:
            raise SharedInputError(node=self.name, first=twin, second=leaf.port)
        value = value_of(leaf.tensor)
        if value is not None and value.recording is not None and value.recording.open:
            raise ForeignValueError(owner=value.recording.name, user=self.name, where=self.where(place))

    def _check_array(self, leaf: Leaf) -> None:
        array, kind = leaf.tensor, type(leaf.tensor)
        if isinstance(array, np.ndarray) and kind not in (np.ndarray, np.memmap, TracedNpArray):
            raise TensorClassError(
                node=self.name, port=leaf.port, kind=f"{kind.__module__}.{kind.__qualname__}",
                why="a class with behaviour of its own would lose it in the export",
                advice="Hand in a plain array: np.asarray(x), or x.filled(value) of a masked one",
            )  # fmt: skip
        if not has_torch_dtype(array.dtype):
            raise TensorClassError(
                node=self.name, port=leaf.port, kind=f"NumPy array of dtype {array.dtype}",
                why="no model file holds such elements",
                advice="Hand in numbers that torch has: x.astype(np.float32), or one array for each field of a record",
            )  # fmt: skip

    def _add_input(self, leaf: Leaf, place: Place, order: int) -> Any:
        thing, array = leaf.tensor, None
        before = self._lineage(thing)
        origin = before.origin if before is not None else None
        if is_array(thing):
            array = np.array(plain_of(thing)) if isinstance(thing, np.generic) else plain_array(thing)
            tensor = tensor_of(array)
        else:
            tensor = thing
        if before is not None and origin is not None:
            if before.recording is None or _altered(tensor, before):
                self._lost_wire(leaf.port, origin, place)
                origin = None
            else:
                self.wires[leaf.port] = origin
        static = self.session.static_origin(thing) if before is None else None
        if static is not None and (static[1] is None or same_bytes(plain(tensor).cpu(), static[1])):
            origin = self.wires[leaf.port] = static[0]
        moved = False
        variation = self.session.options.variation
        if variation is not None and origin is None:
            if array is not None:
                given = array
                array, tensor = self._varied(variation, leaf.port, array, tensor)
                moved = array is not given
            else:
                variation.vary_input(self.name, leaf.port, self.entry, tensor)
        with no_hooks():
            address = tensor.untyped_storage()._cdata
        known = self.constants.known(tensor)
        memory = known[1] if known is not None else self.recorder.new_memory()
        node = self.recorder.placeholder(
            leaf.port, memory=memory, dtype=tensor.dtype, shape=tensor.shape, state=order > 0
        )
        self.constants.add_input(node, memory, tensor)
        self._inputs[leaf.port] = _Input(
            leaf.port, thing, plain(tensor), _copy(tensor), memory, node, place, leaf.semantics, order
        )
        self._port_of[id(thing)] = leaf.port
        if not self.traced:
            if array is None or not moved:
                return None
            return array[()] if isinstance(thing, np.generic) else array
        value = Value(self, node, memory, address, origin)
        value.given = before.given if before is not None and origin is not None else None
        if array is None:
            mark(tensor, value, self.session)
            return None
        self.constants.arrays_in_trace = True
        return wrapped(array[()] if isinstance(thing, np.generic) else array[...], value)

    def _lost_wire(self, port: str, origin: PortId, place: Place) -> None:
        warning = WireLostWarning(node=self.name, port=port, source=str(origin), where=self.where(place))
        self.session.warn(warning, place)

    def _check_fed_by_itself(self) -> None:
        """Refuse a declared state that was handed what another node gave: it would be fed by its own next value."""
        for state in self.states.updated:
            wire = self.wires.get(state.name)
            if wire is not None and wire.node != self.name:
                raise StateFedError(
                    node=self.name, state=state.name, source=str(wire), where=self.where(state.place)
                )  # fmt: skip

    def _lineage(self, thing: Any) -> Value | None:
        """What this session knows of an object that is declared as an input; one without a recording lost its wire."""
        value: Value | None = getattr(thing, "_leapp", None)
        if value is not None and value.recording is not None and value.recording.session is not self.session:
            return None
        if value is not None:
            return value
        if isinstance(thing, torch.Tensor):
            base: Value | None = getattr(thing._base, "_leapp", None)  # a view of something that was computed
            lost = base.origin if base is not None else None
        else:
            lost = self.session.lost_origin(thing) or self.session.lost_origin(owner_of(thing))
        return Value(None, None, NO_MEMORY, 0, lost) if lost is not None else None

    def _varied(self, variation: Variation, port: str, array: Any, tensor: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """An array of other values in memory of its own: the program may look at what it handed in."""
        moved = plain(tensor).clone()
        variation.vary_input(self.name, port, self.entry, moved)
        if same_bytes(moved, plain(tensor)):
            return array, tensor
        return moved.numpy(), moved

    # --- arrays ---------------------------------------------------------------------------------------------------

    def note_array(self, array: Any, value: Value) -> None:
        """An array that owns the memory of a recorded result: plain views of it are known by it."""
        self.arrays[id(array)] = (weakref.ref(array), value)

    def mean(self, array: Any) -> None:
        """A plain array is meant to be fixed, whatever made it."""
        owner = owner_of(array)
        self._meant[id(owner)] = weakref.ref(owner)

    def _is_meant(self, array: Any) -> bool:
        owner = owner_of(array)
        reference = self._meant.get(id(owner))
        return reference is not None and reference() is owner

    def note_cast(self, array: Any, value: Value, expected: bytes) -> None:
        """An array that will hold ``expected``, and stands for ``value`` if it then does."""
        self.note_array(array, value)
        self.unproved[id(array)] = (self.arrays[id(array)][0], expected)

    def made_here(self, array: Any) -> bool:
        """Whether a plain array was made while the node was open; names the call that made it of traced data."""
        found = where_made(array)
        if found is not None and found.reads_trace and not self._is_meant(array):
            self.session.escapes.made_by_reader(found, self.name, self._inputs)
        return found is not None or self._is_of_new_tensor(array)

    def is_new(self, array: Any) -> bool:
        """Whether a plain array was made while the node was open; whatever data made it, nothing is said of it."""
        return is_noted(array) or self._is_of_new_tensor(array)

    def _is_of_new_tensor(self, array: Any) -> bool:
        """Whether an array is the memory of a tensor of the node's: ``torch.zeros(3).numpy()``."""
        tensor: Any = owner_of(array).base
        return isinstance(tensor, torch.Tensor) and self.constants.is_made_inside(tensor)

    def shares_memory(self, tensor: Any, things: Iterable[Any]) -> bool:
        """Whether a tensor lies in memory of an array among ``things`` that is older than the node."""
        arrays = [plain_of(each) for each in things if isinstance(each, np.ndarray)]
        if not arrays or not isinstance(tensor, torch.Tensor):
            return False
        first, last = byte_range(tensor)
        ranges = ((np.lib.array_utils.byte_bounds(each), each) for each in arrays if each.size)
        return any(low < last and first < high and not self.is_new(each) for (low, high), each in ranges)

    def crossed(self, array: Any) -> bool:
        """A plain array becomes a tensor, which does not tell where its memory comes from: it is asked now.

        Gives whether it was made while the node was open.
        """
        return has_torch_dtype(array.dtype) and not self.sees_trace(array) and self.made_here(array)

    def array_over(self, array: Any) -> Value | None:
        """What stands for the memory of a plain array that owns, or sees, the result of a recorded call."""
        owner = owner_of(array)
        reference, value = self.arrays.get(id(owner), (None, None))
        if reference is None or reference() is not owner:
            return None
        if self.unproved:
            seen, expected = self.unproved.pop(id(owner), (None, b""))
            if seen is reference and plain_array(owner).tobytes() != expected:
                del self.arrays[id(owner)]  # something else was written there
                return None
        return value

    def note_layout(self, view: Any) -> None:
        """Torch must lay out the owner of a view as NumPy did, or the same call would give a copy."""
        owner = owner_of(view)
        value = self.array_over(view)
        if value is not None and value.fx is not None and owner.ndim > 1:
            order = sorted(range(owner.ndim), key=lambda axis: -owner.strides[axis])
            self.recorder.laid_out[value.fx] = tuple(order)

    def use_array(self, array: Any, place: Place, made_inside: bool | None = None) -> _Used:
        """A tensor over a plain array, and the graph node, memory and address that stand for it."""
        known = self._known_short(array)
        if known is not None:  # also here, so that a call is recorded alike on its long and its short way
            return known
        if not array.dtype.isnative and has_torch_dtype(array.dtype.newbyteorder("=")):
            made_inside = self.made_here(array) or made_inside
            array = array.astype(array.dtype.newbyteorder("="))  # the same numbers, in the order that torch knows
        if not has_torch_dtype(array.dtype):
            raise ConstantKindError(
                node=self.name, kind=f"NumPy {array.dtype}", where=self.where(place),
                advice="arrays of the numbers that torch has",
            )  # fmt: skip
        value = self.array_over(array)
        if value is not None:
            whole = tensor_of(owner_of(array))
            if self.constants.known(whole) is None:
                assert value.fx is not None
                self.constants.add_input(value.fx, value.memory, whole)
                self.constants.arrays_in_trace = True
        else:
            here = self.made_here(array)
            seen = made_inside is not None or self._is_meant(array) or self.sees_trace(array)
            written = None if seen else where_written(array)
            if written is not None:
                self.session.escapes.unseen_write(written, self.name, self._inputs)
            made_inside = here or made_inside
        backwards = tuple(axis for axis, stride in enumerate(array.strides) if stride < 0)
        if not backwards:
            tensor = tensor_of(array)
            self.constants.check_watched(tensor, place)
            node, memory, address = self.constants.use(tensor, place, made_inside)
            if array.nbytes <= _SHORT_BYTES:
                form = self.constants.changes, array.tobytes(), array.shape, array.dtype
                self._short_constants[id(array)] = weakref.ref(array), form, (tensor, node, memory, address)
            return tensor, node, memory, address
        forwards = tensor_of(array[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)])
        node, _, address = self.constants.use(forwards, place, made_inside)
        memory = self.recorder.new_memory()
        info = OpInfo(place, memory, (), forwards.dtype, array.shape)
        turned = self.recorder.call("call_function", torch.flip, "flip", (node, backwards), {}, info)
        return torch.flip(forwards, backwards), turned, memory, address

    def short_constant(self, array: Any) -> fx.Node | None:
        """The node of a small plain array that was a constant before and is as it was; None for any other."""
        known = self._known_short(array)
        return None if known is None else known[1]

    def _known_short(self, array: Any) -> _Used | None:
        known = self._short_constants.get(id(array))
        if known is None or known[0]() is not array:
            return None
        _, form, used = known
        now = self.constants.changes, array.tobytes(), array.shape, array.dtype  # type: ignore[union-attr]  # an array
        return used if form == now else None

    # --- closing --------------------------------------------------------------------------------------------------

    def close(
        self, leaves: Sequence[Leaf], static: Sequence[Leaf], place: Place, *, brought: bool = False
    ) -> dict[int, Any]:
        """Check the outputs, erase what they do not need, and keep graph and sample.

        With ``brought``, the node brings its model along: outputs that no recorded call leads to are right, and the
        graph is left empty then. Gives what stands for plain arrays among the outputs, by id.
        """
        if self.broken is not None:
            raise self.broken
        settle()
        self._settle_buffers({leaf.port for leaf in (*leaves, *static)}, place)
        following = self.states.next_values()
        self.states.check_outputs({leaf.port for leaf in (*leaves, *static)}, place)
        self._check_fed_by_itself()
        fixed = [leaf for leaf in static if not self._computed(leaf)]
        given = (*leaves, *(leaf for leaf in static if self._computed(leaf)), *following)
        if brought:
            recorded = [self._is_recorded(leaf, place) for leaf in (*leaves, *static, *following)]
            self.partial = not all(recorded)
        nodes: list[Any] = []
        if not self.partial:
            nodes += [self._output_node(leaf, place) for leaf in leaves]
            # A value that was computed here is no constant, whatever it is called: it would be frozen unseen.
            nodes += [
                self._output_node(leaf, place) if self._computed(leaf) else self._plain_node(leaf.tensor, place)
                for leaf in static
            ]
            nodes += [self._state_node(leaf, place) for leaf in following]
        leaves = [leaf._replace(tensor=as_tensor(leaf.tensor)) for leaf in leaves]
        static = [leaf._replace(tensor=as_tensor(leaf.tensor)) for leaf in static]
        following = [leaf._replace(tensor=as_tensor(leaf.tensor)) for leaf in following]
        outputs = [*leaves, *static, *following]
        for tensor, registered_at in self._registered:
            self.constants.check_watched(tensor, registered_at)
        if not brought:
            self._check_inputs_unwritten()
        self._make_constants()
        clones = keep_copies(self.recorder)
        nodes = [clones.get(node, node) for node in nodes]
        self.recorder.finish(tuple(nodes))
        if not brought:
            self._settle_memory()
        attributes = self.constants.finish()
        spec = NodeSpec(
            self.name,
            tuple(Port(item.port, spec_of(item.before), item.semantics) for item in self._inputs_in_order()),
            tuple(Port(leaf.port, spec_of(leaf.tensor), leaf.semantics) for leaf in outputs),
        )
        self.graph = NodeGraph(
            spec, self.recorder.graph, attributes, self._sources(), self._specs(), self._writes(), self.translated
        )
        self.sample = Sample(
            {item.port: item.before for item in self._inputs_in_order()},
            {leaf.port: _copy(leaf.tensor) for leaf in outputs},
        )
        if not brought:
            self._check_draws()
        self.open = False
        self.session.note_static(self.name, fixed, self.sample.outputs)
        return tag_outputs(given, self.name, self, brought=brought)

    def _check_draws(self) -> None:
        if not self._drawn_by_name and not torch.equal(self._random_before, torch.random.get_rng_state()):
            self.session.escapes.random("a call into torch's generator", self.name, recorded=False)
        for name, state in generators.states().items():
            if state != self._other_random_before[name]:
                self.session.escapes.random(f"a call into {name}", self.name, recorded=False)

    def _state_node(self, leaf: Leaf, place: Place) -> Any:
        """The next value of a state; a module may put a plain tensor in a buffer's place, which starts it anew."""
        if self.states.declared[leaf.port].how == BUFFER and value_of(leaf.tensor) is None:
            return self._plain_node(leaf.tensor, place)
        return self._output_node(leaf, place, StateNotTracedError)

    def _is_recorded(self, leaf: Leaf, place: Place) -> bool:
        """Whether recorded calls lead to an output of a brought model. Raises for a value of another node."""
        value = value_of(leaf.tensor)
        if value is None or value.recording is self or not self.traced:
            return value is not None and self.traced
        if value.recording is None or value.recording.name != self.name:
            raise self.foreign(value, place)
        return False

    def _settle_buffers(self, outputs: Collection[str], place: Place) -> None:
        """Watched buffers that changed become states; reads of them are reported now."""
        if not self._watched and not self._modules:
            return
        written = {memory for info in self.recorder.info.values() for memory in info.written}
        changed: set[fx.Node] = set()
        for each in self._watched:
            buffer, item = each.buffer, each.input
            buffer.check(self.name, self.where(place))
            now = buffer.now()
            if item is None or (now is buffer.tensor and item.memory not in written):
                continue
            changed.add(item.node)
            if not self._is_input(each):  # it is when an output was refused before
                item.port = free_name(buffer.name.replace(".", "_"), {*self._inputs, *self.states.declared, *outputs})
                self._inputs[item.port] = item
            assert buffer.spec is not None
            self.states.add_buffer(item.port, buffer.spec, item.order, Leaf(item.port, buffer.name, now), each.place)
        watched = [each.buffer for each in self._watched]
        for model in self._modules:
            check_none_came(self.name, model, watched, self._is_own, self.where(place))
        self._check_apart(written, place)
        for buffers, report in self._undecided:
            if buffers & changed:
                report()
        self._undecided.clear()

    def _check_apart(self, written: Collection[int], place: Place) -> None:
        """Refuse buffers that became one tensor, or one memory that is written: a write would reach both."""
        together: dict[int, list[_Watched]] = {}
        for each in self._watched:
            now = each.buffer.now()
            if each.input is None or not isinstance(now, torch.Tensor) or not now.numel():
                continue
            others = together.setdefault(now.untyped_storage()._cdata, [])
            for other in others:
                theirs = other.buffer.now()
                if other.input is None or other.input.memory == each.input.memory:
                    continue  # as before
                (low, high), (first, last) = byte_range(now), byte_range(theirs)
                in_place = other.input.memory in written or each.input.memory in written
                if now is theirs or (in_place and first < high and low < last):
                    each.buffer.refuse_sharing(other.buffer, self.name, self.where(place))
            others.append(each)

    def _is_own(self, tensor: torch.Tensor) -> bool:
        value = value_of(tensor)
        return value is not None and value.recording is self and id(tensor) not in self._port_of

    def _make_constants(self) -> None:
        """Watched buffers that nothing changed are constants, which stand before their first use."""
        left = {each.input.node: each for each in self._watched if each.input is not None and not self._is_input(each)}
        for node in list(self.recorder.graph.nodes) if left else ():
            for source in node.all_input_nodes:
                each = left.pop(source, None)
                if each is not None:
                    node.prepend(source)
                    self._make_constant(each, self.recorder.info[node].place or each.place)
        for each in left.values():
            self._make_constant(each, each.place)

    def state_buffers(self) -> list[Leaf]:
        """Registered buffers that are state, by port, as the modules hold them now."""
        return [
            Leaf(each.input.port, each.buffer.name, each.buffer.now())
            for each in self._watched
            if each.input is not None and self._is_input(each)
        ]

    def _is_input(self, each: _Watched) -> bool:
        return each.input is not None and self._inputs.get(each.input.port) is each.input

    def _make_constant(self, each: _Watched, place: Place) -> None:
        item = each.input
        assert item is not None
        self.recorder.to_constant(item.node, each.buffer.name, place)
        self.constants.no_input(item.node, each.buffer.name, item.live, item.before)
        unmark(item.tensor)

    def _inputs_in_order(self) -> list[_Input]:
        """Ordinary inputs, then states, each in order of declaration."""
        return sorted(self._inputs.values(), key=lambda item: item.order)

    def warn_of_unused_inputs(self, nodes: Sequence[Leaf]) -> None:
        """Name inputs that feed nothing or are returned unchanged."""
        assert self.graph is not None
        returned = {id(leaf.tensor) for leaf in nodes}
        returned |= {id(value.fx) for leaf in nodes if (value := value_of(leaf.tensor)) is not None}
        placeholders = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        unused = [
            item.port
            for item, node in zip(self._inputs_in_order(), placeholders, strict=True)
            if not [user for user in node.users if user.op != "output"]
            and (not node.users or id(item.tensor) in returned or id(node) in returned)
        ]
        if unused:
            self.session.warn(UnusedInputWarning(node=self.name, ports=", ".join(unused)), self.place)

    def warn_of_states_without_next_values(self) -> None:
        """Name declared state that nothing carries to the next tick."""
        for state in self.states.declared.values():
            if state.how == DECLARED and state.next is None:
                warning = StateNotUpdatedWarning(node=self.name, state=state.name, where=self.where(state.place))
                self.session.warn(warning, state.place)

    def abandon(self) -> None:
        """The entry ends here, closed or not: buffers of modules that it did not make state are the user's again."""
        if self.open:
            self.open = False
            for each in self._watched:
                if each.input is not None:
                    unmark(each.input.tensor)

    def forget_modules(self) -> None:
        """The session has ended: nobody looks at the buffers of modules any more."""
        self._watched.clear()
        self._modules.clear()

    def _output_node(self, leaf: Leaf, place: Place, missing: type[OutputNotTracedError] = OutputNotTracedError) -> Any:
        value = value_of(leaf.tensor)
        if value is None:
            if self.sees_trace(leaf.tensor):  # a plain view of a buffer that a recorded call wrote
                return self._plain_node(leaf.tensor, place)
            kind = plain_class(type(leaf.tensor)) or type(leaf.tensor)
            if isinstance(leaf.tensor, np.ndarray):
                self.made_here(leaf.tensor)
            raise missing(
                node=self.name,
                port=leaf.port,
                kind=f"{kind.__module__}.{kind.__qualname__}",
                where=self.where(place),
                seen=causes_text(self.session.escapes.causes(self.name)),
            )
        if value.recording is not self:
            raise self.foreign(value, place)
        if value.stale_since is not None:
            self.check_fresh(value, place)
        if value.buffer and is_array(leaf.tensor):
            self.constants.check_watched(as_tensor(leaf.tensor), place)
        return value.fx

    def _computed(self, leaf: Leaf) -> bool:
        """Whether a static output is the result of recorded calls, rather than something that nodes were given."""
        value = value_of(leaf.tensor)
        return value is not None and value.fx is not None and (value.recording is self or value.fx.op != "placeholder")

    def check_fresh(self, value: Value, place: Place) -> None:
        """Refuse a copy that stands for a view in the graph, once the memory was written behind it."""
        info = self.recorder.info
        assert value.stale_since is not None
        newer = len(info) - value.stale_since
        if any(value.memory in each.written for each in islice(reversed(info.values()), newer)):
            raise UnrecordableOpError(
                node=self.name, op="a view that runs backwards", where=self.where(place),
                why="the memory it sees was written after it was taken, which a graph cannot follow",
                advice="Take the view again after the write.",
            )  # fmt: skip
        value.stale_since = len(info)

    def sees_trace(self, thing: Any) -> bool:
        """Whether a plain tensor or array lies in memory that the trace owns."""
        if not is_array(thing):
            return self.constants.sees_trace((thing,))
        if not isinstance(thing, np.ndarray) or not has_torch_dtype(thing.dtype):
            return False
        if self.array_over(thing) is not None:
            return True
        with no_hooks():
            return self.constants.sees_trace((tensor_of(thing),))

    def _plain_node(self, thing: Any, place: Place) -> Any:
        if not is_array(thing):
            return self.constants.use(thing, place)[0]
        with no_hooks():
            return self.use_array(plain_array(np.asarray(thing)), place)[1]

    def _check_inputs_unwritten(self) -> None:
        written = {memory for info in self.recorder.info.values() for memory in info.written}
        shared: dict[int, list[_Input]] = {}
        watched = [each.input for each in self._watched if each.input is not None and not self._is_input(each)]
        for item in (*self._inputs.values(), *watched):
            if item.memory in written:
                shared.setdefault(item.memory, []).append(item)
            elif not same_bytes(item.live.cpu(), item.before):
                raise InputWrittenError(node=self.name, port=item.port)
        for inputs in shared.values():
            twins = _first_overlap(inputs)
            if twins is not None:
                raise SharedInputError(node=self.name, first=twins[0].port, second=twins[1].port)

    def _settle_memory(self) -> None:
        """Memory that the node writes: its old content is hidden state, or nothing at all where nobody reads it."""
        constants = self.constants.written()
        if not constants:
            return
        places: dict[int, Place] = {}
        for info in self.recorder.info.values():
            for memory in info.written:
                if info.place is not None:
                    places.setdefault(memory, info.place)
        outside = {constant.node for constant in self.constants.written(from_outside=True)}
        known = self.constants.unwritten()
        for constant in constants:
            place = places.get(self.recorder.info[constant.node].memory)
            if place is None:  # no output sees a write
                continue
            is_read = old_content_is_read(self.recorder, constant.node, known)
            if not is_read:
                constant.forget()
            if constant.node in outside and (is_read or self.constants.computed_of(constant)):
                self.session.escapes.hidden_state(self.name, place, state_name(self._inputs))

    def _sources(self) -> dict[str, SourceLine]:
        root = self.session.root
        lines: dict[tuple[int, int, str], SourceLine] = {}
        sources: dict[str, SourceLine] = {}
        for node, info in self.recorder.info.items():
            if info.place is not None:
                code, number, module = info.place
                key = id(code), number, module  # a code object's own hash looks at all it holds
                line = lines.get(key)
                if line is None:
                    line = lines[key] = source_line(info.place, root)
                sources[node.name] = line
        return sources

    def _writes(self) -> frozenset[str]:
        return frozenset(node.name for node, info in self.recorder.info.items() if info.written)

    def _specs(self) -> dict[str, TensorSpec]:
        specs: dict[tuple[Any, Any], TensorSpec] = {}
        named: dict[str, TensorSpec] = {}
        for node, (_, _, _, dtype, shape) in self.recorder.info.items():
            if dtype is not None:
                spec = specs.get((dtype, shape))
                if spec is None:
                    spec = specs[dtype, shape] = TensorSpec(_dtypes.name_of(dtype), tuple(shape))
                named[node.name] = spec
        return named


def _values_in(things: Iterable[Any]) -> Iterator[Value]:
    """The lineage of every traced thing, at any depth."""
    for thing in things:
        value = value_of(thing)
        if value is not None:
            yield value
        elif isinstance(thing, (list, tuple)):
            yield from _values_in(thing)
        elif isinstance(thing, dict):
            yield from _values_in(thing.values())
        elif isinstance(thing, slice):
            yield from _values_in((thing.start, thing.stop, thing.step))


def _altered(tensor: torch.Tensor, value: Value) -> bool:
    """Whether an output was written after its node gave it: the wire would carry what the node gave."""
    return value.given is not None and not same_bytes(plain(tensor).cpu(), value.given)


def tag_outputs(
    leaves: Sequence[Leaf], node: str, recording: Recording, *, recorded: bool = True, brought: bool = False
) -> dict[int, Any]:
    """Let outputs carry their ports, so that they become wires where they are declared as inputs.

    ``recorded``: they are those of the recording; else of a later entry, of which no values were kept. Plain ones of a
    node that brings its model (``brought``) may be buffers that it fills again. Gives what stands for plain arrays,
    which cannot carry a port themselves, by id.
    """
    made = {}
    tagged: set[int] = set()
    given = recording.sample.outputs if recorded and recording.sample is not None else {}
    for leaf in leaves:
        port = PortId(node, leaf.port)
        value = value_of(leaf.tensor)
        if value is None:
            new = Value(recording, None, 0, 0, port)
            new.buffer = brought
            new.given = given.get(leaf.port)
            if is_array(leaf.tensor):
                made[id(leaf.tensor)] = wrapped(plain_array(leaf.tensor), new)
            else:
                mark(leaf.tensor, new, recording.session)
            continue
        value.recording = recording
        if id(value) in tagged:
            continue  # of one object under two ports, the first one counts
        tagged.add(id(value))
        value.origin, value.given = port, given.get(leaf.port)
        if not recorded:
            value.fx = None
    return made


def _twin(thing: Any) -> Any:
    """The same values in memory of its own, untraced: what a state is that starts from an input."""
    with no_hooks():
        return np.array(plain_of(thing)) if is_array(thing) else plain(thing).clone()


def as_tensor(thing: Any) -> torch.Tensor:
    """A port's value as a tensor, whatever it came as."""
    if not is_array(thing):
        tensor: torch.Tensor = thing
        return tensor
    with no_hooks():
        return tensor_of(np.array(plain_of(thing)) if isinstance(thing, np.generic) else plain_array(thing))


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Dtype name and shape of a tensor."""
    with no_hooks():
        return TensorSpec(_dtypes.name_of(tensor.dtype), tuple(tensor.shape))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    with no_hooks(), torch.no_grad():
        return plain(tensor).to("cpu", copy=True, memory_format=torch.contiguous_format)


def _first_overlap(inputs: list[_Input]) -> tuple[_Input, _Input] | None:
    """Two inputs that share memory, in the order of their declaration; None when no two do."""
    in_memory = sorted(enumerate(inputs), key=lambda each: byte_range(each[1].live))
    furthest: tuple[int, int, _Input] | None = None
    for index, item in in_memory:
        start, end = byte_range(item.live)
        if start == end:
            continue
        if furthest is not None and start < furthest[0]:
            first, second = sorted((furthest[1:], (index, item)), key=lambda each: each[0])
            return first[1], second[1]
        if furthest is None or end > furthest[0]:
            furthest = end, index, item
    return None
