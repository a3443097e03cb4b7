"""Bundles as they are really written: the words for each change that a person can make to a script."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import leapp
from leapp import TensorSemantics, annotate
from leapp.bundle.diff import BundleDiff, Step, diff, explain

JOINTS = ("hip", "knee", "ankle")


def write(
    folder: Any, *, joints=JOINTS, order="wxyz", take=(3, 0, 1, 2), offset=(0.1, 0.2, 0.3), **changes: Any
) -> Any:
    """One node of a robot, in the formats asked for."""
    torch.manual_seed(0)
    net = torch.nn.Linear(7, 3)
    with torch.no_grad():
        net.weight[1, 2] += changes.get("weight", 0.0)
    offsets = torch.tensor(offset)
    leapp.start("robot", save_path=str(folder))
    hidden = torch.full((3,), changes.get("start", 0.0))
    for _ in range(2):
        quaternion, position = annotate.input_tensors(
            "policy",
            [
                TensorSemantics(
                    "base", torch.randn(4), kind="state/body/rotation", element_names=[f"q{axis}" for axis in order]
                ),
                TensorSemantics("joints", torch.randn(3), kind="state/joint/position", element_names=list(joints)),
            ],
        )
        memory = annotate.state_tensors("policy", {"memory": hidden})
        x = net(torch.cat([quaternion[list(take)], position + offsets]))
        y = torch.tanh(x) * changes.get("gain", 2.0) + memory
        hidden = y * 0.5
        annotate.update_state("policy", {"memory": hidden})
        action = TensorSemantics("action", y, kind="target/joint/position", element_names=list(joints))
        annotate.output_tensors("policy", action, export_with=changes.get("formats", ["torchscript"]))
    leapp.stop()
    config = leapp.GraphConfigs(frequency=changes.get("rate", 50))
    leapp.compile_graph(visualize=False, validate=False, graph_configs=config)
    return folder / "robot"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return write(tmp_path_factory.mktemp("first"))


CASES = (
    ({"joints": ("knee", "hip", "ankle")}, Step.MAJOR, ("contract of node 'policy'", "2 of 3 moved"), "contract"),
    ({"order": "xyzw"}, Step.MAJOR, ("another rotation convention: wxyz -> xyzw",), "contract"),
    ({"take": (0, 1, 2, 3)}, Step.MAJOR, ("graph of node 'policy'", "another rotation convention"), "graph"),
    ({"offset": (0.3, 0.1, 0.2)}, Step.MAJOR, ("constants of node 'policy'", "in another order: 2, 0, 1"), "weights"),
    ({"rate": 100}, Step.MAJOR, ("contract of the pipeline changed: rate: 50 Hz -> 100 Hz",), "contract"),
    ({"start": 1.0}, Step.MAJOR, ("start of state changed", "zeros -> [1, 1, 1]"), ""),
    ({"weight": 0.03}, Step.MINOR, ("weights of node 'policy' changed: weight, largest difference 0.03",), "weights"),
    ({"gain": 2.5}, Step.MINOR, ("torch.mul: argument 2: 2.0 -> 2.5", "test_diff_built.py:"), "graph"),
)


@pytest.mark.parametrize(("change", "step", "said", "group"), CASES, ids=lambda each: str(each) if each else None)
def test_a_change_is_named(first, tmp_path, change, step, said, group):
    found = diff(first, write(tmp_path, **change))
    lines = explain(found)
    assert all(part in lines[0] for part in said), lines
    assert found.advice.step is step
    stayed = {"contract", "graph", "weights", "tool chain"} - {group}
    assert set(lines[-1].removeprefix("unchanged: ").split(", ")) == stayed
    assert explained(found)


def explained(found: BundleDiff) -> bool:
    return not any("bytes only" in each.causes for each in found.files)


def test_the_same_again_is_equal(first, tmp_path):
    assert diff(first, write(tmp_path)).equal


@pytest.mark.parametrize("format", ["pt2", "onnx"])
def test_values_are_read_from_each_format(tmp_path, format):
    a = write(tmp_path / "a", formats=[format])
    b = write(tmp_path / "b", formats=[format], weight=0.25)
    (found,) = diff(a, b).findings
    assert found.part == "constant 'weight'"
    assert (found.values.differing, found.values.where) == (1, (1, 2))
    assert found.values.largest == pytest.approx(0.25)
