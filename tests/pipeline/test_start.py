# ruff: noqa: E501 - an expected line is one string
"""How state starts: what two sessions show, what a manifest may declare, and the errors that say so by name."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from leapp._spec import NodeSpec, Port, Start, StartKind, TensorSpec
from leapp.errors import ResetPortError, StartNameError, StartPortError
from leapp.pipeline import start
from leapp.pipeline.start import Seen, StartRules, seen
from leapp.pipeline.wiring import NodeWires, final_names, wire

THREE, FOUR = TensorSpec("float32", (3,)), TensorSpec("float32", (4,))
ZEROS, CONSTANT = Start(StartKind.ZEROS), Start(StartKind.CONSTANT)


def copy_of(port):
    return Start(StartKind.FIRST_INPUT, port)


def value(data=b"\1" * 12, shape=(3,), dtype="float32"):
    return SimpleNamespace(dtype=dtype, shape=shape, data=data)


NIL, ONE, TWO = value(bytes(12)), value(), value(b"\2" * 12)


# --- what sessions show ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"h": NIL, "a": ONE}, {"h": NIL, "a": TWO}, ZEROS),
        ({"h": ONE, "a": TWO}, {"h": ONE, "a": NIL}, CONSTANT),
        ({"h": ONE, "a": ONE}, {"h": TWO, "a": TWO}, copy_of("a")),
        # A start of zero in one run only says nothing; neither does one input that was zero as well.
        ({"h": NIL, "a": NIL}, {"h": ONE, "a": ONE}, copy_of("a")),
        ({"h": NIL, "a": ONE}, {"h": ONE, "a": ONE}, None),
        ({"h": ONE, "a": ONE}, {"h": TWO, "a": ONE}, None),
        # Fixed, and equal to an input that happens to be fixed as well.
        ({"h": ONE, "a": ONE}, {"h": ONE, "a": ONE}, CONSTANT),
        # Two inputs that were equal in both runs.
        ({"h": ONE, "a": ONE, "b": ONE}, {"h": TWO, "a": TWO, "b": TWO}, None),
        # One of two equal inputs moved elsewhere.
        ({"h": ONE, "a": ONE, "b": ONE}, {"h": TWO, "a": TWO, "b": NIL}, copy_of("a")),
        # Minus zero is not zero.
        ({"h": value(b"\0\0\0\x80" * 3), "a": ONE}, {"h": value(b"\0\0\0\x80" * 3), "a": TWO}, CONSTANT),
        # Equal bytes of another kind are no copy.
        ({"h": ONE, "a": value(dtype="int32")}, {"h": TWO, "a": value(b"\2" * 12, dtype="int32")}, None),
        ({"h": value(b"", (0,)), "a": ONE}, {"h": value(b"", (0,)), "a": TWO}, ZEROS),
    ],
)
def test_two_sessions_tell(first, second, expected):
    others = [name for name in first if name != "h"]
    assert seen("h", others, [first, second]).start() == expected


def test_further_sessions_settle_what_two_left_open():
    first = {"h": ONE, "a": ONE, "b": ONE}
    shown = [
        seen("h", ["a", "b"], [first, {"h": TWO, "a": TWO, "b": TWO}]),
        seen("h", ["a", "b"], [first, {"h": NIL, "a": NIL, "b": TWO}]),
    ]
    assert [each.start() for each in shown] == [None, copy_of("a")]
    assert shown[0].together(shown[1]).start() == copy_of("a")
    assert shown[1].together(shown[0]) == Seen(zero=False, same=False, like=("a",))


# --- a pipeline ------------------------------------------------------------------------------------------------------


def ports(*names, form=THREE):
    return tuple(Port(name, form) for name in names)


def pipeline(*, exclusive=True):
    """``a`` has the state ``h`` (``h_in`` in files where names are exclusive), and takes ``m`` back from ``b``."""
    a = NodeSpec("a", (*ports("x", "h", "m", "g"), *ports("wide", form=FOUR)), ports("y", "h", "g_next"))
    b = NodeSpec("b", ports("y", "u"), ports("m", "v"))
    later = {"h": ("a", "h"), "m": ("b", "m"), "g": ("a", "g_next")}
    wires = [
        NodeWires(a, ({}, later), exclusive),
        NodeWires(b, ({"y": ("a", "y")}, {"y": ("a", "y")}), exclusive),
    ]
    return wire("p", wires), {each.spec.name: final_names(each) for each in wires}


def first(**given):
    values = {"x": ONE, "h_in": TWO, "m": NIL, "g": ONE, "wide": value(b"\1" * 16, (4,))}
    return {"a": {**values, **given}}


def declared(node="a", **states):
    return StartRules(
        {node: {name: Start.parse(text) for name, text in states.items()}}, where=lambda *key: ".".join(key)
    )


def test_a_plain_script_keeps_what_it_was_traced_with():
    found = start.decide(StartRules(), *pipeline(), first())
    assert {port: each.start for port, each in found.items()} == {"a/g": CONSTANT, "a/h_in": CONSTANT, "a/m": ZEROS}
    assert {each.how for each in found.values()} == {"traced"}
    assert start.marked(pipeline()[0], found) == pipeline()[0]


def test_a_build_takes_an_equal_input_for_the_source():
    spec, names = pipeline()
    found = start.decide(StartRules(guess=True), spec, names, first())
    assert (found["a/g"].start, found["a/g"].how) == (copy_of("x"), "told")
    assert "'x', whose value it had" in found["a/g"].note
    assert found["a/h_in"].start == CONSTANT
    marked = start.marked(spec, found)
    assert [port.semantics for port in marked.nodes[0].inputs] == [{}, {}, {}, {"start": "first-input:x"}, {}]
    assert marked.nodes[1] == spec.nodes[1]


def test_the_input_that_the_script_handed_in_goes_before_what_sessions_show_and_after_the_manifest():
    handed_in = {"a/g": "x", "a/h_in": "x", "a/m": "wide"}  # the last one has another form
    rules = StartRules({"a": {"h": ZEROS}}, told={"a/g": CONSTANT}, scripted=handed_in)
    found = start.decide(rules, *pipeline(), first())
    assert (found["a/g"].start, found["a/g"].how) == (copy_of("x"), "scripted")
    assert (found["a/h_in"].start, found["a/h_in"].how) == (ZEROS, "declared")
    assert found["a/m"].start == CONSTANT


def test_what_two_sessions_told_goes_before_a_guess_and_after_the_manifest():
    rules = StartRules({"a": {"h": ZEROS}}, told={"a/g": CONSTANT, "a/h_in": copy_of("x")}, guess=True)
    found = start.decide(rules, *pipeline(), first())
    assert found["a/g"].start == CONSTANT
    assert found["a/h_in"].start == ZEROS
    assert (
        found["a/h_in"].note
        == "Input 'h_in' of node 'a' starts with zeros, as declared; it was traced with other values"
    )


@pytest.mark.parametrize("name", ["h", "h_in"])
def test_recorded_and_final_names_both_count(name):
    found = start.decide(declared(**{name: "first-input:x"}), *pipeline(), first())
    assert found["a/h_in"].start == copy_of("x")
    assert found["a/h_in"].note.endswith("as declared; it was traced with other values")
    assert start.decide(declared(h="first-input:x"), *pipeline(), first(h_in=ONE))["a/h_in"].note == ""


@pytest.mark.parametrize(
    ("states", "error", "text"),
    [
        ({"hh": "zeros"}, StartNameError, "a.state.hh: node 'a' has no state or feedback input 'hh'.\nDid you mean 'h'? It has: h, m, g."),
        ({"x": "zeros"}, StartNameError, "input 'x'; it is an input that no output feeds back, and needs no start.\nIt has: h, m, g."),
        ({"h": "zeros", "h_in": "zeros"}, StartNameError, "a.state.h_in: node 'a' has no state or feedback input 'h_in'; it is 'h', which has"),
        ({"h": "first-input:q"}, StartPortError, "a.state.h: 'h' of node 'a' cannot start as a copy of 'q': the node has no such input.\nIt can start as a copy of: x."),
        ({"h": "first-input:m"}, StartPortError, "copy of 'm': it is fed back itself, and has no value then."),
        ({"h": "first-input:h"}, StartPortError, "copy of 'h': it is fed back itself"),
        ({"h": "first-input:wide"}, StartPortError, "copy of 'wide': it is float32[4], and the state is float32[3]."),
    ],
)  # fmt: skip
def test_declarations_that_cannot_be(states, error, text):
    with pytest.raises(error) as caught:
        start.decide(declared(**states), *pipeline(), first())
    assert text in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_node_without_state_says_so():
    with pytest.raises(StartNameError, match=r"It has none: declare one with annotate.state_tensors\(\)"):
        start.decide(declared("b", u="zeros"), *pipeline(), first())


def test_a_state_that_was_never_updated_is_said_to_be_declared():
    rules = replace(declared("b", u="zeros"), not_updated={"b": ("u",)})
    with pytest.raises(StartNameError) as caught:
        start.decide(rules, *pipeline(), first())
    assert (
        "'u'; it was declared with annotate.state_tensors() and never updated.\nCall annotate.update_state('b', {'u'"
        in (str(caught.value))
    )
    assert "It has none" not in str(caught.value)


def test_what_a_runtime_file_says_is_told_again():
    contract = {
        "models": {"a": {"inputs": [{"name": "x"}, {"name": "h"}, {"name": "g", "start": "first-input:x"}]}},
        "pipeline": {"feedback_flow": {"a/h": ["a/h"], "b/m": ["a/g"]}},
    }
    assert start.recorded_starts(contract) == {"a/h": "constant", "a/g": "first-input:x"}


# --- reset -----------------------------------------------------------------------------------------------------------


def test_a_reset_input_sets_the_nodes_own_state():
    spec, names = pipeline()
    assert start.check_reset(spec, names["a"], "a", "fresh", "here", brought=False) == ("h_in", "g")
    wider = start.with_input(spec, "a", Port("fresh", TensorSpec("bool", ())))
    assert wider.inputs == {"a": ("x", "wide", "fresh"), "b": ("u",)}
    assert [port.name for port in wider.nodes[0].inputs][-1] == "fresh"


@pytest.mark.parametrize(
    ("node", "port", "brought", "text"),
    [
        ("a", "h", False, "Node 'a' cannot have the reset input 'h' (here): a port of the node has that name."),
        ("a", "h_in", False, "a port of the node has that name"),
        ("a", "y", False, "a port of the node has that name"),
        ("b", "fresh", False, "it has no state of its own."),
        ("a", "fresh", True, "a model that is brought along is not rewritten"),
    ],
)
def test_nodes_that_cannot_have_one(node, port, brought, text):
    spec, names = pipeline()
    with pytest.raises(ResetPortError) as caught:
        start.check_reset(spec, names[node], node, port, "here", brought=brought)
    assert text in str(caught.value)


def test_state_of_another_node_is_not_reset():
    one = NodeWires(NodeSpec("a", ports("x", "m"), ports("y")), ({}, {"m": ("b", "m")}))
    two = NodeWires(NodeSpec("b", ports("y"), ports("m")), ({"y": ("a", "y")},))
    with pytest.raises(ResetPortError, match="no state of its own; m is fed by another node"):
        start.check_reset(wire("p", [one, two]), final_names(one), "a", "fresh", "here", brought=False)


def test_the_manifest_wins_over_the_script():
    rules = StartRules(resets={"a": "fresh"}, where=lambda *key: ".".join(key))
    assert rules.reset_of("a", {"reset_port": "other"}) == ("fresh", "nodes.a.reset")
    assert rules.reset_of("b", {"reset_port": "other"}) == ("other", 'backend_params["reset_port"]')
    assert rules.reset_of("b", {}) is None


# --- what people read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "sources", "values"),
    [
        (Seen(zero=False, same=False), ("x", "y"), ["zeros", "constant", "first-input:x", "first-input:y"]),
        (Seen(zero=False, same=False, like=("x", "z")), ("x", "y", "z"), ["zeros", "constant", "first-input:x", "first-input:z"]),
        (Seen(zero=False, same=False), (), ["zeros", "constant", "first-input:PORT"]),
    ],
)  # fmt: skip
def test_the_remedies_can_be_pasted(shown, sources, values):
    text = start.unsettled("a.b", "last q", shown, sources, 0.25)
    assert text.startswith("node 'a.b': 'last q' starts with another value in each run, largest difference 0.25")
    table, *lines = (line.strip() for line in text.splitlines()[1:])
    read = [tomllib.loads(f"{table}\n{line}\n")["nodes"]["a.b"]["state"]["last q"] for line in lines]
    assert read == values


# --- all runs together -----------------------------------------------------------------------------------------------


def shown(port, *, zero=False, same=False, like=(), largest=0.5, declared=False):
    one = start.Shown(port, port.partition("/")[2], Seen(zero, same, like), ("x", "y"), largest, declared)
    assert start.Shown.of(json.loads(json.dumps(one.as_json()))) == one
    return one


def test_one_run_in_which_it_moved_is_enough():
    starts, texts = start.settled(
        [
            [shown("a/h", zero=True, same=True), shown("a/k", same=True, like=("x",)), shown("b/m", same=True)],
            [shown("a/h", same=False, like=()), shown("a/k", like=("x", "y")), shown("b/m", same=True)],
        ]
    )
    assert starts == {"a/k": copy_of("x"), "b/m": CONSTANT}
    (text,) = texts
    assert text.startswith("node 'a': 'h' starts with another value in each run, largest difference 0.5;")


def test_the_largest_difference_of_all_runs_is_named_where_there_is_a_number():
    runs = [[shown("a/h", largest=0.5)], [shown("a/h", largest=3.0)], [shown("a/h", largest=1.0)]]
    assert "largest difference 3;" in start.settled(runs)[1][0]
    assert "largest" not in start.settled([*runs, [shown("a/h", largest=None)]])[1][0]


def test_what_is_declared_needs_no_run():
    assert start.settled([[shown("a/h", declared=True)]]) == ({}, [])
    assert start.settled([]) == ({}, [])


def test_a_bundle_is_made_again_only_where_a_copy_is_or_was_one():
    contract = {
        "models": {"a": {"inputs": [{"name": "x"}, {"name": "h"}, {"name": "g", "start": "first-input:x"}]}},
        "pipeline": {"feedback_flow": {"a/h": ["a/h"], "b/m": ["a/g"]}},
    }
    assert start.other_starts(contract, {"a/h": ZEROS, "a/g": copy_of("x")}) is None
    assert start.other_starts(contract, {"a/h": CONSTANT}) is None
    assert start.other_starts(contract, {"a/h": copy_of("x")}) == {"a/h": "first-input:x", "a/g": "first-input:x"}
    assert start.other_starts(contract, {"a/g": CONSTANT}) == {"a/h": "constant", "a/g": "constant"}
