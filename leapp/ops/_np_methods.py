"""Twins of the methods of ufuncs: ``reduce``, ``accumulate``, ``reduceat``, ``outer`` and ``at``.

Sums, products, extremes and truths go by the twins of ``np.sum`` and its like. What torch has no reduction for is
folded: halves of the axis are combined until one element is left, or, where the order matters, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops import numpy_reductions
from leapp.ops._np_checks import EXACT, Accumulated, terms_of
from leapp.ops._np_loops import ufunc_twin
from leapp.ops._np_row import Op, Unsupported
from leapp.ops._np_twin import (
    axes,
    cast,
    holds_tensor,
    is_tensor,
    not_given,
    number,
    numpy_dtype,
    ordered,
    reordered,
    shape_of,
    tensor,
    torch_dtype,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leapp.ops._np_checks import Check

MOST_STEPS: Final = 256
"""Longest axis along which elements are taken one after the other: each is a call in the graph."""

_TWINS: Final[dict[str, Any]] = {
    row.numpy.__name__: row.twin for group in numpy_reductions.GROUPS for row in group.rows if isinstance(row, Op)
}
"""By name, as functions of NumPy's are wrapped while a session runs."""
_NONE: Final[Any] = np._NoValue

_IN_ANY_ORDER: Final = frozenset({
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.logical_and, np.logical_or, np.logical_xor, np.gcd, np.lcm,
    np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot,
})  # fmt: skip
_UNSTEADY: Final = frozenset({np.power, np.arctan2})
_OF_TRUTHS: Final = frozenset({np.logical_and, np.logical_or, np.logical_xor})
_CHOOSING: Final = _IN_ANY_ORDER - {np.logaddexp, np.logaddexp2, np.hypot}


def method_twin(row: Op, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a call of a ufunc's method gives; for ``at``, what the array holds afterwards. Raises Unsupported.

    ``out`` among the keywords is not looked at: the result is what is written there.
    """
    if row.numpy in _UNSTEADY and method in {"reduce", "accumulate", "reduceat"}:
        raise Unsupported("NumPy leaves elements out on processors with wide vectors")
    named = {name: each for name, each in kwargs.items() if name != "out"}
    return _METHODS[method](row, *args, **named)


def method_check(row: Op, method: str) -> Check:
    """How near the twin of a method comes to NumPy."""
    if method == "outer":
        return row.check
    if row.numpy in _CHOOSING:
        return EXACT
    factor = 2 if row.numpy in {np.add, np.subtract, np.multiply} else 8
    sizes = getattr(np.add, method) if row.numpy is np.subtract else None
    return Accumulated(factor, terms_of if method == "reduce" else _at_most, sizes)


def _at_most(args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: Any) -> float:
    """Number of terms of a running sum, or of one at repeated indices, at most."""
    del kwargs, expected
    indices = [each for given in args[1:] for each in (given if isinstance(given, tuple) else (given,))]
    counts = [np.size(each) for each in indices if isinstance(each, (np.ndarray, list))]
    return float(max(1, *np.shape(args[0]), *counts))


def _result_dtype(row: Op, x: Any, dtype: Any) -> torch.dtype:
    """The dtype that a method of NumPy's runs in, and gives."""
    given = numpy_dtype(x.dtype)
    asked: Any = {} if dtype is None else {"signature": (np.dtype(dtype), None, None)}
    ufunc: Any = row.numpy
    return torch_dtype(ufunc.resolve_dtypes((None, given, None), reduction=True, **asked)[-1])


# Reductions


def _reduce(
    row: Op,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = _NONE,
    where: Any = True,
) -> Any:
    del out
    x = tensor(array)
    initial = _NONE if initial is None else initial
    axis = None if x.ndim == 0 else number(axis, "axis")
    if axis is not None and set(axes(axis, x.ndim)) == set(range(x.ndim)):
        axis = None
    dtype = None if dtype is None else number(dtype, "dtype")
    ufunc = row.numpy
    if ufunc in {np.add, np.multiply}:
        twin = _TWINS["sum" if ufunc is np.add else "prod"]
        return twin(x, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
    result = _result_dtype(row, x, dtype)
    if ufunc in {np.logical_and, np.logical_or} and not_given(initial):
        twin = _TWINS["all" if ufunc is np.logical_and else "any"]
        return cast(twin(x, axis=axis, keepdims=keepdims, where=where), result)
    x = cast(x, result)
    if ufunc in _EXTREMES and not x.dtype.is_complex:
        if ufunc in {np.fmax, np.fmin} and x.dtype.is_floating_point:
            return _known_extreme(ufunc, x, axis, keepdims, initial, where)
        twin = _TWINS[_EXTREMES[ufunc]]
        return twin(x, axis=axis, keepdims=keepdims, initial=initial, where=where)
    return _folded(row, x, axes(axis, x.ndim), keepdims, initial, where)


_EXTREMES: Final[dict[Any, str]] = {np.maximum: "max", np.minimum: "min", np.fmax: "max", np.fmin: "min"}


def _known_extreme(ufunc: Any, x: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    """An extreme of what is no NaN; NaN where there is nothing else."""
    worst = -torch.inf if ufunc is np.fmax else torch.inf
    missing = torch.isnan(x)
    filled = torch.where(missing, worst, x)
    if not not_given(initial):
        missing_start = not is_tensor(initial) and bool(np.isnan(initial))
        start = worst if missing_start else initial
        found = _TWINS[_EXTREMES[ufunc]](filled, axis=axis, keepdims=keepdims, initial=start, where=where)
        return _nan_where_all(found, missing, axis, keepdims, where) if missing_start else found
    found = _TWINS[_EXTREMES[ufunc]](filled, axis=axis, keepdims=keepdims)
    return _nan_where_all(found, missing, axis, keepdims, where)


def _nan_where_all(found: Any, missing: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    return torch.where(_TWINS["all"](missing, axis=axis, keepdims=keepdims, where=where), torch.nan, found)


def _lined_up(x: Any, along: tuple[int, ...]) -> tuple[Any, list[int]]:
    """The tensor with some axes made one, in front; and the lengths of the others."""
    sizes = shape_of(x)
    rest = [size for each, size in enumerate(sizes) if each not in along]
    if along != tuple(range(len(along))):
        x = torch.movedim(x, along, tuple(range(len(along))))
    if len(along) == 1:
        return x, rest
    return x.reshape((int(np.prod([sizes[each] for each in along])), *rest)), rest


def _folded(row: Op, x: Any, along: tuple[int, ...], keepdims: Any, initial: Any, where: Any) -> Any:
    """A reduction by calls of the ufunc itself."""
    ufunc: np.ufunc = row.numpy  # type: ignore[assignment]
    shape = shape_of(x)
    identity = ufunc.identity
    if where is not True:
        if not_given(initial) and identity is None:
            raise Unsupported(f"{ufunc.__name__} has nothing to put where the mask is False")
        if ufunc not in _IN_ANY_ORDER:
            raise Unsupported(f"{ufunc.__name__}.reduce takes no mask here")
        fill = identity if identity is not None else initial
        x = torch.where(tensor(where, torch.bool), x, tensor(np.asarray(fill), x.dtype))
    lined, rest = _lined_up(x, along)
    count = shape_of(lined)[0]
    if not not_given(initial):
        start = tensor(initial, x.dtype).expand((1, *rest))
        lined, count = torch.cat([start, lined]), count + 1
    if count == 0:
        found = torch.full(rest, identity, dtype=x.dtype)
    elif ufunc in _IN_ANY_ORDER:
        found = _halved(row, lined, count)
    else:
        found = _one_by_one(row, lined, count)[-1]
    if keepdims:
        return found.reshape(tuple(1 if each in along else size for each, size in enumerate(shape)))
    return found


def _combined(row: Op, one: Any, other: Any, dtype: torch.dtype) -> Any:
    return cast(ufunc_twin(row, (one, other), {}), dtype)


def _halved(row: Op, x: Any, count: int) -> Any:
    """All along the first axis combined, in any order."""
    while count > 1:
        half = count // 2
        pairs = _combined(row, x[:half], x[half : 2 * half], x.dtype)
        x = torch.cat([pairs, x[2 * half :]]) if count % 2 else pairs
        count -= half
    return x[0]


def _one_by_one(row: Op, x: Any, count: int) -> list[Any]:
    """What is combined so far, at each place of the first axis."""
    if count > MOST_STEPS:
        raise Unsupported(f"{row.numpy.__name__} along more than {MOST_STEPS} elements")
    found = [x[0]]
    for place in range(1, count):
        found.append(_combined(row, found[-1], x[place], x.dtype))
    return found


# Running results


def _accumulate(row: Op, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    del out
    x = tensor(array)
    axis = number(axis, "axis") % x.ndim
    ufunc = row.numpy
    dtype = None if dtype is None else number(dtype, "dtype")
    if ufunc in {np.add, np.multiply}:
        result = numpy_dtype(_result_dtype(row, x, dtype))
        return _TWINS["cumsum" if ufunc is np.add else "cumprod"](x, axis=axis, dtype=result)
    x = cast(x, _result_dtype(row, x, dtype))
    if ufunc in _RUNNING and not x.dtype.is_complex:
        return reordered(_RUNNING[ufunc](ordered(x), axis)[0], x.dtype)
    lined, _ = _lined_up(x, (axis,))
    if shape_of(lined)[0] == 0:
        return torch.clone(x)
    return torch.stack(_one_by_one(row, lined, shape_of(lined)[0]), axis)


_RUNNING: Final[dict[Any, Callable[..., Any]]] = {
    np.maximum: torch.cummax,
    np.minimum: torch.cummin,
    np.logical_or: torch.cummax,
    np.logical_and: torch.cummin,
}


def _reduceat(row: Op, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    del out
    x = tensor(array)
    axis = number(axis, "axis") % x.ndim
    starts = [int(each) for each in number(indices, "indices")]
    if len(starts) > MOST_STEPS:
        raise Unsupported(f"{row.numpy.__name__}.reduceat of more than {MOST_STEPS} parts")
    if row.numpy not in {np.add, np.multiply, *_OF_TRUTHS} and _result_dtype(row, x, dtype) != x.dtype:
        raise Unsupported("NumPy loses elements where reduceat casts")
    size = shape_of(x)[axis]
    parts = []
    for start, end in zip(starts, [*starts[1:], size], strict=True):
        part = x[(slice(None),) * axis + (slice(start, end if end > start else start + 1),)]
        parts.append(_reduce(row, part, axis, dtype))
    return torch.stack(parts, axis)


# Pairs


def _outer(row: Op, a: Any, b: Any, **kwargs: Any) -> Any:
    """Every element with every other; numbers are arrays here, and strong."""
    a, b = (np.asarray(each)[()] if _is_number(each) else tensor(each) for each in (a, b))
    if a.ndim and b.ndim:
        a = a.reshape((*shape_of(a), *(1,) * b.ndim))
    return ufunc_twin(row, (a, b), kwargs)


def _is_number(thing: Any) -> bool:
    return not is_tensor(thing) and not isinstance(thing, (np.ndarray, list, tuple))


# Writes at indices


def _at(row: Op, a: Any, indices: Any, b: Any = None) -> Any:
    x = tensor(a)
    ufunc = row.numpy
    picked = indices if isinstance(indices, tuple) else (indices,)
    b = tensor(b) if isinstance(b, (list, tuple, np.ndarray)) else b
    if not _repeats(ufunc, x.dtype) or b is None:
        return _at_once(row, x, picked, b)
    if x.dtype is torch.uint64 and (_is_number(b) or b.dtype not in _UNSIGNED):
        raise Unsupported("NumPy adds signed numbers to uint64 in float64 here")
    prepare = ordered if ufunc in _EXTREMES else _as_integers
    base = prepare(x)
    values = cast(tensor(np.asarray(b, numpy_dtype(x.dtype)) if _is_number(b) else b), x.dtype)
    values = torch.neg(prepare(values)) if ufunc is np.subtract else prepare(values)
    if ufunc not in _SCATTERED and all(_is_index_array(each) for each in picked):
        where = tuple(_index_array(each) for each in picked)
        return cast(torch.index_put(base, where, values, accumulate=True), x.dtype)
    places = _places(x, picked)
    values = values.expand(shape_of(places)).reshape((-1,))
    base, places = base.reshape((-1,)), places.reshape((-1,))
    if ufunc in _SCATTERED:
        found = torch.scatter_reduce(base, 0, places, values, _SCATTERED[ufunc])
    else:
        found = torch.index_put(base, (places,), values, accumulate=True)
    found = found.reshape(shape_of(x))
    return reordered(found, x.dtype) if ufunc in _EXTREMES else cast(found, x.dtype)


def _repeats(ufunc: Any, dtype: torch.dtype) -> bool:
    """Whether torch applies a ufunc as often as an index is repeated."""
    if ufunc in {np.add, np.subtract}:
        return dtype is not torch.bool
    if ufunc in {np.fmax, np.fmin} and dtype.is_floating_point:
        return False
    return ufunc in _SCATTERED and dtype is not torch.bool and not dtype.is_complex


_SCATTERED: Final[dict[Any, str]] = {
    np.multiply: "prod",
    np.maximum: "amax",
    np.minimum: "amin",
    np.fmax: "amax",
    np.fmin: "amin",
}


_UNSIGNED: Final = frozenset({torch.uint8, torch.uint16, torch.uint32, torch.uint64})


def _as_integers(x: Any) -> Any:
    """Unsigned integers that torch does not add, as int64."""
    return cast(x, torch.int64) if x.dtype in {torch.uint16, torch.uint32, torch.uint64} else x


def _is_index_array(index: Any) -> bool:
    return is_tensor(index) or isinstance(index, (np.ndarray, list))


def _index_array(index: Any) -> Any:
    made = tensor(np.asarray(index) if isinstance(index, list) and not holds_tensor(index) else index)
    return made if made.dtype in {torch.bool, torch.int64} else cast(made, torch.int64)


def _places(x: Any, picked: tuple[Any, ...]) -> Any:
    """Places of the elements that an index picks, in the flattened array."""
    sizes = shape_of(x)
    every = np.arange(int(np.prod(sizes))).reshape(sizes)
    if not holds_tensor(picked):
        return tensor(np.array(every[picked]))
    return tensor(every)[tuple(_index_array(each) if _is_index_array(each) else each for each in picked)]


def _at_once(row: Op, x: Any, picked: tuple[Any, ...], b: Any) -> Any:
    """Any ufunc, for indices that are known and of which none is repeated."""
    if holds_tensor(picked):
        raise Unsupported(f"whether {row.numpy.__name__}.at applies twice follows the data")
    places = _places(x, picked)
    flat_places = np.arange(int(np.prod(shape_of(x)))).reshape(shape_of(x))[picked]
    if np.unique(flat_places).size != flat_places.size:
        raise Unsupported(f"torch has no {row.numpy.__name__}.at for repeated indices")
    chosen = x.reshape((-1,))[places]
    operands = (chosen,) if b is None else (chosen, b)
    made = cast(ufunc_twin(row, operands, {}), x.dtype)
    flat = torch.index_put(x.reshape((-1,)), (places.reshape((-1,)),), made.reshape((-1,)))
    return flat.reshape(shape_of(x))


_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "reduce": _reduce,
    "accumulate": _accumulate,
    "reduceat": _reduceat,
    "outer": _outer,
    "at": _at,
}
