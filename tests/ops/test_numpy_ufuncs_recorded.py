"""Ufuncs and their methods in recordings: what was traced on one sample gives what NumPy gives on another."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from recorded import Recorded

from leapp.ops.numpy_ufuncs import ROWS, method_check
from leapp.trace.array import plain

DTYPES = ["float32", "int32", "uint8", "bool", "complex64"]


def sample(dtype, seed, shape=(3, 3)):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(1, 6, shape).astype(dtype)
    made = rng.uniform(0.1, 0.9, shape)
    return (made + 1j * rng.uniform(0.1, 0.9, shape) if dtype == "complex64" else made).astype(dtype)


def accepts(function, *arrays):
    try:
        with np.errstate(all="ignore"):
            function(*arrays)
    except (TypeError, ValueError):
        return False
    return True


def assert_replays(make_session, function, check, call, first, second):
    """Record on one sample, with NumPy's own results for the user; replay on another."""
    session = make_session()
    names = [f"x{place}" for place in range(len(first))]
    given = [each.copy() for each in first]
    traced = session.input_tensors("n", dict(zip(names, given, strict=True)))
    with np.errstate(all="ignore"):
        result = function(*[traced[id(each)] for each in given])
        expected = function(*second)
        untraced = function(*first)
    results, untraced = (each if isinstance(each, tuple) else (each,) for each in (result, untraced))
    for one, other in zip(plain(results), untraced, strict=True):
        np.testing.assert_array_equal(one, other, strict=isinstance(one, np.ndarray))
    session.output_tensors("n", {f"y{place}": each for place, each in enumerate(results)})
    session.stop()
    recorded = Recorded(session.completed[0].recordings[0].graph, session, result)
    outputs = recorded(*[torch.from_numpy(each.copy()) for each in second])
    expected, outputs = (each if isinstance(each, tuple) else (each,) for each in (expected, outputs))
    for one, other in zip(expected, outputs, strict=True):
        array = other.resolve_conj().numpy()
        assert (array.dtype, array.shape) == (np.asarray(one).dtype, np.shape(one))
        with np.errstate(all="ignore"):
            assert check.wrong(np.asarray(one), array, call, tuple(second), {}) is None


def either_side(ufunc, other):
    return [lambda a: ufunc(a, other), lambda a: ufunc(other, a)]


@pytest.mark.parametrize("ufunc", list(ROWS), ids=lambda u: u.__name__)
def test_a_recording_gives_what_numpy_gives(ufunc, make_session):
    row = ROWS[ufunc]
    for dtype in DTYPES:
        first = [sample(dtype, seed) for seed in range(ufunc.nin)]
        second = [sample(dtype, seed + 10) for seed in range(ufunc.nin)]
        if not accepts(ufunc, *first) or (ufunc is np.spacing and dtype in {"bool", "uint8"}):
            continue
        assert_replays(make_session, ufunc, row.check, ufunc, first, second)
        if ufunc.nin != 2 or dtype in {"uint8", "bool"}:
            continue
        other = sample(dtype, 5)
        partners = [other] if ufunc.signature else [other, 2, other[0, 0]]
        for form in [form for each in partners for form in either_side(ufunc, each)]:
            if accepts(form, first[0]):
                assert_replays(make_session, form, row.check, form, first[:1], second[:1])


@pytest.mark.parametrize("ufunc", [u for u, row in ROWS.items() if row.elementwise], ids=lambda u: u.__name__)
def test_a_recording_of_many_elements_is_checked_on_a_sample(ufunc, make_session):
    for dtype in ("float32", "int32"):
        first, second = ([sample(dtype, base + each, (300, 301)) for each in range(ufunc.nin)] for base in (0, 10))
        if accepts(ufunc, *first):
            assert_replays(make_session, ufunc, ROWS[ufunc].check, ufunc, first, second)


@pytest.mark.parametrize("method", ["reduce", "accumulate"])
@pytest.mark.parametrize(
    "ufunc",
    [np.add, np.multiply, np.maximum, np.fmin, np.logical_or, np.bitwise_xor, np.subtract, np.logaddexp],
    ids=lambda u: u.__name__,
)
def test_methods_in_a_recording(ufunc, method, make_session):
    call = getattr(ufunc, method)
    for dtype in ("float32", "int32", "bool"):
        first, second = sample(dtype, 1), sample(dtype, 2)
        if accepts(call, first):
            assert_replays(make_session, call, method_check(ROWS[ufunc], method), call, [first], [second])


@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.maximum, np.multiply], ids=lambda u: u.__name__)
def test_at_in_a_recording(ufunc, make_session):
    def function(x, more):
        held = x * 1
        ufunc.at(held, np.array([0, 2, 0]), more)
        return held

    first, second = ([sample("float64", base), sample("float64", base + 1)] for base in (0, 5))
    assert_replays(make_session, function, method_check(ROWS[ufunc], "reduce"), np.add, first, second)


def test_out_and_where_in_a_recording(make_session):
    def function(x):
        held = x * 0 + 7
        np.sqrt(x, out=held, where=x > 0.5)
        np.add(held, x, out=held)
        return held

    assert_replays(
        make_session, function, ROWS[np.sqrt].check, function, [sample("float32", 1)], [sample("float32", 2)]
    )
