"""What a runtime file can say wrongly is found before any model is loaded."""

from __future__ import annotations

import copy

import pytest
from pipelines import port

from leapp.errors import BundleFormatError
from leapp.runtime.plan import make_plan

PARAMETERS = {"backend": "onnx", "model_path": "m.onnx", "sha256sum": "0" * 64}


def contract():
    """Two nodes: a wire forward, one fed back, and a state that starts with the first input."""
    return {
        "models": {
            "a": {
                "inputs": [port("x", 3), port("back", 2), port("held", 3, start="first-input:x")],
                "outputs": [port("y", 3), port("held", 3)],
                "parameters": PARAMETERS,
            },
            "b": {
                "inputs": [port("y", 3), port("flag", dtype="bool")],
                "outputs": [port("z", 2), port("w", 3)],
                "parameters": {**PARAMETERS, "variants": [{**PARAMETERS, "backend": "jit"}]},
            },
        },
        "pipeline": {
            "data_flow": {"a/y": ["b/y"]},
            "feedback_flow": {"a/held": ["a/held"], "b/z": ["a/back"]},
            "inputs": {"a": ["x"], "b": ["flag"]},
            "outputs": {"b": ["z", "w"]},
            "initial_values": "first.safetensors",
        },
    }


def test_a_sound_file():
    plan = make_plan(contract(), "c.yaml", "two")
    assert plan.outer_inputs == ("a/x", "b/flag")
    assert plan.outer_outputs == ("b/z", "b/w")
    assert plan.sources == {"b/y": "a/y"}
    assert plan.feedback == {"a/held": "a/held", "a/back": "b/z"}
    assert plan.starts == {"a/held": "a/x"}
    assert [model.backend for model in plan.models["b"]] == ["onnx", "jit"]
    assert plan.initial_values == ("first.safetensors", None)


def test_feedback_may_stand_under_its_other_name():
    other = contract()
    pipeline = other["pipeline"]
    pipeline["feedback_connections"] = pipeline["feedback_flow"]
    assert make_plan(other, "c.yaml", "two") == make_plan(contract(), "c.yaml", "two")
    del pipeline["feedback_flow"]
    assert make_plan(other, "c.yaml", "two") == make_plan(contract(), "c.yaml", "two")


def put(*path):
    """A change of one value; ``...`` removes it."""
    *path, last, value = path

    def change(value_, target):
        for each in path:
            target = target[each]
        if value_ is ...:
            del target[last]
        else:
            target[last] = copy.deepcopy(value_)

    return lambda target: change(value, target)


A, B, P = ("models", "a"), ("models", "b"), ("pipeline",)
WRONG = [
    (put(*P, "data_flow", {"a/q": ["b/y"]}), "'a/q' is no output of a node"),
    (put(*P, "data_flow", {"a/x": ["b/y"]}), "'a/x' is no output of a node"),
    (put(*P, "data_flow", {"a/y": ["b/z"]}), "'b/z' is no input of a node"),
    (put(*P, "data_flow", {"a/y": ["b/y"], "a/held": ["b/y"]}), "'b/y' is fed by 'a/y' already"),
    (put(*P, "data_flow", {"a/y": ["b/y", "a/held"]}), "'a/held' is fed by 'a/y' already"),
    (put(*P, "data_flow", {"a/y": ["b/y", "b/flag"]}), "the output is float32[3] and 'b/flag' is bool[]"),
    (put(*P, "data_flow", {"a/y": "b/y"}), "pipeline.data_flow.a/y: expected a list of names"),
    (put(*P, "data_flow", {}), "'b/y' is not listed, and no wire feeds it"),
    (put(*P, "data_flow", {"a/y": ["b/y"], "b/w": ["a/x"]}), "it runs in a circle: a -> b -> a"),
    (put(*P, "data_flow", {"a/y": ["b/y", "a/x"]}), "it runs in a circle: a -> a"),
    (put(*P, "feedback_flow", {"a/held": ["a/held"], "b/w": ["a/back"]}), "the output is float32[3] and 'a/back'"),
    (put(*P, "feedback_connections", {}), "pipeline.feedback_connections: it is not what feedback_flow is"),
    (put(*P, "inputs", {"a": ["x"]}), "pipeline.inputs: 'b/flag' is not listed"),
    (put(*P, "inputs", {"a": ["x", "back"], "b": ["flag"]}), "'a/back' is listed and fed by 'b/z'"),
    (put(*P, "inputs", {"a": ["x"], "b": ["flag", "q"]}), "'b/q' is no input of a node"),
    (put(*P, "outputs", {"b": ["flag"]}), "'b/flag' is no output of a node"),
    (put(*P, "outputs", [1]), "pipeline.outputs: expected an object, got a list"),
    (put(*P, "initial_values", ...), "'a/back' is fed back and has no value at the first tick"),
    (put(*P, "initial_values", "../first"), "holds an empty part, '.' or '..'"),
    (put(*P, "initial_values_sha256sum", "zz"), "pipeline.initial_values_sha256sum: expected"),
    (put(*A, "inputs", 2, "start", "first-input:q"), "start of 'held': 'q' is no other input of this node"),
    (put(*A, "inputs", 2, "start", "first-input:held"), "'held' is no other input of this node"),
    (put(*A, "inputs", 2, "start", "first-input:back"), "the state is float32[3] and 'back' is float32[2]"),
    (put(*A, "inputs", 0, "name", "held"), "models.a.inputs: the port 'held' is there twice"),
    (put(*A, "inputs", 0, "name", "x/y"), "it holds '/'"),
    (put(*A, "inputs", 0, "dtype", "float33"), "port 'x' has the unknown dtype 'float33'"),
    (put(*A, "inputs", 0, "shape", [-1]), "expected zero or more, got -1"),
    (put(*A, "inputs", 0, "shape", ...), "models.a.inputs[0].shape: it is missing"),
    (put(*A, "inputs", 0, "type", "image"), "port 'x' is a image, and only tensors can be run"),
    (put(*A, "inputs", 3), "models.a.inputs: expected a list, got an integer"),
    (put(*A, "parameters", "backend", "tflite"), "models.a.parameters.backend: expected one of onnx, pt2, jit"),
    (put(*A, "parameters", "sha256sum", ...), "a model file without a digest is not loaded"),
    (put(*B, "parameters", "variants", 0, "sha256sum", ...), "a model file without a digest is not loaded"),
    (put("models", "a", None), "models.a: expected an object, got null"),
    (put("models", 7, {}), "a node's name is text without '/'"),
    (put("models", [1]), "models: expected an object, got a list"),
]


@pytest.mark.parametrize(("change", "text"), WRONG, ids=[text for _, text in WRONG])
def test_what_is_wrong_is_named(change, text):
    wrong = copy.deepcopy(contract())
    change(wrong)
    with pytest.raises(BundleFormatError) as caught:
        make_plan(wrong, "c.yaml", "two")
    assert str(caught.value).startswith("c.yaml: ")
    assert text in str(caught.value)


def test_states_that_start_with_one_another():
    wrong = contract()
    wrong["models"]["a"]["inputs"][1] = port("back", 3, start="first-input:held")
    wrong["models"]["a"]["inputs"][2]["start"] = "first-input:back"
    wrong["pipeline"]["feedback_flow"] = {"a/held": ["a/held"], "b/w": ["a/back"]}
    with pytest.raises(BundleFormatError, match="states start with one another: a/back -> a/held -> a/back"):
        make_plan(wrong, "c.yaml", "two")


def test_consumers_that_stand_before_their_producers_run_after_them():
    turned = contract()
    turned["models"] = dict(reversed(turned["models"].items()))
    plan = make_plan(turned, "c.yaml", "two")
    assert [node.name for node in plan.spec.nodes] == ["a", "b"]


def test_old_files_may_leave_maps_out():
    old = contract()
    del old["pipeline"]["inputs"], old["pipeline"]["outputs"]
    plan = make_plan(old, "c.yaml", "two")
    assert plan.outer_inputs == ("a/x", "b/flag")
    assert plan.outer_outputs == ("a/held", "b/z", "b/w")


def test_start_says_nothing_of_an_ordinary_input():
    free = contract()
    free["models"]["b"]["inputs"][1]["start"] = "first-input:nowhere"
    assert make_plan(free, "c.yaml", "two").starts == {"a/held": "a/x"}
