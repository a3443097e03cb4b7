"""NumPy's constructors and ``math`` while a session is open: what NumPy gives, recorded; and gone afterwards."""

import cmath
import inspect
import math
import pickle
import re

import numpy as np
import pytest
import torch

import leapp
from leapp import errors
from leapp.trace import entry_points
from leapp.trace._lineage import plain, value_of
from leapp.trace.scalar import SCALARS, plain_scalar

SPACES = (np, np.linalg, np.fft, math, cmath)


def names_of():
    spaces = (*SPACES, *type(np.r_).__mro__[:2])
    return {(space.__name__, name): thing for space in spaces for name, thing in vars(space).items()}


TABLE = np.arange(6.0) ** 2

CONSTRUCTORS = {
    "array": lambda x: np.array([[x[0], -x[1]], [x[1], x[0]]]),
    "array of numbers too": lambda x: np.array([x[0], 1, 2.5]),
    "array with dtype": lambda x: np.array([x[0], x[1]], dtype=np.float64),
    "array of arrays": lambda x: np.array([x, x * 2]),
    "array of tuples": lambda x: np.array([(x[0], 1.0), (2.0, x[1])]),
    "array of an array": lambda x: np.array(x),
    "array of a scalar": lambda x: np.array(x[0]),
    "ndmin": lambda x: np.array(x, ndmin=2),
    "asarray": lambda x: np.asarray([x[0], x[1]]),
    "asarray with dtype": lambda x: np.asarray(x, dtype=np.float64) * 2,
    "asarray of a scalar": lambda x: np.asarray(x.sum()),
    "asanyarray": lambda x: np.asanyarray([x[0]]),
    "ascontiguousarray": lambda x: np.ascontiguousarray(x[::2]),
    "asfortranarray": lambda x: np.asfortranarray(x.reshape(2, 2)),
    "full": lambda x: np.full(3, x[0]),
    "full of rows": lambda x: np.full((2, 4), x),
    "full_like": lambda x: np.full_like(np.ones(3), x[1]),
    "linspace": lambda x: np.linspace(x[0], x[1], 5),
    "linspace of lists": lambda x: np.linspace([x[0], x[1]], [x[2], x[3]], 5),
    "fromiter": lambda x: np.fromiter((each * 2 for each in x), np.float64),
    "fromiter counted": lambda x: np.fromiter(iter(x), np.float32, 2),
    "stack of numbers": lambda x: np.stack([x[0], x[1]]),
    "concatenate lists": lambda x: np.concatenate([[x[0]], [1.0, 2.0]]),
    "hstack": lambda x: np.hstack([x[0], [x[1], 1.0]]),
    "mean of a list": lambda x: np.mean([x[0], x[1]]) * x,
    "norm of a list": lambda x: x / np.linalg.norm([x[0], x[1]]),
    "dot of lists": lambda x: np.dot([x[0], x[1]], [1.0, 2.0]) * x,
    "take from a table": lambda x: np.take(TABLE, x[:2].astype(int) % 6) * x[0],
    "repeat of a table": lambda x: np.repeat(np.float32([1, 2]), 2) * x,
    "where= of a plain array": lambda x: np.sum(TABLE, where=(x > x[1]).any() | (TABLE > 2)) + x[0],
    "clip of a plain array": lambda x: np.clip(TABLE, x[0], None) + x[1],
    "r_ of numbers": lambda x: np.r_[x[0], 1.0, x[1]],
    "r_ of arrays": lambda x: np.r_[x, x[0], 2, np.arange(2.0), 0:3, [x[1], 1]],
    "r_ narrow": lambda x: np.r_[x, 1],
    "c_": lambda x: np.c_[x, x * 2, np.ones(4)],
    "c_ of rows": lambda x: np.c_[x.reshape(1, 4), [[x[0], 5]]],
    "zeros written": lambda x: written(np.zeros(3), x),
    "empty written": lambda x: written(np.empty(3, np.float32), x),
    "ones written": lambda x: written(np.ones(3), x) * x[0],
    "zeros_like written": lambda x: written(np.zeros_like(np.ones(3)), x),
    "arange": lambda x: np.arange(4) * x,
    "eye": lambda x: np.eye(4) @ x.astype(np.float64),
}


def written(buffer, x):
    buffer[0] = x[1]
    buffer[1:] = x[2:]
    return buffer


@pytest.mark.parametrize("case", CONSTRUCTORS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_constructors_are_recorded(record, case, dtype):
    function = CONSTRUCTORS[case]
    rng = np.random.default_rng(0)
    first, second = ((rng.normal(size=4) * 50).astype(dtype) for _ in range(2))
    expected = function(first.copy())
    recorded = record(function, first.copy())
    given = plain(recorded.result)
    np.testing.assert_array_equal(given, expected, strict=True)
    again = function(second.copy())
    replayed = recorded(torch.from_numpy(second.copy())).numpy()
    assert replayed.dtype == np.asarray(again).dtype
    np.testing.assert_allclose(replayed, again, rtol=1e-6)
    assert not np.array_equal(np.asarray(expected), np.asarray(again))


def declared(session, *arrays):
    """What stands for arrays that are declared as inputs of node ``n``."""
    made = session.input_tensors("n", {f"x{place}": each for place, each in enumerate(arrays)})
    return [made.get(id(each), each) for each in arrays]


@pytest.fixture
def x(make_session):
    return declared(make_session(), np.arange(1.0, 7.0).reshape(2, 3))[0]


def test_an_array_that_fits_is_handed_back(x):
    for same in (np.asarray, np.asanyarray, np.ascontiguousarray, lambda a: np.array(a, copy=False), np.require):
        assert same(x) is x
    assert np.asarray(x, dtype=np.float64) is x
    assert np.asarray(a=x) is x
    assert np.array(x) is not x
    assert np.asfortranarray(x) is not x
    part = x[:, 1]
    assert np.asarray(part) is part
    assert np.ascontiguousarray(part) is not part


def test_views_keep_seeing_writes(record):
    def function(a):
        view = np.array(a, copy=False, ndmin=2)
        view[0, 0] = a[1] * 2
        return a * 1

    first, second = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    recorded = record(function, first.copy())
    np.testing.assert_array_equal(recorded(torch.from_numpy(second)).numpy(), [10, 5, 6])


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # torch's, untraced
@pytest.mark.parametrize(
    "function",
    [
        lambda t: np.asarray(t) * 2,
        lambda t: np.asarray(t, dtype=np.float64),
        lambda t: np.array(t),
        lambda t: np.array([t[0], t[1], 1.0]),
        lambda t: np.stack([np.asarray(t), np.asarray(t)]),
        lambda t: np.full(2, t[1]),
    ],
)
def test_tensors_as_arrays(record, function):
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, -5.0, 6.0])
    expected = function(first.clone())
    recorded = record(function, first.clone())
    np.testing.assert_array_equal(plain(recorded.result), expected, strict=True)
    np.testing.assert_array_equal(recorded(second).numpy(), function(second))


def test_an_array_over_a_tensor_sees_its_memory(record):
    def function(t):
        array = np.asarray(t)
        array[0] = 7.0
        t[1] = t[0] * 2
        return array + 1

    recorded = record(function, torch.tensor([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(plain(recorded.result), [8.0, 15.0, 4.0])
    np.testing.assert_array_equal(recorded(torch.tensor([4.0, 5.0, 6.0])).numpy(), [8.0, 15.0, 7.0])


def test_results_that_torch_cannot_hold_are_refused_by_name(x):
    with pytest.raises(errors.UnrecordableOpError, match=r"numpy.array\(\) of traced values with dtype object"):
        np.array([x[0, 0], 1], dtype=object)
    with pytest.raises(errors.UnrecordableOpError, match="torch has no arrays of objects or records"):
        np.array([(x[0, 0], 1)], dtype=[("a", "f4"), ("b", "i4")])


def test_a_length_that_follows_the_data_is_told_of(x):
    n = x.argmax()
    for do in (lambda: np.zeros(n), lambda: np.arange(n), lambda: np.eye(n)):
        with pytest.warns(errors.UntracedOpWarning, match="follows? the data"):
            assert isinstance(do(), np.ndarray)


MATH = {
    name: getattr(math, name)
    for name in (
        "sqrt sin cos tan atan exp log log10 log2 log1p expm1 fabs floor ceil trunc isnan isfinite degrees radians "
        "tanh asinh erf gamma frexp modf ulp cbrt exp2".split()
    )
    if hasattr(math, name)
} | {
    "atan2": lambda v: math.atan2(v, 2.0), "pow": lambda v: math.pow(v, 2), "hypot": lambda v: math.hypot(3.0, v),
    "copysign": lambda v: math.copysign(1, v), "fmod": lambda v: math.fmod(v, 2), "fsum": lambda v: math.fsum([v, v]),
    "prod": lambda v: math.prod([v, 2]), "dist": lambda v: math.dist([v, 0], [1, 1]),
    "isclose": lambda v: math.isclose(v, 1.0, rel_tol=1e-3), "ldexp": lambda v: math.ldexp(v, 2),
    "cmath.sqrt": lambda v: cmath.sqrt(v), "cmath.phase": lambda v: cmath.phase(v),
}  # fmt: skip


@pytest.mark.parametrize("name", MATH)
@pytest.mark.parametrize("place", [(0, 0), (1, 2)])
def test_math_reads_with_a_line(x, name, place):
    # Looked up again: what stands in the module now is wrapped.
    function = getattr(math, name) if MATH[name].__name__ != "<lambda>" else MATH[name]
    value = x[place]
    spelled = name if "." in name else f"math.{name}"
    with pytest.warns(
        errors.TraceEscapeWarning, match=rf"{re.escape(spelled)}\(\) at tests/trace/test_entry_points.py"
    ):
        got = function(value)
    expected = function(plain_scalar(value))
    assert (type(got), got) == (type(expected), expected)


def test_math_of_plain_numbers_is_what_it_was(x):
    del x
    for function in (math.sqrt, math.floor):
        assert function(4.0) == 2 * (function is math.sqrt) or function(4.0) == 4
    assert math.fsum([0.1] * 10) == 1.0
    with pytest.raises(TypeError):
        math.sqrt("a")
    with pytest.raises(ValueError, match="math domain error|expected a nonnegative input"):
        math.sqrt(-1.0)


def test_classes_with_hooks_of_their_own_are_asked(x):
    class Other:
        def __array_function__(self, func, types, args, kwargs):
            return func.__name__, len(args[0])

    assert np.concatenate([x[0], Other()]) == ("concatenate", 2)
    assert np.stack([x[0, 0], Other()]) == ("stack", 2)


def test_builtins(x):
    total = sum(x[0])
    assert type(total) in SCALARS
    assert plain_scalar(total) == 6.0
    for branch in (max, min, sorted):
        with pytest.raises(errors.DataDependentBranchError):
            branch([x[0, 0], x[0, 1]])


# --- what stands where -----------------------------------------------------------------------------------------------


def test_wrappers_look_like_what_they_wrap(make_session):
    before = {(space, name): getattr(space, name) for space in SPACES for name in dir(space)}
    make_session()
    changed = 0
    for (space, name), original in before.items():
        now = getattr(space, name)
        if now is original:
            continue
        changed += 1
        assert now.__wrapped__ is original
        assert (now.__name__, now.__module__, now.__doc__) == (original.__name__, original.__module__, original.__doc__)
        assert pickle.loads(pickle.dumps(now)) is now
    assert changed > 250
    assert inspect.signature(np.full) == inspect.signature(np.full.__wrapped__)


def test_nothing_stays(make_session):
    before = names_of()
    first, second = make_session(), make_session()
    assert names_of() != before
    first.stop()
    assert names_of() != before
    second.stop()
    assert names_of() == before
    assert not entry_points._originals


def test_nothing_is_wrapped_without_global_patching(make_session):
    before = names_of()
    session = make_session(global_patching=False)
    assert names_of() == before
    (x,) = declared(session, np.ones(3))
    assert type(np.zeros(2)) is np.ndarray
    session.stop()
    assert names_of() == before
    assert type(x) is not np.ndarray


def test_start_says_so(tmp_path):
    before = names_of()
    leapp.start("p", tmp_path, global_patching=False, dry_run=True)
    assert names_of() == before
    leapp.stop()
    leapp.start("p", tmp_path, dry_run=True)
    assert names_of() != before
    leapp.stop()
    assert names_of() == before


def test_outside_a_node_arrays_are_plain(make_session):
    session = make_session()
    assert type(np.zeros(3)) is np.ndarray
    assert type(np.array([1.0, 2.0])) is np.ndarray
    (x,) = declared(session, np.ones(3))
    assert type(np.zeros(3)) is type(x)
    assert type(np.pad(np.ones(2), 1).base) is not type(x)
    made = np.zeros(3)
    assert type(made + 1) is type(made[1:]) is type(x)
    session.output_tensors("n", {"y": x * 2})
    assert type(np.zeros(3)) is np.ndarray
    for later in (made + 1, np.sin(made), made[1:], made.reshape(3, 1), made.copy()):
        assert type(later) is np.ndarray


def test_lists_of_a_finished_node_are_plain(make_session):
    session = make_session()
    (x,) = declared(session, np.arange(3.0))
    y = x * 2
    value = y[1]
    session.output_tensors("n", {"y": y})
    for do in (
        lambda s: np.array([s, 1.0]),
        lambda s: np.mean([s, s]),
        lambda s: np.full(2, s),
        lambda s: math.sqrt(s),
    ):
        got, expected = do(value), do(np.float64(2.0))
        assert type(got) is type(expected)
        np.testing.assert_array_equal(got, expected)
    assert value_of(np.array(y)).origin == value_of(y).origin
