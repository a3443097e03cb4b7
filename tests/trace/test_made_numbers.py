"""Plain numbers that C code made of traced data are named where they meet a traced value; all others are not."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from scipy.linalg.blas import dnrm2
from scipy.spatial import distance

from leapp import annotate, errors

TABLE = np.arange(4.0)
GAIN = np.float32(3.0)


def assigned(x):
    scale = np.float32(x.sum())
    return scale * x


def assigned_together(x):
    one, other = np.float32(x[0]), np.int32(2)
    return x * one + other


def in_place(x):
    y = x * 1
    y *= np.float32(x[0])
    return y


def element(x):
    y = x * 1
    y[0] = np.float32(x[1])
    return y


def of_a_table(x):
    place = x.astype(int) % 4
    mean = -TABLE[place].mean()
    return x - mean


READ = {
    "numpy.float32": [
        assigned,
        assigned_together,
        in_place,
        element,
        lambda x: x * np.float32(x[0]),
        lambda x: x > np.float32(x[0]),
        lambda x: np.clip(x, np.float32(x[0]), None),
        lambda x: np.where(x > 0, np.float32(x.sum()), x),
        lambda x: np.float32(x[0]) * x[1],
        lambda x: np.float32(x[0]).astype(np.float64) * x,
        lambda x: (2 * np.float32(x[0]) + 1) * x,
        lambda x: np.float32(np.asarray(x.sum())) * x,
    ],
    "numpy.int64": [lambda x: np.int64(x.sum()) * x],
    r"TABLE\[place\]": [of_a_table],
    r"TABLE\[x > 0\]": [lambda x: TABLE[x > 0].sum() * x],
    r"dnrm2\(x\)": [lambda x: x / dnrm2(x)],
    r"scipy\.spatial\.distance\.euclidean": [lambda x: distance.euclidean(x, TABLE) * x],
}


@pytest.mark.parametrize(
    ("function", "name"), [(function, name) for name, functions in READ.items() for function in functions]
)
def test_numbers_that_were_read_are_named(record, function, name):
    first = np.float32([0.5, -1.0, 2.0, 3.5])
    here = r"tests/trace/test_made_numbers\.py:\d+"
    with pytest.warns(errors.UntracedOpWarning, match=rf"^{name} at {here} took a traced value of node 'n'"):
        recorded = record(function, first.copy())
    np.testing.assert_array_equal(np.asarray(recorded.result), function(first.copy()))


def test_a_sum_of_a_list_says_what_to_write(record):
    with pytest.warns(errors.NoTwinWarning, match=r"np\.add\.reduce\(\[x\[0\], x\[1\]\]\)\. .* with np\.array"):
        record(lambda x: np.add.reduce([x[0], x[1]]) * x, np.array([0.5, 2.0]))


def constant(x):
    scale = np.float64(annotate.constant(float(TABLE[1] + 1)))
    return x * scale


class Gains:
    """Numbers of the user's own."""

    of = np.float32(2.0)

    @staticmethod
    def gain(x):
        """The same for any array."""
        return np.float32(0.5) if x.ndim == 1 else np.float32(1.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.float32(len(x)) * x + np.float64(x.shape[0]),
        lambda x: x / np.float32(x.size) + x.dtype.type(2),
        lambda x: np.result_type(x).type(2) * x,
        lambda x: Gains.of * x + Gains.gain(x) - GAIN,
        lambda x: np.float32(2) * x + 1.5,
        lambda x: np.float32(x) * np.float32(2),
        lambda x: np.clip(x, np.float32(0), np.float32(2)),
        lambda x: TABLE[2] * x + TABLE[1:].sum(),
        lambda x: x / (np.linalg.norm(x) + np.finfo(x.dtype).eps),
        lambda x: np.add.reduce([1.0, 2.0]) * x,
        lambda x: np.maximum(x, x.mean()) * np.dot(x, x),
        lambda x: x * dnrm2(TABLE),
        lambda x: max(1.0, 2.0) * x + abs(-2.0) + float(np.float32(3)),
        constant,
    ],
)
def test_other_numbers_are_not(record, function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record(function, np.array([0.5, -1.0, 2.0, 3.5]))


def test_code_without_source_is_left_to_the_probe(record):
    names = {"np": np}
    exec("def function(x): return np.float32(x.sum()) * x", names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record(names["function"], np.float32([0.5, -1.0]))


def test_what_the_function_holds_is_let_go(record):
    """Before Python 3.13 a frame keeps what it was asked for."""
    counts = []

    def function(x):
        kept = np.float32([1, 2, 3])
        y = x * np.float32(kept[0])
        counts.append(sys.getrefcount(kept))
        return y

    record(function, np.float32([0.5, -1.0]))
    assert counts == [2]
