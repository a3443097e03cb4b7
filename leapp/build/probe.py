"""The probe: run the entry again on other data, and find what was frozen from the data of the first run.

The first session leaves a record beside its bundle (``write_record``). The second one traces the same entry with other
seeds and perturbed inputs (``SecondSession``), exports nothing, and is then compared with the first (``judge``): what
moved in the recordings was frozen, and the models of the first session must give the second session's outputs.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from leapp._canonical import readable_json
from leapp._spec import ExportFormat, NodeSpec, Start
from leapp.bundle.read import Bundle, load
from leapp.bundle.samples import RawTensor, Sample, read_samples, read_tensors, write_tensors
from leapp.compare import compare
from leapp.export._backend import backend_for
from leapp.graph.dump import graph_json
from leapp.graph.passes.reset_port import reset_port
from leapp.manifest.model import Choices, FromFile, PortHint, Range, Structure
from leapp.pipeline.copied import played, unseen_copies
from leapp.pipeline.start import Shown, StartRules, recorded_starts, seen
from leapp.pipeline.ticks import TracedTicks, rounds
from leapp.pipeline.wiring import PortNames, renamed
from leapp.replay import DRAWS, FormatReport, NodeReport, as_array, replay, sample_labels
from leapp.report.checks import node_json
from leapp.trace.constants import bytes_digest, no_hooks, plain, same_bytes
from leapp.trace.escapes import READER, spelled
from leapp.trace.variation import named_tensors, shared_memory

if TYPE_CHECKING:
    from pathlib import Path

    from leapp._compile import CompileResult
    from leapp._spec import JSON
    from leapp.build._messages import ProbeRequest
    from leapp.graph._base import NodeGraph
    from leapp.manifest.model import Manifest
    from leapp.trace.escapes import Note
    from leapp.trace.node import NodeTrace
    from leapp.trace.recording import Recording
    from leapp.trace.session import Session

VALUE_LIMIT_BYTES: Final = 1 << 20
"""Constants above this size are compared by digest alone, so how far they moved is not known."""

_READS: Final = ("escape", "branch", "untraced", READER, "random")
"""Kinds of notes that tell how a value can have left the trace."""

_WEIGHTS = "weights.safetensors"
_MODULES = "modules.json"
_CONSTANTS = "constants.safetensors"
_PINNED = "pinned.safetensors"


# --- what the first session leaves ---------------------------------------------------------------------------------


def write_record(folder: Path, result: CompileResult) -> None:
    """Keep what a second session is compared with, beside what the bundle itself holds."""
    session = result.session
    assert session is not None
    folder.mkdir(parents=True, exist_ok=True)
    kinds = []
    weights: dict[str, Any] = {}
    for index, watched in enumerate(session.modules.seen):
        kinds.append(watched.kind)
        weights.update(
            {f"{index}/{name}": plain(value) for name, value in watched.unwritten().items() if _storable(value)}
        )
    (folder / _MODULES).write_text(json.dumps(kinds))
    write_tensors(folder / _WEIGHTS, weights)
    constants = {}
    pinned = {}
    for node in session.completed:
        recording = node.recordings[0]
        assert recording.graph is not None
        for name, value in recording.graph.constants.items():
            if value.numel() * value.element_size() <= VALUE_LIMIT_BYTES:
                constants[f"{node.name}/{name}"] = value
        for index, value in enumerate(recording.pinned):
            pinned[f"{node.name}/{index}"] = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    write_tensors(folder / _CONSTANTS, constants)
    write_tensors(folder / _PINNED, pinned)


def _storable(value: torch.Tensor) -> bool:
    with no_hooks():
        return value.layout is torch.strided and not value.is_quantized and value.device.type == "cpu"


# --- the second session --------------------------------------------------------------------------------------------


@dataclass
class SecondSession:
    """A ``Variation``: perturbs outer inputs that did not move, and takes over the first session's weights."""

    bundle: Bundle
    record: Path
    hints: Mapping[str, PortHint]
    root: Path
    seed: int
    perturbed: list[str] = field(default_factory=list)
    unseeded: list[str] = field(default_factory=list)
    starts: StartRules = field(default_factory=StartRules)
    started: dict[str, RawTensor] = field(default_factory=dict)
    """What inputs that are fed back held at first, by ``node/port`` in final names."""
    _samples: dict[str, Any] = field(default_factory=dict)
    _weights: dict[str, RawTensor] | None = None
    _pinned: dict[str, RawTensor] | None = None

    @classmethod
    def of(cls, asked: ProbeRequest, manifest: Manifest, starts: StartRules) -> SecondSession:
        """The second session that a build asked for."""
        return cls(load(asked.bundle), asked.record, manifest.probe.ports, manifest.root, asked.seed, starts=starts)

    def vary_input(self, node: str, port: str, entry: int, tensor: torch.Tensor) -> None:
        """Move an input whose value is the first session's."""
        key = f"{node}/{port}"
        before = self._first_value(node, port, entry)
        final = f"{node}/{self.final_name(node, port)}"
        hint = self.hints.get(key) or self.hints.get(final)
        if final in self.fed_back:
            if not entry:
                # Of a copy: whoever looks at memory through NumPy lets it look shared from then on.
                with no_hooks():
                    self.started[final] = RawTensor.of(plain(tensor).clone())
            if hint is None:  # how it starts is no data of the run
                return
        if before is None or not self._may_write(tensor):
            return
        if not same_bytes(plain(tensor), before) and not isinstance(hint, FromFile):
            return
        # One draw per port and entry, whatever else was drawn before.
        rng = np.random.default_rng([self.seed, entry, *key.encode()])
        moved = self._moved(key, before, hint, rng)
        if moved is None:
            return
        with no_hooks(), torch.no_grad():
            plain(tensor).copy_(moved)
        if key not in self.perturbed:
            self.perturbed.append(key)

    def pinned(self, node: str, index: int, value: Any) -> Any:
        """The first session's value, in the object of the second."""
        if self._pinned is None:
            self._pinned = read_tensors(self.record / _PINNED)
        first = self._pinned.get(f"{node}/{index}")
        if first is None:
            return value
        if isinstance(value, torch.Tensor):
            if tuple(value.shape) == first.shape:
                with no_hooks(), torch.no_grad():
                    plain(value).copy_(first.torch())
            return value
        if isinstance(value, np.ndarray):
            fixed = first.torch().numpy().astype(value.dtype)
            if fixed.shape != value.shape or not value.flags.writeable:
                return fixed
            value[...] = fixed
            return value
        number = first.torch().item()
        return type(value)(number) if isinstance(value, np.generic) else number

    def weights(self, index: int, module: torch.nn.Module) -> None:
        """Give a module the weights that it had in the first session."""
        kinds = json.loads((self.record / _MODULES).read_text())
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        if index >= len(kinds) or kinds[index] != kind:
            return
        if self._weights is None:
            self._weights = read_tensors(self.record / _WEIGHTS)
        moved = False
        for name, tensor in named_tensors(module).items():
            first = self._weights.get(f"{index}/{name}")
            if first is None or first.shape != tuple(tensor.shape):
                continue
            before = first.torch()
            if before.dtype == tensor.dtype and not same_bytes(plain(tensor), before):
                with no_hooks(), torch.no_grad():
                    plain(tensor).copy_(before)
                moved = True
        if moved:
            self.unseeded.append(kind)

    @functools.cached_property
    def fed_back(self) -> Mapping[str, str]:
        """Inputs that an output feeds at the next tick, states among them -> that output."""
        flow = self.bundle.contract["pipeline"]["feedback_flow"]
        return {consumer: producer for producer, consumers in flow.items() for consumer in consumers}

    def final_name(self, node: str, port: str) -> str:
        """What an input that was recorded as ``port`` is called in the bundle."""
        manifest = self.bundle.nodes.get(node)
        known = {each.name for each in manifest.inputs} if manifest is not None else set()
        return f"{port}_in" if port not in known and f"{port}_in" in known else port

    def _first_value(self, node: str, port: str, entry: int) -> torch.Tensor | None:
        if node not in self._samples:
            path = self.bundle.folder / "evidence" / "samples" / f"{node}.safetensors"
            self._samples[node] = read_samples(path) if path.exists() else ()
        samples = self._samples[node]
        inputs = samples[entry].inputs if entry < len(samples) else {}
        found = inputs.get(self.final_name(node, port))
        return found.torch() if found is not None else None

    @staticmethod
    def _may_write(tensor: torch.Tensor) -> bool:
        return not shared_memory(tensor)

    def _moved(
        self, key: str, before: torch.Tensor, hint: PortHint | None, rng: np.random.Generator
    ) -> torch.Tensor | None:
        if not before.numel():
            return None
        values = as_array(before)
        shape = values.shape
        if isinstance(hint, Range):
            new = rng.uniform(hint.low, hint.high, shape)
            return torch.from_numpy(np.asarray(new if values.dtype.kind == "f" else np.rint(new))).to(before.dtype)
        if isinstance(hint, Choices):
            return torch.from_numpy(np.asarray(rng.choice(np.asarray(hint.values), shape))).to(before.dtype)
        if isinstance(hint, FromFile):
            given = read_tensors(self.root / hint.file)
            return (given[key] if key in given else given[f"{key}_in"]).torch().to(before.dtype)
        if isinstance(hint, Structure):
            return _structured(hint.kind, values, rng).to(before.dtype)
        if values.dtype.kind != "f":
            return None
        finite = values[np.isfinite(values)]
        spread = float(np.std(finite)) if finite.size else 0.0
        return torch.from_numpy(np.asarray(values + rng.normal(0.0, spread or 1.0, shape))).to(before.dtype)


def _structured(kind: str, values: Any, rng: np.random.Generator) -> torch.Tensor:
    """Values of the same structure along the last axis: one hot, unit quaternions, or the old ones in another order."""
    if kind == "one-hot":
        hot = rng.integers(values.shape[-1], size=values.shape[:-1])
        return torch.from_numpy(np.eye(values.shape[-1])[hot])
    if kind == "unit-quaternion":
        drawn = rng.normal(size=values.shape)
        return torch.from_numpy(drawn / np.linalg.norm(drawn, axis=-1, keepdims=True))
    return torch.from_numpy(np.ascontiguousarray(rng.permutation(values.reshape(-1)).reshape(values.shape)))


# --- the verdict ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """Something in a recording that followed the data of the run: it is frozen in the exported model."""

    node: str
    op: str
    """The operation that uses it, by its public name and graph id."""
    what: str
    """Which constant or argument, or how the graph itself changed."""
    largest: float | None
    """The largest absolute change; None where it is not known or no number."""
    file: str = ""
    line: int = 0
    escape: str = ""
    """The read that fed it, with its line; empty when no read was seen."""
    allowed: bool = False
    """Every read that can have fed it stands in a function that the manifest allows."""
    weights: bool = False
    """It is a parameter of a module: drawn at random, most likely, and no data."""

    def text(self) -> str:
        """One or two lines for people."""
        change = "" if self.largest is None else f", largest change {self.largest:.3g}"
        place = f"{self.file}:{self.line}" if self.file else "unknown place"
        if self.weights:
            return (
                f"node {self.node!r}: {self.what} of {self.op} at {place} is a parameter that each run begins with "
                f"other values{change}; seed it in the entry (torch.manual_seed) or load a checkpoint. Its module was "
                "not called, so that the second run could not take over the weights of the first"
            )
        source = (
            f"fed by {self.escape}"
            if self.escape
            else "no read of a traced value was seen: it was derived before the node, or by native code"
        )
        return f"node {self.node!r}: {self.what} of {self.op} at {place} moved with the data{change}; {source}"


@dataclass(frozen=True)
class ProbeReport:
    """What the second session showed."""

    moved: tuple[Moved, ...] = ()
    replays: tuple[NodeReport, ...] = ()
    not_varied: tuple[str, ...] = ()
    """Outer inputs, ``node/port``, that had the same value in both sessions."""
    not_allowed: tuple[str, ...] = ()
    """Those of them that the manifest does not allow."""
    perturbed: tuple[str, ...] = ()
    unseeded: tuple[str, ...] = ()
    starts: tuple[Shown, ...] = ()
    """What inputs that are fed back held at first; all runs together tell how they start."""
    copied: tuple[str, ...] = ()
    """A text for each outer input that held what an output gave, in both sessions."""

    @property
    def ok(self) -> bool:
        """Whether nothing was frozen and every model gave the second session's outputs."""
        moved = [each for each in self.moved if not each.allowed]
        return not moved and not self.not_allowed and all(report.ok for report in self.replays)

    def lines(self) -> list[str]:
        """One text per problem."""
        lines = [each.text() for each in self.moved if not each.allowed]
        lines += [
            f"input {port!r} had the same value in both runs, so what depends on it was not probed; vary it with "
            f'[probe] args, argv, seed or ports."{port}", or allow it: [allow] not-varied = ["{port}"]'
            for port in self.not_allowed
        ]
        for report in self.replays:
            lines += [f"on the second run's inputs: {line}" for line in report.lines()]
        return lines

    def as_json(self) -> dict[str, JSON]:
        """For evidence: everything, in plain JSON."""
        return {
            "ok": self.ok,
            "moved": [asdict(each) for each in self.moved],
            "replays": [{**node_json(report), "problems": report.lines()} for report in self.replays],
            "not_varied": list(self.not_varied),
            "not_allowed": list(self.not_allowed),
            "perturbed": list(self.perturbed),
            "unseeded_weights": list(self.unseeded),
            "starts": [each.as_json() for each in self.starts],
            "copied": list(self.copied),
        }


def judge(session: Session, variation: SecondSession, *, allowed_not_varied: Sequence[str] = ()) -> ProbeReport:
    """Compare a stopped second session with the bundle and record of the first."""
    bundle, record = variation.bundle, variation.record
    values = read_tensors(record / _CONSTANTS)
    moved: list[Moved] = []
    replays = []
    recorded = {node.name: node for node in session.completed}
    for name in bundle.nodes:
        if name not in recorded:
            moved.append(Moved(name, "the node", "the presence", None))
            continue
        recording = recorded[name].recordings[0]
        found: list[Moved] = []
        if bundle.node(name).graph_sha256 is not None:  # else the node brings its model, which alone answers
            second = _as_exported(variation, recorded[name])
            found += _differences(bundle, name, recording, second, values, session.escapes.notes)
        moved += found
        if not found:
            replays.append(_replayed(variation, recorded[name]))
    moved += [Moved(name, "the node", "the presence", None) for name in recorded if name not in bundle.nodes]
    not_varied = tuple(_not_varied(bundle, recorded))
    return ProbeReport(
        tuple(moved),
        tuple(replays),
        not_varied,
        tuple(port for port in not_varied if not {port, _recorded(bundle, port)} & set(allowed_not_varied)),
        tuple(variation.perturbed),
        tuple(variation.unseeded),
        tuple(_starts(variation, recorded)),
        tuple(_copied(session, variation, recorded)),
    )


def write_report(path: Path, reports: Sequence[ProbeReport]) -> None:
    """Evidence of all probing runs."""
    path.write_bytes(readable_json({"runs": [report.as_json() for report in reports]}))


def _as_exported(variation: SecondSession, trace: NodeTrace) -> NodeGraph:
    """A recording of the second session with the port names and the reset input that the first one's bundle has."""
    graph = trace.recordings[0].graph
    assert graph is not None
    node, bundle = trace.name, variation.bundle
    manifest = bundle.node(node)
    reset = _reset_of(variation, trace)
    inputs = [each.name for each in manifest.inputs if each.name != reset]
    outputs = [each.name for each in manifest.outputs]
    names = PortNames(
        {port.name: _final(port.name, inputs, "_in") for port in graph.spec.inputs},
        {port.name: _final(port.name, outputs, "_out") for port in graph.spec.outputs},
    )
    graph = replace(graph, spec=renamed(graph.spec, names))
    if reset is None or inputs != [port.name for port in graph.spec.inputs]:
        return graph
    path = bundle.initial_values
    assert path is not None  # a node without state has no reset input
    values = read_tensors(path)
    starts = {key: Start.parse(text) for key, text in recorded_starts(bundle.contract).items()}
    states: dict[str, torch.Tensor | str] = {
        port: starts[key].port or values[key].torch()
        for port in inputs
        if variation.fed_back.get(key := f"{node}/{port}", "").partition("/")[0] == node
    }
    return reset_port(reset, states)(graph).graph


def _reset_of(variation: SecondSession, trace: NodeTrace) -> str | None:
    asked = variation.starts.reset_of(trace.name, trace.backend_params)
    return asked[0] if asked is not None else None


def _final(port: str, known: Sequence[str], suffix: str) -> str:
    return f"{port}{suffix}" if port not in known and f"{port}{suffix}" in known else port


def _starts(variation: SecondSession, recorded: Mapping[str, NodeTrace]) -> Iterator[Shown]:
    """What every input that is fed back held at first, in both sessions."""
    bundle, declared = variation.bundle, variation.starts.declared
    for key in sorted(variation.fed_back):
        node, _, port = key.partition("/")
        path = bundle.folder / "evidence" / "samples" / f"{node}.safetensors"
        sample = recorded[node].recordings[0].sample if node in recorded else None
        if sample is None or not path.exists():
            continue
        first = read_samples(path)[0].inputs
        names = {variation.final_name(node, name): name for name in sample.inputs}
        second = {final: RawTensor.of(sample.inputs[name]) for final, name in names.items()}
        if port not in second:  # it is reported as moved
            continue
        second[port] = variation.started.get(key, second[port])
        ports = {each.name: (each.dtype, each.shape) for each in bundle.node(node).inputs}
        sources = tuple(
            name
            for name, form in ports.items()
            if name in first and form == ports[port] and f"{node}/{name}" not in variation.fed_back
        )
        said = {
            *declared.get(node, {}),
            *(state.name for state in recorded[node].recordings[0].states.updated if state.start_input is not None),
        }
        yield Shown(
            key,
            names[port],
            seen(port, sources, [first, second]),
            sources,
            _distance(first[port], second[port].torch()),
            declared=port in said or names[port] in said,
        )


def _copied(session: Session, variation: SecondSession, recorded: Mapping[str, NodeTrace]) -> Iterator[str]:
    """What outer inputs hold that are copies of outputs: on the data of both sessions."""
    bundle = variation.bundle
    first: dict[str, list[Sample]] = {}
    second: dict[str, list[Sample]] = {}
    names: dict[str, dict[str, str]] = {}
    for name, trace in recorded.items():
        path = bundle.folder / "evidence" / "samples" / f"{name}.safetensors"
        if name not in bundle.nodes or not path.exists():
            return  # it is reported as moved
        first[name] = list(read_samples(path))
        ends = [each.name for each in bundle.node(name).outputs]
        kept = [entry.sample for entry in trace.recordings if entry.sample is not None]
        names[name] = {variation.final_name(name, port): port for port in kept[0].inputs}
        second[name] = [
            Sample(
                {variation.final_name(name, port): RawTensor.of(value) for port, value in sample.inputs.items()},
                {_final(port, ends, "_out"): RawTensor.of(value) for port, value in sample.outputs.items()},
            )
            for sample in kept
        ]
    ticks = bundle.folder / "evidence" / "ticks.json"
    before = TracedTicks.from_json(json.loads(ticks.read_bytes()), str(ticks)).rounds
    now = rounds(session.order, [*recorded])
    outer = {f"{node}/{port}" for node, ports in bundle.contract["pipeline"]["inputs"].items() for port in ports}
    for copy in unseen_copies([played(before, first), played(now, second)], outer):
        node, _, port = copy.input.partition("/")
        found = session.copy_warning(copy, recorded[node], names[node][port])
        if found is not None:
            yield str(found[0])


def _differences(
    bundle: Bundle,
    name: str,
    recording: Recording,
    second: NodeGraph,
    values: Mapping[str, RawTensor],
    notes: Sequence[Note],
) -> Iterator[Moved]:
    """What moved in one node, first structural difference last."""
    positions = {node.name: index for node, index in recording.recorder.order.items()}
    first = json.loads(bundle.read_bytes(f"nodes/{name}/graph.json"))
    ours, theirs = first["ops"], graph_json(second)["ops"]
    digests = {each.name: each.sha256 for each in bundle.node(name).constants}
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        place = _place(second, b["id"])
        source = _source(notes, name, positions.get(b["id"], -1))
        shown = f"{b['target']} (%{b['id']})"
        if (a["op"], a["op"] == "get_attr" or a["target"]) != (b["op"], b["op"] == "get_attr" or b["target"]):
            what = f"the graph (it became {b['target']})"
            yield Moved(name, f"{a['target']} (%{a['id']})", what, None, *place, *source)
            return
        if a["op"] == "get_attr":
            constant = second.constants[b["target"]]
            if digests.get(a["target"]) != bytes_digest(constant):
                user = next((op for op in theirs[index + 1 :] if {"ref": b["id"]} in _flat(op["args"])), None)
                yield Moved(
                    name,
                    f"{user['target']} (%{user['id']})" if user else "the output",
                    f"the constant {b['target']!r}",
                    _distance(values.get(f"{name}/{a['target']}"), constant),
                    *place,
                    *source,
                    weights=not source.escape and recording.constants.roles.get(b["target"]) == "parameter",
                )
            continue
        if a["args"] != b["args"] or a["kwargs"] != b["kwargs"]:
            yield Moved(name, shown, _argument(a, b), _argument_distance(a, b), *place, *source)
        elif a.get("dtype") != b.get("dtype"):
            # Shapes may follow the data (a mask that selects); what is returned is compared by replaying it.
            yield Moved(name, shown, f"the result's dtype {a.get('dtype')} -> {b.get('dtype')}", None, *place, *source)
    if len(ours) != len(theirs):
        longer = theirs if len(theirs) > len(ours) else ours
        extra = longer[min(len(ours), len(theirs))]
        what = f"the graph ({len(ours)} operations became {len(theirs)})"
        source = _source(notes, name, positions.get(extra["id"], len(positions)))
        yield Moved(name, f"{extra['target']} (%{extra['id']})", what, None, *_place(second, extra["id"]), *source)
    # Where the node left as ONNX, a name that is an input and an output is another one in the bundle.
    outputs = graph_json(second)["outputs"]
    if first["outputs"] != outputs and len(ours) == len(theirs):
        yield Moved(name, "the output", "what is returned", None)


def _flat(arguments: Any) -> list[Any]:
    found = []
    for item in arguments:
        found.append(item)
        if isinstance(item, list):
            found += _flat(item)
    return found


def _place(graph: NodeGraph, op: str) -> tuple[str, int]:
    source = graph.sources.get(op)
    return (source.file, source.line) if source is not None else ("", 0)


class _Source(NamedTuple):
    """The read that fed a moved value, in words, and whether it is allowed."""

    escape: str = ""
    allowed: bool = False


def _source(notes: Sequence[Note], node: str, position: int) -> _Source:
    """The last read of a traced value of a node before the operation that was recorded at ``position``.

    One that is not allowed goes first: an allowed read beside it excuses nothing.
    """
    reads = [note for note in notes if note.node == node and note.kind.startswith(_READS) and note.at <= position]
    wrong = [note for note in reads if not note.kind.endswith("-allowed")]
    if not reads:
        return _Source()
    last = (wrong or reads)[-1]
    return _Source(f"{spelled(last.op)} at {last.file}:{last.line}", allowed=not wrong)


def _numbers(value: Any) -> list[float] | None:
    """All numbers in a JSON argument, in order; None when it holds none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return [float(value)]
    if isinstance(value, list):
        found = [_numbers(item) for item in value]
        return [number for each in found if each for number in each] or None
    if isinstance(value, Mapping):
        return _numbers(list(value.values()))
    return None


def _argument(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    pairs = [*zip(a["args"], b["args"], strict=False)]
    pairs += [(a["kwargs"].get(key), b["kwargs"].get(key)) for key in sorted({*a["kwargs"], *b["kwargs"]})]
    changed = next(((x, y) for x, y in pairs if x != y), (None, None))
    return f"the argument {_shown(changed[0])} -> {_shown(changed[1])}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        ((_, value),) = value.items()
    return str(value)


def _argument_distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> float | None:
    x = _numbers([a["args"], list(a["kwargs"].values())])
    y = _numbers([b["args"], list(b["kwargs"].values())])
    if not x or not y or len(x) != len(y):
        return None
    return max(abs(p - q) for p, q in zip(x, y, strict=True))


def _distance(first: RawTensor | None, second: torch.Tensor) -> float | None:
    if first is None or first.shape != tuple(second.shape):
        return None
    found = compare(as_array(second), first.numpy(), rtol=0.0, atol=0.0)
    return found.largest if math.isfinite(found.largest) else None


def _not_varied(bundle: Bundle, recorded: Mapping[str, Any]) -> Iterator[str]:
    for node, ports in bundle.contract["pipeline"]["inputs"].items():
        path = bundle.folder / "evidence" / "samples" / f"{node}.safetensors"
        if node not in recorded or not path.exists():
            continue
        first = read_samples(path)
        for port in ports:
            pairs = [
                (before.inputs[port], _input_of(entry.sample.inputs, port))
                for before, entry in zip(first, recorded[node].recordings, strict=False)
            ]
            if pairs and all(a.data and b is not None and RawTensor.of(b) == a for a, b in pairs):
                yield f"{node}/{port}"


def _recorded(bundle: Bundle, key: str) -> str:
    """``node/port`` of a bundle under the port's recorded name; manifests may use either."""
    node, _, port = key.partition("/")
    bare = port.removesuffix("_in")
    twin = bare != port and f"{bare}_out" in {each.name for each in bundle.node(node).outputs}
    return f"{node}/{bare}" if twin else key


def _input_of(inputs: Mapping[str, torch.Tensor], port: str) -> torch.Tensor | None:
    found = inputs.get(port)
    return found if found is not None else inputs.get(port.removesuffix("_in"))


def _replayed(variation: SecondSession, trace: NodeTrace) -> NodeReport:
    """The first session's models on the second session's inputs."""
    bundle, name = variation.bundle, trace.name
    manifest = bundle.node(name)
    spec = NodeSpec(
        name, tuple(each.port() for each in manifest.inputs), tuple(each.port() for each in manifest.outputs)
    )
    reset = _reset_of(variation, trace)
    samples = [
        (
            {
                port.name: torch.tensor(False) if port.name == reset else _input_of(entry.sample.inputs, port.name)
                for port in spec.inputs
            },
            {port.name: _output_of(entry.sample.outputs, port.name) for port in spec.outputs},
        )
        for entry in trace.recordings
        if entry.sample is not None
    ]
    labels = sample_labels(len(samples), prefix="probe, ")
    formats = []
    for artifact in manifest.artifacts:
        backend = backend_for(ExportFormat(artifact.format))
        try:
            file = bundle.folder / artifact.path
            if artifact.external and trace.brought is not None:
                file = trace.brought.path
            run = backend.open(file, spec)
            limits = manifest.tolerances
            ports = replay(run, spec, samples, rtol=limits.rtol, atol=limits.atol, labels=labels, draws=trace.draws)
        except Exception as error:  # noqa: BLE001 - a runtime may raise anything; it is a result of the check
            formats.append(FormatReport(artifact.format, error=f"the artifact does not run: {error}"))
        else:
            formats.append(FormatReport(artifact.format, ports, note=DRAWS if trace.draws else ""))
    return NodeReport(name, tuple(formats), brought=trace.brought is not None)


def _output_of(outputs: Mapping[str, torch.Tensor], port: str) -> torch.Tensor:
    return outputs[port] if port in outputs else outputs[port.removesuffix("_out")]


__all__ = ["Moved", "ProbeReport", "SecondSession", "judge", "load", "write_record", "write_report"]
