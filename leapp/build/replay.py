"""Run a bundle's own samples through all its model files again: numbers, where ``verify`` looks at bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapp._spec import ExportFormat, NodeSpec
from leapp.bundle import read, samples
from leapp.bundle.schema import Tolerances
from leapp.errors import ArtifactLoadError, NoSamplesError
from leapp.export._backend import backend_for
from leapp.replay import FormatReport, NodeReport, replay, sample_labels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from leapp.bundle.read import Bundle
    from leapp.bundle.schema import Artifact, NodeManifest

    Tensors = Mapping[str, torch.Tensor]
    Samples = Mapping[str, tuple[Tensors, Tensors]]
    """By what messages call them."""


def replay_bundle(path: Path, *, rtol: float | None = None, atol: float | None = None) -> list[NodeReport]:
    """Replay every model file of a bundle; nodes without one are left out.

    Args:
        path: the bundle. Digests of all files that are used are checked.
        rtol: relative tolerance; None: what the node's manifest says.
        atol: absolute tolerance, in each output's own unit; None: likewise.

    Raises:
        NoSamplesError: the bundle's evidence was left behind.
        BundleDigestError: a file is not the one that was written.
    """
    bundle = read.load(path)
    return [_node(bundle, node, rtol, atol) for node in bundle.nodes.values() if node.artifacts]


def _node(bundle: Bundle, node: NodeManifest, rtol: float | None, atol: float | None) -> NodeReport:
    recorded = bundle.samples(node.node)
    if recorded is None:
        raise NoSamplesError(bundle=bundle.folder, node=node.node)
    entries = samples.read_samples(recorded)
    tried = bundle.evidence(f"evidence/resets/{node.node}.safetensors")
    resets = () if tried is None else samples.read_samples(tried)
    labels = sample_labels(len(entries), len(resets))
    cached = {
        label: (_tensors(sample.inputs), _tensors(sample.outputs))
        for label, sample in zip(labels, (*entries, *resets), strict=True)
    }
    spec = NodeSpec(node.node, tuple(port.port() for port in node.inputs), tuple(port.port() for port in node.outputs))
    limits = Tolerances(node.tolerances.rtol if rtol is None else rtol, node.tolerances.atol if atol is None else atol)
    return NodeReport(node.node, tuple(_artifact(bundle, spec, each, cached, limits) for each in node.artifacts))


def _artifact(bundle: Bundle, spec: NodeSpec, artifact: Artifact, cached: Samples, limits: Tolerances) -> FormatReport:
    if artifact.external:
        return FormatReport(artifact.format, error=f"{artifact.path} was not copied into the bundle")
    file = bundle.artifact(spec.name, artifact.format)
    try:
        run = backend_for(ExportFormat(artifact.format)).open(file, spec)
    except ArtifactLoadError as error:
        return FormatReport(artifact.format, error=str(error))
    try:
        ports = replay(run, spec, [*cached.values()], rtol=limits.rtol, atol=limits.atol, labels=[*cached])
    except Exception as error:  # noqa: BLE001  # a runtime may raise anything; it is a result of the check
        return FormatReport(artifact.format, error=f"it does not run: {error}")
    return FormatReport(artifact.format, ports)


def _tensors(stored: Mapping[str, samples.RawTensor]) -> dict[str, torch.Tensor]:
    return {port: tensor.torch() for port, tensor in stored.items()}
