"""Twins of ``reduce``, ``accumulate``, ``reduceat``, ``outer`` and ``at`` give, on plain tensors, what NumPy gives."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_ufuncs import ROWS, method_check, method_twin

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
BINARY = [u for u in ROWS if u.nin == 2 and u.nout == 1 and u.signature is None]
REDUCED = [
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logical_and, np.logical_or, np.logical_xor,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.subtract, np.divide, np.gcd, np.lcm, np.hypot, np.logaddexp,
    np.logaddexp2,
]  # fmt: skip


def rng_for(*names):
    return np.random.default_rng(zlib.crc32("/".join(map(str, names)).encode()))


def values(dtype, shape, rng):
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.6
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        wide = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.3, wide, rng.integers(1, 5, shape).astype(dtype))
    made = rng.standard_normal(shape) + 1.5
    if dtype.kind == "c":
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(dtype)


def as_tensor(thing):
    return torch.from_numpy(thing.copy()) if isinstance(thing, np.ndarray) and thing.size else thing


def assert_same(ufunc, method, args, kwargs=None, data=(0,)):
    """NumPy's own result and the twin's; arguments at the places in ``data`` are traced."""
    kwargs = kwargs or {}
    call = getattr(ufunc, method)
    given = [torch.from_numpy(each.copy()) if place in data else each for place, each in enumerate(args)]
    numpys = [each.copy() if method == "at" and place == 0 else each for place, each in enumerate(args)]
    with np.errstate(all="ignore"):
        expected = call(*numpys, **kwargs)
        actual = method_twin(ufunc, method, tuple(given), kwargs)
    expected = np.asarray(numpys[0] if method == "at" else expected)
    array = actual.resolve_conj().numpy()
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    with np.errstate(all="ignore"):
        where = method_check(ROWS[ufunc], method).wrong(expected, array, call, tuple(args), kwargs)
    if where is not None:
        pytest.fail(f"{ufunc.__name__}.{method}({args}, {kwargs})[{where}] is {expected[where]}, not {array[where]}")


def computes(call, *args, **kwargs):
    """Whether NumPy computes with these arguments, in dtypes that torch has."""
    try:
        with np.errstate(all="ignore"):
            found = call(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return found is None or np.asarray(found).dtype.name in DTYPES


AXES = [{}, {"axis": None}, {"axis": 1}, {"axis": -1}, {"axis": (0, 2)}, {"axis": 0, "keepdims": True}, {"axis": (1, -1), "keepdims": True}]  # fmt: skip


@pytest.mark.parametrize("ufunc", REDUCED, ids=lambda u: u.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce(ufunc, dtype):
    rng = rng_for(ufunc.__name__, dtype)
    x = values(dtype, (3, 4, 5), rng)
    if ufunc is np.lcm and computes(np.lcm, x, x):
        x = (np.abs(x) % 4).astype(dtype)  # what wraps around depends on the order
    if dtype == "uint64" and ufunc in {np.gcd, np.lcm}:
        with pytest.raises(Unsupported, match="uint64"):
            assert_same(ufunc, "reduce", (x,))
        return
    for kwargs in AXES:
        if computes(ufunc.reduce, x, **kwargs):
            assert_same(ufunc, "reduce", (x,), kwargs)
    for kwargs in (
        {"initial": 2},
        {"initial": 1, "where": rng.random((4, 1)) < 0.5},
        {"where": x > 1},
        {"dtype": "f4"},
    ):
        if ("dtype" in kwargs and x.dtype.kind == "c") or not computes(ufunc.reduce, x, **kwargs):
            continue
        try:
            assert_same(ufunc, "reduce", (x,), kwargs)
        except Unsupported:
            assert "where" in kwargs
            assert ufunc in {np.subtract, np.divide}


@pytest.mark.parametrize("ufunc", [u for u in REDUCED if u is not np.divide], ids=lambda u: u.__name__)
def test_reduce_of_nothing_and_of_one(ufunc):
    for x in (np.zeros((0, 3), np.float32), np.ones((2, 0), np.int64), np.ones((1, 2), np.int32), np.array(2)):
        for kwargs in ({}, {"axis": None}, {"initial": 3}):
            if computes(ufunc.reduce, x, **kwargs):
                assert_same(ufunc, "reduce", (x,), kwargs)


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum, np.fmax, np.fmin], ids=lambda u: u.__name__)
def test_extremes_of_nan(ufunc):
    x = np.array([[np.nan, 1, -np.inf], [np.nan, np.nan, np.nan], [2, np.inf, np.nan]], np.float32)
    for kwargs in (
        {"axis": 0},
        {"axis": 1},
        {"axis": None},
        {"axis": 1, "initial": 0.5},
        {"axis": 1, "initial": np.nan},
    ):
        assert_same(ufunc, "reduce", (x,), kwargs)
    assert_same(ufunc, "accumulate", (x, 1))


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_accumulate_and_reduceat(ufunc):
    for dtype in DTYPES:
        x = values(dtype, (5, 3), rng_for(ufunc.__name__, dtype))
        for method, args in (("accumulate", (x,)), ("accumulate", (x, -1)), ("reduceat", (x, [0, 3, 1, 4])), ("reduceat", (x, np.array([1, 0]), 1))):  # fmt: skip
            if not computes(getattr(ufunc, method), *args):
                continue
            try:
                assert_same(ufunc, method, args)
            except Unsupported:
                with np.errstate(all="ignore"):
                    casts = method == "reduceat" and ufunc.reduce(x).dtype != x.dtype
                assert casts or dtype == "uint64" or ufunc in {np.power, np.arctan2}


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_outer(ufunc):
    rng = rng_for(ufunc.__name__, "outer")
    for dtype in ("int32", "float32"):
        a, b = np.abs(values(dtype, (2, 3), rng)) % 7 + 1, np.abs(values(dtype, 4, rng)) % 7 + 1
        if computes(ufunc.outer, a, b):
            assert_same(ufunc, "outer", (a, b))
            assert_same(ufunc, "outer", (a, b), data=(1,))
            assert_same(ufunc, "outer", (a, 2))
            assert_same(ufunc, "outer", (a, [1, 2]))
            assert_same(ufunc, "outer", (3, b), data=(1,))


INDICES = [
    np.array([0, 2, 2, -1, 0]),
    [1, 1],
    (np.array([0, 1, 0]), np.array([2, -1, 2])),
    slice(None, None, 2),
    (slice(None), np.array([1, 1])),
    3,
    np.array([True, False, True, False]),
]


@pytest.mark.parametrize(
    "ufunc", [np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.fmax], ids=lambda u: u.__name__
)
@pytest.mark.parametrize("dtype", [each for each in DTYPES if each != "bool"])
def test_at_applies_as_often_as_an_index_is_repeated(ufunc, dtype):
    rng = rng_for(ufunc.__name__, dtype, "at")
    x = values(dtype, (4, 3), rng)
    for index in INDICES:
        for other in (2, values(dtype, x[index].shape, rng), values(dtype, (), rng)):
            try:
                assert_same(ufunc, "at", (x, index, other))
            except Unsupported:
                assert ufunc is np.fmax or dtype == "uint64" or np.dtype(dtype).kind == "c"


def test_at_with_traced_indices():
    x, index = np.arange(12.0).reshape(4, 3), np.array([0, 2, 2, -1])
    for ufunc in (np.add, np.subtract, np.maximum):
        assert_same(ufunc, "at", (x, index, np.ones((4, 3))), data=(0, 1, 2))
    with pytest.raises(Unsupported, match="applies twice"):
        assert_same(np.divide, "at", (x, index, np.ones((4, 3))), data=(0, 1, 2))


def test_at_of_other_ufuncs_needs_known_indices_without_repeats():
    x = np.arange(1.0, 13.0).reshape(4, 3)
    assert_same(np.divide, "at", (x, np.array([0, 2]), 4.0))
    assert_same(np.negative, "at", (x, (slice(None), [0, 2])))
    with pytest.raises(Unsupported, match="repeated"):
        assert_same(np.negative, "at", (x, [1, 1]))


def test_long_axes_are_not_unrolled():
    x = np.ones(1000)
    with pytest.raises(Unsupported, match="along more than"):
        method_twin(np.subtract, "reduce", (torch.from_numpy(x),), {})
    assert_same(np.bitwise_xor, "reduce", (np.arange(1001),))
