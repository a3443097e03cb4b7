"""Memory that carries values from tick to tick is said aloud; scratch memory is not."""

import warnings

import numpy as np
import pytest
import torch

from leapp import errors
from leapp.graph._base import run_passes
from leapp.graph.check import run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.trace.same import difference

OLD = torch.arange(4.0)


def running_mean(a):
    OLD.mul_(0.9).add_(a * 0.1)
    return a - OLD


def shifted(a):
    OLD[:-1] = a[1:]
    return OLD * 1


@pytest.mark.parametrize("function", [running_mean, shifted])
def test_a_tensor_that_outlives_the_node_and_is_read(record, function):
    with pytest.warns(errors.HiddenStateWarning, match="outlives node .n. is written at .*_state.py") as caught:
        record(function, torch.randn(4))
    line = next(str(w.message) for w in caught if isinstance(w.message, errors.HiddenStateWarning))
    assert f":{function.__code__.co_firstlineno + 1} " in line


def overwritten(a):
    OLD.copy_(a)
    return OLD * 2


def overwritten_by_slice(a):
    OLD[:] = a
    return OLD * 2


def overwritten_by_out(a):
    torch.add(a, 1, out=OLD)
    return OLD * 2


def made_inside(a):
    buffer = torch.zeros(4)
    buffer[:2] = a[:2]
    view = torch.ones(8)[2:6]
    view += a
    return buffer + view


@pytest.mark.parametrize("function", [overwritten, overwritten_by_slice, overwritten_by_out, made_inside])
def test_scratch_memory_is_no_state(record, function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorded = record(function, torch.randn(4))
    fresh = torch.randn(4)
    results = [recorded(fresh), recorded(fresh)]
    assert torch.equal(results[0], function(fresh.clone()))
    assert torch.equal(*results)


def entered_twice(session, body):
    for _ in range(2):
        x = torch.ones(2)
        session.input_tensors("n", {"x": x})
        y = body(x)
        session.output_tensors("n", {"y": y})


def test_a_buffer_cached_on_the_first_entry_is_found_on_the_second(make_session):
    cache = {}

    def body(x):
        if not cache:
            cache["buffer"] = torch.zeros(2)
        cache["buffer"] += x
        return cache["buffer"] * 1

    with pytest.warns(errors.HiddenStateWarning):
        entered_twice(make_session(), body)


def test_a_scratch_buffer_that_is_kept_is_no_state(make_session):
    buffer = torch.zeros(2)

    def body(x):
        buffer[:] = x
        return buffer * 2

    session = make_session()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entered_twice(session, body)
    session.stop()
    assert type(buffer) is torch.Tensor
    assert len(session.nodes["n"].recordings) == 2


def test_a_traced_value_kept_for_the_next_entry_is_state(make_session):
    session = make_session()
    last = torch.zeros(2)
    with pytest.raises(errors.StaleValueError, match="an earlier entry of node 'n' computed was used in it again"):
        for _ in range(2):
            x = torch.ones(2)
            session.input_tensors("n", {"x": x})
            y = x + last
            session.output_tensors("n", {"y": y})
            last = y


def renormed(weight):
    def function(a):
        return torch.nn.functional.embedding(a, weight, max_norm=0.1)

    return function


def test_batch_norm_in_train_mode_is_state(record):
    norm = torch.nn.BatchNorm1d(4)
    with pytest.warns(errors.HiddenStateWarning):
        recorded = record(norm, torch.randn(3, 4))
    fresh = torch.randn(3, 4)
    before = {name: value.clone() for name, value in recorded.graph.constants.items()}
    assert torch.equal(recorded(fresh), recorded(fresh))
    assert all(torch.equal(before[name], value) for name, value in recorded.graph.constants.items())


def test_writes_that_no_name_tells_of_reach_nobody(record):
    weight = torch.randn(5, 3)
    with pytest.warns(errors.HiddenStateWarning):
        recorded = record(renormed(weight.clone()), torch.tensor([0, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        added = record(lambda a: torch.ops.aten.add_.Tensor(a, torch.ones(3)) * 1, torch.randn(3))
    before = {name: value.clone() for name, value in recorded.graph.constants.items()}
    recorded(torch.tensor([2, 3]))
    assert all(torch.equal(before[name], value) for name, value in recorded.graph.constants.items())
    x = torch.zeros(3)
    assert torch.equal(added(x), torch.ones(3))
    assert torch.equal(x, torch.zeros(3))


GRID = torch.arange(12.0).reshape(3, 4).clone()


def by_rows(a):
    for row in range(3):
        GRID[row] = a * row
    return GRID * 1


def by_views(a):
    flat = GRID.view(-1)
    flat[:6].copy_(a.repeat(2)[:6])
    GRID.t()[:, 2].fill_(1.0)
    flat[6:8].zero_()
    GRID[:, 1].add_(a[:3])
    return GRID[:, :4] + a


def by_parts(a):
    first, second, third = GRID.unbind()
    for part in (first, second, third):
        part.copy_(a)
    return GRID.sum(0)


def read_where_it_was_written(a):
    GRID[1:] = a
    return GRID[1:].mean(0) + GRID[2]


INDEX = torch.tensor([0, 2])
TABLE = torch.arange(12.0).reshape(3, 4)  # a view of memory that is older than it


def by_a_list(a):
    GRID[[0, 2]] = a
    GRID[1] = a * 2
    return GRID * 1


def by_an_index(a):
    GRID[INDEX, :2] = a[:2]
    GRID[INDEX, 2:] = a[2:]
    GRID[torch.tensor([False, True, False])] = a * 2
    return GRID * 1


def by_an_array(a):
    GRID[np.array([0, 2])] = a
    GRID[np.arange(1, 2)] = -a
    return GRID * 1


def by_methods(a):
    GRID.index_copy_(0, INDEX, torch.stack([a, -a]))
    GRID[1].masked_fill_(torch.tensor([True, True, False, False]), a[0])
    GRID[1].scatter_(0, torch.tensor([3, 2]), a[:2])
    return GRID * 1


def by_places(a):
    GRID.index_put_((INDEX,), a)
    GRID.masked_scatter_(torch.tensor([[False], [True], [False]]), a)
    return GRID + a


def by_rows_of_a_view(a):
    for row in range(3):
        TABLE[row] = a * row
    return TABLE * 1


def by_parts_of_a_view(a):
    TABLE[0] = a
    TABLE[1:].copy_(2 * a)
    return TABLE.sum(0) + TABLE[2]


def in_an_uninitialised_buffer(a):
    buffer = torch.empty(3, 4)
    for row in range(3):
        buffer[row] = a + row
    return buffer


def in_an_uninitialised_array(a):
    buffer = np.empty((3, 4), np.float32)
    buffer[0], buffer[1:, ::2], buffer[1:, 1::2] = a.numpy(), 2.0, a.numpy()[:2]
    return torch.from_numpy(buffer)


@pytest.mark.parametrize(
    "function",
    [
        by_rows,
        by_views,
        by_parts,
        read_where_it_was_written,
        by_a_list,
        by_an_index,
        by_an_array,
        by_methods,
        by_places,
        by_rows_of_a_view,
        by_parts_of_a_view,
        in_an_uninitialised_buffer,
        in_an_uninitialised_array,
        overwritten,
        overwritten_by_out,
    ],
)
def test_memory_overwritten_before_it_is_read_is_the_same_in_every_entry(make_session, function):
    session = make_session()
    graphs = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for entry in range(3):
            junk = [torch.full((3, 4), float(entry)) for _ in range(8)]
            del junk  # what is left there is found by the next one that does not look
            GRID.add_(entry)
            TABLE.add_(entry)
            a = torch.randn(4)
            session.input_tensors("n", {"a": a})
            result = function(a)
            session.output_tensors("n", {"y": result})
            graphs.append(session.nodes["n"].recordings[-1].graph)
    assert [difference(graphs[0], each) for each in graphs[1:]] == [None, None]
    model = run_passes(graphs[0], EXPORT_PASSES)
    for entry in session.nodes["n"].recordings:
        torch.testing.assert_close(run_graph(model, entry.sample.inputs), entry.sample.outputs, rtol=0, atol=0)


def one_row_too_few(a):
    GRID[:2] = a
    return GRID * 1


def one_column_too_few(a):
    GRID[:, 1:].copy_(a[1:])
    return GRID.sum(0)


def added_to(a):
    GRID[:] += a
    GRID[:] = GRID + a
    return GRID * 1


def read_first(a):
    y = GRID[2] + a
    GRID[:] = a
    return y + GRID[0]


def where_it_is_positive(a):
    GRID[:, a > 0] = 1.0
    return GRID * 1


def into_itself(a):
    GRID[:] = torch.roll(GRID, 1, 0)
    GRID[0] = a
    return GRID * 1


def one_listed_row_too_few(a):
    GRID[[0, 2]] = a
    return GRID * 1


def added_at_an_index(a):
    GRID[INDEX] += a
    GRID[1] = a
    return GRID * 1


def accumulated(a):
    GRID.index_put_((INDEX,), a, accumulate=True)
    GRID[1] = a
    return GRID * 1


def reduced(a):
    GRID.scatter_(0, torch.tensor([[0] * 4, [1] * 4, [2] * 4]), 2.0, reduce="multiply")
    GRID[0] += a
    return GRID * 1


def at_computed_rows(a):
    GRID[(a[:2] > 0).long() * 2] = a
    GRID[1] = a
    return GRID * 1


def computed_before_it_is_written(a):
    GRID[:] = GRID * 0.9 + a
    return GRID * 1


def kept_before_it_is_written(a):
    old = (GRID.clone() + 1).sum(0)
    GRID.copy_(a.expand(3, 4))
    return GRID[0] - old


def by_a_mask_of_some(a):
    GRID.masked_fill_(torch.tensor([True, True, True, False]), a[0])
    return GRID * 1


@pytest.mark.parametrize(
    "function",
    [
        one_row_too_few,
        one_column_too_few,
        added_to,
        read_first,
        where_it_is_positive,
        into_itself,
        one_listed_row_too_few,
        added_at_an_index,
        accumulated,
        reduced,
        computed_before_it_is_written,
        kept_before_it_is_written,
        at_computed_rows,
        by_a_mask_of_some,
    ],
)
def test_memory_of_which_an_old_element_is_read_is_hidden_state(record, function):
    with pytest.warns(errors.HiddenStateWarning, match="outlives node"):
        record(function, torch.randn(4))


ARRAY = np.zeros((3, 4), np.float32)


def through_a_row(a):
    row = GRID[1]
    row += a
    return row * 1


def through_a_part_of_a_view(a):
    part = GRID.view(-1)[2:6]
    part.mul_(0.9).add_(a)
    return part + 0


def through_one_of_several_views(a):
    first, second, _ = GRID.unbind()
    first += a
    return first + second


def through_out(a):
    torch.add(GRID[0], a, out=GRID[0])
    return GRID[0] * 1


def through_the_data(a):
    GRID.detach()[0].add_(a)
    return GRID.sum(0)


def over_an_array(a):
    row = torch.as_tensor(ARRAY)[0]
    row += a
    return row * 1


def through_asarray(a):
    row = np.asarray(ARRAY)[0]
    row += a.numpy()
    return torch.from_numpy(row * 1)


def through_numpy(a):
    row = GRID[1].numpy()
    row += a.numpy()
    return torch.from_numpy(row * 1)


def through_asarray_of_a_tensor(a):
    row = np.asarray(GRID[1])
    row += a.numpy()
    return torch.from_numpy(row * 1)


class Holder:
    """An object of the user's that gives the array it keeps."""

    def __array__(self, dtype=None, copy=None):
        return ARRAY[2]


def through_an_object(a):
    row = np.asarray(Holder())
    row += a.numpy()
    return torch.from_numpy(row * 1)


def through_foreign_memory(a):
    row = np.asarray(memoryview(ARRAY)[0:1])
    row += a.numpy()
    return torch.from_numpy(row * 1)


@pytest.mark.parametrize(
    "function",
    [
        through_numpy,
        through_asarray_of_a_tensor,
        through_an_object,
        through_foreign_memory,
        through_a_row,
        through_a_part_of_a_view,
        through_one_of_several_views,
        through_out,
        through_the_data,
        over_an_array,
        through_asarray,
    ],
)
def test_a_view_is_as_old_as_what_it_sees(record, function):
    with pytest.warns(errors.HiddenStateWarning, match="outlives node"):
        record(function, torch.randn(4))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.sort(torch.tensor([3.0, 1, 2, 0]))[0],
        lambda: torch.split(torch.zeros(8), 4)[0],
        lambda: torch.stack([torch.zeros(4), torch.zeros(4)])[0],
        lambda: GRID.clone()[0],
        lambda: torch.Tensor([1, 2, 3, 4]),
        lambda: torch.as_tensor(np.zeros(4, np.float32)),
        lambda: torch.from_numpy(np.array([1, 2, 3, 4], np.float32)),
        lambda: torch.from_numpy(np.array(ARRAY)[0]),
        lambda: torch.linalg.qr(torch.ones(4, 4))[0][0],
    ],
)
def test_what_is_made_in_the_node_is_no_state(record, make):
    def function(a):
        made = make()
        made += a
        return made * 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record(function, torch.randn(4))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(4).numpy(),
        lambda: torch.ones(2, 4).numpy(force=True)[1],
        lambda: torch.zeros(4).detach().numpy()[:],
        lambda: np.asarray(torch.arange(4.0)),
        lambda: np.asarray([1.0, 2, 3, 4], np.float32),
        lambda: np.asarray(np.zeros((2, 4), np.float32)[1]),
    ],
)
def test_an_array_made_in_the_node_is_no_state_and_its_writes_are_seen(record, make):
    def function(a):
        made = make()
        made += a.numpy()
        made[1:] = made[1:] + a.numpy()[0]
        return torch.from_numpy(made * 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.LeappWarning)
        recorded = record(function, torch.randn(4))
    fresh = torch.randn(4)
    assert torch.equal(recorded(fresh), function(fresh))


@pytest.mark.parametrize(
    "make", [lambda: torch.FloatTensor(4).zero_(), lambda: torch.DoubleTensor(2, 4).fill_(1)[0].float()]
)
def test_the_old_constructors_make_new_memory_in_a_build(make_session, make):
    session = make_session(sentinel=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            x = torch.randn(4)
            session.input_tensors("n", {"x": x})
            made = make()
            made += x
            session.output_tensors("n", {"y": made * 1})


def test_the_old_constructors_over_old_memory_do_not(make_session):
    session = make_session(sentinel=True)
    x = torch.randn(4)
    session.input_tensors("n", {"x": x})
    row = torch.FloatTensor(GRID)[0]
    row += x
    with pytest.warns(errors.HiddenStateWarning, match="outlives node"):
        session.output_tensors("n", {"y": row * 1})
