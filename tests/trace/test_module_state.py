"""Registered buffers of modules: what changes while a node is open is state, the rest stays constant."""

import contextlib
import copy
import gc
import itertools
import math
import warnings
import weakref

import pytest
import torch
from torch import nn

from leapp import annotate, errors
from leapp.trace.tensor import TracedTensor


class Recurrent(nn.Module):
    """A hidden state that is reassigned, a counter and a frame stack written in place, and a gain that is only read."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.cell = nn.GRUCell(3, 4)
        self.register_buffer("hidden", torch.zeros(1, 4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("frames", torch.zeros(2, 3))
        self.register_buffer("gain", torch.full((4,), 0.5))

    def forward(self, x):
        self.count += 1
        self.hidden = self.cell(x, self.hidden)
        self.frames[:-1] = self.frames[1:].clone()
        self.frames[-1] = x[0]
        scale = self.gain * 2 + 1  # computed of a constant alone
        return self.hidden * scale + self.count + self.frames.sum()


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Averaging(), Averaging()])
        self.last = Averaging()

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


class Averaging(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x * 0.1)
        return x - self.mean


def tick(session, model, x, names=None, node="n"):
    session.input_tensors(node, {"x": x})
    session.module(node, model, names)
    y = model(x)
    session.output_tensors(node, {"y": y})
    return y


def spec(session, node="n"):
    graph = session.nodes[node].recordings[0].graph
    return (
        [port.name for port in graph.spec.inputs],
        [port.name for port in graph.spec.outputs],
        sorted(graph.constants),
    )


def closed_loop(recording, twin, inputs):
    """Outputs of a recording over some ticks, its state fed back from the start values of ``twin``."""
    names = [port.name for port in recording.graph.spec.inputs][1:]
    buffers = {name.replace(".", "_"): value for name, value in twin.named_buffers()}
    state = [buffers[name].clone() for name in names]
    run = recording.graph.module()
    for x in inputs:
        y, *state = run(x, *(each.clone() for each in state))
        yield y


INPUTS = [torch.randn(1, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(10)]


@pytest.fixture
def recurrent(make_session):
    session = make_session()
    model, twin = Recurrent(), Recurrent()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = [tick(session, model, torch.randn(1, 3)) for _ in range(3)]
    return session, model, twin, got


def test_changed_buffers_are_state_and_read_ones_stay_constants(recurrent):
    session = recurrent[0]
    inputs, outputs, constants = spec(session)
    assert inputs == ["x", "hidden", "count", "frames"]
    assert outputs == ["y", "hidden", "count", "frames"]
    assert session.nodes["n"].state == dict.fromkeys(inputs[1:], "module")
    assert constants == ["cell.bias_hh", "cell.bias_ih", "cell.weight_hh", "cell.weight_ih", "gain"]


def test_the_recording_runs_closed_loop_like_the_module(recurrent):
    session, _, twin, _ = recurrent
    session.stop()
    results = list(closed_loop(session.nodes["n"].recordings[0], twin, INPUTS))
    for x, y in zip(INPUTS, results, strict=True):
        assert torch.equal(y, twin(x))


def test_every_entry_begins_where_the_former_one_ended(recurrent):
    samples = [each.sample for each in recurrent[0].nodes["n"].recordings]
    for before, after in itertools.pairwise(samples):
        for name in ("hidden", "count", "frames"):
            assert torch.equal(before.outputs[name], after.inputs[name])
    assert int(samples[2].outputs["count"]) == 3


def test_the_module_is_as_if_nobody_had_looked(make_session):
    model, twin = Recurrent(), Recurrent()
    kept = model.frames
    for _ in range(2):
        session = make_session(max_cached_io=2)
        for x in INPUTS[:4]:  # more than are recorded
            assert torch.equal(tick(session, model, x.clone()), twin(x))
        session.stop()
        for (name, buffer), other in zip(model.named_buffers(), twin.buffers(), strict=True):
            assert type(buffer) is torch.Tensor, name
            assert "_leapp" not in buffer.__dict__
            assert torch.equal(buffer, other)
        assert [*model.state_dict()] == [*twin.state_dict()]
    assert model.frames is kept
    assert torch.equal(model(INPUTS[5]), twin(INPUTS[5]))


@pytest.mark.parametrize(("change", "noted"), [(torch.Tensor.zero_, False), (lambda t: t.mul_(0.5), True)])
def test_a_buffer_that_is_reset_or_computed_between_ticks(make_session, change, noted):
    session, model = make_session(), Averaging()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            tick(session, model, torch.randn(3))
            change(model.mean)
    assert [type(each.message) for each in caught] == [errors.WireLostWarning] * noted


def test_a_module_does_not_live_on_in_an_ended_session(make_session):
    session, model = make_session(), Recurrent()
    alive = weakref.ref(model)
    tick(session, model, torch.randn(1, 3))
    session.stop()
    del model
    gc.collect()
    assert alive() is None
    assert session.nodes["n"].state


def test_buffers_of_nested_modules_have_flat_qualified_names(make_session):
    session = make_session()
    tick(session, Stacked(), torch.randn(3))
    assert spec(session)[0] == ["x", "layers_0_mean", "layers_1_mean", "last_mean"]


def test_some_buffers_by_name(make_session):
    session = make_session()
    with pytest.warns(errors.HiddenStateWarning):  # the other two still carry values
        tick(session, Stacked(), torch.randn(3), ["layers.1.mean"])
    assert spec(session) == (["x", "layers_1_mean"], ["y", "layers_1_mean"], ["last.mean", "layers.0.mean"])
    with pytest.raises(errors.UnknownBufferError, match=r"Stacked has no registered buffer 'mean' .* 'last.mean'"):
        tick(make_session(), Stacked(), torch.randn(3), ["mean"])


def test_it_need_be_said_at_the_first_entry_only(make_session):
    session = make_session()
    model, twin = Recurrent(), Recurrent()
    for index in range(3):
        x = INPUTS[index].clone()
        session.input_tensors("n", {"x": x})
        if not index:
            session.module("n", model, None)
        y = model(x)
        session.output_tensors("n", {"y": y})
        assert torch.equal(y, twin(INPUTS[index]))
    assert [len(each.graph.spec.inputs) for each in session.nodes["n"].recordings] == [4, 4, 4]


def test_batch_norm_in_train_mode_is_state(make_session):
    session = make_session()
    model, twin = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = torch.randn(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tick(session, model, x)
    session.stop()
    assert spec(session)[0] == ["x", "running_mean", "running_var", "num_batches_tracked"]
    for fresh, y in zip(
        (xs := [torch.randn(4, 3) for _ in range(4)]),
        closed_loop(session.nodes["n"].recordings[0], twin, xs),
        strict=True,
    ):
        assert torch.allclose(y, twin(fresh))


class Written(nn.Module):
    """A buffer that is changed in one of many ways."""

    def __init__(self, way):
        super().__init__()
        self.register_buffer("memory", torch.arange(6.0).reshape(2, 3))
        self.way = way

    def forward(self, x):
        self.way(self, x)
        return self.memory.sum(0) + x


def through_numpy(model, x):
    array = model.memory.numpy()
    array[0] = x.numpy()
    array[1] += 1


def without_traced_values(model, x):
    model.memory.mul_(2).clamp_(-5, 5)
    model.memory[1, 1] = 3.0


def in_inference_mode(model, x):
    with torch.inference_mode():
        model.memory = model.memory + x


WAYS = {
    "a row": lambda model, x: model.memory[0].copy_(x),
    "a flat view": lambda model, x: model.memory.view(-1)[1:4].add_(x),
    "out": lambda model, x: torch.add(model.memory, x, out=model.memory),
    "data": lambda model, x: model.memory.data.mul_(0.5).add_(x),
    "the dict of buffers": lambda model, x: model._buffers.update(memory=model.memory + x),
    "another layout": lambda model, x: setattr(model, "memory", (model.memory.t() + x[:, None]).t()),
    "NumPy": through_numpy,
    "plain numbers": without_traced_values,
    "inference mode": in_inference_mode,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_to_change_a_buffer(make_session, way):
    session = make_session(max_cached_io=2)
    model, twin = Written(way), Written(way)
    for _ in range(3):
        x = torch.randn(3)
        expected = twin(x.clone())
        assert torch.equal(tick(session, model, x).clone(), expected)
    session.stop()
    assert type(model.memory) is torch.Tensor
    assert torch.equal(model.memory, twin.memory)
    assert spec(session)[:2] == (["x", "memory"], ["y", "memory"])
    xs = [torch.randn(3) for _ in range(4)]
    fresh = Written(way)
    results = list(closed_loop(session.nodes["n"].recordings[0], Written(way), xs))
    assert all(torch.equal(y, fresh(x)) for x, y in zip(xs, results, strict=True))


def test_a_scripted_module(make_session):
    session = make_session()
    model, twin = (torch.jit.script(Scripted()) for _ in range(2))
    for _ in range(3):
        x = torch.randn(3)
        expected = twin(x.clone())
        assert torch.equal(tick(session, model, x).clone(), expected)
    assert spec(session)[:2] == (["x", "hidden", "count"], ["y", "hidden", "count"])


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("hidden", torch.zeros(3))
        self.register_buffer("count", torch.ones(3))

    def forward(self, x):
        self.hidden = self.hidden * 0.5 + x
        self.count.add_(1)
        return self.hidden * self.count


class Failing(Averaging):
    fails = False

    def forward(self, x):
        y = super().forward(x)
        if self.fails:
            raise ValueError
        return y


def test_an_entry_that_fails_and_is_tried_again(make_session):
    """What the failed attempt did to the buffers is done, as without a session."""
    session = make_session()
    model, twin = Failing(), Failing()
    for model.fails, twin.fails in ((False, False), (True, True), (False, False)):
        x = torch.ones(3)
        with contextlib.suppress(ValueError):
            twin(x.clone())
        with contextlib.suppress(ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.UnfinishedEntryWarning)
            tick(session, model, x)
    assert len(session.nodes["n"].recordings) == 2
    session.stop()
    assert type(model.mean) is torch.Tensor
    assert torch.equal(model.mean, twin.mean)


class Swapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("front", torch.zeros(2))
        self.register_buffer("back", torch.ones(2))

    def forward(self, x):
        self.front, self.back = self.back, self.front
        self.front.add_(x)
        return self.front - self.back


def test_buffers_that_change_places(make_session):
    session = make_session()
    model, twin = Swapping(), Swapping()
    for _ in range(3):
        tick(session, model, torch.randn(2))
    session.stop()
    xs = [torch.randn(2) for _ in range(6)]
    results = list(closed_loop(session.nodes["n"].recordings[0], twin, xs))
    assert all(torch.equal(y, twin(x)) for x, y in zip(xs, results, strict=True))


class Resetting(nn.Module):
    """Starts anew in every tick: a plain tensor takes the buffer's place, and is written then."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.full((3,), 7.0))

    def forward(self, x):
        before = self.cache.sum()
        self.cache = torch.zeros(3)
        self.cache[:2] = x
        return self.cache.sum() + before


def test_a_buffer_replaced_by_a_plain_tensor(make_session):
    session = make_session()
    model, twin = Resetting(), Resetting()
    for _ in range(2):
        tick(session, model, torch.randn(2))
    session.stop()
    xs = [torch.randn(2) for _ in range(4)]
    results = list(closed_loop(session.nodes["n"].recordings[0], twin, xs))
    assert all(torch.equal(y, twin(x)) for x, y in zip(xs, results, strict=True))


class Constant(Resetting):
    def forward(self, x):
        y = x * self.cache.sum()
        self.cache = torch.ones(3)
        return y


def test_a_buffer_replaced_by_a_constant(make_session):
    session = make_session()
    model, twin = Constant(), Constant()
    for _ in range(2):
        tick(session, model, torch.randn(2))
    session.stop()
    assert type(model.cache) is torch.Tensor
    xs = [torch.randn(2) for _ in range(3)]
    results = list(closed_loop(session.nodes["n"].recordings[0], twin, xs))
    assert all(torch.equal(y, twin(x)) for x, y in zip(xs, results, strict=True))


# --- reads of buffers ------------------------------------------------------------------------------------------------


class Flagged(nn.Module):
    def __init__(self, *, learns):
        super().__init__()
        self.register_buffer("ready", torch.tensor(True))
        self.register_buffer("scale", torch.tensor(2.0))
        self.learns = learns

    def forward(self, x):
        y = x * float(self.scale + 1) if self.ready else x
        if self.learns:
            self.ready.fill_(True)
        return y


def test_a_branch_on_a_constant_buffer_is_no_branch_on_the_data(make_session):
    session = make_session()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tick(session, Flagged(learns=False), torch.randn(2))
    assert spec(session) == (["x"], ["y"], [])


class Reading(nn.Module):
    """A module that makes Python numbers of buffers that nothing changes."""

    def __init__(self, body):
        super().__init__()
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("weights", torch.tensor([0.5, 1.0, 2.0]))
        self.body = body

    def forward(self, x):
        return self.body(self, x)


def mixed(model, x):
    return x * math.hypot(model.weights.numpy()[0], x.numpy()[0])


CONSTANT_READS = {
    "int": lambda model, x: x * int(model.count),
    "a shape": lambda model, x: x.repeat(int(model.count)).view(model.count.item(), 3),
    "a function of torch": lambda model, x: x + torch.arange(model.count),
    "a list": lambda model, x: x * model.weights.tolist()[2],
    "NumPy's scalar": lambda model, x: x * float(model.weights.numpy()[2]),
    "math": lambda model, x: x * math.exp(model.weights.numpy()[0]),
    "a branch in NumPy": lambda model, x: x * 2 if model.weights.numpy()[0] > 0 else x,
}
DATA_READS = {
    "of the input": lambda model, x: x * float((model.weights * x).sum()),
    "of both": mixed,
    "of a copy that was written": lambda model, x: x * float(model.weights.clone().copy_(x)[0]),
}


@pytest.mark.parametrize("body", CONSTANT_READS.values(), ids=CONSTANT_READS)
def test_numbers_of_constant_buffers_are_constants(make_session, body):
    session = make_session()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tick(session, Reading(body), torch.randn(3))
    fresh = torch.randn(3)
    assert torch.equal(session.nodes["n"].recordings[0].graph.module()(fresh), Reading(body)(fresh))


@pytest.mark.parametrize("body", DATA_READS.values(), ids=DATA_READS)
def test_numbers_that_the_input_reaches_are_not(make_session, body):
    with pytest.warns(errors.TraceEscapeWarning):
        tick(make_session(), Reading(body), torch.randn(3))


def test_a_branch_on_a_buffer_that_changes_is_one(make_session):
    with pytest.raises(errors.DataDependentBranchError, match=r"node 'n' at .*test_module_state.py:\d+ \(bool\(\)\)"):
        tick(make_session(), Flagged(learns=True), torch.randn(2))


# --- several nodes ---------------------------------------------------------------------------------------------------


def test_two_nodes_may_read_the_constants_of_one_module(make_session):
    session = make_session()
    model = nn.BatchNorm1d(3).eval()
    for node in ("first", "second"):
        tick(session, model, torch.randn(4, 3), node=node)
        assert type(model.running_mean) is torch.Tensor
        assert spec(session, node)[2] == ["bias", "running_mean", "running_var", "weight"]


def test_another_node_must_be_handed_the_state(make_session):
    session = make_session()
    model = Averaging()
    tick(session, model, torch.randn(3))
    x = torch.randn(3)
    session.input_tensors("reader", {"x": x})
    with pytest.raises(errors.ForeignValueError, match="A value of node 'n' was used in node 'reader'"):
        x + model.mean
    session.input_tensors("reader", {"mean": model.mean})
    session.output_tensors("reader", {"z": x + model.mean})
    assert session.nodes["reader"].recordings[0].wires == {"mean": ("n", "mean")}


def test_a_buffer_that_is_an_input_is_no_state(make_session):
    session = make_session()
    model = Averaging()
    x = torch.randn(3)
    session.input_tensors("n", {"x": x, "mean": model.mean})
    session.module("n", model, None)
    session.output_tensors("n", {"y": model(x)})
    assert spec(session) == (["x", "mean"], ["y"], [])
    assert session.nodes["n"].state == {}


def test_ports_of_the_same_name(make_session):
    session = make_session()
    x, mean = torch.randn(3), torch.randn(3)
    session.input_tensors("n", {"x": x, "mean": mean})
    first, second = Averaging(), Averaging()
    session.module("n", first, None)
    session.module("n", second, None)
    session.output_tensors("n", {"mean_1": first(x) + second(mean)})
    assert spec(session) == (["x", "mean", "mean_2", "mean_3"], ["mean_1", "mean_2", "mean_3"], [])


# --- refusals --------------------------------------------------------------------------------------------------------


class Lazy(nn.Module):
    def __init__(self, start):
        super().__init__()
        self.register_buffer("hidden", start)

    def forward(self, x):
        self.hidden = x if self.hidden is None else self.hidden[:1] + x
        return self.hidden * 2


def test_a_buffer_that_is_none_at_first(make_session):
    with pytest.raises(
        errors.BufferStateError,
        match=r"buffer 'hidden' of Lazy cannot be state: it was None when the node was opened and is float32\[1, 3\]",
    ):
        tick(make_session(), Lazy(None), torch.randn(1, 3))


def test_a_buffer_that_stays_none_is_nothing(make_session):
    session = make_session()
    tick(session, nn.BatchNorm1d(3, track_running_stats=False), torch.randn(4, 3))
    assert spec(session)[0] == ["x"]


def test_a_buffer_that_changes_shape(make_session):
    with pytest.raises(errors.BufferStateError, match=r"it was float32\[2, 3\] .* and is float32\[1, 3\] now"):
        tick(make_session(), Lazy(torch.zeros(2, 3)), torch.randn(1, 3))


class Shared(Swapping):
    def forward(self, x):
        self.front.add_(x)
        self.back = self.front
        return self.front * 1


def test_two_buffers_that_become_one(make_session):
    with pytest.raises(
        errors.BufferStateError, match="'back' of Shared cannot be state: it and front are one memory when the node"
    ):
        tick(make_session(), Shared(), torch.randn(2))


class Halves(Swapping):
    """Two buffers that are parts of one result."""

    def forward(self, x):
        self.front, self.back = torch.stack([self.front + x, self.back - x]).unbind()
        return self.front * self.back


def test_parts_of_one_result(make_session):
    session = make_session()
    model = Halves()
    for _ in range(3):
        tick(session, model, torch.randn(2))
    xs, twin = [torch.randn(2) for _ in range(4)], Halves()
    session.stop()
    results = list(closed_loop(session.nodes["n"].recordings[0], twin, xs))
    assert all(torch.equal(y, twin(x)) for x, y in zip(xs, results, strict=True))


class Late(nn.Module):
    def forward(self, x):
        if not hasattr(self, "total"):
            self.register_buffer("total", torch.zeros(3))
        self.total += x
        return self.total * 1


def test_a_buffer_that_is_registered_in_the_node(make_session):
    with pytest.raises(errors.BufferStateError, match="'total' of Late .* it was registered while the node was open"):
        tick(make_session(), Late(), torch.randn(3))


def test_one_tensor_registered_twice_and_reassigned_once(make_session):
    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.register_buffer("b", self.a)

        def forward(self, x):
            self.a = self.a + x
            return self.a + self.b

    with pytest.raises(errors.BufferStateError, match="a and b were one tensor, and one of them was reassigned"):
        tick(make_session(), Twins(), torch.randn(2))


def test_what_is_no_module_and_a_node_that_is_not_open(make_session):
    session = make_session()
    with pytest.raises(errors.StateOutsideNodeError, match=r"annotate.module\('n', ...\) was called"):
        session.module("n", Averaging(), None)
    x = torch.randn(3)
    session.input_tensors("n", {"x": x})
    with pytest.raises(errors.ModuleKindError, match="was given a torch.Tensor"):
        session.module("n", x, None)


def test_a_lazy_module(make_session):
    with pytest.raises(errors.BufferStateError, match="buffer 'running_mean' .* is not initialised yet"):
        tick(make_session(), nn.LazyBatchNorm1d(), torch.randn(4, 3))


def test_outside_a_session_the_module_comes_back():
    model = Averaging()
    assert annotate.module("n", model) is model
    assert type(copy.deepcopy(model).mean) is torch.Tensor


def test_copies_of_a_module_in_an_open_session_are_whole(make_session):
    session = make_session()
    model = Averaging()
    tick(session, model, torch.randn(3))
    assert isinstance(model.mean, TracedTensor)
    twin = copy.deepcopy(model)
    state = model.state_dict()
    session.stop()
    assert type(twin.mean) is type(state["mean"]) is torch.Tensor
    assert torch.equal(twin.mean, model.mean)
