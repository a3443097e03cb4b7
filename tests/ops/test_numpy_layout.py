"""Twins of the NumPy functions that move elements give what NumPy gives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from numpy_twins import DTYPES, Plain, check, draw, layouts, rows

from leapp.ops._np_row import Unsupported
from leapp.ops.numpy_layout import GROUPS

RNG = np.random.default_rng(0)


def each(*shapes, dtypes=DTYPES):
    for dtype in dtypes:
        for shape in shapes:
            yield from layouts(draw(RNG, dtype, shape))


def run(function, *args, dtypes=DTYPES, shapes=((2, 3, 4),), **kwargs):
    for array in each(*shapes, dtypes=dtypes):
        check(GROUPS, function, array, *args, **kwargs)


@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_reshape(order):
    for shape in [(4, 6), (-1,), -1, 24, [2, -1, 2], Plain(np.array([3, 8])), (1, 24, 1), (2, 3, 4)]:
        run(np.reshape, shape, order=order)
    run(np.reshape, (1, 1), order, shapes=[()])
    run(np.reshape, (0, 5), order, shapes=[(3, 0)])


@pytest.mark.parametrize("order", ["C", "F", "A", "K"])
def test_ravel(order):
    run(np.ravel, order, shapes=[(), (3,), (2, 3, 4), (0, 3)])
    for axes in [(1, 0, 2), (2, 0, 1)]:
        check(GROUPS, np.ravel, np.transpose(np.arange(24.0).reshape(2, 3, 4), axes), order)


@pytest.mark.parametrize("function", [np.transpose, np.permute_dims])
def test_transpose(function):
    run(function, shapes=[(), (3,), (2, 3), (2, 3, 4)])
    for axes in [(1, 0, 2), (-1, 0, 1), [2, 1, 0], None]:
        run(function, axes)


def test_axes_are_moved():
    run(np.matrix_transpose, shapes=[(2, 3), (2, 3, 4)])
    for one in range(-3, 3):
        for other in range(-3, 3):
            run(np.swapaxes, one, other, dtypes=["float32"])
            run(np.moveaxis, one, other, dtypes=["float32"])
            run(np.rollaxis, one, other, dtypes=["float32"])
        run(np.rollaxis, one, 3, dtypes=["float32"])
    run(np.moveaxis, [0, 1], [-1, -2])
    run(np.moveaxis, (2, 0), (0, 1))


def test_axes_of_one_element():
    for axis in [0, -1, 1, (0, 2), (-1, 0), (1, -1), [0, 1]]:
        run(np.expand_dims, axis, shapes=[(3, 2)])
    run(np.expand_dims, 0, shapes=[()])
    run(np.squeeze, shapes=[(1, 3, 1), (1,), (), (2, 3)])
    for axis in [0, -1, (0, 2), (0,), None]:
        run(np.squeeze, axis, shapes=[(1, 3, 1)])


@pytest.mark.parametrize("function", [np.atleast_1d, np.atleast_2d, np.atleast_3d])
def test_at_least(function):
    run(function, shapes=[(), (3,), (2, 3), (2, 3, 4), (1, 2, 3, 4)])
    check(GROUPS, function, np.array(3.0), Plain(np.arange(3)), np.ones((2, 2, 2, 2)))


def test_broadcasting():
    run(np.broadcast_to, (5, 2, 3, 4))
    run(np.broadcast_to, 4, shapes=[(), (1,)])
    run(np.broadcast_to, [2, 0], shapes=[(1, 1), (2, 1)])
    check(GROUPS, np.broadcast_arrays, np.ones((2, 1), "float32"), np.arange(3))
    check(GROUPS, np.broadcast_arrays, np.ones(()), Plain(np.arange(3)), np.ones((2, 1), bool))


@pytest.mark.parametrize("function", [np.concatenate, np.concat])
def test_concatenate(function):
    for one in DTYPES:
        for other in DTYPES:
            check(GROUPS, function, [draw(RNG, one, (2, 3)), Plain(draw(RNG, other, (4, 3)))])
    for axis in [0, 1, -1, None]:
        check(GROUPS, function, (np.ones((2, 2)), np.zeros((2, 2), int), Plain(np.eye(2))), axis=axis)
    check(GROUPS, function, [np.ones(3, "float32"), [1, 2]])
    check(GROUPS, function, [np.ones(3, "float32"), []])
    check(GROUPS, function, np.arange(24).reshape(2, 3, 4), axis=1)
    check(GROUPS, function, [np.ones(3), np.ones(2)], dtype="float32", casting="same_kind")


def test_stack():
    for axis in range(-3, 3):
        check(GROUPS, np.stack, [np.ones((2, 3), "float32"), Plain(np.arange(6).reshape(2, 3))], axis=axis)
        check(GROUPS, np.unstack, np.arange(24).reshape(2, 3, 4), axis=axis)
    check(GROUPS, np.stack, [np.float32(2), np.array(3.0, "float32")])
    check(GROUPS, np.stack, [np.ones(3), np.ones(3)], dtype=np.float32)
    check(GROUPS, np.stack, np.arange(24).reshape(2, 3, 4), axis=-1)


@pytest.mark.parametrize("function", [np.hstack, np.vstack, np.dstack, np.column_stack])
def test_stacks_along_fixed_axes(function):
    for shape in [(), (3,), (2, 3), (2, 3, 4)]:
        if len(shape) == 3 and function is np.column_stack:
            continue
        for one, other in [("float32", "float32"), ("uint8", "int8"), ("bool", "float16"), ("uint64", "int64")]:
            check(GROUPS, function, [draw(RNG, one, shape), Plain(draw(RNG, other, shape)), draw(RNG, one, shape)])
    check(GROUPS, function, [np.array(1.0, "float32"), 2.0])
    check(GROUPS, function, np.arange(12).reshape(3, 4))


def test_block():
    a, b = np.ones((2, 2), "float32"), np.arange(4).reshape(2, 2)
    check(GROUPS, np.block, [[a, b], [Plain(b), a]])
    check(GROUPS, np.block, [a, np.arange(2)[:, None]])
    check(GROUPS, np.block, [np.array(1.0), 2, np.array([3])])
    check(GROUPS, np.block, [[[a], [a]], [[b], [b]]])
    check(GROUPS, np.block, [[np.arange(3)], [np.ones((2, 3))]])


@pytest.mark.parametrize("function", [np.split, np.array_split])
def test_split(function):
    for axis in [0, 1, 2, -1]:
        for sections in [2, [1], (1, 3), [0, 2, 9], [3, 1], [-1], Plain(np.array([1, 2])), []]:
            run(function, sections, axis, shapes=[(4, 6, 2)], dtypes=["float32", "uint16"])
    run(np.array_split, 4, shapes=[(6, 2), (3, 1), (0, 2)])


def test_split_along_fixed_axes():
    run(np.hsplit, 2, shapes=[(4,), (3, 4)])
    run(np.vsplit, [1, 2], shapes=[(4, 2)])
    run(np.dsplit, 2, shapes=[(2, 3, 4)])


def test_append_insert_delete():
    for axis in [None, 0, 1, -1]:
        check(GROUPS, np.append, np.ones((2, 2), "float32"), np.arange(4).reshape(2, 2), axis=axis)
        for where in [0, 1, -1, 2, [0], [1, 1, 0], [-1, 2], slice(0, 2), Plain(np.array([True, False]))]:
            for array in each((2, 2), dtypes=["float32", "int8", "uint64", "bool"]):
                check(GROUPS, np.insert, array, where, 7, axis=axis)
                check(GROUPS, np.insert, array, where, 2.7, axis=axis)
                if isinstance(where, int):
                    check(GROUPS, np.insert, array, where, np.array([8.5, 9]), axis=axis)
                elif axis is not None and np.size(where) > 1:
                    check(GROUPS, np.insert, array, where, Plain(np.array([[8]])), axis=axis)
        for what in [0, -1, [0], [1, 0], slice(0, 1), Plain(np.array([True, False, True])), [], slice(None, None, -2)]:
            if axis is None and isinstance(what, Plain):
                continue
            run(np.delete, what, axis, shapes=[(3, 3)], dtypes=["float32", "uint16", "bool"])
    check(GROUPS, np.append, np.ones(2, "float32"), 1.0)
    check(GROUPS, np.append, Plain(np.ones(2, "float32")), np.array([3], "int8"))
    check(GROUPS, np.insert, np.arange(6).reshape(2, 3), 1, np.array([9, 8]), axis=1)
    check(GROUPS, np.insert, np.arange(6).reshape(2, 3), [1], np.array([[9], [8]]), axis=1)
    check(GROUPS, np.insert, np.arange(6).reshape(2, 3), [1, 2], np.array([[9, 7], [8, 6]]), axis=1)
    with pytest.raises(Unsupported):
        check(GROUPS, np.delete, np.arange(3), np.array([0]))


def test_repeats():
    for reps in [2, (2,), (1, 3), (2, 1, 1, 2), [0], Plain(np.array([2, 2]))]:
        run(np.tile, reps, shapes=[(), (3,), (2, 3)])
    for repeats in [2, 0, [3], np.int64(2)]:
        for axis in [None, 0, -1]:
            run(np.repeat, repeats, axis, shapes=[(2, 3)])
    run(np.repeat, [1, 0, 2], 1, shapes=[(2, 3)])
    check(GROUPS, np.repeat, np.arange(3.0), np.array([1, 0, 2], "uint8"))
    run(np.repeat, 3, shapes=[()])
    for shape in [7, (2, 2), (3, 5), (0,)]:
        run(np.resize, shape, shapes=[(2, 3), (), (0, 2)])


def test_turns():
    for axis in [None, 0, -1, (0, 2), (), [1]]:
        run(np.flip, axis)
    run(np.flip, shapes=[()])
    run(np.fliplr)
    run(np.flipud, shapes=[(3,), (2, 3)])
    for k in range(-3, 6):
        run(np.rot90, k, dtypes=["float32"])
        run(np.rot90, k=k, axes=(2, 0), dtypes=["float32"])
    for shift, axis in [(1, None), (-7, None), ((1, 2), None), (2, 0), (-1, -1), ((1, 2), (0, 1)), (1, (0, 2))]:
        run(np.roll, shift, axis)
    run(np.roll, (1, 2), (0, 0))
    run(np.roll, [1, 1], 2)
    run(np.roll, 3, shapes=[(), (0, 2)])


def test_triangles_and_diagonals():
    for k in [0, 1, -1, 5]:
        run(np.tril, k, shapes=[(3, 4), (2, 3, 3), (3,)])
        run(np.triu, k, shapes=[(3, 4), (2, 3, 3), (3,)])
        run(np.diag, k, shapes=[(3, 4), (3,), (0,)])
        run(np.diagflat, k, shapes=[(2, 3), (3,), ()])
        run(np.diagonal, k, shapes=[(3, 4), (2, 3, 4)])
        run(np.diagonal, k, 2, 0)
        run(np.diagonal, offset=k, axis1=-1, axis2=-2)


def test_grids():
    x, y, z = np.arange(3.0), np.arange(4, dtype="int32"), np.array(5.0)
    for indexing in ["xy", "ij"]:
        for sparse in [False, True]:
            for grid in [(x,), (x, y), (x, Plain(y), z), (z, x)]:
                check(GROUPS, np.meshgrid, *grid, indexing=indexing, sparse=sparse)
    check(GROUPS, np.ix_, np.array([0, 2]), [1, 2, 3])
    check(GROUPS, np.ix_, np.array([True, False, True]), Plain(np.array([1])))
    check(GROUPS, np.ix_, np.zeros(0), np.array([0]))


def test_windows():
    view = np.lib.stride_tricks.sliding_window_view
    run(view, (2, 2, 3))
    run(view, 2, axis=1)
    run(view, (2, 3), axis=(-1, 0), shapes=[(4, 3, 5)])
    run(view, (2, 2), axis=(0, 0), shapes=[(5, 2)])
    run(view, 3, shapes=[(5,)])


WIDTHS = [1, (1, 2), ((2, 0), (1, 3)), [[0, 0], [2, 1]], 0]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_pads(mode):
    for width in WIDTHS:
        run(np.pad, width, mode, shapes=[(3, 4)])
    run(np.pad, 7, mode, shapes=[(3,)])
    run(np.pad, {1: (2, 1)}, mode, shapes=[(3, 4)], dtypes=["float32"])
    run(np.pad, (2, 3), mode=mode, shapes=[(1,)])
    run(np.pad, 2, mode, shapes=[()])


def test_pads_of_constants():
    for values in [3, (1, 2), ((1, 2), (3, 4)), 2.7]:
        for width in WIDTHS:
            run(np.pad, width, constant_values=values, shapes=[(3, 4)])


@pytest.mark.parametrize("mode", ["maximum", "minimum", "mean"])
def test_pads_of_statistics(mode):
    dtypes = (
        [name for name in DTYPES if name[0] != "c"] if mode != "mean" else [name for name in DTYPES if name != "bool"]
    )
    for width in WIDTHS:
        for length in [None, 2, (1, 3), ((1, 2), (2, 9))]:
            run(np.pad, width, mode, stat_length=length, shapes=[(3, 4)], dtypes=dtypes)


def test_pads_of_ramps():
    for width in WIDTHS:
        for ends in [0, (5, -3), ((1, 2), (3, 4))]:
            dtypes = [name for name in DTYPES if name[0] not in "ub" or not np.any(np.less(ends, 0))]
            run(
                np.pad,
                width,
                "linear_ramp",
                end_values=ends,
                shapes=[(3, 4)],
                dtypes=[d for d in dtypes if d != "bool"],
            )


def test_pads_without_an_equivalent():
    for words in [{"mode": "median"}, {"mode": "reflect", "reflect_type": "odd"}, {"mode": "empty"}]:
        with pytest.raises(Unsupported):
            check(GROUPS, np.pad, np.arange(3.0), 1, **words)


def test_arguments_that_follow_the_data_are_refused():
    twins = rows(GROUPS)
    for function, args in [(np.roll, (torch.ones(3), torch.tensor(1))), (np.tile, (torch.ones(3), torch.tensor(2)))]:
        with pytest.raises(Unsupported, match="follows the data"):
            twins[function].twin(*args)
