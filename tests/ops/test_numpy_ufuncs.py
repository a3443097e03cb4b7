"""Twins of ufuncs give, on plain tensors, what NumPy gives: dtype, shape and, by the row's own check, the values."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from numpy.testing import overrides

from leapp.ops._np_row import Op, Unsupported
from leapp.ops.numpy_ufuncs import GROUPS, ROWS, loop, ufunc_twin

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
OPS = [row for group in GROUPS for row in group.rows if isinstance(row, Op)]
EACH = [row for row in OPS if row.elementwise]
PRODUCTS = [row for row in OPS if not row.elementwise]


def name_of(row):
    return row.numpy.__name__


def hard(dtype):
    """Values at which implementations differ."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        signed = [limits.min, limits.min + 1, -7, -2, -1] if dtype.kind == "i" else []
        return np.array([*signed, 0, 1, 2, 3, 7, 31, 63, limits.max // 2 + 1, limits.max - 1, limits.max], dtype)
    limits = np.finfo(dtype)
    sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 10.0, np.pi, 88.5, 1e3, 1e4, 1e-5]
    sizes += [limits.tiny, limits.tiny / 8, limits.smallest_subnormal, limits.eps, 1 + limits.eps, 1 - limits.eps / 2]
    if dtype.kind == "c":
        sizes = [0.0, 0.5, 1.0, 1.5, 2.5, 10.0]
        return np.array([complex(a, b) for x in sizes for y in sizes for a in (x, -x) for b in (y, -y)], dtype)
    reals = np.array([*sizes, 6e4, limits.max / 8, limits.max, np.inf, np.nan], np.longdouble)
    return np.concatenate([reals, -reals]).astype(dtype)


def random(dtype, count, rng):
    """Values of every magnitude."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        wide = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        small = rng.integers(0 if dtype.kind == "u" else -9, 9, count).astype(dtype)
        return np.where(rng.random(count) < 0.5, wide, small)
    if dtype.kind == "c":
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype) * dtype.type(3)
    spread = rng.standard_normal(count) * rng.choice([1e-3, 1.0, 30.0, 1e4], count)
    return np.where(rng.random(count) < 0.5, rng.standard_normal(count), spread).astype(dtype)


def rng_for(*names):
    return np.random.default_rng(zlib.crc32("/".join(map(str, names)).encode()))


def as_tensors(operands):
    return [torch.from_numpy(each.copy()) if isinstance(each, np.ndarray) else each for each in operands]


def assert_same(row, operands, kwargs=None, given=None):
    """NumPy's own results, and the twin's; skips nothing but what NumPy refuses."""
    kwargs = kwargs or {}
    with np.errstate(all="ignore"):
        expected = row.numpy(*operands, **kwargs)
        actual = ufunc_twin(row, as_tensors(operands) if given is None else given, kwargs)
    together = zip(expected, actual, strict=True) if isinstance(expected, tuple) else [(expected, actual)]
    for one, other in together:
        array = other.resolve_conj().resolve_neg().numpy()
        assert (array.dtype, array.shape) == (np.asarray(one).dtype, np.shape(one))
        with np.errstate(all="ignore"):
            where = row.check.wrong(np.asarray(one), array, row.numpy, tuple(operands), kwargs)
        if where is not None:
            at = [np.broadcast_to(each, np.shape(one))[where] if row.elementwise else each for each in operands]
            pytest.fail(f"{name_of(row)}({at}) is {np.asarray(one)[where]}, not {array[where]}")


def accepted(row, *dtypes):
    """Whether NumPy computes with these dtypes, in a loop that is no long double's."""
    try:
        found = row.numpy.resolve_dtypes((*map(np.dtype, dtypes), *(None,) * row.numpy.nout))
    except TypeError:
        return False
    return all(each.name in DTYPES for each in found)


def within_reach(row, operands):
    """The operands without the pairs that NumPy refuses or that have no defined answer."""
    name = name_of(row)
    if name in {"power", "float_power"} and operands[1].dtype.kind == "i" and operands[0].dtype.kind in "iub":
        return operands[0], np.abs(operands[1] % 9)
    if name == "power" and operands[1].dtype.kind == "u" and operands[0].dtype.kind in "iub":
        return operands[0], operands[1] % 9
    if name in {"remainder", "fmod", "divmod"} and operands[0].dtype.kind == "f":  # SLEEF gives up at huge quotients
        with np.errstate(all="ignore"):
            keep = np.isfinite(operands[0] / operands[1]) | ~np.isfinite(operands[0]) | (operands[1] == 0)
        return operands[0][keep], operands[1][keep]
    if name in {"sinh", "cosh"} and operands[0].dtype.kind == "f":  # so do its exponentials at the end of their range
        limit = np.log(float(np.finfo(operands[0].dtype).max))
        return (operands[0][~(np.abs(np.abs(operands[0].astype(np.float64)) - limit) < 1)],)
    return operands


# What the rows are


def test_every_ufunc_is_classified_once():
    rows = [row.numpy for group in GROUPS for row in group.rows]
    missing = [each.__name__ for each in overrides.get_overridable_numpy_ufuncs() if each not in rows]
    assert missing == []
    assert len(rows) == len(set(rows))


REFUSED = {
    "float16": ["spacing"],
    "bool": ["spacing"],  # and small integers: their loop is float16's
    "int8": ["spacing"],
    "uint8": ["spacing"],
    "uint64": ["gcd", "lcm"],
}
"""Loops that NumPy has and the twins have not, reviewed."""


def test_what_is_refused_is_what_was_reviewed():
    refused = {}
    for row in OPS:
        for dtype in DTYPES:
            if not accepted(row, *(dtype,) * row.numpy.nin):
                continue
            operands = [torch.from_numpy(np.ones((2, 2) if row in PRODUCTS else 3, dtype))] * row.numpy.nin
            try:
                ufunc_twin(row, operands, {})
            except Unsupported:
                refused.setdefault(dtype, []).append(name_of(row))
    assert refused == REFUSED


# Values


@pytest.mark.parametrize("row", EACH, ids=name_of)
def test_hard_and_random_values(row):
    rng = rng_for(name_of(row))
    nin = row.numpy.nin
    for dtype in DTYPES:
        if not accepted(row, *(dtype,) * nin) or name_of(row) in REFUSED.get(dtype, []):
            continue
        values = hard(dtype)
        grid = [each.ravel() for each in np.meshgrid(*[values[:40]] * nin)] if nin > 1 else [values]
        for operands in (grid, [random(dtype, 1000, rng) for _ in range(nin)]):
            assert_same(row, within_reach(row, operands))


NUMBERS = [True, 0, 1, 2, -3, 300, 0.1, -2.5, 1e-3, float("inf"), float("nan"), 1.5 + 0.5j]
NUMPY_SCALARS = [
    np.True_,
    np.int8(3),
    np.uint8(200),
    np.int64(-2),
    np.uint64(5),
    np.float16(0.1),
    np.float32(0.1),
    np.float64(0.1),
    np.complex64(1 - 2j),
]


@pytest.mark.parametrize("row", [row for row in EACH if row.numpy.nin == 2], ids=name_of)
def test_numbers_on_either_side(row):
    """Python's are weak, NumPy's are not, and 0-d arrays are as strong as any array."""
    rng = rng_for(name_of(row), "numbers")
    for dtype in DTYPES:
        for number in (*NUMBERS, *NUMPY_SCALARS, *(np.array(each) for each in NUMPY_SCALARS)):
            array = random(dtype, 50, rng)
            for operands in ((array, number), (number, array)):
                if not numpy_computes(row, operands) or is_out_of_bounds(row, operands):
                    continue
                try:
                    assert_same(row, operands)
                except Unsupported:
                    assert "uint64" in str(loop_of(row, operands)) or name_of(row) == "spacing"


def loop_of(row, operands):
    kinds = [
        np.dtype(bool) if type(each) is bool else type(each) if type(each) in (int, float, complex) else each.dtype
        for each in operands
    ]
    return row.numpy.resolve_dtypes((*kinds, *(None,) * row.numpy.nout))


def numpy_computes(row, operands):
    try:
        with np.errstate(all="ignore"):
            found = row.numpy(*operands)
    except (TypeError, ValueError, OverflowError):
        return False
    return all(np.asarray(each).dtype.name in DTYPES for each in (found if isinstance(found, tuple) else (found,)))


def is_out_of_bounds(row, operands):
    """Torch has no answer for huge quotients and for sums with complex infinities; integers overflow in powers."""
    name = name_of(row)
    kinds = [np.asarray(each).dtype.kind for each in operands]
    with np.errstate(all="ignore"):
        one, other = (np.abs(np.asarray(each)).astype(float) for each in operands)
        if name == "power":
            return bool(set(kinds) & set("iu") and np.any(other > 60))
        if name in {"remainder", "fmod", "divmod"}:
            return bool(np.any(one / other > 1e15))
        return name in {"add", "subtract"} and "c" in kinds and not np.isfinite(one + other).all()


# Keywords


X = np.array([[-2.5, -0.5, 0.25], [0.75, 3.0, 100.0]], np.float32)
I = np.array([[-7, 2, 3], [100, -128, 127]], np.int8)  # noqa: E741


@pytest.mark.parametrize(
    ("ufunc", "operands", "kwargs"),
    [
        (np.add, (X, X), {"dtype": np.float64}),
        (np.add, (X, 2), {"dtype": "f8"}),
        (np.add, (I, I), {"dtype": np.int32}),
        (np.add, (I, 3), {"signature": "ii->i"}),
        (np.add, (I, I), {"sig": (None, None, np.dtype("f4"))}),
        (np.add, (X, X.astype(np.float64)), {"dtype": np.float32, "casting": "same_kind"}),
        (np.multiply, (X, 3), {"dtype": np.int32, "casting": "unsafe"}),
        (np.sqrt, (np.abs(X),), {"dtype": np.float64}),
        (np.modf, (X,), {"dtype": np.float64}),
        (np.exp, (X,), {"order": "F", "subok": False}),
        (np.less, (X, 0.3), {"casting": "no"}),
    ],
    ids=str,
)
def test_keywords_that_choose_the_loop(ufunc, operands, kwargs):
    assert_same(ROWS[ufunc], operands, kwargs)


def outs_of(ufunc, operands, outs, **kwargs):
    """What NumPy leaves in its outputs, and what the twin gives for them."""
    given = tuple(None if each is None else torch.from_numpy(each.copy()) for each in outs)
    actual = ufunc_twin(ROWS[ufunc], as_tensors(operands), {"out": given, **kwargs})
    written = tuple(None if each is None else each.copy() for each in outs)
    expected = ufunc(*operands, out=written, **kwargs)
    return expected, actual


def test_out_takes_the_result_in_its_own_dtype_and_shape():
    for out in (np.zeros((2, 3), np.float64), np.zeros((4, 2, 3), np.float32)):
        expected, actual = outs_of(np.add, (X, X), (out,))
        np.testing.assert_array_equal(actual.numpy(), expected, strict=True)
    expected, actual = outs_of(np.add, (X, X), (np.zeros((2, 3), np.int16),), casting="unsafe")
    np.testing.assert_array_equal(actual.numpy(), expected, strict=True)
    expected, actual = outs_of(np.modf, (X,), (None, np.zeros((2, 3))))
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(other.numpy(), one, strict=True)


def test_where_keeps_what_out_held():
    out, mask = np.full((2, 3), 9.0), np.array([True, False, True])
    expected, actual = outs_of(np.multiply, (X, 2.0), (out,), where=mask)
    np.testing.assert_array_equal(actual.numpy(), expected, strict=True)
    with pytest.raises(Unsupported, match="without out"):
        ufunc_twin(ROWS[np.add], as_tensors((X, X)), {"where": mask})


def test_products_of_every_shape_and_dtype():
    shapes = {
        "matmul": [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((2, 0), (0, 3))],
        "vecdot": [((3,), (3,)), ((2, 3), (3,)), ((2, 3), (2, 3)), ((5, 1, 3), (2, 3))],
        "matvec": [((2, 3), (3,)), ((5, 2, 3), (3,)), ((5, 2, 3), (5, 3)), ((2, 3), (5, 3))],
        "vecmat": [((2,), (2, 3)), ((2,), (5, 2, 3)), ((5, 2), (5, 2, 3)), ((5, 2), (2, 3))],
    }  # fmt: skip
    for row in PRODUCTS:
        rng = rng_for(name_of(row))
        for dtype in DTYPES:
            for one, other in shapes[name_of(row)]:
                operands = [random(dtype, int(np.prod(shape)), rng).reshape(shape) for shape in (one, other)]
                assert_same(row, operands)
        assert_same(row, [np.ones(one, np.float32), np.ones(other, np.int32)])


@pytest.mark.parametrize(
    ("ufunc", "shapes", "kwargs"),
    [
        (np.matmul, ((3, 2, 5), (3, 4, 5)), {"axes": [(1, 0), (0, 1), (0, 1)]}),
        (np.matmul, ((2, 3), (3, 4)), {"axes": [(0, 1), (0, 1), (1, 0)]}),
        (np.matmul, ((3,), (4, 3)), {"axes": [(0,), (1, 0), (0,)]}),
        (getattr(np, "vecdot", None), ((3, 2), (3, 2)), {"axis": 0}),
        (getattr(np, "vecdot", None), ((2, 3), (2, 3)), {"keepdims": True}),
        (getattr(np, "vecdot", None), ((3, 2), (3, 2)), {"axis": 0, "keepdims": True}),
        (getattr(np, "vecdot", None), ((3, 2), (2, 3)), {"axes": [0, -1, ()]}),
    ],
    ids=str,
)
def test_products_along_other_axes(ufunc, shapes, kwargs):
    if ufunc is None:
        pytest.skip("this NumPy has no such ufunc")
    rng = rng_for("axes")
    assert_same(ROWS[ufunc], [rng.standard_normal(shape) for shape in shapes], kwargs)


# How calls are made


def test_broadcasts_like_numpy():
    for shapes in (((3, 1), (1, 4)), ((), (3,)), ((0, 3), (3,)), ((2, 1, 3), (4, 1)), ((), ())):
        operands = [np.full(shape, 2.0, np.float32) for shape in shapes]
        for ufunc in (np.add, np.floor_divide, np.maximum, np.less, np.logaddexp, np.copysign):
            assert_same(ROWS[ufunc], operands)


def test_nested_lists_are_arrays():
    assert_same(ROWS[np.add], (X, [1, 2, 3]))
    assert_same(ROWS[np.add], ([[1.5], [2.5]], X))


def test_three_operands_take_numbers_and_arrays():
    row = next(row for row in EACH if row.numpy.nin == 3)
    lows, highs = np.float32([-1, 0, 1]), np.float32([0.5, 2, 0])
    for operands in ((X, -1, 1.5), (X, lows, highs), (X, lows, 1), (X, -1.0, highs), (I, -5, 7), (I, np.int64(3), 200), (X > 0, False, True), (X, np.nan, 1), (X + 1j, 0, 2j)):  # fmt: skip
        assert_same(row, operands)


class Calls(torch.overrides.TorchFunctionMode):
    """Names of the torch functions that are called."""

    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ != "__get__":
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("ufunc", "operands", "names"),
    [
        (np.add, (X, X), ["add"]),
        (np.add, (X, 2), ["add"]),
        (np.add, (2.5, X), ["add"]),
        (np.subtract, (X, np.float32(2)), ["sub"]),
        (np.divide, (X, 3), ["div"]),
        (np.power, (X, 2), ["pow"]),
        (np.power, (2, X), ["pow"]),
        (np.maximum, (0.0, X), ["clamp"]),
        (np.minimum, (X, X), ["minimum"]),
        (np.floor_divide, (I, 3), ["floor_divide"]),
        (np.remainder, (I, 3), ["remainder"]),
        (np.less, (X, 0), ["lt"]),
        (np.bitwise_and, (I, 7), ["bitwise_and"]),
        (np.sqrt, (X,), ["sqrt"]),
        (np.matmul, (X.T, X), ["matmul"]),
        (np.add, (X, np.float64(2)), ["to", "add"]),
        (np.divide, (I, 2), ["to", "div"]),
        (np.add, (I, np.int16(2)), ["to", "add"]),
    ],
    ids=str,
)
def test_a_call_is_one_torch_function_where_one_will_do(ufunc, operands, names):
    given = as_tensors(operands)
    with Calls() as calls:
        ufunc_twin(ROWS[ufunc], given, {})
    assert calls.names == names


def test_numbers_outside_a_dtype_are_compared_not_wrapped():
    x = np.array([0, 7, 255], np.uint8)
    for ufunc in (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal):
        for number in (-1, 256, 2**70, -(2**70)):
            assert_same(ROWS[ufunc], (x, number))
            assert_same(ROWS[ufunc], (number, x))


def test_the_loop_is_numpys():
    x = torch.zeros(3, dtype=torch.int8)
    assert loop(np.add, (x, 2), {}) == ((torch.int8,) * 2, (torch.int8,))
    assert loop(np.divide, (x, x), {}) == ((torch.float64,) * 2, (torch.float64,))
    assert loop(np.sin, (x,), {}) == ((torch.float16,), (torch.float16,))
    assert loop(np.less, (x, np.float32(1)), {}) == ((torch.float32,) * 2, (torch.bool,))
    assert loop(np.add, (x, x), {"dtype": "f4"}) == ((torch.float32,) * 2, (torch.float32,))
    with pytest.raises(Unsupported, match="longdouble|float128"):
        loop(np.add, (x, np.longdouble(1)), {})
    with pytest.raises(Unsupported, match="datetime64"):
        loop(np.subtract, (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-01"], "M8[D]")), {})
