"""Twins of NumPy's differences, filters, interpolation and polynomials give what NumPy gives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.polynomial import polynomial

sys.path.insert(0, str(Path(__file__).parent))

import numpy_twins
from numpy_twins import DTYPES, FLOATS, REAL, Plain, draw, layouts

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_signal import GROUPS


def check(function, *args, **kwargs):
    numpy_twins.check(GROUPS, function, *args, **kwargs)


def random(*shape, dtype="float64", seed=0, nan=False):
    return draw(np.random.default_rng([seed, *shape]), dtype, shape, nan)


@pytest.mark.parametrize("dtype", DTYPES)
def test_diff(dtype):
    for shape in [(5,), (1,), (0,), (3, 4), (2, 3, 4), (0, 3)]:
        for a in layouts(random(*shape, dtype=dtype)):
            for axis in range(-a.ndim, a.ndim):
                for n in (0, 1, 2, 3, 6):
                    check(np.diff, a, n, axis)
                check(np.diff, a, axis=axis, prepend=a)
                check(np.diff, a, axis=axis, prepend=a[:1] if axis in (0, -a.ndim) else a, append=Plain(a), n=2)
                check(np.diff, a, axis=axis, prepend=0)
                check(np.diff, a, axis=axis, prepend=0.5, append=np.float32(1))
    if dtype != "bool":
        a = random(4, dtype=dtype)
        check(np.ediff1d, a)
        check(np.ediff1d, a[:1])
        check(np.ediff1d, a[:0])
        check(np.ediff1d, random(2, 3, dtype=dtype), to_begin=a[:2], to_end=a[0])
        check(np.ediff1d, a, to_end=Plain(a))
        check(np.ediff1d, a[:0], to_end=a)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_gradient(dtype):
    uneven = np.array([0, 1, 3, 4, 6, 7.5])
    for a in layouts(random(6, dtype=dtype)):
        for edge in (1, 2):
            for spacing in ((), (2,), (0.1,), (np.float32(0.3),), (np.float64(0.3),), (uneven,), (Plain(uneven),), (Plain(np.arange(6)),), (Plain(np.arange(6.0) * 0.1),), (Plain(np.array([0, 1, 3, 4, 6, 8])),), (np.array(0.5),)):  # fmt: skip
                check(np.gradient, a, *spacing, edge_order=edge)
    for a in layouts(random(3, 4, 5, dtype=dtype)):
        for words in ({}, {"axis": 1}, {"axis": (0, -1)}, {"axis": -1, "edge_order": 2}, {"edge_order": 2}):
            check(np.gradient, a, **words)
        check(np.gradient, a, 2.0, 0.5, np.float32(3))
        check(np.gradient, a, Plain(np.array([0.0, 1, 3])), 0.5, axis=(0, 2))
    check(np.gradient, random(2, dtype=dtype))
    check(np.gradient, random(3, dtype=dtype), edge_order=2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_trapezoid(dtype):
    x = np.array([0, 0.5, 2, 2.5])
    for a in layouts(random(3, 4, dtype=dtype)):
        for words in ({}, {"dx": 2}, {"dx": 0.1}, {"dx": np.float32(0.3)}, {"x": x}, {"x": Plain(x)}, {"x": [0, 1, 2, 5]}, {"axis": 0}, {"axis": 0, "x": x[:3]}, {"x": random(3, 4)}):  # fmt: skip
            check(np.trapezoid, a, **words)
    check(np.trapezoid, random(1, dtype=dtype))


@pytest.mark.parametrize("dtype", [each for each in REAL if each != "bool" and each[0] != "u"])
def test_unwrap(dtype):
    rng = np.random.default_rng(0)
    for shape in [(9,), (3, 5), (1,), (2, 3, 4)]:
        a = np.array(rng.normal(size=shape) * 8, dtype)
        for axis in range(-a.ndim, a.ndim):
            for words in ({}, {"discont": 4}, {"period": 5}, {"period": 4}, {"period": 6.5, "discont": 1.0}, {"period": np.float64(3)}):  # fmt: skip
                check(np.unwrap, a, axis=axis, **words)
    check(np.unwrap, np.array([0, np.pi, 0, -np.pi, 2 * np.pi, np.nan, 1], "f8" if dtype[0] == "i" else dtype))
    check(np.unwrap, np.array([0, 2, 4, 2, 0, 3], dtype), period=4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [np.convolve, np.correlate])
def test_filters(function, dtype):
    for one, other in [(5, 3), (3, 5), (4, 4), (6, 1), (1, 4), (5, 2), (2, 5), (7, 4), (4, 7), (1, 1), (9, 6), (6, 9)]:
        a, v = random(one, dtype=dtype), random(other, dtype=dtype, seed=1)
        for mode in ("full", "same", "valid"):
            check(function, a, v, mode)
            check(function, a, Plain(v), mode)
            check(function, Plain(a), v, mode)
        check(function, a, v)
    check(function, a, [1.0, 2, 0.5])
    check(function, random(8, dtype=dtype)[::2], random(3, dtype="float32"))


@pytest.mark.parametrize("function", [np.convolve, np.correlate])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_infinities_stay_where_they_belong(function, dtype):
    a, v = random(7, dtype=dtype), np.array([1, np.inf, 2, np.nan], dtype)
    if dtype == "complex128":
        v = np.array([1, np.nan, 2], dtype)
    for mode in ("full", "same", "valid"):
        check(function, a, v, mode)
        check(function, a, Plain(v), mode)
        check(function, Plain(v), a, mode)
        check(function, v, a, mode)


TABLES = [
    ([0.0, 1, 2.5, 4], [1.0, 3, -2, 5]), ([0, 1, 3, 4], [1, 3, 2, 5]), ([1.0], [2.0]), ([0.0, 1], [0.5, 0.25]), ([0.0, 1, 1, 2], [0.0, 1, 5, 6]),
    ([0.0, 1, 2], [np.inf, 1, 2]), ([0.0, 1, 2, 3], [np.inf, np.inf, np.nan, 3]), ([0.0, 1, np.inf], [1.0, 2, 3]), ([-np.inf, 0, 1], [1.0, 2, 3]),
    ([0.0, 1e-300, 1], [0.0, 1e300, 2]), ([0.0, 1, 2], [1 + 2j, 3 - 1j, 0.5j]), ([0.0, 1, 2], [1 + 2j, np.inf, 0.5j]),
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_interp(table):
    xp, fp = (np.array(each) for each in table)
    grid = np.concatenate([np.linspace(-1, 5, 37), [0, 1, 2, 2.5, 3, 4, np.nan, np.inf, -np.inf, 1e-301]])
    for x in (
        grid,
        grid.astype(np.float32),
        grid[:40].reshape(5, 8).T,
        np.array(0.3),
        np.arange(-1, 6),
        np.array([], float),
    ):
        for given in ((xp, fp), (Plain(xp), Plain(fp)), (Plain(xp), fp), (list(table[0]), list(table[1]))):
            check(np.interp, x, *given)
            check(np.interp, x, *given, left=-7, right=np.float64(9))
            check(np.interp, x, *given, right=np.nan)
            if np.isfinite(xp).all() and len(set(xp)) == len(xp):
                check(np.interp, x, *given, period=3.7)
                check(np.interp, x, *given, period=-10)


@pytest.mark.parametrize("dtype", REAL)
def test_digitize(dtype):
    for x in (random(7, dtype=dtype, nan=dtype in FLOATS), random(3, 4, dtype=dtype), random(dtype=dtype)):
        for bins in ([-2.0, 0, 1, 3], [3.0, 1, 0, -2], [0.0], [], [1.0, 1, 1], np.array([0, 2, 4], dtype), np.array([4, 2, 0], dtype), np.array([0, 1, 2], np.float32)):  # fmt: skip
            for right in (False, True):
                check(np.digitize, x, bins if isinstance(bins, list) else Plain(bins), right)
                check(np.digitize, x, np.array(bins), right)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int64", "uint16"])
def test_bincount(dtype):
    x = np.abs(random(9, dtype=dtype).astype("int64")).astype(dtype)
    check(np.bincount, x, minlength=256)
    check(np.bincount, x, random(9), 256)
    check(np.bincount, x, Plain(random(9, dtype="int32")), 256)
    check(np.bincount, x[:0], minlength=256)
    twin = numpy_twins.rows(GROUPS)[np.bincount].twin
    with pytest.raises(Unsupported, match="minlength"):
        twin(torch.from_numpy(x))
    with pytest.raises(RuntimeError, match="out of bounds"):
        twin(torch.tensor([1, 300]), minlength=256)


@pytest.mark.parametrize("dtype", DTYPES)
def test_polynomials(dtype):
    p, q, x = random(4, dtype=dtype), random(2, dtype=dtype, seed=1), random(2, 3, dtype=dtype)
    for given in (p, Plain(p), [1, 2.5, -3], [2, 1], np.float32([1, 2]), []):
        check(np.polyval, given, x)
        check(np.polyval, given if isinstance(given, list) else p, np.array(0.5))
    check(np.polyadd, p, q)
    check(np.polyadd, q, Plain(p))
    check(np.polyadd, p, [1.0, 2])
    check(np.polyadd, p, 3)
    if dtype != "bool":
        check(np.polysub, q, p)
        check(np.polysub, p, 2.5)
    for m in (0, 1, 2, 3):
        check(np.polyder, p, m)
        check(np.polyint, p, m)
    check(np.polyint, p, 1, 3)
    check(np.polyint, p, 2, k=[1, 2])
    check(np.polyint, p, 2, k=Plain(np.array([1.5])))
    check(np.vander, p)
    check(np.vander, p, 6, increasing=True)
    for columns in (0, 1, 2):
        check(np.vander, p, columns)
    if not dtype.startswith("complex") and dtype != "float16":
        check(np.poly, p)


@pytest.mark.parametrize("dtype", DTYPES)
def test_polynomials_in_two_variables(dtype):
    c = random(3, 4, dtype=dtype)
    x, y = random(2, 5, dtype=dtype, seed=1), random(2, 5, dtype="float32", seed=2)
    for coefficients in (c, Plain(c), [[1, 2], [0.5, -1]]):
        check(polynomial.polyval2d, x, y, coefficients)
        check(polynomial.polygrid2d, x, y[0], coefficients)
    check(polynomial.polyval2d, x, y, random(3, 2, 2, dtype=dtype))


def test_polynomials_of_numbers_without_bounds():
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 1e200])
    check(np.polyval, [1.0, 2], x)
    check(np.polyval, [1.0], x)
    check(np.poly, np.array([np.inf, 1.0, 2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions(dtype):
    for x in (random(50, dtype=dtype), random(3, 4, dtype=dtype).T, random(dtype=dtype)):
        check(np.sinc, x)
        if not dtype.startswith("complex"):
            check(np.i0, x)
    if dtype in FLOATS:
        check(np.sinc, np.array([0, 1e-8, 1e-40, np.nan, 0.5, 1, 2, 100.25], dtype))
        check(np.i0, np.array([0, -0.0, 1e-8, np.nan, np.inf, 8, 8.5, -10, 7.99], dtype))
