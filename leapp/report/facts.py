"""What a bundle's metadata says, as frozen values: the page, ``leapp inspect`` and the picture are drawn from these."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp._dtypes import BY_NAME
from leapp._spec import NodeSpec
from leapp.bundle.contract import parse_contract
from leapp.bundle.read import parse_node_manifest
from leapp.bundle.samples import read_tensors
from leapp.bundle.schema import FAILED
from leapp.report.checks import CheckRow, played_text, rows_of_checks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.bundle.schema import Artifact


FIRST_INPUT: Final = "first-input:"
"""How the ``start`` of a port begins when the first tick copies another input of the node."""


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded call and the user's line that made it."""

    id: str
    target: str
    arguments: str
    result: str
    source: str


@dataclass(frozen=True, slots=True)
class ConstantFacts:
    """A tensor that is part of a recording."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str
    role: str = ""
    """``parameter``, ``buffer`` or ``constant``; empty where the evidence does not say."""
    source: str = ""
    """The user's line that used it first."""

    @property
    def size_bytes(self) -> int:
        """Of its elements."""
        return math.prod(self.shape) * BY_NAME[self.dtype].size_bytes


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """All that is known of one node."""

    spec: NodeSpec
    artifacts: tuple[Artifact, ...] = ()
    constants: tuple[ConstantFacts, ...] = ()
    op_counts: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    """Named digests, such as those of graph and weights."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A place where a traced value left the trace, or that says that something is meant."""

    node: str
    kind: str
    """As the recording calls it: ``escape``, ``branch-allowed``, ``guard``, ``constant``, ..."""
    op: str
    source: str
    function: str


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of a bundle."""

    name: str
    version: str
    status: str
    digest: str
    """Empty while the bundle is not sealed."""
    nodes: tuple[NodeFacts, ...]
    data_flow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    feedback_flow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    configs: Mapping[str, JSON] = field(default_factory=dict)
    toolchain: Mapping[str, JSON] = field(default_factory=dict)
    starts: Mapping[str, str] = field(default_factory=dict)
    """Per input ``node/port`` that is fed back: what it holds at the first tick, in words."""
    checks: tuple[CheckRow, ...] = ()
    played: str = ""
    """How the whole pipeline did when its ticks were played; empty where they were not."""
    played_notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    noted: tuple[Noted, ...] = ()
    start_notes: Mapping[str, str] = field(default_factory=dict)
    """Per input that is fed back: what should be known of how it starts."""
    initial_values: str = ""
    """Path of the file of first-tick values in the bundle; empty where nothing is fed back."""
    session: Mapping[str, Any] = field(default_factory=dict)
    """How the build set up the session; empty outside a build."""
    probe: tuple[Mapping[str, Any], ...] = ()
    """What each probing run of a build found."""
    reproduction: Mapping[str, Any] = field(default_factory=dict)
    """What a build's reproduction found."""


def collect(folder: Path) -> Facts:
    """Read a bundle's metadata, sealed or still staged. No model is loaded or run.

    Needs the runtime file and the nodes' manifests; takes what it can of everything else that is there.
    """
    bundle = _json_of(folder / "bundle.json") or {}
    runtime_file = folder / f"{bundle['name']}.yaml" if bundle else next(folder.glob("*.yaml"))
    contract = parse_contract(runtime_file.read_bytes(), runtime_file)
    pipeline = contract["pipeline"]
    nodes = tuple(_node(folder, name) for name in contract["models"])
    evidence = folder / "evidence"
    notes = _json_of(evidence / "notes.json") or {}
    stored = _json_of(evidence / "checks.json") or []
    checks = rows_of_checks(stored)
    whole = (stored.get("pipeline") if isinstance(stored, dict) else None) or {}
    return Facts(
        name=runtime_file.stem,
        version=bundle.get("version", ""),
        status=bundle.get("status") or ("ok" if all(row.ok for row in checks) else FAILED),
        digest=bundle.get("digest", ""),
        nodes=nodes,
        data_flow=pipeline["data_flow"],
        feedback_flow=pipeline["feedback_flow"],
        inputs=pipeline["inputs"],
        outputs=pipeline["outputs"],
        configs=pipeline.get("configs") or {},
        toolchain=contract["system information"],
        starts=_starts(folder, nodes, pipeline),
        checks=checks,
        played=played_text(whole["ok"], whole["ticks"], whole["formats"]) if whole else "",
        played_notes=tuple(whole.get("notes", ())),
        warnings=tuple(each["text"] for each in notes.get("warnings", ())),
        noted=tuple(
            Noted(each["node"], each["kind"], each["op"], f"{each['file']}:{each['line']}", each.get("function", ""))
            for each in notes.get("escapes", ())
        ),
        start_notes={each["port"]: each["note"] for each in notes.get("starts", ()) if each["note"]},
        initial_values=pipeline.get("initial_values") or "",
        session=_json_of(evidence / "session.json") or {},
        probe=tuple((_json_of(evidence / "probe.json") or {}).get("runs", ())),
        reproduction=_json_of(evidence / "reproduction.json") or {},
    )


def _node(folder: Path, name: str) -> NodeFacts:
    home = folder / "nodes" / name
    path = home / "manifest.json"
    manifest = parse_node_manifest(path.read_bytes(), path)
    graph = _json_of(home / "graph.json") or {}
    sources = _json_of(folder / "evidence" / "sources" / f"{name}.json") or {}
    roles = _json_of(folder / "evidence" / "constants" / f"{name}.json") or {}
    used = {each["target"]: sources[each["id"]] for each in graph.get("ops", ()) if each["id"] in sources}
    digests = {"Graph": manifest.graph_sha256, "Weights": manifest.weights_sha256 if manifest.constants else None}
    return NodeFacts(
        NodeSpec(name, tuple(port.port() for port in manifest.inputs), tuple(port.port() for port in manifest.outputs)),
        artifacts=manifest.artifacts,
        constants=tuple(
            ConstantFacts(
                each.name, each.dtype, each.shape, each.sha256, roles.get(each.name, ""), _place(used.get(each.name))
            )
            for each in manifest.constants
        ),
        op_counts=manifest.ops,
        steps=tuple(_step(each, sources.get(each["id"])) for each in graph.get("ops", ())),
        digests={key: value for key, value in digests.items() if value},
    )


def _step(step: Mapping[str, Any], source: Mapping[str, Any] | None) -> Step:
    arguments = [argument_text(each) for each in step.get("args", ())]
    arguments += [f"{key}={argument_text(each)}" for key, each in step.get("kwargs", {}).items()]
    result = f"{step['dtype']} {shape_text(step['shape'])}" if "dtype" in step else ""
    place = _place(source)
    if step.get("op") == "get_attr":  # a constant is fetched; its own name is the target
        return Step(step["id"], "constant", step["target"], result, place)
    return Step(step["id"], step["target"], ", ".join(arguments), result, place)


def _place(source: Mapping[str, Any] | None) -> str:
    return f"{source['file']}:{source['line']}" if source else ""


def _starts(folder: Path, nodes: Sequence[NodeFacts], pipeline: Mapping[str, Any]) -> dict[str, str]:
    """What each input that is fed back holds at the first tick."""
    said = {f"{node.spec.name}/{port.name}": port.semantics.get("start") for node in nodes for port in node.spec.inputs}
    path = folder / (pipeline.get("initial_values") or "")
    values = read_tensors(path) if path.is_file() else {}
    starts = {}
    for target in sorted({target for targets in pipeline["feedback_flow"].values() for target in targets}):
        if isinstance(start := said.get(target), str) and start.startswith(FIRST_INPUT):
            starts[target] = f"the first {start.removeprefix(FIRST_INPUT)}"
        elif target in values:
            starts[target] = "stored values" if any(values[target].data) else "zeros"
    return starts


def argument_text(value: Any) -> str:
    """An argument of ``graph.json`` for people: ``%x`` for an earlier result, Python's own spelling for the rest."""
    if isinstance(value, list):
        return f"[{', '.join(argument_text(each) for each in value)}]"
    if not isinstance(value, dict):
        return repr(value)
    (key, inner), *_ = [*value.items(), ("", None)]
    if key == "ref":
        return f"%{inner}"
    if key in {"slice", "range"}:
        return f"{key}({', '.join(argument_text(each) for each in inner)})"
    if key == "dict":
        return "{" + ", ".join(f"{name}: {argument_text(each)}" for name, each in inner.items()) + "}"
    return "..." if key == "ellipsis" else str(inner)


def _json_of(path: Path) -> Any:
    """A JSON file of the bundle, or None where a bundle of another age has none."""
    return json.loads(path.read_bytes()) if path.is_file() else None


def shape_text(shape: Sequence[int]) -> str:
    """A shape in brackets: ``[4, 3]``, and ``[]`` of a single number."""
    return f"[{', '.join(str(size) for size in shape)}]"


def value_text(value: JSON) -> str:
    """A JSON value for people: lists in brackets, text without quotes."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return str(value)
    if hasattr(value, "items"):
        return "{" + ", ".join(f"{key}: {value_text(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(value_text(each) for each in value) + "]"
