"""Outer inputs that hold what an output gave, told by their numbers alone."""

import numpy as np
import pytest

from leapp.bundle.samples import RawTensor
from leapp.pipeline.copied import Copy, PortValues, played, unseen_copies

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)


def entry(node, inputs, outputs, *, kept=True):
    raw = [{name: RawTensor.of(np.asarray(value)) for name, value in ports.items()} for ports in (inputs, outputs)]
    return PortValues(node, *raw, kept=kept)


def fed_back(copy, *, start=None, outputs=Y, ticks=3, inputs=X):
    """A node whose input ``last`` is made by ``copy`` of the output that it gave a tick before."""
    last = np.zeros_like(copy(outputs[0])) if start is None else start
    run = []
    for tick in range(ticks):
        run.append(entry("n", {"x": inputs[tick], "last": last}, {"y": outputs[tick]}))
        last = copy(outputs[tick])
    return run


OUTER = {"n/x", "n/last"}
COPIED = Copy("n/last", "n/y", part=False)


@pytest.mark.parametrize(
    ("copy", "part"),
    [
        pytest.param(np.copy, False, id="the same"),
        pytest.param(lambda y: np.array(y.tolist()), False, id="float64, as lists are"),
        pytest.param(lambda y: y[None], False, id="with another axis"),
        pytest.param(lambda y: np.concatenate([np.float32([1, 2]), y]), True, id="behind other values"),
        pytest.param(lambda y: y[:1], True, id="a slice of it"),
        pytest.param(lambda y: y.astype(np.float16), False, id="rounded by a narrower dtype"),
    ],
)
def test_a_copy_is_found(copy, part):
    assert list(unseen_copies([fed_back(copy)], OUTER)) == [Copy("n/last", "n/y", part)]


def test_two_entries_are_enough():
    assert list(unseen_copies([fed_back(np.copy, ticks=2)], OUTER)) == [COPIED]
    behind = fed_back(lambda y: np.concatenate([np.float32([1, 2]), y]), ticks=2)
    assert list(unseen_copies([behind], OUTER)) == [Copy("n/last", "n/y", part=True)]


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(fed_back(lambda y: y * np.float32(2)), id="computed"),
        pytest.param(fed_back(np.copy, ticks=1), id="one entry"),
        pytest.param(
            fed_back(lambda _: np.float32([0.5, 0.25]), outputs=[np.float32([0.5, 0.25])] * 3), id="other start"
        ),
        pytest.param(
            fed_back(np.copy, start=np.float32([0.5, 0.25]), outputs=[np.float32([0.5, 0.25])] * 3), id="a constant"
        ),
        pytest.param(fed_back(np.copy, outputs=np.arange(6, dtype=np.float32).reshape(3, 2)), id="whole numbers"),
        pytest.param(fed_back(np.copy, outputs=np.arange(6).reshape(3, 2)), id="integers"),
        pytest.param(fed_back(np.copy, outputs=np.zeros((3, 2), np.float32)), id="zeros"),
        pytest.param(
            [entry("n", {"x": X[t], "last": X[max(t - 1, 0)]}, {"y": X[t]}) for t in range(3)],
            id="x handed on, a tick late",
        ),
        pytest.param(
            [each for t in range(3) for each in (entry("m", {"raw": X[t]}, {"y": X[t]}), entry("n", {"x": X[t]}, {}))],
            id="x handed on to another node",
        ),
        pytest.param(
            [
                each
                for t in range(3)
                for each in (entry("m", {"raw": X[t]}, {"y": np.append(X[t], Y[t])}), entry("n", {"x": X[t]}, {}))
            ],
            id="a part of what was handed on",
        ),
        pytest.param([*fed_back(np.copy, ticks=2), *fed_back(np.negative, ticks=3)], id="once, and then not"),
    ],
)
def test_no_false_alarm(run):
    assert list(unseen_copies([run], {*OUTER, "m/raw"})) == []


def test_a_node_before_it_in_the_same_tick():
    run = [each for t in range(2) for each in (entry("m", {"raw": X[t]}, {"y": Y[t]}), entry("n", {"x": Y[t]}, {}))]
    assert list(unseen_copies([run], {"m/raw", "n/x"})) == [Copy("n/x", "m/y", part=False)]
    assert list(unseen_copies([run[:2]], {"m/raw", "n/x"})) == []  # one entry may be a constant
    other = [entry("m", {"raw": X[4]}, {"y": Y[4]}), entry("n", {"x": Y[4]}, {})]
    assert list(unseen_copies([run[:2], other], {"m/raw", "n/x"})) == [Copy("n/x", "m/y", part=False)]


def test_all_runs_must_show_it():
    assert list(unseen_copies([fed_back(np.copy), fed_back(np.copy, outputs=Y[3:])], OUTER)) == [COPIED]
    assert list(unseen_copies([fed_back(np.copy), fed_back(np.negative, outputs=Y[3:])], OUTER)) == []


def test_only_outer_inputs_are_looked_at():
    assert list(unseen_copies([fed_back(np.copy)], {"n/x"})) == []


def test_an_entry_whose_values_were_not_kept_tells_nothing():
    run = fed_back(np.copy)
    gap = [run[0], PortValues("n", kept=False), run[2]]
    assert list(unseen_copies([gap], OUTER)) == []  # the output that is fed back is not known


def test_rounds_are_played_in_order():
    raw = RawTensor.of(Y[0])
    entries = {"a": [({}, {"y": raw})], "b": [({"x": raw}, {})]}
    assert played([{"a": 0, "b": 0}, {"a": None, "b": 1}], entries) == [
        PortValues("a", {}, {"y": raw}),
        PortValues("b", {"x": raw}, {}),
        PortValues("a", kept=False),
    ]
