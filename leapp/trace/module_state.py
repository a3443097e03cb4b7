"""Registered buffers of a module that a node watches: which of them carry something from one tick to the next.

While the node is open every watched buffer is traced like an input, whoever reads or writes it, because only at the end
it is known which ones changed: reassigned, or written in place. Those are state. The others become the constants that
they would have been.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from leapp import _dtypes
from leapp.errors import BufferStateError, UnknownBufferError
from leapp.trace.state import form_of, form_text
from leapp.trace.tensor import TracedParameter, TracedTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leapp._spec import TensorSpec

_GONE = object()


@dataclass
class Buffer:
    """A registered buffer, as it was when the node began to watch it."""

    owner: torch.nn.Module
    attribute: str
    name: str
    """Qualified, in the module that was given to ``annotate.module``."""
    kind: str
    """Class of that module, for messages."""
    tensor: torch.Tensor | None
    spec: TensorSpec | None
    twins: list[Buffer] = field(default_factory=list)
    """Further places where the same tensor is registered."""

    def now(self) -> Any:
        """What the module holds there now."""
        return getattr(self.owner, self.attribute, _GONE)

    def check(self, node: str, where: str) -> None:
        """Raise BufferStateError where the buffer changed in a way that no state can."""
        now = self.now()
        if now is self.tensor:
            return
        if any(twin.now() is not now for twin in self.twins):
            names = " and ".join(each.name for each in (self, *self.twins))
            raise self._error(
                node, where, f"{names} were one tensor, and one of them was reassigned",
                "Give each its own tensor, x.clone(), or write it in place: self.x.copy_(value)",
            )  # fmt: skip
        if self.spec is None:
            why = f"it was None when the node was opened and is {_described(now)} now"
            raise self._error(node, where, why, self._advice())
        if not isinstance(now, torch.Tensor) or (type(now) not in _KINDS):
            why = f"it was {form_text(self.spec)} when the node was opened and is {_described(now)} now"
            raise self._error(node, where, why, "State needs a value at every tick: write zeros instead")
        if form_of(now) != self.spec:
            why = f"it was {form_text(self.spec)} when the node was opened and is {form_text(form_of(now))} now"
            raise self._error(node, where, why, self._advice())

    def refuse_sharing(self, other: Buffer, node: str, where: str) -> None:
        """Raise BufferStateError: this buffer and another became one memory."""
        raise self._error(
            node, where, f"it and {other.name} are one memory when the node closes",
            f"Give each its own: model.{self.attribute} = x.clone()",
        )  # fmt: skip

    def _advice(self) -> str:
        return (
            "Give it the form that it has from the second tick on before the first one: "
            f"model.{self.name} = torch.zeros(...)"
        )

    def _error(self, node: str, where: str, why: str, advice: str) -> BufferStateError:
        return BufferStateError(node=node, buffer=self.name, module=self.kind, why=why, where=where, advice=advice)


_KINDS = (torch.Tensor, torch.nn.Parameter, TracedTensor, TracedParameter)


def _described(thing: Any) -> str:
    if thing is _GONE:
        return "gone"
    if isinstance(thing, torch.Tensor):
        return form_text(form_of(thing)) if type(thing) in _KINDS else f"a {type(thing).__qualname__}"
    return "None" if thing is None else f"a {type(thing).__qualname__}"


def original(model: torch.nn.Module) -> torch.nn.Module:
    """A compiled module is the original under a wrapper."""
    inner = getattr(model, "_orig_mod", None)
    return inner if isinstance(inner, torch.nn.Module) else model


def registered(node: str, model: torch.nn.Module, names: Sequence[str] | None, where: str) -> list[Buffer]:
    """The registered buffers of a module and of the modules in it, each tensor once, in order of registration.

    Args: names: those that are meant, by qualified name; None: all.
    Raises: UnknownBufferError: a name is no registered buffer.
    """
    found = {buffer.name: buffer for buffer in _walk(model)}
    if names is not None:
        wanted = set(names)
        unknown = next((name for name in names if name not in found), None)
        if unknown is not None:
            kind, known = type(model).__qualname__, ", ".join(map(repr, found)) or "none"
            raise UnknownBufferError(node=node, buffer=unknown, module=kind, known=known, where=where)
        found = {name: buffer for name, buffer in found.items() if name in wanted}
    first: dict[int, Buffer] = {}
    for buffer in found.values():
        if buffer.tensor is None:
            first[id(buffer)] = buffer
            continue
        known_one = first.setdefault(id(buffer.tensor), buffer)
        if known_one is not buffer:
            known_one.twins.append(buffer)
    for buffer in first.values():
        if buffer.tensor is not None and torch.nn.parameter.is_lazy(buffer.tensor):
            raise BufferStateError(
                node=node, buffer=buffer.name, module=buffer.kind, where=where,
                why="it is not initialised yet", advice="Call the module once before the node is opened",
            )  # fmt: skip
    return list(first.values())


def check_none_came(
    node: str,
    model: torch.nn.Module,
    watched: Iterable[Buffer],
    is_traced: Callable[[torch.Tensor], bool],
    where: str,
) -> None:
    """Raise BufferStateError for a buffer that was registered while the node was open, with a traced value."""
    known: dict[int, set[str]] = {}
    for each in watched:
        for twin in (each, *each.twins):
            known.setdefault(id(twin.owner), set()).add(twin.attribute)
    for buffer in _walk(model):
        if buffer.tensor is None or buffer.attribute in known.get(id(buffer.owner), ()):
            continue
        if is_traced(buffer.tensor):
            raise BufferStateError(
                node=node, buffer=buffer.name, module=buffer.kind, where=where,
                why="it was registered while the node was open",
                advice="Register it before the first tick, with its start value",
            )  # fmt: skip


def _walk(model: torch.nn.Module) -> Iterator[Buffer]:
    kind = type(model).__qualname__
    for path, owner in model.named_modules():
        for attribute, tensor in owner._buffers.items():
            name = f"{path}.{attribute}" if path else attribute
            lazy = tensor is not None and torch.nn.parameter.is_lazy(tensor)
            spec = None if tensor is None or lazy else form_of(tensor)
            yield Buffer(owner, attribute, name.replace("_orig_mod.", ""), kind, tensor, spec)


def is_watchable(tensor: torch.Tensor) -> bool:
    """Whether a buffer can be traced: a dense tensor of a known dtype, under no class of the user's."""
    return (
        type(tensor) in _KINDS
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and tensor.device.type != "meta"
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and _dtypes.name_of(tensor.dtype) in _dtypes.BY_NAME
    )
