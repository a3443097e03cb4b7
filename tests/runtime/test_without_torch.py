"""ONNX pipelines where neither torch nor onnx is: with both blocked, and on a path that holds nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pipelines import Pipeline, counter, port

from leapp.bundle.samples import RawTensor, write_tensors
from leapp.runtime.log import read_ticks

ROOT = Path(__file__).parents[2]

BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "onnx", "onnxscript", "safetensors", "ml_dtypes"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.meta_path.insert(0, Block())
"""

RUN = """
import json, sys
import numpy as np
import leapp

run = leapp.InferenceManager(sys.argv[1])
run.set_input_value("sum", "held", np.float32([1, 1]))
results = [run({"sum/step": np.float32([1, 2])})["twice/result"] for _ in range(2)]
assert all(type(each) is np.ndarray for each in (*results, *run.get_mock_input().values(), *run.outputs.values()))
try:
    leapp.InferenceManager(sys.argv[2])
except leapp.LeappError as error:
    refused = type(error).__name__ + ": " + str(error)
heavy = sorted({"torch", "onnx", "onnxscript", "safetensors"} & {name.partition(".")[0] for name in sys.modules})
print(json.dumps([[each.tolist() for each in results], refused, heavy]))
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A pipeline of ONNX files, and one that needs torch."""
    folder = tmp_path_factory.mktemp("plain")
    needs_torch = Pipeline(folder / "torch").node("t", [port("x", 2)], [port("y", 2)], jit=b"whatever")
    return (
        counter(folder / "onnx").start(sum__held=np.float32([0, 0])).write(),
        needs_torch.wires(inputs={"t": ["x"]}, outputs={"t": ["y"]}).write(),
    )


def check(done):
    assert done.returncode == 0, done.stderr
    results, refused, heavy = json.loads(done.stdout)
    assert results == [[4, 6], [6, 10]]
    assert refused.startswith("MissingDependencyError: Node 't' as jit needs torch, which is not installed.")
    assert heavy == []


def test_where_torch_and_onnx_cannot_be_imported(paths):
    command = [sys.executable, "-c", BLOCKED + RUN, *map(str, paths)]
    check(subprocess.run(command, capture_output=True, text=True, check=False))


def test_on_a_path_with_onnxruntime_numpy_and_pyyaml_alone(paths, tmp_path):
    # -S leaves site-packages out; what is linked here is all there is besides the standard library. (flatbuffers and
    # protobuf are what onnxruntime itself declares.)
    for package in ("onnxruntime", "numpy", "yaml", "_yaml", "google", "flatbuffers"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            (tmp_path / package).symlink_to(next(iter(spec.submodule_search_locations)))
    libraries = Path(next(iter(importlib.util.find_spec("numpy").submodule_search_locations))).with_name("numpy.libs")
    if libraries.is_dir():
        (tmp_path / "numpy.libs").symlink_to(libraries)
    (tmp_path / "leapp").symlink_to(ROOT / "leapp")
    done = subprocess.run(
        [sys.executable, "-S", "-c", RUN, *map(str, paths)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    check(done)


CLI = """
from leapp.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_command_without_torch(paths, tmp_path):
    inputs, log = tmp_path / "inputs.safetensors", tmp_path / "log.safetensors"
    write_tensors(inputs, {"sum/step": np.float32([1, 2])})
    arguments = ["run", str(paths[0]), "--steps", "3", "--inputs", str(inputs), "--log", str(log)]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + CLI, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "twice/result  float32[2]  [ 6. 12.]" in done.stdout
    ticks = read_ticks(log).ticks
    assert [tick.outputs["twice/result"].numpy().tolist() for tick in ticks] == [[2, 4], [4, 8], [6, 12]]
    replayed = [sys.executable, "-c", BLOCKED + CLI, "replay", str(paths[0]), str(log)]
    done = subprocess.run(replayed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "3 ticks agree with the log."), done.stderr


BITS = """
import numpy as np
import leapp

run = leapp.InferenceManager(sys.argv[1], guard=True)
first = run({"n/x": np.uint16([0x3F80, 0x4000])})
assert first["n/y"].dtype == np.uint16, first
print([hex(each) for each in first["n/y"].tolist()])
run({"n/x": np.uint16([0x3F80, 0x7F80])})
"""


def test_bfloat16_is_bits_in_arrays(tmp_path):
    ports = [port("x", 2, dtype="bfloat16")], [port("y", 2, dtype="bfloat16", range=[0, 3])]
    pipeline = Pipeline(tmp_path).node("n", *ports, [("Identity", "x", "y")])
    path = pipeline.wires(inputs={"n": ["x"]}, outputs={"n": ["y"]}).write()
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + BITS, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "['0x3f80', '0x4000']\n"
    assert "GuardInputError: Input 'n/x' was given inf at [1]; then output 'n/y' is inf at [1]" in done.stderr
    # And the command knows them: what it writes is bfloat16 again.
    write_tensors(tmp_path / "in.safetensors", {"n/x": RawTensor("bfloat16", (2,), b"\x80\x3f\x00\x40")})
    arguments = ["run", str(path), "--inputs", str(tmp_path / "in.safetensors"), "--log", str(tmp_path / "log")]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + CLI, *arguments], capture_output=True, text=True, check=False
    )
    assert "n/y     bfloat16[2]  [1. 2.]" in done.stdout, done.stderr
    assert read_ticks(tmp_path / "log").ticks[0].outputs["n/y"] == RawTensor("bfloat16", (2,), b"\x80\x3f\x00\x40")
