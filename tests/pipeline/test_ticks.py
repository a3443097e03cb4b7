"""Which entries of a traced run make a tick."""

import json

import pytest

from leapp.errors import BundleFormatError
from leapp.pipeline.ticks import TracedTicks, rounds


def entered(text):
    """``"a0 b0 a-"``: node and entry, ``-`` for one that was not recorded."""
    return [(each[0], None if each[1:] == "-" else int(each[1:])) for each in text.split()]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("a0 b0 a1 b1", ["a0 b0", "a1 b1"]),
        ("a0 b0 b1 b2 a1 b3", ["a0 b0", "b1", "b2", "a1 b3"]),
        ("a0 a1 b0 a2 b1", ["a0", "a1 b0", "a2 b1"]),
        ("a0 b0 b1 a1 b2", ["a0 b0", "b1", "a1 b2"]),
        ("b0 a0", ["b0", "a0"]),
        ("a0 b0 c0 a1 c1 b1 c2", ["a0 b0 c0", "a1 c1", "b1 c2"]),
        ("a0 b0 a- b- c0", ["a0 b0", "a- b- c0"]),
        ("a0 x0 b0", ["a0 b0"]),
        ("", []),
    ],
)
def test_a_pass_through_the_nodes_is_a_tick(order, expected):
    assert rounds(entered(order), ["a", "b", "c"]) == tuple(dict(entered(each)) for each in expected)


def test_ticks_travel_as_json():
    ticks = TracedTicks(
        ({"a": 0, "b": 0}, {"a": 1, "b": None}), {"a": [{}, {"x": "b/y"}], "b": [{}]}, frozenset({"a/h"})
    )
    again = TracedTicks.from_json(json.loads(json.dumps(ticks.as_json())), "ticks.json")
    assert again == ticks
    assert (again.carried("a", 1, "x"), again.carried("a", 0, "x"), again.carried("b", 7, "x")) == ("b/y", None, None)


def test_what_is_no_record_of_ticks_is_refused():
    with pytest.raises(BundleFormatError, match="ticks of a traced run"):
        TracedTicks.from_json({"rounds": [3], "wires": {}, "declared_starts": []}, "ticks.json")


def test_samples_alone_give_as_many_ticks_as_every_node_has():
    ticks = TracedTicks.of_samples({"a": 3, "b": 2})
    assert (ticks.rounds, ticks.known) == (({"a": 0, "b": 0}, {"a": 1, "b": 1}), False)
