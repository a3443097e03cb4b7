"""Write through diagonals, windows and strided views by index."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from leapp.graph._base import PassResult
from leapp.graph.passes.copy_written import writes_in
from leapp.graph.passes.fresh_outputs import may_alias, memory_of
from leapp.trace.recorder import free_name

if TYPE_CHECKING:
    from leapp._spec import TensorSpec
    from leapp.graph._base import NodeGraph

_VIEWS = {torch.diagonal, torch.as_strided, "unfold"}


def indexed_writes(recording: NodeGraph) -> PassResult:
    """Turn ``diagonal``, ``unfold`` and ``as_strided`` that are written through into reads and writes by index.

    Why: no exporter but TorchScript's can put what was written there back into the tensor that it is a view of (torch's
    inverse of ``unfold`` puts zeros where no window lies). And a runtime's tensors may have other strides than the
    recorded ones, which ``as_strided`` does not look at; so those of a constant, whose strides are standard, are all
    that is left of it.
    Ensures: such a view is a tensor of its own, which is read again where the other was written, and whose content is
    assigned to the other where it was written itself; values unchanged. A second run changes nothing.
    """
    recording, changed = _diagonals_filled(recording)
    while True:
        # The last one first: what it assigns to may lie in an earlier one.
        view = next((node for node in reversed(recording.graph.nodes) if _is_to_go(recording, node)), None)
        if view is None:
            return PassResult(recording, changed=changed)
        recording = _by_index(recording, view)
        changed = True


def _diagonals_filled(recording: NodeGraph) -> tuple[NodeGraph, bool]:
    """``x.fill_diagonal_(v)`` of matrices as a write through their diagonal, in the graph itself."""
    specs, changed = dict(recording.specs), False
    for node in list(recording.graph.nodes):
        spec = specs.get(node.name)
        if node.op != "call_method" or node.target != "fill_diagonal_" or spec is None or len(spec.shape) != 2:
            continue
        value = node.args[1] if len(node.args) > 1 else node.kwargs.get("fill_value")
        if len(node.args) > 2 or node.kwargs.get("wrap"):
            continue
        matrix: Any = node.args[0]
        with recording.graph.inserting_before(node):
            diagonal = recording.graph.call_function(torch.diagonal, (matrix,))
            recording.graph.call_method("fill_", (diagonal, value))
        specs[diagonal.name] = replace(spec, shape=(min(spec.shape),))
        specs.setdefault(matrix.name, spec)
        node.replace_all_uses_with(matrix)
        recording.graph.erase_node(node)
        changed = True
    return replace(recording, specs=specs), changed


def _is_to_go(recording: NodeGraph, node: fx.Node) -> bool:
    if (
        node.op not in ("call_function", "call_method")
        or node.target not in _VIEWS
        or _positions(recording, node) is None
    ):
        return False
    if node.target is torch.as_strided and not all(map(_is_constant, memory_of(node))):
        return True
    seen = _seen_through(node)
    return any(_target(recording, user) in seen for each in seen for user in each.users)


def _is_constant(root: fx.Node) -> bool:
    return root.op == "get_attr" or (root.target is torch.clone and root.all_input_nodes[0].op == "get_attr")


def _positions(recording: NodeGraph, view: fx.Node) -> tuple[torch.Tensor, ...] | None:
    """Where each element of a view lies in its base, an index per axis; None when that is not known."""
    base = view.args[0] if view.args else None
    spec = recording.specs.get(base.name) if isinstance(base, fx.Node) else None
    if spec is None or not spec.shape or any(isinstance(each, fx.Node) for each in view.args[1:]):
        return None
    count = math.prod(spec.shape)
    numbers = torch.arange(count).reshape(spec.shape)
    target: Any = view.target
    rest: tuple[Any, ...] = view.args[1:]
    if target is torch.as_strided:
        size, stride, *offset = rest
        skipped = (offset[0] if offset else view.kwargs.get("storage_offset")) or 0
        if skipped + sum((length - 1) * step for length, step in zip(size, stride, strict=True)) >= count:
            return None  # it reaches into memory beside the base
    function = getattr(torch.Tensor, target) if view.op == "call_method" else target
    found = function(numbers, *rest, **view.kwargs)
    return tuple(each.clone(memory_format=torch.contiguous_format) for each in torch.unravel_index(found, spec.shape))


def _seen_through(view: fx.Node) -> set[fx.Node]:
    """A view and all that may be a view of it."""
    found = {view}
    pending = [view]
    while pending:
        for user in pending.pop().users:
            if user.op in ("call_function", "call_method") and user not in found and may_alias(user):
                found.add(user)
                pending.append(user)
    return found


def _target(recording: NodeGraph, node: fx.Node) -> fx.Node | None:
    """What a call writes; None when it writes nothing."""
    if node.op not in ("call_function", "call_method") or not writes_in(recording, node):
        return None
    target = node.kwargs.get("out", node.args[0] if node.args else node.kwargs.get("input"))
    return target if isinstance(target, fx.Node) else None


def _by_index(recording: NodeGraph, view: fx.Node) -> NodeGraph:
    graph, constants, specs = fx.Graph(), dict(recording.constants), dict(recording.specs)
    names = {node.name for node in recording.graph.nodes}
    positions = _positions(recording, view)
    assert positions is not None
    seen = _seen_through(view)
    copies: dict[fx.Node, fx.Node] = {}
    index: tuple[fx.Node, ...] = ()
    stale = False

    def named(node: fx.Node, name: str, spec: TensorSpec | None = None) -> fx.Node:
        node.name = free_name(name, names)
        names.add(node.name)
        if spec is not None:
            specs[node.name] = spec
        return node

    def element_reads() -> fx.Node:
        read = graph.call_function(operator.getitem, (copies[base], index))
        return named(read, "getitem", specs.get(view.name))

    base: Any = view.args[0]
    for node in recording.graph.nodes:
        if node.op == "output":
            if stale and any(each in seen for each in node.all_input_nodes):
                named(graph.call_method("copy_", (copies[view], element_reads())), "copy_")
            graph.output(fx.map_arg(node.args[0], copies.__getitem__))
            continue
        if node is view:
            for axis, each in enumerate(positions):
                target = free_name(f"_{view.name}_{axis}", constants)
                constants[target] = each
                index = (*index, named(graph.get_attr(target), target.strip("_")))
            read = graph.call_function(operator.getitem, (copies[base], index))
            read.name = view.name
            copies[view] = read
            continue
        written = _target(recording, node)
        if stale and any(each in seen for each in node.all_input_nodes):
            named(graph.call_method("copy_", (copies[view], element_reads())), "copy_")
            stale = False
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].name = node.name
        if not index or not writes_in(recording, node):
            continue
        if written in seen:
            named(graph.call_function(operator.setitem, (copies[base], index, copies[view])), "setitem")
        else:
            stale = True
    return replace(recording, graph=graph, constants=constants, specs=specs)
