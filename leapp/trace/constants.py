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
from typing import TYPE_CHECKING, Any, Final

import torch

from leapp import _dtypes
from leapp.errors import ConstantChangedError, ConstantKindError, UnrecordableOpError
from leapp.trace.recorder import OpInfo, free_name

if TYPE_CHECKING:
    from torch import fx

    from leapp.trace.recorder import Recorder
    from leapp.trace.source import Place

no_hooks: Any = torch._C.DisableTorchFunction
"""Context in which no ``__torch_function__`` and no mode sees what we do ourselves."""

REFERENCE_LIMIT_BYTES: Final = 8 << 20
"""Constants above this size are not copied."""

_INLINE_LIMIT_BYTES: Final = 4096
"""Contiguous constants up to this size are compared as one bytes object."""

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
        a, b = first.detach().contiguous(), second.detach().contiguous()
        if not a.numel():
            return True
        return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


@dataclass
class Constant:
    """One constant of a recording."""

    node: fx.Node
    live: torch.Tensor
    """The user's memory, as the first use saw it."""
    snapshot: torch.Tensor
    """Its content at that moment; ``live`` itself above the size limit."""
    inline: bytes | None
    digest: str | None
    version: int
    name: str | None
    """Qualified name in the outermost module; None when it has none."""
    traced: bool = False
    """Its memory belongs to the trace: an input, or a buffer that a recorded call wrote."""
    stale: bool = False
    """A recorded write reached its memory through another constant: it must not be used again."""
    is_input: bool = False

    def unchanged(self) -> bool:
        """Whether the user's memory still holds what was recorded."""
        if self.inline is not None:
            return ctypes.string_at(self.live.data_ptr(), len(self.inline)) == self.inline
        if self.digest is not None:
            return _version(self.live) == self.version
        return same_bytes(self.live, self.snapshot)


@dataclass
class _Storage:
    """All constants taken from one storage; ``keeper`` holds it so that its address is not given out again."""

    keeper: Any
    memory: int
    made_inside: bool
    """Its first tensor was made while the node was open."""
    written: bool = False
    constants: list[Constant] = field(default_factory=list)


class Constants:
    """The constants of one recording."""

    def __init__(self, recorder: Recorder, node_name: str) -> None:
        self._recorder = recorder
        self._node_name = node_name
        self._storages: dict[int, _Storage] = {}
        self.in_trace: set[int] = set()
        """Addresses of storages that the trace owns, at least in part."""
        self._made: dict[int, weakref.ref[torch.Tensor]] = {}
        self._references: dict[str, Constant] = {}
        self._module_names: dict[int, tuple[Any, dict[int, tuple[str, torch.Tensor]]]] = {}

    def use(self, tensor: torch.Tensor, place: Place) -> tuple[fx.Node, int, int]:
        """The graph node, memory and storage address of a plain tensor that a recorded call is about to read."""
        self._refuse_kinds(tensor, place)
        if tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
            return self._detached_copy(tensor, place)
        with no_hooks():
            untyped = tensor.untyped_storage()
        address = untyped._cdata
        stored = self._storages.get(address)
        if stored is None:
            stored = _Storage(untyped, self._recorder.new_memory(), self._is_made_inside(address))
            self._storages[address] = stored
        found = self._in_trace(stored, tensor, place) or self._known(stored, tensor, place)
        if found is not None:
            return found, stored.memory, address
        return self._add(stored, tensor, place).node, stored.memory, address

    def _in_trace(self, stored: _Storage, tensor: torch.Tensor, place: Place) -> fx.Node | None:
        """The node of a tensor that sees memory of the trace; None when it sees none."""
        touching = [each for each in stored.constants if each.traced and _touch(each.live, tensor)]
        for constant in reversed(touching):
            if _same_geometry(constant.live, tensor):
                return constant.node
            view = self._view(constant, tensor, stored.memory, place)
            if view is not None:
                return view
        if touching:
            raise UnrecordableOpError(
                node=self._node_name,
                op="a tensor that shares memory with a recorded write or an input",
                where=f"{place.code.co_filename}:{place.line}",
                why="it reaches beyond what the trace knows of that memory",
                advice="Take the view inside the node, from the tensor that annotate.input_tensors() returned.",
            )
        return None

    def _known(self, stored: _Storage, tensor: torch.Tensor, place: Place) -> fx.Node | None:
        """The node of a constant that still holds what was recorded, the latest moment first."""
        usable = [each for each in reversed(stored.constants) if not (each.stale or each.traced)]
        for constant in usable:
            if _same_geometry(constant.live, tensor) and constant.unchanged():
                return constant.node
        for constant in usable:
            if _covers(constant.live, tensor) and constant.unchanged():
                view = self._view(constant, tensor, stored.memory, place)
                if view is not None:
                    return view
        return None

    def add_input(self, node: fx.Node, memory: int, tensor: torch.Tensor) -> None:
        """An input's memory: plain views of it, taken before it was declared, are views of the input."""
        live = plain(tensor)
        address = live.untyped_storage()._cdata
        stored = self._storages.setdefault(address, _Storage(live.untyped_storage(), memory, made_inside=True))
        stored.constants.append(Constant(node, live, live, None, None, 0, None, traced=True, is_input=True))
        self.in_trace.add(address)

    def mark_written(self, address: int, tensor: torch.Tensor) -> None:
        """From now on this memory is part of the trace: a recorded call wrote it."""
        stored = self._storages.get(address)
        if stored is None:
            return
        stored.written = True
        self.in_trace.add(address)
        touching = [each for each in stored.constants if not each.stale and _touch(each.live, tensor)]
        if any(each.traced for each in touching):
            return
        # The one that the call used: the same geometry first, then one that covers it, the latest of each.
        target = next((each for each in reversed(touching) if _same_geometry(each.live, tensor)), None) or next(
            (each for each in reversed(touching) if _covers(each.live, tensor)), None
        )
        for each in touching:
            each.traced, each.stale = each is target, each is not target

    def sees_trace(self, things: tuple[Any, ...]) -> bool:
        """Whether a plain tensor among ``things``, at any depth, lies in a storage that the trace owns.

        A stand-in of torch.func may stand for one that does.
        """
        for thing in things:
            if isinstance(thing, torch.Tensor):
                if torch._C._functorch.is_functorch_wrapped_tensor(thing):
                    return True
                if _has_memory(thing) and thing.untyped_storage()._cdata in self.in_trace:
                    return True
            elif isinstance(thing, (list, tuple)) and self.sees_trace(tuple(thing)):
                return True
        return False

    def made_inside(self, tensor: torch.Tensor) -> None:
        """A plain tensor came into being while the node was open: its memory does not outlive the node."""
        if _has_memory(tensor):
            self._made[tensor.untyped_storage()._cdata] = weakref.ref(tensor)

    def _is_made_inside(self, address: int) -> bool:
        # An address is given out again when its tensor is gone, so only one that lives counts.
        reference = self._made.get(address)
        tensor = reference() if reference is not None else None
        return tensor is not None and tensor.untyped_storage()._cdata == address

    def written_from_outside(self) -> list[Constant]:
        """Constants whose memory was there before the node and received a recorded write."""
        return [
            constant
            for stored in self._storages.values()
            if stored.written and not stored.made_inside
            for constant in stored.constants
            if constant.node in self._recorder.info and not constant.is_input
        ]

    def finish(self) -> dict[str, torch.Tensor]:
        """Name what is left after pruning; gives attribute path -> CPU tensor that nobody else writes."""
        alive = [
            constant
            for stored in self._storages.values()
            for constant in stored.constants
            if constant.node in self._recorder.info and not constant.is_input
        ]
        position = {node: index for index, node in enumerate(self._recorder.graph.nodes)}
        alive.sort(key=lambda constant: position[constant.node])
        result: dict[str, torch.Tensor] = {}
        targets: dict[fx.Node, str] = {}
        anonymous = 0
        for constant in alive:
            if constant.name is None:
                target = f"{ANONYMOUS}{anonymous}"
                anonymous += 1
            else:
                target = free_name(constant.name, result)
            constant.node.target = target
            targets[constant.node] = target
            result[target] = constant.snapshot
        self._recorder.free_names(targets, lambda node: targets[node].replace(".", "_"))
        self._references = {targets[constant.node]: constant for constant in alive if constant.digest is not None}
        return result

    def digests(self) -> dict[str, str]:
        """Digests of the large constants, after making sure that they did not move since their use."""
        result = {}
        for name, constant in self._references.items():
            assert constant.digest is not None
            if bytes_digest(constant.live) != constant.digest:
                raise ConstantChangedError(node=self._node_name, name=name)
            result[name] = constant.digest
        return result

    def _add(self, stored: _Storage, tensor: torch.Tensor, place: Place) -> Constant:
        name, owner = self._qualified_name(tensor, stored)
        base = owner if owner is not None and _covers(owner, tensor) else self._base(tensor)
        live = plain(base)
        size = live.numel() * live.element_size()
        by_reference = size > REFERENCE_LIMIT_BYTES
        snapshot = live if by_reference else live.clone(memory_format=torch.contiguous_format)
        inline = None
        if size <= _INLINE_LIMIT_BYTES and live.is_contiguous():
            inline = ctypes.string_at(live.data_ptr(), size) if size else b""
        node = self._recorder.constant(
            name or ANONYMOUS, place, memory=stored.memory, dtype=live.dtype, shape=live.shape
        )
        constant = Constant(
            node, live, snapshot, inline, bytes_digest(live) if by_reference else None, _version(live), name
        )
        stored.constants.append(constant)
        if _same_geometry(live, tensor):
            return constant
        view = self._view(constant, tensor, stored.memory, place)
        if view is None:
            # Not expressible as a view of its base: store what was used, as it is.
            return self._add_as_is(stored, tensor, name, place)
        return Constant(view, plain(tensor), snapshot, None, None, 0, name)

    def _add_as_is(self, stored: _Storage, tensor: torch.Tensor, name: str | None, place: Place) -> Constant:
        live = plain(tensor)
        node = self._recorder.constant(
            name or ANONYMOUS, place, memory=stored.memory, dtype=live.dtype, shape=live.shape
        )
        constant = Constant(
            node, live, live.clone(memory_format=torch.contiguous_format), None, None, _version(live), name
        )
        stored.constants.append(constant)
        return constant

    def _detached_copy(self, tensor: torch.Tensor, place: Place) -> tuple[fx.Node, int, int]:
        """Memory of another device or of a lazy conjugate: copied at each use, shared with nothing."""
        with no_hooks(), torch.no_grad():
            copy = tensor.detach().resolve_conj().resolve_neg().to("cpu", copy=True)
        stored = _Storage(copy.untyped_storage(), self._recorder.new_memory(), made_inside=True)
        self._storages[copy.untyped_storage()._cdata] = stored
        return self._add(stored, copy, place).node, stored.memory, copy.untyped_storage()._cdata

    def _base(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor whose view this is, where that is not much larger; else the tensor itself."""
        base = tensor._base
        if base is None or base.numel() > 16 * max(tensor.numel(), 64) or not _covers(base, tensor):
            return tensor
        return base

    def _view(self, constant: Constant, tensor: torch.Tensor, memory: int, place: Place) -> fx.Node | None:
        """Emit ``tensor`` as a view of a constant of the same storage; None where it is none."""
        step = view_step(constant.live, tensor)
        if step is None:
            return None
        target, args = step
        info = OpInfo(place, memory, (), tensor.dtype, tuple(tensor.shape))
        return self._recorder.call("call_function", target, target.__name__, (constant.node, *args), {}, info)

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

    def _qualified_name(self, tensor: torch.Tensor, stored: _Storage) -> tuple[str | None, torch.Tensor | None]:
        """Name and owner of a parameter or buffer in the outermost module whose ``__call__`` is running."""
        module = outermost_module()
        if module is None:
            return None, None
        address = stored.keeper._cdata
        known = self._module_names.get(id(module))
        if known is None or address not in known[1]:
            known = (module, _tensors_by_storage(module))
            self._module_names[id(module)] = known
        found = known[1].get(address)
        if found is None or not _covers(found[1], tensor):
            return None, None
        return found


def _tensors_by_storage(module: torch.nn.Module) -> dict[int, tuple[str, torch.Tensor]]:
    named: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        if tensor.layout is torch.strided and tensor.device.type != "meta":
            with no_hooks():
                named.setdefault(tensor.untyped_storage()._cdata, (name, tensor))
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
    return found if isinstance(found, torch.nn.Module) else None


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in one storage: not a sparse one, a stand-in of torch.func, or a lazy parameter."""
    return (
        not torch.nn.parameter.is_lazy(tensor)
        and tensor.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def _same_geometry(first: torch.Tensor, second: torch.Tensor) -> bool:
    with no_hooks():
        return (
            first.data_ptr() == second.data_ptr()
            and first.dtype == second.dtype
            and first.shape == second.shape
            and (first.stride() == second.stride() or first.numel() <= 1)
        )


def byte_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First and one past the last byte address that a tensor may touch."""
    with no_hooks():
        start = tensor.data_ptr()
        if not tensor.numel():
            return start, start
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        return start, start + (last + 1) * tensor.element_size()


def _touch(first: torch.Tensor, second: torch.Tensor) -> bool:
    (low, high), (start, stop) = byte_range(first), byte_range(second)
    return low < stop and start < high


def _covers(base: torch.Tensor, view: torch.Tensor) -> bool:
    if base.dtype != view.dtype:
        return False
    (low, high), (first, last) = byte_range(base), byte_range(view)
    return low <= first and last <= high


Step = tuple[Any, tuple[Any, ...]]


def view_step(base: torch.Tensor, view: torch.Tensor) -> Step | None:
    """The call that turns ``base`` into ``view``: a permutation, a slice along one axis, or strides over its memory.

    Both lie in one storage and have one dtype; None when ``view`` reaches outside ``base`` or differs in no way.
    Indices count elements of a packed copy of ``base``, which is what a recording stores.
    """
    if not _covers(base, view) or not view.numel():
        return None
    with no_hooks():
        offset = (view.data_ptr() - base.data_ptr()) // base.element_size()
        base_layout = list(zip(base.shape, base.stride(), strict=True))
        view_layout = list(zip(view.shape, view.stride(), strict=True))
        if offset == 0 and sorted(base_layout) == sorted(view_layout):
            order: list[int] = []
            for pair in view_layout:
                order.append(next(i for i, other in enumerate(base_layout) if other == pair and i not in order))
            return torch.permute, (tuple(order),)
        sliced = _one_slice(base, view, offset)
        if sliced is None and base.is_contiguous():
            return torch.as_strided, (tuple(view.shape), tuple(view.stride()), offset)
        return sliced


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
