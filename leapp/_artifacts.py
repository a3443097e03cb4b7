"""One node on disk: its dumps, its model files, each loaded again and replayed, and its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leapp._canonical import canonical_json, md5_file, readable_json, sha256, sha256_file
from leapp.bundle import schema, write
from leapp.bundle.contract import onnx_metadata
from leapp.errors import (
    ExportError,
    LeappError,
)
from leapp.export._backend import ExportOptions, backend_for
from leapp.export.brought import take
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import check_graph, check_replays
from leapp.graph.dump import graph_digest, graph_json, graph_text, op_counts
from leapp.graph.passes import EXPORT_PASSES
from leapp.replay import DRAWS, FormatReport, NodeReport, replay, sample_labels
from leapp.trace.recording import spec_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

    from leapp._prepare import CompileOptions, PreparedNode
    from leapp._spec import JSON, BroughtModel, ExportFormat
    from leapp.export._backend import ArtifactInfo, Runnable

    Samples = Sequence[tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]]


KEPT_BYTES = 64 << 20
"""A model up to this size stays loaded until the whole pipeline was played; larger ones are loaded once more."""


def write_node(
    node: PreparedNode, staging: Path, options: CompileOptions, loaded: dict[tuple[str, ExportFormat], Runnable]
) -> tuple[schema.NodeManifest, NodeReport, list[LeappError]]:
    """Dumps, artifacts and manifest of one node. Its models are added to ``loaded``, unless they are very large."""
    name = node.spec.name
    folder = staging / "nodes" / name
    folder.mkdir(parents=True)
    if node.has_graph:
        (folder / "graph.txt").write_text(graph_text(node.recording), encoding="utf-8", newline="\n")
        (folder / "graph.json").write_bytes(readable_json(graph_json(node.recording)))
        check_graph(node.recording)
    errors: list[LeappError] = []
    artifacts: list[ArtifactInfo] = []
    reports: list[FormatReport] = []
    if node.formats:
        graph = run_passes(node.recording, EXPORT_PASSES)
        if not node.trace.recordings[0].drew_random:
            limits = options.tolerances(name)
            check_replays(graph, *node.samples[0], rtol=limits.rtol, atol=limits.atol)
        example = tuple(node.samples[0][0][port.name] for port in node.spec.inputs)
        opset, ir_version = options.onnx_for(name)
        settings = _settings(node, opset, ir_version, options.onnx_metadata_for(name))
        for each in node.formats:
            info, report, error = _write_artifact(each, graph, example, folder, settings, node, options, loaded)
            if info is not None:
                artifacts.append(info)
            if error is not None:
                errors.append(error)
            reports.append(report)
    if node.brought is not None:
        artifacts.append(take(name, node.brought, folder))
        reports.append(_checked_brought(node, node.brought, artifacts[-1].paths[0], options, loaded))
    manifest = _node_manifest(node, artifacts, staging, options)
    (folder / "manifest.json").write_bytes(write.node_manifest_bytes(manifest))
    return manifest, NodeReport(name, tuple(reports), brought=node.brought is not None), errors


def _node_manifest(
    node: PreparedNode, artifacts: Sequence[ArtifactInfo], staging: Path, options: CompileOptions
) -> schema.NodeManifest:
    constants = tuple(
        schema.Constant(name, spec.dtype, spec.shape, node.digests[name])
        for name, spec in ((name, spec_of(tensor)) for name, tensor in sorted(node.recording.constants.items()))
    )
    return schema.NodeManifest(
        schema=schema.SCHEMA_VERSION,
        node=node.spec.name,
        inputs=tuple(schema.PortEntry.of(port) for port in node.spec.inputs),
        outputs=tuple(schema.PortEntry.of(port) for port in node.spec.outputs),
        artifacts=tuple(_artifact(info, staging) for info in artifacts),
        ops=op_counts(node.recording) if node.has_graph else {},
        constants=constants,
        tolerances=options.tolerances(node.spec.name),
        graph_sha256=graph_digest(node.recording) if node.has_graph else None,
        weights_sha256=sha256(canonical_json([schema.to_json(each) for each in constants])) if node.has_graph else None,
    )


def _artifact(info: ArtifactInfo, staging: Path) -> schema.Artifact:
    model, *data = info.paths
    facts: Any = info.details
    external = not model.is_relative_to(staging)
    return schema.Artifact(
        format=info.format.value,
        backend=info.format.backend,
        path=model.name if external else model.relative_to(staging).as_posix(),
        sha256=sha256_file(model),
        md5=md5_file(model),
        size=model.stat().st_size,
        opset_version=facts.get("opset_version"),
        ir_version=facts.get("ir_version"),
        method=facts.get("method"),
        data_paths=tuple(path.relative_to(staging).as_posix() for path in data),
        external=external,
    )


def _settings(node: PreparedNode, opset: int, ir_version: int, metadata: Mapping[str, JSON]) -> ExportOptions:
    asked: Any = node.trace.backend_params
    return ExportOptions(
        opset_version=int(asked.get("opset_version") or opset),
        ir_version=ir_version,
        optimize=bool(asked.get("optimize", True)),
        metadata=onnx_metadata(node.spec, metadata),
    )


def _write_artifact(
    each: ExportFormat,
    graph: NodeGraph,
    example: tuple[torch.Tensor, ...],
    folder: Path,
    settings: ExportOptions,
    node: PreparedNode,
    options: CompileOptions,
    loaded: dict[tuple[str, ExportFormat], Runnable],
) -> tuple[ArtifactInfo | None, FormatReport, LeappError | None]:
    """Write one artifact, load it again and replay the samples."""
    path = folder / f"{graph.spec.name}{each.suffix}"
    backend = backend_for(each)
    try:
        info = backend.write(graph, example, path, settings)
        if not options.validate:
            return info, FormatReport(each.value), None
        run = backend.open(path, graph.spec)
    except ExportError as error:
        return None, FormatReport(each.value, error=str(error)), error
    _keep(loaded, node, each, run, info.paths)
    return info, _replayed(run, each, node, options), None


def _keep(
    loaded: dict[tuple[str, ExportFormat], Runnable],
    node: PreparedNode,
    each: ExportFormat,
    run: Runnable,
    paths: Sequence[Path],
) -> None:
    if sum(path.stat().st_size for path in paths) <= KEPT_BYTES:
        loaded[node.spec.name, each] = run


def _replayed(run: Runnable, each: ExportFormat, node: PreparedNode, options: CompileOptions) -> FormatReport:
    try:
        limits = options.tolerances(node.spec.name)
        labels = sample_labels(len(node.samples), len(node.resets))
        checked = [*node.samples, *node.resets]
        ports = replay(run, node.spec, checked, rtol=limits.rtol, atol=limits.atol, labels=labels, draws=node.draws)
    except Exception as error:  # noqa: BLE001 - a runtime may raise anything; it is a result of the check
        return FormatReport(each.value, error=f"the artifact does not run: {error}")
    return FormatReport(each.value, ports, note=DRAWS if node.draws else "")


def _checked_brought(
    node: PreparedNode,
    model: BroughtModel,
    path: Path,
    options: CompileOptions,
    loaded: dict[tuple[str, ExportFormat], Runnable],
) -> FormatReport:
    """The recorded samples, replayed through the file that a node brings."""
    if not options.validate:
        return FormatReport(model.format.value)
    run = backend_for(model.format).open(path, node.spec)
    _keep(loaded, node, model.format, run, [path])
    return _replayed(run, model.format, node, options)
