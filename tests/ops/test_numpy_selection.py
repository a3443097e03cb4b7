"""Twins of the NumPy functions that choose, order, replace and compare elements give what NumPy gives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from numpy_twins import DTYPES, FLOATS, REAL, Plain, check, draw, layouts, rows

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_selection import GROUPS

RNG = np.random.default_rng(0)
WHOLE = [name for name in REAL if name[0] in "iu"]


def run(function, *args, dtypes=DTYPES, shapes=((2, 3, 4),), nan=False, **kwargs):
    for dtype in dtypes:
        for shape in shapes:
            for array in layouts(draw(RNG, dtype, shape, nan)):
                check(GROUPS, function, array, *args, **kwargs)


def test_where():
    for one in DTYPES:
        for other in DTYPES:
            a, b, mask = draw(RNG, one, (2, 3)), draw(RNG, other, (3,)), RNG.random((2, 1)) < 0.5
            check(GROUPS, np.where, mask, a, Plain(b))
            check(GROUPS, np.where, Plain(mask), Plain(a), b)
        for value in (0, 0.5, 1j, True, np.float32(0.1), np.int64(3), Plain(np.array(0.1)), [1, 2, 3], np.bool(True)):
            check(GROUPS, np.where, mask, a, value)
            check(GROUPS, np.where, a, value, a)
            check(GROUPS, np.where, mask, value, a)
    for one, other in [(1.0, 0.0), (1, 0.5), (True, False), (0, 1), (1j, 0), (2, np.float32(1))]:
        check(GROUPS, np.where, mask, one, other)
    run(np.where, shapes=[(3,), (2, 3), (0,)])


def test_select():
    x = draw(RNG, "float32", (3, 4))
    for conditions in ([x < -1, x > 1], [x < 0, Plain(x < 2)]):
        for choices in ([x, x * 2], [1, x], [x, 0.5], [1, 2], [np.float64(1), x], [x[0], 3], [Plain(x), 1j]):
            for default in (0, 55, 0.5, np.float64(2), x[1]):
                check(GROUPS, np.select, conditions, choices, default)
            check(GROUPS, np.select, conditions, choices)
    check(GROUPS, np.select, [x > 0], [draw(RNG, "uint8", (3, 4))], 7)


def test_choose():
    index = np.array([[0, 2, 1], [1, 1, 0]])
    choices = [draw(RNG, "float32", (2, 3)), Plain(np.arange(3)), 2.5]
    for dtype in ("int64", "uint8", "int32"):
        check(GROUPS, np.choose, index.astype(dtype), choices)
    check(GROUPS, np.choose, Plain(index), draw(RNG, "uint16", (3, 2, 3)))
    for mode in ("wrap", "clip"):
        check(GROUPS, np.choose, index * 3 - 4, choices, mode=mode)
    check(GROUPS, np.choose, np.array([True, False]), [1, np.array([5, 6])])


@pytest.mark.parametrize("nan", [False, True])
def test_clip(nan):
    bounds = [(-1, 2), (None, 2), (0, None), (0.5, 1.5), (2, -1), (np.float32(0.1), 2), (np.float64(0.1), 1)]
    for dtype in FLOATS if nan else [name for name in REAL if name != "bool"]:
        for low, high in bounds:
            if dtype[0] == "u" and isinstance(low, int) and low < 0 and high == -1:
                continue
            if dtype[0] == "u" and (isinstance(high, int) and high < 0):
                continue
            run(np.clip, low, high, dtypes=[dtype], nan=nan)
            run(np.clip, a_min=low, a_max=high, dtypes=[dtype], shapes=[(3,), ()], nan=nan)
            run(np.clip, min=low, max=high, dtypes=[dtype], shapes=[(3,)], nan=nan)
        array = draw(RNG, dtype, (2, 3), nan)
        for other in REAL[1:]:
            limit = draw(RNG, other, (3,), nan and other[0] == "f")
            check(GROUPS, np.clip, array, limit, limit + limit.dtype.type(2))
            check(GROUPS, np.clip, array, limit, 3)
            check(GROUPS, np.clip, array, None, Plain(limit))
            check(GROUPS, np.clip, array, 0, np.array(limit[0]))
    check(GROUPS, np.clip, np.arange(5.0), [1, 1, 2, 2, 2], 3)
    check(GROUPS, np.clip, np.arange(5.0), None, None)
    check(GROUPS, np.clip, np.array([0, 200], "uint8"), -1, 300)
    check(GROUPS, np.clip, np.array([0, 2**64 - 1], "uint64"), 5, 2**63)
    check(GROUPS, np.clip, np.array([1.0, np.inf, -np.inf]), -5.0, 5.0)
    check(GROUPS, np.clip, np.array([1.0, 2.0]), np.nan, 5.0)


def test_clip_refuses_what_has_no_equivalent():
    with pytest.raises(Unsupported, match="where"):
        check(GROUPS, np.clip, np.ones(2), 0, 1, where=np.array([True, True]))
    with pytest.raises(Unsupported, match="complex"):
        check(GROUPS, np.clip, np.ones(2) * 1j, 0, 1)


@pytest.mark.parametrize("function", [np.sort, np.argsort])
@pytest.mark.parametrize("nan", [False, True])
def test_sorts(function, nan):
    dtypes = [*FLOATS, "complex64"] if nan else DTYPES
    for axis in (-1, 0, 1, None):
        run(function, axis, dtypes=dtypes, nan=nan)
        run(function, axis=axis, kind="stable", dtypes=dtypes, nan=nan)
    run(function, dtypes=dtypes, nan=nan, shapes=[(40,), (0,), (3, 0)])
    run(function, None, dtypes=dtypes, nan=nan, shapes=[()])
    if function is np.argsort:
        run(function, dtypes=dtypes, nan=nan, shapes=[()])
    check(GROUPS, function, np.array([2**64 - 1, 5, 2**63], "uint64"))
    parts = np.array([1, np.nan, -1, np.inf, 0])
    check(GROUPS, function, np.array([complex(one, other) for one in parts for other in parts]))


@pytest.mark.parametrize("function", [np.partition, np.argpartition])
def test_partitions(function):
    for kth in (0, 3, -1, [1, 5], (2, 2)):
        run(function, kth, shapes=[(9,), (3, 8)])
        run(function, kth, axis=0, shapes=[(9, 2)])
        run(function, kth, None, shapes=[(3, 3)])


def test_lexsort():
    keys = [draw(RNG, name, (30,)) for name in ("int8", "float32", "bool", "uint16")]
    check(GROUPS, np.lexsort, keys)
    check(GROUPS, np.lexsort, (keys[0], Plain(keys[2])))
    check(GROUPS, np.lexsort, draw(RNG, "int8", (3, 20)))
    check(GROUPS, np.lexsort, [draw(RNG, "int8", (4, 5)), draw(RNG, "bool", (4, 5))], axis=0)


def test_searchsorted():
    for one in REAL:
        for other in REAL:
            keys = np.sort(draw(RNG, one, (12,)))
            for side in ("left", "right"):
                check(GROUPS, np.searchsorted, keys, draw(RNG, other, (2, 3)), side=side)
        check(GROUPS, np.searchsorted, keys, 1)
        check(GROUPS, np.searchsorted, Plain(keys), np.array(keys[3]))
        shuffled = draw(RNG, one, (12,))
        check(GROUPS, np.searchsorted, shuffled, keys, sorter=np.argsort(shuffled))
    check(GROUPS, np.searchsorted, np.array([0.1, 0.2], "float32"), 0.1)
    check(GROUPS, np.searchsorted, np.array([1.0, 2.0]), np.array([np.nan, np.inf, -np.inf]))
    check(GROUPS, np.searchsorted, np.array([1, 2**63, 2**64 - 1], "uint64"), np.array([2**63 + 1], "uint64"))


@pytest.mark.parametrize("function", [np.nonzero, np.flatnonzero, np.argwhere])
def test_places_of_what_is_not_zero(function):
    run(function, shapes=[(3,), (3, 4), (2, 3, 4), (0, 2)])
    if function is not np.nonzero:
        run(function, shapes=[()])


def test_take():
    for axis in (None, 0, 1, -1):
        for indices in (0, -1, [0, 1], [-1, 0], [[0, 1], [1, -2]], Plain(np.array([1], "uint8")), np.int64(1)):
            run(np.take, indices, axis)
        for name in ("int64", "uint8", "int32", "uint64"):
            run(np.take, np.array([[1, 0, 1]], name), axis)
        run(np.take, np.array(1), axis)
        run(np.take, np.array([-1, -2]), axis)
        for mode in ("wrap", "clip"):
            run(np.take, [-30, 5, 40], axis, mode=mode)
            run(np.take, np.array([-30, 5, 40]), axis, mode=mode)
    check(GROUPS, np.take, Plain(np.arange(5.0)), np.array([3, -1]))
    run(np.take, 0, shapes=[()])
    run(np.take, [0, 0], shapes=[()])


def test_take_along_axis():
    array = draw(RNG, "float32", (3, 4))
    for axis in (0, 1, -1):
        order = np.argsort(array, axis)
        check(GROUPS, np.take_along_axis, array, order, axis)
        check(GROUPS, np.take_along_axis, array, Plain(order), axis)
        check(GROUPS, np.take_along_axis, Plain(array), order - array.shape[axis], axis=axis)
        check(GROUPS, np.take_along_axis, array, Plain(order - array.shape[axis]), axis)
        for dtype in DTYPES:
            check(GROUPS, np.take_along_axis, draw(RNG, dtype, (3, 4)), order, axis)
    check(GROUPS, np.take_along_axis, array, np.array([[1], [0], [2]], "int32"), 1)
    check(GROUPS, np.take_along_axis, array, np.array([5, -1]), None)


def test_compress_and_extract():
    mask = np.array([True, False, True])
    for condition in (mask, Plain(mask), mask[:2], [0, 1], np.array([2.0, 0.0, 1.0])):
        for axis in (None, 1, -2):
            for dtype in DTYPES:
                check(GROUPS, np.compress, condition, draw(RNG, dtype, (2, 3, 4)), axis)
    array = draw(RNG, "float32", (3, 4))
    check(GROUPS, np.extract, array > 0, array)
    check(GROUPS, np.extract, Plain(array > 0), array)
    check(GROUPS, np.extract, np.arange(12).reshape(3, 4) % 3, array)


def test_indices_of_many_axes():
    index = np.array([[5, 0], [23, 17]])
    for order in "CF":
        check(GROUPS, np.unravel_index, index, (2, 3, 4), order)
        parts = np.unravel_index(index, (2, 3, 4), order)
        check(GROUPS, np.ravel_multi_index, parts, (2, 3, 4), order=order)
        check(GROUPS, np.ravel_multi_index, tuple(part - 2 for part in parts), (2, 3, 4), mode="wrap", order=order)
        check(GROUPS, np.ravel_multi_index, tuple(part * 3 for part in parts), (2, 3, 4), ("clip", "wrap", "clip"))
    check(GROUPS, np.unravel_index, np.array(7), (2, 3, 4))
    check(GROUPS, np.unravel_index, np.array([7], "int32"), 9)
    check(GROUPS, np.ravel_multi_index, np.array([[1, 0], [2, 1]]), (2, 3))


def test_copyto():
    for one in DTYPES:
        for other in DTYPES:
            if np.can_cast(other, one, "same_kind"):
                array, new = draw(RNG, one, (2, 3)), draw(RNG, other, (3,))
                check(GROUPS, np.copyto, array, new)
                check(GROUPS, np.copyto, array, Plain(new), where=RNG.random((2, 3)) < 0.5)
    check(GROUPS, np.copyto, np.ones(3, "float32"), 7.1, where=np.array([True, False, True]))
    check(GROUPS, np.copyto, np.ones(3, "int8"), 2.7, casting="unsafe")
    check(GROUPS, np.copyto, np.ones(3, "uint8"), 2)
    check(GROUPS, np.copyto, np.ones(3), np.arange(3.0).reshape(1, 1, 3))
    check(GROUPS, np.copyto, np.ones(3), np.arange(3.0).reshape(1, 3), where=np.array([True, False, True]))


def test_put():
    for dtype in DTYPES:
        for where in ([0, 5], [-1], [[1, 2], [3, 4]], np.array([4, 0, 2]), 3, [1, 1, 0], np.array([2, -3], "int32")):
            for values in (1, [1, 0], [1, 0, 1, 1, 0], Plain(np.array([1.0]))):
                check(GROUPS, np.put, draw(RNG, dtype, (2, 3)), where, values)
        check(GROUPS, np.put, draw(RNG, dtype, (2, 3)), [7, -9], [1, 0], mode="clip")
        check(GROUPS, np.put, draw(RNG, dtype, (2, 3)), [7, -9], [1, 0], mode="wrap")
        check(GROUPS, np.put, draw(RNG, dtype, (2, 3)), [], 1)


def test_put_along_axis():
    for dtype in DTYPES:
        array = draw(RNG, dtype, (3, 4))
        for axis in (0, 1, -1):
            largest = np.argmax(np.abs(array), axis=axis, keepdims=True)
            check(GROUPS, np.put_along_axis, array, largest, 1, axis)
            check(GROUPS, np.put_along_axis, array, Plain(largest - array.shape[axis]), 1, axis)
            check(GROUPS, np.put_along_axis, array, largest - array.shape[axis], draw(RNG, dtype, largest.shape), axis)
        check(GROUPS, np.put_along_axis, array, np.array([3, -1]), np.array([1, 0]), None)


@pytest.mark.parametrize("function", [np.place, np.putmask])
def test_masked_writes(function):
    for dtype in DTYPES:
        array, mask = draw(RNG, dtype, (3, 4)), RNG.random((3, 4)) < 0.5
        for values in ([1], [1, 0, 1], draw(RNG, dtype, (3, 4)), Plain(draw(RNG, dtype, (5,)))):
            check(GROUPS, function, array, mask, values)
            check(GROUPS, function, array, Plain(mask), values)


def test_fill_diagonal():
    for dtype in DTYPES:
        for wrap in (False, True):
            for shape in [(3, 3), (5, 2), (2, 5), (3, 3, 3), (7, 2)]:
                check(GROUPS, np.fill_diagonal, draw(RNG, dtype, shape), 1, wrap)
                check(GROUPS, np.fill_diagonal, draw(RNG, dtype, shape), np.array([1, 0]), wrap=wrap)


def test_closeness():
    for one in DTYPES:
        for other in DTYPES:
            a = draw(RNG, one, (40,), nan=one[0] in "fc")
            b = draw(RNG, other, (40,), nan=other[0] in "fc")
            for words in ({}, {"equal_nan": True}, {"rtol": 0.3}, {"atol": 1}, {"rtol": np.float64(0.1), "atol": 0}):
                for function in (np.isclose, np.allclose):
                    check(GROUPS, function, a, b, **words)
                    check(GROUPS, function, a, Plain(b), **words)
        for value in (0, 1.0, np.float32(2), True):
            check(GROUPS, np.isclose, a, value)
            check(GROUPS, np.isclose, value, a, atol=0.5)
    values = np.array([np.inf, -np.inf, np.nan, 0.0, 1e-9, 1e10, 1.00001e10])
    check(GROUPS, np.isclose, values[:, None], values)
    check(GROUPS, np.isclose, values[:, None], values, equal_nan=True, atol=np.array([0, 1e-8, 1, 1, 1, 1, 1]))
    check(GROUPS, np.allclose, np.ones(3), np.ones(3) + 1e-9)


@pytest.mark.parametrize("function", [np.array_equal, np.array_equiv])
def test_equality(function):
    for dtype in DTYPES:
        array = draw(RNG, dtype, (2, 3), nan=dtype[0] in "fc")
        check(GROUPS, function, array, array.copy())
        check(GROUPS, function, array, Plain(array[:1]))
        check(GROUPS, function, array, draw(RNG, "float32", (4,)))
        if function is np.array_equal:
            check(GROUPS, function, array, array.copy(), equal_nan=True)


def test_isin():
    for one in DTYPES:
        for other in ("int8", "float64", one):
            for invert in (False, True):
                check(GROUPS, np.isin, draw(RNG, one, (3, 4)), draw(RNG, other, (3,)), invert=invert)
        check(GROUPS, np.isin, draw(RNG, one, (3, 4)), [0, 1])
    check(GROUPS, np.isin, np.array([np.nan, 1.0]), np.array([np.nan]))
    check(GROUPS, np.isin, np.array(1), Plain(np.arange(30)))


@pytest.mark.parametrize("function", [np.round, np.around])
def test_round(function):
    for decimals in (0, 1, 2, -1, -2):
        run(function, decimals, dtypes=[name for name in DTYPES if name != "bool"])
        check(GROUPS, function, RNG.normal(size=2000) * 100, decimals)
        check(GROUPS, function, (RNG.normal(size=2000) * 100).astype("float32"), decimals)
        check(GROUPS, function, (RNG.normal(size=2000) * 10).astype("float16"), decimals)
    check(GROUPS, function, np.array([0.5, 1.5, 2.5, -0.5, np.nan, np.inf]))
    check(GROUPS, function, np.array([15, 25, -15, 2**40 + 5]), -1)
    check(GROUPS, function, np.array([True, False]))


def test_parts_of_numbers():
    for function in (np.fix, np.isposinf, np.isneginf):
        run(function, dtypes=REAL)
        check(GROUPS, function, np.array([np.inf, -np.inf, np.nan, -2.7, 2.7], "float32"))
    for function in (np.real, np.imag, np.iscomplex, np.isreal):
        run(function)
    for deg in (False, True):
        run(np.angle, deg)
        check(GROUPS, np.angle, np.array([0.0, -0.0, np.inf, np.nan, complex(-1, -0.0)]), deg)
    run(np.sort_complex)
    run(np.real_if_close, dtypes=REAL)
    with pytest.raises(Unsupported):
        check(GROUPS, np.real_if_close, np.ones(2) * 1j)


def test_nan_to_num():
    values = np.array([np.nan, np.inf, -np.inf, 1.5, 0.0])
    for dtype in FLOATS:
        array = values.astype(dtype)
        for words in ({}, {"nan": 3}, {"posinf": 7.1, "neginf": -8}, {"nan": np.nan}, {"nan": np.float64(0.1)}):
            check(GROUPS, np.nan_to_num, array, **words)
        check(GROUPS, np.nan_to_num, array, False, 3.0)
        check(GROUPS, np.nan_to_num, array, copy=False)
        check(GROUPS, np.nan_to_num, array, nan=np.arange(5).astype(dtype))
        check(GROUPS, np.nan_to_num, array, nan=Plain(np.arange(5).astype(dtype)), posinf=np.full(5, 2, dtype))
    check(GROUPS, np.nan_to_num, np.array([complex(one, other) for one in values for other in values]))
    run(np.nan_to_num, dtypes=["int8", "bool", "uint64"])


def test_bits():
    for order in ("big", "little"):
        for axis in (None, 0, 1, -1):
            for dtype in ("bool", "uint8", "int64"):
                check(GROUPS, np.packbits, draw(RNG, dtype, (3, 11)), axis=axis, bitorder=order)
            octets = RNG.integers(0, 256, (3, 4)).astype("uint8")
            for count in (None, 5, -3, 40):
                check(GROUPS, np.unpackbits, octets, axis=axis, count=count, bitorder=order)


def test_indices_that_would_be_read_are_refused():
    with pytest.raises(Unsupported, match="kth follows the data"):
        rows(GROUPS)[np.partition].twin(torch.ones(3), torch.tensor(1))
