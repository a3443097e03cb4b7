"""Call views by functions whose schema says that they are views."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from leapp.graph._base import PassResult
from leapp.graph.passes.copy_written import writes_in
from leapp.graph.passes.fresh_outputs import memory_of

if TYPE_CHECKING:
    from leapp.graph._base import NodeGraph

_WITH_MORE_AXES: Final = {torch.atleast_1d, torch.atleast_2d, torch.atleast_3d}
_BROADCAST: Final = {torch.broadcast_tensors, torch.functional.broadcast_tensors}
_DROPOUTS: Final = {
    getattr(torch.nn.functional, name)
    for name in "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout".split()
}


def aliases_said(recording: NodeGraph) -> PassResult:
    """Replace functions that hand on an argument and do not say so, where it is written later.

    Why: TorchScript trusts schemas, and moves or drops a write to memory that, by them, nobody sees any more.
    Ensures: before a write of their memory, ``atleast_2d``, ``broadcast_tensors``, ``type_as`` without a cast and
    dropout that is switched off are reshapes, expansions or nothing; values unchanged. A second run changes nothing.
    """
    changed = False
    written: set[fx.Node] = set()
    for node in reversed(list(recording.graph.nodes)):
        if writes_in(recording, node):
            written |= set().union(*map(memory_of, node.all_input_nodes))
        elif written and _arguments(node) is not None and not written.isdisjoint(memory_of(node)):
            # All others stay as they are: the lengths of an expansion are fixed.
            changed = _replaced(recording, node) or changed
    return PassResult(recording, changed=changed)


def _replaced(recording: NodeGraph, node: fx.Node) -> bool:
    arguments = _arguments(node)
    if arguments is None:
        return False
    if node.target in _DROPOUTS or node.target == "type_as":
        source = arguments[0]
        if not isinstance(source, fx.Node) or recording.specs.get(source.name) != recording.specs.get(node.name):
            return False
        if node.target in _DROPOUTS and not _is_off(node):
            return False
        node.replace_all_uses_with(source)
        recording.graph.erase_node(node)
        return True
    if len(arguments) == 1 and node.name in recording.specs:
        _as_view(recording, node, node, arguments[0])
        return True
    parts = [user for user in node.users if user.target is operator.getitem and user.name in recording.specs]
    if len(parts) < len(node.users) or any(not isinstance(each, fx.Node) for each in arguments):
        return False
    for part in parts:
        index: Any = part.args[1]
        _as_view(recording, node, part, arguments[index])
    recording.graph.erase_node(node)
    return True


def _arguments(node: fx.Node) -> list[Any] | None:
    """The tensors of a call of one of these functions; None for other nodes."""
    if node.op == "call_method" and node.target == "type_as":
        return list(node.args)
    if node.op != "call_function" or node.target not in _WITH_MORE_AXES | _BROADCAST | _DROPOUTS:
        return None
    if node.target in _DROPOUTS:
        return [node.args[0] if node.args else node.kwargs.get("input")]
    first = node.args[0] if len(node.args) == 1 else None
    return list(first) if isinstance(first, (tuple, list)) else list(node.args)


def _is_off(node: fx.Node) -> bool:
    training = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", node.target in _ON_BY_DEFAULT)
    return training is False


_ON_BY_DEFAULT: Final = _DROPOUTS - {torch.nn.functional.alpha_dropout, torch.nn.functional.feature_alpha_dropout}


def _as_view(recording: NodeGraph, call: fx.Node, node: fx.Node, source: Any) -> None:
    shape = tuple(recording.specs[node.name].shape)
    if isinstance(source, fx.Node) and recording.specs.get(source.name) == recording.specs[node.name]:
        node.replace_all_uses_with(source)
        recording.graph.erase_node(node)
        return
    if call.target in _BROADCAST:
        node.op, node.target, node.args, node.kwargs = "call_method", "expand", (source, shape), {}
    else:
        given = recording.specs.get(source.name) if isinstance(source, fx.Node) else None
        if given is not None and len(given.shape) == 1 and len(shape) > 1:
            shape = (1, -1, 1)[: len(shape)]  # its length may follow the data
        node.op, node.target, node.args, node.kwargs = "call_function", torch.reshape, (source, shape), {}
