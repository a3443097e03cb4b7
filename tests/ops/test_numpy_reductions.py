"""Twins of NumPy's reductions give what NumPy gives, over dtypes, layouts and arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from numpy_twins import DTYPES, FLOATS, REAL, Plain, check, draw, layouts

from leapp.ops.numpy_reductions import GROUPS

SHAPES = [(), (5,), (3, 4), (2, 3, 4), (0, 3), (3, 0)]
WHOLE = [each for each in DTYPES if each[0] in "biu"]


def axes_of(shape, several=True):
    yield None
    yield from range(-len(shape), len(shape))
    if several and len(shape) > 1:
        yield from [(0,), (0, -1), (), tuple(range(len(shape)))]


def sweep(function, dtypes, several=True, nan=False, empty=True, **words):
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        for dtype in dtypes:
            for array in layouts(draw(rng, dtype, shape, nan)):
                for axis in axes_of(shape, several):
                    reduced = array.size if axis is None else [shape[each] for each in np.atleast_1d(axis).astype(int)]
                    if not empty and not np.all(reduced):
                        continue
                    yield array, {"axis": axis, **words}


@pytest.mark.parametrize("function", [np.sum, np.prod, np.all, np.any, np.count_nonzero])
@pytest.mark.parametrize("keepdims", [False, True])
def test_folds(function, keepdims):
    for array, words in sweep(function, DTYPES, keepdims=keepdims):
        check(GROUPS, function, array, **words)


@pytest.mark.parametrize("function", [np.mean, np.var, np.std])
@pytest.mark.parametrize("keepdims", [False, True])
def test_means(function, keepdims):
    for array, words in sweep(function, DTYPES, keepdims=keepdims):
        check(GROUPS, function, array, **words)


@pytest.mark.parametrize("function", [np.max, np.min, np.amax, np.amin])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("nan", [False, True])
def test_extremes(function, keepdims, nan):
    for array, words in sweep(
        function, [*FLOATS, "complex64"] if nan else DTYPES, keepdims=keepdims, nan=nan, empty=False
    ):
        check(GROUPS, function, array, **words)


@pytest.mark.parametrize("function", [np.max, np.min])
def test_extremes_that_start_from_a_value(function):
    rng = np.random.default_rng(1)
    for dtype in REAL:
        for array, words in sweep(function, [dtype], initial=1):
            check(GROUPS, function, array, **words)
        array, mask = draw(rng, dtype, (3, 4)), rng.random((3, 4)) < 0.4
        check(GROUPS, function, array, axis=1, initial=1, where=mask)
        check(GROUPS, function, array, axis=1, initial=1, where=Plain(mask[0]))
    large = np.array([2**63 + 5, 3, 2**64 - 1], "uint64")
    check(GROUPS, function, large)
    check(GROUPS, function, large, initial=np.uint64(2**63))


@pytest.mark.parametrize("function", [np.max, np.min, np.argmax, np.argmin])
def test_complex_numbers_are_ordered_by_real_then_by_imaginary_part(function):
    parts = [1, 2, -1, np.inf, -np.inf, 0]
    numbers = np.array([complex(one, other) for one in parts for other in parts])
    rng = np.random.default_rng(7)
    for _ in range(20):
        check(GROUPS, function, rng.permutation(numbers)[:9].reshape(3, 3), axis=1)
        check(GROUPS, function, rng.permutation([*numbers[:5], complex(np.nan, 1), complex(1, np.nan)]))


def test_spans():
    for array, words in sweep(np.ptp, [each for each in REAL if each != "bool"], empty=False):
        check(GROUPS, np.ptp, array, **words)
    check(GROUPS, np.ptp, np.array([-100, 100], "int8"))
    check(GROUPS, np.ptp, np.array([1, 2**64 - 1], "uint64"))


@pytest.mark.parametrize("function", [np.argmax, np.argmin])
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
def test_places(function, nan, keepdims):
    dtypes = [*FLOATS, "complex64"] if nan else DTYPES
    for array, words in sweep(function, dtypes, several=False, nan=nan, empty=False, keepdims=keepdims):
        check(GROUPS, function, array, **words)


@pytest.mark.parametrize("function", [np.cumsum, np.cumprod])
def test_running_totals(function):
    for array, words in sweep(function, DTYPES, several=False):
        check(GROUPS, function, array, **words)
    check(GROUPS, function, np.array([1, 2, 3], "int8"), dtype="float32")
    check(GROUPS, function, np.array([100, 2, 3], "int32"), dtype=np.int8)
    check(GROUPS, function, np.array([1.5, 2.5]), dtype=np.int16)


@pytest.mark.parametrize("function", [np.cumulative_sum, np.cumulative_prod])
@pytest.mark.parametrize("include", [False, True])
def test_running_totals_of_the_array_api(function, include):
    rng = np.random.default_rng(2)
    for dtype in DTYPES:
        check(GROUPS, function, draw(rng, dtype, (4,)), include_initial=include)
        for axis in range(-3, 3):
            check(GROUPS, function, draw(rng, dtype, (2, 3, 4)), axis=axis, include_initial=include)
        check(GROUPS, function, draw(rng, dtype, (2, 0)), axis=1, include_initial=include)


@pytest.mark.parametrize("function", [np.sum, np.prod, np.nansum, np.nanprod])
def test_folds_take_a_dtype_a_start_and_a_mask(function):
    rng = np.random.default_rng(3)
    for dtype in DTYPES:
        array, mask = draw(rng, dtype, (3, 4)), rng.random((3, 4)) < 0.5
        check(GROUPS, function, array, initial=2)
        check(GROUPS, function, array, axis=0, initial=np.float32(2), where=mask)
        check(GROUPS, function, array, axis=(0, 1), where=Plain(mask[0]), keepdims=True)
        for other in ["int8", "uint8", "uint16", "int64", "uint64", "float32", "float64", "complex64"]:
            if dtype[0] != "c" or other[0] == "c":
                positive = np.abs(array) if other[0] == "u" and dtype != "bool" else array
                check(GROUPS, function, positive, dtype=other, axis=1)


def test_sums_wrap_around():
    check(GROUPS, np.sum, np.full(300, 2**62, "int64"))
    check(GROUPS, np.sum, np.full(3, 2**63, "uint64"))
    check(GROUPS, np.sum, np.full(300, 3, "uint8"), dtype=np.uint8)
    check(GROUPS, np.prod, np.full(70, 3, "uint32"))
    check(GROUPS, np.sum, np.array([True, True, False]), dtype=bool)
    check(GROUPS, np.prod, np.array([True, True, False]), dtype=bool)


@pytest.mark.parametrize("function", [np.mean, np.nanmean])
def test_means_take_a_dtype_and_a_mask(function):
    rng = np.random.default_rng(4)
    for dtype in DTYPES:
        array, mask = draw(rng, dtype, (3, 4)), rng.random((3, 4)) < 0.7
        check(GROUPS, function, array, where=mask)
        check(GROUPS, function, array, axis=0, where=Plain(mask), keepdims=True)
        check(GROUPS, function, array, axis=-1, dtype=np.complex128)
        if dtype[0] != "c":
            check(GROUPS, function, array, axis=-1, dtype=np.float32)
    check(GROUPS, np.mean, np.array([1, 2, 4, 4]), dtype=np.int64)
    check(GROUPS, np.mean, np.full(70000, 3, "float16"))


@pytest.mark.parametrize("function", [np.var, np.std, np.nanvar, np.nanstd])
def test_spreads_take_a_correction_a_mean_and_a_mask(function):
    rng = np.random.default_rng(5)
    for dtype in DTYPES:
        array, mask = draw(rng, dtype, (3, 4)), rng.random((3, 4)) < 0.7
        check(GROUPS, function, array, ddof=1)
        check(GROUPS, function, array, axis=0, ddof=1.5, keepdims=True)
        check(GROUPS, function, array, axis=0, ddof=5)
        check(GROUPS, function, array, axis=1, correction=1)
        check(GROUPS, function, array, axis=1, where=mask)
        check(GROUPS, function, array, where=Plain(mask), ddof=1)
        if dtype[0] == "f":
            check(GROUPS, function, array, axis=1, mean=np.mean(array, axis=1, keepdims=True))
            check(GROUPS, function, array, axis=1, dtype=np.float64)


def test_averages():
    rng = np.random.default_rng(6)
    for dtype in DTYPES:
        array = draw(rng, dtype, (2, 3, 4))
        for weights in (rng.random(3), rng.random(3).astype("float32"), np.array([1, 2, 3])):
            check(GROUPS, np.average, array, axis=1, weights=weights)
            check(GROUPS, np.average, array, axis=-2, weights=Plain(weights), returned=True, keepdims=True)
        check(GROUPS, np.average, array)
        check(GROUPS, np.average, array, axis=0, returned=True)
        check(GROUPS, np.average, array, weights=rng.random((2, 3, 4)))
        check(GROUPS, np.average, array, axis=(2, 0), weights=rng.random((4, 2)))
    check(GROUPS, np.average, np.array([1.0, 2.0]), weights=[3, 1])


@pytest.mark.parametrize("function", [np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd])
@pytest.mark.parametrize("nan", [False, True])
def test_folds_that_pass_over_nan(function, nan):
    for array, words in sweep(function, [*FLOATS, "complex64"] if nan else DTYPES, nan=nan):
        check(GROUPS, function, array, **words)
        check(GROUPS, function, array, keepdims=True, **words)


@pytest.mark.parametrize("function", [np.nanmax, np.nanmin])
def test_extremes_that_pass_over_nan(function):
    for array, words in sweep(function, FLOATS, nan=True, empty=False):
        check(GROUPS, function, array, **words)
        check(GROUPS, function, array, keepdims=True, initial=1, **words)
    check(GROUPS, function, np.array([[np.nan, np.nan], [1, np.inf], [-np.inf, np.nan]]), axis=1)
    for dtype in WHOLE:
        check(GROUPS, function, draw(np.random.default_rng(0), dtype, (3, 4)), axis=1)


@pytest.mark.parametrize("function", [np.nanargmax, np.nanargmin])
def test_places_that_pass_over_nan(function):
    array = np.array([[np.nan, 2, 5, 5], [-np.inf, np.nan, np.inf, 3]])
    for dtype in FLOATS:
        for axis in (None, 0, 1, -1):
            check(GROUPS, function, array[:, [0, 2, 2, 3]].astype(dtype)[:, 1:], axis=axis)
            check(GROUPS, function, array.astype(dtype), axis=axis if axis != 0 else 1, keepdims=True)


@pytest.mark.parametrize("function", [np.nancumsum, np.nancumprod])
def test_running_totals_that_pass_over_nan(function):
    for array, words in sweep(function, [*FLOATS, "int8", "complex64"], several=False, nan=True):
        check(GROUPS, function, array, **words)


@pytest.mark.parametrize("axis", [np.int64(-1), np.int32(-2), (np.int64(-1), -3)])
def test_axes_that_are_numbers_of_numpy(axis):
    array = np.random.default_rng(8).normal(size=(30, 40, 500)).astype("float32")
    for function in (np.sum, np.mean, np.std):
        check(GROUPS, function, array, axis)
        check(GROUPS, function, array, axis=axis)


def test_a_product_of_float16_overflows_where_numpy_says():
    from leapp.ops.numpy_table import row_of

    for values in ([182, 182, 182, 0.5, 0, 3], [200, 400, 0.001, 2], [300, 300, 1, 1]):
        array = np.array(values, np.float16)
        with np.errstate(over="ignore"):
            expected = np.prod(array)
        found = row_of(np.prod).twin(torch.from_numpy(array)).numpy()
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-3)
