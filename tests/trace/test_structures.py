"""Nestings as inputs and outputs: flattened into ports, handed back as the user's own."""

import collections
import dataclasses
import types
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import given as for_all
from hypothesis import strategies as st
from recorded import Recorded

from leapp import annotate, errors
from leapp.trace import current as sessions
from leapp.trace.array_class import TracedNpArray
from leapp.trace.tensor import TracedTensor


@pytest.fixture
def session(make_session):
    made = make_session()
    sessions.begin(made)
    yield made
    sessions._CURRENT.clear()


def ports(session, node="n"):
    spec = session.nodes[node].recordings[0].graph.spec
    return [port.name for port in spec.inputs], [port.name for port in spec.outputs]


class Frozen(Mapping):
    """A mapping that can only be built."""

    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)

    def __copy__(self):
        return self


class Store(MutableMapping):
    """A mapping with facts of its own, as TensorDict has."""

    def __init__(self, items, batch_size):
        self._items = dict(items)
        self.batch_size = batch_size

    def __getitem__(self, key):
        return self._items[key]

    def __setitem__(self, key, value):
        self._items[key] = value

    def __delitem__(self, key):
        del self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)

    def __copy__(self):
        return Store(self._items, self.batch_size)


class Items(list):
    def __init__(self, first, second):
        super().__init__([first, second])
        self.label = "kept"


class Pair(NamedTuple):
    a: object
    b: object = None


class Checked(Pair):
    """A named tuple whose constructor takes something else."""

    def __new__(cls, both):
        return super().__new__(cls, *both)


@dataclasses.dataclass
class Plain:
    a: object
    b: object
    mode: dataclasses.InitVar = "x"
    count: object = dataclasses.field(default=None, init=False)
    never_set: object = dataclasses.field(init=False)

    def __post_init__(self, mode):
        assert mode == "y"


@dataclasses.dataclass(frozen=True)
class Rigid:
    a: object
    b: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    a: object
    b: object = None


class Output(collections.OrderedDict):
    """As models of transformers return: items are attributes too."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def with_default(a, b):
    made = collections.defaultdict(list)
    made.update(a=a, b=b)
    return made


NESTINGS = {
    "dict": lambda a, b: {"a": a, "b": b},
    "ordered": lambda a, b: collections.OrderedDict(a=a, b=b),
    "default": with_default,
    "output": lambda a, b: Output(a=a, b=b),
    "proxy": lambda a, b: types.MappingProxyType({"a": a, "b": b}),
    "built": lambda a, b: Frozen({"a": a, "b": b}),
    "store": lambda a, b: Store({"a": a, "b": b}, 3),
    "named": lambda a, b: Pair(a, b),
    "checked": lambda a, b: Checked((a, b)),
    "plain": lambda a, b: Plain(a, b, "y"),
    "frozen": lambda a, b: Rigid(a, b),
    "slots": lambda a, b: Slots(a, b),
    "list": lambda a, b: [a, b],
    "own list": lambda a, b: Items(a, b),
    "tuple": lambda a, b: (a, b),
    "deep": lambda a, b: {"a": [(Rigid(Slots({"x": a})),)], "b": b},
}


def values(thing, made=None):
    """All leaves of a nesting, in order."""
    if isinstance(thing, Mapping):
        items = list(thing.values())
    elif isinstance(thing, (list, tuple)):
        items = list(thing)
    elif dataclasses.is_dataclass(thing):
        items = [getattr(thing, each.name) for each in dataclasses.fields(thing) if hasattr(thing, each.name)]
    else:
        return [] if thing is None else [thing]
    return [leaf for item in items for leaf in values(item)]


@pytest.mark.parametrize("build", NESTINGS.values(), ids=NESTINGS)
def test_tensors_in_a_nesting_leave_it_the_very_object(session, build):
    a, b = torch.randn(3), torch.randn(3)
    given = build(a, b)
    assert annotate.input_tensors("n", {"s": given}) is given
    assert values(given) == [a, b] or all(x is y for x, y in zip(values(given), (a, b), strict=True))
    assert type(a) is TracedTensor
    result = build(a * 2 + b, b - 1)
    returned = annotate.output_tensors("n", {"r": result})
    assert returned is result
    session.stop()
    inputs, outputs = ports(session)
    assert len(inputs) == len(outputs) == 2
    assert inputs[0].startswith("s_")
    fresh = torch.randn(3), torch.randn(3)
    got = Recorded(session.nodes["n"].recordings[0].graph, session, None)(*fresh)
    assert torch.equal(got[0], fresh[0] * 2 + fresh[1])
    assert torch.equal(got[1], fresh[1] - 1)


@pytest.mark.parametrize("build", NESTINGS.values(), ids=NESTINGS)
def test_arrays_in_a_nesting_come_back_in_one_like_it(session, build):
    a, b = np.arange(3.0), np.ones(3)
    given = build(a, b)
    back = annotate.input_tensors("n", {"s": given})
    assert type(back) is type(given)
    assert all(x is y for x, y in zip(values(given), (a, b), strict=True))
    c, d = values(back)
    assert type(c) is type(d) is TracedNpArray
    for name in ("batch_size", "label", "mode", "default_factory"):
        assert getattr(back, name, None) == getattr(given, name, None)
    if isinstance(given, Output):
        assert back.a is c
    result = build(c * 2 + d, d - 1)
    assert annotate.output_tensors("n", {"r": result}) is result
    session.stop()
    fresh = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    got = Recorded(session.nodes["n"].recordings[0].graph, session, None)(*fresh)
    assert torch.equal(got[0], fresh[0] * 2 + fresh[1])


@pytest.mark.parametrize("build", NESTINGS.values(), ids=NESTINGS)
def test_outside_a_session_it_is_the_very_object(build):
    given = build(np.ones(2), torch.ones(2))
    assert annotate.input_tensors("n", {"s": given}) is given
    assert annotate.output_tensors("n", {"s": given}) is given


def test_names_of_nested_ports(session):
    x = [torch.randn(1) for _ in range(7)]
    given = {
        "s": {"p": x[0], "q": [x[1], (x[2], Pair(x[3], Rigid(x[4])))]},
        "t": torch.max(x[5].reshape(1, 1), dim=0)[:2],
        7: {0: x[6]},
    }
    annotate.input_tensors("n", given)
    annotate.output_tensors("n", {"sum": sum(x[1:5], x[0]) + given["t"][0] + given["t"][1] + x[6]})
    session.stop()
    assert ports(session)[0] == ["s_p", "s_q_0", "s_q_1_0", "s_q_1_1_a", "s_q_1_1_b_a", "t_0", "t_1", "7_0"]


def test_none_and_empty_nestings_have_no_port(session):
    x = torch.randn(2)
    given = {"x": x, "missing": None, "pair": (None, [], {}), "state": Rigid(None)}
    assert annotate.input_tensors("n", {"s": given, "nothing": {}}) == (given, {})
    out = {"y": x * 2, "hidden": None, "parts": [None, (x + 1,)]}
    assert annotate.output_tensors("n", {"r": out, "none": []}) == (out, [])
    session.stop()
    assert ports(session) == (["s_x"], ["r_y", "r_parts_1_0"])


@pytest.mark.parametrize("value", [None, 1.0, 3, True, "text", {1}, object()], ids=lambda value: type(value).__name__)
def test_what_is_no_tensor_is_refused_by_name(session, value):
    with pytest.raises(errors.NotATensorError, match="Node 'n': input 'x' is a"):
        annotate.input_tensors("n", {"x": value})
    if value is None:
        return
    with pytest.raises(errors.NotATensorError, match="Node 'n': input 's_gains_1' is a"):
        annotate.input_tensors("n", {"s": {"gains": [torch.randn(2), value]}})
    x = torch.randn(2)
    annotate.input_tensors("n", {"x": x})
    with pytest.raises(errors.NotATensorError, match="Node 'n': output 'r_gains' is a"):
        annotate.output_tensors("n", {"y": x * 2, "r": {"gains": value}})
    annotate.output_tensors("n", {"y": x * 2})


def test_a_nesting_that_holds_itself(session):
    given = {"x": torch.randn(2)}
    given["me"] = [given]
    with pytest.raises(errors.NestingError, match="input 's_me_0' of node 'n': a dict cannot hold .* holds itself"):
        annotate.input_tensors("n", {"s": given})


def test_a_mapping_that_makes_its_values_anew(session):
    class Lazy(Frozen):
        def __getitem__(self, key):
            return torch.as_tensor(self._items[key])

    with pytest.raises(errors.NestingError, match="'s' of node 'n': a .*Lazy cannot hold .* another object each time"):
        annotate.input_tensors("n", {"s": Lazy({"a": [1.0, 2.0]})})
    assert not session.nodes


def test_a_mapping_that_cannot_be_built_with_arrays(session):
    class Stubborn(Frozen):
        def __init__(self, a, b):
            super().__init__({"a": a, "b": b})

    with pytest.raises(errors.NestingError, match="Stubborn cannot hold traced values: it can be neither copied nor"):
        annotate.input_tensors("n", {"s": Stubborn(np.ones(2), np.ones(2))})


def test_a_module_is_no_nesting(session):
    @dataclasses.dataclass(eq=False)
    class Gain(torch.nn.Module):
        factor: torch.Tensor

        def __post_init__(self):
            super().__init__()

    for module in (Gain(torch.ones(2)), torch.nn.ModuleDict()):
        with pytest.raises(errors.NotATensorError, match="input 'm' is a .*(Gain|ModuleDict)"):
            annotate.input_tensors("n", {"m": module})


def test_static_outputs_are_nested_too_and_share_no_name(session):
    x = torch.randn(2)
    gains = {"kp": torch.tensor([1.0, 2.0]), "kd": np.array([0.5], np.float32)}
    annotate.input_tensors("n", {"x": x})
    y = x * 2
    with pytest.raises(errors.PortCollisionError, match="both flatten to the output port 'y'"):
        annotate.output_tensors("n", {"y": y}, static_outputs={"y": torch.zeros(2)})
    assert annotate.output_tensors("n", {"y": y}, static_outputs={"gains": gains}) is y
    session.stop()
    assert ports(session) == (["x"], ["y", "gains_kp", "gains_kd"])
    got = Recorded(session.nodes["n"].recordings[0].graph, session, None)(torch.randn(2))
    assert torch.equal(got[1], gains["kp"])
    assert torch.equal(got[2], torch.tensor([0.5]))
    assert type(gains["kp"]) is torch.Tensor


# --- any nesting ---------------------------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.builds(lambda n: torch.arange(float(n)), st.integers(1, 3)),
    st.builds(lambda n: np.arange(float(n)), st.integers(1, 3)),
    st.builds(lambda n: np.float32(n), st.integers(0, 3)),
    st.none(),
)


def _containers(inner):
    return st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Pair, inner, inner),
        st.builds(Rigid, inner, inner),
        st.builds(Slots, inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(collections.OrderedDict),
    )


NESTING = st.recursive(LEAVES, _containers, max_leaves=6)


def doubled(thing):
    """The same nesting of other values, as a user computes it."""
    if thing is None:
        return None
    if isinstance(thing, Mapping):
        return type(thing)((key, doubled(item)) for key, item in thing.items())
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return type(thing)(*map(doubled, thing))
    if isinstance(thing, (list, tuple)):
        return type(thing)(map(doubled, thing))
    if dataclasses.is_dataclass(thing):
        return type(thing)(doubled(thing.a), doubled(thing.b))
    return thing * 2


def shape(thing):
    """A nesting as plain values and the classes around them."""
    if thing is None:
        return None
    if isinstance(thing, Mapping):
        return type(thing), [(key, shape(item)) for key, item in thing.items()]
    if isinstance(thing, (list, tuple)):
        return type(thing), [shape(item) for item in thing]
    if dataclasses.is_dataclass(thing):
        return type(thing), shape(thing.a), shape(thing.b)
    return np.asarray(thing.detach() if isinstance(thing, torch.Tensor) else thing).tolist()


@for_all(NESTING)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_nesting_goes_in_and_out(make_session, given):
    leaves = values(given)
    before, expected = shape(given), shape(doubled(given))
    session = make_session()
    back = annotate_in(session, given)
    if all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        assert back is given
    result = doubled(back)
    made = session.output_tensors("n", {"r": result} if leaves else {})
    assert not made
    session.stop()
    assert shape(result) == expected
    assert shape(back) == shape(given) == before
    spec = session.nodes["n"].recordings[0].graph.spec
    assert [port.name.removeprefix("r") for port in spec.outputs] == [
        port.name.removeprefix("s") for port in spec.inputs
    ]
    assert [port.spec.shape for port in spec.inputs] == [tuple(leaf.shape) for leaf in leaves]


def annotate_in(session, given):
    """What annotate.input_tensors does, in a session of the test's own."""
    from leapp.trace._tree import handed_back

    tensors = {"s": given} if values(given) or given is not None else {}
    made = session.input_tensors("n", tensors)
    return handed_back(tensors, made) if tensors else None


@for_all(NESTING)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_nesting_is_a_parameter_and_a_result(make_session, given):
    if not values(given):
        return
    expected = shape(doubled(given))
    session = make_session()
    sessions.begin(session)
    try:
        result = annotate.method("n")(doubled)(given)
    finally:
        sessions._CURRENT.clear()
    assert shape(result) == expected
