"""What NumPy copied and torch might share.

``x.flatten()`` and ``x[0]`` are copies in NumPy; the torch calls that are recorded for them may give views. That is no
difference until one of the two is written. Where that happens a clone goes between them.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from leapp.trace.recorder import NO_MEMORY, OpInfo

if TYPE_CHECKING:
    from leapp.trace.recorder import Recorder

_MAY_SHARE: Final = frozenset(
    (
        torch.reshape, torch.ravel, torch.flatten, torch.permute, torch.transpose, torch.t, torch.squeeze,
        torch.unsqueeze, torch.select, torch.narrow, torch.diagonal, torch.swapaxes, torch.movedim, torch.real,
        torch.imag, torch.split, torch.tensor_split, torch.chunk, torch.unbind, torch.broadcast_to, torch.conj,
        torch.atleast_1d, torch.atleast_2d, torch.atleast_3d, torch.view_as_real, torch.detach, torch.as_strided,
        torch.broadcast_tensors, torch.hsplit, torch.vsplit, torch.dsplit, torch.resolve_conj, torch.adjoint,
        operator.getitem, "to", "expand", "view", "contiguous", "reshape", "unfold", "type_as", "squeeze", "data",
    )
)  # fmt: skip
"""Targets whose result may lie in the memory of their first argument."""


def keep_copies(recorder: Recorder) -> dict[fx.Node, fx.Node]:
    """Put a clone behind each value that must not see a later write, and behind which none must be seen.

    Gives the clone for each node that got one.
    """
    info = recorder.info
    written: set[int] = set()
    separate: list[fx.Node] = []
    for node in reversed(info):
        written.update(info[node].written)
        if not written or node.target not in _MAY_SHARE or not node.all_input_nodes:
            continue
        memory = info[node].memory
        if memory == NO_MEMORY or _by_index_arrays(recorder, node):
            continue
        sources = _sources(recorder, node)
        if any(info[each].memory == memory for each in sources):
            continue  # the view that it was, of one of several
        for source in sources:
            theirs = info[source].memory
            if theirs not in (memory, NO_MEMORY) and (memory in written or theirs in written):
                if info[node].dtype == info[source].dtype:
                    separate.append(node)
                break
    laid_out = {
        node: _laid_out_behind(recorder, node, order)
        for node, order in recorder.laid_out.items()
        if info[node].memory in written and node.op not in ("placeholder", "get_attr")
    }
    return {**{node: _clone_behind(recorder, node) for node in separate}, **laid_out}


def _laid_out_behind(recorder: Recorder, node: fx.Node, order: tuple[int, ...]) -> fx.Node:
    """A copy with the axes in memory as NumPy had them: torch's own result may lie in another order."""
    form = recorder.info[node]
    steps: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (torch.clone, (), {"memory_format": torch.contiguous_format})
    ]
    if order != tuple(range(len(order))):
        back = tuple(order.index(axis) for axis in range(len(order)))
        steps = [(torch.permute, (order,), {}), *steps, (torch.permute, (back,), {})]
    made: list[fx.Node] = []
    for target, args, kwargs in steps:
        source = made[-1] if made else node
        with recorder.graph.inserting_after(source):
            made.append(recorder.graph.create_node("call_function", target, (source, *args), kwargs, target.__name__))
    node.replace_all_uses_with(made[-1], delete_user_cb=lambda user: user is not made[0])
    for each in made:
        recorder.info[each] = OpInfo(form.place, form.memory, (), form.dtype, form.shape)
    return made[-1]


def _sources(recorder: Recorder, node: fx.Node) -> list[fx.Node]:
    """In whose memory a result may lie: the first argument; one of many, where a call gave several results."""
    source = node.all_input_nodes[0]
    several = recorder.info[source].memory == NO_MEMORY and node.target is operator.getitem
    return source.all_input_nodes if several else [source]


def _by_index_arrays(recorder: Recorder, node: fx.Node) -> bool:
    """Whether a node picks elements one by one, which never shares memory; a single number picks a view."""
    if node.target is not operator.getitem:
        return False
    parts = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    return any(isinstance(each, list) or (isinstance(each, fx.Node) and recorder.info[each].shape) for each in parts)


def _clone_behind(recorder: Recorder, node: fx.Node) -> fx.Node:
    form = recorder.info[node]
    shared = next(iter(recorder.info[each].memory for each in _sources(recorder, node)), NO_MEMORY)
    with recorder.graph.inserting_after(node):
        clone = recorder.graph.create_node("call_function", torch.clone, (node,), {}, "clone")
    node.replace_all_uses_with(clone, delete_user_cb=lambda user: user is not clone)
    recorder.info[node] = form._replace(memory=shared)
    recorder.info[clone] = OpInfo(form.place, form.memory, (), form.dtype, form.shape)
    return clone
