"""Traced scalars are NumPy's scalars: values, types, warnings, errors; and nothing of them is lost in silence."""

import copy
import functools
import json
import math
import operator
import pickle
import re
import sys
import warnings

import numpy as np
import pytest
import torch

from leapp import errors
from leapp.trace._lineage import Value, value_of
from leapp.trace.scalar import _TRACED, SCALARS, plain_deep, plain_scalar, settle, traced_scalar

TYPES = sorted(_TRACED, key=lambda each: each.__name__)


class Core:
    """The calls that ``leapp.trace.array`` would record, in order."""

    def __init__(self):
        self.calls = []
        self.lineage = None

    def wrapped(self, result):
        if isinstance(result, tuple):
            return tuple(self.wrapped(each) for each in result)
        return traced_scalar(result, self.lineage) if type(result) in _TRACED else result

    def computed(self, function, args, kwargs, result):
        self.calls.append(function)
        with np.errstate(all="ignore"):
            again = function(*plain_deep(args), **plain_deep(kwargs))
        for one, other in zip(
            *((each if isinstance(each, tuple) else (each,)) for each in (result, again)), strict=True
        ):
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-3)
            assert np.asarray(one).dtype == np.asarray(other).dtype
        return self.wrapped(result)

    def array_ufunc(self, scalar, ufunc, method, *inputs, **kwargs):  # noqa: ARG002
        self.calls.append(ufunc)
        return self.wrapped(getattr(ufunc, method)(*plain_deep(inputs), **plain_deep(kwargs)))

    def array_function(self, scalar, func, kinds, args, kwargs):  # noqa: ARG002
        self.calls.append(func)
        return self.wrapped(func(*plain_deep(args), **plain_deep(kwargs)))

    def method(self, scalar, name, args, kwargs):
        self.calls.append(name)
        found = getattr(plain_scalar(scalar), name)
        return self.wrapped(found(*plain_deep(args), **plain_deep(kwargs)) if callable(found) else found)


@pytest.fixture
def core(monkeypatch):
    made = Core()
    monkeypatch.setitem(sys.modules, "leapp.trace.array", made)
    return made


@pytest.fixture
def node(core, make_session):
    """An open node; ``node(3.5)`` is a traced scalar of it."""
    session = make_session()
    x = torch.ones(2)
    session.input_tensors("n", {"x": x})
    core.lineage = value_of(x)

    def scalar(value):
        return traced_scalar(value if isinstance(value, np.generic) else np.float64(value), core.lineage)

    scalar.session = session
    scalar.calls = core.calls
    scalar.close = lambda: session.output_tensors("n", {"y": x * 2})
    return scalar


def outcome(function, *args):
    """Result, type and warnings of a call, or its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - compared with NumPy's
            return type(error), [str(each.message) for each in caught]
    result = plain_deep(result)
    told = [each for each in caught if each.category is not errors.TraceEscapeWarning]  # "a" * n reads n
    # Python asks the other operand for the opposite comparison, and NumPy's warning names that.
    texts = [re.sub("(greater|less)", "compared", str(each.message)) for each in told]
    return type(result), repr(result), [each.category for each in told], texts


BINARY = {
    sign: eval(f"lambda a, b: a {sign} b")  # noqa: S307 - an operator's own instruction is what NumPy's scalars meet
    for sign in "+ - * / // % ** << >> & | ^ @ == != < <= > >=".split()
} | {"divmod": divmod}
OTHERS = [
    2, -3, 0, 2.5, True, 300, 2j, None, "a", [1, 2], (3, 4), np.bool_(True), np.longdouble(2), np.arange(3),
    np.arange(3.0, dtype="f4"), np.array(2.5), *(kind(3) for kind in TYPES), np.float64("nan"), np.int8(-5), object,
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("sign", BINARY)
def test_operators_give_what_numpy_gives(node, kind, sign):
    do = BINARY[sign]
    for plain in (kind(7), kind(0)):
        traced = node(plain)
        for other in OTHERS:
            assert outcome(do, traced, other) == outcome(do, plain, other), (plain, other)
            if other is not None and type(other) is not complex:
                assert outcome(do, other, traced) == outcome(do, other, plain), (other, plain)
            if type(other) in _TRACED:
                assert outcome(do, traced, node(other)) == outcome(do, plain, other), (plain, other)


UNARY = [operator.neg, operator.pos, abs, operator.invert, lambda x: round(x, 1), lambda x: round(x, -1)]


@pytest.mark.parametrize("kind", TYPES, ids=lambda each: each.__name__)
def test_unary_operators_and_round(node, kind):
    for plain in (kind(7), kind(0), np.array(-3).astype(kind)[()]):
        for do in UNARY:
            assert outcome(do, node(plain)) == outcome(do, plain)
        assert outcome(round, node(plain)) == outcome(round, plain)
    assert np.negative in node.calls


METHODS = {
    "all": (), "any": (), "argmax": (), "argmin": (), "argsort": (), "astype": (np.float32,), "clip": (1, 2),
    "conj": (), "conjugate": (), "copy": (), "cumprod": (), "cumsum": (), "flatten": (), "max": (), "mean": (),
    "min": (), "nonzero": (), "prod": (), "ravel": (), "repeat": (3,), "reshape": ((1, 1),), "round": (1,),
    "squeeze": (), "std": (), "sum": (), "take": ([0, 0],), "transpose": (), "var": (), "view": (),
    "__getitem__": ((),), "byteswap": (),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_stay_in_the_trace(node, name):
    for plain in (np.float32(1.75), np.int16(-3), np.complex128(1 + 2j)):
        do = lambda x: getattr(x, name)(*METHODS[name])
        traced = node(plain)
        node.calls.clear()
        assert outcome(do, traced) == outcome(do, plain)
        assert name in node.calls


@pytest.mark.parametrize("index", [None, ..., (), (None, None)], ids=repr)
def test_an_index_stays_in_the_trace(node, index):
    traced = node(2.5)
    assert outcome(lambda x: x[index], traced) == outcome(lambda x: x[index], np.float64(2.5))
    assert node.calls == ["__getitem__"]


@pytest.mark.parametrize("name", ["real", "imag", "T"])
def test_properties_stay_in_the_trace(node, name):
    do = operator.attrgetter(name)
    assert outcome(do, node(np.complex64(1 + 2j))) == outcome(do, np.complex64(1 + 2j))
    assert node.calls == [name]


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
        node.calls.clear()
        assert outcome(do, x) == outcome(do, plain)
        assert node.calls
    node.calls.clear()
    place = np.ones(3)
    place += x
    assert node.calls == [np.add]
    np.testing.assert_array_equal(place, np.ones(3) + plain)


@pytest.mark.parametrize(
    "left",
    [
        np.float64(2),
        np.float32(2),
        np.float16(2),
        np.int64(2),
        np.longlong(2),
        np.bool_(True),
        np.longdouble(2),
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
        node.calls.clear()
        do()
        assert node.calls


def test_an_operator_called_by_name_is_told_of(node):
    x = node(np.float32(1))
    assert functools.reduce(operator.mul, [np.float64(2), x]) == 2
    with pytest.warns(errors.UntracedOpWarning, match=r"operator on a NumPy scalar at tests/trace/test_scalar.py"):
        np.sin(x)
    assert max(x, np.float64(0)) is x
    with pytest.warns(errors.UntracedOpWarning, match=r"operator on a NumPy scalar at tests/trace/test_scalar.py"):
        node.close()


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


@pytest.mark.parametrize(
    "read",
    [lambda n: range(3)[n], lambda n: [5, 6, 7][n], lambda n: list(range(n)), lambda n: [0] * n, lambda n: "ab" * n,
     lambda n: np.zeros(n).shape, lambda n: np.zeros((n, 2)).shape, lambda n: np.arange(4)[n], lambda n: chr(n),
     lambda n: [1, 2, 3][n:]],
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
    assert plain_scalar(x) is plain
    assert (x.dtype, x.shape, x.ndim, x.nbytes) == (plain.dtype, plain.shape, plain.ndim, plain.nbytes)
    assert np.dtype(type(x)) == plain.dtype
    assert np.isscalar(x)
    assert type(type(x)(4)) is kind
    for same in (lambda s: 3 in s, len, iter, list, reversed):
        assert outcome(same, x) == outcome(same, plain)


def test_not_a_number_keeps_its_payload(node):
    plain = np.uint64(0x7FF8DEADBEEF0001).view(np.float64)
    assert np.asarray(plain_scalar(node(plain))).tobytes() == np.asarray(plain).tobytes()
    assert np.array([node(plain)]).tobytes() == np.asarray(plain).tobytes()


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
    node.close()
    node.session.input_tensors("other", {"z": torch.ones(1)})
    assert str(x) == "2.5"  # a debugger may look
    with pytest.raises(errors.ForeignValueError, match="'n'"):
        float(x)
    node.session.stop()
    assert float(x) == 2.5


def test_settling_twice_is_harmless(node):
    settle()
    settle()
    assert isinstance(node(1.0)._leapp, Value)
