"""Arrays of NumPy inside nodes: recorded, and the same on inputs that were not traced."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections import deque
from typing import NamedTuple

import numpy as np
import pytest
import torch

import leapp
from leapp import _api, annotate, errors
from leapp.graph._base import run_passes
from leapp.graph.check import run_graph
from leapp.graph.passes import EXPORT_PASSES


def arrays(*shapes, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return [rng.integers(1, 100, shape).astype(dtype) for shape in shapes]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.fixture
def record(tmp_path):
    """Record a function of arrays as node ``n``; gives the recording."""

    def run(function, *inputs, **options):
        leapp.start("t", save_path=tmp_path, **options)
        try:
            given = annotate.input_tensors("n", {f"x{i}": each for i, each in enumerate(inputs)})
            result = function(*(given if isinstance(given, tuple) else (given,)))
            outputs = result if isinstance(result, dict) else {"y": result}
            annotate.output_tensors("n", outputs, export_with="torchscript")
        finally:
            leapp.stop()
        return _api._process.stopped.completed[0].recordings[0]

    return run


def replay(recording, *inputs):
    graph = recording.graph
    module = torch.fx.GraphModule({name: value.clone() for name, value in graph.constants.items()}, graph.graph)
    results = module(*[torch.from_numpy(np.array(each)) for each in inputs])
    return [each.numpy() for each in (results if isinstance(results, tuple) else (results,))]


def check(record, function, *shapes, dtype=np.float32, rtol=1e-5):
    """The user's values are NumPy's, the recording gives them on other inputs; gives the recording."""
    first, fresh = arrays(*shapes, dtype=dtype, seed=1), arrays(*shapes, dtype=dtype, seed=2)
    got = []

    def watched(*given):
        got.append(function(*given))
        return got[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recording = record(watched, *[each.copy() for each in first])
    for inputs, actual in ((first, None), (fresh, replay(recording, *fresh))):
        expected = function(*[each.copy() for each in inputs])
        expected = list(expected.values()) if isinstance(expected, dict) else [expected]
        seen = actual or [np.array(each) for each in (got[0].values() if isinstance(got[0], dict) else got)]
        for here, there in zip(expected, seen, strict=True):
            assert np.asarray(here).dtype == there.dtype
            assert np.shape(here) == there.shape
            np.testing.assert_allclose(there, here, rtol=rtol, atol=1e-6)
    return recording


def targets(recording):
    return [node.name for node in recording.graph.graph.nodes if node.op.startswith("call")]


MEAN, STD = np.array([0.0, 0.1, 0.2], np.float32), np.array([1.0, 2.0, 3.0], np.float32)


def test_the_preprocessing_node_of_the_documentation(record):
    def preprocess(state, velocity):
        return np.concatenate([np.clip((state - MEAN) / STD, -5.0, 5.0), velocity])

    recording = check(record, preprocess, (3,), (2,))
    lines = [
        f"{node.name} {node.op} {getattr(node.target, '__name__', node.target)} {node.args}"
        for node in recording.graph.graph.nodes
        if node.op != "output"
    ]
    assert lines == [
        "x0 placeholder x0 ()",
        "x1 placeholder x1 ()",
        "_tensor_constant0 get_attr _tensor_constant0 ()",
        "sub call_function sub (x0, _tensor_constant0)",
        "_tensor_constant1 get_attr _tensor_constant1 ()",
        "div call_function div (sub, _tensor_constant1)",
        "clamp call_function clamp (div, -5.0, 5.0)",
        "cat call_function cat ([clamp, x1],)",
    ]


TABLE = np.arange(12.0, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: np.sin(x) * 2.0 + MEAN, (3,)),
        (lambda x: 1.0 - x / 2, (3,)),
        (lambda x: x[::-1] * 2 + x, (4,)),
        (lambda x: x[:, ::-1][..., None], (2, 3)),
        (lambda x: x[[2, 0]], (4,)),
        (lambda x: TABLE[1:3] @ x, (3,)),
        (lambda x: TABLE[::-1].T @ x, (4,)),
        (lambda x: x.T @ x, (3, 3)),
        (lambda x: x**2 + abs(-x), (4,)),
        (lambda x: x.astype(np.float64) * x, (4,)),
        (lambda x: (x * 10).astype(np.int32) // 3, (4,)),
        (lambda x: np.add(x, np.float64(2.5)), (4,)),
        (lambda x: np.float32(2) * x, (4,)),
        (lambda x: sum(row * 2 for row in x), (3, 2)),
        (lambda x: x.reshape(2, 3).transpose(1, 0).ravel(), (6,)),
        (lambda x: x.reshape((2, -1), order="F").swapaxes(0, 1), (6,)),
        (lambda x: x.mean(axis=0, keepdims=True) - x.std(ddof=1), (4, 2)),
        (lambda x: x / np.linalg.norm(x) + x[np.argmax(x)] - x.max() + x.min(), (4,)),
        (lambda x: np.where(x > 0, x, 0.1 * x), (5,)),
        (lambda x: np.stack([x, x[::-1]]).cumsum(axis=1), (4,)),
        (lambda x: np.einsum("ij,j->i", x, x[0]), (3, 3)),
        (lambda x: x.view(np.int32) & 0xFF, (3,)),
        (lambda x: np.divmod(x, 0.3)[1], (3,)),
        (lambda x: np.add.reduce(x, axis=None) + np.maximum.accumulate(x), (3,)),
        (lambda x: np.multiply.outer(x, x), (3,)),
        (lambda x: x.max(axis=1, initial=0.2), (3, 2)),
        (lambda x: np.array([value * index[0] for index, value in np.ndenumerate(x)], np.float32), (3,)),
        (lambda x: x * np.count_nonzero(x > 0) + np.allclose(x, 1), (3,)),
        (lambda x: np.float16(x * 2), (3, 2)),
        (lambda x: np.float32(np.float64(x)[1:])[::-1] / np.int64(x * 9).sum(), (5,)),
        (lambda x: sum(each * each for each in x.T.flat) - x.T.flat[1] + x.flat[2:5] * x.flat.copy()[:3], (3, 2)),
        (lambda x: x.sum() + np.ma.filled(x, 3) * (1 + np.ma.is_masked(x)), (4,)),
        (lambda x: np.ma.getdata(x) + x if np.ma.getmask(x) is np.ma.nomask else x, (4,)),
        (
            lambda x: np.cos(np.asarray(x.T.flat)) + np.array(x.flat, np.float64).sum() + np.sum(x.flat) * len(x.flat),
            (2, 2),
        ),
        (
            lambda x: np.concatenate([x.flat, x.T.flat]).reshape(2, -1) @ np.sin(x.flat) + np.multiply(x[0], x[1].flat),
            (2, 2),
        ),
        (lambda x: (x.flat > 0.1) * x.flat[[3, 0, 1, 1]], (2, 2)),
    ],
)
def test_calls(record, function, shape):
    check(record, function, shape)


def written_view(x):
    y = x * 1.5
    part = y[::2]
    part *= 3
    y[1] = x[0]
    return y


def written_input(x):
    x += 1
    return x * 2


def written_mask(x):
    y = x.copy()
    y[x > 0] = 0.5
    y[x < -1] += x[x < -1]
    return y


def written_backwards(x):
    y = x * 1
    y[::-1] = x
    return y


def element_before_a_write(x):
    first = x[0]
    x[0] = first * 2
    return x + first


def copy_before_a_write(x):
    y = x.flatten()
    y += 1
    return x * 1 + y.reshape(x.shape)


def reshaped_in_place(x):
    y = x * 2
    y.shape = (2, 3)
    y[0] = 1
    return y


def sorted_in_place(x):
    y = x.copy()
    y.sort()
    np.put(y, [0, 1], x[:2])
    return y


def added_at(x):
    y = np.zeros_like(x)
    np.add.at(y, [0, 0, 1], x[:3])
    np.copyto(y, x, where=x > 1)
    return y


def with_where(x):
    y = x * 0
    np.add(x, 1, out=y, where=x > 0)
    return y


def buffer_made_inside(x):
    y = np.zeros(5, np.float32)
    y[1:4] = x[:3]
    y[0] = x.sum()
    return y * 2


def written_flat(x):
    y = x * 2
    y.flat[1] = x[0, 0]
    z = y.T
    z.flat[3] = 5
    z.flat = [1.5, 2.5]
    return y + sum(x.flat)


def rotated(x):
    c, s = np.cos(x[0]), np.sin(x[0])
    return np.array([[c, -s], [s, c]]) @ x[:2]


def cast_before_it_is_written(x):
    y = x * 3
    before, seldom = np.float64(y), np.float64(y)
    y[:] = 1
    before[1] = 7
    return before[::-1] + y + seldom


def diagonal_by_flat(x):
    y = x * 2
    y.T.flat[:: len(x) + 1] = [x[0, 1], 5]
    y.flat[1] += x[2, 2]
    x.flat = y.flat[::-1]
    y.flat[[2, 3]] = 9
    return x - y


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (written_view, (5,)),
        (written_input, (3,)),
        (written_mask, (9,)),
        (written_backwards, (4,)),
        (element_before_a_write, (3,)),
        (copy_before_a_write, (2, 3)),
        (reshaped_in_place, (6,)),
        (added_at, (4,)),
        (with_where, (5,)),
        (buffer_made_inside, (4,)),
        (written_flat, (2, 3)),
        (rotated, (3,)),
        (cast_before_it_is_written, (4,)),
        (diagonal_by_flat, (3, 3)),
    ],
)
def test_writes(record, function, shape):
    check(record, function, shape)


BUFFER = np.zeros(4, np.float32)


class OUTSIDE:
    made = [np.zeros(4, np.float32) for _ in range(64)]

    @classmethod
    def copy_of(cls):
        """An array that was made before any node was open."""
        return cls.made.pop()


def filled_by_row(x):
    z = np.zeros((3, 4), np.float32)
    row = z[1]
    row[:] = x[0]
    z[0] += 2
    z *= 3
    return z


def filled_across(x):
    z = np.zeros((3, 4), np.float32)
    z.T[0] += x[:, 0]
    np.fill_diagonal(z, 7)
    flat = z.reshape(-1)[::2]
    flat *= 2
    return z


def filled_part_by_part(x):
    z = np.ones((3, 4), np.float32)
    left, right = np.split(z, 2, axis=1)
    left[...] = x[:, 2:]
    right /= 4
    np.multiply(z, 2, out=z)
    z.sort(axis=0)
    return z.sum(axis=0) + z.max()


@pytest.mark.parametrize("function", [filled_by_row, filled_across, filled_part_by_part])
def test_an_array_that_was_first_written_through_a_view(record, function):
    check(record, function, (3, 4))


def test_a_buffer_that_outlives_the_node(record):
    def function(x):
        np.add(x, 1, out=BUFFER)
        return np.multiply(BUFFER, x)

    check(record, function, (4,))


def over_itself(x):
    y = x * 1
    y[1:] = y[:-1]
    np.copyto(y[:2], y[1:3])
    y.T[...] = y
    return y


def over_itself_by_mask(x):
    y = x * 1
    y[y > 0] = y[y > 0] * 2
    y[:, None] = y
    return y


def diagonal_before(x):
    y = x * 1
    line = np.diag(y)
    np.fill_diagonal(y, 0)
    return line


def copies_of_meshgrid(x):
    first, second = np.meshgrid(x, x * 1)
    first[:-1] *= 2
    second += x
    return {"first": first, "second": second}


def element_at_a_traced_place(x):
    y = x * 1
    largest = y[np.argmax(y)]
    y.fill(2)
    return largest + y


def array_of_a_scalar(x):
    total = x.sum()
    line = total[None]
    line *= 2
    return {"line": line, "total": total + 0}


def written_through_a_row_of_it(x):
    y = x.T.copy() * 2
    y.flat[0] = 1
    row = np.exp(y).reshape(-1)
    row[1:3] = 5
    return {"y": y, "row": row}


def written_through_a_row_of_its_transpose(x):
    y = np.concatenate([x.T, x.T]).T.copy("F")
    y.T.reshape(-1)[2] = 7
    return y


def sorted_where_it_lies(x):
    y = x * 1
    y.sort()
    y.partition(1)
    return y


def out_larger_than_the_result(x):
    y = np.zeros((2, *x.shape), x.dtype)
    np.multiply(x, 2, out=y)
    return y


def out_of_numbers_alone(x):
    np.multiply(np.int64(3), np.int64(2), out=x)
    return x


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (over_itself, (4, 4)),
        (over_itself_by_mask, (1,)),
        (diagonal_before, (3, 3)),
        (copies_of_meshgrid, (3,)),
        (element_at_a_traced_place, (4,)),
        (array_of_a_scalar, (3,)),
        (written_through_a_row_of_it, (2, 3)),
        (written_through_a_row_of_its_transpose, (2, 3)),
        (sorted_where_it_lies, (5,)),
        (out_larger_than_the_result, (3,)),
        (out_of_numbers_alone, (3,)),
    ],
)
def test_writes_where_memory_is_shared_or_is_not(record, function, shape):
    check(record, function, shape)


@pytest.mark.parametrize("used", [lambda x, plain, back: x + plain, lambda x, plain, back: x * back])
@pytest.mark.parametrize("last", [lambda used: used * 1, lambda used: used])
def test_a_plain_array_is_refused_once_it_was_written_unheard(record, used, last):
    def heard(x):
        plain = OUTSIDE.copy_of()
        back = np.add(x, 1, out=plain)
        back *= 2
        return last(used(x, plain, back))

    def unheard(x):
        plain = OUTSIDE.copy_of()
        back = np.add(x, 1, out=plain)
        np.ndarray.__imul__(plain, 2)
        return last(used(x, plain, back))

    check(record, heard, (4,))
    with pytest.raises(errors.UnrecordableOpError, match="a write into a plain array"):
        record(unheard, *arrays((4,)))


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y.take([0, -1]),
        np.median,
        lambda y: np.tril(y, -1),
        lambda y: y[-2:0:-1],
    ],
)
def test_what_holds_for_one_length_alone_is_refused_where_the_data_choose_it(record, function):
    with pytest.warns(errors.LeappWarning, match="for this length alone"):
        record(lambda x: function(x[x > 0]) + x.sum(), np.array([1.0, 3, -2, 2], np.float32))


@pytest.mark.parametrize("function", [np.sum, np.sort, np.exp, lambda y: y[::-1] * 2, lambda y: np.append(y, y)])
def test_what_holds_for_every_length_is_recorded(record, function):
    recording = record(lambda x: function(x[x > 0]), np.array([1.0, 3, -2, 2], np.float32))
    for fresh in (np.array([1.0, -3, -2, 2], np.float32), np.array([5.0, 3, 2, 7], np.float32)):
        np.testing.assert_allclose(replay(recording, fresh)[0], function(fresh[fresh > 0]), rtol=1e-6)


@pytest.mark.parametrize("more", [np.atleast_2d, np.atleast_3d])
def test_more_axes_of_what_is_as_long_as_the_data_say_beside_a_write(record, more):
    def function(x):
        y = x * 1
        y[0] = x[1]
        return more(x[x > 0]) * y[0]

    graph = run_passes(record(function, np.array([1.0, 3, -2, 2])).graph, EXPORT_PASSES)
    fresh = np.array([1.0, 3, 5, 2])
    np.testing.assert_array_equal(
        run_graph(graph, {"x0": torch.from_numpy(fresh.copy())})["y"].numpy(), function(fresh)
    )


def test_a_number_indexed_by_a_traced_truth_value_is_named(record):
    def function(x):
        largest = x.max()
        return x + largest[largest > 0].sum()

    with pytest.warns(errors.NoTwinWarning, match="a truth value as an index"):
        record(function, np.array([1.0, 2.0]))


def test_a_truth_value_is_written_by_nothing(record):
    def function(x):
        first = second = x[0] > x[1]
        second &= x[0] > 100
        counted = first
        counted += 3
        return {"first": first | (x[0] > 100), "second": second | (x[0] > 100), "counted": counted, "square": first**2}

    check(record, function, (2,))


@pytest.mark.parametrize("taken", [lambda y: y[::-1], lambda y: y[::-1][1:], np.rot90])
def test_a_view_that_stands_as_a_copy_is_no_output_after_a_write(record, taken):
    def function(x):
        y = x * 1
        view = taken(y)
        y[0] = 3
        return view

    with pytest.raises(errors.UnrecordableOpError, match="runs backwards"):
        record(function, *arrays((4, 4)))


@pytest.mark.parametrize("kind", [int, np.int32, np.int64])
def test_a_number_that_a_twin_treats_in_a_way_of_its_own_comes_after_others(record, kind):
    def function(x):
        with np.errstate(all="ignore"):
            return {
                f"{name}{number}": call(x, kind(number))
                for name, call in (("quotient", np.floor_divide), ("rest", np.remainder), ("fmod", np.fmod))
                for number in (2, 0, -1, 3)
            }

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "divide by zero", RuntimeWarning)
        recording = record(function, np.array([5, -7, 0], np.int32))
        fresh = np.array([-(2**31), 9, 1], np.int32)
        for found, expected in zip(replay(recording, fresh), function(fresh).values(), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_remainders_of_zero_have_the_sign_of_the_divisor(record):
    recording = record(lambda x, y: {"by": x % y, "above": x % 2.0, "below": x % -2.0}, *arrays((4,), (4,)))
    x, y = np.array([-6.0, 6, -0.0, 0], np.float32), np.array([2, -2, 2, -2], np.float32)
    for found, expected in zip(replay(recording, x, y), (x % y, x % 2.0, x % -2.0), strict=True):
        assert found.tobytes() == expected.tobytes()


def test_a_write_behind_a_view_that_runs_backwards_is_refused(record):
    def late(x):
        y = x * 1
        view = y[::-1]
        y[0] = 3
        return view * 2

    def through(x):
        y = x * 1
        y[::-1][0] = x[1]
        return y

    for function in (late, through):
        with pytest.raises(errors.UnrecordableOpError, match="runs backwards"):
            record(function, *arrays((4,)))


def test_an_array_that_is_no_number_is_not_read(record):
    def function(x):
        for convert in (float, int, complex, bool, range):
            with pytest.raises((TypeError, ValueError)):
                convert(x)
        return x * 2

    check(record, function, (3,))


def test_a_number_taken_of_an_array_without_axes_is_told(record):
    def function(x):
        return x * np.float32(x[0] > x[1])

    with pytest.warns(errors.TraceEscapeWarning, match=r"numpy\.float32\(\) at tests/trace/test_array\.py"):
        record(function, *arrays((3,)))


def test_what_is_filled_with_something_else_is_no_cast(record):
    def function(x):
        other = np.ndarray.astype(x, np.float64)
        np.ndarray.view(other, np.ndarray)[0] = 5  # as C code fills what it made after a traced array
        return x * other

    with pytest.warns(errors.UntracedOpWarning, match="took a traced value"):
        record(function, *arrays((3,)))


def test_a_call_without_an_equivalent_is_named(record):
    with pytest.warns(errors.NoTwinWarning, match="No torch equivalent for numpy function unique. Operation will not"):
        record(lambda x: x * 2 + np.unique(x), *arrays((4,)))


def test_a_twin_that_disagrees_is_an_error(record, monkeypatch):
    from leapp.trace import array

    monkeypatch.setattr(array, "_short", {})
    monkeypatch.setattr(array, "ufunc_twin", lambda row, operands, kwargs: torch.cos(operands[0]))
    with pytest.raises(
        errors.TwinDisagreesError, match=r"sin at tests/trace/test_array.py:\d+ .*float32\[4\].*; at \[0"
    ):
        record(lambda x: np.sin(x), *arrays((4,)))
    recording = record(lambda x: np.sin(x), *arrays((4,)), self_check=False)
    assert targets(recording) == ["cos"]


LAYER = torch.nn.Linear(3, 3)


def layered(x):
    with torch.no_grad():
        return LAYER(torch.from_numpy(x * 2.0)).numpy() + 1


def written_through_torch(x):
    tensor = torch.as_tensor(x)
    tensor += 1
    return x * 2


def copied_by_torch(x):
    tensor = torch.tensor(x)
    tensor += 1
    return x * 2 + tensor.numpy()


def stacked_by_torch(x):
    return torch.tensor([x[0], x[1] * 2]).numpy()


def tensor_and_scalars(x):
    tensor = torch.from_numpy(x) / x.std()
    return torch.where(tensor > x[0], tensor, torch.ones(3) * x.mean()).numpy()


def seen_by_asarray(x):
    return np.asarray(x * 2) + x


@pytest.mark.parametrize(
    "function",
    [layered, written_through_torch, copied_by_torch, stacked_by_torch, tensor_and_scalars, seen_by_asarray],
)
def test_arrays_and_tensors_cross_both_ways(record, function):
    check(record, function, (3,))


# NumPy says so of torch.Tensor.__array_wrap__, traced or not.
_wrapping = pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")


@_wrapping
def test_a_tensor_times_an_array(record, recwarn):
    def function(x):
        tensor = torch.from_numpy(x) * x  # torch leaves it to NumPy, which has torch wrap the result
        return np.maximum(tensor, x).numpy()

    recording = record(function, np.float32([1, 2, 3]))
    assert not [each for each in recwarn if issubclass(each.category, errors.LeappWarning)]
    fresh = np.float32([-3, 0.5, 2])
    np.testing.assert_array_equal(replay(recording, fresh)[0], function(fresh))


@_wrapping
def test_a_tensor_alone_in_a_ufunc_is_named(record):
    """NumPy takes the data out of a tensor without asking."""
    with pytest.warns(errors.UntracedOpWarning, match=r"^numpy\.sin at"):
        record(lambda x: x + np.sin(torch.from_numpy(x)).numpy(), np.ones(3, np.float32))


def test_a_tensor_and_its_array_share_memory(record):
    def function(t):
        array = t.numpy()
        array += 1
        t *= 2
        return torch.from_numpy(np.sin(array)) + t

    first, fresh = (torch.randn(3, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    recording = record(function, first.clone())
    np.testing.assert_allclose(replay(recording, fresh.numpy().copy())[0], function(fresh.clone()).numpy(), rtol=1e-6)


def test_wires_between_nodes_keep_to_copies_and_crossings(tmp_path):
    leapp.start("wired", save_path=tmp_path)
    x = annotate.input_tensors("a", {"x": arrays((3,))[0]})
    y = annotate.output_tensors("a", {"y": x * 2}, export_with="torchscript")
    b, c, d = annotate.input_tensors("b", {"copy": y.copy(), "crossed": torch.from_numpy(y), "all": y[:]})
    annotate.output_tensors("b", {"z": torch.from_numpy(b + d) + c}, export_with="torchscript")
    leapp.stop()
    recording = _api._process.stopped.completed[1].recordings[0]
    assert {port: str(origin) for port, origin in recording.wires.items()} == {
        "copy": "a/y",
        "crossed": "a/y",
        "all": "a/y",
    }


def test_nothing_is_traced_outside_and_afterwards(tmp_path):
    leapp.start("after", save_path=tmp_path)
    x = annotate.input_tensors("a", {"x": arrays((3,))[0]})
    y = x * 2
    annotate.output_tensors("a", {"y": y}, export_with="torchscript")
    assert type(y + 1) is np.ndarray
    leapp.stop()
    assert type(y * x) is np.ndarray
    assert type(y[0]) is np.float32


@pytest.mark.parametrize("kind", ["U1", "M8[s]", [("a", "f4")], ">f4", "O", "g"])
def test_arrays_that_no_model_holds_are_refused_by_name(record, kind):
    with pytest.raises(errors.TensorClassError, match="dtype"):
        record(lambda x: x, np.zeros(2, kind))


def test_nestings_come_back_with_traced_arrays(tmp_path):
    leapp.start("nested", save_path=tmp_path)
    given = {"a": arrays((2,))[0], "b": [arrays((2,))[0], {"c": arrays((2,))[0]}]}
    back = annotate.input_tensors("n", {"s": given})
    assert type(back["a"]) is not np.ndarray
    assert type(given["a"]) is np.ndarray
    annotate.output_tensors("n", {"y": back["a"] + back["b"][0] + back["b"][1]["c"]}, export_with="torchscript")
    leapp.stop()


def test_a_view_that_no_hook_saw_is_known_by_its_memory(record):
    def function(x):
        y = x * 2
        windows = np.ndarray.__getitem__(y, slice(1, None))  # as C code of NumPy's makes views
        return windows + np.lib.stride_tricks.sliding_window_view(x, 3).sum(axis=1)[:1]

    check(record, function, (4,))


@pytest.mark.parametrize(
    ("draw", "name"),
    [(lambda: np.random.normal(size=3), r"numpy\.random"), (lambda: random.random(), "random")],  # noqa: NPY002, S311
)
def test_numbers_drawn_from_the_generators_that_everybody_shares(record, draw, name):
    with pytest.warns(errors.RandomOpWarning, match=f"a call into {name}"):
        record(lambda x: x * 2 + draw(), *arrays((3,)))


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: np.vectorize(lambda v: v * 2)(x), "numpy.vectorize"),
        (lambda x: np.array([float(v) for v in np.nditer(x)]), "numpy.nditer"),
        (lambda x: np.full(3, x[x > -9].size), "size"),
        (lambda x: np.zeros(x[x > -9].shape), r"\.shape"),
        (lambda x: np.piecewise(x, [x > 9], [lambda v: v * 2]), r"len\(\)"),
    ],
)
@pytest.mark.filterwarnings("ignore::leapp.errors.UntracedOpWarning")
def test_what_takes_elements_or_lengths_out_is_a_read(record, function, op):
    with pytest.warns(errors.TraceEscapeWarning, match=op):
        record(lambda x: x * 2 + function(x), *arrays((3,)))


def test_warnings_of_numpy_name_the_users_line(record):
    def function(x):
        a = np.log(x - x - 1)
        b = (x * np.float32(3e38)) * 10
        c = (x[0] - x[0]) / (x[1] - x[1])
        return a + b + c

    x = np.array([1, 2, 3], np.float32)
    seen = []
    for run in (lambda: function(x), lambda: record(function, x)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run()
        seen.append([(each.category, str(each.message), each.filename, each.lineno) for each in told])
    assert seen[0] == seen[1]
    assert len(seen[0]) == 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0].sum() / x[x > 0].size,
        lambda x: x[x > 0].sum() / x[x > 0].shape[0],
        lambda x: x * np.nonzero(x > 0)[0].size,
        lambda x: x * np.flatnonzero(x > 0).shape[0],
        lambda x: x * np.size(x[x > 0]),
        lambda x: x * np.shape(np.compress(x > 0, x))[0],
        lambda x: x * x[x > 0].nbytes,
        lambda x: x + sum(each for each in x[x > 0]),
        lambda x: np.piecewise(x, [x > 99], [lambda part: part * 2]),
    ],
)
def test_how_many_elements_were_selected_is_a_read(record, function):
    with pytest.warns(errors.TraceEscapeWarning):
        record(function, *arrays((6,)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.zeros(x.shape) + x.size + x.nbytes + np.shape(x)[0] + x.sum(),
        lambda x: np.compress([True, False, True], x).size + x,
    ],
)
def test_sizes_that_follow_no_data_are_plain_numbers(record, function):
    check(record, function, (6,))


def test_parts_of_complex_buffers_are_written(record):
    def whole(x):
        z = np.zeros(4, complex)
        z.real = x
        z.imag = x * 2
        return np.abs(z)

    def parts(x):
        z = np.ones(4, complex)
        z.real[1:] = x[1:]
        z.imag[:2] = x[2:]
        return z * 1j

    check(record, whole, (4,))
    check(record, parts, (4,))


def test_a_resize_that_keeps_the_size_is_a_new_shape(record):
    def function(x):
        y = np.array(x)
        y.resize((2, 3))
        return y * 2

    check(record, function, (6,))
    with pytest.raises(errors.UnrecordableOpError, match=r"ndarray\.resize"):
        record(lambda x: (x * 1).resize(2), *arrays((6,)))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_classes_with_a_behaviour_of_their_own_keep_it(record):
    x = arrays((3, 3))[0]
    got = []

    def function(given):
        got.append(np.asmatrix(given) * np.asmatrix(given))
        return given * 1

    with pytest.warns(errors.NoTwinWarning, match="a class with behaviour of its own"):
        record(function, x)
    assert type(got[0]) is np.matrix
    np.testing.assert_array_equal(got[0], np.asmatrix(x) * np.asmatrix(x))


def test_foreign_byte_order(record):
    table = np.arange(4, dtype=">f8")
    check(record, lambda x: x * table + np.take(x, np.array([0, 1, 2, 3], ">i4")), (4,))
    for function in (lambda x: x.astype(">f4"), lambda x: np.take(table, np.argsort(x)), lambda x: x.byteswap()):
        with pytest.warns(errors.NoTwinWarning):
            record(lambda x, function=function: (function(x), x * 1)[1], *arrays((4,)))


def test_sorting_in_place_while_names_of_numpy_are_wrapped(record):
    def function(x):
        y, z = x.copy(), x.copy()
        y.sort()
        z.partition(2)
        return y + z[2]

    check(record, function, (6,))


def test_a_row_at_a_computed_place_is_added_to(record):
    def function(x):
        y = np.zeros((4, 4), np.float32)
        y[np.argmax(x)] += x
        return y

    check(record, function, (4,))


def test_add_at_into_a_buffer_that_was_there_before(record):
    counts = np.zeros(3, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.HiddenStateWarning)
        x = arrays((3,))[0]
        record(lambda x: (np.add.at(counts, [0, 1, 1], x), x * 1)[1], x)
    np.testing.assert_array_equal(counts, np.array([x[0], x[1] + x[2], 0]))


def test_what_an_earlier_session_left_is_plain(record):
    kept = []
    record(lambda x: kept.append(x * 2) or kept[0], *arrays((4,)))
    x = arrays((4,), seed=5)[0]
    recording = record(lambda y: y + kept[0], x)
    np.testing.assert_array_equal(replay(recording, x)[0], x + np.asarray(kept[0]))


def test_tensors_in_a_list_given_to_numpy(record):
    check(record, lambda x: np.stack([torch.from_numpy(x), torch.from_numpy(x * 2)]), (4,))


@pytest.mark.parametrize(
    "context",
    [
        lambda: torch.autocast("cpu"),
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.device("meta"),
        contextlib.nullcontext,
    ],
)
@pytest.mark.parametrize("strict", ["", "1"])
def test_contexts_of_torch_change_nothing(record, monkeypatch, context, strict):
    monkeypatch.setenv("LEAPP_STRICT", strict)

    def function(x):
        with context():
            for _ in range(2):  # the second time a call goes the short way
                x = (x @ TABLE[:3]) * 0.5 + np.where(x > 0, x, 0.0).mean() + np.full_like(x, 0.1)
            return x[::-1] + np.linspace(0, 1, 3)

    check(record, function, (3,))


@pytest.mark.parametrize(
    "put",
    [
        lambda x: np.empty(3, object).__setitem__(slice(None), list(x)),
        lambda x: np.empty(2, object).__setitem__(0, x),
        lambda x: np.zeros(3, [("p", "f4"), ("k", "i4")]).__setitem__("p", x),
        lambda x: np.zeros(1, [("p", "f4", 3)])["p"].__setitem__(0, x),
    ],
)
def test_a_traced_value_is_not_lost_in_objects_and_records(record, put):
    with pytest.raises(errors.UnrecordableOpError, match="objects or records"):
        record(lambda x: (put(x), x * 1)[1], *arrays((3,)))


def test_objects_and_records_of_plain_values_are_as_ever(record):
    def function(x):
        names = np.array(["a", None], dtype=object)
        names[1] = "b"
        row = np.zeros(2, [("p", "f4"), ("k", "i4")])
        row["k"] = [1, 2]
        row[0] = (0.5, 3)
        assert names.tolist() == ["a", "b"]
        assert row.tolist() == [(0.5, 3), (0.0, 2)]
        return x * row["p"].sum() + row["k"].max()

    check(record, function, (3,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.ma.masked_where(x < 0, x).filled(0),
        lambda x: np.ma.array(x, mask=x < 0).mean(),
        lambda x: np.ma.masked_invalid(x).sum(),
        lambda x: np.ma.MaskedArray(x, [True, False, False, False]).sum(),
        lambda x: np.lib.stride_tricks.as_strided(x, (2, 2), (4, 4)).sum(),
    ],
)
@pytest.mark.filterwarnings("ignore::leapp.errors.UntracedOpWarning")
def test_functions_without_hooks_and_without_an_equivalent_are_named(record, function):
    got = []
    x = arrays((4,))[0]
    with pytest.warns(errors.NoTwinWarning, match=r"numpy function (ma\.|as_strided)"):
        record(lambda given: (got.append(function(given)), given * 1)[1], x)
    np.testing.assert_array_equal(np.asarray(got[0]), np.asarray(function(x)))


def test_assignments_of_what_overlaps(record):
    def function(x):
        y = x.copy()
        y[:-1] = y[1:]
        y[2:] = y[:-2] * 1
        y[y > 0] = y[y > 0] * 2
        y[0], y[1] = y[1], y[0]
        y[1:] += y[:-1]
        y[[0, 2]] = y[[2, 0]]
        y[:, None] = y[:, None]
        return y

    check(record, function, (6,))


def test_sums_into_a_wider_array_add_up_in_its_dtype(record):
    def function(x):
        sums, rows, means, running = np.empty(300), np.empty(300), np.empty(300), np.empty((7, 300))
        np.sum(x, axis=0, out=sums)
        np.add.reduce(x, axis=0, out=rows)
        np.mean(x, axis=0, out=means)
        x.cumsum(axis=0, out=running)
        return np.stack([sums, rows, means, running[-1]])

    check(record, function, (7, 300), rtol=1e-12)


class Pair(NamedTuple):
    a: np.ndarray
    b: np.ndarray


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.concatenate(deque([x, x * 2])),
        lambda x: np.stack(deque([x, x * 2]), axis=-1),
        lambda x: np.array(deque([x, x * 2])),
        lambda x: np.mean(deque([x, x * 2]), axis=0),
        lambda x: np.stack(Pair(x[:3], x[3:])),
        lambda x: np.asarray(Pair(x[0], x[1])),
        lambda x: np.concatenate([*Pair(x[:3], x[3:]), np.array(Pair(x[2], 1.0))]),
        lambda x: np.broadcast_to(x, torch.Size([2, 6])) + deque([x, x]),
        lambda x: np.zeros((2, 3)).__setitem__(slice(None), Pair(x[:3], x[3:])) or x * 2,
    ],
)
def test_frames_in_deques_and_named_tuples(record, function):
    check(record, function, (6,))


def test_named_tuples_of_plain_things_stay_what_they_are(record):
    def function(x):
        things = np.array([Pair(1, 2), None], dtype=object)
        assert type(things[0]) is Pair
        return x * 2

    check(record, function, (3,))


def test_numbers_of_numpy_before_a_comparison(record):
    limit = np.float32(0.5)
    check(record, lambda x: (limit < x) | (np.float64(-1) >= x) | (np.int64(0) == x), (6,))


def test_rows_that_vectorize_hands_on_are_traced(record):
    norm = np.vectorize(lambda row: row / np.abs(row).max(), signature="(n)->(n)")
    check(record, lambda x: norm(x) + x, (3, 4))


class Slotted:
    __slots__ = ("nothing", "v")

    def __init__(self, v):
        self.v = v

    def __array__(self, dtype=None, copy=None):
        return self.v


def test_arrays_in_slots_are_seen_to_go_into_calls_without_a_hook(record):
    x = arrays((3,))[0]
    with pytest.warns(errors.UntracedOpWarning, match=r"numpy\.sin"):
        record(lambda x: np.sin(Slotted(x)) + x, x)


def test_questions_about_masks_are_no_reads_of_data(record):
    def function(x):
        assert not np.ma.isMaskedArray(x)
        assert np.ma.getmask(x) is np.ma.nomask
        return x * 2

    check(record, function, (3,))


def test_asarray_chkfinite_checks_and_hands_on(record):
    def function(x):
        y = x * 2
        np.asarray_chkfinite(y)[0] = 5
        return np.asarray_chkfinite([y[0], x[1]], dtype=np.float64) + y[1]

    check(record, function, (3,))
    with pytest.raises(ValueError, match="infs or NaNs"):
        record(lambda x: np.asarray_chkfinite(x), np.array([1, np.nan]))


TEMPLATE = np.array([1.0, 2.0, 3.0], np.float32)


def filled_template(x):
    y = TEMPLATE.copy()
    y[1:] = TEMPLATE[1:] + 0.25 * x[1:]
    return x + y


def filled_buffer(x):
    scratch = TEMPLATE * 0
    scratch[0] = x.max()
    return scratch * 2 + x


class Holder:
    def __init__(self):
        self.buffer = np.zeros(3, np.float32)

    def __call__(self, x):
        self.buffer[:2] = x[1:]
        return np.concatenate([self.buffer, x])


@pytest.mark.parametrize("function", [filled_template, Holder()], ids=["copy", "attribute"])
def test_a_write_into_a_plain_array_is_named_where_it_stands(record, function):
    with pytest.warns(errors.UnseenWriteWarning, match=r"\] = .* at tests/trace/test_array.py:\d+ writes a traced"):
        record(lambda x: function(x), *arrays((3,)))


def test_where_something_was_computed_from_such_an_array_the_write_is_named(record):
    with pytest.warns(
        errors.UnseenWriteWarning, match=r"scratch\[0\] = .* at tests/trace/test_array.py:\d+ writes a traced"
    ):
        record(lambda x: filled_buffer(x), *arrays((3,)))


def test_plain_writes_into_plain_arrays_are_not_told(record):
    def function(x):
        y = TEMPLATE.copy()
        y[0] = 5
        y[1:] = np.zeros(x.shape[0] - 1)
        return x * y

    check(record, function, (3,))


def test_a_broadcast_length_that_follows_the_data_stays_free_behind_the_last_write(record):
    def function(x):
        chosen = x[x > 0]
        chosen.fill(2)
        return np.meshgrid(x, chosen)[0]

    recording = record(function, np.array([1, -1, -1], np.float32))
    fresh = np.array([1, 2, -3], np.float32)
    graph = run_passes(recording.graph, EXPORT_PASSES)
    np.testing.assert_array_equal(run_graph(graph, {"x0": torch.from_numpy(fresh)})["y"], function(fresh.copy()))


def written_by_out(a):
    sums = np.empty(4, np.float32)
    np.sum(a, axis=0, out=sums)
    product = np.zeros(4, np.float32)
    np.dot(a, sums, out=product)
    np.clip(product, -1, 1, out=product)
    return product + np.sin(sums), product


def in_a_buffer_of_ours(a):
    buffer = annotate.register_buffer("n", np.zeros((4, 4), np.float32))
    buffer[:] = a
    buffer *= 2
    np.add(buffer[0], buffer[1], out=buffer[2])
    return np.maximum(buffer, 0.5), torch.from_numpy(buffer[3] * 1)


@pytest.mark.parametrize("function", [written_by_out, in_a_buffer_of_ours])
def test_the_sentinel_says_nothing_of_what_is_ours(function, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAPP_STRICT", "1")
    leapp.start("demo", save_path=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.LeappWarning)
        for _ in range(2):
            given = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
            x = annotate.input_tensors("n", {"x": given})
            y, z = function(x)
            annotate.output_tensors("n", {"y": y, "z": z}, export_with=None)
        leapp.stop()
