"""The reset input: fresh state where it is true, nothing else where it is false."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx

from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import check_graph, run_graph
from leapp.graph.dump import graph_text
from leapp.graph.passes import EXPORT_PASSES
from leapp.graph.passes.reset_port import reset_port

FORM = TensorSpec("float32", (2,))
ON, OFF = torch.tensor(True), torch.tensor(False)


def recording(name: str = "h") -> NodeGraph:
    """``h`` is written in place, ``last`` is read twice, ``spare`` is not read at all."""
    graph = fx.Graph()
    x, h, last, spare = (graph.placeholder(each) for each in ("x", "h", "last", "spare"))
    scale = graph.get_attr("scale")
    graph.call_function(operator.iadd, (h, x))
    graph.call_method("mul_", (h, scale))
    total = graph.call_function(torch.add, (last, h))
    total = graph.call_function(torch.mul, (total, last))
    graph.output((total, h, spare))
    inputs = tuple(Port(each, FORM) for each in ("x", name, "last", "spare"))
    outputs = tuple(Port(each, FORM) for each in ("y", "h_out", "spare_out"))
    return NodeGraph(NodeSpec("n", inputs, outputs), graph, {"scale": torch.tensor([2.0, -1.0])})


def computed(x, h, last, spare):
    h = (h + x) * torch.tensor([2.0, -1.0])
    return {"y": (last + h) * last, "h_out": h, "spare_out": spare}


@pytest.fixture
def values():
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randn(2, generator=generator) for name in ("x", "h", "last", "spare")}


def test_true_gives_what_fresh_state_gives(values):
    start = torch.tensor([0.5, -0.0])
    passed = reset_port("fresh", {"h": start, "last": "x"})(recording())
    assert passed.changed
    assert passed.graph.spec.inputs[-1] == Port("fresh", TensorSpec("bool", ()), {"kind": "reset"})
    check_graph(passed.graph)
    graph = run_passes(passed.graph, EXPORT_PASSES)
    nothing = torch.full((2,), torch.nan)
    given = {**values, "h": nothing, "last": nothing, "fresh": ON}
    for name, expected in computed(values["x"], start, values["x"], values["spare"]).items():
        assert torch.equal(run_graph(graph, given)[name], expected)


def test_false_changes_nothing(values):
    before = recording()
    text = graph_text(before)
    passed = reset_port("fresh", {"h": torch.zeros(2), "last": "x", "spare": torch.ones(2)})(before)
    graph = run_passes(passed.graph, EXPORT_PASSES)
    kept = {name: value.clone() for name, value in values.items()}
    for _ in range(2):
        for name, value in run_graph(graph, {**values, "fresh": OFF}).items():
            assert torch.equal(value, computed(**kept)[name])
    assert graph_text(before) == text
    assert before.spec == recording().spec
    assert list(before.constants) == ["scale"]


def test_a_state_that_is_only_handed_on_starts_anew_too(values):
    passed = reset_port("fresh", {"spare": torch.ones(2)})(recording())
    graph = run_passes(passed.graph, EXPORT_PASSES)
    assert torch.equal(run_graph(graph, {**values, "fresh": ON})["spare_out"], torch.ones(2))


def test_a_second_run_changes_nothing():
    apply = reset_port("fresh", {"h": torch.zeros(2)})
    once = apply(recording()).graph
    again = apply(once)
    assert not again.changed
    assert again.graph is once


def test_names_that_are_taken_in_the_graph_are_left_alone(values):
    """Ports may be called whatever they like; the graph's own names stay unique."""
    passed = reset_port("mul_", {"0 h": torch.zeros(2)})(recording("0 h"))
    check_graph(passed.graph)
    given = {"x": values["x"], "0 h": values["h"], "last": values["last"], "spare": values["spare"], "mul_": ON}
    expected = computed(values["x"], torch.zeros(2), values["last"], values["spare"])
    run = run_graph(run_passes(passed.graph, EXPORT_PASSES), given)
    assert torch.equal(run["y"], expected["y"])
