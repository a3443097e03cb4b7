"""Canonical text and JSON of a recording, and the digests that follow from them.

The text is what ``torch.fx`` prints, with public names and without what changes no result. The JSON holds the same for
machines: node names are stable ids, unique within a graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from leapp._canonical import canonical_json, sha256
from leapp.ops.torch_table import public_name

if TYPE_CHECKING:
    from leapp._spec import JSON, Port
    from leapp.graph._base import NodeGraph

GRAPH_SCHEMA = 1


def target_name(node: fx.Node) -> str:
    """What a call is called: ``torch.clamp``, ``Tensor.view``, or the path of a constant."""
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    return node.target if isinstance(node.target, str) else public_name(node.target)


def graph_text(recording: NodeGraph) -> str:
    """One line per graph node, as FX prints it."""
    lines = []
    for node in recording.graph.nodes:
        if node.op == "output":
            returned = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
            lines.append(f"return {', '.join(value.name for value in returned)}")
            continue
        target = node.target if node.op in ("placeholder", "get_attr", "call_method") else target_name(node)
        call = ""
        if node.op.startswith("call_"):
            parts = [f"args = {_text(tuple(node.args))}"]
            if node.kwargs:
                parts.append(f"kwargs = {_text(dict(node.kwargs))}")
            call = f"({', '.join(parts)})"
        lines.append(f"%{node.name} = {node.op}[target={target}]{call}")
    return "\n".join(lines) + "\n"


def _text(argument: Any) -> str:
    if isinstance(argument, fx.Node):
        return f"%{argument.name}"
    if isinstance(argument, tuple) and not isinstance(argument, torch.Size):
        inner = ", ".join(_text(item) for item in argument)
        return f"({inner},)" if len(argument) == 1 else f"({inner})"
    if isinstance(argument, (list, torch.Size)):
        return f"[{', '.join(_text(item) for item in argument)}]"
    if isinstance(argument, Mapping):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in argument.items()) + "}"
    if isinstance(argument, slice):
        return f"slice({_text(argument.start)}, {_text(argument.stop)}, {_text(argument.step)})"
    return repr(argument)


def graph_json(recording: NodeGraph) -> dict[str, Any]:
    """Inputs, ops, outputs and constants of a recording in plain JSON values."""
    spec = recording.spec
    placeholders = [node for node in recording.graph.nodes if node.op == "placeholder"]
    ops = []
    outputs: Any = None
    for node in recording.graph.nodes:
        if node.op == "output":
            outputs = node.args[0]
        elif node.op != "placeholder":
            ops.append(
                {
                    "id": node.name,
                    "op": node.op,
                    "target": target_name(node),
                    "args": [argument_json(item) for item in node.args],
                    "kwargs": {name: argument_json(item) for name, item in node.kwargs.items()},
                    **_spec_json(recording, node.name),
                }
            )
    returned = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return {
        "schema": GRAPH_SCHEMA,
        "node": spec.name,
        "inputs": [{"id": node.name, **_port_json(port)} for node, port in zip(placeholders, spec.inputs, strict=True)],
        "ops": ops,
        "outputs": [
            {"value": argument_json(value), **_port_json(port)}
            for value, port in zip(returned, spec.outputs, strict=True)
        ],
    }


def _port_json(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.spec.dtype, "shape": list(port.spec.shape)}


def _spec_json(recording: NodeGraph, name: str) -> dict[str, Any]:
    spec = recording.specs.get(name)
    return {} if spec is None else {"dtype": spec.dtype, "shape": list(spec.shape)}


def argument_json(argument: Any) -> JSON:
    """One argument; what JSON has no form for becomes an object with one telling key."""
    if argument is None or isinstance(argument, (bool, int, str)):
        return argument
    if isinstance(argument, fx.Node):
        return {"ref": argument.name}
    if isinstance(argument, float):
        return argument if math.isfinite(argument) else {"float": repr(argument)}
    if isinstance(argument, complex):
        return {"complex": repr(argument)}
    if isinstance(argument, (tuple, list)):
        return [argument_json(item) for item in argument]
    if isinstance(argument, Mapping):
        return {"dict": {str(key): argument_json(item) for key, item in argument.items()}}
    if isinstance(argument, slice):
        return {"slice": [argument_json(item) for item in (argument.start, argument.stop, argument.step)]}
    if isinstance(argument, range):
        return {"range": [argument.start, argument.stop, argument.step]}
    if argument is Ellipsis:
        return {"ellipsis": True}
    return {type(argument).__name__: str(argument)}


def graph_digest(recording: NodeGraph) -> str:
    """sha256 of the recording's canonical JSON: the computation, without the content of its constants."""
    return sha256(canonical_json(graph_json(recording)))


def op_counts(recording: NodeGraph) -> dict[str, int]:
    """How often each operation occurs, by its public name."""
    counts: dict[str, int] = {}
    for node in recording.graph.nodes:
        if node.op.startswith("call_"):
            name = target_name(node)
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
