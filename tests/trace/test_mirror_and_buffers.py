"""``mirror_leapp_tags`` for copies that nobody saw, and ``register_buffer`` for memory that a node writes."""

import warnings

import numpy as np
import pytest
import torch

from leapp import annotate, errors
from leapp.trace.array_class import TracedNpArray
from leapp.trace.tensor import TracedTensor


@pytest.fixture
def produced(make_session):
    """A session with one closed node, and its output as a tensor and as an array."""
    session = make_session()
    x = torch.randn(3)
    (a,) = session.input_tensors("first", {"x": x, "a": np.arange(3.0)}).values()
    y, b = x * 2, a + 1
    session.output_tensors("first", {"y": y, "b": b})
    return session, y, b


def wires_of(session, thing):
    made = session.input_tensors("second", {"z": thing})
    z = made.get(id(thing), thing)
    session.output_tensors("second", {"out": z + 1})
    return {port: str(origin) for port, origin in session.nodes["second"].recordings[0].wires.items()}


def test_a_tensor_takes_over_the_port(produced):
    session, y, _ = produced
    target = torch.tensor(y.detach().tolist())
    assert session.mirror(y, target) is target
    assert wires_of(session, target) == {"z": "first/y"}
    session.stop()
    assert type(target) is torch.Tensor


def test_an_array_gives_a_traced_view(produced):
    session, _, b = produced
    target = np.array(b.tolist())
    mirrored = session.mirror(b, target)
    assert type(target) is np.ndarray
    assert type(mirrored) is TracedNpArray
    assert np.shares_memory(mirrored, target)
    assert wires_of(session, mirrored) == {"z": "first/b"}


def test_between_the_two_worlds(produced):
    session, y, _ = produced
    target = np.array(y.detach().tolist(), np.float32)
    assert wires_of(session, session.mirror(y, target)) == {"z": "first/y"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda y: y + 1, "the values differ"),
        (lambda y: y.double(), r"it is float64\[3\] instead of float32\[3\]"),
        (lambda y: y[None], r"it is float32\[1, 3\] instead of float32\[3\]"),
        (lambda y: y.tolist(), "it is a list, no tensor or array"),
    ],
)
def test_something_else_is_refused(produced, change, why):
    session, y, _ = produced
    with pytest.raises(errors.MirrorError, match=f"does not hold the values of first/y: {why}"):
        session.mirror(y, change(y.detach().clone()))


def test_a_value_of_an_open_node_has_no_port_yet(make_session):
    session = make_session()
    x = torch.randn(3)
    session.input_tensors("n", {"x": x})
    with pytest.raises(errors.MirrorError, match="a value of node 'n': the node is still open"):
        session.mirror(x * 2, torch.zeros(3))


def test_what_mirrors_a_plain_value_is_plain(produced):
    session, y, b = produced
    memory = torch.tensor(y.detach().tolist())
    session.mirror(y, memory)
    start = torch.zeros(3)
    assert session.mirror(start, memory) is memory  # a new episode: the start value takes its place
    assert type(memory) is torch.Tensor
    assert session.mirror(np.zeros(3), start) is start
    array = session.mirror(b, np.array(b.tolist()))
    assert type(session.mirror(np.zeros(3), array)) is np.ndarray


def test_what_mirrors_a_lost_value_is_lost(produced):
    session, y, _ = produced
    target = torch.zeros(3)
    session.mirror(y * 1, target)
    with pytest.warns(errors.WireLostWarning, match="from first/y"):
        assert wires_of(session, target) == {}


def test_feedback_through_memory_that_is_filled_unseen(make_session):
    session = make_session()
    memory = np.zeros(2)
    for _ in range(3):
        (x, h) = session.input_tensors("n", {"x": np.ones(2), "h": memory}).values()
        y = h * 0.5 + x
        session.output_tensors("n", {"y": y})
        memory = np.zeros(2)
        memory[:] = y  # NumPy tells nobody
        memory = session.mirror(y, memory)
    assert [dict(each.wires) for each in session.nodes["n"].recordings] == [{}, {"h": ("n", "y")}, {"h": ("n", "y")}]


# --- register_buffer -------------------------------------------------------------------------------------------------


def test_a_registered_buffer_is_traced_from_its_first_write(make_session):
    buffer, other = torch.full((4,), 9.0), np.zeros(3)
    session = make_session()
    for _ in range(3):
        x = torch.randn(4)
        session.input_tensors("n", {"x": x})
        made = session.register_buffer("n", {"buffer": buffer, "other": other})
        assert type(buffer) is TracedTensor
        buffer.zero_()  # no traced value takes part
        buffer[:2] = x[:2]
        array = made[id(other)]
        array[:] = x.detach().numpy()[:3]
        array += 1
        session.output_tensors("n", {"y": buffer * 2, "z": array * 1})
    session.stop()
    assert type(buffer) is torch.Tensor
    fresh = torch.randn(4)
    y, z = session.nodes["n"].recordings[0].graph.module()(fresh)
    assert torch.equal(y, torch.cat([fresh[:2], torch.zeros(2)]) * 2)
    assert torch.equal(z, fresh[:3].double() + 1)
    assert np.allclose(other, x.detach().numpy()[:3].astype(float) + 1)


def test_a_registered_array_that_is_written_behind_its_view(make_session):
    session = make_session()
    memory = np.zeros(2)
    (x,) = session.input_tensors("n", {"x": np.ones(2)}).values()
    (view,) = session.register_buffer("n", memory).values()
    view[:] = x
    memory[:] = np.full(2, 5.0)
    with pytest.raises(errors.UnrecordableOpError, match="a write into a plain array"):
        session.output_tensors("n", {"y": view * 2})


def test_a_registered_buffer_whose_old_content_is_read_is_hidden_state(make_session):
    total = torch.zeros(2)
    session = make_session()
    x = torch.randn(2)
    session.input_tensors("n", {"x": x})
    session.register_buffer("n", total)
    total.add_(1)
    with pytest.warns(errors.HiddenStateWarning, match="outlives node 'n'"):
        session.output_tensors("n", {"y": total + x})


def test_forms_of_register_buffer(make_session):
    session = make_session()
    x, one, two = torch.randn(2), torch.zeros(2), torch.zeros(2)
    session.input_tensors("n", {"x": x})
    for thing in (one, [one, two], {"a": one}):
        assert session.register_buffer("n", thing) == {}
    one.copy_(x)
    session.output_tensors("n", {"y": one * two})
    assert annotate.register_buffer("n", one) is one
    assert annotate.register_buffer("n", [one, two]) == [one, two]
    assert annotate.register_buffer("n", {"a": one, "b": two}) == (one, two)


def test_what_cannot_be_registered(make_session):
    session = make_session()
    with pytest.raises(errors.StateOutsideNodeError, match=r"annotate.register_buffer\('n'"):
        session.register_buffer("n", torch.zeros(2))
    x = torch.randn(2)
    session.input_tensors("first", {"x": x})
    y = x * 1
    session.output_tensors("first", {"y": y})
    other = torch.zeros(2)
    session.input_tensors("n", {"other": other})
    with pytest.raises(errors.ForeignValueError):
        session.register_buffer("n", y)
    with pytest.raises(errors.NotATensorError, match="buffer 'buffer' is a float"):
        session.register_buffer("n", 1.0)


def test_scratch_memory_of_every_entry_is_quiet(make_session):
    session = make_session(max_cached_io=2)
    buffer = torch.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            x = torch.ones(2)
            session.input_tensors("n", {"x": x})
            session.register_buffer("n", [buffer])
            buffer.copy_(x)
            session.output_tensors("n", {"y": buffer * 2})
