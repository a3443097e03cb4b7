"""Twins of ufuncs give, on plain tensors, what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leapp.ops.numpy_ufuncs import ROWS, ufunc_twin

X = np.array([-2.5, -0.5, 0.25, 0.75, 3.0], np.float32)


@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.multiply, np.divide, np.less], ids=lambda u: u.__name__)
@pytest.mark.parametrize(
    "other", [2, 2.5, np.float32(3), np.float64(3), X, X.astype(np.float64), np.arange(1, 6)], ids=str
)
def test_promotes_as_numpy_does(ufunc, other):
    for operands in ((X, other), (other, X)):
        expected = ufunc(*operands)
        actual = ufunc_twin(ROWS[ufunc], [torch.from_numpy(each) if each is X else each for each in operands], {})
        np.testing.assert_array_equal(actual.numpy(), expected, strict=True)
