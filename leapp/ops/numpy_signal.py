"""Rows of the NumPy table: differences, filters, interpolation, polynomials, counting into bins.

``out`` of a NumPy function is the recorder's business: a twin gives the result and does not look at it.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np
import torch
from numpy.polynomial import polynomial

from leapp.ops._np_apply import add, applied, divide, multiply, subtract
from leapp.ops._np_checks import Accumulated, Ulp
from leapp.ops._np_row import LENGTH, Group, NoTwin, Op, Through, Unsupported
from leapp.ops._np_samples import fewer
from leapp.ops._np_twin import (
    axes,
    bucketed,
    cast,
    flat,
    holds_tensor,
    inexact,
    is_tensor,
    modular,
    not_given,
    number,
    numpy_dtype,
    ordered,
    result_dtype,
    shape_of,
    tensor,
    together,
    torch_dtype,
)

# ---------------------------------------------------------------------------------------------------------------
# Differences


def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue) -> Any:
    a, n, axis = tensor(a), operator.index(number(n, "n")), operator.index(number(axis, "axis"))
    if n == 0:
        return a
    axis %= a.ndim
    ends = [None if not_given(each) else _end(each, a, axis) for each in (prepend, append)]
    parts = [each for each in (ends[0], a, ends[1]) if each is not None]
    if len(parts) > 1:
        a = torch.cat(together(*parts), axis)
    return _differences(a, n, axis)


def _end(thing: Any, a: Any, axis: int) -> Any:
    """What is put before or after data: a number stands for a slice of it."""
    end = tensor(thing)
    if end.ndim:
        return end
    shape = list(shape_of(a))
    shape[axis] = 1
    return end.expand(shape)


def _differences(a: Any, n: int, axis: int) -> Any:
    if a.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return modular(lambda each: torch.diff(each, n, axis), a)
    words: dict[str, Any] = {"n": n} if n != 1 else {}
    return torch.diff(a, **words) if axis == a.ndim - 1 else torch.diff(a, **words, dim=axis)


def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    a = flat(tensor(ary))
    made = _differences(a, 1, 0) if shape_of(a)[0] else a
    ends = [None if each is None else cast(flat(tensor(each)), a.dtype) for each in (to_begin, to_end)]
    parts = [each for each in (ends[0], made, ends[1]) if each is not None]
    return torch.cat(parts) if len(parts) > 1 else made


def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = tensor(f)
    over = axes(axis, f.ndim)
    spacing: list[Any] = list(varargs) or [1.0]
    if len(spacing) == 1 and not _ndim(spacing[0]):
        spacing *= len(over)
    into = f.dtype if f.dtype.is_floating_point or f.dtype.is_complex else torch.float64
    if f.dtype != torch.bool:
        f = cast(f, into)
    made = [_slope(f, _steps(each), at, edge_order, into) for at, each in zip(over, spacing, strict=True)]
    return made[0] if len(made) == 1 else tuple(made)


def _ndim(thing: Any) -> int:
    return thing.ndim if is_tensor(thing) else np.ndim(thing)


def _steps(places: Any) -> Any:
    """Distances between places along an axis; one distance, where all of them are known to be equal."""
    if not _ndim(places):
        return places
    if is_tensor(places):
        return torch.diff(places if places.dtype.is_floating_point else inexact(places))
    places = np.asarray(places)
    steps = np.diff(places.astype(np.float64) if places.dtype.kind in "iu" else places)
    return steps[0] if (steps == steps[0]).all() else steps


def _slope(f: Any, steps: Any, axis: int, edge_order: int, into: torch.dtype) -> Any:
    """Second-order differences inside, first- or second-order ones at the ends, as NumPy writes them."""
    length = shape_of(f)[axis]

    def at(begin: int, end: int) -> Any:
        return f[(slice(None),) * axis + (slice(begin, end),)]

    def mixed(*terms: tuple[Any, Any]) -> Any:
        made = None
        for weight, values in terms:
            weighed = multiply(weight, values)
            made = weighed if made is None else add(made, weighed)
        return made

    def along(weight: Any) -> Any:
        weight = tensor(weight)
        return torch.reshape(weight, (-1,) + (1,) * (f.ndim - axis - 1))

    even = not _ndim(steps)
    if even:
        inside = divide(subtract(at(2, length), at(0, length - 2)), _times(2.0, steps))
    else:
        one, two = steps[:-1], steps[1:]
        whole = _plus(one, two)
        a, b, c = (
            _over(_negative(two), _times(one, whole)),
            _over(_minus(two, one), _times(one, two)),
            _over(one, _times(two, whole)),
        )
        inside = mixed((along(a), at(0, length - 2)), (along(b), at(1, length - 1)), (along(c), at(2, length)))
    if edge_order == 1:
        first, last = (steps, steps) if even else (steps[0], steps[-1])
        head = divide(subtract(at(1, 2), at(0, 1)), first)
        tail = divide(subtract(at(length - 1, length), at(length - 2, length - 1)), last)
    else:
        if even:
            front = _over(-1.5, steps), _over(2.0, steps), _over(-0.5, steps)
            back = _over(0.5, steps), _over(-2.0, steps), _over(1.5, steps)
        else:
            front, back = _uneven_front(steps[0], steps[1]), _uneven_back(steps[-2], steps[-1])
        head = mixed(*zip(front, (at(0, 1), at(1, 2), at(2, 3)), strict=True))
        ends = at(length - 3, length - 2), at(length - 2, length - 1), at(length - 1, length)
        tail = mixed(*zip(back, ends, strict=True))
    return torch.cat([cast(each, into) for each in (head, inside, tail)], axis)


def _uneven_front(one: Any, two: Any) -> tuple[Any, Any, Any]:
    whole = _plus(one, two)
    return (
        _over(_negative(_plus(_times(2.0, one), two)), _times(one, whole)),
        _over(whole, _times(one, two)),
        _over(_negative(one), _times(two, whole)),
    )


def _uneven_back(one: Any, two: Any) -> tuple[Any, Any, Any]:
    whole = _plus(one, two)
    return (
        _over(two, _times(one, whole)),
        _over(_negative(_plus(two, one)), _times(one, two)),
        _over(_plus(_times(2.0, two), one), _times(two, whole)),
    )


# What is known is computed by NumPy, what is traced by torch.


def _either(ufunc: np.ufunc, *operands: Any) -> Any:
    return applied(ufunc, *operands) if any(is_tensor(each) for each in operands) else _weak(ufunc, *operands)


def _weak(ufunc: np.ufunc, *operands: Any) -> Any:
    """NumPy's answer, as a Python number where all operands are."""
    made = ufunc(*operands)
    return made.item() if all(type(each) in (int, float, complex, bool) for each in operands) else made


def _plus(a: Any, b: Any) -> Any:
    return _either(np.add, a, b)


def _minus(a: Any, b: Any) -> Any:
    return _either(np.subtract, a, b)


def _times(a: Any, b: Any) -> Any:
    return _either(np.multiply, a, b)


def _over(a: Any, b: Any) -> Any:
    return _either(np.divide, a, b)


def _negative(a: Any) -> Any:
    return _either(np.negative, a)


# ---------------------------------------------------------------------------------------------------------------
# Integrals, phases


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y, axis = tensor(y), operator.index(number(axis, "axis"))
    steps = dx
    if x is not None:
        x = tensor(x)
        steps = _differences(x, 1, 0 if x.ndim == 1 else axis % x.ndim)
        if x.ndim == 1:
            steps = torch.reshape(steps, (-1,) + (1,) * (y.ndim - axis % y.ndim - 1))
    axis %= y.ndim
    before = (slice(None),) * axis
    pairs = add(y[(*before, slice(1, None))], y[(*before, slice(None, -1))])
    area = divide(multiply(steps, pairs), 2.0)
    return torch.sum(area, axis - y.ndim)


def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    p, axis = tensor(p), operator.index(number(axis, "axis"))
    axis %= p.ndim
    steps = _differences(p, 1, axis)
    if discont is None:
        discont = _over(period, 2)
    whole = result_dtype(steps, period)
    ambiguous: Any = True
    if whole.is_floating_point or whole.is_complex:
        high = _over(period, 2)
    else:
        high, rest = divmod(number(period, "period"), 2)
        ambiguous = rest == 0
    low = _negative(high)
    inside = add(applied(np.remainder, subtract(steps, low), period), low)
    if ambiguous:
        at_edge = torch.logical_and(applied(np.equal, inside, low), applied(np.greater, steps, 0))
        inside = torch.where(at_edge, _like(high, inside), inside)
    turns = subtract(inside, steps)
    small = applied(np.less, applied(np.absolute, steps), discont)
    turns = torch.where(small, _like(0, turns), turns)
    before = (slice(None),) * axis
    rest_of = p[(*before, slice(1, None))]
    total = torch.cumsum(turns, axis)
    return torch.cat([cast(p[(*before, slice(0, 1))], whole), cast(add(rest_of, total), whole)], axis)


def _like(value: Any, other: Any) -> Any:
    """A number in the dtype of a tensor."""
    return cast(value, other.dtype) if is_tensor(value) else tensor(np.asarray(value, numpy_dtype(other.dtype)))


# ---------------------------------------------------------------------------------------------------------------
# Filters


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    known = [_kernel_is_finite(each) for each in (a, v)]
    a, v = (torch.reshape(each, (1,)) if each.ndim == 0 else each for each in together(a, v))
    if shape_of(v)[0] > shape_of(a)[0]:
        a, v, known = v, a, known[::-1]
    return modular(lambda one, two: _filtered(one, two, mode, finite=known[1]), a, v)


def _correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    known = [_kernel_is_finite(each) for each in (a, v)]
    a, v = (torch.reshape(each, (1,)) if each.ndim == 0 else each for each in together(a, v))
    if v.dtype.is_complex:
        v = torch.conj_physical(v)

    def filtered(a: Any, v: Any) -> Any:
        if shape_of(a)[0] >= shape_of(v)[0]:
            return _filtered(a, torch.flip(v, (0,)), mode, finite=known[1])
        # NumPy changes the places of the two and turns the result round: this says which middle "same" takes.
        return torch.flip(_filtered(v, torch.flip(a, (0,)), mode, finite=known[0]), (0,))

    return modular(filtered, a, v)


def _kernel_is_finite(thing: Any) -> bool:
    """Whether an argument is known, and what is padded with 0 may be multiplied with it."""
    return not _is_traced(thing) and bool(np.isfinite(np.asarray(thing)).all())


def _filtered(a: Any, v: Any, mode: Any, *, finite: bool) -> Any:
    """Sums of products of ``v``, turned round, as it moves along the longer ``a``."""
    count, width = shape_of(a)[0], shape_of(v)[0]
    mode = {0: "valid", 1: "same", 2: "full"}.get(mode, mode)
    if a.dtype == torch.float32 and (finite or mode[0] == "v" or width == 1):
        ends = {"v": (0, 0), "s": (width // 2, width - 1 - width // 2), "f": (width - 1, width - 1)}[mode[0]]
        padded = torch.nn.functional.pad(a, ends) if any(ends) else a
        kernel = torch.reshape(torch.flip(v, (0,)), (1, 1, width))
        return torch.reshape(torch.nn.functional.conv1d(torch.reshape(padded, (1, 1, -1)), kernel), (-1,))
    full = _skewed_sum(v, a)
    if mode[0] == "f":
        return full
    if mode[0] == "v":
        return full[width - 1 : count]
    start = width - 1 - width // 2
    return full[start : start + count]


def _skewed_sum(v: Any, a: Any) -> Any:
    """All products of two lines, row by row shifted one further to the right, and summed.

    No product with a padding of zeros is formed, so that an infinity stays where it belongs; and there is no
    convolution of integers, complex numbers and (in ONNX) of double precision to be had.
    """
    rows, length = shape_of(v)[0], shape_of(a)[0]
    products = torch.nn.functional.pad(torch.outer(v, a), (0, rows))
    skewed = torch.reshape(torch.reshape(products, (-1,))[: rows * (length + rows - 1)], (rows, length + rows - 1))
    return torch.sum(skewed, 0)


# ---------------------------------------------------------------------------------------------------------------
# Interpolation


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    x = tensor(x, torch.float64)
    known = not any(_is_traced(each) for each in (xp, fp, period))
    fp = tensor(fp) if _is_traced(fp) else np.asarray(fp)
    is_complex = fp.dtype.is_complex if is_tensor(fp) else fp.dtype.kind == "c"
    values = torch.complex128 if is_complex else torch.float64
    if known:
        xp, fp = np.asarray(xp, np.float64), np.asarray(fp, numpy_dtype(values))
    else:
        xp, fp = tensor(xp, torch.float64), tensor(fp, values)
    if period is not None:
        left = right = None
        if known:
            period = float(abs(period))
            xp, fp = _one_period(xp, fp, period)
        else:
            period = torch.abs(tensor(period, torch.float64))
            xp, fp = _one_traced_period(xp, fp, period)
        x = torch.remainder(x, period)
    last = shape_of(fp)[0] - 1
    ends = [fp[0] if left is None else left, fp[last] if right is None else right]
    ends = [tensor(each, values) if _is_traced(each) else np.asarray(each, numpy_dtype(values)) for each in ends]
    if not is_complex:
        return _on_lines(x, xp, fp, ends, known=known)
    real, imaginary = (
        _on_lines(x, xp, part(fp), [part(each) for each in ends], known=known, inverse=True)
        for part in (_real_of, _imaginary_of)
    )
    return torch.complex(real, imaginary if last == 0 else torch.where(torch.isnan(x), torch.zeros_like(x), imaginary))


def _is_traced(thing: Any) -> bool:
    return is_tensor(thing) or holds_tensor(thing)


def _real_of(thing: Any) -> Any:
    return torch.real(thing) if is_tensor(thing) else thing.real


def _imaginary_of(thing: Any) -> Any:
    return torch.imag(thing) if is_tensor(thing) else thing.imag


def _on_lines(x: Any, xp: Any, fp: Any, ends: Any, *, known: bool, inverse: bool = False) -> Any:
    """Interpolated between points, and the values at the ends outside of them."""
    count = shape_of(xp)[0]
    several = count > 1
    made = _between_points(x, xp, fp, known=known, inverse=inverse) if several else tensor(fp)[0].expand(shape_of(x))
    first, last = (float(xp[0]), float(xp[-1])) if known else (xp[0], xp[count - 1])
    made = torch.where(torch.lt(x, first), tensor(ends[0]), made)
    return torch.where(torch.gt(x, last), tensor(ends[1]), made)


def _one_period(xp: Any, fp: Any, period: float) -> tuple[Any, Any]:
    xp = xp % period
    order = np.argsort(xp)
    xp, fp = xp[order], fp[order]
    return np.concatenate((xp[-1:] - period, xp, xp[:1] + period)), np.concatenate((fp[-1:], fp, fp[:1]))


def _one_traced_period(xp: Any, fp: Any, period: Any) -> tuple[Any, Any]:
    xp, order = torch.sort(torch.remainder(xp, period))
    fp = fp[order]
    end = shape_of(xp)[0] - 1
    places = torch.cat([torch.sub(xp[end:], period), xp, torch.add(xp[:1], period)])
    return places, torch.cat([fp[end:], fp, fp[:1]])


def _between_points(x: Any, xp: Any, fp: Any, *, known: bool, inverse: bool) -> Any:
    """On the line from the point before to the one after; what lies outside is put right afterwards."""
    count = shape_of(xp)[0]
    ends, values = tensor(xp), tensor(fp)
    place = torch.clamp(torch.sub(bucketed(x, ends, right=True), 1), 0, count - 2)
    before, low = ends[place], values[place]
    if known:
        with np.errstate(all="ignore"):
            steps = xp[1:] - xp[:-1]
            slopes = (fp[1:] - fp[:-1]) * (1.0 / steps) if inverse else (fp[1:] - fp[:-1]) / steps
        if np.isfinite(slopes).all() and np.isfinite(fp).all() and np.isfinite(xp).all():
            made = torch.add(torch.mul(tensor(slopes)[place], torch.sub(x, before)), low)
            return torch.where(torch.eq(x, float(xp[-1])), float(fp[-1]), made)
    next_place = torch.add(place, 1)
    after, high = ends[next_place], values[next_place]
    rise, step = torch.sub(high, low), torch.sub(after, before)
    slope = torch.mul(rise, torch.reciprocal(step)) if inverse else torch.div(rise, step)
    made = torch.add(torch.mul(slope, torch.sub(x, before)), low)
    other = torch.add(torch.mul(slope, torch.sub(x, after)), high)
    # Where one end is infinite NumPy starts from the other one; where both are the same, it gives that.
    made = torch.where(torch.isnan(made), other, made)
    made = torch.where(torch.logical_and(torch.isnan(made), torch.eq(low, high)), low, made)
    made = torch.where(torch.eq(x, before), low, made)
    made = torch.where(torch.eq(x, ends[count - 1]), values[count - 1], made)
    return torch.where(torch.isnan(x), x, made)


def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    right = bool(right)
    if _is_traced(bins):
        edges, values = (ordered(each) for each in together(bins, x))
        count = shape_of(edges)[0]
        rising = bucketed(values, edges, right=not right)
        falling = torch.rsub(bucketed(values, torch.flip(edges, (0,)), right=not right), count)
        return torch.where(torch.le(edges[0], edges[count - 1]), rising, falling) if count else rising
    bins = np.asarray(bins)
    falls = bins.size and bins[0] > bins[-1]
    edges, values = (ordered(each) for each in together(bins[::-1] if falls else bins, x))
    made = bucketed(values, edges, right=not right)
    return torch.rsub(made, len(bins)) if falls else made


def _bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """Counts into as many bins as are asked for. A later number beyond them fails loudly where the model runs."""
    x, length = tensor(x), operator.index(number(minlength, "minlength"))
    most = {torch.bool: 2, torch.uint8: 256}.get(x.dtype, 0)
    if not length or length < most:
        raise Unsupported(f"{LENGTH}; a minlength that covers all of it would hold")
    if weights is None:
        empty, ones = tensor(np.zeros(length, np.int64)), torch.ones_like(x, dtype=torch.int64)
    else:
        empty, ones = tensor(np.zeros(length)), tensor(weights, torch.float64)
    return torch.scatter_add(empty, 0, cast(x, torch.int64), ones)


# ---------------------------------------------------------------------------------------------------------------
# Polynomials and functions


def _no_poly(*things: Any) -> None:
    if any(isinstance(each, np.poly1d) for each in things):
        raise Unsupported("np.poly1d")


def _polyval(p: Any, x: Any) -> Any:
    _no_poly(x)
    x = tensor(x)
    coefficients = _elements(p)
    made = torch.zeros_like(x)
    for each in coefficients:
        made = add(multiply(made, x), each)
    return made


def _elements(p: Any) -> list[Any]:
    """Elements of a line: NumPy scalars, or tensors of no axes."""
    if _is_traced(p):
        p = tensor(p)
        return [p[each] for each in range(shape_of(p)[0])]
    return list(np.asarray(p))


def _polyval2d(x: Any, y: Any, c: Any) -> Any:
    x, y = tensor(x), tensor(y)
    return _rising(y, _rising(x, _spread(tensor(c), x)))


def _polygrid2d(x: Any, y: Any, c: Any) -> Any:
    x, y = tensor(x), tensor(y)
    return _rising(y, _spread(_rising(x, _spread(tensor(c), x)), y))


def _spread(c: Any, x: Any) -> Any:
    """Coefficients with an axis for each one of ``x``."""
    c = inexact(c)
    return torch.reshape(c, shape_of(c) + (1,) * x.ndim)


def _rising(x: Any, c: Any) -> Any:
    """The value of polynomials, the coefficients along the first axis from the lowest up."""
    last = shape_of(c)[0] - 1
    made = add(c[last], multiply(x, 0))
    for place in range(last - 1, -1, -1):
        made = add(c[place], multiply(made, x))
    return made


def _polyadd(a1: Any, a2: Any) -> Any:
    return _of_one_length(np.add, a1, a2)


def _polysub(a1: Any, a2: Any) -> Any:
    return _of_one_length(np.subtract, a1, a2)


def _of_one_length(ufunc: np.ufunc, a1: Any, a2: Any) -> Any:
    _no_poly(a1, a2)
    one, two = (torch.reshape(each, (1,)) if each.ndim == 0 else each for each in (tensor(a1), tensor(a2)))
    longer = shape_of(two)[0] - shape_of(one)[0]
    if longer > 0:
        one = torch.nn.functional.pad(one, (longer, 0))
    elif longer < 0:
        two = torch.nn.functional.pad(two, (-longer, 0))
    return applied(ufunc, one, two)


def _polyder(p: Any, m: Any = 1) -> Any:
    _no_poly(p)
    p = tensor(p)
    for _ in range(int(number(m, "m"))):
        last = shape_of(p)[0] - 1
        p = multiply(p[:last], np.arange(last, 0, -1)) if last > 0 else multiply(p[:0], np.arange(0))
    return p


def _polyint(p: Any, m: Any = 1, k: Any = None) -> Any:
    _no_poly(p)
    p, m = tensor(p), int(number(m, "m"))
    constants = [0.0] * m if k is None else _elements(np.atleast_1d(k) if not is_tensor(k) else k)
    if len(constants) == 1:
        constants = [np.float64(constants[0]) if not is_tensor(constants[0]) else constants[0]] * m
    for each in constants[:m]:
        integrated = divide(p, np.arange(shape_of(p)[0], 0, -1))
        p = torch.cat(together(integrated, torch.reshape(tensor(each), (1,))))
    return p


def _poly(seq_of_zeros: Any) -> Any:
    zeros = tensor(seq_of_zeros)
    if zeros.ndim == 0:
        zeros = torch.reshape(zeros, (1,))
    if zeros.ndim != 1 or zeros.dtype.is_complex:
        raise Unsupported("whether the coefficients are real follows the data")
    if not shape_of(zeros)[0]:
        raise Unsupported("of no roots NumPy makes a plain number")
    zeros = zeros if zeros.dtype == torch.float32 else cast(zeros, torch.float64)
    made = torch.ones_like(zeros[:1])
    for place in range(shape_of(zeros)[0]):
        terms = torch.neg(torch.mul(made, zeros[place]))
        made = torch.cat(
            [made[:1], torch.add(made[1:], terms[: shape_of(made)[0] - 1]), terms[shape_of(made)[0] - 1 :]]
        )
    return made


def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:  # noqa: N803 - NumPy's name
    x = tensor(x)
    columns = shape_of(x)[0] if N is None else operator.index(number(N, "N"))
    x = cast(x, torch_dtype(np.promote_types(numpy_dtype(x.dtype), int)))
    powers = [torch.ones_like(x)] if columns else []
    for _ in range(columns - 1):
        powers.append(multiply(powers[-1], x) if len(powers) > 1 else x)
    if not powers:
        return torch.reshape(x, (-1, 1))[:, :0]
    return torch.stack(powers if increasing else powers[::-1], 1)


def _sinc(x: Any) -> Any:
    """Written out: the ONNX exporter's own sinc multiplies with a pi of single precision."""
    scaled = multiply(tensor(x), np.pi)
    eps = float(np.finfo(numpy_dtype(scaled.dtype)).eps) if scaled.dtype.is_floating_point else 1e-20
    off = torch.where(torch.eq(scaled, 0), _like(eps, scaled), scaled)
    return divide(applied(np.sin, off), off)


def _i0(x: Any) -> Any:
    return torch.special.i0(inexact(x))


def _trapezoid_size(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    if x is not None:
        x = np.abs(np.diff(x, axis=axis if np.ndim(x) > 1 else -1))
        dx = x if np.ndim(x) > 1 else np.reshape(x, (-1,) + (1,) * (np.ndim(y) - axis % np.ndim(y) - 1))
    y = np.moveaxis(np.abs(np.asarray(y, np.float64)) if np.asarray(y).dtype.kind != "c" else np.abs(y), axis, -1)
    pairs = np.moveaxis(y[..., 1:] + y[..., :-1], -1, axis)
    return np.sum(np.abs(dx) * pairs, axis)


def _unwrap_size(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """The turns are counted exactly; their sum is rounded."""
    del discont
    p = np.asarray(p, np.float64)
    steps = np.abs(np.diff(p, axis=axis, prepend=np.take(p, [0], axis))) + abs(period)
    return np.abs(p) + np.cumsum(np.where(np.isfinite(steps), steps, 0.0), axis)


ZEROS: Final = "it cuts leading coefficients that are 0"

# ---------------------------------------------------------------------------------------------------------------
# Functions of functions: these run on traced arrays, not on tensors.


def _apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    rows = np.moveaxis(arr, axis, -1)
    axis %= rows.ndim
    lead = rows.shape[:-1]
    if 0 in lead:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")  # NumPy's own text
    # The ellipsis keeps a row of a 1-d array an array, as in NumPy.
    made = [func1d(rows[(*place, Ellipsis)], *args, **kwargs) for place in np.ndindex(lead)]
    stacked = np.stack(made)
    first = made[0].dtype if hasattr(made[0], "dtype") else np.asanyarray(made[0]).dtype
    stacked = stacked if stacked.dtype == first else stacked.astype(first)
    inner = stacked.shape[1:]
    stacked = stacked.reshape(lead + inner)
    order = list(range(stacked.ndim))
    ends = len(lead)
    return stacked.transpose(order[:axis] + order[ends:] + order[axis:ends])


def _apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    made = a
    for axis in (axes,) if np.ndim(axes) == 0 else axes:
        at = axis + a.ndim if axis < 0 else axis
        result = func(made, at)
        result = result if result.ndim == made.ndim else np.expand_dims(result, at)
        if result.ndim != made.ndim:
            raise ValueError("function is not returning an array of the correct shape")  # NumPy's own text
        made = result
    return made


GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Differences and integrals",
        (
            Op(np.diff, twin=_diff),
            Op(np.ediff1d, twin=_ediff1d),
            Op(np.gradient, twin=_gradient, check=Accumulated(4.0)),
            Op(np.trapezoid, twin=_trapezoid, check=Accumulated(2.0, sizes=_trapezoid_size)),
            Op(np.unwrap, twin=_unwrap, check=Accumulated(2.0, sizes=_unwrap_size)),
        ),
    ),
    Group(
        "Filters and interpolation",
        (
            Op(np.convolve, twin=_convolve, check=Accumulated(2.0)),
            Op(np.correlate, twin=_correlate, check=Accumulated(2.0)),
            Op(np.interp, twin=_interp, part=fewer(0, "x")),
            Op(np.digitize, twin=_digitize, part=fewer(0, "x")),
            Op(np.bincount, twin=_bincount, note="counts into minlength bins: a number beyond them is an error"),
        ),
    ),
    Group(
        "Polynomials and functions",
        (
            Op(np.polyval, twin=_polyval, check=Accumulated(2.0)),
            Op(polynomial.polyval2d, twin=_polyval2d, check=Accumulated(4.0)),
            Op(polynomial.polygrid2d, twin=_polygrid2d, check=Accumulated(4.0)),
            Op(np.polyadd, twin=_polyadd),
            Op(np.polysub, twin=_polysub),
            Op(np.polyder, twin=_polyder),
            Op(np.polyint, twin=_polyint),
            Op(np.poly, twin=_poly),
            NoTwin(np.polymul, why=f"{ZEROS}: {LENGTH}", advice="np.convolve multiplies without cutting"),
            NoTwin(np.polydiv, why=f"{ZEROS}: {LENGTH}"),
            NoTwin(np.polyfit, why="it warns by the rank of the data", advice="np.linalg.solve, on np.vander"),
            NoTwin(np.roots, why=f"{ZEROS}: {LENGTH}"),
            Op(np.vander, twin=_vander, check=Accumulated(4.0)),
            Op(np.sinc, twin=_sinc, check=Ulp(4), elementwise=True),
            Op(np.i0, twin=_i0, check=Ulp(64)),
        ),
    ),
    Group(
        "Sets",
        tuple(
            NoTwin(each, why=LENGTH)
            for each in (
                np.unique,
                np.unique_all,
                np.unique_counts,
                np.unique_inverse,
                np.unique_values,
                np.intersect1d,
                np.setdiff1d,
                np.setxor1d,
                np.union1d,
            )
        ),
    ),
    Group(
        "Functions of functions",
        (
            Through(np.apply_along_axis, _apply_along_axis),
            Through(np.apply_over_axes, _apply_over_axes),
        ),
    ),
)
