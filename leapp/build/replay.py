"""Run a bundle's own samples through all its model files again: numbers, where ``verify`` looks at bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapp._spec import ExportFormat, NodeSpec
from leapp.bundle import read, samples
from leapp.errors import ArtifactLoadError, NoSamplesError
from leapp.export._backend import backend_for
from leapp.replay import FormatReport, NodeReport, replay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

    from leapp.bundle.read import Bundle
    from leapp.bundle.schema import Artifact, NodeManifest

    Tensors = Mapping[str, torch.Tensor]
    Samples = Sequence[tuple[Tensors, Tensors]]


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
    cached = [(_tensors(sample.inputs), _tensors(sample.outputs)) for sample in samples.read_samples(recorded)]
    spec = NodeSpec(node.node, tuple(port.port() for port in node.inputs), tuple(port.port() for port in node.outputs))
    limits = {
        "rtol": node.tolerances.rtol if rtol is None else rtol,
        "atol": node.tolerances.atol if atol is None else atol,
    }
    return NodeReport(node.node, tuple(_artifact(bundle, spec, each, cached, limits) for each in node.artifacts))


def _artifact(
    bundle: Bundle, spec: NodeSpec, artifact: Artifact, cached: Samples, limits: dict[str, float]
) -> FormatReport:
    if artifact.external:
        return FormatReport(artifact.format, error=f"{artifact.path} was not copied into the bundle")
    file = bundle.artifact(spec.name, artifact.format)
    try:
        run = backend_for(ExportFormat(artifact.format)).open(file, spec)
    except ArtifactLoadError as error:
        return FormatReport(artifact.format, error=str(error))
    try:
        return FormatReport(artifact.format, replay(run, spec, cached, **limits))
    except Exception as error:  # noqa: BLE001  # a runtime may raise anything; it is a result of the check
        return FormatReport(artifact.format, error=f"it does not run: {error}")


def _tensors(stored: Mapping[str, samples.RawTensor]) -> dict[str, torch.Tensor]:
    return {port: tensor.torch() for port, tensor in stored.items()}
