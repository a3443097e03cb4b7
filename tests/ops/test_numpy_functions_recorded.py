"""Functions of arrays inside nodes: recorded, and right on data that was not traced."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import leapp
from leapp import _api, annotate

TABLE = np.array([[4.0, -1, 2, 2.5], [8, 0, -3, 1], [0.5, 5, 6, 7]], np.float32)
ROW = np.array([1.0, -0.5, 2, 0.25], np.float32)
PLACES = np.array([2, 0, -1])
MASK = np.array([True, False, True, True])


def wrote(change, *results):
    """What an array holds after a change."""

    def function(a, *others):
        held = a * 1
        change(held, *others)
        return held

    return function


def into(call):
    """What a call leaves in an array given as ``out``."""

    def function(a):
        held = np.zeros(a.shape[1:], a.dtype)
        call(a, held)
        return held * 2

    return function


CASES = {
    "sum": (lambda a: a / a.sum(axis=0, keepdims=True), (3, 4)),
    "sum of chosen ones": (lambda a: np.sum(a, where=a > 0, initial=1), (3, 4)),
    "sum into": (into(lambda a, held: np.sum(a, 0, None, held)), (3, 4)),
    "mean": (lambda a: a - np.mean(a, (0, -1), keepdims=True), (3, 4, 2)),
    "mean of flags": (lambda a: np.mean(a > 0, axis=0), (30, 4)),
    "std": (lambda a: (a - a.mean(0)) / (a.std(0) + 1e-8), (3, 4)),
    "var": (lambda a: np.var(a, 1, ddof=1), (3, 4)),
    "var about a mean": (lambda a: np.var(a, 1, mean=a.mean(1, keepdims=True)), (3, 4)),
    "average": (lambda a, b: np.average(a, 0, weights=np.abs(b)), (3, 4), (3,)),
    "extremes": (lambda a: (a - a.min()) / np.ptp(a), (3, 4)),
    "largest of chosen ones": (lambda a: np.max(a, 1, initial=0, where=MASK), (3, 4)),
    "largest into": (into(lambda a, held: np.max(a, 0, out=held)), (3, 4)),
    "running sums": (lambda a: np.cumsum(a, 1), (3, 4)),
    "running sums from zero": (lambda a: np.cumulative_sum(a, axis=0, include_initial=True), (3, 4)),
    "places": (lambda a: np.argmax(a, 1) * 10 + np.argmin(a, 1), (5, 4)),
    "element at a place": (lambda a: a[np.argmax(a)] - a, (7,)),
    "means without nan": (lambda a: np.nanmean(np.where(a > 0, a, np.nan), 0), (9, 4)),
    "spread without nan": (lambda a: np.nanstd(np.where(a > 0, a, np.nan), 0), (9, 4)),
    "count": (lambda a: np.count_nonzero(a > 0, axis=1), (9, 8)),
    "flags": (lambda a: np.any(a > 1.5, 0) | np.all(a < 1, 0), (4, 30)),
    "reshape": (lambda a: np.reshape(a, (-1, 2), order="F"), (3, 4)),
    "ravel in memory order": (lambda a: np.ravel(a.T, "K"), (3, 4)),
    "transpose": (lambda a: a.T @ a, (3, 4)),
    "axes": (lambda a: np.moveaxis(np.swapaxes(a, 0, 1), -1, 0)[None], (3, 4, 2)),
    "concatenate": (lambda a, b: np.concatenate([a, TABLE, b], axis=-1), (3, 4), (3, 1)),
    "concatenate the rows of one": (lambda a: np.concatenate(a), (3, 4)),
    "stack": (lambda a: np.stack([a, ROW, a * 2], axis=1), (4,)),
    "stacks": (lambda a: np.hstack([np.vstack([a, ROW]), np.dstack([TABLE, a])[..., 0][:3, :2][[0, 1, 2, 0]]]), (3, 4)),
    "block": (lambda a: np.block([[a, np.zeros((3, 1), a.dtype)], [ROW, 1]]), (3, 4)),
    "split": (lambda a: np.split(a, [1, 3], axis=1)[1] * np.array_split(a, 3, 1)[2], (3, 4)),
    "tile and repeat": (lambda a: np.tile(a, (2, 1)) + np.repeat(a, 2, axis=0), (3, 4)),
    "repeat unevenly": (lambda a: np.repeat(a, [0, 2, 1], axis=0), (3, 4)),
    "roll": (lambda a: a - np.roll(a, 1, axis=0) + np.roll(a, -3), (3, 4)),
    "flip": (lambda a: np.flip(a, 1) - np.rot90(a, 2) + np.flipud(a), (3, 4)),
    "pad": (lambda a: np.pad(a, ((1, 0), (2, 1)), mode="edge"), (3, 4)),
    "pad with a constant": (lambda a: np.pad(a, 1, constant_values=-1), (3, 4)),
    "pad with means": (lambda a: np.pad(a, 2, mode="mean"), (3, 4)),
    "pad with reflections": (lambda a: np.pad(a, (2, 1), "reflect"), (7,)),
    "insert and delete": (lambda a: np.delete(np.insert(a, 1, ROW, axis=0), [0], axis=0), (3, 4)),
    "triangles": (lambda a: np.tril(a) + np.triu(a, 1) * 2, (4, 4)),
    "diagonals": (lambda a: np.diag(np.diagonal(a)) + np.diagflat(a[0]), (4, 4)),
    "windows": (lambda a: np.lib.stride_tricks.sliding_window_view(a, 3).mean(-1), (9,)),
    "grid": (lambda a, b: np.hypot(*np.meshgrid(a, b)), (3,), (4,)),
    "broadcast": (lambda a: np.broadcast_to(a[:, None], (3, 4)) + 0, (3,)),
    "where": (lambda a: np.where(a > 0, a, 0.1 * a), (3, 4)),
    "where not zero": (lambda a: a[np.nonzero(np.abs(a) > -1)], (3, 4)),
    "clip": (lambda a: np.clip(a, -0.5, ROW), (3, 4)),
    "select": (lambda a: np.select([a < -1, a > 1], [-1, a * a], default=a), (3, 4)),
    "choose": (lambda a: np.choose(np.argmax(a, 0) % 2, [ROW, a[0]]), (3, 4)),
    "piecewise": (lambda a: np.piecewise(a, [a < 0, a >= 0], [lambda v: -v, lambda v, k=3: v * k]), (30,)),
    "piecewise with values": (lambda a: np.piecewise(a, [a < -1, a > 1], [-1, lambda v: v + 1, 7]), (5, 40)),
    "sort": (lambda a: np.sort(a, 0) + np.sort(a, None)[:4], (3, 4)),
    "sort by a key": (lambda a: np.take_along_axis(a, np.argsort(-a, axis=1), 1), (3, 4)),
    "rows in order": (lambda a: a[np.lexsort((a[:, 0], np.round(a[:, 1])))], (9, 2)),
    "the k smallest": (lambda a: np.partition(a, 3)[..., 3], (5, 9)),
    "take": (lambda a: np.take(a, PLACES, axis=1), (3, 4)),
    "compress": (lambda a: np.compress(MASK, a, axis=1), (3, 4)),
    "searchsorted": (lambda a: np.searchsorted(np.array([-2.0, -1, 0, 0.5, 1.0]), a, side="right"), (3, 4)),
    "indices of many axes": (lambda a: np.stack(np.unravel_index(np.argmax(a), a.shape)), (3, 4)),
    "copyto": (wrote(lambda a: np.copyto(a, ROW, where=a > 0)), (3, 4)),
    "put": (wrote(lambda a: np.put(a, [0, -1], [5, 6])), (3, 4)),
    "put along an axis": (wrote(lambda a: np.put_along_axis(a, np.argmax(a, 1, keepdims=True), 0, 1)), (3, 4)),
    "place": (wrote(lambda a: np.place(a, a > 0, [1, 2])), (3, 40)),
    "putmask": (wrote(lambda a: np.putmask(a, a > 0, ROW)), (3, 4)),
    "fill_diagonal": (wrote(lambda a: np.fill_diagonal(a, 0)), (4, 4)),
    "nan_to_num": (lambda a: np.nan_to_num(np.log(a), neginf=-9), (30,)),
    "nan_to_num in place": (wrote(lambda a: np.nan_to_num(np.copyto(a, np.nan, where=a > 0) or a, False, 7.0)), (30,)),
    "isclose": (lambda a: np.isclose(a, np.round(a), atol=0.2), (30,)),
    "isin": (lambda a: np.isin(np.round(a), [0, 1]), (30,)),
    "round": (lambda a: np.round(a, 1) + np.fix(a), (3, 4)),
    "complex parts": (lambda a: np.angle(a + 1j * ROW) + np.real(a * 1j) + np.imag(a * 1j), (3, 4)),
    "likenesses": (lambda a: np.zeros_like(a) + np.full_like(a, 2) * a + np.ones_like(a, dtype=np.float64), (3, 4)),
    "linspace": (lambda a, b: np.linspace(a, b, 5), (3,), (3,)),
    "a matrix of parts": (lambda a: np.array([[np.cos(a[0]), -np.sin(a[0])], [np.sin(a[0]), np.cos(a[0])]]) @ a, (2,)),
    "full of a part": (lambda a: np.full((2, 3), a[0]) + np.asarray(a)[1], (2,)),
}  # fmt: skip


def drawn(shapes, dtype, seed):
    rng = np.random.default_rng([seed, 5])
    return [np.asarray(rng.standard_normal(shape) * 2, dtype) for shape in shapes]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_recorded(name, dtype, tmp_path):
    function, *shapes = CASES[name]
    first, fresh = drawn(shapes, dtype, 1), drawn(shapes, dtype, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RuntimeWarning)
        leapp.start("t", save_path=tmp_path)
        try:
            given = annotate.input_tensors("n", {f"x{at}": each.copy() for at, each in enumerate(first)})
            result = function(*(given if isinstance(given, tuple) else (given,)))
            annotate.output_tensors("n", {"y": result}, export_with="pt2")
        finally:
            leapp.stop()
        before, expected = np.asarray(function(*first)), np.asarray(function(*fresh))
    np.testing.assert_array_equal(np.asarray(result), before)
    graph = _api._process.stopped.completed[0].recordings[0].graph
    module = torch.fx.GraphModule({key: value.clone() for key, value in graph.constants.items()}, graph.graph)
    replayed = module(*[torch.from_numpy(each) for each in fresh])
    replayed = (replayed[0] if isinstance(replayed, tuple) else replayed).numpy()
    assert replayed.dtype == expected.dtype
    tolerance = 1e-5 if np.float32 in (dtype, expected.dtype) else 1e-12
    np.testing.assert_allclose(replayed, expected, rtol=tolerance, atol=tolerance * 10)
    assert not np.array_equal(expected, before)
