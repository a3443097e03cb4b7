"""Runtime files and tiny models written by hand, so that a test says exactly what it runs."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import onnx
import yaml
from onnx import TensorProto, helper

from leapp._canonical import md5_file
from leapp._dtypes import BY_NAME
from leapp.bundle.samples import write_tensors

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np


def port(name: str, *shape: int, dtype: str = "float32", **semantics: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape), "type": "tensor", **semantics}


def onnx_file(
    path: Path,
    node: dict[str, Any],
    ops: list[tuple[Any, ...]],
    constants: dict[str, Any] | None = None,
    scalars: dict[str, float] | None = None,
) -> None:
    """Write ``ops`` (operator, inputs, outputs, attributes) as a model with the ports of ``node``."""

    def values(ports: list[dict[str, Any]]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(each["name"], BY_NAME[each["dtype"]].onnx_element, each["shape"])
            for each in ports
        ]

    nodes = [
        helper.make_node(op, inputs.split(), outputs.split(), **(more[0] if more else {}))
        for op, inputs, outputs, *more in ops
    ]
    held = [helper.make_tensor(name, TensorProto.FLOAT, [len(data)], data) for name, data in (constants or {}).items()]
    held += [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in (scalars or {}).items()]
    graph = helper.make_graph(nodes, path.stem, values(node["inputs"]), values(node["outputs"]), held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


class Pipeline:
    """A folder that becomes a runtime file with its models, and nothing else."""

    def __init__(self, folder: Path, name: str = "hand") -> None:
        self.folder = folder
        self.path = folder / f"{name}.yaml"
        self.contract: dict[str, Any] = {
            "models": {},
            "pipeline": {"configs": {}, "data_flow": {}, "feedback_flow": {}, "inputs": {}, "outputs": {}},
            "system information": {"leapp config version": "1.3"},
        }
        folder.mkdir(parents=True, exist_ok=True)

    def node(
        self,
        name: str,
        inputs: list[dict[str, Any]],
        outputs: list[dict[str, Any]],
        ops: list[tuple[Any, ...]] | None = None,
        constants: dict[str, Any] | None = None,
        scalars: dict[str, float] | None = None,
        **files: bytes,
    ) -> Pipeline:
        """Add a node: an ONNX model of ``ops``, or model files by backend (``jit=``, ``pt2=``, ``onnx=``), or none."""
        node = {"inputs": inputs, "outputs": outputs}
        if ops is not None:
            onnx_file(self.folder / f"{name}.onnx", node, ops, constants, scalars)
            files = {"onnx": (self.folder / f"{name}.onnx").read_bytes()}
        artifacts = []
        for backend, data in files.items():
            file = self.folder / f"{name}.{ {'jit': 'pt'}.get(backend, backend) }"
            file.write_bytes(data)
            artifacts.append({"backend": backend, "model_path": file.name, "sha256sum": sha256(data).hexdigest()})
        parameters = {**artifacts[0], "variants": artifacts[1:]} if artifacts else {"backend": "none"}
        self.contract["models"][name] = {**node, "parameters": parameters}
        return self

    def wires(self, **pipeline: Any) -> Pipeline:
        """Set ``data_flow``, ``feedback_flow``, ``inputs``, ``outputs``."""
        self.contract["pipeline"] |= pipeline
        return self

    def start(self, **values: np.ndarray[Any, Any]) -> Pipeline:
        """Write first values; ``node__port`` stands for ``node/port``."""
        file = self.folder / "first.safetensors"
        write_tensors(file, {key.replace("__", "/"): value for key, value in values.items()})
        self.contract["pipeline"]["initial_values"] = file.name
        return self

    def write(self) -> Path:
        """Write the runtime file."""
        self.path.write_text(yaml.safe_dump(self.contract, sort_keys=False))
        return self.path

    def old(self) -> Path:
        """Write it as an old writer would: md5 alone, no variants, maps sorted."""
        for node in self.contract["models"].values():
            parameters = node["parameters"]
            parameters.pop("variants", None)
            del parameters["sha256sum"]
            parameters["md5sum"] = md5_file(self.folder / parameters["model_path"])
        self.contract["system information"]["leapp config version"] = "1.0"
        self.path.write_text(yaml.safe_dump(self.contract, sort_keys=True))
        return self.path


def counter(folder: Path, **semantics: Any) -> Pipeline:
    """``total = held + step`` fed back, and twice that from a second node."""
    return (
        Pipeline(folder)
        .node(
            "sum", [port("step", 2), port("held", 2, **semantics)], [port("total", 2)], [("Add", "step held", "total")]
        )
        .node("twice", [port("value", 2)], [port("result", 2)], [("Add", "value value", "result")])
        .wires(
            data_flow={"sum/total": ["twice/value"]},
            feedback_flow={"sum/total": ["sum/held"]},
            inputs={"sum": ["step"]},
            outputs={"twice": ["result"]},
        )
    )
