"""The whole-pipeline check: a bundle's pipeline in every format against the traced run it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leapp.report.checks import played_text
from leapp.runtime.compared import StandIns, compare_ticks, schedule
from leapp.runtime.inference import InferenceManager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON, ExportFormat
    from leapp.bundle.schema import Tolerances
    from leapp.pipeline.ticks import TracedTicks
    from leapp.replay import FormatReport
    from leapp.runtime.compared import Samples

    Model = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class TracedRun:
    """What a traced run left: by node, where not said otherwise."""

    ticks: TracedTicks
    samples: Mapping[str, Samples]
    limits: Mapping[str, Tolerances]


@dataclass(frozen=True)
class PipelineReport:
    """What came of playing a pipeline."""

    ticks: int = 0
    """How many ticks were played, and agreed, in each format."""
    formats: tuple[str, ...] = ()
    """What was played."""
    nodes: Mapping[str, tuple[FormatReport, ...]] = field(default_factory=dict)
    """By node: its wires, then its outputs in each format."""
    notes: tuple[str, ...] = ()
    """What was not played, and what was played otherwise than a pipeline runs by itself."""

    @property
    def ok(self) -> bool:
        """Whether everything that was played agreed."""
        return all(each.ok for reports in self.nodes.values() for each in reports)

    def summary(self) -> str:
        """One line."""
        return f"whole pipeline: {played_text(self.ok, self.ticks, self.formats)}"

    def as_json(self) -> dict[str, JSON]:
        """For evidence; the reports stand with their nodes."""
        return {"ok": self.ok, "ticks": self.ticks, "formats": list(self.formats), "notes": list(self.notes)}


def check_pipeline(
    path: Path,
    run: TracedRun,
    formats: Mapping[str, Sequence[ExportFormat]],
    *,
    loaded: Mapping[tuple[str, ExportFormat], Model] | None = None,
    model_dirs: Sequence[Path] = (),
) -> PipelineReport:
    """Play the traced ticks through a bundle, once for each format that one of its nodes has.

    Args:
        path: the bundle, or its runtime file.
        run: what it is compared with.
        formats: by node, its model files that gave its samples, the preferred one first. A node without any, or that
            draws random numbers, gives what it gave in the traced run.
        loaded: models that need not be loaded again.
        model_dirs: folders with model files that are not in the bundle.

    Raises:
        LeappError: the runtime does not take the bundle.
    """
    loaded = loaded or {}
    formats = {node: () if node in run.ticks.draws else each for node, each in formats.items()}
    reports: dict[str, list[FormatReport]] = {}
    notes: list[str] = []
    played: list[str] = []
    stand_ins = StandIns()
    missing = [node for node, each in formats.items() if not each]
    if missing:
        notes.append(f"{', '.join(missing)}: no model that can be compared; the traced outputs were fed in")
    plan = None
    least = 0
    for each in dict.fromkeys(format for available in formats.values() for format in available):
        chosen = {node: each if each in has else has[0] for node, has in formats.items() if has}
        models: dict[str, Model] = {node: loaded[key] for node in chosen if (key := (node, chosen[node])) in loaded}
        for node in missing:
            models[node] = stand_ins.of(node, [*run.samples[node][0][1]])
        names = {node: format.backend for node, format in chosen.items()}
        manager = InferenceManager(path, model_dirs, formats=names, callables=models)
        if plan is None:
            plan = schedule(manager.pipeline, run.ticks, run.samples)
            notes += plan.notes
            for node, report in plan.wires.items():
                reports.setdefault(node, []).append(report)
            if not plan.ok:
                break
        result = compare_ticks(
            manager, plan.steps, run.limits, name=each.value, starts=plan.starts, stand_ins=stand_ins
        )
        for node, report in result.reports.items():
            reports.setdefault(node, []).append(report)
        least = min(least, result.ticks) if played else result.ticks
        played.append(each.value)
    return PipelineReport(least, tuple(played), {node: tuple(each) for node, each in reports.items()}, tuple(notes))
