"""What is true of one build beside its content: samples, source lines, notes, checks, picture and log."""

from __future__ import annotations

import re
import traceback
from typing import TYPE_CHECKING, Final

from leapp._canonical import readable_json
from leapp.bundle import samples
from leapp.errors import (
    MissingDependencyError,
    PictureError,
)
from leapp.pipeline import start
from leapp.report.checks import checks_json, log_lines
from leapp.report.picture import picture_png

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import torch

    from leapp._prepare import PreparedNode
    from leapp._spec import JSON
    from leapp.errors import LeappError
    from leapp.pipeline.ticks import TracedTicks
    from leapp.replay import NodeReport
    from leapp.report.facts import Facts
    from leapp.runtime.check import PipelineReport
    from leapp.trace.session import Session

    Samples = Sequence[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]

_COLOURS: Final = re.compile("\x1b\\[[0-9;]*m")


def write_evidence(session: Session, nodes: Sequence[PreparedNode], staging: Path) -> None:
    """Samples, source lines, roles of constants, notes."""
    evidence = staging / "evidence"
    (evidence / "samples").mkdir(parents=True)
    (evidence / "sources").mkdir()
    (evidence / "constants").mkdir()
    for node in nodes:
        samples.write_samples(evidence / "samples" / f"{node.spec.name}.safetensors", node.samples)
        if node.resets:
            (evidence / "resets").mkdir(exist_ok=True)
            samples.write_samples(evidence / "resets" / f"{node.spec.name}.safetensors", node.resets)
        lines: dict[str, JSON] = {
            op: {"file": source.file, "line": source.line, "function": source.function}
            for op, source in node.recording.sources.items()
        }
        (evidence / "sources" / f"{node.spec.name}.json").write_bytes(readable_json(lines))
        roles: dict[str, JSON] = dict(sorted(node.trace.recordings[0].constants.roles.items()))
        (evidence / "constants" / f"{node.spec.name}.json").write_bytes(readable_json(roles))
    (evidence / "notes.json").write_bytes(readable_json(_notes(session, nodes)))


def write_checks(
    session: Session,
    nodes: Sequence[PreparedNode],
    ticks: TracedTicks,
    reports: Mapping[str, NodeReport],
    played: PipelineReport | None,
    traces: Sequence[str],
    staging: Path,
) -> None:
    """How the traced run divides into ticks, what the checks found, and the log."""
    (staging / "evidence" / "ticks.json").write_bytes(readable_json(ticks.as_json()))
    (staging / "evidence" / "checks.json").write_bytes(readable_json(checks_json(reports.values(), played)))
    (staging / "log.txt").write_text(_log(session, nodes, reports, played), encoding="utf-8")
    if traces:
        with (staging / "log.txt").open("a", encoding="utf-8") as log:
            log.writelines(f"\n{each}" for each in traces)


def taken_traces(errors: Sequence[LeappError]) -> list[str]:
    """What exporters raised, for the log; the errors keep their own sentence alone.

    Exporters chain error upon error with hundreds of lines of their own code, of which the sentence holds what helps.
    """
    found = []
    for error in errors:
        if error.__cause__ is None:
            continue
        text = "".join(traceback.format_exception(error))
        found.append(_COLOURS.sub("", text))
        error.__cause__, error.__suppress_context__, error.__traceback__ = None, True, None
    return found


def draw_picture(facts: Facts, staging: Path) -> None:
    """Write ``<name>.png``. A bundle is complete without it: where it cannot be drawn, the log says why."""
    try:
        (staging / f"{facts.name}.png").write_bytes(picture_png(facts))
    except (MissingDependencyError, PictureError) as error:
        with (staging / "log.txt").open("a", encoding="utf-8") as log:
            log.write(f"no picture: {error}\n")


def _notes(session: Session, nodes: Sequence[PreparedNode]) -> dict[str, JSON]:
    brought = {node.spec.name for node in nodes if node.brought is not None}
    started = {f"{node.spec.name}/{port}": each for node in nodes for port, each in node.started.items()}
    return {
        "starts": start.notes(started),
        "renamed": {f"{node.spec.name}/{name}": list(ends) for node in nodes for name, ends in _renamed(node)},
        "warnings": [{"class": type(warning).__name__, "text": str(warning)} for warning in session.warnings],
        # A line that is passed many times is one note.
        "escapes": [
            {"kind": kind, "node": node, "op": op, "file": file, "line": line, "function": function}
            for kind, node, op, file, line, function in dict.fromkeys(
                (note.kind, note.node, note.op, note.file, note.line, note.function)
                for note in session.escapes.notes
                if note.node not in brought  # what leaves the trace there is in nobody's export
            )
        ],
    }


def _renamed(node: PreparedNode) -> Iterator[tuple[str, tuple[str, str]]]:
    """Names that were an input and an output, and the two ports that they are now."""
    for name, final in node.names.inputs.items():
        if final != name and name in node.names.outputs:
            yield name, (final, node.names.outputs[name])


def _log(
    session: Session, nodes: Sequence[PreparedNode], reports: Mapping[str, NodeReport], played: PipelineReport | None
) -> str:
    lines = [f"pipeline {session.options.name}"]
    for node in nodes:
        name, entries = node.spec.name, node.trace.entries
        ops = sum(each.op.startswith("call_") for each in node.recording.graph.nodes)
        does = f"{ops} operations" if node.brought is None else f"brings {node.brought.path.name}"
        lines.append(f"node {name}: {does}, entered {entries} times")
        lines += [
            f"node {name}: {old!r} is the input {new_in!r} and the output {new_out!r}; ONNX has no name for both"
            for old, (new_in, new_out) in _renamed(node)
        ]
    lines += [f"{type(warning).__name__}: {warning}" for warning in session.warnings]
    for report in reports.values():
        lines += log_lines(report)
    if played is not None:
        lines += [played.summary(), *played.notes]
    return "\n".join(lines) + "\n"
