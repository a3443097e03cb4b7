"""Plain tensors that see memory of the trace: recorded as views of it, or refused by name."""

import warnings

import pytest
import torch

from leapp import errors


def earlier_view_of_a_buffer(a):
    buffer = torch.zeros(4)
    view = buffer[:2]
    buffer[:] = a
    return a[:2] + view * 2


def earlier_view_written(a):
    buffer = torch.zeros(4)
    view = buffer[1:3]
    buffer.copy_(a)
    view.add_(100.0)
    return buffer * 1


def stacked_views(a):
    buffer = torch.zeros(4)
    first, second = buffer[0], buffer[1]
    buffer.add_(a)
    return torch.stack([first, second]) + a[:2]


def transposed_first(a):
    table = torch.ones(2, 2)
    total = (a.sum() * table.t()).sum()
    table[0] = a[:2]
    return table.t() * 1 + total


@pytest.mark.parametrize("function", [earlier_view_of_a_buffer, earlier_view_written, stacked_views, transposed_first])
def test_plain_views_of_a_written_buffer(record, function):
    recorded = record(function, torch.randn(4))
    fresh = torch.randn(4)
    for _ in range(2):
        assert torch.equal(recorded(fresh), function(fresh.clone()))


def test_views_of_an_input_taken_before_it_was_declared(make_session):
    session = make_session()
    x = torch.randn(4)
    view = x[1:3]
    session.input_tensors("n", {"x": x})
    y = view * 2
    view.mul_(10)
    session.output_tensors("n", {"y": y, "z": x + 0})
    session.stop()
    graph = session.nodes["n"].recordings[0].graph
    from leapp.graph._base import run_passes
    from leapp.graph.check import run_graph
    from leapp.graph.passes import EXPORT_PASSES

    fresh = torch.tensor([1.0, 2.0, 3.0, 4.0])
    got = run_graph(run_passes(graph, EXPORT_PASSES), {"x": fresh})
    assert got["y"].tolist() == [4.0, 6.0]
    assert got["z"].tolist() == [1.0, 20.0, 30.0, 4.0]
    assert fresh.tolist() == [1.0, 2.0, 3.0, 4.0]


def row_of_a_ring(a):
    ring = torch.zeros(500, 4)
    ring[3:4].add_(a)
    row = ring[7]
    row.copy_(a * 2)
    ring[8] = 5.0
    return ring[::2].sum(0) + ring.sum(0)


def rows_taken_before(a):
    rows = torch.arange(4000.0).reshape(1000, 4).unbind()
    rows[5].mul_(a)
    seen = rows[5] + rows[6]
    rows[6].copy_(a)
    return rows[5] + seen, rows[6]._base[16:28].sum(0)


def memory_that_reaches_beyond_what_was_written(a):
    base = torch.zeros(4000)
    small, larger = base[:4], base[2:8]
    small.add_(a)
    larger.mul_(2)
    return larger.sum() + a, small + base[:4] + base[100:104]


def columns(a):
    table = torch.ones(4, 500)
    first, last = table[:, 0], table[:, -1]
    first.copy_(a)
    last.add_(a)
    return first + last, table.sum(1)


def conjugate(a):
    buffer = torch.tensor([1 + 2j, 3j, 4.0, 5 - 1j])
    buffer.conj().add_(a * 1j)
    return torch.view_as_real(buffer.resolve_conj())


def plainly_through_a_traced_view(a):
    buffer = torch.ones(4)
    view = buffer.expand_as(a)
    buffer.add_(1)
    return view * a


@pytest.mark.parametrize(
    "function",
    [
        row_of_a_ring,
        rows_taken_before,
        memory_that_reaches_beyond_what_was_written,
        columns,
        conjugate,
        plainly_through_a_traced_view,
    ],
)
def test_parts_of_a_buffer_and_the_whole(record, function):
    recorded = record(function, torch.randn(4))
    fresh = torch.randn(4)
    for _ in range(2):
        found, expected = recorded(fresh), function(fresh.clone())
        for one, other in zip(
            *((each if isinstance(each, tuple) else (each,)) for each in (found, expected)), strict=True
        ):
            assert torch.equal(one, other)


def test_memory_that_reaches_beyond_what_an_input_is(make_session):
    session = make_session()
    base = torch.zeros(8)
    x = base[:4]
    session.input_tensors("n", {"x": x})
    with pytest.raises(errors.UnrecordableOpError, match="shares memory with a recorded write"):
        x + base[2:6]


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda a: torch.func.functionalize(lambda row: row * torch.ones(4))(a), "torch.func"),
        (lambda a: torch.autograd.grad((a.detach().requires_grad_() ** 2).sum(), [a])[0], "gradients are not part"),
        (lambda a: setattr(torch.zeros(4), "data", a), "replaces memory"),
        (lambda a: a.to_sparse(), "which no model file holds"),
    ],
)
def test_refused_by_name(record, function, text):
    with pytest.raises(errors.UnrecordableOpError, match=text):
        record(function, torch.randn(4))


def doubled(x):
    return x * 2


def scripted(thing):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch announces the end of TorchScript
        return torch.jit.script(thing)


def test_scripted_functions_are_as_before_when_the_session_ends(make_session):
    before = torch._C.ScriptFunction.__call__
    sessions = [make_session(), make_session()]
    assert torch._C.ScriptFunction.__call__ is not before
    assert torch.equal(scripted(doubled)(torch.ones(2)), torch.full((2,), 2.0))
    for session in sessions:
        session.stop()
    assert torch._C.ScriptFunction.__call__ is before


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a + torch.full((4,), a.sum(), out=torch.empty(4)),
        lambda a: torch.nn.functional.elu(torch.ones(4), alpha=a.sum()) + a,
        lambda a: (a.detach().requires_grad_().sum().backward(), a * 2)[1],
    ],
    ids=["full-out", "elu", "backward"],
)
def test_values_that_torch_reads_itself_are_said_aloud(record, function):
    with pytest.warns((errors.TraceEscapeWarning, errors.UntracedOpWarning)):
        record(function, torch.randn(4))


def test_an_element_of_a_matrix_changed_in_place_more_than_once(record):
    """The matrix has one row only, so its views have strides that say nothing."""

    def shifted(t):
        matrix = torch.eye(2, 3).repeat(t.shape[0], 1, 1)
        matrix[..., 0, 2:3] += t[..., 0:1]
        matrix[..., 1, 2:3] += t[..., 1:2]
        return matrix

    first, second = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])
    recorded = record(shifted, first.clone())
    assert torch.equal(recorded.result, shifted(first))
    assert torch.equal(recorded(second), shifted(second))
