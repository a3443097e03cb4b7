"""Rows of the NumPy table: products, sums of products, matrices.

``out`` of a NumPy function is the recorder's business: a twin gives the result and does not look at it.
NumPy's ``linalg`` computes in double precision and rounds once at the end; so do the twins.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops._np_checks import Accumulated, Residual, Scaled
from leapp.ops._np_row import Group, Op, OutOfScope, Unsupported
from leapp.ops._np_twin import axes as counted
from leapp.ops._np_twin import (
    cast,
    flat,
    inexact,
    modular,
    number,
    numpy_dtype,
    result_dtype,
    shape_of,
    tensor,
    together,
    torch_dtype,
)
from leapp.ops.numpy_layout import matrix_transpose

if TYPE_CHECKING:
    from collections.abc import Sequence


# ---------------------------------------------------------------------------------------------------------------
# Products


_OF_BLAS: Final = frozenset((torch.float32, torch.float64, torch.complex64, torch.complex128))


def _scaled(a: Any, b: Any) -> Any:
    """A product with a number; 0 times anything, NaN too, is 0 where NumPy has BLAS do it."""
    of, by = (a, b) if b.ndim == 0 else (b, a)
    product = torch.mul(a, b)
    if of.dtype not in _OF_BLAS or math.prod(shape_of(of)) < 2:
        return product
    return torch.where(by == 0, 0, product)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    del out
    a, b = together(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return _scaled(a, b)
    if b.ndim > 2:
        return _contracted(a, b, (a.ndim - 1,), (b.ndim - 2,))
    return modular(torch.matmul, a, b)


def _inner(a: Any, b: Any, /) -> Any:
    a, b = together(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return _scaled(a, b)
    if b.ndim == 1:
        return modular(torch.matmul, a, b)
    return _contracted(a, b, (a.ndim - 1,), (b.ndim - 1,))


def _outer(a: Any, b: Any, out: Any = None) -> Any:
    del out
    a, b = together(a, b)
    return torch.outer(flat(a), flat(b))


def _vdot(a: Any, b: Any, /) -> Any:
    a, b = (flat(each) for each in together(a, b))
    return torch.vdot(a, b) if a.dtype.is_complex else modular(torch.matmul, a, b)


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = together(a, b)
    axes = number(axes, "axes")
    try:
        of_a, of_b = axes
    except TypeError:
        count = operator.index(axes)
        of_a, of_b = range(a.ndim - count, a.ndim), range(count)
    return _contracted(a, b, _several(of_a), _several(of_b))


def _several(axis: Any) -> tuple[int, ...]:
    """One axis or several of them, as several."""
    try:
        return tuple(operator.index(each) for each in axis)
    except TypeError:
        return (operator.index(axis),)


def _contracted(a: Any, b: Any, of_a: Sequence[int], of_b: Sequence[int]) -> Any:
    dims = [each % a.ndim for each in of_a], [each % b.ndim for each in of_b]
    return modular(lambda left, right: torch.tensordot(left, right, dims), a, b)


def _kron(a: Any, b: Any) -> Any:
    a, b = together(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return torch.mul(a, b)
    # Not torch.kron: it takes no tensor whose elements lie in another order than its axes.
    count = max(a.ndim, b.ndim)
    of_a, of_b = ((1,) * (count - each.ndim) + shape_of(each) for each in (a, b))
    spread = torch.reshape(a, tuple(length for each in of_a for length in (each, 1)))
    tiles = torch.reshape(b, tuple(length for each in of_b for length in (1, each)))
    return torch.reshape(torch.mul(spread, tiles), tuple(one * two for one, two in zip(of_a, of_b, strict=True)))


def _trace(a: Any, offset: Any = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    del out
    a = tensor(a)
    into = np.sum(np.zeros(1, numpy_dtype(a.dtype)), dtype=dtype).dtype
    diagonal = torch.diagonal(a, number(offset, "offset"), axis1, axis2)
    return modular(lambda each: torch.sum(each, -1), cast(diagonal, torch_dtype(into)))


def _cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Written out: ``torch.linalg.cross`` rounds once less, which is all that two nearly parallel vectors give."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = (_last(each, at) for each, at in zip(together(a, b), (axisa, axisb), strict=True))
    if shape_of(a)[-1] == shape_of(b)[-1] == 3:
        made = modular(_cross_of_three, a, b)
    else:
        made = modular(_cross_of_two, a, b)
        if shape_of(a)[-1] == shape_of(b)[-1]:
            return made
    return made if axisc in (-1, made.ndim - 1) else torch.movedim(made, -1, axisc)


def _last(a: Any, axis: int) -> Any:
    return a if axis in (-1, a.ndim - 1) else torch.movedim(a, axis, -1)


def _cross_of_three(a: Any, b: Any) -> Any:
    ahead = torch.mul(torch.roll(a, -1, -1), torch.roll(b, 1, -1))
    return torch.sub(ahead, torch.mul(torch.roll(a, 1, -1), torch.roll(b, -1, -1)))


def _cross_of_two(a: Any, b: Any) -> Any:
    """At least one of the operands has vectors of length 2: their third element counts as absent, not as 0."""
    of_a = [a[..., each] for each in range(shape_of(a)[-1])]
    of_b = [b[..., each] for each in range(shape_of(b)[-1])]
    third = torch.sub(torch.mul(of_a[0], of_b[1]), torch.mul(of_a[1], of_b[0]))
    if len(of_a) == len(of_b):
        return third
    if len(of_a) == 2:
        return torch.stack([torch.mul(of_a[1], of_b[2]), torch.neg(torch.mul(of_a[0], of_b[2])), third], -1)
    return torch.stack([torch.neg(torch.mul(of_a[2], of_b[1])), torch.mul(of_a[2], of_b[0]), third], -1)


# ---------------------------------------------------------------------------------------------------------------
# Sums over letters


def _einsum(
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: Any = "K",
    casting: Any = "safe",
    optimize: Any = False,
) -> Any:
    del out, order, casting
    equation, parts = _equation(operands)
    if optimize is not False and len({tensor(each).dtype for each in parts}) > 1:
        raise Unsupported("operands of several dtypes, each pair of which is summed in its own")
    tensors = together(*parts)
    for letters, each in zip(equation.partition("->")[0].split(","), tensors, strict=True):
        _refuse_stretched(letters, each)
    if dtype is not None:
        tensors = [cast(each, torch_dtype(dtype)) for each in tensors]
    into = tensors[0].dtype
    if not (into.is_floating_point or into.is_complex):
        # Torch sums integers as 64 bits wherever it likes, and stumbles over two widths.
        tensors = [cast(each, torch.int64) for each in tensors]
    return cast(torch.einsum(equation, *tensors), into)


def _equation(operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Letters with their result written out, and the operands; from a text or from lists of numbers."""
    if isinstance(operands[0], (str, bytes)):
        text = operands[0].decode() if isinstance(operands[0], bytes) else operands[0]
        parts = list(operands[1:])
        text = text.replace(" ", "")
    else:
        pairs = len(operands) // 2
        parts = [operands[2 * each] for each in range(pairs)]
        text = ",".join(_letters(operands[2 * each + 1]) for each in range(pairs))
        if len(operands) % 2:
            text += "->" + _letters(operands[-1])
    if "->" not in text:
        once = sorted(each for each in set(text) - set(",.") if text.count(each) == 1)
        text += "->" + ("..." if "..." in text else "") + "".join(once)
    return text, parts


def _letters(labels: Any) -> str:
    """NumPy's own letters for the numbers of a list: capitals first."""
    names = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return "".join("..." if each is Ellipsis else names[operator.index(each)] for each in number(labels, "labels"))


def _refuse_stretched(letters: str, operand: Any) -> None:
    """NumPy stretches an axis of length 1 along another one of the same operand that has its letter; torch does not."""
    head, _, tail = letters.partition("...")
    shape = shape_of(operand)
    lengths = (*zip(head, shape, strict=False), *zip(reversed(tail), reversed(shape), strict=False))
    first: dict[str, int] = {}
    for letter, length in lengths:
        if first.setdefault(letter, length) != length:
            raise Unsupported(f"axes of length {first[letter]} and {length} of one operand share the letter {letter}")


# ---------------------------------------------------------------------------------------------------------------
# Norms

_REAL: Final = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x, order, axis = inexact(x), number(ord, "ord"), number(axis, "axis")
    plain = order is None or (order in ("f", "fro") and x.ndim == 2) or (order == 2 and x.ndim == 1)
    if axis is None and plain:
        return _vector_norm_of(x, 2, None, keepdims)
    over = counted(axis, x.ndim)
    if len(over) == 1:
        return _vector_norm_of(x, 2 if order is None else order, over, keepdims)
    return _matrix_norm_of(x, order, over, keepdims)


def _vector_norm_of(x: Any, order: Any, over: tuple[int, ...] | None, keepdims: bool) -> Any:
    if order not in (0, 1, -1, 2, np.inf, -np.inf):
        # Torch takes powers of small floats in a wider dtype; NumPy's overflow.
        total = torch.sum(torch.pow(torch.abs(x), order), over, keepdims)
        return torch.pow(total, float(np.reciprocal(order, dtype=numpy_dtype(total.dtype))))
    if order == 2:
        one = math.prod(shape_of(x)[each] for each in (range(x.ndim) if over is None else over)) == 1
        if x.dtype != torch.float16 and not one:
            return torch.linalg.vector_norm(x, dim=over, keepdim=keepdims)
        # For these torch squares in a wider dtype, or not at all; NumPy's squares overflow.
        x = torch.abs(x)
        return torch.sqrt(torch.sum(torch.mul(x, x), over, keepdims))
    if order == np.inf and 0 in (shape_of(x)[each] for each in over or ()):
        return torch.sum(torch.abs(x), over, keepdims)
    return torch.linalg.vector_norm(x, order, over, keepdims)


def _matrix_norm_of(x: Any, order: Any, over: tuple[int, ...], keepdims: bool) -> Any:
    row, column = over
    if order in (None, "fro", "f"):
        return _vector_norm_of(x, 2, over, keepdims)
    if order in (2, -2, "nuc"):
        values = _svdvals(torch.movedim(x, (row, column), (-2, -1)) if (row, column) != (x.ndim - 2, x.ndim - 1) else x)
        made = _extreme(values, -1, order) if order != "nuc" else torch.sum(values, -1)
        return _kept(made, x, over) if keepdims else made
    if order in (np.inf, -np.inf):
        row, column = column, row
    elif order not in (1, -1):
        raise Unsupported(f"matrices have no norm {order!r}")
    made = _extreme(torch.linalg.vector_norm(x, 1, row, keepdim=True), column, order, keepdim=True)
    return made if keepdims else torch.squeeze(made, over)


def _extreme(x: Any, axis: int, order: Any, *, keepdim: bool = False) -> Any:
    if order > 0 and not shape_of(x)[axis]:
        return torch.sum(x, axis, keepdim)  # NumPy starts from 0
    return (torch.amax if order > 0 else torch.amin)(x, axis, keepdim)


def _kept(made: Any, x: Any, over: tuple[int, ...]) -> Any:
    return torch.reshape(made, tuple(1 if at in over else each for at, each in enumerate(shape_of(x))))


def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    x = inexact(x)
    over = counted(axis, x.ndim)
    order = number(ord, "ord")
    if x.ndim and not over:
        raise Unsupported("there is no axis to take the norm along")
    return _vector_norm_of(x, 2 if order is None else order, over or None, keepdims)


def _matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    x = inexact(x)
    return _matrix_norm_of(x, number(ord, "ord"), (x.ndim - 2, x.ndim - 1), keepdims)


# ---------------------------------------------------------------------------------------------------------------
# Matrices


def _doubled(*things: Any) -> tuple[list[Any], torch.dtype, torch.dtype]:
    """Operands as NumPy hands them to LAPACK; the dtype of results, and of real results."""
    parts = [inexact(each) for each in things]
    result = result_dtype(*parts)
    wide = torch.complex128 if result.is_complex else torch.float64
    return [cast(each, wide) for each in parts], result, _REAL.get(result, result)


def _inv(a: Any) -> Any:
    (a,), result, _ = _doubled(a)
    return cast(torch.linalg.inv(a), result)


def _solve(a: Any, b: Any) -> Any:
    (a, b), result, _ = _doubled(a, b)
    if b.ndim > 1 and shape_of(b) == shape_of(a)[:-1]:
        # Torch would take this for a stack of vectors; for NumPy it is a matrix, or a stack of them.
        b = torch.unsqueeze(b, 0)
        made = torch.linalg.solve(a, b)
        return cast(torch.squeeze(made, 0) if made.ndim > max(a.ndim, b.ndim - 1) else made, result)
    return cast(torch.linalg.solve(a, b), result)


def _det(a: Any) -> Any:
    """By its logarithm, as in NumPy: no product of pivots overflows on the way."""
    (a,), result, _ = _doubled(a)
    sign, logarithm = torch.linalg.slogdet(a)
    return cast(torch.mul(sign, torch.exp(logarithm)), result)


def _slogdet(a: Any) -> Any:
    (a,), result, real = _doubled(a)
    sign, logarithm = torch.linalg.slogdet(a)
    return cast(sign, result), cast(logarithm, real)


def _cholesky(a: Any, /, *, upper: bool = False) -> Any:
    (a,), result, _ = _doubled(a)
    return cast(torch.linalg.cholesky(a, upper=bool(upper)), result)


def _qr(a: Any, mode: str = "reduced") -> Any:
    (a,), result, _ = _doubled(a)
    if mode in ("raw", "e", "economic"):
        factors, tau = torch.geqrf(a)
        if mode != "raw":
            return cast(factors, result)
        return torch.transpose(cast(factors, result), -2, -1), cast(tau, result)
    if mode in ("f", "full"):
        mode = "reduced"
    q, r = torch.linalg.qr(a, mode)
    return cast(r, result) if mode == "r" else (cast(q, result), cast(r, result))


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    if hermitian:
        return _svd_of_hermitian(a) if compute_uv else _svdvals_of_hermitian(a)
    if not compute_uv:
        return _svdvals(a)
    (a,), result, real = _doubled(a)
    u, values, vh = torch.linalg.svd(a, bool(full_matrices))
    return cast(u, result), cast(values, real), cast(vh, result)


def _svd_of_hermitian(a: Any) -> Any:
    values, u = _eigh(a)
    signs = torch.copysign(torch.ones_like(values), values)
    values, places = torch.sort(torch.abs(values), dim=-1, descending=True)
    signs = torch.take_along_dim(signs, places, -1)
    u = torch.take_along_dim(u, torch.unsqueeze(places, -2), -1)
    vh = torch.transpose(torch.mul(u, torch.unsqueeze(signs, -2)), -2, -1)
    return u, values, torch.conj_physical(vh) if vh.dtype.is_complex else vh


def _svdvals(x: Any, /) -> Any:
    (x,), _, real = _doubled(x)
    return cast(torch.linalg.svdvals(x), real)


def _svdvals_of_hermitian(a: Any) -> Any:
    return torch.sort(torch.abs(_eigvalsh(a)), dim=-1, descending=True)[0]


def _eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803 - NumPy's name
    (a,), result, real = _doubled(a)
    values, vectors = torch.linalg.eigh(a, UPLO.upper())
    return cast(values, real), cast(vectors, result)


def _eigvalsh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803 - NumPy's name
    (a,), _, real = _doubled(a)
    return cast(torch.linalg.eigvalsh(a, UPLO.upper()), real)


def _eig(a: Any) -> Any:
    (a,), result, _ = _doubled(a)
    if not result.is_complex:
        raise Unsupported(DATA_DTYPE)
    values, vectors = torch.linalg.eig(a)
    return cast(values, result), cast(vectors, result)


def _eigvals(a: Any) -> Any:
    (a,), result, _ = _doubled(a)
    if not result.is_complex:
        raise Unsupported(DATA_DTYPE)
    return cast(torch.linalg.eigvals(a), result)


def _pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Any:
    a = tensor(a)
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
    if rcond is None:
        rcond = max(shape_of(a)[-2:]) * torch.finfo(a.dtype).eps
    if not all(shape_of(a)[-2:]):
        return torch.transpose(a, -2, -1)
    (wide,), result, _ = _doubled(a)
    return cast(torch.linalg.pinv(wide, rtol=number(rcond, "rcond"), hermitian=bool(hermitian)), result)


def _matrix_power(a: Any, n: Any) -> Any:
    a, n = tensor(a), operator.index(number(n, "n"))
    if n < 0:
        a = inexact(a)
        return torch.linalg.matrix_power(_inv(a), -n)
    return modular(lambda each: torch.linalg.matrix_power(each, n), a)


def _matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:  # noqa: N803
    a = tensor(A)
    if a.ndim < 2:
        raise Unsupported("the rank of a vector is a plain integer")
    values = _svdvals_of_hermitian(a) if hermitian else _svdvals(a)
    if tol is not None:
        least = torch.unsqueeze(tensor(tol), -1)
    elif not shape_of(values)[-1]:
        return torch.sum(values, -1, dtype=torch.int64)
    elif rtol is None:
        ratio = max(shape_of(a)[-2:]) * torch.finfo(values.dtype).eps
        least = torch.mul(torch.amax(values, -1, keepdim=True), ratio)
    else:
        largest, ratio = together(torch.amax(values, -1, keepdim=True), torch.unsqueeze(tensor(rtol), -1))
        least = torch.mul(largest, ratio)
    values, least = together(values, least)
    return torch.sum(torch.gt(values, least), -1)


def _cond(x: Any, p: Any = None) -> Any:
    x, order = inexact(x), number(p, "p")
    if order is None or order in (2, -2):
        values = _svdvals(x)
        largest, least = values[..., 0], values[..., -1]
        ratio = torch.div(least, largest) if order == -2 else torch.div(largest, least)
        unknown = torch.isnan(ratio)
    else:
        (wide,), _, real = _doubled(x)
        inverse, singular = torch.linalg.inv_ex(wide)
        matrices = (x.ndim - 2, x.ndim - 1)
        norms = together(_matrix_norm_of(x, order, matrices, False), _matrix_norm_of(inverse, order, matrices, False))
        ratio = cast(torch.mul(*norms), real)
        unknown = torch.logical_or(torch.isnan(ratio), torch.ne(singular, 0))
    known = torch.logical_not(torch.any(torch.flatten(torch.isnan(x), -2), -1))
    return torch.masked_fill(ratio, torch.logical_and(unknown, known), np.inf)


def _multi_dot(arrays: Any, *, out: Any = None) -> Any:
    del out
    parts = [tensor(each) for each in arrays]
    if len({each.dtype for each in parts}) > 1:
        raise Unsupported("matrices of several dtypes are rounded in an order that follows their shapes")
    if len(parts) > 2 and (parts[0].dtype.is_floating_point or parts[0].dtype.is_complex):
        return torch.linalg.multi_dot(parts)
    made = parts[0]
    for each in parts[1:]:
        made = modular(torch.matmul, made, each)
    return made


def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    (a, b), result, real = _doubled(a, b)
    rows, columns = shape_of(a)
    if not rows or not columns or 0 in shape_of(b):
        raise Unsupported("there is nothing to solve")
    if rcond is None:
        rcond = torch.finfo(torch.float64).eps * max(rows, columns)
    right = torch.unsqueeze(b, 1) if b.ndim == 1 else b
    u, values, vh = torch.linalg.svd(a, False)
    large = torch.gt(values, torch.mul(values[0], number(rcond, "rcond")))
    scale = torch.where(large, torch.reciprocal(values), torch.zeros_like(values))
    inside = torch.mul(torch.unsqueeze(scale, 1), torch.matmul(_conjugate_of(u), right))
    x = torch.matmul(_conjugate_of(vh), inside)
    if rows > columns:
        left = torch.abs(torch.sub(right, torch.matmul(a, x)))
        squares = torch.sum(torch.mul(left, left), 0)
    else:
        squares = values[:0]
    rank = torch.sum(large, dtype=torch.int32)
    x = torch.squeeze(x, 1) if b.ndim == 1 else x
    return cast(x, result), cast(squares, real), rank, cast(values, real)


def _conjugate_of(a: Any) -> Any:
    turned = torch.transpose(a, -2, -1)
    return torch.conj_physical(turned) if turned.dtype.is_complex else turned


def _tensorinv(a: Any, ind: int = 2) -> Any:
    a = tensor(a)
    shape = shape_of(a)
    rows = int(np.prod(shape[ind:], dtype=np.int64))
    return torch.reshape(_inv(torch.reshape(a, (rows, -1))), shape[ind:] + shape[:ind])


def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = tensor(a), tensor(b)
    order = list(range(a.ndim))
    for each in number(axes, "axes") or ():
        order.remove(each)
        order.append(each)
    a = a if axes is None else torch.permute(a, order)
    shape = shape_of(a)[b.ndim :]
    unknowns = int(np.prod(shape, dtype=np.int64))
    return torch.reshape(_solve(torch.reshape(a, (unknowns, unknowns)), flat(b)), shape)


# ---------------------------------------------------------------------------------------------------------------
# Names of the array API


def _linalg_outer(x1: Any, x2: Any, /) -> Any:
    return _outer(x1, x2)


def _linalg_diagonal(x: Any, /, *, offset: Any = 0) -> Any:
    return torch.diagonal(tensor(x), number(offset, "offset"), -2, -1)


def _linalg_trace(x: Any, /, *, offset: Any = 0, dtype: Any = None) -> Any:
    return _trace(x, offset, -2, -1, dtype)


def _linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return _cross(x1, x2, axis=axis)


def _linalg_matmul(x1: Any, x2: Any, /) -> Any:
    return modular(torch.matmul, *together(x1, x2))


def _linalg_tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return _tensordot(x1, x2, axes)


def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    x1, x2 = together(x1, x2)
    conjugate = torch.conj_physical(x1) if x1.dtype.is_complex else x1
    return modular(lambda a, b: torch.sum(torch.mul(_last(a, axis), _last(b, axis)), -1), conjugate, x2)


# ---------------------------------------------------------------------------------------------------------------
# How near is near enough: errors of matrices in units of eps, of the number of rows, and of the data


def _wide(thing: Any) -> Any:
    """An array in double precision."""
    array = np.asarray(thing)
    return array.astype(np.promote_types(array.dtype, np.float64))


def _adjoint(a: Any) -> Any:
    return np.conj(np.swapaxes(a, -1, -2))


def _length(a: Any) -> Any:
    return np.sqrt(np.sum(np.abs(a) ** 2, axis=(-2, -1), keepdims=True))


def _violation(difference: Any, size: Any, result: Any) -> float:
    """The largest of a stack of differences against what is expected of their size; 0 for an empty stack."""
    if not difference.size:
        return 0.0
    rows = max(difference.shape[-2:])
    unit = float(np.finfo(np.asarray(result).dtype).eps) * rows
    found = float(np.max(_length(difference) / (unit * size + 1e-290)))
    return found if found == found else np.inf  # noqa: PLR0124 - NaN


def _unitary(q: Any, result: Any) -> float:
    """How far the columns of a matrix are from being orthonormal."""
    return _violation(_adjoint(q) @ q - np.eye(q.shape[-1]), 1.0, result)


def _inverse_error(args: Any, kwargs: Any, results: Any) -> float:
    a = _wide(kwargs.get("a", args[0] if args else None))
    inverse = _wide(results[0])
    return _violation(a @ inverse - np.eye(a.shape[-1]), _length(a) * _length(inverse), results[0])


def _solve_error(args: Any, kwargs: Any, results: Any) -> float:
    a, b = (_wide(each) for each in (*args, *(kwargs[each] for each in ("a", "b") if each in kwargs)))
    x = _wide(results[0])
    if b.ndim == 1:
        b, x = b[:, None], x[..., None]
    return _violation(a @ x - b, _length(a) * _length(x) + _length(b), results[0])


def _qr_error(args: Any, kwargs: Any, results: Any) -> float:
    a = _wide(args[0] if args else kwargs["a"])
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "reduced")
    if mode in ("raw", "e", "economic"):
        raw = np.swapaxes(results[0], -1, -2) if mode == "raw" else results[0]
        results = (np.triu(raw[..., : min(raw.shape[-2:]), :]),)
    *first, r = results
    r = _wide(r)
    if not first:
        return _violation(_adjoint(r) @ r - _adjoint(a) @ a, _length(a) ** 2, results[-1])
    q = _wide(first[0])
    return max(_violation(q @ r - a, _length(a), results[-1]), _unitary(q, results[-1]))


def _svd_error(args: Any, kwargs: Any, results: Any) -> float:
    a = _wide(args[0] if args else kwargs["a"])
    if len(results) == 1:
        return _violation((_wide(results[0]) - np.linalg.svdvals(a))[..., None], _length(a), results[0])
    u, values, vh = (_wide(each) for each in results)
    kept = values.shape[-1]
    whole = (u[..., :kept] * values[..., None, :]) @ vh[..., :kept, :]
    ordered = 0.0 if np.all(values[..., :-1] >= values[..., 1:]) else np.inf
    parts = _unitary(u, results[0]), _unitary(_adjoint(vh), results[0])
    return max(_violation(whole - a, _length(a), results[0]), *parts, ordered)


def _eigh_error(args: Any, kwargs: Any, results: Any) -> float:
    a = _wide(args[0] if args else kwargs["a"])
    lower = (args[1] if len(args) > 1 else kwargs.get("UPLO", "L")).upper() == "L"
    half = np.tril(a, -1) if lower else np.triu(a, 1)
    a = half + _adjoint(half) + np.eye(a.shape[-1]) * np.real(a)
    values, vectors = (_wide(each) for each in results)
    ordered = 0.0 if np.all(values[..., :-1] <= values[..., 1:]) else np.inf
    whole = a @ vectors - vectors * values[..., None, :]
    return max(_violation(whole, _length(a), results[1]), _unitary(vectors, results[1]), ordered)


def _eig_error(args: Any, kwargs: Any, results: Any) -> float:
    a = _wide(args[0] if args else kwargs["a"])
    values, vectors = (_wide(each) for each in results)
    lengths = np.linalg.norm(vectors, axis=-2)[..., None, :] - 1
    return max(
        _violation(a @ vectors - vectors * values[..., None, :], _length(a), results[1]),
        _violation(lengths, 1.0, results[1]),
    )


def _eigvals_error(args: Any, kwargs: Any, results: Any) -> float:
    """Eigenvalues come in no order of their own; those of NumPy are taken for right."""
    a = _wide(args[0] if args else kwargs["a"])
    apart = np.abs(_wide(results[0])[..., :, None] - np.linalg.eigvals(a)[..., None, :])
    return _violation(np.minimum(np.min(apart, -1), np.min(apart, -2))[..., None], _length(a), results[0])


def _cholesky_error(args: Any, kwargs: Any, results: Any) -> float:
    a, factor = _wide(args[0]), _wide(results[0])
    if kwargs.get("upper"):
        return _violation(np.triu(_adjoint(factor) @ factor - a), _length(a), results[0])
    return _violation(np.tril(factor @ _adjoint(factor) - a), _length(a), results[0])


def _pinv_error(args: Any, kwargs: Any, results: Any) -> float:
    a, inverse = _wide(args[0] if args else kwargs["a"]), _wide(results[0])
    whole, other = _length(a), _length(inverse)
    return max(
        _violation(inverse @ a @ inverse - inverse, whole * other * other, results[0]),
        _violation(a @ inverse - _adjoint(a @ inverse), whole * other, results[0]),
    )


def _slogdet_error(args: Any, kwargs: Any, results: Any) -> float:
    """Compared as determinants, in units of what the lengths of the rows allow at most."""
    a = _wide(args[0] if args else kwargs["a"])
    most = np.sum(np.log(np.linalg.norm(a, axis=-1)), axis=-1)
    sign, logarithm = np.linalg.slogdet(a)
    ours, theirs = (_wide(one) * np.exp(_wide(two) - most) for one, two in (results, (sign, logarithm)))
    size = 1.0 + np.abs(np.where(np.isfinite(logarithm), logarithm, 0.0))
    apart = np.where(np.isfinite(most), ours - theirs, 0.0)
    return _violation((apart / size)[..., None, None], 1.0, results[1])


def _cond_error(args: Any, kwargs: Any, results: Any) -> float:
    """Compared as what they are the inverse of: the distance to the next singular matrix."""
    theirs, rows = np.linalg.cond(*args, **kwargs), np.shape(args[0] if args else kwargs["x"])[-1]
    power = 1 if (args[1] if len(args) > 1 else kwargs.get("p")) == -2 else -1
    with np.errstate(all="ignore"):
        apart = np.asarray(_wide(results[0]) ** power - _wide(theirs) ** power) / rows
    apart = np.where(np.isnan(results[0]) & np.isnan(theirs), 0.0, apart)
    return _violation(apart[..., None, None], 1.0, results[0])


def _lstsq_error(args: Any, kwargs: Any, results: Any) -> float:
    """What is left must be at right angles to all columns, the answer in the space of the rows."""
    a, b = (_wide(each) for each in (*args, *(kwargs[each] for each in ("a", "b") if each in kwargs))[:2])
    x, squares, rank, values = (_wide(each) for each in results)
    x, b = (each[:, None] if each.ndim == 1 else each for each in (x, b))
    *_, kept, singular = np.linalg.lstsq(*args, **kwargs)
    left = b - a @ x
    size = _length(a) * (_length(a) * _length(x) + _length(b))
    found = [
        _violation(_adjoint(a) @ left, size, results[0]),
        _violation((values - singular)[:, None], _length(a), results[3]),
        0.0 if rank == kept else np.inf,
    ]
    if kept == len(singular):
        # Of rank-deficient matrices only the shortest of all answers is right: NumPy's.
        size = _length(x) * singular[0] / singular[-1] + _length(b) / singular[-1] * singular[0] / singular[-1]
    else:
        size = _length(x) * singular[0] / singular[kept - 1] if kept else 1.0
    theirs = np.linalg.lstsq(*args, **kwargs)[0]
    found.append(_violation(x - (theirs[:, None] if theirs.ndim == 1 else theirs), size, results[0]))
    if squares.size:
        exact = np.sum(np.abs(left) ** 2, axis=0)
        found.append(_violation((squares - exact)[:, None], np.sum(np.abs(b) ** 2), results[1]))
    return max(found)


def _tensorinv_error(args: Any, kwargs: Any, results: Any) -> float:
    a = _wide(args[0] if args else kwargs["a"])
    ind = args[1] if len(args) > 1 else kwargs.get("ind", 2)
    rows = int(np.prod(a.shape[ind:]))
    return _inverse_error((a.reshape(-1, rows),), {}, (np.asarray(results[0]).reshape(rows, -1),))


def _tensorsolve_error(args: Any, kwargs: Any, results: Any) -> float:
    a, b, axes = (*args, *(kwargs[each] for each in ("a", "b") if each in kwargs), kwargs.get("axes"))[:3]
    order = [each for each in range(np.ndim(a)) if each not in (axes or ())]
    matrix = np.transpose(a, (*order, *(axes or ()))).reshape(np.size(b), -1)
    return _solve_error((matrix, np.ravel(b)), {}, (np.ravel(results[0]),))


def _cross_size(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """Lengths of the vectors multiplied."""
    if axis is not None:
        axisa = axisb = axisc = axis
    numbers = np.shape(a)[axisa] == np.shape(b)[axisb] == 2
    size = np.linalg.norm(a, axis=axisa) * np.linalg.norm(b, axis=axisb)
    return size if numbers else np.expand_dims(size, axisc)


def _norm_size(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Least singular values carry errors of the largest."""
    return np.linalg.norm(x, 2 if ord == -2 else ord, axis, keepdims)


def _matrix_norm_size(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return _norm_size(x, ord, (-2, -1), keepdims)


def _det_size(a: Any) -> Any:
    """Hadamard's bound."""
    return np.prod(np.linalg.norm(a, axis=-1), axis=-1)


def _power_size(a: Any, n: Any) -> Any:
    if n < 0:
        inverse = np.abs(np.linalg.inv(a))
        a, n = inverse @ np.abs(a) @ inverse, -n
    return np.linalg.matrix_power(np.abs(a), n)


def _multi_dot_size(arrays: Any) -> Any:
    return np.linalg.multi_dot([np.abs(_wide(each)) for each in arrays])


def _of_parts(args: Any, kwargs: Any, expected: Any) -> float:
    """Terms of a product of several matrices."""
    del expected
    return float(sum(sum(np.shape(each)) for each in (args[0] if args else kwargs["arrays"])))


def _rows(args: Any, kwargs: Any) -> float:
    return float(max(np.shape(args[0] if args else next(iter(kwargs.values()))), default=1))


def _two(args: Any, kwargs: Any, expected: Any) -> float:
    """Complex products are sums of two."""
    del args, kwargs, expected
    return 2.0


SUM: Final = Accumulated(2.0)
PRODUCT: Final = Accumulated(1.0, _two)
CROSS: Final = Accumulated(1.0, _two, _cross_size)
SIGNS: Final = "signs and phases of the columns are LAPACK's choice: they may differ where the artifact runs"
DATA_DTYPE: Final = "whether the result is real or complex follows the data"

_OF_MATRICES: Final = (
    Op(np.linalg.norm, twin=_norm, check=Accumulated(4.0, sizes=_norm_size)),
    Op(np.linalg.vector_norm, twin=_vector_norm, check=Accumulated(4.0)),
    Op(np.linalg.matrix_norm, twin=_matrix_norm, check=Accumulated(4.0, sizes=_matrix_norm_size)),
    Op(np.linalg.inv, twin=_inv, check=Residual(_inverse_error)),
    Op(np.linalg.pinv, twin=_pinv, check=Residual(_pinv_error)),
    Op(np.linalg.solve, twin=_solve, check=Residual(_solve_error), note="a stack of vectors is no stack in NumPy"),
    Op(np.linalg.det, twin=_det, check=Accumulated(8.0, sizes=_det_size)),
    Op(np.linalg.slogdet, twin=_slogdet, check=Residual(_slogdet_error)),
    Op(np.linalg.cholesky, twin=_cholesky, check=Residual(_cholesky_error)),
    Op(np.linalg.qr, twin=_qr, check=Residual(_qr_error), note=SIGNS),
    Op(np.linalg.svd, twin=_svd, check=Residual(_svd_error), note=SIGNS),
    Op(np.linalg.svdvals, twin=_svdvals, check=Scaled(8.0, _rows)),
    Op(np.linalg.eigh, twin=_eigh, check=Residual(_eigh_error), note=SIGNS),
    Op(np.linalg.eigvalsh, twin=_eigvalsh, check=Scaled(8.0, _rows)),
    Op(np.linalg.eig, twin=_eig, check=Residual(_eig_error), note=SIGNS),
    Op(np.linalg.eigvals, twin=_eigvals, check=Residual(_eigvals_error)),
    Op(
        np.linalg.lstsq,
        twin=_lstsq,
        check=Residual(_lstsq_error),
        note="sums of squares are given also where the rank is too low: their number would follow the data",
    ),
    Op(np.linalg.matrix_power, twin=_matrix_power, check=Accumulated(8.0, sizes=_power_size)),
    Op(np.linalg.matrix_rank, twin=_matrix_rank),
    Op(np.linalg.multi_dot, twin=_multi_dot, check=Accumulated(4.0, _of_parts, _multi_dot_size)),
    Op(np.linalg.cond, twin=_cond, check=Residual(_cond_error)),
    Op(np.linalg.tensorinv, twin=_tensorinv, check=Residual(_tensorinv_error)),
    Op(np.linalg.tensorsolve, twin=_tensorsolve, check=Residual(_tensorsolve_error)),
    Op(np.linalg.diagonal, twin=_linalg_diagonal, layout=True),
    Op(np.linalg.matrix_transpose, twin=matrix_transpose, layout=True),
)

GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Products and contractions",
        (
            Op(np.dot, twin=_dot, check=SUM),
            Op(np.inner, twin=_inner, check=SUM),
            Op(np.vdot, twin=_vdot, check=SUM),
            Op(np.outer, twin=_outer, check=PRODUCT),
            Op(np.tensordot, twin=_tensordot, check=SUM),
            Op(np.einsum, twin=_einsum, check=SUM),
            OutOfScope(np.einsum_path, why="an order of contraction is no data"),
            Op(np.kron, twin=_kron, check=PRODUCT),
            Op(np.cross, twin=_cross, check=CROSS),
            Op(np.trace, twin=_trace, check=SUM),
            Op(np.linalg.outer, twin=_linalg_outer, check=PRODUCT),
            Op(np.linalg.cross, twin=_linalg_cross, check=CROSS),
            Op(np.linalg.trace, twin=_linalg_trace, check=SUM),
            Op(np.linalg.matmul, twin=_linalg_matmul, check=SUM),
            Op(np.linalg.tensordot, twin=_linalg_tensordot, check=SUM),
            Op(np.linalg.vecdot, twin=_vecdot, check=SUM),
        ),
    ),
    Group("Linear algebra", _OF_MATRICES),
)
