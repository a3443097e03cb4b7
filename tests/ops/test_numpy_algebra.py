"""Twins of NumPy's products and matrix functions give what NumPy gives, over dtypes, layouts and arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import numpy_twins
from numpy_twins import DTYPES, Plain, draw, layouts

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_algebra import GROUPS

INEXACT = ["float32", "float64", "complex64", "complex128"]
MATRICES = ["bool", "int8", "uint8", "int64", "uint32", *INEXACT]
HARD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e20, 1e-30]


def check(function, *args, **kwargs):
    numpy_twins.check(GROUPS, function, *args, **kwargs)


def random(*shape, dtype="float64", seed=0):
    return draw(np.random.default_rng([seed, *shape]), dtype, shape)


def invertible(dtype="float64", n=3, stack=()):
    """Matrices with a dominant diagonal."""
    made = random(*stack, n, n, dtype=dtype)
    if dtype == "bool":
        return np.broadcast_to(np.tri(n, dtype=bool), made.shape).copy()
    return (made + np.eye(n) * 20).astype(dtype)


PAIRS = [
    ((), ()), ((), (3,)), ((2, 3), ()), ((3,), (3,)), ((0,), (0,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)),
    ((2, 0), (0, 4)), ((2, 3, 4), (4,)), ((2, 3, 4), (4, 2)), ((4,), (2, 4, 3)), ((2, 4), (3, 4, 5)), ((2, 3, 4), (5, 4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_dot(dtype):
    for one, other in PAIRS:
        for a in layouts(random(*one, dtype=dtype)):
            for b in layouts(random(*other, dtype=dtype, seed=1)):
                check(np.dot, a, b)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.int32])
@pytest.mark.parametrize("shape", [(3,), (1, 2), (1,), ()])
def test_zero_times_what_is_not_finite(dtype, shape):
    array = np.full(shape, 7 if np.dtype(dtype).kind == "i" else np.nan).astype(dtype)
    with np.errstate(all="ignore"):
        for number in (dtype(0), dtype(2)):
            check(np.dot, array, number)
            check(np.inner, number, array)
            check(np.kron, number, array)


@pytest.mark.parametrize("function", [np.dot, np.inner, np.vdot, np.outer, np.kron])
def test_operands_of_unlike_dtypes_and_numbers_are_strong(function):
    for dtype in DTYPES:
        a = random(3, dtype=dtype)
        for other in (2, 2.5, True, np.float32(2), np.float64(2), [1, 2, 3], (1.5, 2, 3), *(random(3, dtype=each, seed=1) for each in DTYPES)):  # fmt: skip
            if function is np.vdot and np.ndim(other) == 0:
                continue
            check(function, a, other)
            check(function, other, a)
            if isinstance(other, np.ndarray):
                check(function, a, Plain(other))


def test_integers_wrap():
    a = np.array([200, 100, 7], np.uint8)
    check(np.dot, a, a)
    for dtype in (np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        a = np.full((3, 3), np.iinfo(dtype).max - 3, dtype)
        for function in (np.dot, np.inner, np.vdot, np.outer, np.kron, np.tensordot):
            check(function, a, a)
        check(np.linalg.matrix_power, a, 5)
        check(np.einsum, "ij,jk", a, a)


def test_numbers_that_are_none():
    hard = np.array(HARD * 3)[:21].reshape(3, 7)
    for a in (hard, hard.astype(np.float32), hard.astype(complex)):
        check(np.dot, a, a.T)
        check(np.inner, a, a)
        check(np.cross, a[:, :3], a[:, 1:4])
        check(np.cross, a[:, 3:6], a[:, 1:4])
        for order in (None, 1, 2, 0, 3, -1, np.inf, -np.inf, 0.5):
            check(np.linalg.norm, a, order, 1)
            check(np.linalg.norm, a, order, 0)
        for order in ("fro", 1, -1, np.inf, -np.inf):
            check(np.linalg.norm, a, order)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inner_outer_vdot_kron(dtype):
    for one, other in [((), ()), ((), (3,)), ((3,), (3,)), ((0,), (0,)), ((2, 3), (3,)), ((2, 3), (4, 3)), ((2, 3), (2, 5, 3)), ((5, 2, 3), (3,))]:  # fmt: skip
        for a in layouts(random(*one, dtype=dtype)):
            b = random(*other, dtype=dtype, seed=1)
            check(np.inner, a, b)
            check(np.outer, a, b)
            check(np.kron, a, b)
            check(np.kron, b, a)
            check(np.vdot, a, a)
            if a.ndim == b.ndim == 1:
                check(np.linalg.outer, a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensordot(dtype):
    a, b = random(3, 4, 2, dtype=dtype), random(4, 3, 2, dtype=dtype, seed=1)
    for axes in (0, ([1, 0], [0, 1]), ((1,), (0,)), ([-2], [-3]), (2, 2), [[0, 1, 2], [1, 0, 2]], ([], []), (-1, -1), Plain(np.array([2, 2]))):  # fmt: skip
        check(np.tensordot, a, b, axes)
    check(np.tensordot, a, random(4, 2, 5, dtype=dtype))
    check(np.tensordot, a, random(2, dtype=dtype), axes=1)
    check(np.linalg.tensordot, a, random(2, dtype=dtype), axes=1)
    check(np.tensordot, random(0, 3, dtype=dtype), random(3, 0, dtype=dtype), 1)


SUMS = [
    ("ij,jk", ((2, 3), (3, 4))), ("ij,jk->ki", ((2, 3), (3, 4))), ("i j , j k", ((2, 3), (3, 4))), ("ij->", ((2, 3),)),
    ("ij->j", ((2, 3),)), ("ji", ((2, 3),)), ("ii", ((3, 3),)), ("ii->i", ((3, 3),)), ("...ij,...jk", ((5, 2, 3), (5, 3, 4))),
    ("...i->...", ((5, 2, 3),)), ("i...->...", ((5, 2, 3),)), ("...ii->...i", ((2, 3, 3),)), ("i,j,k", ((2,), (3,), (4,))),
    ("ij,ij,j->i", ((2, 3), (2, 3), (3,))), ("bij,bj->bi", ((2, 3, 4), (2, 4))), (",i", ((), (3,))), ("bA,Ac", ((2, 3), (3, 2))),
    ("ij,j", ((2, 1), (5,))), ("i,i->", ((0,), (0,))), ("ijk,il,jm,kn->lmn", ((2, 3, 4), (2, 2), (3, 2), (4, 2))), ("->", ((),)),
    ("...,...", ((2, 3), (3,))), ("ijij->ij", ((2, 3, 2, 3),)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("optimize", [False, True])
def test_einsum(dtype, optimize):
    for equation, shapes in SUMS:
        for turn in (np.copy, lambda a: a.copy(order="F")):
            operands = [turn(random(*shape, dtype=dtype, seed=seed)) for seed, shape in enumerate(shapes)]
            check(np.einsum, equation, *operands, optimize=optimize)
    a, b = random(2, 3, dtype=dtype), random(3, 4, dtype=dtype)
    check(np.einsum, a, [0, 1], b, [1, 2], optimize=optimize)
    check(np.einsum, a, [0, 51], b, [51, 2], [2, 0], optimize=optimize)
    check(np.einsum, a, [Ellipsis, 1], b, [1, 2], [2, Ellipsis], optimize=optimize)
    check(np.einsum, a, (30, 5), optimize=optimize)
    check(np.einsum, "ij,jk", a, Plain(b), optimize=["einsum_path", (0, 1)] if optimize else False)


def test_einsum_in_another_dtype():
    a = random(2, 3, dtype="int32")
    check(np.einsum, "ij->i", a, dtype="float64")
    check(np.einsum, "ij,kj", a, random(4, 3, dtype="float32"))
    check(np.einsum, "ij,kj", a, random(4, 3, dtype="int32"), dtype=np.int64, casting="safe")


def test_einsum_refuses_what_torch_does_not_stretch():
    row = numpy_twins.rows(GROUPS)[np.einsum]
    with pytest.raises(Unsupported, match="share the letter i"):
        row.twin("ii->i", torch.ones(1, 3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_trace(dtype):
    a = random(3, 4, 3, dtype=dtype)
    for words in ({}, {"offset": 1}, {"offset": -9}, {"axis1": 1, "axis2": -1}, {"axis1": 2, "axis2": 0, "offset": np.int64(-1)}, {"dtype": "float64"}, {"dtype": np.int8}):  # fmt: skip
        if not (dtype.startswith("complex") and "dtype" in words):
            check(np.trace, a, **words)
    check(np.trace, np.asfortranarray(a[0]))
    check(np.linalg.trace, a, offset=1)
    check(np.linalg.diagonal, a, offset=-1)
    check(np.linalg.matrix_transpose, a)
    check(np.linalg.matmul, a, a[:, :, 0])
    check(np.linalg.vecdot, a, a)
    check(np.linalg.vecdot, a, a, axis=0)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_cross(dtype):
    for one, other in [((3,), (3,)), ((3,), (2, 3)), ((4, 1, 3), (5, 3)), ((0, 3), (3,)), ((2, 3), (2, 2)), ((2, 2), (2, 3)), ((4, 2), (2,)), ((2,), (2,))]:  # fmt: skip
        for a in layouts(random(*one, dtype=dtype)):
            check(np.cross, a, random(*other, dtype=dtype, seed=1))
    a, b = random(3, 4, 3, dtype=dtype), random(4, 3, 3, dtype=dtype, seed=1)
    check(np.cross, a, b, axisa=0, axisb=1)
    check(np.cross, a, b, 0, 1, 0)
    check(np.cross, a, b, axisa=-3, axisb=1, axisc=1)
    check(np.cross, a, a, axis=0)
    check(np.cross, a, a, axis=-3)
    check(np.linalg.cross, a, a, axis=0)
    check(np.cross, a, [1, 2, 3], axisa=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm(dtype):
    for shape in [(5,), (3, 4), (2, 3, 4), (0,), (0, 3), (3, 0), ()]:
        for a in layouts(random(*shape, dtype=dtype)):
            check(np.linalg.norm, a)
            check(np.linalg.norm, a, keepdims=True)
            check(np.linalg.vector_norm, a)
            check(np.linalg.vector_norm, a, keepdims=True, ord=1)
            for axis in range(-a.ndim, a.ndim):
                for order in (None, 1, 2, 0, 3, np.inf, 0.5, -1, -np.inf):
                    if not a.shape[axis] and order in (-np.inf, -1):
                        continue
                    for keepdims in (False, True):
                        check(np.linalg.norm, a, order, axis, keepdims)
                        check(np.linalg.vector_norm, a, axis=axis, ord=order, keepdims=keepdims)
            if a.ndim > 2:
                check(np.linalg.vector_norm, a, axis=(0, -1), keepdims=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_of_matrices(dtype):
    for shape, axes in [((3, 4), None), ((2, 3, 4), (0, 1)), ((2, 3, 4), (-1, 0)), ((0, 3), None), ((3, 0), None), ((1, 1), (0, 1))]:  # fmt: skip
        for a in layouts(random(*shape, dtype=dtype)):
            for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf, None, "f"):
                if dtype == "float16" and order in (2, -2, "nuc"):
                    continue
                if not a.size and order in (-1, -2, -np.inf):
                    continue
                for keepdims in (False, True):
                    if axes is not None or order is not None:
                        check(np.linalg.norm, a, order, axes, keepdims)
                    if order is not None:
                        check(np.linalg.matrix_norm, a, ord=order, keepdims=keepdims)


def test_single_elements_are_squared_as_well():
    for value in (1e30, 1e-30, -6.81499e-21, 3.0):
        check(np.linalg.norm, np.float32([[value]]), None, 0)
        check(np.linalg.norm, np.float32([value]))
        check(np.linalg.norm, np.complex64([value + 1j]), 3)


def test_einsum_refuses_sums_in_several_dtypes():
    row = numpy_twins.rows(GROUPS)[np.einsum]
    with pytest.raises(Unsupported, match="several dtypes"):
        row.twin("cad,->ac", torch.ones(2, 2, 2, dtype=torch.bool), torch.tensor(3), optimize=True)
    check(np.einsum, "cad,->ac", random(2, 3, 4, dtype="bool"), np.array(-7, np.int32))
    check(np.einsum, "bbe,cac,ce->c", *(random(*shape, dtype="int32") for shape in ((2, 2, 3), (4, 2, 4), (4, 3))))


def test_halves_overflow_as_they_do():
    a = np.full(40, 300, np.float16)
    check(np.linalg.norm, a)
    check(np.linalg.norm, a, 3)
    check(np.linalg.norm, a, axis=0)
    check(np.linalg.norm, np.float32([1e20, 1e20]))
    check(np.linalg.norm, np.float32([1e-30, 1e-30]))


SQUARE = [np.linalg.inv, np.linalg.det, np.linalg.slogdet, np.linalg.cond, np.linalg.pinv, np.linalg.matrix_rank]


@pytest.mark.parametrize("function", SQUARE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", MATRICES)
def test_square_matrices(function, dtype):
    for n, stack in [(1, ()), (3, ()), (3, (2,)), (4, (2, 1)), (3, (0,)), (0, ())]:
        if n == 0 and function is np.linalg.cond:
            continue
        for a in layouts(invertible(dtype, n, stack)):
            check(function, a)


def test_nearly_singular_matrices():
    hilbert = 1 / (1 + np.arange(10) + np.arange(10)[:, None])
    graded = np.diag(10.0 ** np.arange(-8, 8)) + 1e-9
    flat = np.ones((4, 4)) + np.eye(4) * 1e-13
    for a in (hilbert, graded, flat, hilbert.astype(np.float32), flat + 1j * flat.T):
        for function in SQUARE:
            check(function, a)
        check(np.linalg.solve, a, np.ones(len(a)))
        check(np.linalg.cond, a, 1)
        check(np.linalg.svd, a)
        check(np.linalg.qr, a)
        check(np.linalg.eigh, a)
        check(np.linalg.matrix_power, a, -2)


def test_singular_matrices_where_numpy_answers():
    for a in (np.ones((3, 3)), np.arange(9.0).reshape(3, 3), np.zeros((2, 2)), np.arange(9).reshape(3, 3)):
        for function in (np.linalg.det, np.linalg.slogdet, np.linalg.pinv, np.linalg.matrix_rank, np.linalg.cond):
            check(function, a)
        for p in (None, 1, -1, 2, -2, np.inf, "fro"):
            check(np.linalg.cond, a, p)
    stack = np.stack([np.ones((2, 2)), np.eye(2), np.full((2, 2), np.nan)])
    check(np.linalg.cond, stack, 1)
    check(np.linalg.det, stack)


def test_determinants_whose_pivots_overflow():
    for scale in ([1e200, 1e200, 1e-300], [1e-200, 1e-200, 1e300], [1e200, 1e200, 1.0], [1e-200, 1e-200, 1.0]):
        check(np.linalg.det, np.diag(scale))
        check(np.linalg.slogdet, np.diag(scale))


@pytest.mark.parametrize("dtype", MATRICES)
def test_solve(dtype):
    for a_shape, b_shape in [((), (3,)), ((), (3, 2)), ((2,), (3,)), ((2,), (2, 3, 1)), ((3,), (3, 3)), ((2, 3), (3, 3)), ((2, 3), (3, 3, 3)), ((), (5, 3, 2)), ((), (3, 0))]:  # fmt: skip
        for a in layouts(invertible(dtype, 3, a_shape)):
            check(np.linalg.solve, a, random(*b_shape, dtype=dtype))
            check(np.linalg.solve, a, random(*b_shape, dtype="float32"))
            check(np.linalg.solve, a, random(*b_shape, dtype="int64"))
    check(np.linalg.solve, invertible(dtype, 0), random(0, dtype=dtype))


@pytest.mark.parametrize("dtype", MATRICES)
def test_factors(dtype):
    for shape in [(3, 3), (4, 2), (2, 4), (2, 3, 5), (0, 3), (3, 0), (1, 1), (2, 3, 1, 3)]:
        for a in layouts(random(*shape, dtype=dtype)):
            for mode in ("reduced", "complete", "r", "raw"):
                check(np.linalg.qr, a, mode)
            for words in ({}, {"full_matrices": False}, {"compute_uv": False}):
                check(np.linalg.svd, a, **words)
            check(np.linalg.svdvals, a)
            check(np.linalg.pinv, a)


@pytest.mark.parametrize("dtype", MATRICES)
def test_symmetric_matrices(dtype):
    for n, stack in [(1, ()), (3, ()), (4, (2,)), (3, (0,)), (0, ())]:
        a = random(*stack, n, n, dtype=dtype)
        for triangle in ("L", "U", "l"):
            check(np.linalg.eigh, a, triangle)
            check(np.linalg.eigvalsh, a, UPLO=triangle)
        wide = a.astype(np.promote_types(a.dtype, np.float32))
        symmetric = (wide @ np.conj(np.swapaxes(wide, -1, -2)) + np.eye(n)).astype(wide.dtype)
        for upper in (False, True):
            check(np.linalg.cholesky, symmetric, upper=upper)
            check(np.linalg.cholesky, symmetric + np.triu(np.ones(n), 1).astype(wide.dtype), upper=False)
        if n:
            for words in ({}, {"compute_uv": False}):
                check(np.linalg.svd, symmetric, hermitian=True, **words)
            check(np.linalg.pinv, symmetric, hermitian=True)
            check(np.linalg.matrix_rank, symmetric, hermitian=True)


def test_pinv_cuts_small_values():
    a = np.diag([1.0, 1e-3, 1e-8]) @ random(3, 3)
    for words in ({}, {"rcond": 1e-5}, {"rtol": 1e-2}, {"rtol": None}):
        check(np.linalg.pinv, a, **words)
        check(np.linalg.pinv, a.astype(np.float32), **words)
    for words in ({}, {"tol": 1e-5}, {"rtol": 1e-2}, {"tol": np.float64(10)}):
        check(np.linalg.matrix_rank, a, **words)
        check(np.linalg.matrix_rank, np.stack([a, a]), **words)
    check(np.linalg.matrix_rank, np.stack([a, a]), tol=np.array([1e-5, 1.0]))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", *INEXACT])
def test_powers_and_chains(dtype):
    for n in (0, 1, 2, 3, 4, 7, np.int64(2)):
        check(np.linalg.matrix_power, random(3, 3, dtype=dtype), n)
        check(np.linalg.matrix_power, random(2, 3, 3, dtype=dtype), n)
    for n in (-1, -2, -3):
        check(np.linalg.matrix_power, invertible(dtype), n)
    a, b, c = random(2, 3, dtype=dtype), random(3, 4, dtype=dtype), random(4, 2, dtype=dtype)
    check(np.linalg.multi_dot, [a, b])
    check(np.linalg.multi_dot, (a, b, c))
    check(np.linalg.multi_dot, [a, b, c, a])
    check(np.linalg.multi_dot, [a[0], b, c])
    check(np.linalg.multi_dot, [a, b, c[:, 0]])
    check(np.linalg.multi_dot, [a[0], b, c[:, 0]])


@pytest.mark.parametrize("dtype", INEXACT)
def test_tensors_as_matrices(dtype):
    a = (np.eye(24) * 9 + random(24, 24)).astype(dtype).reshape(4, 6, 8, 3)
    check(np.linalg.tensorinv, a)
    check(np.linalg.tensorinv, a.reshape(24, 8, 3), ind=1)
    check(np.linalg.tensorsolve, a, random(4, 6, dtype=dtype))
    check(np.linalg.tensorsolve, np.moveaxis(a, 2, 1), random(4, 6, dtype=dtype), axes=(1, 3))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_eigenvalues_of_complex_matrices(dtype):
    for stack in ((), (2,)):
        check(np.linalg.eig, random(*stack, 3, 3, dtype=dtype))
        check(np.linalg.eigvals, random(*stack, 3, 3, dtype=dtype))


def test_eigenvalues_of_real_matrices_have_no_dtype():
    for function in (np.linalg.eig, np.linalg.eigvals):
        with pytest.raises(Unsupported, match="follows the data"):
            numpy_twins.rows(GROUPS)[function].twin(torch.eye(2))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (np.linalg.inv, (invertible(),)), (np.linalg.solve, (invertible(), random(3))), (np.linalg.qr, (random(3, 3),)),
        (np.linalg.eigh, (random(3, 3),)), (np.linalg.svd, (random(3, 3),)), (np.linalg.svd, (random(3, 3), False)),
        (np.linalg.slogdet, (random(3, 3),)), (np.linalg.pinv, (random(3, 4),)), (np.linalg.cond, (random(3, 3),)),
        (np.linalg.cholesky, (np.eye(3) * 2,)), (np.linalg.det, (random(3, 3),)), (np.linalg.norm, (random(3, 3),)),
        (np.linalg.eigvalsh, (random(3, 3),)), (np.dot, (random(3, 3), random(3))), (np.linalg.qr, (random(3, 3), "r")),
    ],
)  # fmt: skip
def test_a_wrong_result_is_told(function, args):
    """Each check notices a relative change of 1e-9 in any one result."""
    row = numpy_twins.rows(GROUPS)[function]
    results = function(*args)
    results = tuple(results) if isinstance(results, tuple) else (results,)
    for place in range(len(results)):
        changed = [np.array(each) for each in results]
        at = tuple(0 for _ in changed[place].shape)
        changed[place][at] += 1e-9 * (np.abs(changed[place]).max() + 1)
        if row.check.whole:
            assert row.check.wrong(results, tuple(changed), function, args, {}) is not None
        else:
            assert row.check.wrong(np.asarray(results[place]), changed[place], function, args, {}) is not None


@pytest.mark.parametrize("dtype", ["int64", *INEXACT])
def test_lstsq(dtype):
    for shape, right in [((6, 3), (6,)), ((6, 3), (6, 2)), ((3, 3), (3,)), ((3, 5), (3, 2))]:
        for a in layouts(random(*shape, dtype=dtype)):
            check(np.linalg.lstsq, a, random(*right, dtype=dtype))
            check(np.linalg.lstsq, a, random(*right), rcond=1e-3)
    check(np.linalg.lstsq, np.ones((3, 4), dtype), random(3, dtype=dtype))
    check(np.linalg.lstsq, 1 / (1 + np.arange(8) + np.arange(6)[:, None]), random(6))
