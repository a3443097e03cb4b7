"""An exporter of a manager-based environment plays its calls end to end, with TorchScript switched off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import manager_env
import onnx
import pytest
import torch

from leapp import InferenceManager
from leapp.bundle.read import load, verify

CLIENT = Path(manager_env.__file__)
NODE = manager_env.NODE
CASES = {
    "PYTORCH_JIT=0": ("Isaac-like Velocity: Flat (D)-v0", ["jit", "onnx"], [], {"PYTORCH_JIT": "0"}),
    "disabled": ("exports/_Flat-v0", ["onnx", "pt2"], ["--off"], {}),
}


@pytest.fixture(scope="module", params=CASES)
def exported(request, tmp_path_factory):
    """Name, formats and bundle of an export in a process of its own."""
    name, formats, arguments, environment = CASES[request.param]
    folder = tmp_path_factory.mktemp("client")
    done = subprocess.run(
        [sys.executable, str(CLIENT), *arguments, str(folder), name, *formats],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    return name, formats, folder / name


def test_the_bundle_is_whole_and_named_as_asked(exported):
    name, formats, bundle = exported
    assert verify(bundle).ok
    assert load(bundle).name == name.rpartition("/")[2]
    assert len(load(bundle).node(NODE).artifacts) == len(formats)


def test_ports_have_the_kinds_names_and_free_fields_that_the_client_gave(exported):
    model = load(exported[2]).contract["models"][NODE]
    inputs, outputs = ({port["name"]: port for port in model[direction]} for direction in ("inputs", "outputs"))
    # In the order in which the terms read them; the state stands where it was declared.
    assert list(inputs) == ["root_quat_w", "Command (x, y, yaw)", "joint_pos", "joint_vel", "last_action_in"]
    assert inputs["joint_pos"] == {
        "name": "joint_pos", "dtype": "float32", "shape": [1, 4], "type": "tensor", "kind": "state/joint/position",
        "element_names": [None, manager_env.JOINTS], "connection": "state:robot:joint_pos", "unit": "rad",
    }  # fmt: skip
    assert inputs["Command (x, y, yaw)"]["kind"] == "command/body/velocity"
    assert outputs["joint_targets"]["type_"] == "position"
    assert {port: outputs[port]["kind"] for port in ("joint_targets", "Kp", "Kd")} == {
        "joint_targets": "target/joint/position", "Kp": "kp", "Kd": "kd",
    }  # fmt: skip


def test_the_pipeline_says_rate_free_fields_and_feedback_for_every_reader(exported):
    contract = load(exported[2]).contract
    pipeline = contract["pipeline"]
    assert pipeline["configs"] == {"frequency": 50.0, "sim": {"decimation": 4, "dt": 0.005}, "task": NODE}
    assert contract["semantic"] == {"scene": {"dt": 0.02}}
    assert pipeline["feedback_flow"] == {f"{NODE}/last_action_out": [f"{NODE}/last_action_in"]}
    assert pipeline["feedback_connections"] == pipeline["feedback_flow"]
    assert pipeline["inputs"] == {NODE: ["root_quat_w", "Command (x, y, yaw)", "joint_pos", "joint_vel"]}
    assert pipeline["outputs"] == {NODE: ["joint_targets", "Kp", "Kd"]}


def test_the_onnx_file_calls_its_ports_as_the_runtime_file_does(exported):
    bundle = load(exported[2])
    graph = onnx.load(bundle.folder / "nodes" / NODE / f"{NODE}.onnx").graph
    node = bundle.node(NODE)
    assert [each.name for each in graph.input] == [port.name for port in node.inputs]
    assert [each.name for each in graph.output] == [port.name for port in node.outputs]


def test_every_format_follows_the_untraced_environment_tick_by_tick(exported):
    _, formats, bundle = exported
    for format in formats:
        env = manager_env.Environment(seed=11)
        manager = InferenceManager(bundle, formats=format)
        for _ in range(5):
            robot = env.robot
            inputs = {
                "root_quat_w": robot.root_quat_w,
                "Command (x, y, yaw)": env.command,
                "joint_pos": robot.joint_pos,
                "joint_vel": robot.joint_vel,
            }
            got = manager({f"{NODE}/{port}": value for port, value in inputs.items()})
            torch.testing.assert_close(got[f"{NODE}/joint_targets"], env.tick().clone(), rtol=1e-5, atol=1e-5)
            assert torch.equal(got[f"{NODE}/Kp"], robot.stiffness)
            env.sense()
