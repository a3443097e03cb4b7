"""Every NumPy function that can be seen stands in one row of the table: recorded, refused, or out of scope."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.lib.recfunctions
import numpy.lib.scimath
import numpy.lib.stride_tricks
import pytest
from numpy.testing.overrides import get_overridable_numpy_array_functions, get_overridable_numpy_ufuncs

from leapp.ops._np_row import NoTwin, Op, OutOfScope
from leapp.ops.numpy_table import GROUPS, row_of

ROWS = [row for group in GROUPS for row in group.rows]


def _names(functions):
    return sorted({f"{each.__module__}.{each.__name__}" for each in functions})


AWAITED = set(
    (
        "numpy.apply_along_axis numpy.apply_over_axes numpy.bincount numpy.convolve numpy.correlate numpy.diff "
        "numpy.digitize numpy.ediff1d numpy.gradient numpy.histogram numpy.histogram2d numpy.histogram_bin_edges "
        "numpy.histogramdd numpy.i0 numpy.interp numpy.intersect1d numpy.linalg.lstsq numpy.poly numpy.polyadd "
        "numpy.polyder numpy.polydiv numpy.polyfit numpy.polyint numpy.polymul numpy.polysub numpy.polyval numpy.roots "
        "numpy.setdiff1d numpy.setxor1d numpy.sinc numpy.trapezoid numpy.union1d numpy.unique numpy.unique_all "
        "numpy.unique_counts numpy.unique_inverse numpy.unique_values numpy.unwrap numpy.vander "
    ).split()
)


def test_every_overridable_function_is_classified():
    missing = [each for each in get_overridable_numpy_array_functions() if row_of(each) is None]
    assert set(_names(missing)) - AWAITED == set()


def test_every_overridable_ufunc_is_classified():
    assert {each.__name__ for each in get_overridable_numpy_ufuncs() if row_of(each) is None} == set()


def test_no_function_has_two_rows():
    assert [function for function, count in Counter(row.numpy for row in ROWS).items() if count > 1] == []


def test_no_row_stands_for_a_function_that_numpy_has_not():
    for row in ROWS:
        if getattr(row.numpy, "__module__", "").startswith("numpy"):
            name = row.numpy.__name__
            homes = (np, np.linalg, np.fft, np.lib.stride_tricks, np.lib.recfunctions, np.lib.scimath)
            assert any(getattr(home, name, None) is row.numpy for home in homes), name


def test_refusals_say_why():
    for row in ROWS:
        if isinstance(row, (NoTwin, OutOfScope)):
            assert row.why, row


def test_rows_of_functions_have_a_twin():
    for row in ROWS:
        if isinstance(row, Op) and not isinstance(row.numpy, np.ufunc):
            assert callable(row.twin), row


@pytest.mark.parametrize("function", [np.ones, np.full, np.eye, np.zeros])
def test_doubles_that_like_hands_over_have_the_row_of_their_function(function):
    handed = []

    class Seen:
        def __array_function__(self, func, types, args, kwargs):
            handed.append(func)

    function(*((2, 1) if function is np.full else (2,)), like=Seen())
    assert row_of(handed[0]) is row_of(function)
