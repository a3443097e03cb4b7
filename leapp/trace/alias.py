"""Who sees whose memory in a finished recording."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from leapp.trace.constants import no_hooks
from leapp.trace.recorder import NO_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leapp.trace.recorder import Recorder

_WHOLE_WRITES: Final = frozenset(("copy_", "fill_", "zero_", "set_"))
_LARGEST_FOLLOWED: Final = 1 << 20
"""Elements of a constant of which it is known one by one which are written; of a larger one, all or none."""


def old_content_is_read(recorder: Recorder, constant: fx.Node, known: Mapping[fx.Node, torch.Tensor]) -> bool:
    """Whether what a written constant held before the node reaches something that is kept.

    An element does not that is overwritten before anything reads it, whatever view it is written through. Call after
    pruning: every write that is left is seen by an output. ``known`` holds the constants that nothing writes: indices.
    """
    memory = recorder.info[constant].memory
    assert memory != NO_MEMORY
    with no_hooks(), torch.no_grad():
        return _Content(recorder, constant, known).is_read()


class _Content:
    """The elements of a constant, and which of them still hold what they held before the node."""

    def __init__(self, recorder: Recorder, constant: fx.Node, known: Mapping[fx.Node, torch.Tensor]) -> None:
        self._known = known
        self._info = recorder.info
        self._memory = self._info[constant].memory
        self._constant = constant
        shape = self._info[constant].shape
        size = torch.Size(shape).numel()
        self._size = size
        self._whole = size > _LARGEST_FOLLOWED
        """Each index stands for all elements."""
        numbers = torch.zeros(1, dtype=torch.int64).expand(shape) if self._whole else torch.arange(size).reshape(shape)
        self._seen: dict[fx.Node, Any] = {constant: numbers}
        """What sees the memory -> the numbers of the elements that it sees."""
        self._old = torch.ones(1 if self._whole else size, dtype=torch.bool)

    def is_read(self) -> bool:
        node = self._constant
        while (node := node.next).op != "root":
            info = self._info.get(node)
            touched = [source for source in node.all_input_nodes if self._info[source].memory == self._memory]
            if info is not None and node.op == "get_attr" and info.memory == self._memory:
                return True  # another moment of the same memory
            if not touched:
                continue
            if any(source not in self._seen for source in touched):
                return True
            if info is not None and self._memory in info.written:
                if self._writes(node):
                    return True
            elif info is None or info.memory != self._memory:
                if any(self._holds_old(source) for source in touched):
                    return True
            elif not self._follow(node, touched):
                return True
        return False

    def _holds_old(self, source: fx.Node) -> bool:
        seen = self._seen[source]
        return any(bool(self._old[each].any()) for each in (seen if isinstance(seen, (tuple, list)) else (seen,)))

    def _follow(self, node: fx.Node, touched: list[fx.Node]) -> bool:
        """A view: nothing is read yet. False where it is not known which elements it sees."""
        (source, *others) = touched
        if (
            others
            or node.all_input_nodes != touched
            or any(_is_dtype(each) for each in (*node.args, *node.kwargs.values()))
        ):
            return False
        try:
            view = _called(node, {source: self._seen[source]})
        except Exception:  # noqa: BLE001 - of numbers in place of the values, some views cannot be taken
            return False
        parts = view if isinstance(view, (tuple, list)) else (view,)  # unbind and split give several
        if not all(isinstance(each, torch.Tensor) and each.dtype is torch.int64 for each in parts):
            return False
        self._seen[node] = view
        return True

    def _writes(self, node: fx.Node) -> bool:
        """Whether a write reads old content; what it overwrites is old no more."""
        out = node.kwargs.get("out")
        target = out if isinstance(out, fx.Node) else node.args[0] if node.args else None
        if not isinstance(target, fx.Node) or not isinstance(self._seen.get(target), torch.Tensor):
            return True
        rest = _nodes_in((node.args if target is out else node.args[1:], {**node.kwargs, "out": None}))
        if any(self._holds_old(each) for each in rest if each in self._seen):
            return True
        numbers = self._seen[node] = self._seen[target]  # a write hands back what it wrote
        written = numbers if target is out or _name(node) in _WHOLE_WRITES else self._reached(node, numbers)
        if written is None:
            # Which elements ``x[index] = y`` writes may be known at run time alone: no other ones are read.
            return node.target is not operator.setitem and self._holds_old(target)
        if not self._whole or (written is numbers and numbers.numel() == self._size):
            self._old[written] = False
        return False

    def _reached(self, node: fx.Node, numbers: torch.Tensor) -> torch.Tensor | None:
        """The numbers of the elements of which a write into a part leaves nothing; None where they are not known."""
        try:
            if node.target is operator.setitem:
                if self._whole:
                    return numbers if _is_everything(node.args[1]) else None
                written: torch.Tensor = numbers[self._held(node.args[1])]
                return written
            reach = _PARTIAL_WRITES.get(_name(node))
            return None if reach is None or self._whole else reach(self._held, numbers, *node.args[1:], **node.kwargs)
        except LookupError:  # an index that is computed
            return None

    def _held(self, thing: Any) -> Any:
        """An argument with what the constants in it hold. Raises LookupError where it is computed."""
        return fx.node.map_arg(thing, lambda node: self._known[node])


def _along(held: Any, numbers: torch.Tensor, dim: Any, index: Any, *_: Any, **__: Any) -> torch.Tensor:
    return numbers.index_select(held(dim), held(index))


def _at(held: Any, numbers: torch.Tensor, indices: Any, values: Any, accumulate: bool = False) -> torch.Tensor | None:
    del values
    return None if accumulate else numbers[tuple(held(indices))]


def _where(held: Any, numbers: torch.Tensor, mask: Any, *_: Any, **__: Any) -> torch.Tensor:
    return numbers[held(mask).expand_as(numbers)]


def _scattered(
    held: Any, numbers: torch.Tensor, dim: Any, index: Any, *_: Any, reduce: str | None = None, **__: Any
) -> torch.Tensor | None:
    return None if reduce is not None else numbers.gather(held(dim), held(index))


_PARTIAL_WRITES: Final[dict[str, Callable[..., torch.Tensor | None]]] = {
    "index_copy_": _along,
    "index_fill_": _along,
    "index_put_": _at,
    "masked_fill_": _where,
    "masked_scatter_": _where,
    "scatter_": _scattered,
}
"""Methods that overwrite the elements an argument tells: what holds constants, the numbers, the other arguments."""


def _is_everything(index: Any) -> bool:
    items = index if isinstance(index, tuple) else (index,)
    return all(item is Ellipsis or item == slice(None) for item in items)


def _name(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_method" else ""


def _is_dtype(item: Any) -> bool:
    return isinstance(item, torch.dtype)


def _called(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """What a call gives for other values."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: values[each])
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _nodes_in(thing: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(thing, found.append)
    return found
