"""Arrays made anew: from values that are traced, in the likeness of traced ones, or between two of them.

NumPy hands the constructors over only where ``like=`` names a traced array; the recorder finds the others by name.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch

from leapp.ops._np_checks import Scaled, Ulp
from leapp.ops._np_row import LENGTH, Group, NoTwin, Op, Unsupported
from leapp.ops._np_twin import (
    broadcast,
    cast,
    holds_tensor,
    is_tensor,
    is_whole,
    number,
    numpy_dtype,
    result_dtype,
    shape_of,
    tensor,
    torch_dtype,
)


class _Anything:
    """Memory that nothing was written to may hold anything."""

    whole: bool = False

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        del expected, actual, call, args, kwargs
        return None


ANYTHING: Final = _Anything()


def _array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: Any = "K",
    subok: Any = False,
    ndmin: Any = 0,
    ndmax: Any = 0,
    like: Any = None,
) -> Any:
    made = tensor(object, None if dtype is None else torch_dtype(dtype))
    return made.reshape((1,) * (ndmin - made.ndim) + shape_of(made)) if made.ndim < ndmin else made


def _asarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None
) -> Any:
    return _array(a, dtype)


def _asanyarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None, like: Any = None
) -> Any:
    return _array(a, dtype)


def _ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    return _array(a, dtype, ndmin=1)


def _require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    return _array(a, dtype)


def _copy(a: Any, order: Any = "K", subok: Any = False) -> Any:
    return torch.clone(tensor(a))


def _astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    return as_dtype(tensor(x), torch_dtype(dtype))


def as_dtype(x: Any, dtype: torch.dtype) -> Any:
    """The elements in another dtype; of complex ones that become real the real part, as NumPy takes."""
    if x.dtype.is_complex and not dtype.is_complex and dtype != torch.bool:
        x = torch.real(x)
    return cast(x, dtype)


def _shape(shape: Any) -> tuple[int, ...]:
    """A shape that NumPy was given, as a tuple."""
    shape = number(shape, "shape")
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _filled(shape: Any, fill_value: Any, dtype: torch.dtype) -> Any:
    """A new tensor of one element throughout."""
    if holds_tensor(fill_value):
        return torch.clone(as_dtype(tensor(fill_value), dtype).expand(_shape(shape)))
    fill = np.asarray(fill_value)
    if fill.ndim:
        return torch.clone(as_dtype(tensor(fill), dtype).expand(_shape(shape)))
    return torch.full(_shape(shape), fill.astype(numpy_dtype(dtype)).item(), dtype=dtype)


def _zeros(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None) -> Any:
    return torch.zeros(_shape(shape), dtype=torch_dtype(np.float64 if dtype is None else dtype))


def _ones(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None) -> Any:
    return torch.ones(_shape(shape), dtype=torch_dtype(np.float64 if dtype is None else dtype))


def _full(
    shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
) -> Any:
    if dtype is None:
        kind = tensor(fill_value).dtype if holds_tensor(fill_value) else torch_dtype(np.asarray(fill_value).dtype)
        return _filled(shape, fill_value, kind)
    return _filled(shape, fill_value, torch_dtype(dtype))


def _like_dtype(x: Any, dtype: Any) -> torch.dtype:
    """The dtype of an array in the likeness of another."""
    return x.dtype if dtype is None else torch_dtype(dtype)


def _zeros_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None, *, device: Any = None
) -> Any:
    x = tensor(a)
    if shape is not None:
        return torch.zeros(_shape(shape), dtype=_like_dtype(x, dtype))
    return torch.zeros_like(x) if dtype is None else torch.zeros_like(x, dtype=torch_dtype(dtype))


def _ones_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None, *, device: Any = None
) -> Any:
    x = tensor(a)
    if shape is not None:
        return torch.ones(_shape(shape), dtype=_like_dtype(x, dtype))
    return torch.ones_like(x) if dtype is None else torch.ones_like(x, dtype=torch_dtype(dtype))


def _empty_like(
    prototype: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None, *, device: Any = None
) -> Any:
    return _zeros_like(prototype, dtype, shape=shape)


def _full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: Any = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    x = tensor(a)
    kind = _like_dtype(x, dtype)
    if shape is not None or holds_tensor(fill_value) or np.ndim(fill_value):
        return _filled(shape_of(x) if shape is None else shape, fill_value, kind)
    fill = np.asarray(fill_value).astype(numpy_dtype(kind)).item()
    return torch.full_like(x, fill) if dtype is None else torch.full_like(x, fill, dtype=kind)


def _eye(
    N: Any,  # noqa: N803 - NumPy's name
    M: Any = None,  # noqa: N803
    k: Any = 0,
    dtype: Any = float,
    order: Any = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Any:
    return tensor(np.eye(number(N, "N"), number(M, "M"), number(k, "k"), dtype))


def _identity(n: Any, dtype: Any = None, *, like: Any = None) -> Any:
    return tensor(np.identity(number(n, "n"), dtype))


def _tri(
    N: Any,  # noqa: N803
    M: Any = None,  # noqa: N803
    k: Any = 0,
    dtype: Any = float,
    *,
    like: Any = None,
) -> Any:
    return tensor(np.tri(number(N, "N"), number(M, "M"), number(k, "k"), dtype))


def _arange(*limits: Any, dtype: Any = None, device: Any = None, like: Any = None, **named: Any) -> Any:
    if holds_tensor(limits) or holds_tensor(tuple(named.values())):
        raise Unsupported(f"{LENGTH}; use np.linspace, or a constant range times a step")
    return tensor(np.arange(*limits, dtype=dtype, **named))


def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: Any = True,
    retstep: Any = False,
    dtype: Any = None,
    axis: Any = 0,
    *,
    device: Any = None,
) -> Any:
    """Evenly spaced numbers, by NumPy's own formula: a range times the step, plus the start."""
    num, axis = int(number(num, "num")), number(axis, "axis")
    gaps = num - 1 if endpoint else num
    # Python's numbers give way to the dtype of arrays; integers become floats.
    common = result_dtype(*(tensor(each) if isinstance(each, (list, tuple)) else each for each in (start, stop)), 1.0)
    first, last = tensor(start, common), tensor(stop, common)
    apart = last - first
    given = common if dtype is None else torch_dtype(dtype)
    shape = (-1,) + (1,) * apart.ndim
    places = tensor(np.arange(num, dtype=numpy_dtype(common)).reshape(shape))
    if gaps > 0:
        step = apart / gaps
        made = places * step
    else:
        step = tensor(np.asarray(math.nan, numpy_dtype(common)))
        made = places * apart
    made = made + first
    if endpoint and num > 1:
        made = torch.cat([made[:-1], last.expand(shape_of(made)[1:])[None]])
    if axis != 0:
        made = torch.moveaxis(made, 0, axis)
    if is_whole(given):
        made = torch.floor(made)
    made = as_dtype(made, given)
    return (made, step) if retstep else made


def _logspace(
    start: Any, stop: Any, num: Any = 50, endpoint: Any = True, base: Any = 10.0, dtype: Any = None, axis: Any = 0
) -> Any:
    if np.ndim(base) if not is_tensor(base) else base.ndim:
        raise Unsupported("base is an array")
    powers = linspace(start, stop, num, endpoint, axis=axis)
    if is_tensor(base) or isinstance(base, (np.ndarray, np.generic)):
        common = result_dtype(tensor(base), powers)
        made = torch.pow(tensor(base, common), cast(powers, common))
    else:
        made = torch.pow(base, powers)
    return made if dtype is None else as_dtype(made, torch_dtype(dtype))


def _geomspace(start: Any, stop: Any, num: Any = 50, endpoint: Any = True, dtype: Any = None, axis: Any = 0) -> Any:
    num, axis = int(number(num, "num")), number(axis, "axis")
    first, last = tensor(start), tensor(stop)
    kinds = [numpy_dtype(each.dtype) for each in (first, last)]
    common = torch_dtype(np.result_type(*kinds, float(num), np.dtype(np.float64 if dtype is None else dtype)))
    if common.is_complex:
        raise Unsupported("spirals between complex numbers")
    first, last = broadcast(cast(first, common), cast(last, common))
    sign = torch.sign(first)
    made = _logspace(torch.log10(first / sign), torch.log10(last / sign), num, endpoint)
    if num > 0:
        parts = [(first / sign)[None], made[1:]]
        if num > 1 and endpoint:
            parts = [(first / sign)[None], made[1:-1], (last / sign)[None]]
        made = torch.cat(parts)
    made = made * sign
    if axis != 0:
        made = torch.moveaxis(made, 0, axis)
    return made if dtype is None else as_dtype(made, torch_dtype(dtype))


_CALLS = "calls a function of the user for the elements of the result"

GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Array creation",
        (
            Op(np.zeros_like, twin=_zeros_like),
            Op(np.ones_like, twin=_ones_like),
            Op(np.full_like, twin=_full_like),
            Op(np.empty_like, twin=_empty_like, check=ANYTHING, note="recorded as zeros"),
            Op(np.zeros, twin=_zeros),
            Op(np.ones, twin=_ones),
            Op(np.full, twin=_full),
            Op(np.empty, twin=_zeros, check=ANYTHING, note="recorded as zeros"),
            Op(np.eye, twin=_eye),
            Op(np.identity, twin=_identity),
            Op(np.tri, twin=_tri),
            Op(np.arange, twin=_arange, note="limits that follow the data would make a length that does"),
            Op(np.linspace, twin=linspace, check=Scaled(8)),
            Op(np.logspace, twin=_logspace, check=Ulp(16)),
            Op(np.geomspace, twin=_geomspace, check=Ulp(64)),
            NoTwin(np.fromfunction, _CALLS, "call the function with np.indices(shape)"),
        ),
    ),
    Group(
        "Conversion",
        (
            Op(np.array, twin=_array),
            Op(np.asarray, twin=_asarray),
            Op(np.asanyarray, twin=_asanyarray),
            Op(np.ascontiguousarray, twin=_ascontiguousarray),
            Op(np.asfortranarray, twin=_ascontiguousarray),
            Op(np.require, twin=_require),
            Op(np.copy, twin=_copy, layout=True),
            Op(np.astype, twin=_astype),
        ),
    ),
)
