"""Ticks of pipelines: feedback, first values, overrides, resets, and ticks that fail."""

from __future__ import annotations

import io
import types

import numpy as np
import pytest
import torch
from pipelines import Pipeline, counter, port

import leapp
from leapp import errors


@pytest.fixture
def run(tmp_path):
    return leapp.InferenceManager(counter(tmp_path).start(sum__held=np.float32([1, 2])).write())


def given(*values):
    return {"sum/step": np.float32(values)}


def result(manager, *values):
    return manager(given(*values))["twice/result"].tolist()


def everything(manager):
    return [
        {key: value.tolist() for key, value in values.items()}
        for values in (manager.inputs, manager.outputs, manager.feedback_inputs)
    ]


def test_feedback_is_held_from_its_first_value(run):
    assert run.feedback_inputs["sum/held"].tolist() == [1, 2]
    assert result(run, 10, 20) == [22, 44]
    assert run.feedback_inputs["sum/held"].tolist() == [11, 22]
    assert result(run, 1, 1) == [24, 46]
    assert run.inputs["sum/step"].tolist() == [1, 1]
    assert {key: value.tolist() for key, value in run.outputs.items()} == {
        "sum/total": [12, 23],
        "twice/result": [24, 46],
    }
    run.reset()
    assert run.outputs["sum/total"].tolist() == [0, 0]
    assert result(run, 10, 20) == [22, 44]


def test_outputs_and_inputs_are_copies(run):
    step = torch.tensor([10.0, 20.0])
    first = run({"sum/step": step})["twice/result"]
    first.zero_()
    run.outputs["sum/total"].zero_()
    run.feedback_inputs["sum/held"].zero_()
    step.zero_()
    assert result(run, 0, 0) == [22, 44]
    assert first.tolist() == [0, 0]
    second = run(given(1, 1))["twice/result"]
    for _ in range(3):
        run(given(5, 5))
    assert second.tolist() == [24, 46]


def test_tensors_come_back_where_torch_is_installed(run):
    assert type(run.run_policy(given(0, 0))["twice/result"]) is torch.Tensor
    assert type(run.get_mock_input()["sum/step"]) is torch.Tensor


def test_an_override_counts_for_one_tick(run):
    run.set_input_value("sum", "held", np.float32([100, 100]))
    run.set_input_value("sum", "step", torch.tensor([1.0, 2.0]))
    assert run({})["twice/result"].tolist() == [202, 204]
    assert result(run, 0, 0) == [202, 204]
    run.set_input_value("sum", "step", np.float32([0, 0]))
    assert result(run, 50, 50) == [202, 204], "an override wins over what is given"
    assert result(run, 1, 1) == [204, 206]
    run.set_input_value("sum", "held", np.float32([0, 0]))
    run.set_input_value("sum", "step", np.float32([9, 9]))
    run.reset()
    assert result(run, 0, 0) == [2, 4]


@pytest.mark.parametrize("first", [False, True])
def test_a_state_starts_with_the_first_input(tmp_path, first):
    pipeline = counter(tmp_path, start="first-input:step").start(sum__held=np.float32([0, 0]))
    run = leapp.InferenceManager(pipeline.write())
    if first:
        run.set_input_value("sum", "held", np.float32([100, 100]))
        assert result(run, 1, 2) == [202, 204]
        run.reset()
    assert run.feedback_inputs["sum/held"].tolist() == [0, 0]
    assert result(run, 1, 2) == [4, 8]
    assert result(run, 1, 2) == [6, 12]
    run.reset()
    assert result(run, 5, 5) == [20, 20]


def test_a_state_starts_with_what_another_node_gives_it_in_that_tick(tmp_path):
    """In torch too: ``wide`` starts with ``x``, which comes from a node of this tick, and ``far`` with ``wide``."""

    class Mean(torch.nn.Module):
        def forward(self, x, far, wide):
            return 0.5 * x + 0.5 * wide, far + 1

    data = io.BytesIO()
    torch.jit.save(torch.jit.script(Mean()), data)
    inputs = [port("x", 2), port("far", 2, start="first-input:wide"), port("wide", 2, start="first-input:x")]
    pipeline = (
        Pipeline(tmp_path)
        .node("twice", [port("x", 2)], [port("y", 2)], [("Add", "x x", "y")])
        .node("mean", inputs, [port("wide", 2), port("far", 2)], jit=data.getvalue())
        .wires(
            data_flow={"twice/y": ["mean/x"]},
            feedback_flow={"mean/wide": ["mean/wide"], "mean/far": ["mean/far"]},
            inputs={"twice": ["x"]},
            outputs={"mean": ["wide", "far"]},
        )
        .start(mean__wide=np.float32([0, 0]), mean__far=np.float32([0, 0]))
    )
    run = leapp.InferenceManager(pipeline.write())
    for _ in range(2):
        first = run({"twice/x": np.float32([1, 2])})
        assert {key: value.tolist() for key, value in first.items()} == {"mean/wide": [2, 4], "mean/far": [3, 5]}
        second = run({"twice/x": np.float32([0, 0])})
        assert {key: value.tolist() for key, value in second.items()} == {"mean/wide": [1, 2], "mean/far": [4, 6]}
        run.reset()


def test_resets_may_be_left_out_whatever_their_shape(tmp_path):
    inputs = [
        port("x", 2),
        *(port(f"r{at}", *shape, dtype="bool", kind="reset") for at, shape in enumerate([(), (2,)])),
    ]
    ops = [("Or", "r0 r1", "r"), ("Where", "r zero x", "y")]
    pipeline = Pipeline(tmp_path).node("n", inputs, [port("y", 2)], ops, {"zero": [0.0, 0.0]})
    run = leapp.InferenceManager(pipeline.wires(inputs={"n": ["x", "r0", "r1"]}, outputs={"n": ["y"]}).write())
    x = np.float32([1, 2])
    assert run({"n/x": x})["n/y"].tolist() == [1, 2]
    assert run({"n/x": x, "n/r1": np.array([True, False])})["n/y"].tolist() == [0, 2]
    assert run({"n/x": x, "n/r0": np.array(True)})["n/y"].tolist() == [0, 0]
    with pytest.raises(errors.PipelineInputError, match="'n/x': it is missing"):
        run({"n/r0": np.array(True)})


BAD = [
    ({}, errors.PipelineInputError, "'sum/step': it is missing"),
    (
        {"sum/stop": 1},
        errors.UnknownPortError,
        "'sum/stop' is no outer input of this pipeline.\nDid you mean 'sum/step'? There are: ",
    ),
    ({"sum/held": 1}, errors.UnknownPortError, "'sum/held' is fed back from 'sum/total'; set_input_value"),
    ({"twice/value": 1}, errors.UnknownPortError, "'twice/value' is fed by 'sum/total'"),
    ({"sum/step": [1.0, 2.0]}, errors.PipelineInputError, "a list was given"),
    ({"sum/step": None}, errors.PipelineInputError, "a NoneType was given"),
    ({"sum/step": np.zeros(2)}, errors.PipelineInputError, "float64[2] was given, float32[2] is expected"),
    ({"sum/step": np.zeros((1, 2), "f")}, errors.PipelineInputError, "float32[1, 2] was given"),
    ({"sum/step": np.float32(1)}, errors.PipelineInputError, "float32[] was given"),
    ({"sum/step": np.zeros(2, ">f4")}, errors.PipelineInputError, "was given"),
    ({"sum/step": np.ma.zeros(2, "f")}, errors.PipelineInputError, "MaskedArray was given"),
    ({"sum/step": torch.zeros(3)}, errors.PipelineInputError, "float32[3] was given"),
    ({"sum/step": torch.zeros(2, dtype=torch.int32)}, errors.PipelineInputError, "int32[2] was given"),
    ({"sum/step": torch.zeros(2, device="meta")}, errors.PipelineInputError, "it cannot be copied"),
    ({"sum/step": torch.zeros(2).to_sparse()}, errors.PipelineInputError, "it cannot be copied"),
]


@pytest.mark.parametrize(("inputs", "error", "text"), BAD, ids=lambda each: each if isinstance(each, str) else "")
def test_a_bad_input_is_one_clear_error_and_changes_nothing(run, inputs, error, text):
    run(given(1, 1))
    before = everything(run)
    with pytest.raises(error) as caught:
        run(inputs)
    assert text in str(caught.value)
    assert "\\n" not in str(caught.value)
    assert everything(run) == before
    assert result(run, 0, 0) == [4, 6]


def test_what_is_no_mapping(run):
    for bad in ([1], np.zeros(2, "f"), "sum/step"):
        with pytest.raises(errors.PipelineInputError, match="was given as the inputs of a tick, in place of a dict"):
            run(bad)
    assert run(types.MappingProxyType(given(0, 0)))["twice/result"].tolist() == [2, 4]


def test_unknown_keys_are_key_errors_and_failures_runtime_errors(run):
    with pytest.raises(KeyError):
        run({"sum/stop": 1})
    with pytest.raises(KeyError):
        run.set_input_value("sum", "total", np.float32([0, 0]))
    with pytest.raises(errors.UnknownPortError, match="'twice/value' is fed by 'sum/total' within each tick"):
        run.set_input_value("twice", "value", np.float32([0, 0]))
    with pytest.raises(RuntimeError):
        run({})


class Flaky:
    """Fails on demand."""

    failing = False

    def __call__(self, inputs):
        if self.failing:
            raise OSError("the camera is gone\nfor good")
        return {"result": inputs["value"] * 2}


@pytest.mark.parametrize("start", ["zeros", "first-input:step"])
def test_a_node_that_fails_half_way_undoes_the_tick(tmp_path, start):
    pipeline = counter(tmp_path, start=start).start(sum__held=np.float32([0, 0]))
    flaky = Flaky()
    run = leapp.InferenceManager(pipeline.write(), callables={"twice": flaky})
    assert run.backends == {"sum": "onnx", "twice": "callable"}
    flaky.failing = True
    run.set_input_value("sum", "step", np.float32([1, 1]))
    for _ in range(2):
        with pytest.raises(errors.NodeFailedError, match="Node 'twice' failed as callable: OSError: for good"):
            run({})
        assert run.feedback_inputs["sum/held"].tolist() == [0, 0]
        assert run.outputs["sum/total"].tolist() == [0, 0]
    flaky.failing = False
    base = 1 if start == "zeros" else 2
    assert run({})["twice/result"].tolist() == [2 * base] * 2, "the override is still there"
    assert result(run, 1, 1) == [2 * base + 2] * 2
    flaky.failing = True
    with pytest.raises(errors.NodeFailedError):
        run(given(7, 7))
    assert run.outputs["sum/total"].tolist() == [base + 1] * 2
    assert run.inputs["sum/step"].tolist() == [1, 1]
    flaky.failing = False
    assert result(run, 0, 0) == [2 * base + 2] * 2


def test_a_node_without_a_model_needs_a_function(tmp_path):
    pipeline = Pipeline(tmp_path).node("camera", [port("x", 2)], [port("y", 2)])
    path = pipeline.wires(inputs={"camera": ["x"]}, outputs={"camera": ["y"]}).write()
    with pytest.raises(errors.NoModelError, match="Node 'camera' has no model file: it was exported without one"):
        leapp.InferenceManager(path)
    run = leapp.InferenceManager(path, callables={"camera": lambda inputs: {"y": inputs["x"].numpy() + 1}})
    assert run({"camera/x": np.float32([1, 2])})["camera/y"].tolist() == [2, 3]
    for bad in ({}, {"y": 1.0}, {"y": np.zeros(3, "f")}, {"y": np.zeros(2)}, {"y": np.zeros(2, "f"), "z": 1}, None):
        run = leapp.InferenceManager(path, callables={"camera": lambda _, bad=bad: bad})
        with pytest.raises(errors.NodeFailedError, match="Node 'camera'"):
            run(run.get_mock_input())
    with pytest.raises(errors.UnknownNodeNameError, match="callables names 'cam'"):
        leapp.InferenceManager(path, callables={"cam": dict})


def test_a_reset_input_may_be_left_out(tmp_path):
    pipeline = Pipeline(tmp_path).node(
        "sum", [port("x", 2), port("fresh", dtype="bool", kind="reset"), port("flag", dtype="bool")], [port("y", 2)]
    )
    path = pipeline.wires(inputs={"sum": ["x", "fresh", "flag"]}, outputs={"sum": ["y"]}).write()
    run = leapp.InferenceManager(
        path, callables={"sum": lambda given: {"y": given["x"] * (-1 if given["fresh"] else 1)}}
    )
    x, flag = np.float32([1, 2]), np.True_
    assert run({"sum/x": x, "sum/flag": flag})["sum/y"].tolist() == [1, 2]
    assert run({"sum/x": x, "sum/flag": flag, "sum/fresh": np.True_})["sum/y"].tolist() == [-1, -2]
    assert run({"sum/x": x, "sum/flag": flag})["sum/y"].tolist() == [1, 2]
    run.set_input_value("sum", "fresh", np.True_)
    assert run({"sum/x": x, "sum/flag": flag})["sum/y"].tolist() == [-1, -2]
    assert not any(run.get_mock_input()["sum/fresh"] for _ in range(20))
    assert any(run.get_mock_input()["sum/flag"] for _ in range(20))
    with pytest.raises(errors.PipelineInputError, match="'sum/flag'.*missing"):
        run({"sum/x": x})
