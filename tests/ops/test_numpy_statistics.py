"""Twins of NumPy's statistics give what NumPy gives, over dtypes, layouts and arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import numpy_twins
from numpy_twins import FLOATS, REAL, Plain, draw, layouts

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_statistics import GROUPS


def check(function, *args, **kwargs):
    numpy_twins.check(GROUPS, function, *args, **kwargs)


def random(*shape, dtype="float64", seed=0, nan=False):
    return draw(np.random.default_rng([seed, *shape]), dtype, shape, nan)


METHODS = [
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "linear",
    "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
]  # fmt: skip


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("function", [np.median, np.nanmedian])
def test_median(function, dtype):
    for shape in [(5,), (6,), (3, 4), (2, 3, 5), (1,), (0, 3), (3, 0)]:
        for nan in (False, True) if dtype in FLOATS else (False,):
            for array in layouts(random(*shape, dtype=dtype, nan=nan)):
                for axis in (None, *range(-array.ndim, array.ndim), *([(0, -1), (1, 0)] if array.ndim > 1 else [])):
                    if function is np.nanmedian and not array.size:
                        continue
                    check(function, array, axis)
                    check(function, array, axis, keepdims=True)


@pytest.mark.parametrize("function", [np.median, np.nanmedian, np.quantile])
def test_infinities_and_large_numbers(function):
    extra = (0.5,) if function is np.quantile else ()
    for values in ([np.inf, -np.inf], [np.inf, np.inf], [1, np.inf, np.inf, 2], [1e308, 1.7e308], [1.7e308] * 3, [np.nan] * 2, [np.nan, 1]):  # fmt: skip
        check(function, np.array(values), *extra)
        check(function, np.array([values, values[::-1]]), *extra, axis=1)
    check(function, np.array([60000, 60000], np.float16), *extra)


def test_the_median_of_a_number_is_refused():
    with pytest.raises(Unsupported, match="single number"):
        numpy_twins.rows(GROUPS)[np.median].twin(torch.tensor(1.0))


@pytest.mark.parametrize("dtype", [each for each in REAL if each != "bool"])
@pytest.mark.parametrize("method", METHODS)
def test_quantile(method, dtype):
    for shape in [(5,), (6,), (3, 4), (1,)]:
        for array in layouts(random(*shape, dtype=dtype)):
            for q in (0.5, 0, 1, 0.25, 1 / 3, 0.9, np.float32(0.3), np.float64(0.7), [0.1, 0.5, 0.99], [0, 1], [[0.2, 0.3], [0.6, 1]], Plain(np.float32([0.1, 0.9]))):  # fmt: skip
                check(np.quantile, array, q, method=method)
                check(np.quantile, array, q, axis=0, method=method)
            for q in (50, 0, 100, 12.5, [25, 50, 75.0], (10, 90)):
                check(np.percentile, array, q, axis=-1, method=method, keepdims=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("method", METHODS)
def test_quantile_with_nan(method, dtype):
    for shape in [(5,), (4, 6), (2, 3, 5)]:
        array = random(*shape, dtype=dtype, nan=True)
        for function in (np.quantile, np.nanquantile):
            for q in (0.5, 0.0, 1.0, 0.37, Plain(np.array([0.1, 0.5, 0.99]))):
                for axis in (None, 0, -1, (0, array.ndim - 1)) if array.ndim > 1 else (None, 0):
                    first = array if axis is None or isinstance(axis, tuple) else np.moveaxis(array, axis, -1)[(0,) * (array.ndim - 1)]  # fmt: skip
                    if np.isnan(first).all():
                        continue  # NumPy takes the dtype of all results from the first one
                    check(function, array, q, axis, method=method)
                    check(function, array, q, axis, method=method, keepdims=True)
        check(np.nanpercentile, array, 30, method=method)
        check(np.nanpercentile, array, Plain(np.array([30.0, 50])), -1, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_that_are_traced(method):
    for array in (random(7), random(3, 4), random(3, 4, dtype="float32"), random(6, dtype="int32")):
        for q in (np.array([0.1, 0.5, 0.9, 1.0, 0.0]), np.array(0.4), np.float32([0.3, 0.6])):
            for axis in (None, 0, -1):
                check(np.quantile, array, q, axis, method=method)
                check(np.percentile, array, q * np.float32(50), axis, method=method, keepdims=True)
                check(np.nanquantile, array, q, axis, method=method)
    check(np.nanquantile, random(5, 4, nan=True), np.array([0.1, 0.9]), 0, method=method)


def test_quantiles_over_several_axes():
    array = random(2, 3, 4, 5)
    for axis in ((0, 1), (-1, 0), (3, 1), (0, 1, 2, 3), (2,)):
        for keepdims in (False, True):
            check(np.quantile, array, 0.3, axis, keepdims=keepdims)
            check(np.percentile, array, Plain(np.array([10, 50.0])), axis, keepdims=keepdims)
            check(np.median, array, axis, keepdims=keepdims)
            check(np.nanmedian, array, axis, keepdims=keepdims)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "uint32", *FLOATS, "complex64", "complex128"])
def test_cov(dtype):
    x, y, line = random(3, 8, dtype=dtype), random(2, 8, dtype=dtype, seed=1), random(8, dtype=dtype, seed=2)
    counts, shares = Plain(np.array([1, 2, 0, 3, 1, 1, 4, 2])), np.abs(random(8, seed=3)) + 0.1
    for array in (*layouts(x), line, x[:1]):
        for words in (
            {}, {"bias": True}, {"ddof": 0}, {"ddof": 3}, {"fweights": counts}, {"aweights": shares}, {"aweights": Plain(shares)},
            {"fweights": counts, "aweights": shares}, {"aweights": shares, "ddof": 0}, {"fweights": counts, "ddof": 2}, {"dtype": "complex64" if dtype.startswith("c") else "float32"},
        ):  # fmt: skip
            check(np.cov, array, **words)
    for function in (np.cov, np.corrcoef):
        check(function, x, y)
        check(function, x, line)
        check(function, x.T, rowvar=False)
        check(function, x.T, y.T, False)
        check(function, x)
        check(function, line)
        check(function, line, line)


def test_covariances_of_hard_data():
    x = random(3, 6)
    x[1, 2] = np.nan
    check(np.cov, x)
    check(np.corrcoef, x)
    check(np.cov, 1e9 + random(3, 50))
    check(np.corrcoef, 1e9 + random(3, 50))
    check(np.corrcoef, np.stack([np.ones(4), np.arange(4.0)]))
    check(np.cov, np.ones((2, 1)))
    check(np.cov, random(2, 3), ddof=3)


@pytest.mark.parametrize("function", [np.cov, np.corrcoef])
def test_a_wrong_covariance_is_told(function):
    row = numpy_twins.rows(GROUPS)[function]
    x = random(3, 20)
    right = function(x)
    wrong = right * (1 + 1e-9)
    given = ((right,), (wrong,)) if row.check.whole else (right, wrong)
    assert row.check.wrong(*given, function, (x,), {}) is not None


@pytest.mark.parametrize("dtype", REAL)
def test_histogram(dtype):
    for a in (random(40, dtype=dtype), random(5, 8, dtype=dtype).T, random(1, dtype=dtype), random(0, dtype=dtype), np.ones(5, dtype)):  # fmt: skip
        for words in (
            {}, {"bins": 3}, {"bins": 7, "range": (-1, 2.5)}, {"bins": 4, "range": (0, 4)}, {"bins": [-2, 0, 1, 1, 5]}, {"bins": Plain(np.array([0.0, 0.5, 3]))},
            {"bins": np.array([0.0, 0.5, 3, np.inf])}, {"range": (0, 1), "density": True}, {"bins": [0, 1, 6.0], "density": True}, {"bins": np.int64(4), "density": True},
        ):  # fmt: skip
            check(np.histogram, a, **words)
            words.pop("density", None)
            check(np.histogram_bin_edges, a, **words)


@pytest.mark.parametrize("dtype", FLOATS)
def test_histogram_of_nan(dtype):
    a = random(60, dtype=dtype, nan=True)
    a[3], a[7] = np.inf, -np.inf
    for words in ({"range": (-2, 2)}, {"bins": [-1, 0.5, 2]}, {"bins": [-1, 0.5, np.inf]}, {"bins": Plain(np.array([-np.inf, 0, 1]))}):  # fmt: skip
        check(np.histogram, a, **words)


@pytest.mark.parametrize("dtype", [each for each in REAL if each != "bool"])
def test_histograms_of_several_columns(dtype):
    x, y = random(30, dtype=dtype), random(30, dtype=dtype, seed=1)
    for words in ({}, {"bins": 4}, {"bins": (3, 5)}, {"bins": [[-1, 0, 2, 5], 4]}, {"bins": np.array([-2.0, 0, 1, 4])}, {"bins": 3, "range": [[-1, 3], [0, 2]]}, {"bins": 3, "density": True}):  # fmt: skip
        check(np.histogram2d, x, y, **words)
    check(np.histogramdd, random(30, 3, dtype=dtype), bins=3)
    check(np.histogramdd, random(30, 3, dtype=dtype), bins=(2, [0, 1.5, 3], 4), density=True)
    check(np.histogramdd, [x, y], bins=3)
    check(np.histogramdd, (x, y), range=[(-1, 1), None])


def test_what_has_no_twin():
    a = torch.arange(5.0)
    rows = numpy_twins.rows(GROUPS)
    for function, words, text in (
        (np.histogram, {"bins": "auto"}, "number of bins"), (np.histogram, {"weights": a}, "weights"), (np.histogram, {"range": (a[0], a[1])}, "range"),
        (np.quantile, {"q": 0.5, "weights": a, "method": "inverted_cdf"}, "weights"), (np.median, {}, "complex"),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=text):
            rows[function].twin(a + 1j if text == "complex" else a, **words)
