"""Operations laid side by side: what came, went, or got other arguments, and nothing that only follows from it."""

from __future__ import annotations

from leapp.bundle._diff_graph import MAX_OPERATIONS, Graph, graph_findings, match_constants
from leapp.bundle.diff import Change, Step
from leapp.bundle.schema import Constant


def graph(*ops, inputs=("x",), output=None):
    """Operations ``(id, target, *arguments)``; ``%`` begins the name of a value, a constant has no arguments."""
    made = []
    for name, target, *arguments in ops:
        args = [value(each) for each in arguments]
        made.append(
            {
                "id": name,
                "op": "call_function" if arguments else "get_attr",
                "target": target,
                "args": args,
                "kwargs": {},
            }
        )
    return Graph(
        {
            "inputs": [{"id": each, "name": each} for each in inputs],
            "ops": made,
            "outputs": [{"name": "y", "value": value(output or f"%{made[-1]['id']}")}],
        },
        {each["id"]: f"net.py:{at}" for at, each in enumerate(made, 1)},
    )


def value(argument):
    if isinstance(argument, list):
        return [value(each) for each in argument]
    return {"ref": argument[1:]} if isinstance(argument, str) and argument.startswith("%") else argument


def findings(a, b, rotation=False, constants=None):
    return [*graph_findings("n", a, b, constants or {}, rotation=rotation)]


BASE = (("mul", "torch.mul", "%x", 2.0), ("add", "torch.add", "%mul", 1.0), ("tanh", "torch.tanh", "%add"))


def test_an_argument():
    (found,) = findings(graph(*BASE), graph(BASE[0], ("add", "torch.add", "%mul", 1.5), BASE[2]))
    assert (found.kind, found.part, found.change, found.step) == (
        "op-changed", "operation 2", Change.DIFFERS, Step.MINOR,
    )  # fmt: skip
    assert found.note == "torch.add: argument 2: 1.0 -> 1.5"
    assert (found.source, found.second_source) == ("net.py:2", "net.py:2")


def test_one_more_in_front_does_not_make_the_others_differ():
    changed = graph(
        ("mul", "torch.mul", "%x", 9.0), ("mul_1", "torch.mul", "%mul", 2.0), ("add", "torch.add", "%mul_1", 1.0),
        BASE[2],
    )  # fmt: skip
    (found,) = findings(graph(*BASE), changed)
    assert (found.kind, found.part, found.second) == ("op-added", "operation 1", "%mul = torch.mul(%x, 9.0)")
    assert found.second_source == "net.py:1"
    (gone,) = findings(changed, graph(*BASE))
    assert (gone.kind, gone.change, gone.source) == ("op-removed", Change.ONLY_FIRST, "net.py:1")


def test_one_in_the_place_of_another():
    (found,) = findings(graph(*BASE), graph(*BASE[:2], ("relu", "torch.relu", "%add")))
    assert (found.kind, found.first, found.second) == (
        "op-replaced", "%tanh = torch.tanh(%add)", "%relu = torch.relu(%add)",
    )  # fmt: skip
    assert found.note == "torch.tanh(%add) became torch.relu(%add)"


def test_another_value_is_seen_also_under_other_names():
    two = (("a", "torch.sin", "%x"), ("b", "torch.cos", "%x"), ("c", "torch.sub", "%a", "%b"))
    swapped = (*two[:2], ("c", "torch.sub", "%b", "%a"))
    (found,) = findings(graph(*two), graph(*swapped))
    assert found.note == "torch.sub: argument 1: %a -> %b; argument 2: %b -> %a"
    renamed = (("p", "torch.sin", "%x"), ("q", "torch.cos", "%x"), ("r", "torch.sub", "%p", "%q"))
    (found,) = findings(graph(*two), graph(*renamed))
    assert (found.kind, found.step) == ("graph-renamed", Step.PATCH)


def test_what_an_output_returns():
    (found,) = findings(graph(*BASE), graph(*BASE, output="%add"))
    assert (found.part, found.first, found.second) == ("what output 'y' returns", "%tanh", "%add")
    (found,) = findings(graph(*BASE), graph(*BASE, ("mul_1", "torch.mul", "%tanh", 0.5)))
    assert found.kind == "op-added"  # that it is returned follows


def test_a_list_in_another_order_is_another_convention_where_a_rotation_goes_in():
    a = graph(("take", "operator.getitem", "%x", [3, 0, 1, 2]))
    b = graph(("take", "operator.getitem", "%x", [0, 1, 2, 3]))
    (plain,) = findings(a, b)
    assert (plain.kind, plain.step) == ("op-changed", Step.MINOR)
    assert plain.note.endswith("the same members in another order")
    (rotation,) = findings(a, b, rotation=True)
    assert (rotation.kind, rotation.step) == ("rotation-convention", Step.MAJOR)


def test_a_sign_is_another_convention_where_a_rotation_goes_in():
    a, b = (graph(("mul", "torch.mul", "%x", sign)) for sign in (1.0, -1.0))
    (found,) = findings(a, b, rotation=True)
    assert found.kind == "rotation-convention"
    assert "the other sign" in found.note


def test_of_very_many_the_rest_is_counted():
    a, b = (graph(*((f"o{at}", "torch.add", "%x", at + base) for at in range(80))) for base in (0, 1000))
    found = findings(a, b)
    assert len(found) == MAX_OPERATIONS + 1
    assert found[-1].note == f"and {80 - MAX_OPERATIONS} more operations"


def test_a_graph_of_ten_thousand_operations_is_compared_at_once():
    ops = [(f"o{at}", "torch.add", f"%o{at - 1}" if at else "%x", at) for at in range(10_000)]
    changed = [*ops]
    changed[5000] = ("o5000", "torch.add", "%o4999", -1)
    (found,) = findings(graph(*ops), graph(*changed))
    assert found.part == "operation 5001"


# --- constants -----------------------------------------------------------------------------------------------------


def constant(name, digest, shape=(2,)):
    return Constant(name, "float32", shape, digest * 64)


def test_counted_constants_are_followed_when_one_comes_in_front():
    before = [constant("_tensor_constant0", "a"), constant("_tensor_constant1", "b"), constant("w", "c")]
    after = [constant(f"_tensor_constant{at}", digest) for at, digest in enumerate("9ab")] + [constant("w", "d")]
    assert match_constants(before, after) == {
        "_tensor_constant0": "_tensor_constant1", "_tensor_constant1": "_tensor_constant2", "w": "w",
    }  # fmt: skip


def test_as_many_counted_constants_are_the_same_ones():
    before = [constant("_tensor_constant0", "a"), constant("_tensor_constant1", "b")]
    after = [constant("_tensor_constant0", "c"), constant("_tensor_constant1", "b")]
    assert match_constants(before, after) == {name.name: name.name for name in before}


def test_a_weight_by_another_name_is_found_by_its_content():
    before, after = [constant("net.weight", "a")], [constant("model.net.weight", "a"), constant("b", "b")]
    assert match_constants(before, after) == {"net.weight": "model.net.weight"}
    assert match_constants(before, [constant("x", "a"), constant("y", "a")]) == {}


def test_a_constant_that_moved_is_no_other_operation():
    a = graph(("_tensor_constant0", "_tensor_constant0"), ("mul", "torch.mul", "%x", "%_tensor_constant0"))
    b = graph(("_tensor_constant1", "_tensor_constant1"), ("mul", "torch.mul", "%x", "%_tensor_constant1"))
    (found,) = findings(a, b, constants={"_tensor_constant0": "_tensor_constant1"})
    assert found.kind == "graph-renamed"
