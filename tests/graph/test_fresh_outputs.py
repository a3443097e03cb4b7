from __future__ import annotations

import operator

import pytest
import torch
from torch import fx

from leapp._spec import NodeSpec, TensorSpec
from leapp.graph._base import NodeGraph
from leapp.graph.passes.fresh_outputs import fresh_outputs


def _recording(build, **constants):
    graph = fx.Graph()
    build(graph, graph.placeholder("x"))
    return NodeGraph(NodeSpec("n", (), ()), graph, constants, specs={"x": TensorSpec("float32", (2, 2))})


def _call(name, *args, **kwargs):
    return lambda graph, x: graph.output(graph.call_function(name, (x, *args), kwargs))


def _method(name, *args):
    return lambda graph, x: graph.output(graph.call_method(name, (x, *args)))


def _part(graph, x):
    parts = graph.call_function(torch.split, (x, 1))
    graph.output(graph.call_function(operator.getitem, (parts, 0)))


def _view_of_constant(graph, _x):
    graph.output(graph.call_function(torch.flatten, (graph.get_attr("c"),)))


SHARES = {
    "the input": lambda graph, x: graph.output(x),
    "a constant": lambda graph, _x: graph.output(graph.get_attr("c")),
    "a view": _method("view", 4),
    "a transposition": _call(torch.transpose, 0, 1),
    "a part": _part,
    "a view of a constant": _view_of_constant,
    "a conversion that may be none": _method("to", torch.float32),
    "a named conversion": _method("float"),
    "dropout that does nothing": _call(torch.nn.functional.dropout, 0.5, False),
    "what was written": _method("add_", 1),
    "written by flag": _call(torch.nn.functional.relu, inplace=True),
}
OWNS = {
    "a sum": _call(torch.add, 1),
    "a copy": _call(torch.clone),
    "a maximum": _call(torch.amax, 0),
    "an activation": _call(torch.nn.functional.relu, inplace=False),
}


@pytest.mark.parametrize("build", SHARES.values(), ids=SHARES)
def test_what_shares_memory_is_copied(build):
    given = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    result = fresh_outputs(_recording(build, c=torch.rand(2, 2)))
    assert result.changed
    module = result.graph.module()
    first = module(given.clone())
    kept = first.clone()
    x = given.clone()
    value = module(x)
    value.fill_(7)
    after = x.clone()
    assert torch.equal(module(given.clone()), kept), "the next answer changed"
    assert not (after == 7).any(), "the input changed"
    assert not fresh_outputs(result.graph).changed


@pytest.mark.parametrize("build", OWNS.values(), ids=OWNS)
def test_what_owns_its_memory_is_left_alone(build):
    recording = _recording(build)
    before = [node.name for node in recording.graph.nodes]
    result = fresh_outputs(recording)
    assert not result.changed
    assert [node.name for node in recording.graph.nodes] == before


def test_outputs_do_not_share_with_each_other():
    def build(graph, x):
        y = graph.call_function(torch.add, (x, 1))
        graph.output((y, y, graph.call_function(torch.transpose, (y, 0, 1)), graph.call_function(torch.neg, (y,))))

    result = fresh_outputs(_recording(build))
    assert result.changed
    first, *others = result.graph.module()(torch.ones(2, 2))
    first.fill_(9)
    for value in others:
        assert set(value.flatten().tolist()) in ({2.0}, {-2.0})
    assert [node.op for node in result.graph.graph.nodes].count("call_function") == 5
    assert not fresh_outputs(result.graph).changed


def test_copies_have_the_spec_of_what_they_copy():
    result = fresh_outputs(_recording(SHARES["the input"]))
    (clone,) = list(result.graph.graph.nodes)[-1].all_input_nodes
    assert result.graph.specs[clone.name] == TensorSpec("float32", (2, 2))
