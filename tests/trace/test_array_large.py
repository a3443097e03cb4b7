"""Large calls of rows with a rule for it are checked on fewer elements; what is recorded is the whole call."""

import dataclasses
import functools
import re

import numpy as np
import pytest
import torch

from leapp import errors
from leapp.graph._base import run_passes
from leapp.graph.check import run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.ops import numpy_indexing, numpy_table
from leapp.ops._np_samples import SAMPLE_ABOVE, place_of, sample_of, sampled
from leapp.trace import array

pytestmark = pytest.mark.filterwarnings("ignore::leapp.errors.UnusedInputWarning")

COUNT = 300 * 240
TABLE = np.linspace(-1.0, 1.0, 240)
COLUMN = np.arange(300.0)[:, None]
PLACES = np.arange(COUNT)[::-1].reshape(300, 240) * 7 % 240


def places(a):
    """Indices that follow the data, some counted from the end."""
    return (a * 50).astype(np.int64) % 400 - 200


def sorted_in_place(a):
    a = a + 1
    a.sort(axis=0)
    return a


CALLS = {
    "where": (np.where, lambda a, b: np.where(a > b, a, b)),
    "where, numbers": (np.where, lambda a, b: np.where(a > 0, 1.0, b)),
    "where, a table": (np.where, lambda a, b: np.where(a > b, TABLE, COLUMN)),
    "where, repeated": (np.where, lambda a, b: np.where(a[:, :1] > 0, a, b[0])),
    "where, a traced scalar": (np.where, lambda a, b: np.where(a > b, a[0, 0], b)),
    "where, backwards": (np.where, lambda a, b: np.where(a[::-1] > b, a[:, ::-1], b)),
    "clip": (np.clip, lambda a, b: np.clip(a, -1, 1)),
    "clip, arrays": (np.clip, lambda a, b: np.clip(a, TABLE, b + 3)),
    "clip, whole numbers": (np.clip, lambda a, b: np.clip((a * 90).astype(np.int32), -40, 300)),
    "a method": (np.clip, lambda a, b: a.clip(-0.5, 0.5)),
    "transposed": (np.clip, lambda a, b: np.clip(a.T, -1, 1)),
    "nan_to_num": (np.nan_to_num, lambda a, b: np.nan_to_num(np.sqrt(a), nan=-7.0)),
    "round": (np.round, lambda a, b: np.round(a, 2)),
    "around": (np.around, lambda a, b: np.around(a)),
    "fix": (np.fix, lambda a, b: np.fix(a * 5)),
    "real": (np.real, lambda a, b: np.real(a + 1j * b)),
    "imag": (np.imag, lambda a, b: np.imag(a + 1j * b)),
    "angle": (np.angle, lambda a, b: np.angle(a + 1j * b)),
    "isclose": (np.isclose, lambda a, b: np.isclose(a, b, rtol=0.5)),
    "isclose, a tolerance for each": (np.isclose, lambda a, b: np.isclose(a, b, rtol=np.abs(TABLE))),
    "isposinf": (np.isposinf, lambda a, b: np.isposinf(1 / np.round(a))),
    "isneginf": (np.isneginf, lambda a, b: np.isneginf(1 / np.round(a))),
    "isreal": (np.isreal, lambda a, b: np.isreal(a + 1j * np.round(b))),
    "iscomplex": (np.iscomplex, lambda a, b: np.iscomplex(a + 1j * np.round(b))),
    "sinc": (np.sinc, lambda a, b: np.sinc(a)),
    "astype": (numpy_indexing.astype, lambda a, b: a.astype(np.float32)),
    "take": (np.take, lambda a, b: np.take(b, places(a))),
    "take along an axis": (np.take, lambda a, b: np.take(b[:3], places(a), axis=1)),
    "take, clipped": (np.take, lambda a, b: np.take(b[0], places(a), mode="clip")),
    "take, by name": (np.take, lambda a, b: b[0].take(indices=places(a))),
    "take, known places": (np.take, lambda a, b: np.take(a[0], PLACES)),
    "take of a table": (np.take, lambda a, b: np.take(TABLE, places(a))),
    "sort in place": (np.sort, lambda a, b: sorted_in_place(a)),
    "sort": (np.sort, lambda a, b: np.sort(a)),
    "sort along the first axis": (np.sort, lambda a, b: np.sort(a, axis=0)),
    "sort all": (np.sort, lambda a, b: np.sort(a, axis=None)),
    "argsort": (np.argsort, lambda a, b: np.argsort(a, axis=0, kind="stable")),
    "argsort of equals": (np.argsort, lambda a, b: np.argsort(np.round(a), kind="stable")),
    "partition": (np.partition, lambda a, b: np.sort(np.partition(a, 200)[:, :201])),
    "partition at several": (np.partition, lambda a, b: np.partition(a, (-1, 3, 100), axis=0)[[3, 100, 299]]),
    "argpartition": (np.argpartition, lambda a, b: np.sort(np.argpartition(a, kth=9)[:, :10])),
    "searchsorted": (np.searchsorted, lambda a, b: np.searchsorted(np.sort(b[0]), a)),
    "isin": (np.isin, lambda a, b: np.isin(np.round(a), np.round(b[0, :2]))),
    "digitize": (np.digitize, lambda a, b: np.digitize(a, TABLE)),
    "interp": (np.interp, lambda a, b: np.interp(a, TABLE, b[0])),
}


def drawn(seed):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((2, 300, 240)))


def recorded(session, function, *values):
    given = session.input_tensors("n", {"a": values[0].copy(), "b": values[1].copy()})
    result = function(*given.values())
    session.output_tensors("n", {"out": result})
    return np.asarray(session.completed[0].recordings[0].sample.outputs["out"][0]), session


@pytest.fixture
def change_row(monkeypatch):
    """Replace fields of a row of the table."""

    def change(function, **fields):
        monkeypatch.setitem(numpy_table._ROWS, function, dataclasses.replace(numpy_table.row_of(function), **fields))

    return change


@dataclasses.dataclass
class Counting:
    """A check that says how many elements it was given."""

    check: object
    sizes: list

    whole = False

    def wrong(self, expected, actual, *rest):
        """As the other one."""
        self.sizes.append(expected.size)
        return self.check.wrong(expected, actual, *rest)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", CALLS)
def test_few_elements_are_checked_and_all_are_recorded(make_session, change_row, name):
    function, call = CALLS[name]
    sizes = []
    change_row(function, check=Counting(numpy_table.row_of(function).check, sizes))
    first, second = drawn(0), drawn(1)
    _, session = recorded(make_session(), call, *first)
    expected = call(*second)
    if expected.dtype != np.bool_:  # so few equal bytes are seen before
        assert sizes
    assert all(0 < size < SAMPLE_ABOVE / 2 for size in sizes)
    inputs = dict(zip(("a", "b"), map(torch.from_numpy, second), strict=True))
    graph = session.completed[0].recordings[0].graph
    replay = run_graph(run_passes(graph, EXPORT_PASSES), inputs)["out"].numpy()
    assert replay.dtype == expected.dtype
    np.testing.assert_allclose(replay, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_twin_is_found_by_few_elements(make_session, change_row, name):
    function, call = CALLS[name]
    twin = numpy_table.row_of(function).twin

    @functools.wraps(twin)
    def wrong(*args, **kwargs):
        made = twin(*args, **kwargs)
        return torch.logical_not(made) if made.dtype == torch.bool else made + 1

    change_row(function, twin=wrong)
    with pytest.raises(errors.TwinDisagreesError):
        recorded(make_session(), call, *drawn(0))


@pytest.mark.parametrize(
    "call", [lambda a, b: b[0][places(a)], lambda a, b: b[:2].T[PLACES], lambda a, b: b[PLACES[0]]]
)
def test_elements_by_an_array_of_places(make_session, monkeypatch, call):
    first, second = drawn(0), drawn(1)
    _, session = recorded(make_session(), call, *first)
    inputs = dict(zip(("a", "b"), map(torch.from_numpy, second), strict=True))
    graph = session.completed[0].recordings[0].graph
    np.testing.assert_array_equal(run_graph(run_passes(graph, EXPORT_PASSES), inputs)["out"].numpy(), call(*second))

    twin = numpy_indexing.getitem
    monkeypatch.setattr(array, "_GETITEM", dataclasses.replace(array._GETITEM, twin=lambda *args: twin(*args) + 1))
    monkeypatch.setattr(numpy_indexing, "getitem", lambda *args: twin(*args) + 1)
    with pytest.raises(errors.TwinDisagreesError):
        recorded(make_session(), call, *first)


def test_a_bound_that_follows_from_the_operands_is_that_of_the_sample(make_session, change_row):
    check = numpy_table.row_of(np.logaddexp).check
    seen = []

    class Bounded(Counting):
        def wrong(self, expected, actual, call, args, kwargs):
            seen.append([each.size for each in args])
            return check.wrong(expected, actual * (1 + 4e-16), call, args, kwargs)

    change_row(np.logaddexp, check=Bounded(check, []))
    recorded(make_session(), lambda a, b: np.logaddexp(a, b[0]), *drawn(0))
    assert [max(sizes) < SAMPLE_ABOVE / 2 for sizes in seen] == [True]


def test_a_wrong_shape_is_found(make_session, change_row):
    twin = numpy_table.row_of(np.sort).twin
    change_row(np.sort, twin=functools.wraps(twin)(lambda a, **_: twin(a)[:-1]))
    with pytest.raises(errors.TwinDisagreesError):
        recorded(make_session(), lambda a, b: np.sort(a), *drawn(0))


@pytest.mark.parametrize("shape", [(100_000,), (1,), (300, 400), (2, 3, 50_000), (70_000, 1), (1, 1), (9, 9, 9, 9, 9)])
def test_a_sample_is_spread_over_all_axes(shape):
    values = np.arange(np.prod(shape)).reshape(shape)
    sample = sample_of(shape)
    some = sampled(values, sample)
    assert min(1000, values.size) <= some.size <= 4096
    assert len(np.unique(some)) == some.size
    for axis, found in enumerate(np.unravel_index(some, shape)):
        assert found.min() == 0
        assert found.max() >= (shape[axis] - 1) * 0.9
    for index in np.ndindex(some.shape):
        assert values[place_of(index, sample)] == some[index]
    # Operands with axes that are repeated are sampled at the same places.
    for axis in range(len(shape)):
        row = values[tuple(slice(None) if each == axis else slice(0, 1) for each in range(len(shape)))]
        np.testing.assert_array_equal(sampled(row, sample) + 0 * some, sampled(row + 0 * values, sample))
    np.testing.assert_array_equal(sampled(values[0], sample) + 0 * some, sampled(values[0] + 0 * values, sample))
    np.testing.assert_array_equal(sampled(torch.from_numpy(values), sample).numpy(), some)
    assert sampled(np.float64(3), sample) == 3


def test_the_first_element_that_differs_is_named_by_its_place(make_session, change_row):
    def late(x, *_):
        return torch.where(x > 60_000, x + 1, x)

    change_row(np.round, twin=lambda a, decimals=0, out=None: late(a))
    session = make_session()
    (a,) = session.input_tensors("n", {"a": np.arange(72_000.0)}).values()
    with pytest.raises(errors.TwinDisagreesError) as raised:
        np.round(a)
    place, value = re.search(r"at \[(\d+)\] NumPy gives np.float64\(([\d.]+)\)", str(raised.value)).groups()
    assert 60_000 < int(place) == float(value)
    assert "float64[72000]" in str(raised.value)
