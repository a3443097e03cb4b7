"""Nodes of a session: opening, closing, wiring, entering again, and what is refused."""

import copy
import gc
import re
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from leapp import errors
from leapp.trace.tensor import TracedTensor


def two_nodes(session, x, inner=lambda y: y):
    session.input_tensors("first", {"x": x})
    y = x * 2
    session.output_tensors("first", {"y": y})
    z = inner(y)
    made = session.input_tensors("second", {"y": z})
    out = made.get(id(z), z) + 1
    session.output_tensors("second", {"out": out})
    return out


def wires(session, node="second"):
    return {port: str(origin) for port, origin in session.nodes[node].recordings[0].wires.items()}


@pytest.mark.parametrize(
    "copy",
    [
        lambda y: y,
        lambda y: y.clone(),
        lambda y: y.detach(),
        lambda y: y.contiguous(),
        lambda y: y.cpu(),
        lambda y: y.to(torch.float32),
        lambda y: y[:],
        lambda y: y[...],
        lambda y: y.clone().detach().contiguous(),
        lambda y: copy.deepcopy(y),
        lambda y: copy.copy(y),
        lambda y: torch.zeros(3).copy_(y),
        lambda y: assigned(torch.zeros(3), slice(None), y),
        lambda y: torch.from_numpy(y.detach().numpy()),
        lambda y: y.detach().numpy().copy(),
        lambda y: np.array(y.detach().numpy()),
        lambda y: torch.from_numpy(y.detach().numpy().copy()),
    ],
    ids=[
        "itself", "clone", "detach", "contiguous", "cpu", "to", "slice", "ellipsis", "chain", "deepcopy", "copy",
        "copy_", "assigned", "through NumPy", "array", "copied array", "tensor of an array",
    ],
)  # fmt: skip
def test_copies_keep_the_wire(make_session, copy):
    session = make_session()
    two_nodes(session, torch.randn(3), copy)
    assert wires(session) == {"y": "first/y"}


def assigned(target, index, value):
    target[index] = value
    return target


@pytest.mark.parametrize(
    "computed",
    [
        lambda y: y * 1,
        lambda y: torch.cat([y]),
        lambda y: torch.stack([y, y])[0],
        lambda y: torch.stack([y, y]).view(-1)[2:5],
        lambda y: torch.cat([y, y]).split(3)[1],
        lambda y: y[torch.arange(3)],
        lambda y: y.view(3, 1).unbind(1)[0],
        lambda y: torch.sort(y).values,
        lambda y: y[:2],
        lambda y: assigned(torch.zeros(4), slice(1, None), y),
        lambda y: torch.add(y, 1, out=torch.zeros(3)),
        lambda y: y.clone().mul_(2),
        lambda y: y.clone().clamp_(-100, 100),
        lambda y: torch.add(torch.zeros(3), torch.zeros(3), out=y.clone()),
        lambda y: np.concatenate([y.detach().numpy()]),
        lambda y: y.detach().numpy()[:2],
        lambda y: y.detach().numpy() * 1,
        lambda y: np.split(y.detach().numpy(), 3)[0],
        lambda y: np.multiply(y.detach().numpy(), 1, out=np.zeros(3, np.float32)),
        lambda y: torch.from_numpy(y.detach().numpy() * 1),
        lambda y: np.clip(y.detach().numpy(), -1, 1),
        lambda y: y.detach().numpy().clip(-1, 1),
    ],
    ids=[
        "times", "cat", "stack", "views", "split", "index", "unbind", "sort", "part", "assigned", "out", "written copy",
        "written as it was", "overwritten", "concatenate", "part of an array", "array times", "np.split", "array out",
        "tensor of an array", "function of an array", "method of an array",
    ],
)  # fmt: skip
def test_computing_between_nodes_loses_the_wire_and_says_so(make_session, computed):
    session = make_session()
    with pytest.warns(errors.WireLostWarning, match="input 'y' was computed outside every node from first/y"):
        two_nodes(session, torch.randn(3), computed)
    assert wires(session) == {}


@pytest.mark.parametrize("alter", [lambda y: y.clamp_(-0.1, 0.1), lambda y: y.detach().numpy().fill(3)])
def test_an_output_that_is_written_between_nodes_loses_its_wire(make_session, alter):
    session = make_session()

    def between(y):
        alter(y)
        return y

    with pytest.warns(errors.WireLostWarning):
        two_nodes(session, torch.ones(3), between)
    assert wires(session) == {}


def test_values_outside_nodes_are_plain(make_session):
    session = make_session()
    x = torch.randn(3)
    out = two_nodes(session, x)
    assert type(out + 1) is torch.Tensor
    assert float(out.sum()) == float((x.detach() * 2 + 1).sum())


def test_the_very_tensor_handed_in_is_traced_and_given_back(make_session):
    session = make_session()
    x = torch.randn(3)
    pointer = x.data_ptr()
    session.input_tensors("n", {"x": x})
    assert type(x) is TracedTensor
    assert x.data_ptr() == pointer
    y = x + 1
    session.output_tensors("n", {"y": y})
    session.stop()
    assert type(x) is type(y) is torch.Tensor
    assert "_leapp" not in x.__dict__
    assert "_leapp" not in y.__dict__


def test_a_parameter_stays_one(make_session):
    session = make_session()
    p = torch.nn.Parameter(torch.randn(3))
    session.input_tensors("n", {"p": p})
    assert isinstance(p, torch.nn.Parameter)
    y = (p * 2).sum()
    session.output_tensors("n", {"y": y})
    session.stop()
    assert type(p) is torch.nn.Parameter
    y.backward()
    assert torch.equal(p.grad, torch.full((3,), 2.0))


def test_everything_is_restored_when_the_session_is_dropped_inside_a_node(make_session):
    threshold = gc.get_threshold()
    session = make_session()
    x = torch.randn(3)
    session.input_tensors("n", {"x": x})
    y = x + 1
    assert gc.get_threshold() != threshold
    session.stop()
    assert gc.get_threshold() == threshold
    assert type(x) is type(y) is torch.Tensor
    assert not torch.overrides._get_current_function_mode_stack()
    with pytest.raises(errors.NodeNotClosedError, match=r"Node 'n', opened at .*test_trace_nodes.py:\d+, was never"):
        session.check_closed()


def test_user_modes_entered_inside_a_node_survive_its_end(make_session):
    session = make_session()
    x = torch.randn(3)
    session.input_tensors("n", {"x": x})
    with torch.device("cpu"):
        session.output_tensors("n", {"y": x + 1})
        assert len(torch.overrides._get_current_function_mode_stack()) == 1
    assert not torch.overrides._get_current_function_mode_stack()


def test_nested_structures_are_flattened_and_stay_the_users(make_session):
    @dataclass
    class Pose:
        position: torch.Tensor
        rotation: torch.Tensor

    class Pair(NamedTuple):
        left: torch.Tensor
        right: torch.Tensor

    session = make_session()
    state = {"pose": Pose(torch.randn(3), torch.randn(4)), "arms": [torch.randn(2), torch.randn(2)]}
    pair = Pair(torch.randn(1), torch.randn(1))
    session.input_tensors("n", {"s": state, "pair": pair})
    out = {
        "all": torch.cat([state["pose"].position, state["pose"].rotation, *state["arms"], *pair]),
        "parts": (pair.left * 2, pair.right),
    }
    session.output_tensors("n", out)
    spec = session.nodes["n"].recordings[0].graph.spec
    assert [port.name for port in spec.inputs] == [
        "s_pose_position", "s_pose_rotation", "s_arms_0", "s_arms_1", "pair_left", "pair_right",
    ]  # fmt: skip
    assert [port.name for port in spec.outputs] == ["all", "parts_0", "parts_1"]


@pytest.mark.parametrize("name", ["observation.state", "class", "Isaac-Velocity-Flat-G1-v0", "joint pos", "zustand_ä"])
def test_any_name_works_and_is_kept(make_session, name):
    session = make_session()
    x, other = torch.randn(3), torch.randn(3)
    session.input_tensors(name, {name: x, name.replace(".", "_") + "_": other})
    session.output_tensors(name, {f"{name}.out": x + other})
    graph = session.nodes[name].recordings[0].graph
    assert graph.spec.inputs[0].name == name
    fresh = torch.randn(3), torch.randn(3)
    assert torch.equal(graph.module()(*fresh), fresh[0] + fresh[1])


def test_a_node_may_be_entered_many_times_and_keeps_the_first_samples(make_session):
    session = make_session(max_cached_io=3)
    seen = []
    for tick in range(6):
        x = torch.full((2,), float(tick))
        session.input_tensors("n", {"x": x})
        y = x * 3
        session.output_tensors("n", {"y": y})
        seen.append(y)
    node = session.nodes["n"]
    assert node.entries == 6
    assert [s.sample.inputs["x"][0].item() for s in node.recordings] == [0.0, 1.0, 2.0]
    assert [s.sample.outputs["y"][0].item() for s in node.recordings] == [0.0, 3.0, 6.0]
    session.stop()
    assert [y[0].item() for y in seen] == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    assert all(type(y) is torch.Tensor for y in seen)


def test_feedback_is_seen_at_the_second_entry(make_session):
    session = make_session()
    hidden = torch.zeros(2)
    for _ in range(3):
        x = torch.randn(2)
        session.input_tensors("n", {"x": x, "hidden": hidden})
        hidden = torch.tanh(x + hidden)
        session.output_tensors("n", {"next": hidden})
    entries = [{port: str(origin) for port, origin in r.wires.items()} for r in session.nodes["n"].recordings]
    assert entries == [{}, {"hidden": "n/next"}, {"hidden": "n/next"}]


def test_inputs_declared_at_several_places(make_session):
    session = make_session()
    a, b = torch.randn(2), torch.randn(2)
    session.input_tensors("n", {"a": a})
    c = a + 1
    session.input_tensors("n", {"b": b})
    session.output_tensors("n", {"out": c * b})
    graph = session.nodes["n"].recordings[0].graph
    assert [port.name for port in graph.spec.inputs] == ["a", "b"]
    fresh = torch.randn(2), torch.randn(2)
    assert torch.equal(graph.module()(*fresh), (fresh[0] + 1) * fresh[1])


def test_unused_inputs_are_named(make_session):
    session = make_session()
    x, unused, through = torch.randn(2), torch.randn(2), torch.randn(2)
    session.input_tensors("n", {"x": x, "unused": unused, "through": through})
    text = (
        "detected the following inputs are not used in the computation or directly returned as output: unused, through"
    )
    with pytest.warns(errors.UnusedInputWarning, match=re.escape(text)):
        session.output_tensors("n", {"y": x + 1, "z": through})


def test_pruning_keeps_only_what_the_outputs_need(record):
    def function(a):
        for _ in range(5):
            torch.sin(a)
        scratch = a.clone()
        scratch.add_(1)
        return a * 2

    assert record(function, torch.randn(2)).targets == ["torch.mul"]


def test_a_write_that_an_output_sees_is_kept(record):
    def function(a):
        b = a.clone()
        row = b[0]
        b[0] = 7.0
        return row

    recorded = record(function, torch.randn(2, 2))
    assert torch.equal(recorded(torch.randn(2, 2)), torch.full((2,), 7.0))


# --- refusals ------------------------------------------------------------------------------------------------------


def test_output_before_input(make_session):
    session = make_session()
    with pytest.raises(errors.OutputBeforeInputError, match=r"no node 'n' is open \(.*test_trace_nodes.py:\d+\)"):
        session.output_tensors("n", {"y": torch.randn(2)})


def test_plain_tensor_as_output(make_session):
    session = make_session()
    x = torch.randn(2)
    session.input_tensors("n", {"x": x})
    with pytest.raises(errors.OutputNotTracedError, match="output 'y' is a plain torch.Tensor; no recorded operation"):
        session.output_tensors("n", {"y": torch.zeros(2)})
    session.output_tensors("n", {"y": x * 2})


def test_static_outputs_are_constants(make_session):
    session = make_session()
    x = torch.randn(2)
    session.input_tensors("n", {"x": x})
    session.output_tensors("n", {"y": x * 2}, static_outputs={"gains": torch.tensor([1.0, 2.0])})
    graph = session.nodes["n"].recordings[0].graph
    assert [port.name for port in graph.spec.outputs] == ["y", "gains"]
    assert torch.equal(graph.module()(torch.randn(2))[1], torch.tensor([1.0, 2.0]))


def test_two_nodes_mixed(make_session):
    session = make_session()
    a, b = torch.randn(2), torch.randn(2)
    session.input_tensors("first", {"a": a})
    y = a * 2
    session.output_tensors("first", {"y": y})
    session.input_tensors("second", {"b": b})
    with pytest.raises(errors.ForeignValueError, match="A value of node 'first' was used in node 'second' at .*:") as e:
        b + y
    assert "annotate.input_tensors('second', {...})" in str(e.value)
    with pytest.raises(errors.ForeignValueError):
        y * 2
    with pytest.raises(errors.ForeignValueError):
        session.output_tensors("second", {"out": y})


def test_a_value_of_an_open_node_cannot_enter_another(make_session):
    session = make_session()
    a, b = torch.randn(2), torch.randn(2)
    session.input_tensors("first", {"a": a})
    session.input_tensors("second", {"b": b})
    with pytest.raises(errors.ForeignValueError):
        a + b
    with pytest.raises(errors.ForeignValueError):
        session.input_tensors("second", {"c": a * 2})


def test_one_name_from_two_origins(make_session):
    session = make_session()
    for _ in range(2):
        x = torch.randn(2)
        session.input_tensors("n", {"x": x})
        session.output_tensors("n", {"y": x * 2})
    x = torch.randn(2)
    with pytest.raises(errors.NodeOriginError, match=r"Node 'n' was opened at \S+:\d+ and again at \S+:\d+"):
        session.input_tensors("n", {"x": x})


def test_entered_again_without_being_closed(make_session):
    session = make_session()
    x = torch.randn(2)
    session.input_tensors("n", {"x": x})
    other = torch.zeros(2)
    with pytest.raises(errors.NodeReopenedError, match="input 'x' was declared twice"):
        session.input_tensors("n", {"x": other})


@pytest.mark.parametrize(
    ("second", "difference"),
    [
        (lambda: torch.randn(3), r"input 'x' is float32\[3\] instead of float32\[2\]"),
        (lambda: torch.randn(2, dtype=torch.float64), r"input 'x' is float64\[2\] instead of float32\[2\]"),
    ],
)
def test_another_interface_at_the_second_entry(make_session, second, difference):
    session = make_session()

    with pytest.raises(errors.SampleMismatchError, match=difference):
        for x in (torch.randn(2), second()):
            session.input_tensors("n", {"x": x})
            session.output_tensors("n", {"y": x * 2})


def test_two_ports_that_flatten_to_one_name(make_session):
    session = make_session()
    with pytest.raises(
        errors.PortCollisionError, match=r"\['s'\]\['p'\] and \['s_p'\] both flatten to the input port 's_p'"
    ):
        session.input_tensors("n", {"s": {"p": torch.randn(2)}, "s_p": torch.randn(2)})
    assert not session._open.get(session.thread())


def test_one_tensor_under_two_ports(make_session):
    session = make_session()
    x = torch.randn(2)
    with pytest.raises(errors.SharedInputError, match="inputs 'a' and 'b' are the same memory"):
        session.input_tensors("n", {"a": x, "b": x})


@pytest.mark.parametrize("name", ["a/b", "a\\b", "", ".", "..", "a\0b", "a\nb"])
def test_names_that_no_file_can_have(make_session, name):
    session = make_session()
    with pytest.raises(errors.InvalidNameError):
        session.input_tensors(name, {"x": torch.randn(2)})
    with pytest.raises(errors.InvalidNameError):
        session.input_tensors("n", {name: torch.randn(2)})


def test_what_is_no_tensor(make_session):
    session = make_session()
    with pytest.raises(errors.NotATensorError, match="input 'x' is a float, not a tensor or array"):
        session.input_tensors("n", {"x": 1.0})
    with pytest.raises(errors.NotATensorError, match="input 'x_a' is a set"):
        session.input_tensors("n", {"x": {"a": {1}}})


def test_classes_with_behaviour_of_their_own(make_session):
    class Mine(torch.Tensor):
        pass

    session = make_session()
    with pytest.raises(errors.TensorClassError, match="'x' is a .*Mine"):
        session.input_tensors("n", {"x": torch.randn(2).as_subclass(Mine)})


def test_an_input_written_behind_the_trace(make_session):
    session = make_session()
    x = torch.randn(4)
    alias = x.numpy()
    session.input_tensors("n", {"x": x})
    y = x * 2
    alias[0] += 1
    with pytest.raises(errors.InputWrittenError, match="the memory of input 'x' was written"):
        session.output_tensors("n", {"y": y})


def test_written_inputs_that_overlap(make_session):
    session = make_session()
    memory = torch.randn(4)
    a, b = memory[:3], memory[1:]
    session.input_tensors("n", {"a": a, "b": b})
    a.add_(1)
    y = a + b
    with pytest.raises(errors.SharedInputError):
        session.output_tensors("n", {"y": y})


def test_another_thread_is_refused(make_session):
    session = make_session()
    x = torch.randn(2)
    session.input_tensors("n", {"x": x})
    raised = []

    def work():
        try:
            x + 1
        except errors.WrongThreadError as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="camera")
    thread.start()
    thread.join()
    assert "in thread 'camera'" in str(raised[0])
    with pytest.raises(errors.WrongThreadError, match="camera"):  # what the thread meant to do is missing
        session.output_tensors("n", {"y": x + 1})


def test_a_node_in_another_thread_records_there(make_session):
    session = make_session()
    results = []

    def work():
        x = torch.randn(2)
        session.input_tensors("n", {"x": x})
        y = x + 1
        session.output_tensors("n", {"y": y})
        results.append(len(torch.overrides._get_current_function_mode_stack()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [0]
    graph = session.nodes["n"].recordings[0].graph
    fresh = torch.randn(2)
    assert torch.equal(graph.module()(fresh), fresh + 1)
