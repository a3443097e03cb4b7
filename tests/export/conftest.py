"""Recordings to export, made by hand or by symbolic tracing, and what every format must do with them."""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import fx

from leapp import _dtypes
from leapp._spec import ExportFormat, NodeSpec, Port, SourceLine, TensorSpec
from leapp.export._backend import ExportOptions, backend_for
from leapp.graph._base import NodeGraph, run_passes
from leapp.graph.check import run_graph
from leapp.graph.passes import EXPORT_PASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def record(
    fn: Callable[..., object] | torch.nn.Module | fx.Graph,
    *inputs: torch.Tensor,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    constants: dict[str, torch.Tensor] | None = None,
) -> NodeGraph:
    """A recording of ``fn``, as the passes leave it; every call has a line of ``user.py``, counted from 1."""
    tracer = _EveryOp()
    graph = copy.deepcopy(fn) if isinstance(fn, fx.Graph) else tracer.trace(fn)
    constants = dict(constants or {"count": torch.tensor([1.0, 2.0])})
    for node in graph.nodes:
        node.meta.clear()
        if node.op == "get_attr" and node.target not in constants:
            constants[node.target] = operator.attrgetter(node.target)(tracer.root).detach()
    constants = {name: value for name, value in constants.items() if name in {node.target for node in graph.nodes}}
    bare = NodeGraph(NodeSpec("policy", (), ()), graph, constants)
    with torch.no_grad():
        copies = {name: value.clone() for name, value in constants.items()}
        result = replace(bare, constants=copies).module()(*(each.clone() for each in inputs))
    outputs = result if isinstance(result, tuple) else (result,)
    spec = NodeSpec(
        "policy",
        tuple(map(_port, input_names or [f"in{i}" for i in range(len(inputs))], inputs)),
        tuple(map(_port, output_names or [f"out{i}" for i in range(len(outputs))], outputs)),
    )
    calls = [node.name for node in graph.nodes if node.op in ("call_function", "call_method")]
    sources = {name: SourceLine("user.py", line) for line, name in enumerate(calls, 1)}
    return run_passes(NodeGraph(spec, graph, constants, sources), EXPORT_PASSES)


class _EveryOp(fx.Tracer):
    def is_leaf_module(self, *_names):
        return False


def _port(name, tensor):
    return Port(name, TensorSpec(_dtypes.name_of(tensor.dtype), tuple(tensor.shape)))


def chain(length: int) -> fx.Graph:
    """So many operations, each on the result of the one before."""
    graph = fx.Graph()
    value = graph.placeholder("x")
    for index in range(length):
        target, more = (torch.sin, ()) if index % 2 else (torch.add, (0.25,))
        value = graph.call_function(target, (value, *more))
    graph.output(value)
    return graph


@dataclass(frozen=True)
class Case:
    name: str
    fn: Callable[..., object]
    example: tuple[torch.Tensor, ...]
    other: tuple[torch.Tensor, ...]
    exact: bool = True

    def __str__(self) -> str:
        return self.name


def _floats(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def _case(name, fn, *shapes, exact=True):
    return Case(name, fn, _floats(*shapes), _floats(*shapes, seed=1), exact)


class _Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ELU(), torch.nn.Linear(8, 2))
        self.scale = torch.nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x):
        return self.net(x) * self.scale


def _writes():
    """Assignment through a view, in-place calls on a view, an input and a constant."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    constant = graph.get_attr("count")
    total = graph.call_function(torch.add, (x, 0))
    graph.call_function(operator.setitem, (total, (slice(None), 1), y))
    view = graph.call_method("view", (total, -1))
    graph.call_method("add_", (view, 1))
    doubled = graph.call_method("mul_", (x, 2))
    graph.call_method("add_", (constant, 1))
    graph.output((total, doubled, constant))
    return graph


CASES = [
    _case("policy", _Policy(), (3, 4), exact=False),
    _case("returns an input", lambda x, y: (x, y + 1), (3,), (3,)),
    _case("returns a constant", lambda x: (x + 1, torch.tensor([1.0, 2.0]), torch.zeros(())), (3,)),
    _case("returns only constants", lambda _x: torch.tensor([1.0, 2.0]), (3,)),
    _case("returns a view of an input", lambda x: (x.transpose(0, 1), x[0]), (3, 2)),
    _case("one value twice", lambda x: (y := x * 2, y, y), (3,)),
    _case("one input twice", lambda x: (x, x), (3,)),
    _case("an input without use", lambda x, _y: x * 2, (3,), (2,)),
    _case("scalars", lambda x: torch.clamp(x, -1, 1).sum(), ()),
    _case("empty tensors", lambda x: (torch.cat((x, x)), x.sum()), (0, 3)),
    _case("writes and views", _writes(), (2, 3), (2,)),
    _case("infinities", lambda x: torch.masked_fill(x, x > 0, float("-inf")), (5,)),
    # torch marks archives with operators of a later version, and lays them out in another way.
    _case("operators of a later version", lambda x: torch.nn.functional.gelu(x), (3,), exact=False),
    _case("indices", lambda x: (x[..., None, 1:], x[-1], x[:, ::2], x[None]), (3, 4)),
    _case("parts of a result", lambda x: (torch.max(x, dim=1)[1], torch.split(x, [1, 3], dim=1)[1]), (3, 4)),
    Case(
        "booleans and integers",
        lambda b, i: (torch.logical_not(b), torch.add(i, 2), torch.where(b, i, 0), i / 2),
        (torch.tensor([True, False]), torch.tensor([1, 2])),
        (torch.tensor([False, False]), torch.tensor([-7, 9])),
    ),
    Case(
        "small integers",
        lambda i: (i.to(torch.int64) * 2, i),
        (torch.tensor([1, 200], dtype=torch.uint8),),
        (torch.tensor([0, 255], dtype=torch.uint8),),
    ),
    Case("float64", lambda x: torch.sin(x) / 3, (torch.rand(3).double(),), (torch.rand(3).double(),), exact=False),
    Case("float16", lambda x: x * 2 + 1, (torch.rand(3).half(),), (torch.rand(3).half(),)),
    Case("bfloat16", lambda x: x.float() * 2, (torch.rand(3).bfloat16(),), (torch.rand(3).bfloat16(),)),
    Case(
        "bfloat16 both ways",
        lambda x, e: ((x.float() * 2).to(torch.bfloat16), x, e),
        (torch.rand(()).bfloat16(), torch.zeros(0, 2).bfloat16()),
        (torch.rand(()).bfloat16(), torch.zeros(0, 2).bfloat16()),
    ),
]


@pytest.fixture(params=CASES, ids=str)
def case(request) -> Case:
    return request.param


@pytest.fixture(name="record")
def _record():
    return record


@pytest.fixture(name="chain")
def _chain():
    return chain


@pytest.fixture
def export(tmp_path):
    """Write a recording and open the file: ``(run, info)``, ``run`` taking positional tensors."""

    def export(format: ExportFormat, recording, example, options=None, name="policy"):
        path = tmp_path / f"{name}{format.suffix}"
        backend = backend_for(format)
        info = backend.write(recording, example, path, options or ExportOptions())
        assert info.paths[0] == path
        assert info.format is format
        model = backend.open(path, recording.spec)

        def run(*inputs):
            return model({port.name: each for port, each in zip(recording.spec.inputs, inputs, strict=True)})

        return run, info

    return export


@pytest.fixture
def check(export):
    """A format gives what was recorded, on other inputs, writes none of them, and answers alike the next time."""

    def check(format: ExportFormat, case: Case):
        recording = record(case.fn, *case.example)
        run, info = export(format, recording, tuple(each.clone() for each in case.example))
        expected = run_graph(recording, dict(zip((p.name for p in recording.spec.inputs), case.other, strict=True)))
        inputs = tuple(each.clone() for each in case.other)
        for _ in range(3):
            outputs = run(*inputs)
            assert list(outputs) == [port.name for port in recording.spec.outputs]
            for name, value in outputs.items():
                _assert_equal(value, expected[name], exact=case.exact)
            for given, kept in zip(inputs, case.other, strict=True):
                assert torch.equal(given, kept), "an input was written"
            # The caller owns what a model returns.
            for value in outputs.values():
                value.zero_()
            for given, kept in zip(inputs, case.other, strict=True):
                assert torch.equal(given, kept), "an output lies in an input"
        return info

    return check


def _assert_equal(actual, expected, *, exact):
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert type(actual) is torch.Tensor
    if exact:
        assert torch.equal(actual, expected)
    else:
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
