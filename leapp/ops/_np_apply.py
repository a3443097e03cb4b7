"""NumPy's ufuncs for twins that are compositions: the torch functions of their rows, with NumPy's own promotion."""

from __future__ import annotations

from typing import Any

import numpy as np

from leapp.ops._np_row import Op
from leapp.ops.numpy_ufuncs import ROWS, ufunc_twin


def applied(ufunc: np.ufunc, *operands: Any) -> Any:
    """What a ufunc gives for tensors, arrays, NumPy scalars and Python numbers, at least one of them a tensor."""
    row = ROWS[ufunc]
    assert isinstance(row, Op)
    return ufunc_twin(row, operands, {})


def add(a: Any, b: Any) -> Any:
    """``a + b`` in NumPy."""
    return applied(np.add, a, b)


def subtract(a: Any, b: Any) -> Any:
    """``a - b`` in NumPy."""
    return applied(np.subtract, a, b)


def multiply(a: Any, b: Any) -> Any:
    """``a * b`` in NumPy."""
    return applied(np.multiply, a, b)


def divide(a: Any, b: Any) -> Any:
    """``a / b`` in NumPy."""
    return applied(np.divide, a, b)
