"""Twins of NumPy's Fourier transforms give what NumPy gives, over dtypes, layouts and arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import numpy_twins
from numpy_twins import DTYPES, draw, layouts

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_fft import GROUPS

LINES = [np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft]
PLANES = [np.fft.fft2, np.fft.ifft2, np.fft.rfft2, np.fft.irfft2]
SPACES = [np.fft.fftn, np.fft.ifftn, np.fft.rfftn, np.fft.irfftn]
WHOLE = [each for each in DTYPES if each != "float16"]
OF_REAL = {"rfft", "ihfft", "rfft2", "rfftn"}


def check(function, *args, **kwargs):
    numpy_twins.check(GROUPS, function, *args, **kwargs)


def random(*shape, dtype="float64"):
    return draw(np.random.default_rng([*shape]), dtype, shape)


@pytest.mark.parametrize("function", LINES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", WHOLE)
def test_along_one_axis(function, dtype):
    if function.__name__ in OF_REAL and dtype.startswith("complex"):
        return
    for shape in [(6,), (7,), (3, 5), (2, 4, 3), (2, 1)]:
        for a in layouts(random(*shape, dtype=dtype)):
            for axis in range(-a.ndim, a.ndim):
                for norm in (None, "ortho", "forward", "backward"):
                    if a.shape[axis] > 1:
                        check(function, a, axis=axis, norm=norm)
                    check(function, a, 4, axis, norm)
                    check(function, a, n=np.int64(9), axis=axis, norm=norm)
                    check(function, a, 3, axis=axis)


@pytest.mark.parametrize("function", PLANES + SPACES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", WHOLE)
def test_along_several_axes(function, dtype):
    if function.__name__ in OF_REAL and dtype.startswith("complex"):
        return
    for a in layouts(random(3, 4, 5, dtype=dtype)):
        for words in (
            {}, {"norm": "ortho"}, {"norm": "forward", "axes": (0, 2)}, {"axes": (-1, 0)}, {"axes": (1,)}, {"axes": (1, 0)}, {"s": (4, 6), "axes": (0, 1)},
            {"s": (2, -1), "axes": (2, 1)}, {"s": [7, 2], "axes": [-3, -1]}, {"s": (-1, 3), "axes": (0, 1)},
        ):  # fmt: skip
            check(function, a, **words)
    if function in SPACES:
        check(function, random(6, dtype=dtype))
    if function in (np.fft.fftn, np.fft.ifftn):
        check(function, random(6, dtype=dtype), axes=())


@pytest.mark.parametrize("dtype", DTYPES)
def test_shifts(dtype):
    for shape in [(6,), (7,), (3, 4), (0,), (2, 3, 5)]:
        for a in layouts(random(*shape, dtype=dtype)):
            for function in (np.fft.fftshift, np.fft.ifftshift):
                check(function, a)
                check(function, a, -1)
                check(function, a, axes=(0,))
                if a.ndim > 1:
                    check(function, a, (1, 0))


def test_numbers_that_are_none():
    a = random(8)
    a[3] = np.nan
    for function in LINES:
        check(function, a)


def test_what_has_no_twin():
    for function in LINES + SPACES:
        with pytest.raises(Unsupported, match="rounds the factor"):
            numpy_twins.rows(GROUPS)[function].twin(torch.ones(4, dtype=torch.float16))
        with pytest.raises(Unsupported, match="nothing to transform"):
            numpy_twins.rows(GROUPS)[function].twin(torch.ones(0, 4))


def test_an_axis_is_transformed_once():
    with pytest.raises(Unsupported, match="twice"):
        numpy_twins.rows(GROUPS)[np.fft.fftn].twin(torch.ones(3), axes=(0, 0))


@pytest.mark.parametrize("function", LINES, ids=lambda f: f.__name__)
def test_a_wrong_result_is_told(function):
    a = random(64)
    right = function(a)
    wrong = right.copy()
    wrong[5] += 1e-9
    assert numpy_twins.rows(GROUPS)[function].check.wrong(right, wrong, function, (a,), {}) is not None
