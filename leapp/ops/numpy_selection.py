"""Elements chosen, ordered, replaced and compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import torch

from leapp.ops._np_checks import EXACT, Ulp
from leapp.ops._np_row import LENGTH, Group, Op, Through, Unsupported
from leapp.ops._np_samples import SAMPLE_SIZE, fewer
from leapp.ops._np_twin import (
    broadcast,
    cast,
    holds_tensor,
    is_tensor,
    moving,
    not_given,
    number,
    numpy_dtype,
    ordered,
    promoted,
    reordered,
    result_dtype,
    shape_of,
    tensor,
    torch_dtype,
    widened,
)
from leapp.ops.numpy_creation import as_dtype
from leapp.ops.numpy_layout import arrays_in, in_common, in_one_row, pick

_NONE: Final[Any] = np._NoValue


def _is_number(thing: Any) -> bool:
    """Whether a thing is a plain Python number, whose dtype gives way to that of arrays."""
    return type(thing) in (int, float, complex, bool)


def _fixed(thing: Any) -> bool:
    """Whether a thing is one number that is known now."""
    return not is_tensor(thing) and isinstance(thing, (int, float, complex, np.generic))


def _operands(*things: Any) -> list[Any]:
    """Lists as tensors; all else as it is."""
    return [tensor(each) if isinstance(each, (list, tuple)) else each for each in things]


def _where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return _nonzero(condition)
    x, y = _operands(x, y)
    common = result_dtype(x, y)
    chosen = [_weak(each, common, other) for each, other in ((x, y), (y, x))]
    return torch.where(tensor(condition, torch.bool), *chosen)


def _weak(thing: Any, common: torch.dtype, beside: Any) -> Any:
    """A tensor in the common dtype; a Python number stays one where it stands beside a tensor."""
    return thing if _is_number(thing) and not _is_number(beside) else tensor(thing, common)


def _bound(given: Any, common: torch.dtype) -> Any:
    """A limit of np.clip: a number that is known now, or a tensor."""
    if given is None or (_is_number(given) and common.is_floating_point):
        return given
    if _fixed(given):
        fixed = np.asarray(given).astype(numpy_dtype(common)).item()
        return fixed - 2**63 if common == torch.uint64 else fixed
    return ordered(tensor(given, common))


def _clip(
    a: Any,
    a_min: Any = _NONE,
    a_max: Any = _NONE,
    out: Any = None,
    *,
    min: Any = _NONE,
    max: Any = _NONE,
    **kwargs: Any,
) -> Any:
    if kwargs:
        raise Unsupported(f"the keywords {', '.join(kwargs)}")
    low, high = _operands(*(min, max) if not_given(a_min) and not_given(a_max) else (a_min, a_max))
    x = tensor(a)
    low, high = (None if not_given(each) else each for each in (low, high))
    if not x.dtype.is_floating_point and not x.dtype.is_complex and x.dtype != torch.bool:
        # Python's integers beyond the dtype bound nothing.
        limits = np.iinfo(numpy_dtype(x.dtype))
        low = None if type(low) is int and low <= limits.min else low
        high = None if type(high) is int and high >= limits.max else high
    if low is None and high is None:
        return torch.clone(x)
    common = result_dtype(x, *(each for each in (low, high) if each is not None))
    if common.is_complex:
        raise Unsupported("torch has no order of complex numbers")
    x, low, high = ordered(cast(x, common)), _bound(low, common), _bound(high, common)
    if is_tensor(low) != is_tensor(high) and low is not None and high is not None:
        low, high = (
            each if is_tensor(each) else tensor(np.asarray(each, numpy_dtype(x.dtype))) for each in (low, high)
        )
    if low is None:
        clipped = torch.clamp(x, max=high)
    elif high is None:
        clipped = torch.clamp(x, min=low)
    else:
        clipped = torch.clamp(x, low, high)
    return reordered(clipped, common)


def _complex_order(x: Any, axis: int) -> Any:
    """The order of complex numbers: without NaN first, then by real and by imaginary part."""
    real, imag = torch.real(x), torch.imag(x)
    order = torch.argsort(imag, dim=axis, stable=True)
    hidden = torch.isnan(real) * 2 + torch.isnan(imag) * 1
    for key in (real, hidden):
        by = torch.argsort(torch.take_along_dim(key, order, axis), dim=axis, stable=True)
        order = torch.take_along_dim(order, by, axis)
    return order


def _axis(x: Any, axis: Any) -> tuple[Any, int]:
    """The tensor to sort, and along which axis; None stands for all elements in one row."""
    axis = number(axis, "axis")
    return (in_one_row(x), 0) if axis is None else (x, axis)


_SORTED_SIZE: Final = 4 * SAMPLE_SIZE

_fewer_in_order = fewer(0, "a", _SORTED_SIZE)
"""A part of a large array is put in order, by NumPy and by torch, which takes several times as long as NumPy."""


def _fewer_in_parts(args: Any, kwargs: Any) -> Any:
    """The same for partitions, with ``kth`` as near as the part has it."""
    whole = args[0] if args else kwargs["a"]
    kth = args[1] if len(args) > 1 else kwargs["kth"]
    axis = args[2] if len(args) > 2 else kwargs.get("axis", -1)
    fewer = _fewer_in_order(args, kwargs)
    if fewer is None:
        return None
    args, kwargs = fewer
    a = args[0] if args else kwargs["a"]
    before, after = (each.size if axis is None else each.shape[axis] for each in (whole, a))
    kth = np.asarray(kth) % before * after // before
    return ((args[0], kth, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "kth": kth})


def _sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, axis = _axis(tensor(a), axis)
    if x.dtype.is_complex:
        return torch.take_along_dim(x, _complex_order(x, axis), axis)
    return torch.sort(x)[0] if axis == -1 else torch.sort(x, axis)[0]


def _argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, axis = _axis(tensor(a), axis)
    if not x.ndim:
        x = x.reshape((1,))  # the order of a single number is one index, in a row
    if x.dtype.is_complex:
        return _complex_order(x, axis)
    return torch.argsort(x, dim=axis, stable=True)


def _partition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    number(kth, "kth")
    return _sort(a, axis)


def _argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    number(kth, "kth")
    return _argsort(a, axis)


@dataclass(frozen=True, slots=True)
class _SameOrder:
    """The same elements in the same order, though their indices differ among equals.

    For partitions, in the same parts: the elements at ``kth``, and those between them in any order.
    """

    indices: bool
    parts: bool
    whole: ClassVar[bool] = False

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        """Index of the first element that stands elsewhere."""
        if EXACT.wrong(expected, actual, call, args, kwargs) is None:
            return None
        after = args[2 if self.parts else 1 :]
        axis = after[0] if after else kwargs.get("axis", -1)
        a = np.asarray(args[0] if args else kwargs["a"])
        a, axis = (a.ravel(), 0) if axis is None else (a, axis)
        if self.indices:
            if not np.array_equal(np.sort(expected, axis), np.sort(actual, axis)):
                return EXACT.wrong(expected, actual, call, args, kwargs)
            expected, actual = np.take_along_axis(a, expected, axis), np.take_along_axis(a, actual, axis)
        if self.parts:
            kth = np.ravel(args[1] if len(args) > 1 else kwargs["kth"]) % a.shape[axis]
            cuts = sorted({*kth.tolist(), *(kth + 1).tolist()})
            expected, actual = (
                np.concatenate([np.sort(part, axis) for part in np.split(each, cuts, axis)], axis)
                for each in (expected, actual)
            )
        return EXACT.wrong(expected, actual, call, args, kwargs)


def _lexsort(keys: Any, axis: Any = -1) -> Any:
    axis = number(axis, "axis")
    columns = arrays_in(keys)
    order = _argsort(columns[0], axis)
    for key in columns[1:]:
        by = _argsort(torch.take_along_dim(widened(key), order, axis), axis)
        order = torch.take_along_dim(order, by, axis)
    return order


def _searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    keys, values = (ordered(each) for each in in_common([tensor(a), tensor(v)]))
    words: dict[str, Any] = {"right": True} if str(side).lower().startswith("r") else {}
    if sorter is not None:
        words["sorter"] = tensor(sorter, torch.int64)
    return torch.searchsorted(keys, values, **words)


def _nonzero(a: Any) -> Any:
    return tuple(torch.nonzero(widened(tensor(a)), as_tuple=True))


def _flatnonzero(a: Any) -> Any:
    return torch.nonzero(widened(in_one_row(tensor(a))))[:, 0]


def _argwhere(a: Any) -> Any:
    return torch.argwhere(widened(tensor(a)))


def _index(indices: Any, size: int, mode: Any) -> Any:
    """Indices into an axis, as a tensor; those that are known now are counted from the front."""
    if not holds_tensor(indices):
        known = np.asarray(indices)
        known = known.astype(np.int64)
        if mode == "wrap":
            known %= size
        elif mode == "clip":
            known = np.clip(known, 0, size - 1)
        return tensor(np.where(known < 0, known + size, known))
    index = tensor(indices, torch.int64)
    if mode == "wrap":
        return torch.remainder(index, size)
    return torch.clamp(index, 0, size - 1) if mode == "clip" else index


def _from_front(index: Any, size: int) -> Any:
    """Traced indices, counted from the front."""
    return torch.where(index < 0, index + size, index)


def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    x, axis = _axis(tensor(a), axis)
    if x.ndim == 0:
        x = x.reshape((1,))
    axis %= x.ndim
    size = int(x.shape[axis])
    if not holds_tensor(indices) and np.ndim(indices) == 0 and mode == "raise":
        return torch.select(x, axis, int(indices))
    index = _index(indices, size, mode)
    if not holds_tensor(indices) and index.ndim == 1:
        return moving(torch.index_select, x, axis, index)
    if index.ndim == 0:  # torch reads the value of an index without axes
        return torch.squeeze(x[(*(slice(None),) * axis, index.reshape((1,)))], axis)
    return x[(*(slice(None),) * axis, index)]


def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, axis = _axis(tensor(arr), axis)
    return moving(torch.take_along_dim, x, _index(indices, int(x.shape[axis]), "raise"), axis)


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> Any:
    whole = tensor(arr)
    x, axis = _axis(whole, axis)
    size = int(x.shape[axis])
    index = _index(indices, size, "raise")
    if holds_tensor(indices):
        index = _from_front(index, size)
    wide = [*shape_of(x)]
    wide[axis] = int(index.shape[axis])
    index = index.expand(tuple(wide))
    new = as_dtype(tensor(values), x.dtype).expand(tuple(wide))
    return cast(torch.scatter(widened(x), axis, index, widened(new)), x.dtype).reshape(shape_of(whole))


def _compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    x, axis = _axis(tensor(a), axis)
    if not holds_tensor(condition):
        return pick(x, np.flatnonzero(condition), axis)
    axis %= x.ndim
    mask = tensor(condition, torch.bool)
    if mask.shape[0] < x.shape[axis]:
        x = torch.narrow(x, axis, 0, int(mask.shape[0]))
    return x[(*(slice(None),) * axis, mask)]


def _extract(condition: Any, arr: Any) -> Any:
    mask = in_one_row(tensor(condition)) if holds_tensor(condition) else np.ravel(condition)
    return _compress(mask, arr)


def _choose(a: Any, choices: Any, out: Any = None, mode: Any = "raise") -> Any:
    parts = in_common(arrays_in(choices))
    index, *parts = broadcast(_index(tensor(a), len(parts), mode), *parts)
    return moving(torch.gather, torch.stack(parts), 0, index[None])[0]


def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    choices = [each if _is_number(each) else tensor(each) for each in choicelist]
    default = default if _is_number(default) else tensor(default)
    common = result_dtype(*choices, default)
    chosen = default
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        pair = [_weak(each, common, other) for each, other in ((choice, chosen), (chosen, choice))]
        chosen = torch.where(tensor(condition, torch.bool), *pair)
    return chosen


_size: Any = np.ndarray.size.__get__
"""How many elements there are, without a word of it."""


def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    x = x if isinstance(x, np.ndarray) else np.asanyarray(x)
    shape = x.shape
    single = np.isscalar(condlist) or (not isinstance(condlist[0], (list, np.ndarray)) and x.ndim != 0)
    conditions = [condlist] if single else condlist
    masks = [each if isinstance(each, np.ndarray) else np.asanyarray(each) for each in conditions]
    masks = [(each if each.dtype == np.bool_ else each != 0).reshape(shape or (1,)) for each in masks]
    x = x.reshape(shape or (1,))  # a truth value as an index would add an axis
    functions = list(funclist)
    if len(functions) == len(masks) + 1:
        some = masks[0]
        for each in masks[1:]:
            some = some | each
        masks.append(~some)
    elif len(functions) != len(masks):
        raise ValueError(  # NumPy's own text
            f"with {len(masks)} condition(s), either {len(masks)} or {len(masks) + 1} functions are expected"
        )
    found = np.zeros_like(x)
    for mask, function in zip(masks, functions, strict=True):
        if not callable(function):
            found[mask] = function
        else:
            chosen = x[mask]
            if _size(chosen) > 0:
                found[mask] = function(chosen, *args, **kw)
            else:
                len(chosen)  # it was decided by the data, of which the traced array tells
    return found if shape else found.reshape(())


def _in_turn(values: Any, count: int, dtype: torch.dtype) -> Any:
    """So many elements in one row, the values over and over again."""
    row = in_one_row(as_dtype(tensor(values), dtype))
    length = int(row.shape[0])
    return row if length == count else pick(row, np.arange(count) % length, 0)


def _place(arr: Any, mask: Any, vals: Any) -> Any:
    x = tensor(arr)
    chosen = tensor(mask, torch.bool).reshape(shape_of(x))
    if 0 in shape_of(tensor(vals)):
        return x
    size = math.prod(shape_of(x))
    source = widened(_in_turn(vals, size, x.dtype)).reshape(shape_of(x))
    return cast(torch.masked_scatter(widened(x), chosen, source), x.dtype)


def _putmask(a: Any, /, mask: Any, values: Any) -> Any:
    x = tensor(a)
    if 0 in shape_of(tensor(values)):
        return x
    new = as_dtype(tensor(values), x.dtype)
    if new.ndim and shape_of(new) != shape_of(x):
        new = _in_turn(new, math.prod(shape_of(x)), x.dtype).reshape(shape_of(x))
    return torch.where(tensor(mask, torch.bool).reshape(shape_of(x)), new, x)


def _put(a: Any, ind: Any, v: Any, mode: Any = "raise") -> Any:
    x = tensor(a)
    size = math.prod(shape_of(x))
    index = in_one_row(_index(ind, size, mode))
    count = int(index.shape[0])
    if count == 0 or 0 in shape_of(tensor(v)):
        return x
    new = as_dtype(tensor(v), x.dtype)
    new = in_one_row(new)
    new = new[:count] if new.shape[0] > count else _in_turn(new, count, x.dtype)
    if not holds_tensor(ind):  # of places that are named twice the last one counts
        _, last = np.unique(np.asarray(_known(ind, size, mode))[::-1], return_index=True)
        kept = count - 1 - np.sort(last)[::-1]
        if len(kept) < count:
            index, new = pick(index, kept, 0), pick(new, kept, 0)
    put = torch.index_put(widened(in_one_row(x)), (index,), widened(new))
    return cast(put, x.dtype).reshape(shape_of(x))


def _known(indices: Any, size: int, mode: Any) -> Any:
    """Indices that are known now, in one row, counted from the front."""
    known = np.ravel(np.asarray(indices)).astype(np.int64)
    return np.clip(known, 0, size - 1) if mode == "clip" else known % size


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> Any:
    x = tensor(dst)
    new = as_dtype(tensor(src), x.dtype)
    shape = shape_of(x)
    if new.ndim > x.ndim:
        new = new.reshape(shape_of(new)[new.ndim - x.ndim :])  # NumPy passes over leading axes of 1
    if where is True:
        return new.expand(shape)
    mask = tensor(where, torch.bool)
    missing = x.ndim - mask.ndim
    if missing < 0 or any(one not in (1, size) for one, size in zip(shape_of(mask), shape[missing:], strict=True)):
        return x  # of such a mask NumPy makes nothing, or, where ``src`` is ``dst`` itself, nothing to do
    return torch.where(mask, new, x)


def _fill_diagonal(a: Any, val: Any, wrap: Any = False) -> Any:
    x = tensor(a)
    shape = shape_of(x)
    size = math.prod(shape)
    if x.ndim == 2:
        step, end = shape[1] + 1, size if wrap else shape[1] * shape[1]
    else:
        step, end = 1 + int(np.cumprod(shape[:-1]).sum()), size
    return _put(x, np.arange(size)[:end:step], val)


def _unravel_index(indices: Any, shape: Any, order: Any = "C") -> Any:
    sizes = number(shape, "shape")
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    index = tensor(indices, torch.int64)
    found = []
    for size in sizes[::-1] if order == "C" else sizes:
        found.append(torch.remainder(index, size))
        index = torch.div(index, size, rounding_mode="floor")
    return tuple(found[::-1] if order == "C" else found)


def _ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: Any = "C") -> Any:
    sizes = number(dims, "dims")
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    modes = (mode,) * len(sizes) if isinstance(mode, str) else tuple(mode)
    columns = list(zip(arrays_in(multi_index), sizes, modes, strict=True))
    index: Any = None
    for each, size, how in columns if order == "C" else columns[::-1]:
        column = _index(each, size, how)
        index = column if index is None else index * size + column
    return index


def _nan_to_num(x: Any, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    y = tensor(x)
    if y.dtype.is_complex:
        return torch.complex(*(_nan_to_num(part(y), True, nan, posinf, neginf) for part in (torch.real, torch.imag)))
    if not y.dtype.is_floating_point:
        return torch.clone(y)
    given = {"nan": nan, "posinf": posinf, "neginf": neginf}
    if all(each is None or _fixed(each) for each in given.values()):
        kind = numpy_dtype(y.dtype).type
        words: dict[str, Any] = {
            name: float(kind(each)) for name, each in given.items() if each is not None and (name, each) != ("nan", 0)
        }
        return torch.nan_to_num(y, **words)
    finite = torch.finfo(y.dtype)
    for where, value in (
        (torch.isnan(y), nan),
        (y == math.inf, finite.max if posinf is None else posinf),
        (y == -math.inf, finite.min if neginf is None else neginf),
    ):
        y = torch.where(where, _weak(value, y.dtype, y), y)
    return y


def _writes_into_x(x: Any, copy: Any = True, *args: Any, **kwargs: Any) -> bool:
    return not copy


def _isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Any:
    x, y = (each if _is_number(each) else tensor(each) for each in (a, b))
    if not _is_number(y):
        y = cast(y, torch_dtype(np.result_type(numpy_dtype(y.dtype), 1.0)))
    x, y = promoted(x, float(y) if isinstance(y, int) else y)
    real = x.dtype.is_floating_point
    if real and _is_number(rtol) and _is_number(atol):
        kind = numpy_dtype(x.dtype).type if x.dtype == torch.float16 else float
        words: dict[str, Any] = {"rtol": float(kind(rtol)), "atol": float(kind(atol)), "equal_nan": bool(equal_nan)}
        usual = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False}
        return torch.isclose(x, y, **{name: each for name, each in words.items() if each != usual[name]})
    relative, size = promoted(rtol, torch.abs(y))
    absolute, allowed = promoted(atol, relative * size)
    apart, allowed = promoted(torch.abs(x - y), absolute + allowed)
    close = ((apart <= allowed) & torch.isfinite(y)) | (x == y)
    return close | (torch.isnan(x) & torch.isnan(y)) if equal_nan else close


def _allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Any:
    return torch.all(_isclose(a, b, rtol, atol, equal_nan))


def _array_equal(a1: Any, a2: Any, equal_nan: Any = False) -> Any:
    x, y = tensor(a1), tensor(a2)
    if shape_of(x) != shape_of(y):
        return tensor(np.asarray(False))
    x, y = promoted(x, y)
    same = x == y
    if equal_nan and (x.dtype.is_floating_point or x.dtype.is_complex):
        same = same | (torch.isnan(x) & torch.isnan(y))
    return torch.all(same)


def _array_equiv(a1: Any, a2: Any) -> Any:
    x, y = promoted(tensor(a1), tensor(a2))
    try:
        np.broadcast_shapes(shape_of(x), shape_of(y))
    except ValueError:
        return tensor(np.asarray(False))
    return torch.all(x == y)


def _isin(
    element: Any, test_elements: Any, assume_unique: Any = False, invert: Any = False, *, kind: Any = None
) -> Any:
    x, among = (ordered(each) for each in in_common([tensor(element), tensor(test_elements)]))
    if x.dtype.is_complex:
        found = torch.any(x[..., None] == in_one_row(among), -1)
        return ~found if invert else found
    return torch.isin(x, among, invert=True) if invert else torch.isin(x, among)


def _round(a: Any, decimals: Any = 0, out: Any = None) -> Any:
    x = tensor(a)
    decimals = number(decimals, "decimals")
    if x.dtype.is_complex:
        return torch.complex(_round(torch.real(x), decimals), _round(torch.imag(x), decimals))
    if not x.dtype.is_floating_point:
        if decimals >= 0:
            return torch.clone(x) if x.dtype != torch.bool else cast(x, torch.float16)
        scale = 10.0**-decimals
        return cast(torch.round(cast(x, torch.float64) / scale) * scale, x.dtype)
    if not decimals:
        return torch.round(x)
    if x.dtype == torch.float16:  # torch would round the product in float32
        scale = 10.0 ** abs(decimals)
        return torch.round(x * scale) / scale if decimals > 0 else torch.round(x / scale) * scale
    return torch.round(x, decimals=decimals)


def _fix(x: Any, out: Any = None) -> Any:
    y = tensor(x)
    return torch.trunc(y) if y.dtype.is_floating_point else torch.clone(y)


def _isposinf(x: Any, out: Any = None) -> Any:
    return torch.isposinf(widened(tensor(x)))


def _isneginf(x: Any, out: Any = None) -> Any:
    return torch.isneginf(widened(tensor(x)))


def _real(val: Any) -> Any:
    x = tensor(val)
    return torch.real(x) if x.dtype.is_complex else x


def _imag(val: Any) -> Any:
    x = tensor(val)
    return torch.imag(x) if x.dtype.is_complex else torch.zeros_like(x)


def _angle(z: Any, deg: Any = False) -> Any:
    x = tensor(z)
    if x.dtype.is_complex:
        angle = torch.atan2(torch.imag(x), torch.real(x))
    else:
        x = cast(x, torch_dtype(np.arctan2(0, np.ones(1, numpy_dtype(x.dtype))).dtype))
        angle = torch.atan2(torch.zeros_like(x), x)
    return angle * (180 / math.pi) if deg else angle


def _iscomplex(x: Any) -> Any:
    y = tensor(x)
    return torch.imag(y) != 0 if y.dtype.is_complex else torch.zeros_like(y, dtype=torch.bool)


def _isreal(x: Any) -> Any:
    y = tensor(x)
    return torch.imag(y) == 0 if y.dtype.is_complex else torch.ones_like(y, dtype=torch.bool)


def _real_if_close(a: Any, tol: Any = 100) -> Any:
    x = tensor(a)
    if x.dtype.is_complex:
        raise Unsupported("whether the result is complex follows the data; take .real")
    return x


def _sort_complex(a: Any) -> Any:
    x = _sort(a)
    if x.dtype.is_complex:
        return x
    short = (torch.int8, torch.int16, torch.uint8, torch.uint16)
    return x.to(torch.complex64 if x.dtype in short else torch.complex128)


def _weights(bitorder: Any) -> np.ndarray[Any, Any]:
    """What the bits of a byte count."""
    powers = 2 ** np.arange(8, dtype=np.uint8)
    return powers if str(bitorder).startswith("l") else powers[::-1]


def _packbits(a: Any, /, axis: Any = None, bitorder: Any = "big") -> Any:
    x, axis = _axis(cast(tensor(a), torch.bool), axis)
    x = torch.moveaxis(x if x.ndim else x.reshape((1,)), axis, -1)
    bits = torch.nn.functional.pad(x.to(torch.uint8), (0, -int(x.shape[-1]) % 8))
    shape = shape_of(bits)
    packed = bits.reshape((*shape[:-1], shape[-1] // 8, 8)) * tensor(np.ascontiguousarray(_weights(bitorder)))
    return torch.moveaxis(torch.sum(packed, -1, dtype=torch.uint8), -1, axis)


def _unpackbits(a: Any, /, axis: Any = None, count: Any = None, bitorder: Any = "big") -> Any:
    x, axis = _axis(tensor(a), axis)
    x = torch.moveaxis(x if x.ndim else x.reshape((1,)), axis, -1)
    bits = (x[..., None] & tensor(np.ascontiguousarray(_weights(bitorder)))) != 0
    shape = shape_of(x)
    bits = bits.to(torch.uint8).reshape((*shape[:-1], shape[-1] * 8))
    count = number(count, "count")
    if count is not None:
        more = count - shape[-1] * 8
        bits = torch.nn.functional.pad(bits, (0, more)) if more > 0 and count >= 0 else bits[..., :count]
    return torch.moveaxis(bits, -1, axis)


GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Selection",
        (
            Op(np.where, twin=_where, elementwise=True, note=f"with one argument {LENGTH}"),
            Op(np.select, twin=_select),
            Op(np.choose, twin=_choose),
            Through(
                np.piecewise, _piecewise, note="a function that was given no elements is not called, and not recorded"
            ),
            Op(np.clip, twin=_clip, elementwise=True),
            Op(np.take, twin=_take, part=fewer(1, "indices")),
            Op(np.take_along_axis, twin=_take_along_axis),
            Op(np.compress, twin=_compress, note=f"if the condition is traced, {LENGTH}"),
            Op(np.extract, twin=_extract, note=f"if the condition is traced, {LENGTH}"),
            Op(np.nonzero, twin=_nonzero, note=LENGTH),
            Op(np.flatnonzero, twin=_flatnonzero, note=LENGTH),
            Op(np.argwhere, twin=_argwhere, note=LENGTH),
            Op(np.unravel_index, twin=_unravel_index),
            Op(np.ravel_multi_index, twin=_ravel_multi_index),
        ),
    ),
    Group(
        "Order",
        (
            Op(np.sort, twin=_sort, part=_fewer_in_order),
            Op(
                np.argsort,
                twin=_argsort,
                part=_fewer_in_order,
                check=_SameOrder(indices=True, parts=False),
                note="equal elements keep their order, as with stable=True",
            ),
            Op(np.lexsort, twin=_lexsort),
            Op(
                np.partition,
                twin=_partition,
                part=_fewer_in_parts,
                check=_SameOrder(indices=False, parts=True),
                note="recorded as a sort, which is one of the partitions",
            ),
            Op(
                np.argpartition,
                twin=_argpartition,
                part=_fewer_in_parts,
                check=_SameOrder(indices=True, parts=True),
                note="recorded as a sort, which is one of the partitions",
            ),
            Op(np.searchsorted, twin=_searchsorted, part=fewer(1, "v")),
            Op(np.sort_complex, twin=_sort_complex),
        ),
    ),
    Group(
        "Writing",
        (
            Op(np.copyto, twin=_copyto, writes="dst"),
            Op(np.put, twin=_put, writes="a"),
            Op(np.put_along_axis, twin=_put_along_axis, writes="arr"),
            Op(np.place, twin=_place, writes="arr"),
            Op(np.putmask, twin=_putmask, writes="a"),
            Op(np.fill_diagonal, twin=_fill_diagonal, writes="a"),
        ),
    ),
    Group(
        "Comparison and kinds of numbers",
        (
            Op(np.isclose, twin=_isclose, elementwise=True),
            Op(np.allclose, twin=_allclose),
            Op(np.array_equal, twin=_array_equal),
            Op(np.array_equiv, twin=_array_equiv),
            Op(np.isin, twin=_isin, part=fewer(0, "element")),
            Op(np.isposinf, twin=_isposinf, elementwise=True),
            Op(np.isneginf, twin=_isneginf, elementwise=True),
            Op(np.iscomplex, twin=_iscomplex, elementwise=True),
            Op(np.isreal, twin=_isreal, elementwise=True),
            Op(np.nan_to_num, twin=_nan_to_num, elementwise=True, writes="x", writes_if=_writes_into_x),
            Op(np.round, twin=_round, elementwise=True, note="half to even"),
            Op(np.around, twin=_round, elementwise=True, note="half to even"),
            Op(np.fix, twin=_fix, elementwise=True),
            Op(np.real, twin=_real, elementwise=True, layout=True),
            Op(np.imag, twin=_imag, elementwise=True, layout=True),
            Op(np.angle, twin=_angle, elementwise=True, check=Ulp(4)),
            Op(np.real_if_close, twin=_real_if_close),
            Op(np.packbits, twin=_packbits),
            Op(np.unpackbits, twin=_unpackbits),
        ),
    ),
)
