"""Sums, extremes, means and running totals over the axes of arrays.

NumPy adds small integers up in 64 bits, signed or unsigned; it takes the mean of integers in float64 and that of
float16 in float32. Torch does the first for signed results only and none of the others, so the dtypes are spelt out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import torch

from leapp.ops._np_checks import EXACT, Accumulated, terms_of
from leapp.ops._np_row import Group, Op, Unsupported
from leapp.ops._np_twin import (
    LONG_UNSIGNED,
    axes,
    cast,
    is_tensor,
    is_whole,
    not_given,
    number,
    numpy_dtype,
    ordered,
    reordered,
    shape_of,
    tensor,
    torch_dtype,
    widened,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_NONE: Final[Any] = np._NoValue
_UNSIGNED: Final = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def _over(x: Any, axis: Any, keepdims: Any) -> tuple[Any, dict[str, Any]]:
    """The tensor to reduce, and the keywords ``dim`` and ``keepdim`` that differ from torch's defaults."""
    axis = number(axis, "axis")
    if axis == ():  # NumPy: over no axis; torch: over all of them
        return x[None], {"dim": 0}
    words: dict[str, Any] = {}
    keeps = not not_given(keepdims) and bool(keepdims)
    if axis is not None:
        words["dim"] = axis
    elif keeps:
        words["dim"] = tuple(range(x.ndim))
    if keeps:
        words["keepdim"] = True
    return x, words


def _total_dtype(x: Any, dtype: Any) -> torch.dtype:
    """The dtype that NumPy adds and multiplies up in."""
    if dtype is not None:
        return torch_dtype(dtype)
    if x.dtype in _UNSIGNED:
        return torch.uint64
    return torch.int64 if is_whole(x.dtype) else x.dtype


def _masked(x: Any, where: Any, fill: Any) -> Any:
    """The tensor, with a number where it is not to be looked at."""
    if not_given(where) or where is True:
        return x
    return torch.where(tensor(where, torch.bool), x, fill)


def _start(initial: Any, dtype: torch.dtype) -> Any:
    """The value that a reduction starts from, in the dtype that it runs in."""
    if is_tensor(initial):
        return cast(initial, dtype)
    return np.asarray(initial).astype(numpy_dtype(dtype)).item()


def _fold(
    torch_function: Callable[..., Any],
    x: Any,
    axis: Any,
    keepdims: Any,
    dtype: torch.dtype,
) -> Any:
    """A sum or a product in one dtype; unsigned ones are taken in int64, whose bits are the same."""
    work = torch.int64 if dtype in LONG_UNSIGNED else dtype
    x, words = _over(x, axis, keepdims)
    if x.dtype.is_complex and not work.is_complex:
        x = torch.real(x)
    if work != (torch.int64 if is_whole(x.dtype) else x.dtype):
        words["dtype"] = work
    if torch_function is torch.prod and isinstance(words.get("dim"), tuple):
        dims = sorted((each % x.ndim for each in words.pop("dim")), reverse=True)
        x = cast(x, work)
        for each in dims:
            x = torch.prod(x, dim=each, **words)
        return x
    return torch_function(x, **words)


def _sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    x = tensor(a)
    dtype = _total_dtype(x, dtype)
    if dtype == torch.bool:
        found = _any(x, axis=axis, keepdims=keepdims, where=where)
        return found if not_given(initial) else found | tensor(initial, torch.bool)
    total = _fold(torch.sum, _masked(x, where, 0), axis, keepdims, dtype)
    if not not_given(initial):
        total = total + _start(initial, total.dtype)
    return cast(total, dtype)


def _prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    x = tensor(a)
    dtype = _total_dtype(x, dtype)
    if dtype == torch.bool:
        found = _all(x, axis=axis, keepdims=keepdims, where=where)
        return found if not_given(initial) else found & tensor(initial, torch.bool)
    # NumPy multiplies float16 in float32 and rounds once: what overflows on the way may come back.
    computed = torch.float32 if dtype == torch.float16 else dtype
    product = _fold(torch.prod, _masked(x, where, 1), axis, keepdims, computed)
    if not not_given(initial):
        product = product * _start(initial, product.dtype)
    return cast(product, dtype)


def _in_rows(x: Any, axis: Any, keepdims: Any) -> tuple[Any, tuple[int, ...]]:
    """The tensor with what is reduced along one last axis, and the shape of the result."""
    sizes, reduced = shape_of(x), axes(axis, x.ndim)
    kept = [each for each in range(x.ndim) if each not in reduced]
    rows = torch.permute(x, (*kept, *reduced)) if x.ndim > 1 else x
    rows = rows.reshape((*(sizes[each] for each in kept), math.prod(sizes[each] for each in reduced)))
    if not_given(keepdims) or not keepdims:
        return rows, tuple(sizes[each] for each in kept)
    return rows, tuple(1 if each in reduced else size for each, size in enumerate(sizes))


def _first_complex(rows: Any, *, largest: bool) -> Any:
    """Place of the first extreme complex number of each row: by real, then by imaginary part; a NaN in either wins."""
    real, imag = torch.real(rows), torch.imag(rows)
    if not largest:
        real, imag = -real, -imag
    hidden = torch.isnan(real) | torch.isnan(imag)
    leading = (real == torch.amax(torch.where(hidden, -math.inf, real), -1, True)) & ~hidden
    leading = leading & (imag == torch.amax(torch.where(leading, imag, -math.inf), -1, True))
    leading = torch.where(torch.any(hidden, -1, True), hidden, leading)
    return torch.argmax(leading.to(torch.uint8), -1)


def _extreme(
    torch_function: Callable[..., Any],
    a: Any,
    axis: Any,
    keepdims: Any,
    initial: Any,
    where: Any,
) -> Any:
    """Largest or smallest elements; a NaN wins, in torch as in NumPy."""
    x = tensor(a)
    dtype = x.dtype
    if dtype.is_complex:
        if not not_given(initial):
            raise Unsupported("torch has no order of complex numbers to start from a value with")
        rows, shape = _in_rows(x, axis, keepdims)
        place = _first_complex(rows, largest=torch_function is torch.amax)
        return torch.take_along_dim(rows, place[..., None], -1).reshape(shape)
    if not not_given(initial):
        start = _start(initial, dtype)
        _, words = _over(x, axis, keepdims)
        dims = words.get("dim", tuple(range(x.ndim)))
        if any(x.shape[each] == 0 for each in (dims if isinstance(dims, tuple) else (dims,))) and x.ndim:
            return _sum(x, axis, numpy_dtype(dtype), None, keepdims, start)
        x = _masked(x, where, start)
        pick = torch.maximum if torch_function is torch.amax else torch.minimum
    x, words = _over(ordered(x), axis, keepdims)
    found = torch_function(x, **words)
    if not not_given(initial):
        found = pick(found, ordered(tensor(start, dtype)))
    return reordered(found, dtype)


def _max(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    return _extreme(torch.amax, a, axis, keepdims, initial, where)


def _min(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    return _extreme(torch.amin, a, axis, keepdims, initial, where)


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NONE) -> Any:
    x = tensor(a)
    largest, smallest = _max(x, axis, keepdims=keepdims), _min(x, axis, keepdims=keepdims)
    if x.dtype in LONG_UNSIGNED:
        return cast(largest.to(torch.int64) - smallest.to(torch.int64), x.dtype)
    return largest - smallest


def _place(torch_function: Callable[..., Any], a: Any, axis: Any, keepdims: Any) -> Any:
    """Place of the first extreme element, or of the first NaN."""
    x = tensor(a)
    if x.dtype.is_complex:
        rows, shape = _in_rows(x, axis, keepdims)
        return _first_complex(rows, largest=torch_function is torch.argmax).reshape(shape)
    words: dict[str, Any] = {}
    if axis is not None:
        words["dim"] = number(axis, "axis")
    if not not_given(keepdims) and keepdims:
        words["keepdim"] = True
    return torch_function(ordered(x), **words)


def _argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _NONE) -> Any:
    return _place(torch.argmax, a, axis, keepdims)


def _argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _NONE) -> Any:
    return _place(torch.argmin, a, axis, keepdims)


def _truth(x: Any) -> Any:
    """Whether elements are other than zero, as bools."""
    return cast(x, torch.bool)


def _all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NONE, *, where: Any = _NONE) -> Any:
    x, words = _over(_masked(_truth(tensor(a)), where, True), axis, keepdims)
    return torch.all(x, **words)


def _any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _NONE, *, where: Any = _NONE) -> Any:
    x, words = _over(_masked(_truth(tensor(a)), where, False), axis, keepdims)
    return torch.any(x, **words)


def _count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    x, words = _over(tensor(a), axis, keepdims)
    if "keepdim" in words:
        return torch.sum(_truth(x), **words)
    return torch.count_nonzero(widened(x), **words)


def _work_dtype(x: Any, dtype: Any) -> tuple[torch.dtype, torch.dtype]:
    """The dtype that a mean is taken in, and that of the result."""
    given = torch_dtype(dtype) if dtype is not None else torch.float64 if is_whole(x.dtype) else x.dtype
    return (torch.float32 if given == torch.float16 else given), given


def _count(x: Any, axis: Any, keepdims: Any, where: Any) -> Any:
    """How many elements go into each one of the result: a number, or a tensor where a mask says so."""
    if not_given(where) or where is True:
        dims = number(axis, "axis")
        sizes = shape_of(x)
        if dims is None:
            return math.prod(sizes)
        return math.prod(sizes[each] for each in (dims if isinstance(dims, tuple) else (dims,))) if sizes else 1
    return _sum(tensor(where, torch.bool).expand(shape_of(x)), axis, keepdims=keepdims)


def _mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _NONE, *, where: Any = _NONE
) -> Any:
    x = tensor(a)
    work, result = _work_dtype(x, dtype)
    if not (not_given(where) or where is True) or is_whole(work):
        total = _sum(x, axis, dtype=numpy_dtype(work), keepdims=keepdims, where=where)
        return cast(total / _count(x, axis, keepdims, where), result)
    x, words = _over(cast(x, work), axis, keepdims)  # ONNX has no mean of one dtype in another
    return cast(torch.mean(x, **words), result)


def _square(x: Any) -> Any:
    """Squares of the absolute values."""
    if x.dtype.is_complex:
        real, imag = torch.real(x), torch.imag(x)
        return real * real + imag * imag
    return x * x


def _spread(
    torch_function: Callable[..., Any],
    a: Any,
    axis: Any,
    dtype: Any,
    ddof: Any,
    keepdims: Any,
    where: Any,
    mean: Any,
    correction: Any,
) -> Any:
    """Variance or standard deviation; NumPy divides by N, torch by N - 1 unless it is told."""
    x = tensor(a)
    less = number(ddof if not_given(correction) else correction, "ddof")
    work, result = _work_dtype(x, dtype)
    result = result.to_real()
    if not_given(where) and not_given(mean) and _count(x, axis, keepdims, where) > less:  # else torch warns
        y, words = _over(cast(x, work), axis, keepdims)
        return cast(torch_function(y, correction=less, **words), result)
    spread = _variance(cast(x, work), axis, keepdims, where, mean, less)
    return cast(torch.sqrt(spread) if torch_function is torch.std else spread, result)


def _variance(x: Any, axis: Any, keepdims: Any, where: Any, mean: Any, less: Any) -> Any:
    """Variance about a given mean or of chosen elements."""
    centre = _mean(x, axis, keepdims=True, where=where) if not_given(mean) else tensor(mean)
    squares = _square(x - centre)
    total = _sum(squares, axis, keepdims=keepdims, where=where)
    count = tensor(_count(x, axis, keepdims, where), total.dtype)
    return total / torch.clamp(count - less, min=0)


def _var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _NONE,
    *,
    where: Any = _NONE,
    mean: Any = _NONE,
    correction: Any = _NONE,
) -> Any:
    return _spread(torch.var, a, axis, dtype, ddof, keepdims, where, mean, correction)


def _std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _NONE,
    *,
    where: Any = _NONE,
    mean: Any = _NONE,
    correction: Any = _NONE,
) -> Any:
    return _spread(torch.std, a, axis, dtype, ddof, keepdims, where, mean, correction)


def _average(a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *, keepdims: Any = _NONE) -> Any:
    x = tensor(a)
    axis = number(axis, "axis")
    if weights is None:
        mean = _mean(x, axis, keepdims=keepdims)
        if not returned:
            return mean
        return mean, torch.full_like(mean, _count(x, axis, keepdims, _NONE))
    w = tensor(weights)
    at_least = [numpy_dtype(torch.float64)] if is_whole(x.dtype) else []
    common = torch_dtype(np.result_type(numpy_dtype(x.dtype), numpy_dtype(w.dtype), *at_least))
    if shape_of(w) != shape_of(x):
        along = [each % x.ndim for each in (axis if isinstance(axis, tuple) else (axis,))]
        w = torch.permute(w, tuple(int(each) for each in np.argsort(along)))
        w = w.reshape(tuple(size if each in along else 1 for each, size in enumerate(shape_of(x))))
    scale = _sum(w, axis, dtype=numpy_dtype(common), keepdims=keepdims)
    weighed = _sum(cast(x, common) * cast(w, common), axis, keepdims=keepdims)
    mean = weighed / scale
    return (mean, scale.expand(shape_of(mean))) if returned else mean


def _cumulative(torch_function: Callable[..., Any], a: Any, axis: Any, dtype: Any) -> Any:
    """Running sums or products."""
    x = tensor(a)
    dtype = _total_dtype(x, dtype)
    if dtype == torch.bool:
        raise Unsupported("torch has no running totals of bools")
    axis = number(axis, "axis")
    if axis is None or x.ndim == 0:
        x, axis = (x if x.ndim == 1 else x.reshape((-1,))), 0
    work = torch.int64 if dtype in LONG_UNSIGNED else dtype
    words = {} if work == (torch.int64 if is_whole(x.dtype) else x.dtype) else {"dtype": work}
    return cast(torch_function(x, axis, **words), dtype)


def _cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _cumulative(torch.cumsum, a, axis, dtype)


def _cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _cumulative(torch.cumprod, a, axis, dtype)


def _with_first(total: Any, axis: Any, first: int) -> Any:
    """Running totals, with the one of no elements before them."""
    after = 0 if axis is None else total.ndim - 1 - axis % total.ndim
    pads = (0, 0) * (after if axis is not None else 0) + (1, 0)
    return torch.nn.functional.pad(total, pads, value=first)


def _cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: Any = False
) -> Any:
    total = _cumulative(torch.cumsum, x, axis, dtype)
    return _with_first(total, number(axis, "axis"), 0) if include_initial else total


def _cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: Any = False
) -> Any:
    total = _cumulative(torch.cumprod, x, axis, dtype)
    return _with_first(total, number(axis, "axis"), 1) if include_initial else total


def _without_nan(a: Any, fill: Any) -> Any:
    """The tensor, with a number for each NaN."""
    x = tensor(a)
    return x if is_whole(x.dtype) else torch.where(torch.isnan(x), fill, x)


def _there(x: Any, where: Any) -> Any:
    """Which elements are no NaN and are to be looked at."""
    there = ~torch.isnan(x)
    return there if not_given(where) or where is True else there & tensor(where, torch.bool)


def _nansum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    x = tensor(a)
    if x.dtype.is_floating_point and dtype is None and not_given(initial) and not_given(where):
        x, words = _over(x, axis, keepdims)
        return torch.nansum(x, **words)
    return _sum(_without_nan(x, 0), axis, dtype, None, keepdims, initial, where)


def _nanprod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    return _prod(_without_nan(a, 1), axis, dtype, None, keepdims, initial, where)


def _nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _cumsum(_without_nan(a, 0), axis, dtype)


def _nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _cumprod(_without_nan(a, 1), axis, dtype)


def _nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _NONE, *, where: Any = _NONE
) -> Any:
    x = tensor(a)
    if is_whole(x.dtype):
        return _mean(x, axis, dtype, None, keepdims, where=where)
    if x.dtype.is_complex or not not_given(where) or dtype is not None:
        there = _there(x, where)
        total = _sum(_without_nan(x, 0), axis, dtype, None, keepdims, where=where)
        return cast(total / _count(x, axis, keepdims, there), total.dtype)
    work, result = _work_dtype(x, None)
    y, words = _over(cast(x, work), axis, keepdims)
    return cast(torch.nanmean(y, **words), result)


def _nanspread(
    root: bool, a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, mean: Any, correction: Any
) -> Any:
    x = tensor(a)
    if is_whole(x.dtype):
        return _spread(torch.std if root else torch.var, x, axis, dtype, ddof, keepdims, where, mean, correction)
    less = number(ddof if not_given(correction) else correction, "ddof")
    there = _there(x, where)
    filled = _without_nan(x, 0)
    if not_given(mean):
        mean = _sum(filled, axis, dtype, None, True, where=where)
        mean = cast(mean / _count(x, axis, True, there), mean.dtype)
    squares = _square(cast(filled - tensor(mean), x.dtype))  # NumPy writes the differences into the array's own dtype
    total = _sum(squares, axis, dtype, None, keepdims, where=there)
    divisor = _count(x, axis, keepdims, there) - less
    spread = torch.where(divisor > 0, cast(total / divisor, total.dtype), math.nan)
    return torch.sqrt(spread) if root else spread


def _nanvar(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _NONE,
    *,
    where: Any = _NONE,
    mean: Any = _NONE,
    correction: Any = _NONE,
) -> Any:
    return _nanspread(False, a, axis, dtype, ddof, keepdims, where, mean, correction)


def _nanstd(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _NONE,
    *,
    where: Any = _NONE,
    mean: Any = _NONE,
    correction: Any = _NONE,
) -> Any:
    return _nanspread(True, a, axis, dtype, ddof, keepdims, where, mean, correction)


def _nanextreme(torch_function: Callable[..., Any], a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    x = tensor(a)
    if x.dtype.is_complex:
        raise Unsupported("torch has no order of complex numbers that passes over NaN")
    if is_whole(x.dtype):
        return _extreme(torch_function, x, axis, keepdims, initial, where)
    lowest = -math.inf if torch_function is torch.amax else math.inf
    found = _extreme(torch_function, _without_nan(x, lowest), axis, keepdims, initial, where)
    if not not_given(initial):
        return found
    return torch.where(_all(torch.isnan(x), axis, keepdims=keepdims), math.nan, found)


def _nanmax(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    return _nanextreme(torch.amax, a, axis, keepdims, initial, where)


def _nanmin(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = _NONE,
    initial: Any = _NONE,
    where: Any = _NONE,
) -> Any:
    return _nanextreme(torch.amin, a, axis, keepdims, initial, where)


def _nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _NONE) -> Any:
    return _argmax(_without_nan(a, -math.inf), axis, keepdims=keepdims)


def _nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _NONE) -> Any:
    return _argmin(_without_nan(a, math.inf), axis, keepdims=keepdims)


@dataclass(frozen=True, slots=True)
class _Spread:
    """As far apart as the rounding of sums over n elements lets two variances be: the mean's error counts twice.

    With m the largest element, within n eps (v + n eps m^2) for variances and n eps (s + m) for their roots.
    """

    root: bool
    whole: ClassVar[bool] = False

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        first = EXACT.wrong(expected, actual, call, args, kwargs)
        if first is None:
            return None
        values = np.abs(np.asarray(args[0] if args else kwargs["a"]))
        largest = float(np.max(values, initial=0.0, where=np.isfinite(values)))
        step = float(np.finfo(expected.dtype).eps) * terms_of(args, kwargs, expected)
        with np.errstate(all="ignore"):
            v = np.abs(expected.astype(np.float64))
            bound = 2 * step * (v + largest if self.root else v + step * largest**2)
            bad = ~(np.abs(actual.astype(np.float64) - expected) <= bound)
        bad &= (expected != actual) & ~(np.isnan(expected) & np.isnan(actual))
        return tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(bad)))[: expected.ndim] if bad.any() else None


def _elements_before(args: Any, kwargs: Any, expected: Any) -> float:
    """At most as many terms as go into one running total."""
    del args, kwargs
    return float(max((1, *expected.shape)))


_SUMMED: Final = Accumulated(2)
_RUNNING: Final = Accumulated(2, terms=_elements_before)
_VARIANCE: Final = _Spread(root=False)
_DEVIATION: Final = _Spread(root=True)

maximum_of, minimum_of, mean_of = _max, _min, _mean
"""Twins of np.max, np.min and np.mean, for twins that are made of them."""

_TOTALS = "small integers are added up in 64 bits"
_MEANS = "integers in float64; float16 in float32"

GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Reductions",
        (
            Op(np.sum, twin=_sum, check=_SUMMED, note=_TOTALS),
            Op(np.prod, twin=_prod, check=_SUMMED, note=_TOTALS),
            Op(np.mean, twin=_mean, check=_SUMMED, note=_MEANS),
            Op(np.average, twin=_average, check=Accumulated(4)),
            Op(np.var, twin=_var, check=_VARIANCE, note="NumPy divides by N, torch by N - 1"),
            Op(np.std, twin=_std, check=_DEVIATION, note="NumPy divides by N, torch by N - 1"),
            Op(np.max, twin=_max),
            Op(np.amax, twin=_max),
            Op(np.min, twin=_min),
            Op(np.amin, twin=_min),
            Op(np.ptp, twin=_ptp),
            Op(np.argmax, twin=_argmax),
            Op(np.argmin, twin=_argmin),
            Op(np.all, twin=_all),
            Op(np.any, twin=_any),
            Op(np.count_nonzero, twin=_count_nonzero),
            Op(np.cumsum, twin=_cumsum, check=_RUNNING, note=_TOTALS),
            Op(np.cumprod, twin=_cumprod, check=_RUNNING, note=_TOTALS),
            Op(np.cumulative_sum, twin=_cumulative_sum, check=_RUNNING, note=_TOTALS),
            Op(np.cumulative_prod, twin=_cumulative_prod, check=_RUNNING, note=_TOTALS),
        ),
    ),
    Group(
        "Reductions that pass over NaN",
        (
            Op(np.nansum, twin=_nansum, check=_SUMMED),
            Op(np.nanprod, twin=_nanprod, check=_SUMMED),
            Op(np.nanmean, twin=_nanmean, check=_SUMMED),
            Op(np.nanvar, twin=_nanvar, check=_VARIANCE),
            Op(np.nanstd, twin=_nanstd, check=_DEVIATION),
            Op(np.nanmax, twin=_nanmax),
            Op(np.nanmin, twin=_nanmin),
            Op(np.nanargmax, twin=_nanargmax),
            Op(np.nanargmin, twin=_nanargmin),
            Op(np.nancumsum, twin=_nancumsum, check=_RUNNING),
            Op(np.nancumprod, twin=_nancumprod, check=_RUNNING),
        ),
    ),
)
