"""annotate.method: what the parameters and the returned values of a function become."""

import enum
import functools
import inspect
import threading
import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from recorded import Recorded

from leapp import annotate, errors
from leapp.trace import current as sessions
from leapp.trace._tree import Twins

GAIN = torch.tensor([2.0, 3.0])


@pytest.fixture
def session(make_session):
    made = make_session(max_cached_io=3)
    sessions.begin(made)
    yield made
    sessions._CURRENT.clear()


def ports(session, node):
    spec = session.nodes[node].recordings[0].graph.spec
    return [port.name for port in spec.inputs], [port.name for port in spec.outputs]


def replayed(session, node, *inputs):
    """The node's recording on other inputs."""
    return Recorded(session.nodes[node].recordings[0].graph, session, None)(*inputs)


def test_a_function_is_a_node(session):
    @annotate.method
    def scaled(x, *, offset):
        action = x * GAIN + offset
        return action

    x, offset = torch.randn(2), torch.randn(2)
    assert type(scaled(x, offset=offset)) is not torch.Tensor
    session.stop()
    assert ports(session, "scaled") == (["x", "offset"], ["action"])
    fresh = torch.randn(2), torch.randn(2)
    assert torch.equal(replayed(session, "scaled", *fresh), fresh[0] * GAIN + fresh[1])


def test_outside_a_session_it_is_the_function():
    calls = []

    @annotate.method(node_name="n", export_with="no such format")
    def doubled(x: torch.Tensor, times: int = 2) -> torch.Tensor:
        """Says what it does."""
        calls.append(x)
        return x

    x = torch.randn(2)
    assert doubled(x) is x is calls[0]
    assert doubled.__name__ == "doubled"
    assert doubled.__doc__ == "Says what it does."
    assert str(inspect.signature(doubled)) == "(x: torch.Tensor, times: int = 2) -> torch.Tensor"
    with pytest.raises(TypeError, match=r"doubled\(\) missing 1 required positional argument: 'x'"):
        doubled()


def test_a_wrong_call_is_pythons_error_inside_a_session_too(session):
    @annotate.method
    def doubled(x):
        return x * 2

    with pytest.raises(TypeError, match=r"doubled\(\) got an unexpected keyword argument 'z'"):
        doubled(torch.randn(2), z=1)
    assert not session.nodes


class Policy:
    def __init__(self, gain):
        self.gain = torch.tensor(gain)

    @annotate.method("policy")
    def act(self, obs, command=None):
        y = obs * self.gain
        if command is not None:
            y = y + command
        return y

    @annotate.method
    @classmethod
    def made(cls, x):
        return x + 1

    @classmethod
    @annotate.method
    def made_too(cls, x):
        return x + 1

    @annotate.method
    @staticmethod
    def free(x):
        return x - 1

    @staticmethod
    @annotate.method
    def free_too(x):
        return x - 1


class Inherited(Policy):
    def act(self, obs, command=None):
        return super().act(obs, command)


@pytest.mark.parametrize("kind", [Policy, Inherited])
def test_methods_leave_their_object_out(session, kind):
    policy = kind(3.0)
    policy.act(torch.randn(2), torch.randn(2))
    for each in (policy.made, kind.made_too, policy.free, kind.free_too):
        assert each(torch.zeros(2)).abs().sum() == 2
    session.stop()
    assert ports(session, "policy") == (["obs", "command"], ["y"])
    for name in ("made", "made_too", "free", "free_too"):
        assert ports(session, name) == (["x"], ["out0"])
    fresh = torch.randn(2), torch.randn(2)
    assert torch.equal(replayed(session, "policy", *fresh), fresh[0] * 3.0 + fresh[1])


@dataclass
class State:
    position: torch.Tensor
    velocity: torch.Tensor

    @annotate.method
    def energy(self, mass):
        e = mass * (self.velocity**2).sum()
        return e

    @staticmethod
    @annotate.method
    def advanced(state):
        return State(state.position + state.velocity, state.velocity)


def test_a_dataclass_is_an_input_where_it_is_no_receiver(session):
    state = State(torch.randn(2), torch.randn(2))
    state.energy(torch.randn(()))
    after = State.advanced(state)
    assert type(after) is State
    session.stop()
    assert ports(session, "energy") == (["mass"], ["e"])
    assert ports(session, "advanced") == (
        ["state_position", "state_velocity"], ["position", "velocity"],
    )  # fmt: skip


def test_a_tensor_may_be_called_cls(session):
    @annotate.method
    def embedded(cls, x):
        return torch.cat([cls, x])

    embedded(torch.randn(1), torch.randn(2))
    session.stop()
    assert ports(session, "embedded") == (["cls", "x"], ["out0"])


def test_a_function_that_is_put_on_a_class_later(session):
    class Robot:
        gain = 2.0

    @annotate.method
    def act(self, x):
        return x * self.gain

    Robot.act = act
    Robot().act(torch.randn(2))
    session.stop()
    assert ports(session, "act") == (["x"], ["out0"])


def test_bound_methods_and_partials(session):
    model = torch.nn.Linear(2, 2)
    step = annotate.method("policy")(model.forward)
    x = torch.randn(2)
    assert torch.equal(step(x).detach(), (x @ model.weight.T + model.bias).detach())

    def scaled(x, factor):
        return x * factor

    annotate.method("half")(functools.partial(scaled, factor=0.5))(torch.randn(2))
    session.stop()
    assert ports(session, "policy")[0] == ["input"]
    assert ports(session, "half") == (["x"], ["out0"])
    assert torch.equal(replayed(session, "half", torch.tensor([4.0, 6.0])), torch.tensor([2.0, 3.0]))


def test_decorators_below(session):
    @annotate.method
    @torch.no_grad()
    def scaled(x):
        result = x * 2
        return result

    scaled(torch.randn(2))
    session.stop()
    assert ports(session, "scaled") == (["x"], ["result"])


def test_defaults_and_what_is_no_tensor_are_fixed(session):
    class Config(dict):
        pass

    @annotate.method
    def f(x, bias=torch.tensor([1.0, 2.0]), factor=2, mode="plus", module=None, config=None, *, other=GAIN):  # noqa: B008
        y = x * factor + bias if mode == "plus" else x
        return y + config["weight"] * other

    config = Config(weight=0.5, nested=[1, {"a": "b"}])
    config["itself"] = config
    f(torch.randn(2), factor=3, module=torch.nn.Identity(), config=config)
    session.stop()
    assert ports(session, "f") == (["x"], ["out0"])
    fresh = torch.randn(2)
    assert torch.equal(replayed(session, "f", fresh), fresh * 3 + torch.tensor([1.0, 2.0]) + 0.5 * GAIN)


def test_a_default_that_is_passed_is_an_input(session):
    @annotate.method
    def f(x, bias=GAIN):
        return x + bias

    f(torch.randn(2), GAIN)
    session.stop()
    assert ports(session, "f")[0] == ["x", "bias"]
    assert type(GAIN) is torch.Tensor


def test_packed_arguments(session):
    @annotate.method
    def f(first, /, *rest, scale, **others):
        return (first + rest[0] * rest[1]) * scale + others["offset"] + (others["first"])

    inputs = [torch.randn(2) for _ in range(5)]
    f(*inputs[:3], scale=inputs[3], offset=inputs[4], other="text", first=0.5)
    session.stop()
    assert ports(session, "f")[0] == ["first", "rest_0", "rest_1", "scale", "offset"]
    a, b, c, d, e = fresh = [torch.randn(2) for _ in range(5)]
    assert torch.equal(replayed(session, "f", *fresh), (a + b * c) * d + e + 0.5)


def test_one_name_for_two_arguments(session):
    @annotate.method
    def f(x, /, **others):
        return x + others["x"]

    with pytest.raises(errors.PortCollisionError, match="both flatten to the input port 'x'"):
        f(torch.randn(2), x=torch.randn(2))


class Kind(enum.Enum):
    ARM = 1


class Command(NamedTuple):
    velocity: torch.Tensor
    heading: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    image: torch.Tensor
    joints: dict
    label: str = "robot"
    kind: Kind = field(default=Kind.ARM, init=False)


def test_nested_parameters_and_results(session):
    @annotate.method
    def f(obs, command, history):
        action = obs.image * command.velocity + history[0] + obs.joints["q"]
        return Observation(action, {"q": obs.joints["q"] * 2})

    obs = Observation(torch.randn(2), {"q": torch.randn(2), "names": ["a", "b"]})
    result = f(obs, Command(torch.randn(2)), (torch.randn(2), None))
    assert type(result) is Observation
    assert result.label == "robot"
    session.stop()
    assert ports(session, "f") == (
        ["obs_image", "obs_joints_q", "command_velocity", "history_0"], ["image", "joints_q"],
    )  # fmt: skip
    a, b, c, d = fresh = [torch.randn(2) for _ in range(4)]
    got = replayed(session, "f", *fresh)
    assert torch.equal(got[0], a * c + d + b)
    assert torch.equal(got[1], b * 2)


def test_arrays_in_a_nesting_come_in_traced_and_the_user_keeps_his(session):
    @annotate.method
    def f(obs, scale):
        assert type(obs.image) is not np.ndarray
        y = np.tanh(obs.image) * scale
        return y, {"q": obs.joints["q"] + 1}

    obs = Observation(np.ones(2, np.float32), {"q": np.zeros(2, np.float32)})
    y, _ = f(obs, scale=np.float32(2))
    assert type(obs.image) is np.ndarray
    session.stop()
    assert ports(session, "f") == (["obs_image", "obs_joints_q", "scale"], ["out0", "out1_q"])
    np.testing.assert_array_equal(y, np.tanh(np.ones(2, np.float32)) * np.float32(2))
    fresh = torch.randn(2), torch.randn(2), torch.tensor(3.0)
    torch.testing.assert_close(replayed(session, "f", *fresh)[0], torch.tanh(fresh[0]) * 3)


@dataclass
class Memory:
    x: object
    y: object = None
    steps: object = field(default=None, init=False)


def on_dict(given):
    given["y"] = given["x"] * 2
    given["x"] += 1
    given["inner"]["z"] = [given["x"] + 3]
    del given["old"]
    return given["y"], given["inner"]["z"][0]


def on_list(given):
    given.append(given[0] * 2)
    given[1] = None
    given[0] -= 1
    return given[-1]


def on_dataclass(given):
    given.y = given.x * 2
    given.count = 3
    return given.y


def on_tuple(given):
    given[0]["y"] = given[1] * 2
    return given[0]["y"]


@pytest.mark.parametrize("make", [lambda: np.arange(3.0), lambda: torch.arange(3.0)], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("function", "build"),
    [
        (on_dict, lambda x: {"x": x, "old": x.copy() if isinstance(x, np.ndarray) else x.clone(), "inner": {}}),
        (on_list, lambda x: [x, "text"]),
        (on_dataclass, Memory),
        (on_tuple, lambda x: ({}, x)),
    ],
)
def test_what_a_function_does_to_its_arguments_is_done(session, function, build, make):
    mine, given = build(make()), build(make())
    expected = function(mine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.UnusedInputWarning)
        result = annotate.method("n")(function)(given)
    session.stop()
    torch.testing.assert_close(_plain(result), _plain(expected))
    torch.testing.assert_close(_plain(given), _plain(mine))
    if isinstance(given, Memory):
        assert given.count == 3


def _plain(thing):
    """A nesting with tensors as arrays, None as it is."""
    if isinstance(thing, Memory):
        return {name: _plain(each) for name, each in vars(thing).items()}
    if isinstance(thing, dict):
        return {name: _plain(each) for name, each in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_plain(each) for each in thing]
    return np.asarray(thing).tolist() if thing is not None and not isinstance(thing, str) else thing


def test_a_container_that_is_held_twice_stays_one():
    inner = {"x": np.ones(2)}
    made = Twins({id(inner["x"]): np.zeros(2)}).of({"a": inner, "b": [inner]})
    assert made["a"] is made["b"][0]
    assert made["a"] is not inner


# --- names of what is returned -------------------------------------------------------------------------------------


def single(x):
    if x.shape[0] > 5:
        return None
    y = x * 2
    return y


def several_of_one_name(x):
    if x.shape[0] > 5:
        y = x
        return y
    y = x + 1
    return y


def several_names(x):
    if x.shape[0] > 5:
        return x
    y = x + 1
    return y


def pair(x):
    mean, spread = x * 2, x + 1
    return mean, spread


def pair_as_list(x):
    mean, spread = x * 2, x + 1
    return [mean, spread]


def pair_in_another_order(x):
    mean, spread = x * 2, x + 1
    if x.shape[0] > 5:
        return spread, mean
    return mean, spread


def pair_or_single(x):
    y = x * 2
    if x.shape[0] > 5:
        return y
    z = x + 1
    return y, z


def pair_partly_computed(x):
    y = x * 2
    return y, x + 1


def twice(x):
    y = x * 2
    return y, y


def pair_under_a_name(x):
    both = (x * 2, x + 1)
    return both


def pair_with_none(x):
    y = x * 2
    hidden = None
    return y, hidden


def starred(x):
    both = (x * 2, x + 1)
    return (*both,)


def keyed(x):
    result = {"action": x * 2, "debug": None, "value": [x + 1, (x - 1, None)]}
    return result


def named(x):
    return Command(x * 2)


def attribute(x):
    class Inner:
        def value(self):
            unrelated = x
            return unrelated

    inner = Inner()
    inner.y = x * 2
    return inner.y


def trying(x):
    try:
        for _ in range(3):
            with torch.no_grad():
                found = x * 2
                return found
    except ValueError:
        pass
    return found


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (single, ["y"]),
        (several_of_one_name, ["y"]),
        (several_names, ["out0"]),
        (pair, ["mean", "spread"]),
        (pair_as_list, ["mean", "spread"]),
        (pair_in_another_order, ["out0", "out1"]),
        (pair_or_single, ["y_0", "y_1"]),
        (pair_partly_computed, ["out0", "out1"]),
        (twice, ["out0", "out1"]),
        (pair_under_a_name, ["both_0", "both_1"]),
        (pair_with_none, ["y"]),
        (starred, ["out0", "out1"]),
        (keyed, ["action", "value_0", "value_1_0"]),
        (named, ["velocity"]),
        (attribute, ["out0"]),
        (trying, ["found"]),
        (lambda x: x * 2, ["out0"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_names_of_outputs(session, function, expected):
    plain = function(torch.ones(2))
    result = annotate.method("n")(function)(torch.ones(2))
    assert type(result) is type(plain) or isinstance(result, torch.Tensor)
    session.stop()
    assert ports(session, "n")[1] == expected


def test_one_name_for_two_results(session):
    @annotate.method
    def f(x):
        return {1: x * 2, "1": x + 1}

    with pytest.raises(errors.PortCollisionError, match="both flatten to the output port '1'"):
        f(torch.randn(2))


def test_names_without_a_source(session):
    names = {}
    exec("def f(x):\n    y = x * 2\n    return y\ndef g(x):\n    a = b = x + 1\n    return a, b * 2\n", names)
    for name in "fg":
        annotate.method(names[name])(torch.randn(2))
    session.stop()
    assert ports(session, "f") == (["x"], ["out0"])
    assert ports(session, "g") == (["x"], ["out0", "out1"])


class Moves:
    """A second session, which hands in other values."""

    weights = None

    def vary_input(self, node, port, entry, tensor):
        tensor.add_(10)

    def pinned(self, node, index, value):
        return value


@pytest.mark.parametrize("brought", [False, True])
def test_a_second_session_moves_the_arguments(make_session, tmp_path, brought):
    (tmp_path / "model.onnx").touch()
    params = {"model_path": tmp_path / "model.onnx"} if brought else None
    session = make_session(variation=Moves())
    sessions.begin(session)
    seen = []

    @annotate.method("n", backend_params=params)
    def f(tensor, arrays, number):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.TraceEscapeWarning)
            seen.extend(float(each) for each in (tensor[0], arrays["a"][0], number))
        return {"y": tensor * 2 + arrays["a"][0] * number}

    array = np.zeros(2, np.float32)
    try:
        f(torch.zeros(2), {"a": array}, np.float32(1))
    finally:
        sessions._CURRENT.clear()
    assert seen == [10, 10, 11]
    assert not array.any()
    sample = session.nodes["n"].recordings[0].sample
    assert [value.reshape(-1)[0].item() for value in sample.inputs.values()] == [10, 10, 11]
    assert sample.outputs["y"].tolist() == [130, 130]


# --- calls ----------------------------------------------------------------------------------------------------------


def test_calls_from_anywhere_are_entries_of_one_node(session):
    @annotate.method
    def f(x):
        y = x * 2
        return y

    for _ in range(3):
        f(torch.randn(2))
    for _ in range(2):
        f(x=torch.randn(2))
    assert session.nodes["f"].entries == 5
    assert len(session.nodes["f"].recordings) == 3


def test_a_function_that_calls_itself_is_one_entry(session):
    @annotate.method
    def f(x, depth=3):
        return x if depth == 0 else f(x * 2, depth - 1)

    for _ in range(5):
        assert f(torch.ones(2))[0] == 8
    session.stop()
    assert ports(session, "f") == (["x"], ["out0"])
    assert session.nodes["f"].entries == 5
    fresh = torch.randn(2)
    assert torch.equal(replayed(session, "f", fresh), fresh * 8)


def test_an_annotated_function_inside_another(session):
    @annotate.method
    def inner(x):
        return x * 2

    @annotate.method
    def outer(x):
        return inner(x + 1)

    with pytest.raises(errors.ForeignValueError, match="A value of node 'outer' was used in node 'inner'"):
        outer(torch.randn(2))
    assert not session.nodes
    assert torch.equal(inner(torch.ones(2)).detach(), torch.full((2,), 2.0))


def test_wires_between_functions(session):
    @annotate.method
    def first(x):
        y = x * 2
        return y

    @annotate.method
    def second(y, hidden):
        hidden = torch.tanh(y + hidden)
        return hidden

    hidden = torch.zeros(2)
    for _ in range(3):
        hidden = second(first(torch.randn(2)), hidden)
    wires = [{port: str(origin) for port, origin in r.wires.items()} for r in session.nodes["second"].recordings]
    assert wires == [{"y": "first/y"}, *[{"y": "first/y", "hidden": "second/hidden"}] * 2]


def test_state_inside_a_function(session):
    class Smoother:
        def __init__(self):
            self.last = torch.zeros(2)

        @annotate.method("smoother")
        def step(self, x):
            last = annotate.state_tensors("smoother", {"last": self.last})
            self.last = (last + x) / 2
            annotate.update_state("smoother", {"last": self.last})
            shown = self.last * 3
            return shown

    smoother = Smoother()
    for _ in range(5):
        smoother.step(torch.randn(2))
    session.stop()
    assert ports(session, "smoother") == (["x", "last"], ["shown", "last"])
    assert session.nodes["smoother"].entries == 5
    x, last = torch.randn(2), torch.randn(2)
    shown, following = replayed(session, "smoother", x, last)
    assert torch.equal(following, (last + x) / 2)
    assert torch.equal(shown, following * 3)


def test_an_exception_in_a_function_with_state(session):
    state = torch.zeros(2)

    @annotate.method("n")
    def step(x, fail):
        last = annotate.state_tensors("n", {"last": state})
        if fail:
            raise ValueError("the user's own")
        annotate.update_state("n", {"last": last + x})
        return last * x

    for fail in (True, False, True, False, False, True, False):
        x = torch.ones(2)
        if fail:
            with pytest.raises(ValueError, match="the user's own"):
                step(x, fail)
        else:
            step(x, fail)
    session.stop()
    session.check_closed()
    assert session.nodes["n"].entries == 4
    assert ports(session, "n") == (["x", "last"], ["out0", "last"])


def test_two_functions_of_one_name(session):
    annotate.method("n")(lambda x: x * 2)(torch.randn(2))
    with pytest.raises(errors.NodeOriginError, match=r"Node 'n' was opened at .*test_method.py:\d+ and again at"):
        annotate.method("n")(lambda x: x + 2)(torch.randn(2))


def test_an_exception_leaves_the_node_as_it_was(session):
    @annotate.method
    def f(x, fail=False):
        y = x * 2
        if fail:
            raise ValueError("the user's own")
        return y

    with pytest.raises(ValueError, match="the user's own"):
        f(torch.randn(2), fail=True)
    assert not session.nodes
    assert not torch.overrides._get_current_function_mode_stack()
    x = torch.randn(2)
    f(x)
    with pytest.raises(ValueError, match="the user's own"):
        f(x, fail=True)
    f(x)
    session.stop()
    session.check_closed()
    assert len(session.nodes["f"].recordings) == 2
    assert torch.equal(replayed(session, "f", torch.ones(2)), torch.full((2,), 2.0))


def test_results_that_are_no_outputs(session):
    @annotate.method
    def nothing(x):
        pass

    @annotate.method
    def number(x):
        return x * 2, 3

    @annotate.method
    def untouched(x):
        return torch.zeros(2)

    with pytest.raises(errors.NotATensorError, match="Node 'nothing': output 'out0' is a NoneType"):
        nothing(torch.randn(2))
    with pytest.raises(errors.NotATensorError, match="Node 'number': output 'out1' is a int"):
        number(torch.randn(2))
    with pytest.raises(errors.OutputNotTracedError, match=r"output 'out0' is a plain torch.Tensor.*test_method.py"):
        untouched(torch.randn(2))
    assert not session.nodes


@pytest.mark.parametrize("before", [0, 3], ids=["recorded", "not recorded any more"])
def test_another_thread_in_the_middle(session, before):
    entered, go_on, raised = threading.Event(), threading.Event(), []

    @annotate.method
    def f(x):
        if session.nodes["f"].entries == before:
            entered.set()
            go_on.wait(10)
        return x * 2

    for _ in range(before):
        f(torch.ones(2))

    def work():
        entered.wait(10)
        try:
            f(torch.ones(2))
        except errors.WrongThreadError as error:
            raised.append(error)
        go_on.set()

    thread = threading.Thread(target=work, name="camera")
    thread.start()
    f(torch.ones(2))
    thread.join()
    assert "in thread 'camera'" in str(raised[0])
    assert session.nodes["f"].entries == before + 1


class Called:
    def __call__(self, x):
        return x


async def awaited(x):
    return x


def generated(x):
    yield x


@pytest.mark.parametrize(
    ("thing", "why"),
    [
        (awaited, "awaited: it is asynchronous"),
        (generated, "generated: it is a generator"),
        (Called, "Called: it is a class"),
        (Called(), "test_method.Called: it is a test_method.Called"),
        (property(lambda self: self), "property: it is a property"),
        (lambda x: x, "it has no name that a node could bear"),
        (len, "len: it is compiled"),
        (np.add, "numpy.ufunc"),
        (torch.tanh, "tanh: it is compiled"),
        (functools.partial(awaited), "it is asynchronous"),
        (3, "int: it is a int"),
    ],
    ids=[
        "async",
        "generator",
        "class",
        "object",
        "property",
        "lambda",
        "builtin",
        "ufunc",
        "torch",
        "partial",
        "number",
    ],
)
def test_what_cannot_be_decorated(thing, why):
    with pytest.raises(errors.MethodKindError, match=why):
        annotate.method(thing)
