"""Names that a module took from NumPy and ``math`` before there was a session."""

from __future__ import annotations

import math
import sys
from math import cos, hypot
from math import sin as sine
from types import ModuleType

import numpy as np
import pytest
import torch
from numpy import array, zeros

import leapp
from leapp import errors
from leapp.trace import imported


def test_constructors_of_the_module_are_recorded(record):
    def function(x):
        made = zeros(3)
        made[1:] = x
        return made + array([x[1], 1.0, x[0]])

    first, second = np.array([0.5, -1.0]), np.array([2.0, 3.0])
    recorded = record(function, first.copy())
    np.testing.assert_array_equal(recorded(torch.from_numpy(second.copy())).numpy(), function(second))


@pytest.mark.parametrize(("function", "name"), [(lambda x: cos(x[0]), "cos"), (lambda x: sine(x[1]), "sin")])
def test_functions_of_math_are_reads(record, function, name):
    with pytest.warns(errors.TraceEscapeWarning, match=rf"math\.{name}\(\) at tests/trace/test_imported\.py"):
        record(lambda x: x * function(x), np.array([0.5, -1.0]))


def test_names_are_put_back(make_session):
    before = dict(globals())
    first, second = make_session(), make_session()
    assert cos is math.cos
    assert array is np.array
    assert sine is not before["sine"]
    second.stop()
    assert sine is math.sin
    first.stop()
    assert globals() == before


def test_modules_that_are_imported_meanwhile(make_session, monkeypatch):
    session = make_session()
    module = ModuleType("imported_meanwhile")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("from math import sqrt\nfrom numpy import mean", vars(module))
    assert module.sqrt is math.sqrt
    session.stop()
    assert module.sqrt is math.sqrt
    assert module.mean is np.mean
    assert not hasattr(module.sqrt, "__wrapped__")


def test_names_that_the_user_changes_meanwhile_stay(make_session):
    session = make_session()

    def mine(x, y):
        return x + y

    kept = hypot
    globals()["hypot"] = mine
    session.stop()
    assert hypot is mine
    globals()["hypot"] = kept.__wrapped__


def test_the_equivalent_of_a_function_patch_goes_first(tmp_path):
    original = cos
    leapp.start("p", tmp_path, dry_run=False, patching=[leapp.FunctionPatch(sys.modules[__name__], "cos", np.cos)])
    x = leapp.annotate.input_tensors("n", {"x": np.array([0.5, -1.0])})
    leapp.annotate.output_tensors("n", {"y": x * cos(x[0])}, export_with="torchscript")
    leapp.stop()
    assert cos is original


def test_modules_without_such_names_are_looked_through_once(make_session):
    make_session().stop()
    known = dict(imported._known)
    assert "tests" not in sys.modules or __name__ not in known
    assert len(known) > 50
    make_session()
    assert known.items() <= imported._known.items()
