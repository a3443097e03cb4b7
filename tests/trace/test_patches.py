"""Equivalents that the user gives for native calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.ndimage
import scipy.signal
import torch

import leapp
from leapp import _api, annotate, errors

B, A = scipy.signal.butter(1, 0.3)


def filtered(b, a, x):
    """``scipy.signal.lfilter`` of first order, as a difference equation."""
    out, before, last = [], 0.0, 0.0
    for value in x:
        last = (b[0] * value + b[1] * before - a[1] * last) / a[0]
        before = value
        out.append(last)
    return np.array(out)


def node(x):
    return scipy.signal.lfilter(B, A, x) * 2


def test_a_native_call_gets_a_recorded_equivalent(tmp_path):
    original = scipy.signal.lfilter
    first, fresh = np.random.default_rng(0).standard_normal((2, 5))
    leapp.start("p", tmp_path, patching=[leapp.FunctionPatch(scipy.signal, "lfilter", filtered)])
    assert np.array_equal(node(first), original(B, A, first) * 2)  # nothing traced: the original
    x = annotate.input_tensors("n", {"x": first})
    y = annotate.output_tensors("n", {"y": node(x)}, export_with="torchscript")
    leapp.stop()
    assert scipy.signal.lfilter is original
    np.testing.assert_allclose(y, node(first))
    assert leapp.compile_graph() == {"n": True}
    model = torch.jit.load(tmp_path / "p" / "nodes" / "n" / "n.pt")
    np.testing.assert_allclose(model(torch.from_numpy(fresh)).numpy(), node(fresh))


def test_the_original_is_there_inside_the_replacement_and_after_an_error(tmp_path):
    def doubled(x):
        return torch.from_numpy(np.asarray(scipy.ndimage.gaussian_filter(np.ones(3), 1.0))) * x

    original = scipy.ndimage.gaussian_filter
    patch = leapp.FunctionPatch("scipy.ndimage", "gaussian_filter", doubled)
    leapp.start("p", tmp_path, patching=[patch], dry_run=True)
    x = annotate.input_tensors("n", {"x": torch.ones(3, dtype=torch.float64)})
    annotate.output_tensors("n", {"y": scipy.ndimage.gaussian_filter(x)})
    annotate.input_tensors("m", {"x": torch.ones(3)})
    leapp.stop()
    assert scipy.ndimage.gaussian_filter is original
    targets = [each.name for each in _api._process.stopped.completed[0].recordings[0].graph.graph.nodes]
    assert "mul" in targets


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("leapp_no_such_module", "f", len), "import it first"),
        ((math, "no_such_function", len), "is no function"),
        ((math, "pi", len), "is no function"),
        ((math, "sqrt", 3), "cannot be called"),
    ],
)
def test_patches_that_cannot_be(arguments, why):
    with pytest.raises(errors.OptionError, match=why):
        leapp.FunctionPatch(*arguments)


def test_patching_takes_patches_alone(tmp_path):
    with pytest.raises(errors.OptionError, match=r"leapp\.FunctionPatch"):
        leapp.start("p", tmp_path, patching=[(math, "sqrt", len)])
