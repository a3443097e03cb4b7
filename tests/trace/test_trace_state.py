"""Memory that carries values from tick to tick is said aloud; scratch memory is not."""

import warnings

import pytest
import torch

from leapp import errors

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
