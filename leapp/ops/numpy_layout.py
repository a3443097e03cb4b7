"""Shapes of arrays, and where their elements stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops._np_checks import Scaled
from leapp.ops._np_row import LENGTH, Group, NoTwin, Op, Unsupported
from leapp.ops._np_twin import (
    broadcast,
    holds_tensor,
    is_tensor,
    moving,
    number,
    numpy_dtype,
    reversed_order,
    shape_of,
    tensor,
    torch_dtype,
)
from leapp.ops.numpy_creation import as_dtype, linspace
from leapp.ops.numpy_reductions import maximum_of, mean_of, minimum_of

if TYPE_CHECKING:
    from collections.abc import Callable


def in_one_row(x: Any) -> Any:
    """All elements, the last axis running fastest."""
    return x if x.ndim == 1 else torch.ravel(x)


def pick(x: Any, places: Any, axis: int) -> Any:
    """Elements at known places of an axis."""
    return moving(torch.index_select, x, axis, tensor(np.asarray(places, np.int64)))


def _memory_order(x: Any) -> tuple[int, ...]:
    """The axes, the one with the longest steps in memory first."""
    steps = x.stride()
    return tuple(sorted(range(x.ndim), key=lambda axis: -steps[axis] if x.shape[axis] > 1 else 0))


def _column_major(x: Any, order: Any) -> bool:
    """Whether elements are counted with the first axis running fastest."""
    order = "C" if order is None else str(order).upper()
    if order != "A":
        return bool(order == "F")
    wanted, steps = 1, x.stride()
    for size, step in zip(shape_of(x), steps, strict=True):
        if size > 1 and step != wanted:
            return False
        wanted *= size
    return sum(size > 1 for size in shape_of(x)) > 1 and 0 not in shape_of(x)


def _turned(x: Any) -> Any:
    """The axes in reversed order."""
    return torch.permute(x, tuple(reversed_order(x.ndim))) if x.ndim > 1 else x


def _reshape(a: Any, /, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: Any = None) -> Any:
    x = tensor(a)
    shape = number(newshape if shape is None else shape, "shape")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if _column_major(x, order):
        return _turned(torch.reshape(_turned(x), shape[::-1]))
    return torch.reshape(x, shape)


def _ravel(a: Any, order: Any = "C") -> Any:
    x = tensor(a)
    if order is not None and str(order).upper() == "K":
        return in_one_row(torch.permute(x, _memory_order(x)) if x.ndim > 1 else x) if x.ndim else torch.ravel(x)
    return torch.ravel(_turned(x) if _column_major(x, order) else x)


def _transpose(a: Any, axes: Any = None) -> Any:
    x = tensor(a)
    axes = number(axes, "axes")
    if axes is None:
        return _turned(x)
    return torch.permute(x, tuple(axes))


def matrix_transpose(x: Any, /) -> Any:
    """``np.matrix_transpose``."""
    return torch.transpose(tensor(x), -2, -1)


def _swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    return torch.swapaxes(tensor(a), number(axis1, "axis1"), number(axis2, "axis2"))


def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return torch.moveaxis(tensor(a), number(source, "source"), number(destination, "destination"))


def _rollaxis(a: Any, axis: Any, start: Any = 0) -> Any:
    x = tensor(a)
    axis, start = number(axis, "axis") % x.ndim, number(start, "start")
    start = start + x.ndim if start < 0 else start
    return torch.moveaxis(x, axis, start - 1 if axis < start else start)


def _expand_dims(a: Any, axis: Any) -> Any:
    x = tensor(a)
    axis = number(axis, "axis")
    if isinstance(axis, int):
        return torch.unsqueeze(x, axis)
    ndim = x.ndim + len(axis)
    for each in sorted(one % ndim for one in axis):
        x = torch.unsqueeze(x, each)
    return x


def _squeeze(a: Any, axis: Any = None) -> Any:
    x = tensor(a)
    axis = number(axis, "axis")
    return torch.squeeze(x) if axis is None else torch.squeeze(x, axis)


def _at_least(torch_function: Callable[[Any], Any], arrays: tuple[Any, ...]) -> Any:
    """One tensor, or a tuple of as many as were given."""
    made = tuple(torch_function(tensor(each)) for each in arrays)
    return made[0] if len(made) == 1 else made


def _atleast_1d(*arys: Any) -> Any:
    return _at_least(torch.atleast_1d, arys)


def _atleast_2d(*arys: Any) -> Any:
    return _at_least(torch.atleast_2d, arys)


def _atleast_3d(*arys: Any) -> Any:
    return _at_least(torch.atleast_3d, arys)


def _broadcast_to(array: Any, shape: Any, subok: Any = False) -> Any:
    shape = number(shape, "shape")
    return torch.broadcast_to(tensor(array), (shape,) if isinstance(shape, int) else tuple(shape))


def _broadcast_arrays(*args: Any, subok: Any = False) -> Any:
    return tuple(broadcast(*(tensor(each) for each in args)))


def arrays_in(arrays: Any) -> list[Any]:
    """The arrays that NumPy joins: those of a sequence, or those along the first axis of one array."""
    return list(torch.unbind(arrays)) if is_tensor(arrays) else [tensor(each) for each in arrays]


def in_common(parts: list[Any], dtype: Any = None) -> list[Any]:
    """Tensors in the dtype that NumPy joins them in."""
    common = torch_dtype(np.result_type(*(numpy_dtype(each.dtype) for each in parts)) if dtype is None else dtype)
    return [as_dtype(each, common) for each in parts]


def _concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    parts = in_common(arrays_in(arrays), dtype)
    axis = number(axis, "axis")
    if axis is None:
        return torch.cat([in_one_row(each) for each in parts])
    return torch.cat(parts) if axis == 0 else torch.cat(parts, axis)


def _stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    parts = in_common(arrays_in(arrays), dtype)
    axis = number(axis, "axis")
    return torch.stack(parts) if axis == 0 else torch.stack(parts, axis)


def _unstack(x: Any, /, *, axis: Any = 0) -> Any:
    return tuple(torch.unbind(tensor(x), number(axis, "axis")))


def _hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    return torch.hstack(in_common(arrays_in(tup), dtype))


def _vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    return torch.vstack(in_common(arrays_in(tup), dtype))


def _dstack(tup: Any) -> Any:
    return torch.dstack(in_common(arrays_in(tup)))


def _column_stack(tup: Any) -> Any:
    return torch.column_stack(in_common(arrays_in(tup)))


def _depth(arrays: Any) -> int:
    """How deep lists are nested."""
    return 1 + max((_depth(each) for each in arrays), default=0) if isinstance(arrays, list) else 0


def _leaves(arrays: Any) -> list[Any]:
    """The arrays in nested lists."""
    return [leaf for each in arrays for leaf in _leaves(each)] if isinstance(arrays, list) else [tensor(arrays)]


def _block(arrays: Any) -> Any:
    depth = _depth(arrays)
    ndim = max(depth, *(leaf.ndim for leaf in _leaves(arrays)))

    def joined(part: Any, axis: int) -> Any:
        if isinstance(part, list):
            parts = in_common([joined(each, axis + 1) for each in part])
            return torch.cat(parts, axis) if len(parts) > 1 else parts[0]
        x = tensor(part)
        return x.reshape((1,) * (ndim - x.ndim) + shape_of(x)) if x.ndim < ndim else x

    return joined(arrays, -depth)


def _array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    sections = number(indices_or_sections, "indices_or_sections")
    sections = sections if isinstance(sections, int) else tuple(sections)
    axis = number(axis, "axis")
    x = tensor(ary)
    return list(torch.tensor_split(x, sections) if axis == 0 else torch.tensor_split(x, sections, axis))


def _hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _array_split(ary, indices_or_sections, 1 if tensor(ary).ndim > 1 else 0)


def _vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _array_split(ary, indices_or_sections, 0)


def _dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _array_split(ary, indices_or_sections, 2)


def _tile(A: Any, reps: Any) -> Any:  # noqa: N803 - NumPy's name
    reps = number(reps, "reps")
    return torch.tile(tensor(A), (reps,) if isinstance(reps, int) else tuple(reps))


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    x = tensor(a)
    axis = number(axis, "axis")
    if axis is None:
        x, axis = in_one_row(x), 0
    if holds_tensor(repeats):
        times = tensor(repeats).to(torch.int64)
        return torch.repeat_interleave(x, times, axis)
    times = np.asarray(repeats)
    if times.size == 1:
        return torch.repeat_interleave(x, int(times.item()), axis)
    return pick(x, np.repeat(np.arange(x.shape[axis]), times), axis)


def _flip(m: Any, axis: Any = None) -> Any:
    x = tensor(m)
    axis = number(axis, "axis")
    if axis is None:
        axis = tuple(range(x.ndim))
    return moving(torch.flip, x, (axis,) if isinstance(axis, int) else tuple(axis))


def _fliplr(m: Any) -> Any:
    return moving(torch.fliplr, tensor(m))


def _flipud(m: Any) -> Any:
    return moving(torch.flipud, tensor(m))


def _rot90(m: Any, k: Any = 1, axes: Any = (0, 1)) -> Any:
    return moving(torch.rot90, tensor(m), number(k, "k"), tuple(number(axes, "axes")))


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    x = tensor(a)
    shift, axis = number(shift, "shift"), number(axis, "axis")
    if axis is None:
        return torch.roll(x, int(np.sum(shift)))
    if x.ndim == 0:
        return x
    if isinstance(shift, int) and isinstance(axis, int):
        return torch.roll(x, shift, axis)
    by_axis: dict[int, int] = {}
    for by, along in np.broadcast(shift, axis):
        by_axis[int(along) % x.ndim] = by_axis.get(int(along) % x.ndim, 0) + int(by)
    return torch.roll(x, tuple(by_axis.values()), tuple(by_axis))


def _resize(a: Any, new_shape: Any) -> Any:
    x = in_one_row(tensor(a))
    new_shape = number(new_shape, "new_shape")
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    size = int(np.prod(shape))
    length = int(x.shape[0])
    if length == 0:
        return tensor(np.zeros(shape, numpy_dtype(x.dtype)))
    return pick(x, np.arange(size) % length, 0).reshape(shape)


def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate([tensor(arr), tensor(values)], axis)


def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    if holds_tensor(obj):
        raise Unsupported("where to insert follows the data")
    x = tensor(arr)
    axis = number(axis, "axis")
    if axis is None:
        x, axis = in_one_row(x), 0
    axis %= x.ndim
    length = int(x.shape[axis])
    new = as_dtype(tensor(values), x.dtype)
    new = new.reshape((1,) * (x.ndim - new.ndim) + shape_of(new))
    if isinstance(obj, slice):
        obj = np.arange(*obj.indices(length))
    at = np.asarray(obj)
    if at.dtype == bool:
        at = np.flatnonzero(at)
    if at.ndim == 0:
        new = torch.moveaxis(new, 0, axis)
    count = int(new.shape[axis]) if at.size == 1 else at.size
    shape = tuple(count if each == axis else size for each, size in enumerate(shape_of(x)))
    where = at.item() if at.size == 1 else at.astype(np.intp)
    places = np.insert(np.arange(length), where, np.arange(length, length + count))
    return pick(torch.cat([x, new.expand(shape)], axis), places, axis)


def _delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    if holds_tensor(obj):
        raise Unsupported("what to delete follows the data")
    x = tensor(arr)
    axis = number(axis, "axis")
    if axis is None:
        x, axis = in_one_row(x), 0
    return pick(x, np.delete(np.arange(int(x.shape[axis])), obj), axis)


def _triangle(torch_function: Callable[..., Any], m: Any, k: Any) -> Any:
    x = tensor(m)
    if x.ndim == 1:
        x = x.expand((x.shape[0], x.shape[0]))
    k = number(k, "k")
    return moving(torch_function, x, k) if k else moving(torch_function, x)


def _tril(m: Any, k: Any = 0) -> Any:
    return _triangle(torch.tril, m, k)


def _triu(m: Any, k: Any = 0) -> Any:
    return _triangle(torch.triu, m, k)


def _diag(v: Any, k: Any = 0) -> Any:
    line = tensor(v)
    # Of a matrix NumPy gives a view.
    return (torch.diag if line.ndim == 1 else torch.diagonal)(line, number(k, "k"))


def _diagflat(v: Any, k: Any = 0) -> Any:
    return torch.diagflat(tensor(v), number(k, "k"))


def _diagonal(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Any:
    return torch.diagonal(tensor(a), number(offset, "offset"), number(axis1, "axis1"), number(axis2, "axis2"))


def _meshgrid(*xi: Any, copy: Any = True, sparse: Any = False, indexing: Any = "xy") -> Any:
    rows = [in_one_row(tensor(each)) if tensor(each).ndim else tensor(each).reshape((1,)) for each in xi]
    order = list(range(len(rows)))
    if indexing == "xy" and len(rows) > 1:
        order[:2] = [1, 0]
    sparse_ones = [
        row.reshape(tuple(-1 if axis == order[each] else 1 for axis in range(len(rows))))
        for each, row in enumerate(rows)
    ]
    return tuple(sparse_ones if sparse else broadcast(*sparse_ones))


def _ix_(*args: Any) -> Any:
    made = []
    for axis, each in enumerate(args):
        x = tensor(np.zeros(0, np.int64) if isinstance(each, (list, tuple)) and not each else each)
        if x.dtype == torch.bool:
            x = torch.nonzero(x)[:, 0]
        made.append(x.reshape(tuple(-1 if other == axis else 1 for other in range(len(args)))))
    return tuple(made)


def _sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False, writeable: Any = False
) -> Any:
    y = tensor(x)
    windows = number(window_shape, "window_shape")
    windows = (windows,) if isinstance(windows, int) else tuple(windows)
    axis = number(axis, "axis")
    along = tuple(range(y.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    for each, window in zip([one % y.ndim for one in along], windows, strict=True):
        y = y.unfold(each, window, 1)
    return y


def _pairs(given: Any, name: str, ndim: int) -> list[tuple[Any, Any]]:
    """What is given for before and after each axis: one for all, one pair for all, or a pair for each."""
    if isinstance(given, dict):
        made = [(0, 0)] * ndim
        for axis, pair in given.items():
            made[axis] = (pair, pair) if isinstance(pair, int) else tuple(pair)
        return made
    return [(pair[0], pair[1]) for pair in np.broadcast_to(number(given, name), (ndim, 2)).tolist()]


def _padded(x: Any, axis: int, before: Any, after: Any) -> Any:
    """A tensor with others before and after it along an axis; None stands for nothing."""
    return torch.cat([each for each in (before, x, after) if each is not None], axis)


def _constant_pad(x: Any, widths: list[tuple[int, int]], values: Any) -> Any:
    if holds_tensor(values):
        raise Unsupported("constant_values follow the data")
    pairs = [
        tuple(np.asarray(each).astype(numpy_dtype(x.dtype)).item() for each in pair)
        for pair in _pairs(values, "constant_values", x.ndim)
    ]
    value = pairs[0][0] if pairs else 0
    if len({each for pair in pairs for each in pair}) < 2 and not (isinstance(value, complex) and value):
        flat = tuple(width for pair in reversed(widths) for width in pair)
        return torch.nn.functional.pad(x, flat, value=value) if value else torch.nn.functional.pad(x, flat)
    for axis, ((before, after), (first, last)) in enumerate(zip(widths, pairs, strict=True)):
        sides = []
        for width, value in ((before, first), (after, last)):
            shape = tuple(width if each == axis else size for each, size in enumerate(shape_of(x)))
            sides.append(tensor(np.full(shape, value, numpy_dtype(x.dtype))) if width else None)
        x = _padded(x, axis, *sides)
    return x


def _statistic_pad(
    x: Any, widths: list[tuple[int, int]], lengths: Any, statistic: Callable[..., Any], *, rounds: bool
) -> Any:
    pairs = [(None, None)] * x.ndim if lengths is None else _pairs(lengths, "stat_length", x.ndim)
    for axis, ((before, after), looked_at) in enumerate(zip(widths, pairs, strict=True)):
        size = int(x.shape[axis])
        sides: list[Any] = []
        for width, length, last in ((before, looked_at[0], False), (after, looked_at[1], True)):
            if not width:
                sides.append(None)
                continue
            count = size if length is None else min(length, size)
            part = x if count == size else torch.narrow(x, axis, size - count if last else 0, count)
            value = statistic(part, axis, keepdims=True)
            if rounds and not (x.dtype.is_floating_point or x.dtype.is_complex):
                value = torch.round(value)
            shape = tuple(width if each == axis else size for each, size in enumerate(shape_of(value)))
            sides.append(as_dtype(value, x.dtype).expand(shape))
        x = _padded(x, axis, *sides)
    return x


def _ramp_pad(x: Any, widths: list[tuple[int, int]], ends: Any) -> Any:
    for axis, ((before, after), (first, last)) in enumerate(
        zip(widths, _pairs(ends, "end_values", x.ndim), strict=True)
    ):
        sides = []
        for width, end, place in ((before, first, 0), (after, last, int(x.shape[axis]) - 1)):
            edge = torch.select(x, axis, place)
            ramp = linspace(end, edge, width, endpoint=False, dtype=numpy_dtype(x.dtype), axis=axis) if width else None
            sides.append(moving(torch.flip, ramp, (axis,)) if ramp is not None and place else ramp)
        x = _padded(x, axis, *sides)
    return x


def _pad(
    array: Any,
    pad_width: Any,
    mode: Any = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: Any = "even",
) -> Any:
    x = tensor(array)
    widths = [(int(before), int(after)) for before, after in _pairs(pad_width, "pad_width", x.ndim)]
    if mode == "constant":
        return _constant_pad(x, widths, constant_values)
    if mode == "linear_ramp":
        return _ramp_pad(x, widths, end_values)
    if mode in ("maximum", "minimum", "mean"):
        statistic = {"maximum": maximum_of, "minimum": minimum_of, "mean": mean_of}[mode]
        return _statistic_pad(x, widths, stat_length, statistic, rounds=mode == "mean")
    if mode in ("edge", "wrap") or (mode in ("reflect", "symmetric") and reflect_type == "even"):
        for axis, pair in enumerate(widths):
            if any(pair):
                x = pick(x, np.pad(np.arange(int(x.shape[axis])), pair, mode=mode), axis)
        return x
    raise Unsupported(f"mode {mode!r}" + (f" with reflect_type {reflect_type!r}" if isinstance(mode, str) else ""))


PADDED: Final = Scaled(4)
"""Only means and ramps are computed."""

GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Shape and layout",
        (
            Op(np.reshape, twin=_reshape, layout=True),
            Op(np.ravel, twin=_ravel, layout=True),
            Op(np.transpose, twin=_transpose, layout=True),
            Op(np.matrix_transpose, twin=matrix_transpose, layout=True),
            Op(np.swapaxes, twin=_swapaxes, layout=True),
            Op(np.moveaxis, twin=_moveaxis, layout=True),
            Op(np.rollaxis, twin=_rollaxis, layout=True),
            Op(np.expand_dims, twin=_expand_dims, layout=True),
            Op(np.squeeze, twin=_squeeze, layout=True),
            Op(np.atleast_1d, twin=_atleast_1d, layout=True),
            Op(np.atleast_2d, twin=_atleast_2d, layout=True),
            Op(np.atleast_3d, twin=_atleast_3d, layout=True),
            Op(np.broadcast_to, twin=_broadcast_to, layout=True),
            Op(np.broadcast_arrays, twin=_broadcast_arrays, layout=True),
            Op(np.meshgrid, twin=_meshgrid, layout=True),
            Op(np.ix_, twin=_ix_, layout=True),
            Op(np.lib.stride_tricks.sliding_window_view, twin=_sliding_window_view, layout=True),
        ),
    ),
    Group(
        "Joining and splitting",
        (
            Op(np.concatenate, twin=_concatenate, layout=True),
            Op(np.stack, twin=_stack, layout=True),
            Op(np.hstack, twin=_hstack, layout=True),
            Op(np.vstack, twin=_vstack, layout=True),
            Op(np.dstack, twin=_dstack, layout=True),
            Op(np.column_stack, twin=_column_stack, layout=True),
            Op(np.block, twin=_block, layout=True),
            Op(np.append, twin=_append, layout=True),
            Op(np.insert, twin=_insert, layout=True),
            Op(np.delete, twin=_delete, layout=True),
            Op(np.unstack, twin=_unstack, layout=True),
            Op(np.split, twin=_array_split, layout=True),
            Op(np.array_split, twin=_array_split, layout=True),
            Op(np.hsplit, twin=_hsplit, layout=True),
            Op(np.vsplit, twin=_vsplit, layout=True),
            Op(np.dsplit, twin=_dsplit, layout=True),
        ),
    ),
    Group(
        "Repeating, turning and padding",
        (
            Op(np.tile, twin=_tile, layout=True),
            Op(np.repeat, twin=_repeat, layout=True, note="a traced number of repeats makes a length that follows it"),
            Op(np.flip, twin=_flip, layout=True),
            Op(np.fliplr, twin=_fliplr, layout=True),
            Op(np.flipud, twin=_flipud, layout=True),
            Op(np.rot90, twin=_rot90, layout=True),
            Op(np.roll, twin=_roll, layout=True),
            Op(np.resize, twin=_resize, layout=True),
            Op(np.pad, twin=_pad, check=PADDED, note="not by a function, by the median, or by odd reflection"),
            Op(np.tril, twin=_tril, layout=True),
            Op(np.triu, twin=_triu, layout=True),
            Op(np.diag, twin=_diag, layout=True),
            Op(np.diagflat, twin=_diagflat, layout=True),
            Op(np.diagonal, twin=_diagonal, layout=True),
            NoTwin(
                np.trim_zeros,
                LENGTH,
                "slice at fixed places, or multiply by a mask",
            ),
        ),
    ),
)
