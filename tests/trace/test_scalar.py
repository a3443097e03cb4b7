"""Traced scalars are NumPy's scalars: values, types, warnings, errors; and nothing of them is lost in silence."""

import copy
import functools
import json
import math
import operator
import pickle
import re
import threading
import warnings

import numpy as np
import pytest
import torch

from leapp import errors
from leapp.trace._lineage import Value, value_of
from leapp.trace._lineage import plain as untraced
from leapp.trace.scalar import _TRACED, SCALARS, plain_scalar, settle

TYPES = sorted(_TRACED, key=lambda each: each.__name__)


class Node:
    """An open node; ``node(3.5)`` is a traced scalar of it."""

    def __init__(self, session):
        self.session = session
        self.inputs = 0

    def __call__(self, value):
        array = np.array([value])
        self.inputs += 1
        return self.session.input_tensors("n", {f"x{self.inputs}": array})[id(array)][0]

    def recorded(self):
        """How many operations are recorded."""
        return len(self.session.nodes["n"].current.recorder.info)

    def close(self, *things):
        return self.session.output_tensors("n", {"y": sum(things, self(2.0) * 2)})


@pytest.fixture
def node(make_session):
    return Node(make_session())


def is_known(warning, values):
    if warning.category is errors.NoTwinWarning:  # torch has no such numbers, or no such operation on them
        extended = any(type(each) in (np.longdouble, np.clongdouble) for each in values)
        return extended or re.search("uint64|signed with unsigned", str(warning.message))
    return warning.category is errors.TraceEscapeWarning  # "a" * n reads n


def outcome(function, *args):
    """Result, type and warnings of a call, or its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - compared with NumPy's
            return type(error), [str(each.message) for each in caught]
    result = untraced(result)
    if type(result) is np.ndarray and result.dtype == bool and not result.ndim:
        result = result[()]  # the one documented difference: NumPy's bool cannot be subclassed
    told = [each for each in caught if not is_known(each, (*args, result))]
    # Python asks the other operand for the opposite comparison, and NumPy's warning names that.
    texts = [re.sub("(greater|less)", "compared", str(each.message)) for each in told]
    return type(result), repr(result), [each.category for each in told], texts


BINARY = {
    sign: eval(f"lambda a, b: a {sign} b")  # noqa: S307 - an operator's own instruction is what NumPy's scalars meet
    for sign in "+ - * / // % ** << >> & | ^ @ == != < <= > >=".split()
} | {"divmod": divmod}
NAN = np.float64("nan")
OTHERS = [
    2, -3, 0, 2.5, True, 300, 2j, None, "a", [1, 2], (3, 4), np.bool_(True), np.longdouble(2), np.arange(3),
    np.arange(3.0, dtype="f4"), np.array(2.5),
    *(np.dtype(code).type(3) for code in "efdhlBLF"), NAN, np.int8(-5), object,
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("sign", BINARY)
def test_operators_give_what_numpy_gives(node, kind, sign):
    do = BINARY[sign]
    for plain in (kind(7), kind(0)):
        traced = node(plain)
        for other in OTHERS:
            if kind(0).dtype.kind == "c" and other is NAN:
                continue  # torch multiplies what it adds by one, and not a number has no imaginary part
            assert outcome(do, traced, other) == outcome(do, plain, other), (plain, other)
            unseen = type(other) is complex or (do is divmod and isinstance(other, np.generic))
            if other is not None and not unseen:
                assert outcome(do, other, traced) == outcome(do, other, plain), (other, plain)
            if type(other) in _TRACED and plain:
                assert outcome(do, traced, node(other)) == outcome(do, plain, other), (plain, other)


UNARY = [operator.neg, operator.pos, abs, operator.invert, lambda x: round(x, 1), lambda x: round(x, -1)]


@pytest.mark.parametrize("kind", TYPES, ids=lambda each: each.__name__)
def test_unary_operators_and_round(node, kind):
    for plain in (kind(7), kind(0), np.array(-3).astype(kind)[()]):
        for do in UNARY:
            assert outcome(do, node(plain)) == outcome(do, plain)
        assert outcome(round, node(plain)) == outcome(round, plain)
    assert node.recorded() > 3 * 3


METHODS = {
    "all": (), "any": (), "argmax": (), "argmin": (), "astype": (np.float32,), "clip": (1, 2),
    "conj": (), "conjugate": (), "copy": (), "cumprod": (), "cumsum": (), "flatten": (), "max": (), "mean": (),
    "min": (), "prod": (), "ravel": (), "repeat": (3,), "reshape": ((1, 1),), "round": (1,),
    "squeeze": (), "std": (), "sum": (), "take": ([0, 0],), "transpose": (), "var": (), "view": (),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_stay_in_the_trace(node, name):
    for plain in (np.float32(1.75), np.int16(-3), np.complex128(1 + 2j)):
        do = lambda x: getattr(x, name)(*METHODS[name])
        traced = node(plain)
        if np.iscomplexobj(plain) and name in ("argmax", "argmin", "max", "min", "clip", "astype"):
            continue  # complex numbers have no order in torch, and torch warns of a cast as well
        assert outcome(do, traced) == outcome(do, plain)
        assert value_of(do(traced)).recording is not None


@pytest.mark.parametrize("index", [None, ..., (), (None, None)], ids=repr)
def test_an_index_stays_in_the_trace(node, index):
    traced = node(2.5)
    assert outcome(lambda x: x[index], traced) == outcome(lambda x: x[index], np.float64(2.5))
    assert value_of(traced[index]).recording is not None


@pytest.mark.parametrize("name", ["real", "imag", "T"])
def test_properties_stay_in_the_trace(node, name):
    do = operator.attrgetter(name)
    for plain in (np.complex64(1 + 2j), np.float32(1)):
        traced = node(plain)
        assert outcome(do, traced) == outcome(do, plain)
        assert value_of(do(traced)).recording is not None


def test_functions_and_arrays_find_the_hooks(node):
    x, plain = node(np.float32(2.5)), np.float32(2.5)
    table = np.arange(3.0)
    for do in (
        lambda s: np.sin(s), lambda s: np.multiply(2, s), lambda s: np.multiply(np.float64(2), s),
        lambda s: table * s, lambda s: table**s, lambda s: table < s, lambda s: s * table,
        lambda s: np.hstack([s, table]), lambda s: np.clip(table, 0, s), lambda s: np.where(table > 1, s, 0),
        lambda s: np.stack([s, s]), lambda s: np.arange(3.0).__iadd__(s),
        lambda s: operator.mul(table, s),
    ):  # fmt: skip
        before = node.recorded()
        assert outcome(do, x) == outcome(do, plain)
        assert node.recorded() > before
    for place in (np.ones(3), TABLE.astype("f8")):
        expected = untraced(place) + plain
        place += x  # noqa: PLW2901 - as users write it
        assert value_of(place).recording is not None
        np.testing.assert_array_equal(untraced(place), expected)


@pytest.mark.parametrize(
    "left",
    [
        np.float64(2),
        np.float32(2),
        np.float16(2),
        np.int64(2),
        np.longlong(2),
        np.bool_(True),
        2,
        2.0,
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8])
def test_no_operator_of_another_scalar_goes_by_unseen(node, left, kind):
    x = node(kind(1))
    for do in (
        lambda: left + x, lambda: left - kind(1) * x, lambda: left * x, lambda: left / x, lambda: left // x,
        lambda: left % x, lambda: left**x, lambda: left < x, lambda: left == x, lambda: left >= x,
    ):  # fmt: skip
        before = node.recorded()
        do()
        assert node.recorded() > before


def test_an_operator_called_by_name_is_told_of(node):
    x = node(np.float32(1))
    assert functools.reduce(operator.mul, [np.float64(2), x]) == 2
    with pytest.warns(errors.UntracedOpWarning, match=r"operator on a NumPy scalar at tests/trace/test_scalar.py"):
        np.sin(x)
    assert max(x, np.float64(0)) is x
    with pytest.warns(errors.UntracedOpWarning, match=r"operator on a NumPy scalar at tests/trace/test_scalar.py"):
        node.close(x)


READS = {
    "float()": lambda x: float(x), "int()": lambda x: int(x), ".item()": lambda x: x.item(),
    ".tolist()": lambda x: x.tolist(), "format()": lambda x: f"{x:.2f}", "str()": lambda x: str(x),
    "repr()": lambda x: repr(x), "hash()": lambda x: hash(x), "round()": lambda x: round(x),
    "is_integer": lambda x: x.is_integer(), "as_integer_ratio": lambda x: x.as_integer_ratio(),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)), "tobytes": lambda x: x.tobytes(),
    "math.floor()": lambda x: math.floor(x), "math.ceil()": lambda x: math.ceil(x),
    "math.trunc()": lambda x: math.trunc(x), "hex": lambda x: x.hex(),
}  # fmt: skip


@pytest.mark.parametrize("spelling", READS)
def test_reads_are_told_of_with_their_line(node, spelling):
    read = READS[spelling]
    with pytest.warns(errors.TraceEscapeWarning, match=rf"^{re.escape(spelling)} at tests/trace/test_scalar.py:\d+ "):
        got = read(node(2.5))
    expected = read(np.float64(2.5))
    assert (type(got), got) == (type(expected), expected)


TABLE = np.arange(4)


@pytest.mark.parametrize(
    "read",
    [lambda n: range(3)[n], lambda n: [5, 6, 7][n], lambda n: list(range(n)), lambda n: [0] * n, lambda n: "ab" * n,
     lambda n: [1, 2, 3][n:], lambda n: chr(n), lambda n: TABLE[n]],
)  # fmt: skip
def test_an_integer_that_counts_or_picks_is_read(node, read):
    with pytest.warns(errors.TraceEscapeWarning, match=r"int\(\) at "):
        assert repr(read(node(np.int64(2)))) == repr(read(np.int64(2)))


@pytest.mark.parametrize(
    "branch",
    [lambda x: 1 if x else 0, lambda x: not x, lambda x: x and 1, bool, lambda x: any([x]), lambda x: all([x, x])],
)
def test_truth_is_a_branch(node, branch):
    with pytest.raises(errors.DataDependentBranchError, match="test_scalar.py"):
        branch(node(0.5))


def test_dict_and_set(node):
    names = {2.5: "a", 1: "b"}
    with pytest.warns(errors.TraceEscapeWarning, match=r"hash\(\)"):  # noqa: PT031 - and no branch
        assert names[node(2.5)] == "a"
        assert names.get(node(3.5), "none") == "none"
        assert node(np.int64(1)) in names
        assert len({node(2.5), node(2.5), np.float64(2.5)}) == 2 - 1
        assert {node(2.5): 1}[node(2.5)] == 1


def test_nothing_can_be_changed(node):
    x, before = node(2.5), np.float64(2.5)
    for change in (
        lambda s: setattr(s, "name", 1), lambda s: setattr(s, "real", 1), lambda s: delattr(s, "name"),
        lambda s: s.__setitem__((), 1), lambda s: setattr(s, "dtype", np.int64),
    ):  # fmt: skip
        assert outcome(change, x)[0] is outcome(change, before)[0] is not type(None)
    y = x
    y += 1
    assert (plain_scalar(x), plain_scalar(y)) == (2.5, 3.5)
    x.fill(7)
    assert plain_scalar(x) == 2.5


def test_copies_keep_the_lineage(node):
    x = node(2.5)
    assert copy.copy(x) is x
    assert copy.deepcopy([x])[0] is x


@pytest.mark.parametrize("kind", TYPES, ids=lambda each: each.__name__)
def test_it_is_a_scalar_of_its_type(node, kind):
    plain = kind(3)
    x = node(plain)
    assert type(x) in SCALARS
    assert isinstance(x, kind)
    assert isinstance(x, float) == isinstance(plain, float)
    assert type(plain_scalar(x)) is type(np.array([plain])[0])
    assert plain_scalar(x) == plain
    assert (x.dtype, x.shape, x.ndim, x.nbytes) == (plain.dtype, plain.shape, plain.ndim, plain.nbytes)
    assert np.dtype(type(x)) == plain.dtype
    assert np.isscalar(x)
    assert type(type(x)(4)) is kind
    for same in (lambda s: 3 in s, len, iter, list, reversed):
        assert outcome(same, x) == outcome(same, plain)


def test_not_a_number_keeps_its_payload(node):
    plain = np.uint64(0x7FF8DEADBEEF0001).view(np.float64)
    assert np.asarray(plain_scalar(node(plain))).tobytes() == np.asarray(plain).tobytes()
    assert untraced(np.array([node(plain)])).tobytes() == np.asarray(plain).tobytes()


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_torch_takes_it_for_a_number(node, kind):
    x, plain = node(kind(2)), kind(2)
    node.session.stop()
    for do in (
        lambda s: torch.tensor(s), lambda s: torch.tensor([[s, 1], [2, s]]), lambda s: torch.zeros(2) + s,
        lambda s: torch.full((2,), s), lambda s: s * torch.ones(2), lambda s: torch.ones(3).new_tensor([s]),
    ):  # fmt: skip
        assert outcome(do, x) == outcome(do, plain)


def test_json_writes_a_float(node):
    assert json.dumps({"x": node(2.5)}) == '{"x": 2.5}'


def test_after_the_session_reads_are_free(node):
    x = node(2.5)
    node.session.stop()
    for read in READS.values():
        read(x)
    assert bool(x)


def test_in_another_node_it_is_foreign(node):
    x = node(2.5)
    node.close(x)
    node.session.input_tensors("other", {"z": torch.ones(1)})
    assert str(x) == "2.5"  # a debugger may look
    with pytest.raises(errors.ForeignValueError, match="'n'"):
        float(x)
    node.session.stop()
    assert float(x) == 2.5


def test_another_thread_is_told(node):
    x, told = node(2.5), []

    def work():
        for use in (lambda: x * 2, lambda: float(x), lambda: np.float32(2) * x):
            try:
                use()
            except errors.WrongThreadError as error:
                told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(told) == 3
    with pytest.raises(errors.WrongThreadError):
        node.close(x)


def test_scalars_as_ports(make_session):
    session = make_session()
    array = np.arange(4.0)
    total = session.input_tensors("n", {"x": array})[id(array)].sum()
    session.output_tensors("n", {"total": total})
    assert str(value_of(total).origin) == "n/total"
    again = session.input_tensors("m", {"total": total}).get(id(total), total)
    session.output_tensors("m", {"y": again * 2})
    session.stop()
    assert type(total + 1) is np.float64


def test_settling_twice_is_harmless(node):
    settle()
    settle()
    assert isinstance(node(1.0)._leapp, Value)


# --- programs, replayed on other data ---------------------------------------------------------------------------------


def rotation(x):
    w, a, b, c = x
    n = np.sqrt(w * w + a * a + b * b + c * c)
    w, a, b, c = w / n, a / n, b / n, c / n
    return np.array([[1 - 2 * (b * b + c * c), 2 * (a * b - c * w)], [2 * (a * b + c * w), 1 - 2 * (a * a + c * c)]])


def average(x):
    mean = 0.0
    for each in x:
        mean = 0.9 * mean + 0.1 * each
    return mean


def length(x):
    total = np.float64(0)
    for each in x:
        total += each * each
    return x / np.sqrt(total)


def one_hot(x):
    hot = np.zeros(len(x), np.float32)
    hot[np.argmax(x)] = 1
    return hot * x


def kept(x):
    values = {"first": x[0], "last": x[-1]}
    low, high = values["first"], values["last"]
    return np.where(low < high, high, low) - np.minimum(low, high)


PROGRAMS = [
    rotation, average, length, one_hot, kept,
    lambda x: (x - x.mean()) / (x.std() + 1e-8),
    lambda x: (x[0] + np.pi) % (2 * np.pi) - np.pi,
    lambda x: np.deg2rad(30) * x[0],
    lambda x: np.float64(2) ** x[1] - np.float16(3) / x[2],
    lambda x: sum(x) / len(x),
    lambda x: x.max() - x.min(),
    lambda x: x[np.argmax(x)] * x[0],
    lambda x: divmod(x[0], 2)[1] + x[1] // 3,
    lambda x: round(x[0] * 1.234, 2),
    lambda x: np.sign(x[0]) * abs(x[1]) - +x[2],
    lambda x: (x[0] > 2) * x[1] + ((x[0] > 2) & (x[1] < 3)) * 4,
    lambda x: np.hypot(*x[:2]),
    lambda x: x[0].astype(int) << 2 | 1,
    lambda x: x[0].astype(np.uint8) + np.uint8(250),
    lambda x: np.concatenate([x[0][None], x[1:3]]) @ [1.0, 2.0, x[3]],
    lambda x: x[0].clip(-1, 1) * x,
    lambda x: copy.deepcopy(x[1]) + x,
    lambda x: type(x[0])(3) * x[1],
    lambda x: (lambda total: total.real + total.imag)(np.sum(x * 1j)),
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_programs_replay_on_other_data(record, program, dtype):
    rng = np.random.default_rng(1)
    first, second = (np.abs(rng.normal(size=4) * 4).astype(dtype) for _ in range(2))
    expected = program(first.copy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorded = record(program, first.copy())
    np.testing.assert_array_equal(untraced(recorded.result), expected)
    again = program(second.copy())
    replayed = recorded(torch.from_numpy(second)).numpy()
    assert replayed.dtype == np.asarray(again).dtype
    assert replayed.shape == np.shape(again)
    np.testing.assert_allclose(replayed, again, rtol=1e-6)
    assert not np.array_equal(np.asarray(expected), np.asarray(again))
