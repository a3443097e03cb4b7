"""Give every output memory of its own."""

from __future__ import annotations

import builtins
import functools
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from leapp.graph._base import PassResult

if TYPE_CHECKING:
    from leapp.graph._base import NodeGraph

_TAKES_PART: Final = (operator.getitem, builtins.getattr)
_PASSES_ON: Final = frozenset(
    "alpha_dropout atleast_1d atleast_2d atleast_3d bfloat16 bool broadcast_tensors broadcast_to byte cartesian_prod "
    "chain_matmul char cpu double dropout dropout1d dropout2d dropout3d einsum feature_alpha_dropout float half int "
    "long matrix_power meshgrid multi_dot short sum_to_size to_dense type type_as".split()
)
"""Functions that may hand back an argument and whose ATen schema, where there is one, does not say so."""


def fresh_outputs(recording: NodeGraph) -> PassResult:
    """Return a ``clone`` of every output that shares memory with an input, a constant or an earlier output.

    Why: a caller owns what a model returns. Writing into it must change neither the caller's own input, nor the next
    answer of the model, nor the value of another port.
    Ensures: no output is an input, a constant, a view of one, or a view of another output; values unchanged. A second
    run changes nothing.
    """
    output = next(iter(reversed(recording.graph.nodes)))  # no iterator by itself before torch 2.13
    (result,) = output.args
    values = result if isinstance(result, (tuple, list)) else (result,)
    specs = dict(recording.specs)
    owned: set[fx.Node] = set()
    fresh: list[Any] = []
    for value in values:
        roots = memory_of(value)
        if any(root.op in ("placeholder", "get_attr") for root in roots) or roots & owned:
            with recording.graph.inserting_before(output):
                clone = recording.graph.call_function(torch.clone, (value,))
            if isinstance(value, fx.Node) and value.name in specs:
                specs[clone.name] = specs[value.name]
            fresh.append(clone)
            continue
        owned |= roots
        fresh.append(value)
    if all(new is old for new, old in zip(fresh, values, strict=True)):
        return PassResult(recording, changed=False)
    output.args = (tuple(fresh) if isinstance(result, (tuple, list)) else fresh[0],)
    return PassResult(replace(recording, specs=specs), changed=True)


def memory_of(value: Any) -> set[fx.Node]:
    """The nodes that made the memory a value may lie in; too many are harmless."""
    roots: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    pending = [value]
    while pending:
        node = pending.pop()
        if not isinstance(node, fx.Node) or node in seen:
            continue
        seen.add(node)
        if node.op in ("call_function", "call_method") and may_alias(node):
            pending.extend(node.all_input_nodes)
        else:
            roots.add(node)
    return roots


def may_alias(node: fx.Node) -> bool:
    """Whether a call may hand back an argument or a view of one."""
    if node.target in _TAKES_PART or node.kwargs.get("inplace") is True or "out" in node.kwargs:
        return bool(node.all_input_nodes)
    name = str(node.target) if node.op == "call_method" else str(getattr(node.target, "__name__", ""))
    return bool(node.all_input_nodes) and (name in _PASSES_ON or _schema_aliases(name))


@functools.cache
def _schema_aliases(name: str) -> bool:
    """Whether an overload of the ATen op of that name returns (a view of) an argument, written or not."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    return any(
        result.alias_info is not None
        for schema in schemas
        if not any(argument.is_out for argument in schema.arguments)
        for result in schema.returns
    )
