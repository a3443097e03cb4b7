"""Twins of NumPy's constructors give what NumPy gives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from numpy_twins import DTYPES, REAL, Plain, check, draw, rows

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_creation import GROUPS

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("function", [np.zeros_like, np.ones_like, np.empty_like])
def test_likenesses(function):
    for dtype in DTYPES:
        for shape in [(), (3,), (2, 3), (0, 2)]:
            check(GROUPS, function, draw(RNG, dtype, shape))
            check(GROUPS, function, draw(RNG, dtype, shape), dtype=np.float32)
            check(GROUPS, function, draw(RNG, dtype, shape), bool)
            check(GROUPS, function, draw(RNG, dtype, shape), shape=(4, 1))
            check(GROUPS, function, draw(RNG, dtype, shape), shape=5, dtype="uint16")
            check(GROUPS, function, np.asfortranarray(draw(RNG, dtype, shape)), order="F")


def test_full_likenesses():
    for dtype in DTYPES:
        array = draw(RNG, dtype, (2, 3))
        for value in (1, 2.7, True, np.float32(0.1), np.array(1.5), [1, 2, 3], Plain(np.array([[1.0], [0.0]]))):
            check(GROUPS, np.full_like, array, value)
            check(GROUPS, np.full_like, array, value, dtype=np.float32)
            check(GROUPS, np.full_like, array, value, shape=(4, 2, 3))
    check(GROUPS, np.full_like, np.ones(3), np.nan)


def test_constructors():
    for dtype in (None, *DTYPES):
        for shape in (3, (2, 3), [2, 0], ()):
            for function in (np.zeros, np.ones, np.empty):
                check(GROUPS, function, shape, dtype)
            for value in (1, 2.5, np.float32(1.5), np.array(1.5, "float32")):
                check(GROUPS, np.full, shape, value, dtype)
    check(GROUPS, np.full, (2, 3), np.arange(3))
    check(GROUPS, np.full, 2, 1j)
    for arguments in ((3,), (3, 4), (3, 2, 1), (2, 4, -1, np.float32)):
        check(GROUPS, np.eye, *arguments)
        check(GROUPS, np.tri, *arguments)
    check(GROUPS, np.identity, 3)
    check(GROUPS, np.identity, 3, "int8")


def test_arange():
    for arguments in ((5,), (2, 5), (0, 1, 0.3), (5, 0, -2)):
        check(GROUPS, np.arange, *arguments)
        check(GROUPS, np.arange, *arguments, dtype=np.float32)
    for arguments in ((torch.tensor(3),), (0, torch.tensor(3))):
        with pytest.raises(Unsupported, match="np.linspace"):
            rows(GROUPS)[np.arange].twin(*arguments)


@pytest.mark.parametrize("endpoint", [False, True])
@pytest.mark.parametrize("num", [0, 1, 2, 7, 50])
def test_linspace(endpoint, num):
    for one in REAL:
        for other in ("float32", "float64", "int8"):
            start, stop = draw(RNG, one, (2, 3)), draw(RNG, other, (3,))
            check(GROUPS, np.linspace, start, stop, num, endpoint)
            check(GROUPS, np.linspace, start[0, 0], np.asarray(stop[0]), num, endpoint)
            check(GROUPS, np.linspace, start, Plain(stop), num, endpoint, axis=-1)
        check(GROUPS, np.linspace, start, 3, num, endpoint, dtype=np.int32)
        check(GROUPS, np.linspace, -2.5, start, num, endpoint, dtype="float32", axis=1)
    check(GROUPS, np.linspace, np.array(1 + 2j), 3, num, endpoint)
    if num > 1:
        check(GROUPS, np.linspace, np.array(1.0), 3, num, endpoint, retstep=True)


@pytest.mark.parametrize("endpoint", [False, True])
@pytest.mark.parametrize("num", [0, 1, 2, 7, 50])
def test_spaces_of_powers(endpoint, num):
    for dtype in ("float32", "float64"):
        start, stop = np.array([1, 2, 0.5], dtype), np.array([3, 8, 0.25], dtype)
        check(GROUPS, np.logspace, start, stop, num, endpoint)
        check(GROUPS, np.logspace, start, 2, num, endpoint, base=2.0, axis=-1)
        check(GROUPS, np.logspace, start, 2, num, endpoint, base=np.float64(3), dtype="float32")
        check(GROUPS, np.geomspace, start, stop, num, endpoint)
        check(GROUPS, np.geomspace, -start, -stop, num, endpoint, axis=1)
        check(GROUPS, np.geomspace, start, 100, num, endpoint, dtype=np.float32)
    check(GROUPS, np.geomspace, np.array([1, 10]), 1000, num, endpoint)


def test_arrays_of_traced_parts():
    c, s = np.array(0.5, "float32"), np.array(0.25, "float32")
    check(GROUPS, np.array, [[c, -s], [s, c]])
    check(GROUPS, np.array, [[c, 0.0], [1, Plain(s)]])
    check(GROUPS, np.array, [[c, 0], [1, s]], dtype=np.float64)
    check(GROUPS, np.array, (c, np.float32(2), True))
    check(GROUPS, np.array, [np.ones(3, "int8"), [1, 2, 3]])
    check(GROUPS, np.array, [[np.ones(3, "float32")], [np.zeros(3, "float16")]])
    check(GROUPS, np.asarray, [c, np.array(3)], "int32")
    check(GROUPS, np.array, c, ndmin=2)
    check(GROUPS, np.array, [c, s], ndmin=3)


@pytest.mark.parametrize("function", [np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray, np.require])
def test_conversions(function):
    for one in DTYPES:
        for shape in [(), (3,), (2, 3)]:
            array = draw(RNG, one, shape)
            check(GROUPS, function, array)
            for other in ("float32", "int64", "bool"):
                if one[0] != "c":
                    check(GROUPS, function, array, dtype=other)


def test_astype():
    for one in DTYPES:
        for other in DTYPES:
            array = np.abs(draw(RNG, one, (3, 4))) if other[0] == "u" and one != "bool" else draw(RNG, one, (3, 4))
            check(GROUPS, np.astype, array, other)
        check(GROUPS, np.copy, np.asfortranarray(draw(RNG, one, (2, 3))))
        check(GROUPS, np.copy, draw(RNG, one, ()))
    check(GROUPS, np.astype, np.array([300, -1, 2**40]), np.uint8)
    check(GROUPS, np.astype, np.array([1.9, -1.9, 0.5]), np.int32)
    check(GROUPS, np.require, np.array(1.0), None, ["C"])
    check(GROUPS, np.require, np.array(1.0), np.float32, "W")
