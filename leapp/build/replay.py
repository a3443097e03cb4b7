"""Run a bundle's own evidence through all its model files again: numbers, where ``verify`` looks at bytes.

First each model by itself, on the samples of its node; then the whole pipeline in the runtime, tick by tick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leapp._spec import FORMAT_NAMES, ExportFormat, NodeSpec
from leapp.bundle import read, samples
from leapp.bundle.schema import PARTIAL, Tolerances, parse_json
from leapp.errors import ArtifactLoadError, NoModelError, NoSamplesError, UnknownFormatError, UnknownNodeNameError
from leapp.export._backend import backend_for
from leapp.manifest.problems import did_you_mean
from leapp.pipeline.ticks import TracedTicks
from leapp.replay import DRAWS, FormatReport, NodeReport, replay, sample_labels
from leapp.report.checks import check_rows
from leapp.runtime.check import TracedRun, check_pipeline
from leapp.runtime.files import open_files
from leapp.runtime.inference import RUN_FORMATS
from leapp.runtime.plan import ModelFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

    from leapp._spec import JSON
    from leapp.bundle.read import Bundle
    from leapp.bundle.schema import Artifact, NodeManifest
    from leapp.runtime.check import PipelineReport

    Tensors = Mapping[str, torch.Tensor]
    Samples = Mapping[str, tuple[Tensors, Tensors]]
    """By what messages call them."""


@dataclass(frozen=True)
class BundleReplay:
    """What came of a bundle's own evidence."""

    nodes: tuple[NodeReport, ...]
    """Nodes with model files, and those that one of the wires does not fit."""
    pipeline: PipelineReport | None
    """None where no node has a model file."""

    @property
    def ok(self) -> bool:
        """Whether everything agreed."""
        return all(report.ok for report in self.nodes)

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "ok": self.ok,
            "checks": [row.as_json() for row in check_rows(self.nodes)],
            "pipeline": None if self.pipeline is None else self.pipeline.as_json(),
            "problems": [line for report in self.nodes for line in report.lines()],
        }


@dataclass(frozen=True)
class _Options:
    rtol: float | None
    atol: float | None
    formats: Mapping[str, ExportFormat]
    """By node; of those that are not in it, all formats."""
    model_dirs: Sequence[Path]

    def limits(self, node: NodeManifest) -> Tolerances:
        own = node.tolerances
        return Tolerances(own.rtol if self.rtol is None else self.rtol, own.atol if self.atol is None else self.atol)

    def chosen(self, node: NodeManifest) -> list[Artifact]:
        wanted = self.formats[node.node].backend if node.node in self.formats else None
        return [each for each in node.artifacts if wanted in {None, each.backend}]


def replay_bundle(
    path: Path,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    format: str | Mapping[str, str] | None = None,
    model_dirs: Sequence[Path] = (),
) -> BundleReplay:
    """Replay every model file of a bundle by itself, and the pipeline as a whole.

    Args:
        path: the bundle. Digests of all files that are used are checked.
        rtol: relative tolerance; None: what the node's manifest says.
        atol: absolute tolerance, in each output's own unit; None: likewise.
        format: this one alone; or a dict node -> the one of that node, where all others keep theirs.
        model_dirs: folders with model files that are not in the bundle.

    Raises:
        NoSamplesError: the bundle's evidence was left behind.
        BundleDigestError: a file is not the one that was written.
        UnknownFormatError, UnknownNodeNameError: no such format or node.
        NoModelError: no node has the format, or one that it was asked of by name has not.
        LeappError: the runtime does not take the bundle.
    """
    bundle = read.load(path)
    by_node = dict.fromkeys(bundle.nodes, format) if isinstance(format, str) else dict(format or {})
    for node, name in by_node.items():
        if node not in bundle.nodes:
            near = did_you_mean(node, bundle.nodes)
            raise UnknownNodeNameError(option="--format", node=node, known=", ".join(bundle.nodes), near=near)
        if name not in FORMAT_NAMES:
            near = did_you_mean(name, RUN_FORMATS)
            raise UnknownFormatError(format=name, node=node, known=", ".join(RUN_FORMATS), near=near)
    options = _Options(rtol, atol, {node: FORMAT_NAMES[name] for node, name in by_node.items()}, model_dirs)
    cached = {name: _samples(bundle, node) for name, node in bundle.nodes.items()}
    chosen = {name: options.chosen(node) for name, node in bundle.nodes.items()}
    without = [node for node in by_node if not chosen[node]]
    # A format for all leaves out nodes that lack it, which the pipeline's notes name; one for a node is meant for it.
    if without and (not isinstance(format, str) or len(without) == len(by_node)):
        node = without[0]
        own = bundle.nodes[node].artifacts
        why = f"it has {', '.join(dict.fromkeys(each.format for each in own))}" if own else "it has none at all"
        if isinstance(format, str):
            why = "and no other node has one either"
        advice = "Leave out --format, or name a format that `leapp inspect` shows"
        raise NoModelError(node=node, wanted=f" as {by_node[node]}", why=why, advice=advice)
    ticks = _ticks(bundle, cached)
    reports = {
        name: NodeReport(
            name,
            tuple(
                _artifact(bundle, bundle.nodes[name], each, cached[name], options, draws=name in ticks.draws)
                for each in artifacts
            ),
            brought=bundle.nodes[name].graph_sha256 is None,
        )
        for name, artifacts in chosen.items()
        if artifacts
    }
    whole = reports and bundle.status != PARTIAL  # one node alone is no pipeline
    pipeline = _pipeline(bundle, ticks, chosen, cached, reports, options) if whole else None
    for name, found in pipeline.nodes.items() if pipeline is not None else ():
        if name in reports or not all(each.ok for each in found):
            reports[name] = replace(reports.get(name, NodeReport(name)), pipeline=found)
    return BundleReplay(tuple(reports[name] for name in bundle.nodes if name in reports), pipeline)


def _samples(bundle: Bundle, node: NodeManifest) -> Samples:
    """What the node was traced with, then what tries its reset input."""
    recorded = bundle.samples(node.node)
    if recorded is None:
        raise NoSamplesError(bundle=bundle.folder, node=node.node)
    entries = samples.read_samples(recorded)
    tried = bundle.evidence(f"evidence/resets/{node.node}.safetensors")
    resets = () if tried is None else samples.read_samples(tried)
    labels = sample_labels(len(entries), len(resets))
    return {
        label: (_tensors(sample.inputs), _tensors(sample.outputs))
        for label, sample in zip(labels, (*entries, *resets), strict=True)
    }


def _artifact(
    bundle: Bundle, node: NodeManifest, artifact: Artifact, cached: Samples, options: _Options, *, draws: bool
) -> FormatReport:
    spec = NodeSpec(node.node, tuple(port.port() for port in node.inputs), tuple(port.port() for port in node.outputs))
    limits = options.limits(node)
    try:
        if artifact.external:
            given = ModelFile(artifact.backend, artifact.path, artifact.sha256, artifact.md5)
            file = open_files(bundle.folder, options.model_dirs).model(node.node, given)
        else:
            file = bundle.artifact(node.node, artifact.format)
        run = backend_for(ExportFormat(artifact.format)).open(file, spec)
    except (ArtifactLoadError, FileNotFoundError) as error:
        return FormatReport(artifact.format, error=str(error))
    try:
        ports = replay(run, spec, [*cached.values()], rtol=limits.rtol, atol=limits.atol, labels=[*cached], draws=draws)
    except Exception as error:  # noqa: BLE001  # a runtime may raise anything; it is a result of the check
        return FormatReport(artifact.format, error=f"it does not run: {error}")
    return FormatReport(artifact.format, ports, note=DRAWS if draws else "")


def _entries(cached: Samples) -> list[tuple[Tensors, Tensors]]:
    return [sample for label, sample in cached.items() if not label.startswith("reset")]


def _ticks(bundle: Bundle, cached: Mapping[str, Samples]) -> TracedTicks:
    """How the traced run divides into ticks; a guess for bundles of an older leapp."""
    file = bundle.evidence("evidence/ticks.json")
    if file is None:
        return TracedTicks.of_samples({name: len(_entries(each)) for name, each in cached.items()})
    return TracedTicks.from_json(parse_json(file.read_bytes(), file), str(file))


def _pipeline(
    bundle: Bundle,
    ticks: TracedTicks,
    chosen: Mapping[str, Sequence[Artifact]],
    cached: Mapping[str, Samples],
    reports: Mapping[str, NodeReport],
    options: _Options,
) -> PipelineReport:
    """The traced ticks, played in the runtime as anybody would run the bundle."""
    entries = {name: _entries(each) for name, each in cached.items()}
    good = {(name, each.format) for name, report in reports.items() for each in report.formats if each.ok}
    formats = {
        name: [ExportFormat(each.format) for each in artifacts if (name, each.format) in good]
        for name, artifacts in chosen.items()
    }
    limits = {name: options.limits(node) for name, node in bundle.nodes.items()}
    return check_pipeline(bundle.folder, TracedRun(ticks, entries, limits), formats, model_dirs=options.model_dirs)


def _tensors(stored: Mapping[str, samples.RawTensor]) -> dict[str, torch.Tensor]:
    return {port: tensor.torch() for port, tensor in stored.items()}
