"""A tick of ten small chained nodes in the runtime, against calling the loaded models by hand in the same order.

By hand means what a user would write: each model loaded by its own library, called as its documentation shows, without
checks of inputs, without feedback, on one thread. CPU time; both take turns in one process.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import torch
from _measure import ratio

import leapp

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 1.10
NODES = 10
TICKS = 20
TURNS = 300


def export(folder: str) -> Path:
    """A chain of nodes, each a small layer, in all formats."""
    value = torch.randn(8)
    leapp.start("chain", save_path=folder)
    for index in range(NODES):
        layer = torch.nn.Linear(8, 8).requires_grad_(requires_grad=False)
        value = leapp.annotate.input_tensors(f"node{index}", {"x": value})
        value = torch.tanh(layer(value))
        formats = ["onnx", "pt2", "torchscript"]
        leapp.annotate.output_tensors(f"node{index}", {"y": value}, export_with=formats)
    leapp.stop()
    leapp.compile_graph()
    return Path(folder, "chain")


def files(bundle: Path, suffix: str) -> list[str]:
    """The model files in the order of the chain."""
    return [str(bundle / "nodes" / f"node{index}" / f"node{index}{suffix}") for index in range(NODES)]


def onnx_by_hand(bundle: Path, x: torch.Tensor) -> Callable[[], Any]:
    """Sessions of onnxruntime, arrays in between."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    sessions = [
        onnxruntime.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
        for path in files(bundle, ".onnx")
    ]
    names = ["y"]

    def tick() -> Any:
        value = x.numpy()
        for session in sessions:
            (value,) = session.run(names, {"x": value})
        return torch.from_numpy(value)

    return tick


def torch_by_hand(models: list[Any], x: torch.Tensor) -> Callable[[], Any]:
    """Modules of torch."""

    def tick() -> Any:
        value = x
        with torch.no_grad():
            for model in models:
                value = model(value)
        return value

    return tick


def seconds(tick: Callable[[], Any]) -> float:
    """CPU time of one tick, of many in a row."""
    begin = time.process_time()
    for _ in range(TICKS):
        tick()
    return (time.process_time() - begin) / TICKS


def main() -> int:
    """Print each figure; 1 when one is above its limit."""
    torch.set_num_threads(1)
    fine = True
    with tempfile.TemporaryDirectory() as folder:
        bundle = export(folder)
        x = torch.randn(8)
        inputs = {"node0/x": x}
        load: Any = torch.jit.load
        by_hand = {
            "onnx": onnx_by_hand(bundle, x),
            "pt2": torch_by_hand([torch.export.load(path).module() for path in files(bundle, ".pt2")], x),
            "torchscript": torch_by_hand([load(path) for path in files(bundle, ".pt")], x),
        }
        for name, hand in by_hand.items():
            manager = leapp.InferenceManager(bundle, formats=name)

            def ours(manager: leapp.InferenceManager = manager) -> Any:
                return manager(inputs)

            expected = hand().numpy()
            for _ in range(3):  # TorchScript by hand compiles in its first calls
                hand()
                np.testing.assert_allclose(next(iter(ours().values())).numpy(), expected, rtol=1e-6)
            gc.collect()
            turns = [(seconds(hand), seconds(ours)) for _ in range(TURNS)]
            floor, taken = (min(each) for each in zip(*turns, strict=True))
            fine &= ratio(f"{NODES} nodes, {name}", taken, "the models by hand", floor, LIMIT, "us")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
