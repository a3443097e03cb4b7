"""A runtime file as a checked plan: which models run, in which order, and where each of their inputs comes from.

Pure: no tensors, no files. Everything that can be known to be wrong before a model is loaded is found here.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leapp._dtypes import BY_NAME
from leapp._spec import NodeSpec, PipelineSpec, Port, TensorSpec
from leapp.bundle._tree import name_problem
from leapp.bundle.schema import Fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leapp.errors import BundleFormatError

BACKENDS: Final = ("onnx", "pt2", "jit")
"""Loaders that a runtime file can name."""

FIRST_INPUT: Final = "first-input:"
"""``start: first-input:PORT`` of a state port: its first value is what PORT gets at the first tick."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model file of a node as the runtime file names it; old files have an md5 alone."""

    backend: str
    path: str
    sha256: str | None
    md5: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a runtime needs to know. Ports are named ``node/port``."""

    spec: PipelineSpec
    """Nodes in the order in which they run."""
    inputs: Mapping[str, Port]
    """Every input port. An output of the node may bear the same name."""
    outputs: Mapping[str, Port]
    """Every output port."""
    models: Mapping[str, tuple[ModelFile, ...]]
    """By node, the preferred one first; empty where the node has none."""
    sources: Mapping[str, str]
    """Input port -> the output port that feeds it within a tick."""
    feedback: Mapping[str, str]
    """Input port -> the output port whose last value feeds it."""
    starts: Mapping[str, str]
    """Feedback input -> the input port of the same node whose first value it starts with."""
    initial_values: tuple[str, str | None] | None
    """Path of the first-tick values, and their sha256 where the runtime file has it."""

    @property
    def outer_inputs(self) -> tuple[str, ...]:
        """Inputs that a caller gives, in the order of nodes and ports."""
        return tuple(port for port in self.inputs if port not in self.sources and port not in self.feedback)

    @property
    def outer_outputs(self) -> tuple[str, ...]:
        """Outputs that a caller is given, in the order of nodes and ports."""
        listed = {f"{node}/{port}" for node, ports in self.spec.outputs.items() for port in ports}
        return tuple(port for port in self.outputs if port in listed)


def make_plan(contract: Mapping[str, Any], file: str, name: str) -> Plan:
    """Read a runtime file.

    Args: contract: its plain values, as ``parse_contract`` gives them. file: how errors call it. name: of the pipeline.
    Raises: BundleFormatError, which names the place: what is missing or of another kind; wires from or to ports that
        do not exist, between different shapes or dtypes, two to one input, in a circle; inputs that nothing feeds;
        feedback without first values; a ``start`` that names no fitting input.
    """
    return _Reader(Fields(contract, file)).plan(name)


class _Reader:
    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._models = fields.record("models", _same)
        self._pipeline = fields.record("pipeline", _same)

    def plan(self, name: str) -> Plan:
        nodes, models = {}, {}
        names: list[Any] = list(self._models.value)  # YAML makes other things of unquoted text
        for node in names:
            if not isinstance(node, str) or name_problem(node):
                raise self._error(f"models.{node}", "a node's name is text without '/'")
            nodes[node], models[node] = _node(self._models.record(node, _same), node)
        inputs = {f"{node.name}/{port.name}": port for node in nodes.values() for port in node.inputs}
        outputs = {f"{node.name}/{port.name}": port for node in nodes.values() for port in node.outputs}
        sources, data_flow = self._wires("data_flow", inputs, outputs, {})
        feedback, feedback_flow = self._wires(self._feedback_key(), inputs, outputs, sources)
        ordered = self._ordered(nodes, sources)
        spec = PipelineSpec(
            name=name,
            nodes=ordered,
            data_flow=data_flow,
            feedback_flow=feedback_flow,
            inputs=self._outer("inputs", inputs, sources | feedback),
            outputs=self._outer("outputs", outputs, {source: target for target, source in sources.items()}),
            configs=self._map("configs"),
        )
        return Plan(
            spec=spec,
            inputs={f"{node.name}/{port.name}": port for node in ordered for port in node.inputs},
            outputs={f"{node.name}/{port.name}": port for node in ordered for port in node.outputs},
            models=models,
            sources=sources,
            feedback=feedback,
            starts=self._starts(ordered, feedback),
            initial_values=self._initial_values(feedback),
        )

    def _error(self, where: str, why: str) -> BundleFormatError:
        return self._fields.error(where, why)

    def _map(self, key: str) -> dict[str, Any]:
        """A map of ``pipeline``; nothing where an old file leaves it out."""
        return {} if self._pipeline.value.get(key) is None else self._pipeline.mapping(key)

    def _feedback_key(self) -> str:
        """Under which name the wires of the next tick stand: some files have one of the two, and ours both."""
        flow, connections = (self._pipeline.value.get(key) for key in ("feedback_flow", "feedback_connections"))
        if None not in (flow, connections) and flow != connections:
            raise self._error("pipeline.feedback_connections", "it is not what feedback_flow is")
        return "feedback_connections" if flow is None else "feedback_flow"

    def _lists(self, key: str) -> dict[str, tuple[str, ...]]:
        found = {}
        wires: dict[Any, Any] = self._map(key)
        for name, items in wires.items():
            if not isinstance(name, str) or not isinstance(items, list) or not all(type(each) is str for each in items):
                raise self._error(f"pipeline.{key}.{name}", "expected a list of names")
            found[name] = tuple(items)
        return found

    def _wires(
        self, flow: str, inputs: Mapping[str, Port], outputs: Mapping[str, Port], fed: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
        """Consumer -> producer of one flow, and the flow as it is written."""
        producers: dict[str, str] = {}
        wires = self._lists(flow)
        for source, targets in wires.items():
            where = f"pipeline.{flow}.{source}"
            if source not in outputs:
                raise self._error(where, f"{source!r} is no output of a node")
            for target in targets:
                if target not in inputs:
                    raise self._error(where, f"{target!r} is no input of a node")
                other = producers.get(target, fed.get(target))
                if other is not None:
                    raise self._error(where, f"{target!r} is fed by {other!r} already")
                if outputs[source].spec != inputs[target].spec:
                    ends = f"{_text(outputs[source].spec)} and {target!r} is {_text(inputs[target].spec)}"
                    raise self._error(where, f"the output is {ends}")
                producers[target] = source
        return producers, wires

    def _ordered(self, nodes: Mapping[str, NodeSpec], sources: Mapping[str, str]) -> tuple[NodeSpec, ...]:
        """Producers before consumers; where that leaves a choice, as in the file (old writers may have sorted it)."""
        rank = {node: at for at, node in enumerate(nodes)}
        needs: dict[str, set[str]] = {node: set() for node in nodes}
        feeds: dict[str, set[str]] = {node: set() for node in nodes}
        for target, source in sources.items():
            consumer, producer = target.partition("/")[0], source.partition("/")[0]
            needs[consumer].add(producer)
            feeds[producer].add(consumer)
        ready = [at for node, at in rank.items() if not needs[node]]
        names = list(nodes)
        order = []
        while ready:
            node = names[heapq.heappop(ready)]
            order.append(nodes[node])
            for consumer in feeds[node]:
                needs[consumer].discard(node)
                if not needs[consumer]:
                    heapq.heappush(ready, rank[consumer])
        if len(order) < len(nodes):
            raise self._error("pipeline.data_flow", f"it runs in a circle: {' -> '.join(_circle(needs))}")
        return tuple(order)

    def _outer(self, key: str, ports: Mapping[str, Port], wired: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """``inputs`` or ``outputs`` of the pipeline. An input that is wired is none; an output may be both."""
        if self._pipeline.value.get(key) is None:  # an old file: whatever is at the end of no wire
            listed: dict[str, list[str]] = {}
            for port in ports:
                if port not in wired:
                    node, _, name = port.partition("/")
                    listed.setdefault(node, []).append(name)
            return {node: tuple(names) for node, names in listed.items()}
        lists = self._lists(key)
        named = {f"{node}/{port}" for node, names in lists.items() for port in names}
        for port in sorted(named):
            if port not in ports:
                raise self._error(f"pipeline.{key}", f"{port!r} is no {key[:-1]} of a node")
            if key == "inputs" and port in wired:
                raise self._error(f"pipeline.{key}", f"{port!r} is listed and fed by {wired[port]!r}")
        if key == "inputs":
            for port in ports:
                if port not in named and port not in wired:
                    raise self._error("pipeline.inputs", f"{port!r} is not listed, and no wire feeds it")
        return lists

    def _starts(self, nodes: Iterable[NodeSpec], feedback: Mapping[str, str]) -> dict[str, str]:
        starts = {}
        for node in nodes:
            specs = {port.name: port.spec for port in node.inputs}
            for port in node.inputs:
                key, start = f"{node.name}/{port.name}", port.semantics.get("start")
                if key not in feedback or not isinstance(start, str) or not start.startswith(FIRST_INPUT):
                    continue
                source = start.removeprefix(FIRST_INPUT)
                where = f"models.{node.name}.inputs: start of {port.name!r}"
                if source not in specs or source == port.name:
                    raise self._error(where, f"{source!r} is no other input of this node")
                if specs[source] != port.spec:
                    ends = f"{_text(port.spec)} and {source!r} is {_text(specs[source])}"
                    raise self._error(where, f"the state is {ends}")
                starts[key] = f"{node.name}/{source}"
        for key in starts:
            seen = [key]
            while (source := starts.get(seen[-1], "")) and source not in seen:
                seen.append(source)
            if source:
                raise self._error("models", f"states start with one another: {' -> '.join([*seen, source])}")
        return starts

    def _initial_values(self, feedback: Mapping[str, str]) -> tuple[str, str | None] | None:
        if self._pipeline.value.get("initial_values") is None:
            if feedback:
                why = f"it is missing: {min(feedback)!r} is fed back and has no value at the first tick"
                raise self._error("pipeline.initial_values", why)
            return None
        key = "initial_values_sha256sum"
        digest = None if self._pipeline.value.get(key) is None else self._pipeline.sha256(key)
        return self._pipeline.path("initial_values"), digest


def _node(fields: Fields, name: str) -> tuple[NodeSpec, tuple[ModelFile, ...]]:
    ports = []
    for direction in ("inputs", "outputs"):
        found = fields.records(direction, _port)
        names = [port.name for port in found]
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise fields.error(direction, f"the port {twice[0]!r} is there twice")
        ports.append(found)
    return NodeSpec(name, *ports), fields.record("parameters", _models)


def _port(fields: Fields) -> Port:
    name, dtype = fields.part("name"), fields.text("dtype")
    if dtype not in BY_NAME:
        raise fields.error("dtype", f"port {name!r} has the unknown dtype {dtype!r}")
    if fields.value.get("type", "tensor") != "tensor":
        raise fields.error("type", f"port {name!r} is a {fields.value['type']}, and only tensors can be run")
    own = ("name", "dtype", "shape", "type")
    semantics = {key: value for key, value in fields.value.items() if key not in own}
    return Port(name, TensorSpec(dtype, fields.counts("shape")), semantics)


def _models(fields: Fields) -> tuple[ModelFile, ...]:
    if fields.text("backend") == "none":
        return ()
    variants = () if fields.value.get("variants") is None else fields.records("variants", _model)
    return (_model(fields), *variants)


def _model(fields: Fields) -> ModelFile:
    digests = {key: fields.text(key) if fields.value.get(key) is not None else None for key in ("sha256sum", "md5sum")}
    if not any(digests.values()):
        raise fields.error("sha256sum", "it is missing: a model file without a digest is not loaded")
    return ModelFile(
        fields.choice("backend", BACKENDS), fields.text("model_path"), digests["sha256sum"], digests["md5sum"]
    )


def _same(fields: Fields) -> Fields:
    return fields


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


def _circle(needs: Mapping[str, set[str]]) -> list[str]:
    """One circle among nodes that wait for one another, in the direction of the data."""
    path = [min(node for node, waiting in needs.items() if waiting)]
    while (before := min(needs[path[-1]])) not in path:
        path.append(before)
    return [before, *reversed(path[path.index(before) :])]
