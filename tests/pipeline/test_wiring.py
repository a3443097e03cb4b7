"""Ports -> edges."""

import pytest

from leapp import errors
from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.errors import OnnxNameError
from leapp.pipeline.wiring import NodeWires, final_names, wire

SPEC = TensorSpec("float32", (2,))


def node(name, inputs, outputs, *entries, exclusive=False, state=()):
    def ports(names):
        return tuple(Port(each, SPEC) for each in names.split())

    return NodeWires(NodeSpec(name, ports(inputs), ports(outputs)), entries or ({},), exclusive, frozenset(state))


def test_forward_wires_outer_inputs_and_outputs():
    pipeline = wire(
        "p",
        [
            node("b", "x", "y z"),
            node("a", "y x", "out", {"y": ("b", "y")}),
        ],
    )
    assert pipeline.data_flow == {"b/y": ("a/y",)}
    assert pipeline.inputs == {"a": ("x",), "b": ("x",)}
    assert pipeline.outputs == {"a": ("out",), "b": ("z",)}
    assert [each.name for each in pipeline.nodes] == ["b", "a"]
    assert pipeline.feedback_flow == {}


def test_a_wire_that_appears_at_a_later_entry_is_feedback():
    pipeline = wire("p", [node("n", "x h", "y h2", {}, {"h": ("n", "h2")}, {"h": ("n", "h2")})])
    assert pipeline.feedback_flow == {"n/h2": ("n/h",)}
    assert pipeline.inputs == {"n": ("x",)}
    assert pipeline.outputs == {"n": ("y", "h2")}


def test_feedback_from_a_later_node():
    pipeline = wire(
        "p",
        [
            node("estimator", "q memory", "features", {}, {"memory": ("policy", "memory_out")}),
            node("policy", "features", "actions memory_out", {"features": ("estimator", "features")}),
        ],
    )
    assert pipeline.data_flow == {"estimator/features": ("policy/features",)}
    assert pipeline.feedback_flow == {"policy/memory_out": ("estimator/memory",)}
    assert pipeline.inputs == {"estimator": ("q",)}
    assert pipeline.outputs == {"policy": ("actions", "memory_out")}


def test_one_output_feeds_many_inputs_in_sorted_order():
    pipeline = wire(
        "p",
        [node("src", "x", "y")] + [node(name, "y", "o", {"y": ("src", "y")}) for name in ("z", "m", "a")],
    )
    assert pipeline.data_flow == {"src/y": ("a/y", "m/y", "z/y")}
    assert list(pipeline.outputs) == ["a", "m", "z"]


def test_names_that_are_both_input_and_output_are_told_apart_where_a_format_cannot():
    entries = ({}, {"hidden": ("n", "hidden")})
    plain = wire("p", [node("n", "x hidden", "y hidden", *entries)])
    assert plain.feedback_flow == {"n/hidden": ("n/hidden",)}
    told = wire("p", [node("n", "x hidden", "y hidden", *entries, exclusive=True)])
    assert told.feedback_flow == {"n/hidden_out": ("n/hidden_in",)}
    assert [port.name for port in told.nodes[0].inputs] == ["x", "hidden_in"]
    assert [port.name for port in told.nodes[0].outputs] == ["y", "hidden_out"]


def test_a_renamed_output_keeps_its_consumers():
    pipeline = wire("p", [node("n", "obs", "obs", exclusive=True), node("m", "obs", "act", {"obs": ("n", "obs")})])
    assert pipeline.data_flow == {"n/obs_out": ("m/obs",)}
    assert pipeline.inputs == {"n": ("obs_in",)}


def test_a_declared_state_feeds_itself_and_is_no_outer_port():
    pipeline = wire("p", [node("n", "x h", "y h", state=["h"])])
    assert pipeline.feedback_flow == {"n/h": ("n/h",)}
    assert pipeline.inputs == {"n": ("x",)}
    assert pipeline.outputs == {"n": ("y",)}
    told = wire("p", [node("n", "x h", "y h", state=["h"], exclusive=True)])
    assert told.feedback_flow == {"n/h_out": ("n/h_in",)}
    assert told.inputs == {"n": ("x",)}


def test_a_declared_state_is_fed_by_its_own_output_wherever_its_value_came_from():
    entries = {"h": ("other", "start")}, {"h": ("n", "also")}
    pipeline = wire("p", [node("other", "a", "start"), node("n", "x h", "y also h", *entries, state=["h"])])
    assert pipeline.feedback_flow == {"n/h": ("n/h",)}
    assert pipeline.data_flow == {}


def test_another_node_may_read_a_state():
    reader = node("reader", "h", "z", {"h": ("n", "h")})
    pipeline = wire("p", [node("n", "x h", "y h", state=["h"], exclusive=True), reader])
    assert pipeline.data_flow == {"n/h_out": ("reader/h",)}
    assert pipeline.feedback_flow == {"n/h_out": ("n/h_in",)}
    assert pipeline.outputs == {"n": ("y",), "reader": ("z",)}


@pytest.mark.parametrize(
    ("inputs", "outputs", "port"),
    [("h h_in", "h", "h_in"), ("h", "h h_out", "h_out"), ("h h_out", "h", "h_out"), ("h", "h h_in", "h_in")],
)
def test_a_name_that_onnx_needs_and_another_port_has_is_an_error(inputs, outputs, port):
    with pytest.raises(OnnxNameError, match=f"would both be '{port}' in ONNX"):
        final_names(node("n", inputs, outputs, exclusive=True))
    assert set(final_names(node("n", inputs, outputs)).inputs.values()) == set(inputs.split())


def test_both_of_two_such_names_may_be_states():
    names = final_names(node("n", "h h_in", "h h_in", exclusive=True))
    assert names.inputs == {"h": "h_in", "h_in": "h_in_in"}
    assert names.outputs == {"h": "h_out", "h_in": "h_in_out"}


def test_one_input_that_two_outputs_fed():
    encoder = node("encoder", "image", "x0")
    dynamics = node("dynamics", "x u", "x", {"x": ("encoder", "x0")}, {"x": ("dynamics", "x")})
    with pytest.raises(
        errors.WireConflictError,
        match="input 'x' came from encoder/x0 at entry 1 and from dynamics/x at entry 2; a pipeline has one wire",
    ):
        wire("p", [encoder, dynamics])
