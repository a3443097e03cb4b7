"""Outputs that no machine should follow are refused by port and element, and undone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pipelines import Pipeline, port

import leapp
from leapp import errors


@pytest.fixture(params=["model", "function"])
def build(tmp_path, request):
    """``y = a / b`` with names and a range, ``held`` fed back, ``inner`` between two nodes."""

    def make(**semantics):
        pipeline = Pipeline(tmp_path)
        y = port("y", 2, 2, element_names=[None, ["hip", "knee"]], range=[-10, 10], **semantics)
        inputs, outputs = [port("a", 2, 2), port("b", 2, 2), port("held", 2, 2)], [y, port("inner", 2, 2)]
        ops = [("Div", "a b", "y"), ("Div", "held b", "inner")]
        functions = {}
        if request.param == "function":
            ops = None
            functions = {"div": lambda v: {"y": v["a"] / v["b"], "inner": v["held"] / v["b"]}}
        pipeline.node("div", inputs, outputs, ops)
        pipeline.node("keep", [port("inner", 2, 2)], [port("next", 2, 2)], [("Mul", "inner inner", "next")])
        pipeline.wires(
            data_flow={"div/inner": ["keep/inner"]},
            feedback_flow={"keep/next": ["div/held"]},
            inputs={"div": ["a", "b"]},
            outputs={"div": ["y"], "keep": ["next"]},
        )
        pipeline.start(div__held=np.ones((2, 2), "f"))
        return lambda **options: leapp.InferenceManager(pipeline.write(), callables=functions, **options)

    return make


def inputs(a, b=1.0):
    return {"div/a": np.full((2, 2), 1, "f") * np.float32(a), "div/b": np.full((2, 2), b, "f")}


def test_a_value_outside_its_range(build):
    run = build()(guard=True)
    run(inputs(3))
    with pytest.raises(errors.GuardError) as caught:
        run(inputs([[3, 3], [3, -11]]))
    assert "Output 'div/y' is -11.0 at [1, 1] (knee): its range is [-10, 10]." in str(caught.value)
    assert run.outputs["div/y"].tolist() == [[3, 3], [3, 3]]
    assert run.inputs["div/a"].tolist() == [[3, 3], [3, 3]]
    run(inputs(10))
    run(inputs(-10))


def test_what_is_not_finite(build):
    run = build()(guard=True)
    with pytest.raises(
        errors.GuardError, match=r"output 'div/y' is nan at \[0, 0\] \(hip\): it is not finite"
    ) as caught:
        run(inputs([[1, np.nan], [1, 1]]) | {"div/b": np.float32([[np.nan, 1], [1, 1]])})
    assert str(caught.value).startswith("Input 'div/a' was given nan at [0, 1]")
    # The value between the nodes is infinite as well; what is named is what leaves, or is fed back.
    with pytest.raises(ArithmeticError, match="'keep/next' is inf"):
        run(inputs(0, 1e-30))
    assert run.feedback_inputs["div/held"].tolist() == [[1, 1], [1, 1]]


def test_without_a_guard_all_passes(build):
    run = build()()
    assert run(inputs([[1, np.nan], [np.inf, 1e30]]))["div/y"].isnan().sum() == 1


@pytest.mark.parametrize("limits", [[1, -1], [1], "big", [["a"], ["b"]]])
def test_a_range_that_is_none(tmp_path, limits):
    pipeline = Pipeline(tmp_path).node("n", [port("x", 2)], [port("y", 2, range=limits)], [("Identity", "x", "y")])
    path = pipeline.wires(inputs={"n": ["x"]}, outputs={"n": ["y"]}).write()
    leapp.InferenceManager(path)
    with pytest.raises(errors.BundleFormatError, match="of 'n/y' is no pair of a lower and an upper bound"):
        leapp.InferenceManager(path, guard=True)


def test_integers_have_ranges_too(tmp_path):
    ports = [port("x", 2, dtype="int64")], [port("y", 2, dtype="int64", range=[0, 5])]
    pipeline = Pipeline(tmp_path).node("n", *ports, [("Identity", "x", "y")])
    run = leapp.InferenceManager(pipeline.wires(inputs={"n": ["x"]}, outputs={"n": ["y"]}).write(), guard=True)
    assert run({"n/x": torch.tensor([0, 5])})["n/y"].tolist() == [0, 5]
    with pytest.raises(errors.GuardError, match=r"'n/y' is 6 at \[1\]"):
        run({"n/x": torch.tensor([0, 6])})


def test_an_infinite_input_that_does_no_harm_is_let_through(build):
    run = build()(guard=True)
    assert run(inputs(3, np.inf))["div/y"].tolist() == [[0, 0], [0, 0]]


@pytest.fixture
def held(tmp_path):
    """``y = x``, both of them with a range that float32 rounds outwards."""
    limits = {"range": [-0.1, 0.6]}
    ports = [port("x", 2, element_names=[["hip", "knee"]], **limits)], [port("y", 2, **limits)]
    pipeline = Pipeline(tmp_path).node("n", *ports, [("Identity", "x", "y")])
    return pipeline.wires(inputs={"n": ["x"]}, outputs={"n": ["y"]}).write()


def test_an_input_outside_its_range(held):
    run = leapp.InferenceManager(held, guard=True)
    run({"n/x": np.float32([0.5, -0.05])})
    with pytest.raises(errors.GuardRangeError) as caught:
        run({"n/x": np.float32([0.5, 0.75])})
    assert str(caught.value).startswith("Input 'n/x' was given 0.75 at [1] (knee): its range is [-0.1, 0.6].")
    assert run.outputs["n/y"].tolist() == run.inputs["n/x"].tolist() == np.float32([0.5, -0.05]).tolist()
    assert leapp.InferenceManager(held)({"n/x": np.float32([0.5, 0.75])})["n/y"].tolist() == [0.5, 0.75]


def test_a_bound_itself_is_in_range_in_the_ports_dtype(held):
    run = leapp.InferenceManager(held, guard=True)
    at_the_bounds = np.clip(np.float32([-3, 3]), -0.1, 0.6)
    assert at_the_bounds.astype(float).tolist() != [-0.1, 0.6]
    assert run({"n/x": at_the_bounds})["n/y"].tolist() == at_the_bounds.tolist()
    with pytest.raises(errors.GuardRangeError):
        run({"n/x": np.nextafter(at_the_bounds, np.float32([-3, 3]))})


def test_an_input_that_is_not_finite_is_told_with_the_output_that_it_reaches(held):
    run = leapp.InferenceManager(held, guard=True)
    with pytest.raises(errors.GuardInputError, match="Input 'n/x' was given nan"):
        run({"n/x": np.float32([np.nan, 0])})
