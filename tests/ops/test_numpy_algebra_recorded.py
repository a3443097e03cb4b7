"""Products, matrices, transforms, statistics and filters inside nodes: recorded, and right on data that was not traced."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import leapp
from leapp import _api, annotate

TABLE_X, TABLE_Y = np.array([-2.0, -0.5, 0.0, 1.5, 3.0]), np.array([4.0, -1, 2, 2.5, 8])
KERNEL = np.array([0.25, 0.5, 0.25])
ROTATION = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]], np.float32)


def near(x):
    """An invertible matrix."""
    return x @ x.T + np.eye(len(x), dtype=x.dtype) * 3


CASES = {
    "dot": (lambda a, b: np.dot(a, b), (3, 4), (4,)),
    "dot of stacks": (lambda a, b: np.dot(a, b), (2, 3, 4), (5, 4, 2)),
    "dot with a constant": (lambda a: a.dot(ROTATION), (5, 3)),
    "dot with a number": (lambda a: np.dot(a, 2.5), (5, 3)),
    "inner": (lambda a, b: np.inner(a, b), (3, 4), (2, 4)),
    "outer": (lambda a, b: np.outer(a, b), (3,), (2, 2)),
    "vdot": (lambda a, b: np.vdot(a, b), (3, 2), (3, 2)),
    "kron": (lambda a, b: np.kron(a, b), (2, 3), (4, 1)),
    "cross": (lambda a, b: np.cross(a, b), (4, 3), (3,)),
    "cross along the first axis": (lambda a: np.cross(a, ROTATION, axis=0), (3, 3)),
    "trace": (lambda a: np.trace(a, 1), (3, 4)),
    "tensordot": (lambda a, b: np.tensordot(a, b, ((1, 0), (0, 1))), (3, 4, 2), (4, 3, 5)),
    "einsum": (lambda a, b: np.einsum("...ij,...j", a, b), (5, 3, 4), (5, 4)),
    "einsum of lists": (lambda a, b: np.einsum(a, [0, 1], b, [1, 2], optimize=True), (3, 4), (4, 2)),
    "norm": (lambda a: a / np.linalg.norm(a), (7,)),
    "norm of rows": (lambda a: a / np.linalg.norm(a, axis=-1, keepdims=True), (4, 3)),
    "norms": (lambda a: np.stack([np.linalg.norm(a, order) for order in (1, -1, 2, -2, np.inf, "fro", "nuc")]), (4, 3)),
    "vector norms": (lambda a: np.stack([np.linalg.norm(a, order, 0) for order in (0, 1, 3, np.inf, -np.inf)]), (4, 3)),
    "inv": (lambda a: np.linalg.inv(near(a)), (3, 3)),
    "pinv": (lambda a: np.linalg.pinv(a), (3, 5)),
    "solve": (lambda a, b: np.linalg.solve(near(a), b), (3, 3), (3,)),
    "solve many": (lambda a, b: np.linalg.solve(near(a), b), (3, 3), (3, 2)),
    "det": (lambda a: np.linalg.det(a), (3, 3)),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1], (3, 3)),
    "cholesky": (lambda a: np.linalg.cholesky(near(a)), (3, 3)),
    "qr": (lambda a: np.matmul(*np.linalg.qr(a)), (4, 3)),
    "r": (lambda a: np.abs(np.linalg.qr(a, "r")), (4, 3)),
    "svd": (lambda a: (lambda u, s, v: (u * s) @ v)(*np.linalg.svd(a, full_matrices=False)), (4, 3)),
    "svdvals": (lambda a: np.linalg.svd(a, compute_uv=False), (4, 3)),
    "eigh": (lambda a: np.linalg.eigh(near(a)).eigenvalues, (3, 3)),
    "eigvalsh": (lambda a: np.linalg.eigvalsh(near(a)), (3, 3)),
    "matrix_power": (lambda a: np.linalg.matrix_power(a, 5) + np.linalg.matrix_power(near(a), -2), (3, 3)),
    "multi_dot": (lambda a, b: np.linalg.multi_dot([a, b, a, b]), (3, 2), (2, 3)),
    "cond": (lambda a: np.linalg.cond(near(a)) + np.linalg.cond(near(a), 1), (3, 3)),
    "matrix_rank": (lambda a: np.linalg.matrix_rank(a), (4, 3)),
    "tensorsolve": (lambda a, b: np.linalg.tensorsolve((near(a)).reshape(2, 2, 4), b), (4, 4), (2, 2)),
    "lstsq": (lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], (6, 3), (6,)),
    "fft": (lambda a: np.abs(np.fft.fft(a, axis=0)), (8, 2)),
    "rfft there and back": (lambda a: np.fft.irfft(np.fft.rfft(a) * np.exp(-np.arange(5)), n=8), (3, 8)),
    "fft2": (lambda a: np.fft.fftshift(np.fft.fft2(a)).real, (4, 6)),
    "median": (lambda a: np.median(a, axis=0), (6, 3)),
    "median of all": (lambda a: np.median(a), (5, 3)),
    "nanmedian": (lambda a: np.nanmedian(np.where(a > 0, a, np.nan), axis=1), (4, 30)),
    "percentile": (lambda a: np.percentile(a, 30, axis=-1), (4, 7)),
    "percentiles": (lambda a: np.percentile(a, [5, 50, 95], axis=0), (9, 3)),
    "quantile": (lambda a: np.quantile(a, 0.9, method="hazen"), (11,)),
    "nanquantile": (lambda a: np.nanquantile(np.where(a > 0, a, np.nan), [0.1, 0.5], axis=1), (4, 30)),
    "traced quantile": (lambda a, q: np.quantile(a, np.abs(q) % 1), (11,), (2,)),
    "cov": (lambda a: np.cov(a), (3, 20)),
    "cov with weights": (lambda a, b: np.cov(a, aweights=np.abs(b)), (3, 20), (20,)),
    "corrcoef": (lambda a, b: np.corrcoef(a, b), (2, 20), (20,)),
    "histogram": (lambda a: np.histogram(a, 8, (-4, 4))[0], (40,)),
    "histogram of its own range": (lambda a: np.histogram(a, 5, density=True)[0], (40,)),
    "edges": (lambda a: np.histogram_bin_edges(a, 5), (40,)),
    "histogram2d": (lambda a, b: np.histogram2d(a, b, 4)[0], (40,), (40,)),
    "histogramdd": (lambda a: np.histogramdd(a, 4)[0], (40, 2)),
    "diff": (lambda a: np.diff(a, axis=0, prepend=a[:1]), (5, 2)),
    "diff with a number": (lambda a: np.diff(a, 2, append=0), (5, 2)),
    "ediff1d": (lambda a: np.ediff1d(a, to_begin=0), (5, 2)),
    "gradient": (lambda a: np.gradient(a, 0.1, edge_order=2), (6,)),
    "gradients": (lambda a: np.stack(np.gradient(a, TABLE_X, np.arange(4), edge_order=1)), (5, 4)),
    "trapezoid": (lambda a, b: np.trapezoid(a, b), (3, 5), (5,)),
    "unwrap": (lambda a: np.unwrap(a * 5), (9,)),
    "convolve": (lambda a: np.convolve(a, KERNEL, "same"), (9,)),
    "convolve with single floats": (lambda a: np.convolve(a, KERNEL.astype(np.float32)), (9,)),
    "correlate": (lambda a, b: np.correlate(a, b, "full"), (9,), (4,)),
    "interp": (lambda a: np.interp(a, TABLE_X, TABLE_Y), (9,)),
    "interp, everything traced": (lambda a, b, c: np.interp(a, np.cumsum(np.abs(b)), c, left=-1), (9,), (5,), (5,)),
    "interp of angles": (lambda a: np.interp(a, [0, 90, 180, 270], [0.0, 1, 0, -1], period=360), (9,)),
    "digitize": (lambda a: np.digitize(a, TABLE_X), (9,)),
    "bincount": (lambda a: np.bincount(np.digitize(a, TABLE_X), minlength=6), (9,)),
    "polyval": (lambda a: np.polyval([1.5, 0, -2], a), (4, 2)),
    "polyval of traced coefficients": (lambda a, b: np.polyval(a, b), (3,), (4,)),
    "polyder": (lambda a: np.polyder(a, 2), (5,)),
    "polyint": (lambda a: np.polyint(a, 2, 1.0), (5,)),
    "poly": (lambda a: np.poly(a), (3,)),
    "vander": (lambda a: np.vander(a, 4), (3,)),
    "sinc": (lambda a: np.sinc(a), (3,)),
    "i0": (lambda a: np.i0(a), (3,)),
}  # fmt: skip


def into(call):
    """A call that is given an array to write to."""

    def written(*given):
        out = np.zeros(3, given[0].dtype)
        call(*given, out)
        return out + 1

    return written


CASES |= {
    "dot into": (into(lambda a, out: np.dot(a, ROTATION[0].astype(a.dtype), out)), (3, 3)),
    "trace into": (into(lambda a, out: np.trace(a, 0, 1, 2, None, out)), (3, 4, 4)),
    "median into": (into(lambda a, out: np.median(a, 0, out)), (5, 3)),
    "percentile into": (into(lambda a, out: np.percentile(a, 40, 0, out, False, "linear")), (5, 3)),
    "einsum into": (into(lambda a, out: np.einsum("ij->j", a, out=out)), (5, 3)),
    "fft into": (lambda a: (lambda out: (np.fft.fft(a, None, -1, None, out), out)[1].real)(np.zeros(8, np.result_type(a, np.complex64))), (8,)),
    "apply_along_axis": (lambda a: np.apply_along_axis(np.cumsum, 1, a), (3, 4)),
    "apply_along_axis to a number": (lambda a: np.apply_along_axis(np.linalg.norm, 0, a), (3, 4)),
    "apply_along_axis to a matrix": (lambda a: np.apply_along_axis(lambda r: np.outer(r, r), 0, a), (3, 4, 2)),
    "apply_along_axis of a line": (lambda a: np.apply_along_axis(np.convolve, 0, a, KERNEL, mode="same"), (5,)),
    "apply_along_axis with arguments": (lambda a: np.apply_along_axis(np.percentile, -1, a, 30), (3, 4)),
    "apply_over_axes": (lambda a: np.apply_over_axes(np.sum, a, [0, -1]), (3, 4, 2)),
    "apply_over_axes once": (lambda a: np.apply_over_axes(np.cumsum, a, 0), (3, 4, 2)),
}  # fmt: skip


def drawn(shapes, dtype, seed):
    rng = np.random.default_rng([seed, 7])
    return [np.asarray(rng.standard_normal(shape) * 2, dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_recorded(name, dtype, tmp_path):
    function, *shapes = CASES[name]
    first, fresh = drawn(shapes, dtype, 1), drawn(shapes, dtype, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leapp.start("t", save_path=tmp_path)
        try:
            given = annotate.input_tensors("n", {f"x{at}": each.copy() for at, each in enumerate(first)})
            result = function(*(given if isinstance(given, tuple) else (given,)))
            annotate.output_tensors("n", {"y": result}, export_with="pt2")
        finally:
            leapp.stop()
    expected = np.asarray(function(*first))
    np.testing.assert_array_equal(np.asarray(result), expected)
    graph = _api._process.stopped.completed[0].recordings[0].graph
    module = torch.fx.GraphModule({name: value.clone() for name, value in graph.constants.items()}, graph.graph)
    expected = np.asarray(function(*fresh))
    replayed = module(*[torch.from_numpy(each) for each in fresh])
    replayed = (replayed[0] if isinstance(replayed, tuple) else replayed).numpy()
    assert replayed.dtype == expected.dtype
    tolerance = 1e-4 if np.float32 in (dtype, expected.dtype) else 1e-10
    np.testing.assert_allclose(replayed, expected, rtol=tolerance, atol=tolerance * 10)
    assert not np.array_equal(expected, np.asarray(function(*first))) or name == "matrix_rank"
