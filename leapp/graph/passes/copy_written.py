"""Copy what the caller or the next call could see before it is written."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import fx

from leapp.graph._base import PassResult
from leapp.trace.recorder import free_name

if TYPE_CHECKING:
    from leapp.graph._base import NodeGraph


def copy_written(recording: NodeGraph) -> PassResult:
    """Insert a ``clone`` after every input and constant of a graph that writes anything.

    Why: a model that writes its input changes the caller's memory, and one that writes a constant answers differently
    at its next call. Which memory a write reaches through views is not derived again here; a copy too many costs
    little, one too few is a wrong model.
    Ensures: no ``placeholder`` or ``get_attr`` is written; values unchanged. A second run changes nothing.
    """
    if not any(writes_in(recording, node) for node in recording.graph.nodes):
        return PassResult(recording, changed=False)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    specs = dict(recording.specs)
    names = {node.name for node in recording.graph.nodes}
    changed = False
    for node in recording.graph.nodes:
        if node.op == "output":
            graph.output(fx.map_arg(node.args[0], lambda source: copies[source]))
            continue
        copy = copies[node] = graph.node_copy(node, lambda source: copies[source])
        copy.name = node.name
        if node.op not in ("placeholder", "get_attr") or _is_cloned(node):
            continue
        clone = graph.call_function(torch.clone, (copy,))
        clone.name = free_name(f"{node.name}_copy", names)
        names.add(clone.name)
        copies[node] = clone
        if node.name in specs:
            specs[clone.name] = specs[node.name]
        changed = True
    # Placeholders stay in front of the first operation.
    first = next((node for node in graph.nodes if node.op != "placeholder"), None)
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        if first is not None:
            first.prepend(node)
    return PassResult(replace(recording, graph=graph, specs=specs), changed=changed)


def writes_in(recording: NodeGraph, node: fx.Node) -> bool:
    """Whether a node of a recording writes one of its arguments: it was seen to, or its name says so."""
    return node.name in recording.writes or writes(node)


def writes(node: fx.Node) -> bool:
    """Whether a graph node writes one of its arguments, as far as its name says; the recording knows what it saw."""
    if "out" in node.kwargs or node.kwargs.get("inplace") is True:
        return True
    if node.op == "call_method":
        name = str(node.target)
    elif node.op == "call_function":
        if node.target is operator.setitem:
            return True
        name = getattr(node.target, "__name__", "")
    else:
        return False
    return name.endswith("_") and not name.endswith("__")


def _is_cloned(node: fx.Node) -> bool:
    return all(user.target is torch.clone for user in node.users)
