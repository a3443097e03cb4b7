"""Calls of ufuncs that come again take a short way; what is recorded is what the long way records."""

import threading

import numpy as np
import pytest
import torch

from leapp import errors
from leapp.graph._base import run_passes
from leapp.graph.check import run_graph
from leapp.graph.dump import target_name
from leapp.graph.passes import EXPORT_PASSES
from leapp.trace import array
from leapp.trace.same import difference

pytestmark = pytest.mark.filterwarnings("ignore::leapp.errors.UnusedInputWarning")

table = np.linspace(-1.0, 1.0, 6).reshape(2, 3)


@pytest.fixture(autouse=True)
def empty_handed(monkeypatch):
    """Each test begins with no call known."""
    monkeypatch.setattr(array, "_short", {})


def recorded(session, function, *values):
    given = session.input_tensors("n", {f"in{i}": each.copy() for i, each in enumerate(values)})
    result = function(*given.values())
    session.output_tensors("n", {"out": result})
    return result, session.completed[0].recordings[0].graph


def replayed(graph, *values):
    inputs = {f"in{i}": torch.from_numpy(each.copy()) for i, each in enumerate(values)}
    return run_graph(run_passes(graph, EXPORT_PASSES), inputs)["out"].numpy()


def targets(graph):
    return [target_name(node) for node in graph.graph.nodes if node.op.startswith("call_")]


CALLS = {
    "arrays": lambda a, b: a + b,
    "a constant": lambda a, b: a * table,
    "a constant first": lambda a, b: table - a,
    "a number": lambda a, b: a + 0.5,
    "a number first": lambda a, b: 0.5 + a,
    "an integer": lambda a, b: a * 2,
    "an integer first": lambda a, b: 2 * a,
    "minus first": lambda a, b: 1.0 - a,
    "a quotient": lambda a, b: a / 3,
    "its inverse": lambda a, b: 3 / (a + 10),
    "broadcast": lambda a, b: a + b[:1] + b[:, :1],
    "one operand": lambda a, b: np.exp(a) + np.sqrt(np.abs(b)),
    "the larger": lambda a, b: np.maximum(a, b) + np.minimum(a, table),
    "a comparison": lambda a, b: np.where(a > b, a, b) + (a > 0.5),
    "strided views": lambda a, b: a[:, ::-1] + b[::-1],
    "a flag": lambda a, b: a + True,
    "a NumPy scalar": lambda a, b: a * np.float64(1.5) + np.float32(2.0),
    "a traced scalar": lambda a, b: a * b[0, 0] + a.max(),
    "a scalar, then a number of its kind": lambda a, b: a * b[0, 0] + a * np.float64(2.0),
    "another kind": lambda a, b: a.astype(np.float32) * 2.0 + b.astype(np.float32),
    "mixed kinds": lambda a, b: a.astype(np.float32) + b,
    "whole numbers": lambda a, b: (a * 9).astype(np.int32) * 3 // 2 + (b * 9).astype(np.int32) % 4,
    "bytes": lambda a, b: (a * 9).astype(np.int8) + (b * 40).astype(np.int8),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("self_check", [True, False])
def test_the_second_call_is_recorded_as_the_first(make_session, name, self_check):
    call = CALLS[name]
    rng = np.random.default_rng(0)
    first, second = (tuple(rng.standard_normal((2, 2, 3))) for _ in range(2))
    _, once = recorded(make_session(self_check=self_check), call, *first)
    again, twice = recorded(make_session(self_check=self_check), call, *first)
    assert targets(once) == targets(twice)
    expected = call(*first)
    assert again.dtype == expected.dtype
    assert np.array_equal(again, expected)
    for graph in (once, twice):
        replay = replayed(graph, *second)
        assert replay.dtype == call(*second).dtype
        np.testing.assert_allclose(replay, call(*second), rtol=1e-14)


def test_common_calls_do_take_the_short_way(make_session):
    for name in ("arrays", "a constant", "a number", "a number first", "an integer", "one operand", "the larger"):
        recorded(make_session(), CALLS[name], table, table)
    known = {ufunc.__name__ for (ufunc, *_), short in array._short.items() if short is not None}
    assert known == {"add", "multiply", "exp", "sqrt", "absolute", "maximum", "minimum"}


def test_a_constant_that_was_written_between_two_uses(make_session):
    def function(a):
        lookup = np.array([1.0, 2.0, 3.0])
        total = a + lookup
        total = total + lookup
        lookup[1] = 20.0
        total = total + lookup
        np.copyto(lookup, a)
        return total + lookup

    values, fresh = np.array([0.5, 1.5, 2.5]), np.array([-1.0, 7.0, 2.0])
    result, graph = recorded(make_session(), function, values)
    assert np.array_equal(result, function(values))
    assert np.array_equal(replayed(graph, fresh), function(fresh))


def test_an_array_that_changed_its_shape(make_session):
    def function(a):
        lookup = np.arange(6.0)
        total = a + lookup
        total = total + lookup
        return total + lookup.reshape(1, 6)[0]

    values, fresh = np.arange(6.0) + 1, np.arange(6.0) * 2
    _, graph = recorded(make_session(), function, values)
    assert np.array_equal(replayed(graph, fresh), function(fresh))


def test_a_wrong_twin_is_found_on_the_short_way_too(make_session, monkeypatch):
    def function(a):
        total = a + a
        for key, short in list(array._short.items()):
            if key[0] is np.add and short is not None:
                array._short[key] = short._replace(target=torch.sub)
        return total + a

    result, graph = recorded(make_session(), function, np.arange(3.0) + 1)
    # The long way decides, and it knows better.
    assert np.array_equal(result, np.arange(3.0) * 3 + 3)
    assert targets(graph) == ["torch.add", "torch.add"]


def test_what_the_long_way_refuses_is_refused(make_session):
    session = make_session()
    (a,) = session.input_tensors("n", {"a": np.arange(3.0)}).values()
    assert np.array_equal(a + a, np.arange(3.0) * 2)
    raised = []

    def work():
        try:
            a + a
        except errors.WrongThreadError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(raised) == 1
    (b,) = session.input_tensors("other", {"b": np.arange(3.0)}).values()
    with pytest.raises(errors.ForeignValueError):
        b + a


def test_a_large_call_is_checked_on_a_sample(make_session):
    values = np.linspace(-3, 3, 100_000)
    result, graph = recorded(make_session(), lambda a: np.exp(a) + np.exp(a) * 2.0, values)
    assert np.array_equal(result, np.exp(values) * 3.0) or np.allclose(result, np.exp(values) * 3.0)
    np.testing.assert_allclose(replayed(graph, values[::-1].copy()), result[::-1], rtol=1e-14)


def test_a_view_that_is_used_twice_is_recorded_alike_in_every_entry(make_session):
    def function(a):
        return np.clip(a * table, -table, table * 2) / table

    assert table.base is not None
    session = make_session()
    given = np.arange(6.0).reshape(2, 3)
    for _ in range(2):  # the second entry knows all these calls
        recorded(session, function, given)
    first, second = (entry.graph for entry in session.completed[0].recordings)
    assert difference(first, second) is None
    fresh = np.linspace(3, -3, 6).reshape(2, 3)
    np.testing.assert_array_equal(replayed(second, fresh), function(fresh))
