"""Ports -> edges. Pure: no tensors, no files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leapp._spec import NodeSpec, PipelineSpec, Port
from leapp.errors import OnnxNameError, WireConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leapp._spec import JSON


@dataclass(frozen=True, slots=True)
class NodeWires:
    """One node and where its inputs came from, entry by entry.

    ``entries`` holds, for each recorded entry, input port -> producing ``(node, port)``; an input without a key came
    from outside.
    """

    spec: NodeSpec
    entries: tuple[Mapping[str, tuple[str, str]], ...] = ()
    exclusive_names: bool = False
    """A format of this node forbids one name for an input and an output (ONNX)."""
    state: frozenset[str] = frozenset()
    """Recorded names of declared states that were updated: each is an input and an output of this name."""


@dataclass(frozen=True, slots=True)
class PortNames:
    """What a node's ports are called in files: recorded name -> final name."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def final_names(node: NodeWires) -> PortNames:
    """Add ``_in`` and ``_out`` to names that are both input and output, where a format cannot tell them apart.

    Raises OnnxNameError where another port has such a name already.
    """
    inputs = {port.name for port in node.spec.inputs}
    outputs = {port.name for port in node.spec.outputs}
    both = inputs & outputs if node.exclusive_names else set()
    names = PortNames(
        {name: f"{name}_in" if name in both else name for name in inputs},
        {name: f"{name}_out" if name in both else name for name in outputs},
    )
    if both:
        _check_distinct(node.spec.name, names)
    return names


def _check_distinct(node: str, names: PortNames) -> None:
    known: dict[str, str] = {}
    for name, final in (*sorted(names.inputs.items()), *sorted(names.outputs.items())):
        other = known.setdefault(final, name)
        if other != name:
            raise OnnxNameError(node=node, first=other, second=name, port=final)


def renamed(spec: NodeSpec, names: PortNames) -> NodeSpec:
    """``spec`` with its final port names."""

    def ports(old: tuple[Port, ...], to: Mapping[str, str]) -> tuple[Port, ...]:
        return tuple(replace(port, name=to[port.name]) for port in old)

    return NodeSpec(spec.name, ports(spec.inputs, names.inputs), ports(spec.outputs, names.outputs))


def wire(name: str, nodes: Sequence[NodeWires], *, configs: Mapping[str, JSON] | None = None) -> PipelineSpec:
    """Connect the nodes of a pipeline.

    Args: nodes: in order of their first completion. A wire seen at a node's first entry is forward: its producer had
        completed by then. One that first appears at a later entry is feedback: the first tick had a start value.
        An updated state is fed by the output of its own name, whatever its values were made from.
    Raises: WireConflictError: two entries of a node took the same input from different outputs.
    Returns: the pipeline with final port names; all maps sorted. Ports of declared state are listed neither among its
        inputs nor among its outputs.
    """
    names = {node.spec.name: final_names(node) for node in nodes}
    forward: dict[str, list[str]] = {}
    feedback: dict[str, list[str]] = {}
    outer: dict[str, list[str]] = {}
    for node in nodes:
        for port in node.spec.inputs:
            consumer = f"{node.spec.name}/{names[node.spec.name].inputs[port.name]}"
            if port.name in node.state:
                producer = f"{node.spec.name}/{names[node.spec.name].outputs[port.name]}"
                feedback.setdefault(producer, []).append(consumer)
                continue
            seen = [entry.get(port.name) for entry in node.entries]
            first = seen[0] if seen else None
            source = first or next((item for item in seen if item is not None), None)
            other = next((item for item in seen if item not in (None, source)), None)
            if source is not None and other is not None:
                raise WireConflictError(
                    node=node.spec.name, port=port.name, first="/".join(source), second="/".join(other),
                    entry=seen.index(source) + 1, later=seen.index(other) + 1,
                )  # fmt: skip
            if source is None:
                outer.setdefault(node.spec.name, []).append(names[node.spec.name].inputs[port.name])
                continue
            producer = f"{source[0]}/{names[source[0]].outputs[source[1]]}"
            (forward if first is not None else feedback).setdefault(producer, []).append(consumer)
    outputs = {
        node.spec.name: tuple(
            final
            for port in node.spec.outputs
            if f"{node.spec.name}/{(final := names[node.spec.name].outputs[port.name])}" not in forward
            and port.name not in node.state
        )
        for node in nodes
    }
    return PipelineSpec(
        name=name,
        nodes=tuple(renamed(node.spec, names[node.spec.name]) for node in nodes),
        data_flow=_sorted(forward),
        feedback_flow=_sorted(feedback),
        inputs={node: tuple(ports) for node, ports in sorted(outer.items())},
        outputs={node: ports for node, ports in sorted(outputs.items()) if ports},
        configs=dict(configs or {}),
    )


def _sorted(flow: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {producer: tuple(sorted(consumers)) for producer, consumers in sorted(flow.items())}
