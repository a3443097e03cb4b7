"""Rows of the NumPy table: order statistics, covariances, histograms.

``out`` of a NumPy function is the recorder's business: a twin gives the result and does not look at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops._np_apply import add, divide, multiply, subtract
from leapp.ops._np_checks import Accumulated, Residual, Ulp
from leapp.ops._np_row import Group, Op, Unsupported
from leapp.ops._np_twin import axes as counted
from leapp.ops._np_twin import (
    bucketed,
    cast,
    holds_tensor,
    inexact,
    is_tensor,
    not_given,
    number,
    numpy_dtype,
    ordered,
    result_dtype,
    shape_of,
    tensor,
    together,
    torch_dtype,
    widened,
)

if TYPE_CHECKING:
    from collections.abc import Callable


# ---------------------------------------------------------------------------------------------------------------
# What lies at a place of the sorted data


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Data sorted along one axis, NaN at the end, and how the result of a reduction is shaped."""

    values: Any
    axis: int
    length: int
    kept: tuple[int, ...] | None
    """Shape of a reduction's result where its axes are kept."""

    @classmethod
    def of(cls, a: Any, axis: Any, keepdims: Any) -> _Sorted:
        """The axes of the reduction, merged into one at the end where they are several, and sorted."""
        shape = shape_of(a)
        over = counted(axis, a.ndim)
        kept = tuple(1 if at in over else each for at, each in enumerate(shape))
        if axis is None and a.ndim != 1:
            a, at = torch.reshape(a, (-1,)), 0
        elif len(over) == 1:
            at = over[0]
        else:
            stay = [each for each in range(a.ndim) if each not in over]
            at = len(stay)
            order = [*stay, *sorted(over)]
            a = a if order == list(range(a.ndim)) else torch.permute(a, order)
            a = torch.reshape(a, (*(shape[each] for each in stay), int(np.prod([shape[each] for each in over]))))
        if a.dtype.is_complex:
            raise Unsupported("torch does not sort complex numbers")
        keeping = bool(keepdims) and not not_given(keepdims)
        return cls(torch.sort(a, dim=at)[0], at, shape_of(a)[at], kept if keeping else None)

    @property
    def holds_nan(self) -> bool:
        """Whether there may be NaN at the end."""
        return bool(self.values.dtype.is_floating_point)

    def at(self, place: int) -> Any:
        """The elements at one place."""
        return torch.select(self.values, self.axis, place % self.length)

    def counts(self) -> Any:
        """How many elements of each slice are no NaN; their axis is kept."""
        return torch.sum(torch.logical_not(torch.isnan(self.values)), self.axis, True)

    def shaped(self, result: Any, before: tuple[int, ...] = ()) -> Any:
        """A result with the axes that it keeps; ``before`` are those of several quantiles."""
        return result if self.kept is None else torch.reshape(result, before + self.kept)


def _median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    del out, overwrite_input
    data = _Sorted.of(_no_number(tensor(a)), axis, keepdims)
    if not data.length:
        return data.shaped(torch.mean(inexact(data.values), data.axis))
    middle = data.length // 2
    upper = inexact(data.at(middle))
    made = upper if data.length % 2 else _mean_of_two(inexact(data.at(middle - 1)), upper)
    return data.shaped(_or_nan(data, made))


def _no_number(a: Any) -> Any:
    if a.ndim == 0:
        raise Unsupported("of a single number NumPy gives a plain one")
    return a


def _mean_of_two(lower: Any, upper: Any) -> Any:
    """As NumPy's mean: halves are added as single floats."""
    if lower.dtype != torch.float16:
        return torch.div(torch.add(lower, upper), 2)
    return cast(torch.div(torch.add(cast(lower, torch.float32), cast(upper, torch.float32)), 2), torch.float16)


def _or_nan(data: _Sorted, result: Any) -> Any:
    """A result, or NaN where the data holds any."""
    if not data.holds_nan:
        return result
    last = data.at(-1)
    return torch.where(torch.isnan(last), cast(last, result.dtype), result)


def _nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = np._NoValue
) -> Any:
    a = tensor(a)
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return _median(a, axis, out, overwrite_input, keepdims)
    data = _Sorted.of(a, axis, keepdims)
    if not data.length:
        return data.shaped(torch.mean(data.values, data.axis))
    counts = data.counts()
    places = torch.div(torch.sub(counts, 1), 2, rounding_mode="floor"), torch.div(counts, 2, rounding_mode="floor")
    lower, upper = (
        torch.squeeze(torch.take_along_dim(data.values, torch.clamp(each, 0, data.length - 1), data.axis), data.axis)
        for each in places
    )
    if data.values.ndim > 1 and data.length < 600:
        return data.shaped(torch.div(torch.add(lower, upper), 2))  # NumPy's way for such sizes: may overflow
    odd = torch.squeeze(torch.eq(places[0], places[1]), data.axis)
    return data.shaped(torch.where(odd, upper, _mean_of_two(lower, upper)))


# ---------------------------------------------------------------------------------------------------------------
# Quantiles: NumPy's formulas, letter by letter. ``lib`` is NumPy where all numbers are known, and torch where they
# are not.


def _discrete(lib: Any, index: Any, keep: Callable[[Any, Any], Any]) -> Any:
    before = lib.floor(index)
    place = lib.where(keep(index - before, index), before, before + 1)
    return lib.where(place < 0, place * 0, place)


def _weighed(alpha: float, beta: float) -> Callable[[Any, Any, Any], Any]:
    def place(lib: Any, n: Any, q: Any) -> Any:
        del lib
        return n * q + (alpha + q * (1 - alpha - beta)) - 1

    return place


def _as_it_is(lib: Any, gamma: Any, index: Any) -> Any:
    del lib, index
    return gamma


def _constants_where(lib: Any, condition: Any, gamma: Any, one: float, other: float) -> Any:
    return lib.where(condition, gamma * 0 + one, gamma * 0 + other)


@dataclass(frozen=True, slots=True)
class _Method:
    """Where a quantile lies among n sorted elements, and the weight of the next element where it lies between two."""

    place: Callable[[Any, Any, Any], Any]
    weight: Callable[[Any, Any, Any], Any] | None = _as_it_is
    """None where the place is always that of an element."""


_METHODS: Final = {
    "inverted_cdf": _Method(lambda lib, n, q: _discrete(lib, n * q - 1, lambda gamma, _: gamma == 0), None),
    "averaged_inverted_cdf": _Method(
        lambda _, n, q: n * q - 1, lambda lib, gamma, _: _constants_where(lib, gamma == 0, gamma, 0.5, 1.0)
    ),
    "closest_observation": _Method(
        lambda lib, n, q: _discrete(
            lib, n * q - 1 - 0.5, lambda gamma, index: (gamma == 0) & (lib.floor(index) % 2 == 1)
        ),
        None,
    ),
    "interpolated_inverted_cdf": _Method(_weighed(0, 1)),
    "hazen": _Method(_weighed(0.5, 0.5)),
    "weibull": _Method(_weighed(0, 0)),
    "linear": _Method(lambda _, n, q: (n - 1) * q),
    "median_unbiased": _Method(_weighed(1 / 3.0, 1 / 3.0)),
    "normal_unbiased": _Method(_weighed(3 / 8.0, 3 / 8.0)),
    "lower": _Method(lambda lib, n, q: lib.floor((n - 1) * q), None),
    "higher": _Method(lambda lib, n, q: lib.ceil((n - 1) * q), None),
    "midpoint": _Method(
        lambda lib, n, q: 0.5 * (lib.floor((n - 1) * q) + lib.ceil((n - 1) * q)),
        lambda lib, gamma, index: _constants_where(lib, index % 1 == 0, gamma, 0.0, 0.5),
    ),
    "nearest": _Method(lambda lib, n, q: lib.round((n - 1) * q), None),
}


def _neighbours(lib: Any, index: Any, n: Any) -> tuple[Any, Any]:
    """Places of the elements before and after, for places that may lie outside."""
    before = lib.floor(index)
    before = lib.where(index >= n - 1, before * 0 + (n - 1), before)
    after = lib.where(index >= n - 1, before, before + 1)
    return lib.where(index < 0, before * 0, before), lib.where(index < 0, before * 0, after)


def _quantiles(
    a: Any, q: Any, axis: Any, method: str, keepdims: Any, weights: Any, *, percent: bool, skip_nan: bool
) -> Any:
    if weights is not None:
        raise Unsupported("weights")
    weak = type(q) in (int, float)
    if is_tensor(q) or not isinstance(q, (np.ndarray, np.generic, int, float)):
        q = tensor(q) if is_tensor(q) or holds_tensor(q) else np.asarray(q)
    if percent:
        q = divide(q, 100) if is_tensor(q) else np.asarray(np.true_divide(q, 100))
    q = q if is_tensor(q) else np.asarray(q)
    data = _Sorted.of(tensor(a), axis, keepdims)
    if not data.length:
        raise Unsupported("there are no elements")
    if skip_nan and data.holds_nan:
        return _of_counted(data, q, _METHODS[method], weak)
    if is_tensor(q):
        return _of_unknown(data, q, _METHODS[method])
    return _of_known(data, q, method, weak)


def _of_known(data: _Sorted, q: Any, name: str, weak: bool) -> Any:
    """Places and weights are numbers; only the data is traced."""
    method = _METHODS[name]
    index = np.asanyarray(method.place(np, data.length, q))
    if method.weight is None or (name == "linear" and index.dtype.kind in "iu"):
        return data.shaped(_or_nan(data, _taken(data, index.astype(np.intp))), q.shape)
    before, after = (np.asarray(each) for each in _neighbours(np, index, data.length))
    weight = np.asanyarray(method.weight(np, np.asanyarray(index - before), index), index.dtype)
    low, high = _taken(data, before.astype(np.intp)), _taken(data, after.astype(np.intp))
    apart = subtract(high, low)
    if weight.ndim == 0:
        near = float(weight) if weak else weight[()]
        made = subtract(high, multiply(apart, 1 - near)) if near >= 0.5 else add(low, multiply(apart, near))
    else:
        near = weight.reshape(weight.shape + (1,) * (data.values.ndim - 1))
        made = add(low, multiply(apart, near))
        if np.any(weight >= 0.5):
            other = subtract(high, multiply(apart, 1 - near))
            made = torch.where(tensor(near >= 0.5), cast(other, made.dtype), made)
    return data.shaped(_or_nan(data, made), q.shape)


def _taken(data: _Sorted, places: Any) -> Any:
    """Elements at places that are known, the axes of the places first."""
    if places.ndim == 0:
        return data.at(int(places))
    return _selected(data, tensor(places.ravel()), places.shape)


def _selected(data: _Sorted, places: Any, shape: tuple[int, ...]) -> Any:
    taken = cast(torch.index_select(widened(data.values), data.axis, places), data.values.dtype)
    taken = taken if data.axis == 0 else torch.movedim(taken, data.axis, 0)
    return taken if len(shape) == 1 else torch.reshape(taken, shape + shape_of(taken)[1:])


def _of_unknown(data: _Sorted, q: Any, method: _Method) -> Any:
    """The quantiles are traced as well: the same for all slices."""
    shape = shape_of(q)
    q = torch.reshape(q if q.dtype.is_floating_point else cast(q, torch.float64), (-1,))

    def taken(places: Any) -> Any:
        return _selected(data, cast(places, torch.int64), shape)

    index = method.place(torch, data.length, q)
    if method.weight is None:
        return data.shaped(_or_nan(data, taken(index)), shape)
    before, after = _neighbours(torch, index, data.length)
    weight = cast(method.weight(torch, index - before, index), q.dtype)
    weight = torch.reshape(weight, shape + (1,) * (data.values.ndim - 1))
    return data.shaped(_or_nan(data, _between(taken(before), taken(after), weight)), shape)


def _between(low: Any, high: Any, weight: Any) -> Any:
    apart = subtract(high, low)
    forward = add(low, multiply(apart, weight))
    backward = subtract(high, multiply(apart, torch.rsub(weight, 1)))
    return torch.where(torch.ge(weight, 0.5), cast(backward, forward.dtype), forward)


def _of_counted(data: _Sorted, q: Any, method: _Method, weak: bool) -> Any:
    """Each slice has a length of its own: that of its elements which are no NaN."""
    shape = shape_of(q) if is_tensor(q) else q.shape
    q = tensor(q)
    q = torch.reshape(q if q.dtype.is_floating_point else cast(q, torch.float64), (-1,))
    values = torch.movedim(data.values, data.axis, 0) if data.axis else data.values
    counts = cast(torch.movedim(data.counts(), data.axis, 0) if data.axis else data.counts(), q.dtype)
    q = torch.reshape(q, (-1,) + (1,) * (values.ndim - 1))

    def taken(places: Any) -> Any:
        inside = torch.clamp(cast(places, torch.int64), 0, data.length - 1)
        made = torch.take_along_dim(values, inside, 0)
        return torch.reshape(made, shape + shape_of(made)[1:])

    index = method.place(torch, counts, q)
    if method.weight is None:
        return data.shaped(taken(index), shape)
    before, after = _neighbours(torch, index, counts)
    weight = cast(method.weight(torch, index - before, index), q.dtype)
    weight = torch.reshape(weight, shape + shape_of(weight)[1:])
    low, high = taken(before), taken(after)
    if not weak:
        return data.shaped(_between(low, high, weight), shape)
    # The weight is a Python number in NumPy: what it is multiplied with says the dtype.
    apart = torch.sub(high, low)
    forward = torch.add(low, torch.mul(apart, cast(weight, low.dtype)))
    backward = torch.sub(high, torch.mul(apart, cast(torch.rsub(weight, 1), low.dtype)))
    return data.shaped(torch.where(torch.ge(weight, 0.5), backward, forward), shape)


def _quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
) -> Any:
    del out, overwrite_input
    return _quantiles(a, q, axis, method, keepdims, weights, percent=False, skip_nan=False)


def _percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = False,
    *,
    weights: Any = None,
) -> Any:
    del out, overwrite_input
    return _quantiles(a, q, axis, method, keepdims, weights, percent=True, skip_nan=False)


def _nanquantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = np._NoValue,
    *,
    weights: Any = None,
) -> Any:
    del out, overwrite_input
    return _quantiles(a, q, axis, method, keepdims, weights, percent=False, skip_nan=True)


def _nanpercentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: Any = np._NoValue,
    *,
    weights: Any = None,
) -> Any:
    del out, overwrite_input
    return _quantiles(a, q, axis, method, keepdims, weights, percent=True, skip_nan=True)


# ---------------------------------------------------------------------------------------------------------------
# Covariances


def _cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    m, y = tensor(m), None if y is None else tensor(y)
    given = [each for each in (m, y) if each is not None]
    into = result_dtype(*given, np.float64(0)) if dtype is None else torch_dtype(dtype)
    x = _variables(cast(m, into), turn=not rowvar and m.ndim != 1)
    if not shape_of(x)[0]:
        raise Unsupported("there are no variables")
    if y is not None:
        x = torch.cat([x, _variables(cast(y, into), turn=not rowvar and y.ndim > 1 and shape_of(y)[0] != 1)])
    count = shape_of(x)[1]
    ddof = int(number(ddof, "ddof")) if ddof is not None else 0 if bias else 1
    frequencies, shares = (None if each is None else tensor(each, torch.float64) for each in (fweights, aweights))
    weights = [each for each in (frequencies, shares) if each is not None]
    if not weights:
        centred = torch.sub(x, torch.mean(x, 1, True))
        made = _squares(centred, centred)
        freedom = float(max(count - ddof, 0))
        made = torch.div(made, freedom) if freedom else torch.mul(made, np.inf)
    else:
        weight = weights[0] if len(weights) == 1 else torch.mul(*weights)
        total = torch.sum(weight)
        mean = torch.div(torch.sum(torch.mul(x, weight), 1, True), total)
        centred = torch.sub(x, mean)
        made = _squares(centred, torch.mul(centred, weight))
        free = total
        if ddof and shares is None:
            free = torch.sub(total, ddof)
        elif ddof:
            free = torch.sub(total, torch.div(torch.mul(torch.sum(torch.mul(weight, weights[-1])), ddof), total))
        made = torch.mul(made, torch.reciprocal(torch.clamp(free, min=0.0)))
    return torch.squeeze(made)


def _variables(x: Any, *, turn: bool) -> Any:
    x = torch.reshape(x, (1, -1)) if x.ndim < 2 else x
    return torch.transpose(x, 0, 1) if turn else x


def _squares(x: Any, weighed: Any) -> Any:
    turned = torch.transpose(weighed, 0, 1)
    return torch.matmul(x, torch.conj_physical(turned) if turned.dtype.is_complex else turned)


def _corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    made = _cov(x, y, rowvar, dtype=dtype)
    if made.ndim == 0:
        return torch.div(made, made)
    variances = torch.diagonal(made)
    deviations = torch.sqrt(torch.real(variances) if made.dtype.is_complex else variances)
    made = torch.div(torch.div(made, torch.unsqueeze(deviations, 1)), deviations)
    if not made.dtype.is_complex:
        return torch.clamp(made, -1, 1)
    return torch.complex(torch.clamp(torch.real(made), -1, 1), torch.clamp(torch.imag(made), -1, 1))


def _cov_size(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: Any = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    """Errors are those of sums of products of the data itself, not of what is left when the mean is taken away."""
    del dtype
    rows = [np.abs(np.array(each, ndmin=2)).astype(np.float64) for each in (m, y) if each is not None]
    rows = [each if rowvar or (np.ndim(given) < 2) else each.T for each, given in zip(rows, (m, y), strict=False)]
    x = np.concatenate(rows)
    x = x + np.max(x, axis=1, initial=0.0, keepdims=True)
    weight = np.ones(x.shape[1])
    for each in (fweights, aweights):
        weight = weight if each is None else weight * np.asarray(each, np.float64)
    total = float(np.sum(weight))
    free = total - (ddof if ddof is not None else 0 if bias else 1) * (
        1 if aweights is None else np.sum(weight * np.asarray(aweights)) / total
    )
    return np.squeeze((x * weight) @ x.T / max(free, 0.0))


def _corrcoef_error(args: Any, kwargs: Any, results: Any) -> float:
    """Compared where the data says what the variances are; a constant row has none, and its quotients are noise."""
    theirs = np.atleast_2d(np.corrcoef(*args, **kwargs))
    ours = np.atleast_2d(results[0])
    words = {key: each for key, each in kwargs.items() if key != "dtype"}
    size = np.atleast_2d(_cov_size(*args, **words))
    found = np.abs(np.atleast_2d(np.cov(*args, **kwargs)))
    noise = np.diagonal(size) / np.diagonal(found)
    bound = float(np.finfo(ours.dtype).eps) * np.shape(args[0])[-1] * (noise[:, None] + noise[None, :])
    apart = np.where(np.isnan(ours) & np.isnan(theirs), 0.0, np.abs(ours - theirs) / bound)
    apart = np.where(np.isfinite(bound), apart, 0.0)
    worst = float(np.max(apart, initial=0.0))
    return worst if worst == worst else np.inf  # noqa: PLR0124 - NaN


def _observations(args: Any, kwargs: Any, expected: Any) -> float:
    del expected
    return float(np.size(args[0] if args else kwargs["m"]))


# ---------------------------------------------------------------------------------------------------------------
# Histograms


def _histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    _no_weights(weights)
    a = _line_of_numbers(a)
    edges = _edges(a, bins, range)
    if _is_count(bins):
        a = cast(a, edges.dtype)
    counts = _counts(a, edges)
    if not density:
        return counts, edges
    widths = cast(torch.diff(edges), torch.float64)
    return torch.div(torch.div(cast(counts, torch.float64), widths), torch.sum(counts)), edges


def _histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    del weights
    return _edges(_line_of_numbers(a), bins, range)


def _no_weights(weights: Any) -> None:
    if weights is not None:
        raise Unsupported("weights")


def _line_of_numbers(a: Any) -> Any:
    a = torch.reshape(tensor(a), (-1,))
    return cast(a, torch.uint8) if a.dtype == torch.bool else a


def _is_count(bins: Any) -> bool:
    """Whether the edges are to be computed. Raises Unsupported where the number of bins follows the data."""
    if isinstance(bins, str):
        raise Unsupported("the number of bins follows the data")
    if is_tensor(bins) or holds_tensor(bins):
        if not is_tensor(bins) or bins.ndim:
            return False
        raise Unsupported("the number of bins follows the data")
    return np.ndim(bins) == 0


def _edges(a: Any, bins: Any, range: Any) -> Any:
    """Edges of bins: given, of equal widths in a range, or of equal widths between the least and the greatest."""
    if not _is_count(bins):
        return tensor(bins)
    of = numpy_dtype(a.dtype)
    if range is not None and not holds_tensor(range):
        return tensor(np.histogram_bin_edges(np.empty(0, of), bins, tuple(range)))
    if range is not None:
        raise Unsupported("a range that follows the data")
    if not shape_of(a)[0]:
        return tensor(np.histogram_bin_edges(np.empty(0, of), bins))
    return _even_edges(a, int(bins), np.result_type(of, float) if of.kind in "iu" else of)


def _even_edges(a: Any, bins: int, into: np.dtype[Any]) -> Any:
    """As ``np.linspace`` from the least to the greatest element, or around the only one."""
    ordered_ones = widened(a)
    first, last = (cast(each, torch_dtype(into)) for each in (torch.amin(ordered_ones), torch.amax(ordered_ones)))
    single = torch.eq(first, last)
    first, last = torch.where(single, torch.sub(first, 0.5), first), torch.where(single, torch.add(last, 0.5), last)
    step = torch.div(torch.sub(last, first), bins)
    places = tensor(np.arange(bins, dtype=into))
    return torch.cat([torch.add(torch.mul(places, step), first), torch.reshape(last, (1,))])


def _counts(a: Any, edges: Any) -> Any:
    """How many elements lie from each edge to before the next; the last bin holds its upper edge as well."""
    values, edges = together(a, edges)
    values, edges = ordered(values), ordered(edges)
    none = values[:0]
    if values.dtype.is_floating_point:
        missing = torch.isnan(values)
        values = torch.where(missing, torch.full_like(values, np.inf), values)
        none = torch.sum(torch.logical_not(missing))
    values = torch.sort(values)[0]
    last = shape_of(edges)[0] - 1
    below = bucketed(edges[:last], values)
    upto = bucketed(edges[last:], values, right=True)
    if values.dtype.is_floating_point:
        upto = torch.minimum(upto, none)
    return torch.diff(torch.cat([below, upto]))


_range = range


def _histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    if is_tensor(sample) and sample.ndim == 2:
        columns = [sample[:, each] for each in _range(shape_of(sample)[1])]
    else:
        columns = list(torch.unbind(tensor(sample))) if is_tensor(sample) else [tensor(each) for each in sample]
        columns = together(*columns)
    return _of_columns(columns, bins, range, density, weights)


def _histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    several = hasattr(bins, "__len__") or (is_tensor(bins) and bins.ndim)
    if several and len(bins) not in (1, 2):
        bins = [bins, bins]
    made, (of_x, of_y) = _of_columns(together(x, y), bins, range, density, weights)
    return made, of_x, of_y


def _of_columns(columns: list[Any], bins: Any, range: Any, density: Any, weights: Any) -> Any:
    _no_weights(weights)
    if not hasattr(bins, "__len__"):
        bins = [bins] * len(columns)
    ranges = [None] * len(columns) if range is None else range
    edges = [_column_edges(*each) for each in zip(columns, bins, ranges, strict=True)]
    place: Any = None
    sizes = [shape_of(each)[0] + 1 for each in edges]
    for column, of, size in zip(columns, edges, sizes, strict=True):
        value, limits = (ordered(each) for each in together(column, of))
        at = bucketed(value, limits, right=True)
        at = torch.sub(at, cast(torch.eq(value, limits[size - 2]), torch.int64))
        place = at if place is None else torch.add(torch.mul(place, size), at)
    empty = tensor(np.zeros(int(np.prod(sizes)), np.int64))
    counts = torch.scatter_add(empty, 0, place, torch.ones_like(place))
    made = cast(torch.reshape(counts, tuple(sizes)), torch.float64)
    made = made[tuple(slice(1, size - 1) for size in sizes)]
    if density:
        total = torch.sum(made)
        for axis, of in enumerate(edges):
            made = divide(made, torch.reshape(torch.diff(of), (-1,) + (1,) * (len(edges) - axis - 1)))
        made = torch.div(made, total)
    return made, edges


def _column_edges(column: Any, bins: Any, range: Any) -> Any:
    if _is_count(bins):
        if range is not None and not holds_tensor(range):
            return tensor(np.histogramdd(np.empty((0, 1)), [bins], [range])[1][0])
        if range is not None:
            raise Unsupported("a range that follows the data")
        if not shape_of(column)[0]:
            return tensor(np.linspace(0, 1, int(bins) + 1))
        column = cast(column, torch.uint8) if column.dtype == torch.bool else column
        return _even_edges(column, int(bins), _linspace_dtype(column))
    return tensor(bins)


def _linspace_dtype(column: Any) -> np.dtype[Any]:
    one = numpy_dtype(column.dtype).type(1)
    found: np.dtype[Any] = np.linspace(one, one, 2).dtype
    return found


GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Order statistics",
        (
            Op(np.median, twin=_median),
            Op(np.nanmedian, twin=_nanmedian),
            Op(np.quantile, twin=_quantile),
            Op(np.percentile, twin=_percentile),
            Op(np.nanquantile, twin=_nanquantile),
            Op(np.nanpercentile, twin=_nanpercentile),
        ),
    ),
    Group(
        "Covariances",
        (
            Op(np.cov, twin=_cov, check=Accumulated(4.0, _observations, _cov_size)),
            Op(np.corrcoef, twin=_corrcoef, check=Residual(_corrcoef_error)),
        ),
    ),
    Group(
        "Histograms",
        (
            Op(np.histogram, twin=_histogram, check=Ulp(2)),
            Op(np.histogram_bin_edges, twin=_histogram_bin_edges, check=Ulp(2)),
            Op(np.histogram2d, twin=_histogram2d, check=Ulp(2)),
            Op(np.histogramdd, twin=_histogramdd, check=Ulp(2)),
        ),
    ),
)
