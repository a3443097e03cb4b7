"""Traced scalars are NumPy's scalars: values, types, warnings, errors; and nothing of them is lost in silence."""

import copy
import functools
import json
import math
import operator
import pickle
import sys
import types
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
        again = function(*plain_deep(args), **plain_deep(kwargs))
        for one, other in zip(*((each if isinstance(each, tuple) else (each,)) for each in (result, again)), strict=True):
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-3)
            assert np.asarray(one).dtype == np.asarray(other).dtype
        return self.wrapped(result)

    def array_ufunc(self, scalar, ufunc, method, *inputs, **kwargs):
        self.calls.append(ufunc)
        return self.wrapped(getattr(ufunc, method)(*plain_deep(inputs), **plain_deep(kwargs)))

    def array_function(self, scalar, func, types, args, kwargs):
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
    return type(result), repr(result), [(each.category, str(each.message)) for each in caught]


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
