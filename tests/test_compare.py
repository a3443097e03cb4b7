"""The element-wise rule, and how it reports."""

import numpy as np
import pytest

from leapp._spec import NodeSpec, Port, TensorSpec
from leapp.compare import compare
from leapp.replay import FormatReport, NodeReport, replay


def f(*values):
    return np.array(values, dtype=np.float32)


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("actual", "expected", "ok", "largest"),
    [
        (f(1, 2), f(1, 2), True, 0.0),
        (f(1, 2.0005), f(1, 2), True, pytest.approx(0.0005, rel=1e-2)),
        (f(1, 2.1), f(1, 2), False, pytest.approx(0.1, rel=1e-4)),
        (f(NAN, 1), f(NAN, 1), True, 0.0),
        (f(NAN, 1), f(0, 1), False, INF),
        (f(0, 1), f(NAN, 1), False, INF),
        (f(INF), f(INF), True, 0.0),
        (f(-INF), f(INF), False, INF),
        (f(1e30), f(INF), False, INF),
        (f(INF), f(1e30), False, INF),
        (np.array([1, 2]), np.array([1, 2]), True, 0.0),
        (np.array([1000000, 2]), np.array([1000001, 2]), False, 1.0),
        (np.array([2**62 + 1]), np.array([2**62]), False, 1.0),
        (np.array([True]), np.array([False]), False, 1.0),
        (np.array([1 + 1j]), np.array([1 + 1j]), True, 0.0),
        (f(), f(), True, 0.0),
    ],
)
def test_element_wise(actual, expected, ok, largest):
    found = compare(actual, expected, rtol=1e-3, atol=1e-5)
    assert found.ok is ok
    assert found.largest == largest


def test_form_differs():
    found = compare(f(1, 2), np.array([1.0, 2.0]), rtol=1, atol=1)
    assert (found.ok, found.note, found.expected, found.actual) == (False, "dtype differs", "float64", "float32")
    found = compare(f(1, 2), f(1), rtol=1, atol=1)
    assert (found.ok, found.note) == (False, "shape differs")


def test_the_worst_offender_is_reported():
    expected = np.zeros((2, 3), dtype=np.float32)
    actual = expected.copy()
    actual[1, 2] = 0.5
    actual[0, 1] = 0.1
    found = compare(actual, expected, rtol=0, atol=1e-3)
    assert (found.where, found.actual, found.expected) == ((1, 2), "0.5", "0.0")


def test_replay_keeps_the_worst_sample_per_port():
    spec = NodeSpec("n", (Port("x", TensorSpec("float32", (1,))),), (Port("y", TensorSpec("float32", (1,))),))
    samples = [({"x": f(i)}, {"y": f(2 * i)}) for i in range(4)]
    (good,) = replay(lambda inputs: {"y": inputs["x"] * 2}, spec, samples)
    assert good.ok
    assert good.samples == 4
    (bad,) = replay(lambda inputs: {"y": inputs["x"] * f(2.5)}, spec, samples)
    assert not bad.ok
    assert bad.sample == 3
    report = NodeReport("n", (FormatReport("onnx", (bad,)),))
    assert not report
    assert report.lines() == ["n (onnx): output 'y': largest difference 1.5 at [0] of sample 3: expected 6.0, got 7.5"]
