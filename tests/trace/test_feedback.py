"""Feedback that nobody declared, entries of several sessions, and what is said of state that was forgotten."""

import copy
import gc
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from leapp import errors
from leapp.pipeline.wiring import NodeWires, wire


def flows(session):
    """The session's wiring: forward and feedback."""
    nodes = [
        NodeWires(
            node.recordings[0].graph.spec, tuple(each.wires for each in node.recordings), False, frozenset(node.state)
        )
        for node in session.completed
    ]
    pipeline = wire("p", nodes)
    return dict(pipeline.data_flow), dict(pipeline.feedback_flow)


def enter(session, node, inputs, function):
    """One entry of a node: what its function of the inputs gives, as the session hands it back."""
    made = session.input_tensors(node, inputs)
    outputs = function(*(made.get(id(each), each) for each in inputs.values()))
    made = session.output_tensors(node, outputs)
    return {name: made.get(id(each), each) for name, each in outputs.items()}


def test_a_loop_of_two_nodes(make_session):
    session = make_session()
    memory = torch.zeros(2)
    for _ in range(3):
        got = enter(session, "estimator", {"x": torch.randn(2), "memory": memory}, lambda x, m: {"features": x + m})
        got = enter(session, "policy", got, lambda f: {"actions": f * 2, "memory": f - 1})
        memory = got["memory"]
    assert flows(session) == (
        {"estimator/features": ("policy/features",)},
        {"policy/memory": ("estimator/memory",)},
    )


def test_a_loop_onto_itself(make_session):
    session = make_session()
    hidden = torch.zeros(2)
    for _ in range(2):
        hidden = enter(session, "n", {"x": torch.randn(2), "h": hidden}, lambda x, h: {"next": torch.tanh(x + h)})[
            "next"
        ]
    assert flows(session) == ({}, {"n/next": ("n/h",)})


def test_a_wire_that_is_first_seen_at_the_third_entry(make_session):
    session = make_session()
    hidden = torch.zeros(2)
    for tick in range(4):
        got = enter(session, "n", {"x": torch.randn(2), "h": hidden}, lambda x, h: {"next": x + h})
        hidden = got["next"] if tick else torch.zeros(2)
    assert [dict(each.wires) for each in session.nodes["n"].recordings] == [{}, {}, *[{"h": ("n", "next")}] * 2]
    assert flows(session) == ({}, {"n/next": ("n/h",)})


def test_an_episode_that_starts_again(make_session):
    session = make_session()
    hidden = torch.zeros(2)
    for tick in range(4):
        if tick == 2:
            hidden = torch.zeros(2)
        hidden = enter(session, "n", {"x": torch.randn(2), "h": hidden}, lambda x, h: {"next": x + h})["next"]
    assert flows(session) == ({}, {"n/next": ("n/h",)})


def test_nodes_of_different_rates(make_session):
    """The camera is entered at every third tick, more often than its values are kept."""
    session = make_session(max_cached_io=2)
    seen = torch.zeros(2)
    state = torch.zeros(2)
    for tick in range(12):
        if tick % 3 == 0:
            seen = enter(session, "camera", {"image": torch.randn(2), "state": state}, lambda i, s: {"seen": i * s})[
                "seen"
            ]
        state = enter(session, "filter", {"seen": seen, "state": state}, lambda o, s: {"state": s * 0.5 + o})["state"]
    assert flows(session) == (
        {"camera/seen": ("filter/seen",)},
        {"filter/state": ("camera/state", "filter/state")},
    )
    assert session.nodes["filter"].entries == 12
    assert session.nodes["camera"].entries == 4


def test_a_node_that_comes_late_is_wired_to_entries_that_are_not_kept(make_session):
    session = make_session(max_cached_io=1)
    memory = torch.zeros(2)
    for tick in range(4):
        y = enter(session, "n", {"x": torch.randn(2)}, lambda x: {"y": x * 2})["y"]
        memory.copy_(y)
        if tick == 3:
            enter(session, "late", {"y": memory}, lambda y: {"z": y + 1})
    assert flows(session)[0] == {"n/y": ("late/y",)}


def test_an_output_of_the_former_tick_that_two_nodes_take(make_session):
    """Its own node has run again when the second one is entered."""
    session = make_session()
    last = torch.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            following = enter(session, "n", {"x": torch.randn(2), "last": last}, lambda x, h: {"y": x + h})["y"]
            enter(session, "m", {"z": torch.randn(2), "late": last.clone()}, lambda z, h: {"out": z * h})
            last = following
    assert flows(session) == ({}, {"n/y": ("m/late", "n/last")})


def test_outputs_that_change_places(make_session):
    """One object is another port's value at the next tick."""
    session = make_session()
    left, right = torch.zeros(2), torch.ones(2)
    for _ in range(3):
        x = torch.randn(2)
        made = enter(session, "n", {"x": x, "l": left, "r": right}, lambda x, a, b: {"l2": b.mul_(1), "r2": a.add_(x)})
        left, right = made["l2"], made["r2"]
    assert flows(session) == ({}, {"n/l2": ("n/l",), "n/r2": ("n/r",)})


def test_an_input_that_is_written_in_a_node_and_handed_on(make_session):
    session = make_session()
    y = enter(session, "n", {"x": torch.ones(2)}, lambda x: {"y": x * 2})["y"]
    enter(session, "m", {"y": y}, lambda y: {"out": y.add_(1).sum()})
    with pytest.warns(errors.WireLostWarning, match="from n/y"):
        enter(session, "k", {"y": y}, lambda y: {"z": y * 3})


COPIES = {
    "clone": lambda h: h.clone(),
    "detach": lambda h: h.detach(),
    "contiguous": lambda h: h.contiguous(),
    "cpu": lambda h: h.cpu(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "array": lambda h: h.detach().numpy(),
    "copied array": lambda h: h.detach().numpy().copy(),
    "array of an array": lambda h: np.array(h.detach().numpy()),
    "and back": lambda h: torch.from_numpy(h.detach().numpy().copy()),
    "deep array": lambda h: copy.deepcopy(h.detach().numpy()),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_keep_the_feedback(make_session, copied):
    session = make_session()
    hidden = torch.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            got = enter(session, "n", {"x": torch.ones(2), "h": hidden}, lambda x, h: {"next": x + torch.as_tensor(h)})
            hidden = copied(got["next"])
    assert flows(session) == ({}, {"n/next": ("n/h",)})


def test_memory_of_the_user_that_is_filled_at_every_tick(make_session):
    session = make_session()
    last = torch.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            actions = enter(session, "n", {"x": torch.randn(2), "last": last}, lambda x, h: {"actions": x - h})[
                "actions"
            ]
            last[:] = actions
    assert flows(session) == ({}, {"n/actions": ("n/last",)})


# --- sessions and entries --------------------------------------------------------------------------------------------


def test_what_a_former_session_gave_is_plain(make_session):
    first = make_session()
    got = enter(first, "n", {"x": torch.ones(2), "a": np.ones(2)}, lambda x, a: {"y": x * 2, "b": a * 2})
    part = got["b"][:1]
    first.stop()
    second = make_session()
    inputs = {"y": got["y"], "b": got["b"], "part": part}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enter(second, "m", inputs, lambda y, b, p: {"z": y + 1, "c": b + 1, "d": p + 1})
    assert second.nodes["m"].recordings[0].wires == {}
    assert flows(second) == ({}, {})


def test_the_users_own_collector_threshold_survives(make_session):
    before = gc.get_threshold()
    session = make_session()
    try:
        for own in ((321, 7, 7), (123, 4, 5)):
            x = torch.ones(2)
            session.input_tensors("n", {"x": x})
            gc.set_threshold(*own)
            session.output_tensors("n", {"y": x * 2})
            assert gc.get_threshold() == own
        session.stop()
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("inputs", "outputs", "difference"),
    [
        ({"x": torch.ones(3)}, None, r"input 'x' is float32\[3\] instead of float32\[2\]"),
        ({"x": torch.ones(2, dtype=torch.float64)}, None, r"input 'x' is float64\[2\]"),
        ({"x": torch.ones(2), "z": torch.ones(2)}, None, r"inputs \['x', 'z'\] instead of \['x'\]"),
        ({"x": torch.ones(2)}, lambda x: {"y": x[:1]}, r"output 'y' is float32\[1\] instead of float32\[2\]"),
        ({"x": torch.ones(2)}, lambda x: {"other": x}, r"outputs \['other'\] instead of \['y'\]"),
    ],
)
def test_entries_that_are_not_recorded_have_the_same_interface(make_session, inputs, outputs, difference):
    session = make_session(max_cached_io=1)

    def same(x, *_):
        return {"y": x * 2}

    entries = [({"x": torch.ones(2)}, same), ({"x": torch.ones(2)}, same), (inputs, outputs or same)]
    with pytest.raises(errors.SampleMismatchError, match=difference):
        for given, function in entries:
            enter(session, "n", given, function)
    assert session.nodes["n"].entries == 3


# --- state that was forgotten ----------------------------------------------------------------------------------------


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.plain = torch.zeros(2)

    def forward(self, x):
        self.mean.mul_(0.5).add_(x)
        return x - self.mean


def test_the_remedies_of_hidden_state_work(make_session):
    """As the warning says: annotate.module for buffers, state_tensors for anything else."""
    x, total, model = torch.ones(2), torch.zeros(2), Running()
    session = make_session()
    with pytest.warns(errors.HiddenStateWarning) as caught:
        enter(session, "n", {"x": x}, lambda x: {"y": model(x) + total.add_(x)})
    text = str(caught[0].message)
    assert "annotate.module('n', module)" in text
    assert "x_state = annotate.state_tensors('n', {'x_state': x_state})" in text  # x is an input
    assert "annotate.update_state('n', {'x_state': next})" in text
    session.stop()

    session = make_session()
    model, twin, total = Running(), Running(), torch.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            x = torch.randn(2)
            session.input_tensors("n", {"x": x})
            session.module("n", model, None)
            session.state_tensors("n", {"total": total})
            total.add_(x)
            session.update_state("n", {"total": total})
            session.output_tensors("n", {"y": model(x) + total})
    session.stop()
    recording = session.nodes["n"].recordings[0]
    assert [port.name for port in recording.graph.spec.inputs] == ["x", "mean", "total"]
    mean, total = torch.zeros(2), torch.zeros(2)
    for x in torch.randn(4, 2):
        y, mean, total = recording.graph.module()(x.clone(), mean.clone(), total.clone())
        twin.plain += x
        assert torch.equal(y, twin(x) + twin.plain)


def test_the_remedy_of_a_value_that_was_kept_works(make_session):
    session = make_session()
    hidden = torch.zeros(2)
    with pytest.raises(errors.StaleValueError, match=r"annotate.state_tensors\('n', {'x_state': x_state}\)"):
        for _ in range(2):
            x = torch.ones(2)
            session.input_tensors("n", {"x": x})
            hidden = hidden + x
            session.output_tensors("n", {"y": hidden * 2})


def test_a_value_that_was_kept_is_noticed_when_entries_are_no_longer_recorded(make_session):
    session = make_session(max_cached_io=1)
    hidden = torch.zeros(2)
    with pytest.raises(errors.StaleValueError):
        for _ in range(2):
            x = torch.ones(2)
            session.input_tensors("n", {"x": x})
            hidden = hidden + x
            session.output_tensors("n", {"y": hidden * 2})
