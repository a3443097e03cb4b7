"""Every NumPy function that can be seen stands in one row of the table: recorded, refused, or out of scope."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import numpy as np
import numpy.char
import numpy.lib.recfunctions
import numpy.lib.scimath
import numpy.lib.stride_tricks
import numpy.polynomial.polynomial
import numpy.strings
import pytest
import walk_numpy
from numpy.testing.overrides import get_overridable_numpy_array_functions, get_overridable_numpy_ufuncs

from leapp.ops._np_row import NoTwin, Op, OutOfScope
from leapp.ops.numpy_table import GROUPS, row_of

ROWS = [row for group in GROUPS for row in group.rows]


def _names(functions):
    return sorted({f"{each.__module__}.{each.__name__}" for each in functions})


def test_every_overridable_function_is_classified():
    missing = [each for each in get_overridable_numpy_array_functions() if row_of(each) is None]
    assert _names(missing) == []


def test_every_overridable_ufunc_is_classified():
    assert {each.__name__ for each in get_overridable_numpy_ufuncs() if row_of(each) is None} == set()


def test_no_function_has_two_rows():
    assert [function for function, count in Counter(row.numpy for row in ROWS).items() if count > 1] == []


def test_no_row_stands_for_a_function_that_numpy_has_not():
    homes = (
        np, np.linalg, np.fft, np.char, np.strings, np.lib.stride_tricks, np.lib.recfunctions, np.lib.scimath, np._core.umath,
        np.polynomial.polynomial,
    )  # fmt: skip
    standing = {id(each) for home in homes for each in vars(home).values()}
    for row in ROWS:
        if getattr(row.numpy, "__module__", "").startswith("numpy"):
            assert id(row.numpy) in standing, row.numpy


def test_refusals_say_why():
    for row in ROWS:
        if isinstance(row, (NoTwin, OutOfScope)):
            assert row.why, row


def test_rows_of_functions_have_a_twin():
    for row in ROWS:
        if isinstance(row, Op) and not isinstance(row.numpy, np.ufunc):
            assert callable(row.twin), row


def test_the_command_counts_every_function(capsys, monkeypatch):
    assert walk_numpy.main() == 0
    found = re.fullmatch(
        r"NumPy (\S+): (\d+) functions: recorded (\d+), refused (\d+), out of scope (\d+), 0 unclassified\n",
        capsys.readouterr().out,
    )
    assert found[1] == np.__version__
    total, *parts = map(int, found.groups()[1:])
    assert total == sum(parts) == len(ROWS)
    assert parts[0] > 300

    known = walk_numpy.row_of
    monkeypatch.setattr(walk_numpy, "row_of", lambda each: None if each is np.unique else known(each))
    assert walk_numpy.main() == 1
    assert "unique: neither recorded nor in a list of the table" in capsys.readouterr().out


@pytest.mark.parametrize("function", [np.ones, np.full, np.eye, np.zeros])
def test_doubles_that_like_hands_over_have_the_row_of_their_function(function):
    handed = []

    class Seen:
        def __array_function__(self, func, types, args, kwargs):
            handed.append(func)

    function(*((2, 1) if function is np.full else (2,)), like=Seen())
    assert row_of(handed[0]) is row_of(function)


OTHER_SIGNATURES = {
    np.reshape: "newshape of older versions", np.pad: "keywords by mode", np.arange: "one to three numbers", np.einsum: "keywords", np.empty_like: "prototype by its name as well",
}  # fmt: skip


def _parameters(function):
    return [(each.name, each.kind) for each in inspect.signature(function).parameters.values()]


def test_twins_have_numpys_own_signature():
    """Arguments are bound by Python itself: a twin's names, order and kinds must be NumPy's."""
    differing = set()
    for row in ROWS:
        function = getattr(row, "twin", None) or getattr(row, "function", None)
        if function is None or isinstance(row.numpy, np.ufunc) or not row.numpy.__module__.startswith("numpy"):
            continue
        if _parameters(function) != _parameters(row.numpy):
            differing.add(row.numpy)
    assert differing <= set(OTHER_SIGNATURES), differing - set(OTHER_SIGNATURES)
