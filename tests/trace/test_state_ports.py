"""Declared state: ports, order, forms, and what is refused."""

import itertools
import re
import warnings

import numpy as np
import pytest
import torch

from leapp import annotate, errors
from leapp.trace.array_class import TracedNpArray


def ports(session, node="n"):
    spec = session.nodes[node].recordings[0].graph.spec
    return [port.name for port in spec.inputs], [port.name for port in spec.outputs]


def handed(session, name, tensors, call):
    made = getattr(session, call)(name, tensors)
    return [made.get(id(each), each) for each in tensors.values()]


def test_states_come_after_the_ordinary_ports_in_order_of_declaration(make_session):
    session = make_session()
    a, b, late, s, t = (torch.randn(2) for _ in range(5))
    session.input_tensors("n", {"a": a})
    session.state_tensors("n", {"s": s})
    session.input_tensors("n", {"b": b})
    session.state_tensors("n", {"t": t})
    session.input_tensors("n", {"late": late})
    session.update_state("n", {"t": t * b})
    session.update_state("n", {"s": s + a})
    session.output_tensors("n", {"y": s * late + t}, static_outputs={"k": torch.ones(1)})
    assert ports(session) == (["a", "b", "late", "s", "t"], ["y", "k", "s", "t"])
    assert session.nodes["n"].state == {"s": "state", "t": "state"}
    fresh = [torch.randn(2) for _ in range(5)]
    a, b, late, s, t = fresh
    y, k, next_s, next_t = session.nodes["n"].recordings[0].graph.module()(*fresh)
    assert torch.equal(y, s * late + t)
    assert torch.equal(next_s, s + a)
    assert torch.equal(next_t, t * b)
    assert torch.equal(k, torch.ones(1))


def test_a_state_that_is_never_updated_is_an_ordinary_input(make_session):
    session = make_session()
    x, s, gain = torch.randn(2), torch.randn(2), torch.randn(2)
    session.input_tensors("n", {"x": x})
    session.state_tensors("n", {"gain": gain, "s": s})
    session.update_state("n", {"s": s + x})
    with pytest.warns(errors.StateNotUpdatedWarning, match=r"state 'gain', declared at .*no next value") as said:
        session.output_tensors("n", {"y": x * gain})
    assert len(said) == 1
    assert ports(session) == (["x", "gain", "s"], ["y", "s"])
    assert session.nodes["n"].state == {"s": "state"}


def test_arrays_and_scalars_are_states(make_session):
    session = make_session()
    mean, count = np.zeros(3), np.int64(0)
    for tick in range(3):
        (x,) = handed(session, "n", {"x": np.arange(3.0) + tick}, "input_tensors")
        mean, count = handed(session, "n", {"mean": mean, "count": count}, "state_tensors")
        assert isinstance(mean, TracedNpArray)
        count = count + 1
        mean = mean + (x - mean) / count
        session.update_state("n", {"mean": mean, "count": count})
        session.output_tensors("n", {"y": x - mean})
    samples = [each.sample for each in session.nodes["n"].recordings]
    assert [int(each.inputs["count"]) for each in samples] == [0, 1, 2]
    for before, after in itertools.pairwise(samples):
        assert torch.equal(before.outputs["mean"], after.inputs["mean"])
    assert np.array_equal(mean, np.arange(3.0) + 1)


def test_the_object_that_was_named_is_read_when_the_node_closes(make_session):
    session = make_session()
    x, s = torch.randn(2), torch.randn(2)
    session.input_tensors("n", {"x": x})
    session.state_tensors("n", {"s": s})
    following = s + x
    session.update_state("n", {"s": following})
    following.mul_(2)
    session.output_tensors("n", {"y": x * 1})
    fresh = torch.randn(2), torch.randn(2)
    assert torch.equal(session.nodes["n"].recordings[0].graph.module()(*fresh)[1], (fresh[1] + fresh[0]) * 2)


def test_a_state_written_in_place(make_session):
    session = make_session()
    start = torch.randn(3, 2)
    stack = start.clone()
    for _ in range(2):
        x = torch.randn(2)
        session.input_tensors("n", {"x": x})
        session.state_tensors("n", {"stack": stack})
        stack[:-1] = stack[1:].clone()
        stack[-1] = x
        session.update_state("n", {"stack": stack})
        session.output_tensors("n", {"y": stack.sum(0)})
    entry = session.nodes["n"].recordings[0]
    assert torch.equal(entry.sample.inputs["stack"], start)
    session.stop()
    assert type(stack) is torch.Tensor


def test_entries_that_are_not_recorded_keep_to_the_rules_and_the_wires(make_session):
    session = make_session(max_cached_io=1)
    h = torch.zeros(2)
    for tick in range(3):
        x = torch.ones(2)
        session.input_tensors("n", {"x": x})
        session.state_tensors("n", {"h": h})
        if tick == 2:
            with pytest.raises(errors.UnknownStateError):
                session.update_state("n", {"g": h})
            with pytest.raises(errors.StateFormError):
                session.update_state("n", {"h": torch.zeros(3)})
        h = h + x
        session.update_state("n", {"h": h})
        session.output_tensors("n", {"y": x * h})
    session.input_tensors("reader", {"h": h})
    session.output_tensors("reader", {"z": h * 2})
    assert session.nodes["reader"].recordings[0].wires == {"h": ("n", "h")}
    assert torch.equal(h.detach(), torch.full((2,), 3.0))


RESETS = {
    "zero_": lambda h: h.zero_(),
    "fill_": lambda h: h.fill_(0.5),
    "copy_": lambda h: h.copy_(torch.ones(2)),
    "all": lambda h: h.__setitem__(slice(None), 0.5),
    "another tensor": lambda h: torch.ones(2),
}
CHANGES = {
    "computed": lambda h: h * 0.5,
    "in place": lambda h: h.mul_(1.0),
    "in part": lambda h: h.__setitem__(0, 0.0),
    "through NumPy": lambda h: h.detach().numpy().fill(7.0),
}


def over_three_ticks(session, between):
    h = torch.zeros(2)
    for _ in range(3):
        x = torch.ones(2)
        session.input_tensors("n", {"x": x})
        session.state_tensors("n", {"h": h})
        h = h + x
        session.update_state("n", {"h": h})
        session.output_tensors("n", {"y": h * 2})
        changed = between(h)
        h = h if changed is None else changed
    assert session.nodes["n"].state == {"h": "state"}


@pytest.mark.parametrize("reset", RESETS.values(), ids=RESETS)
def test_a_state_may_be_reset_between_ticks(make_session, reset):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        over_three_ticks(make_session(), reset)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_computed_of_a_state_between_ticks_is_noted(make_session, change):
    with pytest.warns(errors.WireLostWarning, match="input 'h' was computed outside every node from n/h"):
        over_three_ticks(make_session(), change)


@pytest.mark.parametrize("changed", [lambda h: h.__setitem__(slice(None), 0.0), lambda h: h.fill(1.0)])
def test_an_array_may_be_reset_between_ticks(make_session, changed):
    session = make_session()
    h = np.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tick in range(3):
            (x,) = handed(session, "n", {"x": np.ones(2)}, "input_tensors")
            (h,) = handed(session, "n", {"h": h}, "state_tensors")
            h = h + x
            session.update_state("n", {"h": h})
            session.output_tensors("n", {"y": h * 2})
            if tick < 2:
                changed(h)
    h[0] += 1.0
    with pytest.warns(errors.WireLostWarning):
        session.input_tensors("m", {"h": h})


def test_a_state_that_comes_by_way_of_another_node(make_session):
    """The wire that is declared would leave the other node out."""
    session = make_session()
    h = torch.zeros(2)
    with pytest.raises(errors.StateFedError, match="state 'h' was handed the output reset/kept of another node"):
        for _ in range(2):
            x, done = torch.ones(2), torch.zeros(2)
            session.input_tensors("n", {"x": x})
            session.state_tensors("n", {"h": h})
            h = h + x
            session.update_state("n", {"h": h})
            session.output_tensors("n", {"y": h * 2})
            session.input_tensors("reset", {"h": h, "done": done})
            h = torch.where(done > 0, 0.0, h)
            session.output_tensors("reset", {"kept": h})


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(make_session):
    session = make_session()
    x, h = torch.randn(2), torch.randn(2)
    session.input_tensors("n", {"x": x})
    session.state_tensors("n", {"h": h})
    return session, x, h


def test_another_shape_or_dtype(opened):
    session, _, h = opened
    with pytest.raises(
        errors.StateFormError,
        match=r"state 'h' is float32\[2\] \(declared at .*test_state_ports.py:\d+\), its next value at "
        r".*test_state_ports.py:\d+ is float32\[1, 2\]",
    ):
        session.update_state("n", {"h": h[None]})
    with pytest.raises(errors.StateFormError, match=r"is float64\[2\]"):
        session.update_state("n", {"h": h.double()})
    session.update_state("n", {"h": h + 1})


def test_updated_twice(opened):
    session, _, h = opened
    session.update_state("n", {"h": h + 1})
    with pytest.raises(errors.StateUpdatedTwiceError, match=r"state 'h' was updated twice .*:\d+ and at .*:\d+"):
        session.update_state("n", {"h": h + 2})


def test_an_unknown_name(opened):
    session, _, h = opened
    with pytest.raises(errors.UnknownStateError, match=r"state 'hidden' was updated at .*; declared: 'h'"):
        session.update_state("n", {"hidden": h + 1})


def test_before_the_inputs_and_after_the_outputs(opened):
    session, x, h = opened
    with pytest.raises(
        errors.StateOutsideNodeError, match=r"annotate.state_tensors\('m', ...\) was called at .*, but no node 'm'"
    ):
        session.state_tensors("m", {"h": torch.zeros(2)})
    following = h + 1
    with pytest.warns(errors.StateNotUpdatedWarning):
        session.output_tensors("n", {"y": x * h})
    with pytest.raises(errors.StateOutsideNodeError, match=r"annotate.update_state\('n'.*\n.*open nodes: none"):
        session.update_state("n", {"h": following})


def test_names_that_are_taken(opened):
    session, x, h = opened
    with pytest.raises(errors.StateNameError, match="state 'x' cannot have this name: an input has the same name"):
        session.state_tensors("n", {"x": torch.zeros(2)})
    with pytest.raises(errors.StateNameError, match="it was declared already at"):
        session.state_tensors("n", {"h": torch.zeros(2)})
    with pytest.raises(errors.StateNameError, match="it was declared as state at"):
        session.input_tensors("n", {"h": torch.zeros(2)})
    session.update_state("n", {"h": h + x})
    with pytest.raises(errors.StateNameError, match="an output has the same name"):
        session.output_tensors("n", {"h": h * 2})
    session.output_tensors("n", {"y": h * 2})


def test_what_is_no_tensor(opened):
    session, _, h = opened
    for thing, kind in ((0.0, "float"), ([h, h], "list"), ({}, "dict"), (None, "NoneType")):
        with pytest.raises(errors.StateKindError, match=re.escape(f"state 'c' is a {kind}, not a tensor")):
            session.state_tensors("n", {"c": thing})


def test_a_next_value_that_nothing_recorded_leads_to(opened):
    session, x, _ = opened
    session.update_state("n", {"h": torch.zeros(2)})
    with pytest.raises(errors.StateNotTracedError, match="the next value of state 'h' is a plain") as caught:
        session.output_tensors("n", {"y": x * 2})
    assert "static_outputs" not in str(caught.value)


@pytest.mark.parametrize("same", [torch.zeros_like, lambda h: h * 0 + 1])
def test_a_next_value_that_is_the_same_at_every_tick_is_recorded_as_the_error_says(opened, same):
    session, x, h = opened
    session.update_state("n", {"h": same(h)})
    session.output_tensors("n", {"y": x * 2})


def test_a_state_that_one_entry_updates_and_another_does_not(make_session):
    session = make_session()
    with pytest.raises(errors.SampleMismatchError, match=r"outputs \['y'\] instead of \['y', 'h'\]"):
        for tick in range(2):
            x, h = torch.randn(2), torch.randn(2)
            session.input_tensors("n", {"x": x})
            session.state_tensors("n", {"h": h})
            if tick == 0:
                session.update_state("n", {"h": h + 1})
            session.output_tensors("n", {"y": x * h})


def test_outside_a_session_the_very_objects_come_back():
    h, c = torch.zeros(2), np.zeros(2)
    assert annotate.state_tensors("n", {"h": h}) is h
    assert annotate.update_state("n", {"h": h}) is h
    got = annotate.state_tensors("n", {"h": h, "c": c})
    assert got[0] is h
    assert got[1] is c
    assert isinstance(annotate.update_state("n", {"h": h, "c": c}), tuple)


@pytest.mark.parametrize("same", [lambda x: x, lambda x: x.clone() if isinstance(x, torch.Tensor) else x.copy()])
@pytest.mark.parametrize("draw", [lambda: torch.randn(3), lambda: np.random.default_rng(0).random(3)])
def test_a_state_may_start_from_an_input(make_session, draw, same):
    session = make_session()
    x = draw()
    (traced,) = handed(session, "n", {"x": x}, "input_tensors")
    (state,) = handed(session, "n", {"mean": same(traced)}, "state_tensors")
    assert state is not traced
    following = state * 0.5 + traced
    session.update_state("n", {"mean": following})
    session.output_tensors("n", {"y": following * 2})
    recording = session.nodes["n"].recordings[0]
    assert recording.states.declared["mean"].start_input == "x"
    assert ports(session) == (["x", "mean"], ["y", "mean"])
    other, mean = torch.randn(3).double(), torch.randn(3).double()
    y, after = recording.graph.module()(other, mean)
    assert torch.equal(after, mean * 0.5 + other)
    assert torch.equal(y, after * 2)


@pytest.mark.parametrize("computed", [lambda x: x * 2, lambda x: x[:1].expand(3), lambda x: x.add_(1)])
def test_a_state_cannot_start_from_what_the_node_computed(make_session, computed):
    session = make_session()
    x = torch.arange(3.0)
    session.input_tensors("n", {"x": x})
    with pytest.raises(errors.StateStartError, match="state 'mean' starts from a value computed inside the node"):
        session.state_tensors("n", {"mean": computed(x)})
