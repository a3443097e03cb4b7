"""Let a model start its state anew when one of its inputs says so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import torch
from torch import fx

from leapp._spec import RESET_KIND, Port, TensorSpec
from leapp.graph._base import PassResult
from leapp.trace.recorder import free_name, identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leapp.graph._base import NodeGraph, Pass

_RESET: Final = TensorSpec("bool", ())


def reset_input(port: str) -> Port:
    """A reset input as the runtime file has it; its kind tells readers that it may be left false."""
    return Port(port, _RESET, {"kind": RESET_KIND})


def reset_port(port: str, starts: Mapping[str, torch.Tensor | str]) -> Pass:
    """The pass that adds the boolean input ``port`` to a node.

    Args:
        port: name of the new input, the last one.
        starts: state of the node, by input port -> the value that it starts with, or the input that it is a copy of
            then, which is not one of these states itself.
    """

    def reset_port(recording: NodeGraph) -> PassResult:
        """Read ``where(port, start, state)`` in place of each state.

        Why: a runtime that has only this model can then begin an episode without touching the state.
        Ensures: with ``port`` true the node gives what it gives when its state holds the starts, with false what it
        gave before; states that nothing reads get no ``where``. A second run changes nothing.
        """
        if any(each.name == port for each in recording.spec.inputs):
            return PassResult(recording, changed=False)
        return PassResult(_with_reset(recording, port, starts), changed=True)

    return reset_port


def _with_reset(recording: NodeGraph, port: str, starts: Mapping[str, torch.Tensor | str]) -> NodeGraph:
    graph, constants, specs = fx.Graph(), dict(recording.constants), dict(recording.specs)
    copies: dict[fx.Node, fx.Node] = {}
    names = {node.name for node in recording.graph.nodes}
    placeholders = [node for node in recording.graph.nodes if node.op == "placeholder"]
    ports = {each.name: (node, each.spec) for each, node in zip(recording.spec.inputs, placeholders, strict=True)}

    def named(node: fx.Node, name: str, spec: TensorSpec) -> fx.Node:
        node.name = free_name(name, names)
        names.add(node.name)
        specs[node.name] = spec
        return node

    for node in placeholders:
        copies[node] = graph.node_copy(node)
        copies[node].name = node.name
    targets = {str(node.target) for node in placeholders}
    flag = named(graph.placeholder(free_name(identifier(port), targets)), identifier(port), _RESET)
    plain = dict(copies)
    for state, start in starts.items():
        node, spec = ports[state]
        if not node.users:
            continue
        if isinstance(start, str):
            fresh = plain[ports[start][0]]
        else:
            target = free_name(f"_start_{identifier(state)}", constants)
            constants[target] = start
            fresh = named(graph.get_attr(target), target.strip("_"), spec)
        copies[node] = named(graph.call_function(torch.where, (flag, fresh, plain[node])), f"{node.name}_now", spec)
    for node in recording.graph.nodes:
        if node.op == "output":
            graph.output(fx.map_arg(node.args[0], copies.__getitem__))
        elif node.op != "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].name = node.name
    wider = replace(recording.spec, inputs=(*recording.spec.inputs, reset_input(port)))
    return replace(recording, spec=wider, graph=graph, constants=constants, specs=specs)
