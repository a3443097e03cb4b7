"""Twins of ``x[index]`` and ``x[index] = value``: where torch's indexing differs from NumPy's, in NumPy's way."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np
import torch

from leapp.ops._np_row import Unsupported
from leapp.ops._np_twin import cast, is_tensor, numpy_dtype, shape_of, tensor, torch_dtype


def getitem(x: Any, index: Any) -> Any:
    """``x[index]`` with every kind of index that NumPy takes."""
    parts, reverse = _parts(x, index)
    if not reverse:
        return operator.getitem(x, _spelled(parts, index))
    # Torch has no negative steps: the same elements in their own order, then turned round.
    forward = tuple(part if place in reverse else slice(None) for place, part in enumerate(parts) if part is not None)
    turned = torch.flip(operator.getitem(x, forward), _dims(parts, reverse))
    rest = tuple(slice(None) if place in reverse else part for place, part in enumerate(parts))
    return turned if all(map(_takes_all, rest)) else operator.getitem(turned, rest)


def setitem(x: Any, index: Any, value: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Index and value of the torch assignment that is ``x[index] = value``; ``shape`` is that of ``x[index]``."""
    parts, reverse = _parts(x, index)
    if not is_tensor(value) and np.ndim(value) == 0:
        value = np.asarray(value).astype(numpy_dtype(x.dtype)).item()
    elif is_tensor(value) or np.ndim(value):
        value = cast(tensor(value), x.dtype)
    if reverse:
        if any(is_tensor(part) for part in parts):
            raise Unsupported("a negative step beside an index array is written to")
        if is_tensor(value):
            surplus = value.ndim - len(shape)
            if surplus > 0:
                value = value.reshape(shape_of(value)[surplus:])
            dims = _result_dims(parts, reverse)
            value = torch.flip(value.expand(shape), dims)
    return _spelled(parts, index), value


def _spelled(parts: tuple[Any, ...], index: Any) -> Any:
    """A single index as itself, as the user wrote it; several as a tuple."""
    if isinstance(index, tuple):
        return parts
    return parts[0] if len(parts) == 1 else parts


def _parts(x: Any, index: Any) -> tuple[tuple[Any, ...], frozenset[int]]:
    """The index as torch takes it, and the places of slices that ran backwards and are given forwards."""
    given = index if isinstance(index, tuple) else (index,)
    arrays = [_converted(part) for part in given]
    wide = any(is_tensor(part) and part.ndim for part in arrays)
    used = sum(_consumed(part) for part in arrays)
    axis = 0
    parts: list[Any] = []
    reverse: set[int] = set()
    for part in arrays:
        if part is Ellipsis:
            parts.append(part)
            axis += x.ndim - used
            continue
        if isinstance(part, slice):
            part, backwards = _forward(part, shape_of(x)[axis])  # noqa: PLW2901 - the same slice, run forwards
            if backwards:
                reverse.add(len(parts))
        elif wide and isinstance(part, int):
            # NumPy counts a number beside index arrays as one of them.
            part = tensor(np.array([part]))  # noqa: PLW2901 - the same index
        elif wide and is_tensor(part) and not part.ndim and part.dtype != torch.bool:
            part = part.reshape((1,))  # noqa: PLW2901 - the same index
        parts.append(part)
        axis += _consumed(part)
    if reverse and Ellipsis in [each for each in parts if not is_tensor(each)]:
        place = next(i for i, each in enumerate(parts) if each is Ellipsis)
        filled = [slice(None)] * (x.ndim - used)
        moved = {each if each < place else each - 1 + len(filled) for each in reverse}
        parts[place : place + 1] = filled
        reverse = moved
    return tuple(parts), frozenset(reverse)


def _takes_all(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def _consumed(part: Any) -> int:
    """How many axes one part of an index stands for."""
    if part is None or part is Ellipsis:
        return 0
    if is_tensor(part) and part.dtype == torch.bool:
        return int(part.ndim)
    return 1


def _converted(part: Any) -> Any:
    if part is None or part is Ellipsis:
        return part
    if isinstance(part, slice):
        if any(is_tensor(each) for each in (part.start, part.stop, part.step)):
            raise Unsupported("the bounds of a slice follow the data")
        return slice(*(None if each is None else operator.index(each) for each in (part.start, part.stop, part.step)))
    if isinstance(part, (bool, np.bool_)):
        raise Unsupported("a truth value as an index adds an axis")
    if isinstance(part, (int, np.integer)) or (isinstance(part, np.ndarray) and not part.ndim):
        if isinstance(part, np.ndarray) and part.dtype.kind == "b":
            raise Unsupported("a truth value as an index adds an axis")
        return operator.index(part)
    if isinstance(part, list) and not part:
        part = np.zeros(0, np.int64)
    made = tensor(part)
    if made.dtype == torch.bool:
        if not made.ndim:
            raise Unsupported("a truth value as an index adds an axis")
        return made
    return cast(made, torch.int64)


def _forward(part: slice, length: int) -> tuple[slice, bool]:
    """The slice itself, or the one that gives the same elements in rising order."""
    if part.step is None or part.step > 0:
        return part, False
    if part == slice(None, None, -1):
        return slice(None), True
    run = range(*part.indices(length))
    if not run:
        return slice(0, 0), True
    return slice(run[-1], run[0] + 1, -part.step if part.step != -1 else None), True


def _dims(parts: tuple[Any, ...], reverse: frozenset[int]) -> tuple[int, ...]:
    """The axes of ``x`` that the turned slices stand for."""
    dims, axis = [], 0
    for place, part in enumerate(parts):
        if place in reverse:
            dims.append(axis)
        axis += _consumed(part)
    return tuple(dims)


def _result_dims(parts: tuple[Any, ...], reverse: frozenset[int]) -> tuple[int, ...]:
    """The axes of ``x[index]`` that the turned slices stand for."""
    dims, axis = [], 0
    for place, part in enumerate(parts):
        if place in reverse:
            dims.append(axis)
        axis += 1 if part is None or isinstance(part, slice) else 0
    return tuple(dims)


def astype(x: Any, dtype: Any) -> Any:
    """``x.astype(dtype)``: complex numbers lose their imaginary part, floats their fraction."""
    return cast(tensor(x), torch_dtype(dtype))


def view(x: Any, dtype: Any = None, type: Any = None) -> Any:
    """``x.view(dtype)``: the same bits; ``x.view(np.ndarray)``: the same array."""
    if type is None and isinstance(dtype, builtins.type) and issubclass(dtype, np.ndarray):
        dtype = None
    if dtype is None or torch_dtype(dtype) == x.dtype:
        return x
    return x.view(torch_dtype(dtype))
