"""What a manifest says of ports: facts that it puts on them, and names that must be those of ports. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leapp._spec import NodeSpec, Port
from leapp.errors import JointNamesMissingError, ManifestWinsWarning, NoSuchPortError, WireMeaningWarning
from leapp.kinds import needs_element_names
from leapp.manifest.problems import hint, key_text, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from leapp._spec import PipelineSpec
    from leapp.pipeline.wiring import PortNames
    from leapp.semantics import PortFacts

    Nodes = Sequence[tuple[NodeSpec, PortNames]]
    """Nodes as they stand in files, and what their ports were recorded as."""


@dataclass(frozen=True, slots=True)
class NamedPort:
    """A port as a manifest names it, recorded or final, and where it does."""

    where: str
    node: str
    port: str

    @classmethod
    def parse(cls, where: str, text: str) -> NamedPort:
        """Read ``node/port``."""
        node, _, port = text.partition("/")
        return cls(where, node, port)

    def __str__(self) -> str:
        return f"{self.node}/{self.port}"


@dataclass(frozen=True, slots=True)
class PortRules:
    """A manifest's word about ports."""

    manifest: str
    facts: tuple[tuple[NamedPort, PortFacts], ...] = ()
    """What it says they mean."""
    inputs: tuple[NamedPort, ...] = ()
    """Names that must be those of inputs: ports that are not varied, and those with a hint how."""
    unnamed: tuple[NamedPort, ...] = ()
    """Ports of joints that need no element names."""

    def check_names(self, nodes: Nodes) -> None:
        """Raise NoSuchPortError for every name that no recorded port has."""
        problems = []
        known_inputs = [f"{spec.name}/{port.name}" for spec, _ in nodes for port in spec.inputs]
        known = [*known_inputs, *(f"{spec.name}/{port.name}" for spec, _ in nodes for port in spec.outputs)]
        for named, inputs_only in (
            *((named, False) for named, _ in self.facts),
            *((named, True) for named in self.inputs),
            *((named, False) for named in self.unnamed),
        ):
            found = [direction for spec, names in nodes for direction in _directions(named, spec, names)]
            if not found:
                near = hint(nearest(str(named), known_inputs if inputs_only else known))
                problems.append(f"{named.where}: {str(named)!r} is no port of this pipeline.{near}")
            elif inputs_only and "input" not in found:
                problems.append(f"{named.where}: {str(named)!r} is an output; this is about inputs.")
        if problems:
            known += [f"{spec.name}/{name}" for spec, names in nodes for name in (*names.inputs, *names.outputs)]
            raise NoSuchPortError(
                manifest=self.manifest, count=len(problems), detail="\n".join(problems),
                known=", ".join(dict.fromkeys(known)),
            )  # fmt: skip

    def described(self, spec: NodeSpec, names: PortNames) -> tuple[NodeSpec, list[ManifestWinsWarning]]:
        """A node with the manifest's facts on its ports, and what they took the place of.

        A recorded name that is both an input and an output, as that of a state, stands for both.

        Raises:
            ElementNamesError, SemanticsError: facts that do not fit the port.
        """
        notes: list[ManifestWinsWarning] = []

        def ports(recorded: Mapping[str, str], final: tuple[Port, ...]) -> tuple[Port, ...]:
            return tuple(self._describe(spec.name, recorded.get(each.name, each.name), each, notes) for each in final)

        inputs = ports({final: name for name, final in names.inputs.items()}, spec.inputs)
        outputs = ports({final: name for name, final in names.outputs.items()}, spec.outputs)
        return NodeSpec(spec.name, inputs, outputs), notes

    def _describe(self, node: str, recorded: str, port: Port, notes: list[ManifestWinsWarning]) -> Port:
        said = dict(port.semantics)
        # The final name is that of one port alone, and so goes above the recorded one.
        for named, facts in sorted(self.facts, key=lambda each: each[0].port == port.name):
            if named.node != node or named.port not in (port.name, recorded):
                continue
            new = facts.facts(f"{named.where}: port {str(named)!r}", port.spec.shape)
            if "element_names" in new:
                said.pop("temporal_period_ms", None)
            for key, value in new.items():
                before = port.semantics.get(key)
                if before is not None and before != value:
                    notes.append(
                        ManifestWinsWarning(
                            port=f"{node}/{port.name}", key=key, script=before, manifest=value, where=named.where
                        )
                    )
                said[key] = value
        return replace(port, semantics=said) if said != port.semantics else port

    def check_element_names(self, nodes: Nodes, allowed: Sequence[str]) -> None:
        """Raise JointNamesMissingError for every port of joints without element names.

        Args:
            nodes: with the manifest's facts on their ports.
            allowed: ports (``node/port``, recorded or final) that need none.
        """
        missing: dict[str, str] = {}
        for spec, names in nodes:
            for of_direction, ports in ((names.inputs, spec.inputs), (names.outputs, spec.outputs)):
                recorded = {final: name for name, final in of_direction.items()}
                for port in ports:
                    called = {f"{spec.name}/{port.name}", f"{spec.name}/{recorded.get(port.name, port.name)}"}
                    kind, shape = port.semantics.get("kind"), port.spec.shape
                    named = port.semantics.get("element_names")
                    if needs_element_names(kind, shape) and not named and not called & set(allowed):
                        key = f"{spec.name}/{port.name}"
                        missing[key] = f"{key}, a {kind} of shape {list(shape)}"
        if missing:
            raise JointNamesMissingError(
                manifest=self.manifest, count=len(missing), detail="\n".join(missing.values()),
                example=_table(next(iter(missing))), ports=", ".join(f'"{each}"' for each in missing),
            )  # fmt: skip


def contradictions(pipeline: PipelineSpec) -> Iterator[WireMeaningWarning]:
    """Wires whose ends name other elements or another unit, of this tick and of the next."""
    ports = {
        (direction, f"{node.name}/{port.name}"): port.semantics
        for node in pipeline.nodes
        for direction, each in (("output", node.outputs), ("input", node.inputs))
        for port in each
    }
    for flow in (pipeline.data_flow, pipeline.feedback_flow):
        for source, targets in flow.items():
            for target in targets:
                first, second = ports["output", source], ports["input", target]
                for key in ("element_names", "temporal_period_ms", "unit"):
                    if None not in (first.get(key), second.get(key)) and first[key] != second[key]:
                        yield WireMeaningWarning(
                            source=source, target=target, key=key, first=first[key], second=second[key]
                        )


def _directions(named: NamedPort, spec: NodeSpec, names: PortNames) -> Iterator[str]:
    if named.node == spec.name:
        for direction, recorded, final in (
            ("input", names.inputs, spec.inputs),
            ("output", names.outputs, spec.outputs),
        ):
            if named.port in recorded or named.port in {port.name for port in final}:
                yield direction


def _table(port: str) -> str:
    """The table of a manifest that speaks of a port, as it would be written."""
    node, _, name = port.partition("/")
    return f"[{key_text(('nodes', node, 'ports', name))}]"


def named_in_script(allow: Mapping[str, Sequence[str]], rules: PortRules) -> PortRules:
    """The rules with the ports that ``leapp.start(allow=...)`` names as well."""

    def named(key: str, of_manifest: tuple[NamedPort, ...]) -> tuple[NamedPort, ...]:
        known = {str(each) for each in of_manifest}
        more = [text for text in allow.get(key, ()) if text not in known]
        return (*of_manifest, *(NamedPort.parse(f"leapp.start(allow[{key!r}])", text) for text in more))

    return replace(rules, inputs=named("not-varied", rules.inputs), unnamed=named("no-element-names", rules.unnamed))
