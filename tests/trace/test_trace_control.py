"""Calls that take Python functions, autograd functions, and ways to another memory."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from leapp import errors


def data(seed):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].exp()


class Shifted(torch.autograd.Function):
    """The newer form: a context set up apart, and an input handed on."""

    @staticmethod
    def forward(x, amount):
        y = x.clone()
        y.add_(amount)
        return y, x

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ARG004 - torch names it
        ctx.amount = inputs[1]

    @staticmethod
    def backward(ctx, first, second):  # noqa: ARG004 - as torch calls it
        return first + second, None


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):  # noqa: ARG004 - as torch calls it
        return grad * 3


class Written(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)

    @staticmethod
    def backward(ctx, grad):  # noqa: ARG004 - as torch calls it
        return grad


def in_another_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(3) @ torch.ones(3)))
    thread.start()
    thread.join()
    return x * found[0]


def in_inference_mode(x):
    with torch.inference_mode():
        return (x * 2).sum(0)


def _scripted_under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return SCRIPTED(x)


def _a_step_of_an_optimiser(x):
    parameter = torch.nn.Parameter(torch.zeros(3, 4))
    parameter.grad = (x * 2).detach()
    torch.optim.SGD([parameter], 0.1).step()
    return parameter * 1


SCRIPTED = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)))
GRU = torch.nn.GRU(4, 3, batch_first=True)


class Cosine(torch.Tensor):
    """A class with a rule of its own."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result.cos() if func is torch.Tensor.add else result


NORMALISED = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))
RESPONSE = torch.nn.CrossMapLRN2d(3)
TRIPLET = torch.nn.TripletMarginWithDistanceLoss(distance_function=torch.nn.PairwiseDistance())
CASES = {
    "cond on a constant": lambda x: torch.cond(torch.tensor(True), lambda y: y + 1, lambda y: y - 1, (x,)),
    "cond on a bool": lambda x: torch.cond(False, lambda y: y + 1, lambda y: y - 1, (x,)),
    "a loop that counts": lambda x: while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[
        1
    ],
    "checkpoint": lambda x: checkpoint(lambda y: y * 2, x, use_reentrant=False),
    "a function as an argument": lambda x: TRIPLET(x, x + 1, x.flip(0)),
    "a buffer resized after a traced tensor": lambda x: RESPONSE(x[None, None]),
    "autograd function": lambda x: Exponential.apply(x) + 1,
    "autograd function, newer form": lambda x: Shifted.apply(x, 2)[0] * Shifted.apply(x, 2)[1],
    "autograd function that writes": lambda x: Written.apply(x * 2) + x,
    "vjp": lambda x: torch.func.vjp(lambda y: (y.sin() * y).cumsum(0), x)[1](torch.ones(3, 4))[0],
    "another thread": in_another_thread,
    "inference mode": in_inference_mode,
    "an optimiser": _a_step_of_an_optimiser,
    "packed sequences": lambda x: GRU(
        pack_padded_sequence(x[None].expand(2, 3, 4), torch.tensor([3, 2]), batch_first=True)
    )[1],
    "another object over the same memory": lambda x: torch.Tensor(x * 2) + 1,
    "a check inside a transform": lambda x: torch.func.vmap(
        lambda row: torch.linalg.inv(torch.outer(row, row) + 3 * torch.eye(4))
    )(x),
    "the gradient of a loss": lambda x: torch.func.grad(
        lambda a: torch.nn.functional.binary_cross_entropy_with_logits(a, (x * 2).sigmoid())
    )(x),
    "an autograd function inside a transform": lambda x: torch.func.vmap(Doubled.apply)(x),
    "the gradient of an autograd function": lambda x: torch.func.grad(lambda y: Doubled.apply(y).sin().sum())(x),
    "a parametrisation": lambda x: NORMALISED(x),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sentinel", [False, True])
def test_recorded_as_it_ran(record, name, sentinel):
    function = CASES[name]
    recorded = record(function, data(1), sentinel=sentinel)
    assert torch.equal(recorded.result, function(data(1)))
    torch.testing.assert_close(recorded(data(2)), function(data(2)).detach(), rtol=1e-6, atol=1e-6)
    assert not recorded.session.escapes.notes


def test_cond_on_a_traced_value_is_a_branch(record):
    with pytest.raises(errors.DataDependentBranchError, match=r"test_trace_control\.py:\d+"):
        record(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), data(1))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: scan(lambda c, y: (c + y, c + y), torch.zeros(4), x)[1], r"higher_order\.scan at .*\n.*vmap"),
        (lambda x: torch.func.linearize(torch.sin, x)[1](torch.ones(3, 4)), r"linearize at .*\n.*torch\.func\.jvp"),
        (lambda x: torch.jit.trace(NORMALISED, x)(x), r"torch\.jit\.trace at .*\n.*before the node"),
        (lambda x: torch.nested.as_nested_tensor([x[0], x[1, :2]]), r"nested.* at .*\n.*Pad the sequences"),
        (_scripted_under_autocast, r"scripted function .* under autocast"),
        (lambda x: x + torch.ones(3, 4).as_subclass(Cosine), r"class .*Cosine at .*\n.*as_subclass"),
        (lambda x: torch.zeros(3, 4).set_(x) + 1, r"Tensor\.set_ at .*\n.*copy_"),
        (lambda x: x.set_(torch.zeros(3, 4)) + 1, r"Tensor\.set_ at .*\n.*copy_"),
    ],
)
def test_refused_by_name(record, function, text):
    with pytest.raises(errors.UnrecordableOpError, match=text):
        record(function, data(1))


STORAGE_TAKEN = {
    "a tensor set to a storage": lambda x: torch.tensor([]).set_((x * 2).untyped_storage(), 0, (3, 4)) + x,
    "a typed storage": lambda x: torch.tensor([]).set_((x * 2)._typed_storage(), 0, (3, 4)) + x,
}


@pytest.mark.parametrize("name", STORAGE_TAKEN)
def test_memory_taken_by_its_storage_is_refused(record, name):
    with pytest.raises(errors.UnrecordableOpError, match="storage of a traced value"):
        record(STORAGE_TAKEN[name], data(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).as_subclass(torch.Tensor) + x,
        lambda x: torch.Tensor._make_subclass(torch.Tensor, x * 2) + x,
        lambda x: torch.Tensor(x * 2) + x,
    ],
)
def test_another_object_over_the_same_memory_is_traced(record, function):
    recorded = record(function, data(1))
    assert torch.equal(recorded.result, function(data(1)))
    assert torch.equal(recorded(data(2)), function(data(2)))


def test_a_transform_around_a_node_is_refused_by_name(make_session):
    session = make_session()

    def node(row):
        session.input_tensors("n", {"in": row})
        return row * 2

    with pytest.raises(errors.TensorClassError, match="transform inside it"):
        torch.func.vmap(node)(data(1))


def test_memory_given_to_another_library_is_named(record):
    with pytest.warns(errors.TraceEscapeWarning, match="dlpack"):
        record(lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x * 2)) + x, data(1))


def test_a_buffer_made_like_a_traced_tensor_is_no_hidden_state(record):
    def filled(x):
        buffer = x.new_zeros(3, 4)
        buffer.index_copy_(0, torch.tensor([0, 2]), x[:2])
        return buffer + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorded = record(filled, data(1))
    assert torch.equal(recorded(data(2)), filled(data(2)))


def test_nothing_stays_patched(record):
    record(lambda x: x + 1, data(1))
    assert "set_" not in vars(torch.Tensor)
    assert "leapp" not in torch.func.linearize.__code__.co_filename
    buffer = torch.zeros(2)
    assert buffer.set_(torch.ones(3)).shape == (3,)


def test_a_compiled_function_around_a_node_is_refused_by_name(make_session, monkeypatch):
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)  # torch.compile switches it off
    session = make_session()

    def node(x):
        session.input_tensors("n", {"in": x})
        return x * 2

    compiled = torch.compile(node, backend="eager")
    with pytest.raises(errors.CompiledAroundNodeError, match="inside a function that torch.compile runs"):
        compiled(data(1))
    assert not torch.overrides._get_current_function_mode_stack()

    x = data(1)
    node(x)  # the same session goes on
    session.output_tensors("n", {"out": x + 1})
