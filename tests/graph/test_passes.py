"""Passes: one rule each, values unchanged, idempotent."""

import operator
from dataclasses import replace

import pytest
import torch
from torch import fx

from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.errors import MalformedGraphError, NotReplayableError
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import check_graph, check_replays, run_graph
from leapp.graph.passes.aliases_said import aliases_said
from leapp.graph.passes.bools_as_tensors import bools_as_tensors
from leapp.graph.passes.contiguous_constants import contiguous_constants
from leapp.graph.passes.copy_written import copy_written
from leapp.graph.passes.device_free import device_free


def graph_of(build, *constants):
    graph = fx.Graph()
    x = graph.placeholder("x")
    attributes = {f"c{i}": value for i, value in enumerate(constants)}
    graph.output(build(graph, x, *(graph.get_attr(name) for name in attributes)))
    port = TensorSpec("float32", (2, 2))
    return NodeGraph(NodeSpec("n", (Port("x", port),), (Port("y", port),)), graph, attributes)


def writing_through_a_view(graph, x, c):
    row = graph.call_function(operator.getitem, (x, 0))
    graph.call_method("add_", (row, 1.0))
    graph.call_function(operator.setitem, (c, 1, 5.0))
    return graph.call_function(torch.add, (x, c))


def test_copy_written_protects_caller_and_next_call():
    constant = torch.zeros(2, 2)
    recording = graph_of(writing_through_a_view, constant)
    passed = copy_written(recording)
    assert passed.changed
    check_graph(passed.graph)
    x = torch.ones(2, 2)
    expected = torch.tensor([[2.0, 2.0], [6.0, 6.0]])
    for _ in range(2):
        assert torch.equal(run_graph(passed.graph, {"x": x})["y"], expected)
    assert torch.equal(x, torch.ones(2, 2))
    assert torch.equal(constant, torch.zeros(2, 2))
    again = copy_written(passed.graph)
    assert not again.changed


def test_aliases_said_leaves_what_nobody_writes_afterwards():
    """The lengths of an expansion are fixed, and those of this one may follow the data."""

    def build(graph, x, c):
        graph.call_method("add_", (x, 1.0))
        rows = graph.call_function(torch.broadcast_tensors, (x, c))
        first = graph.call_function(operator.getitem, (rows, 0))
        other = graph.call_function(torch.atleast_2d, (c,))
        fresh = graph.call_method("clone", (other,))
        graph.call_method("add_", (fresh, 1.0))
        return graph.call_function(torch.add, (first, fresh))

    assert not aliases_said(graph_of(build, torch.ones(2, 2))).changed


def test_aliases_said_before_a_write():
    def build(graph, x, c):
        more = graph.call_function(torch.atleast_2d, (c,))
        graph.call_method("add_", (c, 1.0))
        return graph.call_function(torch.add, (x, more))

    recording = graph_of(build, torch.ones(2))
    recording = replace(
        recording, specs={"c0": TensorSpec("float32", (2,)), "atleast_2d": TensorSpec("float32", (1, 2))}
    )
    passed = aliases_said(recording)
    assert passed.changed
    assert torch.atleast_2d not in {node.target for node in passed.graph.graph.nodes}
    assert not aliases_said(passed.graph).changed
    x = torch.zeros(2, 2)
    expected = torch.full((2, 2), 2.0)
    assert torch.equal(run_graph(run_passes(passed.graph, [copy_written]), {"x": x})["y"], expected)


def test_copy_written_leaves_pure_graphs_alone():
    recording = graph_of(lambda graph, x, c: graph.call_function(torch.add, (x, c)), torch.ones(2))
    assert copy_written(recording).graph is recording


def test_contiguous_constants_packs_values_and_keeps_the_rest():
    base = torch.arange(8.0).reshape(2, 4)
    constants = (base.t()[:2], base[:, 1], torch.ones(2))
    recording = graph_of(lambda graph, x, *c: graph.call_function(torch.add, (x, c[2])), *constants)
    passed = contiguous_constants(recording)
    assert passed.changed
    for name, before in recording.constants.items():
        after = passed.graph.constants[name]
        assert torch.equal(before, after)
        assert after.is_contiguous()
        assert after.untyped_storage().nbytes() == after.numel() * 4
    assert passed.graph.constants["c2"] is recording.constants["c2"]
    assert not contiguous_constants(passed.graph).changed


def test_device_free():
    recording = graph_of(
        lambda graph, x: graph.call_function(
            torch.zeros_like, (x,), {"device": torch.device("cuda"), "pin_memory": True}
        )
    )
    passed = device_free(recording)
    assert passed.changed
    assert torch.equal(run_graph(passed.graph, {"x": torch.ones(2, 2)})["y"], torch.zeros(2, 2))
    assert not device_free(passed.graph).changed


def test_a_failing_pass_is_named():
    def broken(recording):
        raise ValueError("no")

    recording = graph_of(lambda graph, x: graph.call_function(torch.relu, (x,)))
    with pytest.raises(ValueError, match="no") as raised:
        run_passes(recording, [device_free, broken])
    assert "in graph pass 'broken' on node 'n', after ['device_free']" in raised.value.__notes__[0]


def test_a_malformed_graph_is_shown_with_its_neighbours():
    recording = graph_of(lambda graph, x, c: graph.call_function(torch.add, (x, c)), torch.ones(2))
    missing = NodeGraph(recording.spec, recording.graph, {})
    with pytest.raises(MalformedGraphError, match="a constant that does not exist") as raised:
        check_graph(missing)
    assert "-> %c0" in str(raised.value)


def test_a_recording_that_does_not_give_its_sample_is_refused():
    recording = graph_of(lambda graph, x: graph.call_function(torch.relu, (x,)))
    x = torch.randn(2, 2)
    check_replays(recording, {"x": x}, {"y": torch.relu(x)})
    with pytest.raises(NotReplayableError, match="traced output 'y': other values"):
        check_replays(recording, {"x": x}, {"y": torch.relu(x) + 1e-7})


def test_constants_may_be_called_like_attributes_of_a_module(record):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.code = torch.nn.Linear(3, 3)
            self.graph = torch.nn.Linear(3, 3)
            self.code_ = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.code_(self.graph(self.code(x)))

    model, fresh = Model(), torch.randn(2, 3)
    recording = record(model, torch.randn(2, 3))
    assert torch.equal(recording(fresh), model(fresh))


def test_bools_as_tensors_makes_one_constant_for_each_truth_value():
    def build(graph, x, c):
        mask = graph.call_function(torch.gt, (x, c))
        kept = graph.call_function(torch.bitwise_and, (mask, True))
        kept = graph.call_method("bitwise_or_", (kept, False))
        return graph.call_function(torch.where, (kept, True), {"other": False})

    recording = graph_of(build, torch.ones(2, 2))
    passed = bools_as_tensors(recording)
    assert passed.changed
    check_graph(passed.graph)
    assert sorted(passed.graph.constants) == ["_false", "_true", "c0"]
    x = torch.tensor([[0.0, 2.0], [3.0, 1.0]])
    assert torch.equal(run_graph(passed.graph, {"x": x})["y"], x > 1)
    assert not bools_as_tensors(passed.graph).changed
