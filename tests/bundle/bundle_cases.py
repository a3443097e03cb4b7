"""A small, complete bundle of two nodes, made of plain files; no model library takes part."""

from __future__ import annotations

import json
from hashlib import md5, sha256
from typing import TYPE_CHECKING, Any

import yaml

from leapp._canonical import canonical_json, readable_json
from leapp._spec import NodeSpec, PipelineSpec, Port, TensorSpec
from leapp.bundle import contract, schema, write
from leapp.bundle.samples import RawTensor, write_samples, write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = {
    "onnx": ("onnx", "onnx", 20),
    "pt2": ("pt2", "pt2", None),
    "pt": ("torchscript", "jit", None),
}
TOOLCHAIN = {
    "leapp config version": "1.3",
    "leapp version": "0.1.0",
    "torch version": "2.13.0",
    "python version": "3.11",
    "warp version": None,
    "cuda version": None,
    "os": "linux-x86_64",
}


def port(name: str, *shape: int, dtype: str = "float32", **semantics: Any) -> Port:
    return Port(name, TensorSpec(dtype, shape), semantics)


def two_nodes(first: str = "estimator", second: str = "policy", **configs: Any) -> PipelineSpec:
    """The example of the contract: one wire forward, one state, one feedback wire between nodes."""
    estimator = NodeSpec(
        first,
        (
            port("joint_pos", 3, unit="rad", kind="state/joint/position", element_names=[["hip", "knee", "ankle"]]),
            port("memory", 3),
        ),
        (port("features", 3),),
    )
    actions = port(
        "actions",
        4,
        3,
        temporal_period_ms=20,
        element_names=["__temporal_axis__", ["hip", "knee", "ankle"]],
        kind="target/joint/position",
    )
    policy = NodeSpec(
        second, (port("features", 3), port("hidden", 3)), (actions, port("memory_out", 3), port("hidden", 3))
    )
    return PipelineSpec(
        "two",
        (estimator, policy),
        data_flow={f"{first}/features": (f"{second}/features",)},
        feedback_flow={f"{second}/memory_out": (f"{first}/memory",), f"{second}/hidden": (f"{second}/hidden",)},
        inputs={first: ("joint_pos",)},
        outputs={second: ("actions", "memory_out")},
        configs=configs or {"frequency": 50},
    )


def artifact(staging: Path, node: str, suffix: str, data: bytes) -> schema.Artifact:
    path = staging / "nodes" / node / f"{node}.{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    format, backend, opset = FILES[suffix]
    return schema.Artifact(
        format,
        backend,
        path.relative_to(staging).as_posix(),
        sha256(data).hexdigest(),
        md5(data, usedforsecurity=False).hexdigest(),
        len(data),
        opset_version=opset,
    )


def manifest_of(node: NodeSpec, *artifacts: schema.Artifact, **changes: Any) -> schema.NodeManifest:
    fields: dict[str, Any] = {
        "schema": schema.SCHEMA_VERSION,
        "node": node.name,
        "inputs": tuple(map(schema.PortEntry.of, node.inputs)),
        "outputs": tuple(map(schema.PortEntry.of, node.outputs)),
        "artifacts": artifacts,
        "ops": {"torch.add": 2},
        "constants": (schema.Constant("_tensor_constant0", "float32", (2,), "0" * 64),),
        "tolerances": schema.Tolerances(1e-3, 1e-5),
        "graph_sha256": "1" * 64,
        "weights_sha256": None,
    }
    return schema.NodeManifest(**(fields | changes))


def stage(
    staging: Path, name: str = "two", marker: str = "model", nodes: tuple[str, str] = ("estimator", "policy")
) -> None:
    """All files of a bundle but those that sealing writes. ``marker`` is part of every model file."""
    spec = two_nodes(*nodes)
    manifests = []
    for node, suffixes in zip(spec.nodes, (("onnx", "pt2"), ("pt",)), strict=True):
        made = [artifact(staging, node.name, each, f"{marker} {node.name} {each}".encode()) for each in suffixes]
        manifests.append(manifest_of(node, *made))
        folder = staging / "nodes" / node.name
        (folder / "manifest.json").write_bytes(write.node_manifest_bytes(manifests[-1]))
        (folder / "graph.txt").write_text("graph\n")
    initial = staging / f"{name}_initial_values.safetensors"
    write_tensors(initial, {f"{nodes[0]}/memory": RawTensor("float32", (3,), bytes(12))})
    digest = sha256(initial.read_bytes()).hexdigest()
    (staging / f"{name}.yaml").write_bytes(
        contract.contract_yaml(spec, manifests, initial_values=(initial.name, digest), toolchain=TOOLCHAIN)
    )
    (staging / "evidence" / "samples").mkdir(parents=True)
    (staging / "evidence" / "sources").mkdir()
    sample = {"features": RawTensor("float32", (3,), bytes(12))}
    write_samples(staging / "evidence" / "samples" / f"{nodes[0]}.safetensors", [(sample, sample)])
    (staging / "evidence" / "sources" / f"{nodes[0]}.json").write_bytes(readable_json({"add": {"line": 3}}))
    (staging / f"{name}.png").write_bytes(b"\x89PNG")
    (staging / "log.txt").write_text("done\n")


def make(folder: Path, name: str = "two", version: str = "1.0.0", status: str = "ok", **options: Any) -> str:
    """A sealed bundle in ``folder``; its digest."""
    folder.mkdir(parents=True, exist_ok=True)
    stage(folder, name, **options)
    return write.seal(folder, name=name, version=version, status=status)


def rewrite_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file in place, keeping the form in which it was written."""
    value = json.loads(path.read_text())
    change(value)
    path.write_bytes(readable_json(value))


def reseal(folder: Path) -> None:
    """What a forger does: take all digests anew. Only contradictions between files are left to be found."""
    value = json.loads((folder / "bundle.json").read_text())
    for entry in value["files"]:
        data = (folder / entry["path"]).read_bytes()
        entry["size"], entry["sha256"] = len(data), sha256(data).hexdigest()
    sign(folder, value)


def sign(folder: Path, value: dict[str, Any]) -> None:
    """Write ``bundle.json`` with a digest that fits, whatever else it says."""
    value.pop("digest", None)
    value["digest"] = sha256(canonical_json(value)).hexdigest()
    (folder / "bundle.json").write_bytes(readable_json(value))


def rewrite_yaml(folder: Path, change: Callable[[Any], Any]) -> None:
    """Change the runtime file and take all digests anew."""
    path = next(folder.glob("*.yaml"))
    value = yaml.safe_load(path.read_bytes())
    change(value)
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    reseal(folder)
