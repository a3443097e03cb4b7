"""Compute first, then write: ``out=`` without the operation's own form for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import fx

from leapp.graph._base import PassResult
from leapp.trace.recorder import free_name

if TYPE_CHECKING:
    from leapp.graph._base import NodeGraph


def written_by_copy(recording: NodeGraph) -> PassResult:
    """Replace ``f(x, out=y)`` by ``y.copy_(f(x))`` where ``y`` has the shape of the result.

    Why: few of the forms with ``out=`` are known to exporters, and some are known with another dtype.
    Ensures: no such call is left but those that make ``out`` larger or give several results; values unchanged. A second
    run changes nothing.
    """
    names = {node.name for node in recording.graph.nodes}
    specs, changed = dict(recording.specs), False
    for node in list(recording.graph.nodes):
        out: Any = node.kwargs.get("out")
        if node.op != "call_function" or not isinstance(out, fx.Node):
            continue
        before, after = specs.get(out.name), specs.get(node.name)
        if before is None or after is None or before.shape != after.shape:
            continue
        with recording.graph.inserting_before(node):
            kept = {name: value for name, value in node.kwargs.items() if name != "out"}
            result = recording.graph.call_function(node.target, node.args, kept)
        result.name = free_name(f"{node.name}_result", names)
        names.add(result.name)
        if result.name in recording.sources or node.name in recording.sources:
            recording = replace(recording, sources={**recording.sources, result.name: recording.sources[node.name]})
        node.op, node.target, node.args, node.kwargs = "call_method", "copy_", (out, result), {}
        changed = True
    return PassResult(recording, changed=changed)
