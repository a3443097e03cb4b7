"""A pipeline against a log of ticks: what a robot, a simulator or another machine wrote down, played once more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapp.bundle.schema import Tolerances
from leapp.compare import compare
from leapp.errors import TickLogError
from leapp.replay import ATOL, RTOL, NodeReport, as_array, describe
from leapp.report.checks import check_rows, port_json
from leapp.runtime.compared import Step, compare_ticks
from leapp.runtime.files import open_files
from leapp.runtime.inference import InferenceManager
from leapp.runtime.log import read_ticks
from leapp.runtime.values import raw_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON, PipelineSpec, TensorSpec
    from leapp.bundle.samples import RawTensor
    from leapp.replay import PortReport
    from leapp.runtime.log import TickLog


@dataclass(frozen=True)
class LogReport:
    """How a pipeline compares with a log."""

    ticks: int
    """How many ticks were played; all of the log, unless a node failed."""
    reports: tuple[NodeReport, ...]
    """By node, in the order in which they run; ``pipeline`` of each holds its ports over all ticks."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything agreed with the log."""
        return all(report.ok for report in self.reports)

    @property
    def first(self) -> tuple[str, PortReport] | None:
        """Node and port that part from the log first; of one tick, the first to be computed."""
        parted = [
            (port.sample, at, report.node, port)
            for at, report in enumerate(self.reports)
            for each in report.pipeline
            for port in each.ports
            if not port.ok
        ]
        if not parted:
            return None
        # An input that is held from tick to tick comes before the outputs that are computed from it.
        _, _, node, port = min(parted, key=lambda each: (each[0], not each[3].source, each[1]))
        return node, port

    def lines(self) -> list[str]:
        """What is wrong, first things first."""
        errors = [f"{report.node}: {each.error}" for report in self.reports for each in report.pipeline if each.error]
        if self.first is None:
            return errors
        node, port = self.first
        others = sum(not each.ok for report in self.reports for found in report.pipeline for each in found.ports) - 1
        more = f"; {others} more part as well" if others else ""
        return [f"{node}: {describe(port)}{more}", *errors]

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        first = None
        if self.first is not None:
            node, port = self.first
            first = {"node": node, "tick": port.sample, **port_json(port)}
        return {
            "ok": self.ok,
            "ticks": self.ticks,
            "first": first,
            "checks": [row.as_json() for row in check_rows(self.reports)],
            "notes": list(self.notes),
            "problems": self.lines(),
        }


def replay_log(
    path: Path,
    log: Path,
    *,
    formats: str | Mapping[str, str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    model_dirs: Sequence[Path] = (),
) -> LogReport:
    """Play the inputs of a log through a bundle, and compare all outputs that the log has, tick by tick.

    Args:
        path: the bundle, or its runtime file.
        log: ``.safetensors`` file, as ``leapp run --log`` writes it.
        formats: as for ``InferenceManager``.
        rtol: relative tolerance; None: what the node's manifest says.
        atol: absolute tolerance, in each output's own unit; None: likewise.
        model_dirs: folders with model files that are not in the bundle.

    Raises:
        TickLogError: no log, ports that the pipeline does not have, missing inputs, other shapes or dtypes, nothing to
            compare with.
        LeappError: the bundle cannot be run.
    """
    stored = read_ticks(log)
    manager = InferenceManager(path, model_dirs, formats=formats)
    pipeline = manager.pipeline
    _check(stored, pipeline)
    bundle = open_files(path).bundle
    limits = {}
    for node in pipeline.nodes:
        own = bundle.node(node.name).tolerances if bundle is not None else Tolerances(RTOL, ATOL)
        limits[node.name] = Tolerances(own.rtol if rtol is None else rtol, own.atol if atol is None else atol)
    notes: list[str] = []
    steps = _steps(stored, manager, notes)
    names = sorted(set(manager.backends.values()))
    found = compare_ticks(manager, steps, limits, name=", ".join(names), to_the_end=True)
    reports = tuple(
        NodeReport(node.name, pipeline=(found.reports[node.name],))
        for node in pipeline.nodes
        if node.name in found.reports
    )
    return LogReport(found.ticks, reports, tuple(notes))


def _steps(stored: TickLog, manager: InferenceManager, notes: list[str]) -> list[Step]:
    """The ticks of a log. It may begin in the middle of a run: then its state is put in."""
    initial = manager.feedback_inputs
    # Where torch is not installed, a bfloat16 is its bits on both sides.
    arrays = all(isinstance(value, np.ndarray) for value in manager.outputs.values())

    def expected(values: Mapping[str, RawTensor]) -> dict[str, Any]:
        return {key: raw_array(raw) if arrays else raw.numpy() for key, raw in values.items()}

    steps = []
    for index, tick in enumerate(stored.ticks):
        held = expected(tick.feedback)
        put = {}
        if index == 0:
            put = {key: raw_array(tick.feedback[key]) for key, value in held.items() if not _same(initial[key], value)}
            if put:
                notes.append(
                    f"the log begins with other values than the pipeline in {', '.join(put)}: they were put in"
                )
            held = {}
        inputs = {key: raw_array(raw) for key, raw in tick.inputs.items()}
        steps.append(Step(index, inputs, expected(tick.outputs), held, put))
    return steps


def _same(one: Any, other: Any) -> bool:
    return compare(as_array(one), as_array(other), rtol=0.0, atol=0.0).ok


# --- does the log fit? -----------------------------------------------------------------------------------------------


def _check(stored: TickLog, pipeline: PipelineSpec) -> None:
    """Refuse a log that is not one of this pipeline, before anything is run."""
    for why in _problems(stored, pipeline):
        raise TickLogError(path=str(stored.path), why=why)


def _problems(stored: TickLog, pipeline: PipelineSpec) -> Iterator[str]:
    inputs = {f"{node.name}/{port.name}": port.spec for node in pipeline.nodes for port in node.inputs}
    resets = {f"{node.name}/{port.name}" for node in pipeline.nodes for port in node.inputs if port.is_reset}
    outputs = {f"{node.name}/{port.name}": port.spec for node in pipeline.nodes for port in node.outputs}
    outer = {f"{node}/{port}": inputs[f"{node}/{port}"] for node, ports in pipeline.inputs.items() for port in ports}
    fed = {key: inputs[key] for consumers in pipeline.feedback_flow.values() for key in consumers}
    if not stored.ticks:
        yield "it holds inputs alone, the same for every tick: there is nothing to compare with"
    for index, tick in enumerate(stored.ticks):
        for part, values, known in (
            ("in", tick.inputs, outer),
            ("out", tick.outputs, outputs),
            ("feedback", tick.feedback, fed),
        ):
            for key, raw in values.items():
                yield from _misfit(f"{index}/{part}/{key}", key, raw, known)
        missing = sorted(set(outer) - set(tick.inputs) - resets)
        if missing:
            yield f"tick {index} has no input {missing[0]!r}"
    if not any(tick.outputs for tick in stored.ticks):
        yield "it holds no outputs (TICK/out/NODE/PORT): there is nothing to compare with"


def _misfit(place: str, key: str, raw: RawTensor, known: Mapping[str, TensorSpec]) -> Iterator[str]:
    spec = known.get(key)
    if spec is None:
        kind = {"in": "outer input", "out": "output", "feedback": "input that is fed back"}[place.split("/")[1]]
        yield f"{place!r} names no {kind} of the pipeline; it has {', '.join(sorted(known)) or 'none'}"
    elif (raw.dtype, tuple(raw.shape)) != (spec.dtype, tuple(spec.shape)):
        yield f"{place!r} is {raw.dtype}{list(raw.shape)}, the pipeline has {spec.dtype}{list(spec.shape)}"
