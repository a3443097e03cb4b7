"""compile_session(session, options) -> result: the only place that strings the stages together."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from leapp._artifacts import write_node
from leapp._canonical import sha256_file
from leapp._evidence import draw_picture, taken_traces, write_checks, write_evidence
from leapp._prepare import CompileOptions, PreparedNode, check_nodes, prepared, start_value
from leapp.bundle import contract, samples, write
from leapp.bundle.schema import FAILED, PARTIAL
from leapp.errors import (
    ExportError,
    LeappError,
    NotReplayableError,
    RecordingsDifferError,
    ValidationError,
)
from leapp.pipeline import copied
from leapp.pipeline.ticks import TracedTicks, rounds
from leapp.replay import NodeReport, causes_text
from leapp.report.facts import collect
from leapp.report.page import draw as page_of
from leapp.runtime.check import TracedRun, check_pipeline
from leapp.trace.node import CollectorPause
from leapp.trace.same import difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from leapp._spec import ExportFormat, PipelineSpec
    from leapp.export._backend import Runnable
    from leapp.runtime.check import PipelineReport
    from leapp.trace.session import Session

    Samples = Sequence[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]


@dataclass(frozen=True)
class CompileResult:
    """A bundle on disk. ``reports`` holds one per node that has artifacts; ``errors`` what went wrong, in order."""

    bundle: Path
    digest: str
    status: str
    reports: Mapping[str, NodeReport]
    errors: Sequence[LeappError] = ()
    validated: bool = True
    session: Session | None = None
    """The session it was made from, for checks that compare it with another one."""
    traces: Sequence[str] = ()
    """What exporters raised, with their own tracebacks; it stands in ``log.txt`` too."""


def compile_session(session: Session, options: CompileOptions) -> CompileResult:
    """Export, wire, validate and write one bundle.

    Raises what the recording itself is refused for. Artifacts that fail are part of the result: the bundle is written
    with status ``failed``.
    """
    with CollectorPause():
        return _compiled(session, options)


def _compiled(session: Session, options: CompileOptions) -> CompileResult:
    session.check_closed()
    check_nodes(session, options)
    nodes, pipeline = prepared(session, options)
    folder = session.options.folder
    write.ensure_replaceable(folder)
    errors: list[LeappError] = [error for node in nodes for error in _entries_agree(session, node)]
    differing = {error.facts["node"] for error in errors}
    reports: dict[str, NodeReport] = {}
    manifests = []
    with write.scratch_beside(folder) as staging:
        loaded: dict[tuple[str, ExportFormat], Runnable] = {}
        for node in nodes:
            name = node.spec.name
            causes = session.escapes.causes(name) if node.brought is None else ()
            try:
                manifest, report, failed = write_node(node, staging, options, loaded)
            except NotReplayableError as error:
                raise NotReplayableError(**{**error.facts, "seen": causes_text(causes)}) from None
            errors.extend(failed)
            manifests.append(manifest)
            if report.formats:
                reports[name] = replace(report, causes=causes, explained=name in differing)
        initial = _initial_values(pipeline, nodes, staging)
        toolchain = contract.toolchain()
        (staging / f"{pipeline.name}.yaml").write_bytes(
            contract.contract_yaml(pipeline, manifests, initial_values=initial, toolchain=toolchain)
        )
        ticks = _ticks(session, nodes)
        if options.seek_copies:
            _warn_of_copies(session, nodes, pipeline, ticks)
        played = None
        if options.validate and options.only is None and not errors and reports:
            contract_file = staging / f"{pipeline.name}.yaml"
            played = _check_pipeline(contract_file, nodes, ticks, reports, options, loaded, errors)
        loaded.clear()
        status = "ok" if options.only is None else PARTIAL
        if errors or not all(report.ok for report in reports.values()):
            status = FAILED
        write_evidence(session, nodes, staging)
        traces = taken_traces(errors)
        write_checks(session, nodes, ticks, reports, played, traces, staging)
        digest = write.seal(staging, name=pipeline.name, version=options.version, status=status)
        # The page shows the digest, and evidence does not take part in it.
        facts = collect(staging)
        if options.visualize:
            draw_picture(facts, staging)
        (staging / "evidence" / "report.html").write_bytes(page_of(facts))
        write.index_evidence(staging, pipeline.name)
        write.publish(staging, folder)
    return CompileResult(folder, digest, status, reports, tuple(errors), options.validate, session, tuple(traces))


_FIRST: Final = "What the trace warned of stands first, the likeliest cause at the top: see to that before all else. "


def _entries_agree(session: Session, node: PreparedNode) -> list[LeappError]:
    """Entries of one node must be one computation; a constant that moved between them was frozen from the data."""
    if not node.has_graph:
        return []
    first = node.trace.recordings[0].graph
    assert first is not None
    for index, entry in enumerate(node.trace.recordings[1:], start=2):
        assert entry.graph is not None
        found = difference(first, entry.graph)
        if found is not None:
            seen = causes_text(session.escapes.causes(node.spec.name, found.source))
            return [
                RecordingsDifferError(
                    node=node.spec.name,
                    count=index,
                    difference=found.text,
                    where=str(found.source or "unknown place"),
                    advice=found.advice,
                    seen=seen,
                    first=_FIRST if seen else "",
                )
            ]
    return []


def _ticks(session: Session, nodes: Sequence[PreparedNode]) -> TracedTicks:
    """Which entries of the nodes make a tick, and where their inputs were carried from."""
    names = {node.spec.name: node.names for node in nodes}
    wires = {
        node.spec.name: [
            {
                node.names.inputs[port]: f"{origin.node}/{names[origin.node].outputs[origin.port]}"
                for port, origin in entry.wires.items()
                if origin.node in names
            }
            for entry in node.trace.recordings
        ]
        for node in nodes
    }
    declared = frozenset(
        f"{node.spec.name}/{port}" for node in nodes for port, each in node.started.items() if each.otherwise
    )
    draws = frozenset(node.spec.name for node in nodes if node.draws)
    return TracedTicks(rounds(session.order, [*names]), wires, declared, draws)


def _warn_of_copies(
    session: Session, nodes: Sequence[PreparedNode], pipeline: PipelineSpec, ticks: TracedTicks
) -> None:
    """Name outer inputs that held what an output gave."""
    entries = {
        node.spec.name: [samples.Sample(_raw(inputs), _raw(outputs)) for inputs, outputs in node.samples]
        for node in nodes
    }
    outer = {f"{node}/{port}" for node, ports in pipeline.inputs.items() for port in ports}
    by_name = {node.spec.name: node for node in nodes}
    for copy in copied.unseen_copies([copied.played(ticks.rounds, entries)], outer):
        node, _, port = copy.input.partition("/")
        recorded = {final: name for name, final in by_name[node].names.inputs.items()}
        found = session.copy_warning(copy, by_name[node].trace, recorded[port])
        if found is not None:
            session.warn(*found)


def _raw(ports: Mapping[str, torch.Tensor]) -> dict[str, samples.RawTensor]:
    return {port: samples.RawTensor.of(value) for port, value in ports.items()}


def _check_pipeline(
    contract_file: Path,
    nodes: Sequence[PreparedNode],
    ticks: TracedTicks,
    reports: dict[str, NodeReport],
    options: CompileOptions,
    loaded: Mapping[tuple[str, ExportFormat], Runnable],
    errors: list[LeappError],
) -> PipelineReport | None:
    """Play the traced ticks through the written models; what comes of it goes into the reports of the nodes."""
    failed = {(name, each.format) for name, report in reports.items() for each in report.formats if not each.ok}
    run = TracedRun(
        ticks,
        {node.spec.name: node.samples for node in nodes},
        {node.spec.name: options.tolerances(node.spec.name) for node in nodes},
    )
    formats = {
        node.spec.name: [
            each
            for each in node.formats or ([] if node.brought is None else [node.brought.format])
            if (node.spec.name, each.value) not in failed
        ]
        for node in nodes
    }
    folders = [node.brought.path.parent for node in nodes if node.brought is not None]
    try:
        played = check_pipeline(contract_file, run, formats, loaded=loaded, model_dirs=folders)
    except LeappError as error:
        errors.append(error)
        return None
    for name, found in played.nodes.items():
        # A node without a model has a report where one of its wires is wrong.
        if name in reports or not all(each.ok for each in found):
            reports[name] = replace(reports.get(name, NodeReport(name)), pipeline=found)
    return played


def _initial_values(pipeline: PipelineSpec, nodes: Sequence[PreparedNode], staging: Path) -> tuple[str, str] | None:
    """First-tick values of all feedback inputs, in one file; None when there is no feedback."""
    values = {}
    for node in nodes:
        for port in node.started:
            value = start_value(node, port)
            if isinstance(value, str):
                value = torch.zeros_like(node.samples[0][0][port])
            values[f"{node.spec.name}/{port}"] = value
    if not values:
        return None
    path = staging / f"{pipeline.name}_initial_values.safetensors"
    samples.write_tensors(path, values)
    return path.name, sha256_file(path)


def raise_failures(result: CompileResult) -> None:
    """Raise what ``strict`` asks for: the one export error itself, else ValidationError with all reports."""
    failing = {name: report for name, report in result.reports.items() if not report.ok}
    if not result.errors and not failing:
        return
    if len(result.errors) == 1 and sum(not each.ok for report in failing.values() for each in report.formats) <= 1:
        raise result.errors[0]
    detail = [str(error) for error in result.errors if not isinstance(error, ExportError)]
    detail += [line for report in failing.values() for line in report.lines()]
    raise ValidationError(count=len(failing) or 1, detail="\n".join(detail), reports=failing)


def warn_failures(result: CompileResult) -> None:
    """Say what failed where ``strict`` is off."""
    from leapp.errors import ValidationWarning

    for name, report in result.reports.items():
        if not report.ok:
            warnings.warn(ValidationWarning(node=name, detail="\n".join(report.lines())), stacklevel=4)
    for error in result.errors:
        if not isinstance(error, ExportError):
            warnings.warn(ValidationWarning(node=error.facts.get("node", "?"), detail=str(error)), stacklevel=4)
