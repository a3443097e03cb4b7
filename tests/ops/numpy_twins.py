"""Runs the twin of a NumPy function on plain tensors, and a few of them in a recording, and compares with NumPy.

What is recorded is run on other elements than those that it was recorded with.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leapp.errors import UnusedInputWarning
from leapp.graph._base import run_passes
from leapp.graph.check import check_graph, run_graph
from leapp.graph.passes import EXPORT_PASSES
from leapp.ops import _np_twin
from leapp.ops._np_checks import EXACT
from leapp.ops._np_row import Op
from leapp.trace.session import Session, SessionOptions

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
REAL = [name for name in DTYPES if not name.startswith("complex")]
FLOATS = ["float16", "float32", "float64"]


@dataclass
class Plain:
    """An array that is not traced."""

    array: Any


def _map(thing, leaf):
    if isinstance(thing, (list, tuple)) and not hasattr(thing, "_fields"):
        return type(thing)(_map(each, leaf) for each in thing)
    if isinstance(thing, dict):
        return {key: _map(each, leaf) for key, each in thing.items()}
    return leaf(thing)


def _for_numpy(thing):
    if isinstance(thing, Plain):
        return thing.array.copy()
    return thing.copy(order="K") if isinstance(thing, np.ndarray) else thing


def _for_twin(thing):
    if isinstance(thing, Plain):
        return thing.array
    if not isinstance(thing, np.ndarray):
        return thing
    return torch.from_numpy(thing.copy(order="K") if any(each < 0 for each in thing.strides) else thing)


def _leaves(thing):
    if isinstance(thing, (list, tuple)):
        for each in thing:
            yield from _leaves(each)
    else:
        yield thing


def draw(rng, dtype, shape, nan=False):
    """Elements with ties, both signs and zeros; one in five is NaN where asked for."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        low, high = (0, 7) if np.dtype(dtype).kind == "u" else (-5, 6)
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    values = np.asarray(np.round(rng.normal(size=shape) * 3, 1))
    if np.dtype(dtype).kind == "c":
        values = values + 1j * np.round(rng.normal(size=shape), 1)
    values = np.array(values, dtype)
    if nan:
        values[np.asarray(rng.random(shape) < 0.2)] = np.nan
    return values


def layouts(array):
    """The same elements as they may lie in memory."""
    yield array
    if array.ndim > 1:
        yield np.asfortranarray(array)
        yield np.repeat(array, 2, axis=-1)[..., ::2]


def rows(groups):
    return {row.numpy: row for group in groups for row in group.rows}


def check(groups, function, *args, **kwargs):
    """The twin of a function gives what NumPy gives. A row that writes is compared by the array that it wrote to."""
    row = rows(groups)[function]
    assert isinstance(row, Op)
    plain, words, expected = _in_numpy(row, args, kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = row.twin(*_map(args, _for_twin), **_map(kwargs, _for_twin))
    _compare(row, expected, actual, plain, words)
    _recorded[function] += 1
    if _recorded[function] in RECORDED and _can_be_recorded(function, args, kwargs, expected):
        _check_recording(row, args, kwargs)


RECORDED = (1, 2, 3, 10, 30, 60, 100, 200, 400)
"""The calls of each function that are recorded too."""
KEPT = {np.searchsorted, np.linalg.cholesky}
"""Their elements are not to be put into another order."""
NOT_SEEN = {np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray, np.require, np.full}
"""NumPy hands these over only for like=, so there is nothing to record."""
_recorded = Counter()


def _writes(row, args, kwargs):
    return bool(row.writes) and (row.writes_if is None or row.writes_if(*args, **kwargs))


def _in_numpy(row, args, kwargs):
    """Arguments as plain arrays, and what NumPy gives for them."""
    plain, words = _map(args, _for_numpy), _map(kwargs, _for_numpy)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = row.numpy(*plain, **words)
    return plain, words, plain[0] if _writes(row, args, kwargs) else expected


def _can_be_recorded(function, args, kwargs, expected):
    first = next(_leaves([*args, *kwargs.values()]), None)
    return (
        function not in NOT_SEEN
        and isinstance(first, np.ndarray)
        and not isinstance(args[0], list)
        and all(isinstance(each, (np.ndarray, np.generic)) for each in _leaves(expected))
    )


def _check_recording(row, args, kwargs):
    """A recording of the call gives what NumPy gives for the same elements in reversed order."""
    arrays = [each for each in _leaves([*args, *kwargs.values()]) if isinstance(each, np.ndarray)]
    session = Session(SessionOptions(name="test", folder=Path("unused"), root=Path(__file__).parents[1]))
    try:
        traced = session.input_tensors("n", {f"in{i}": each.copy(order="K") for i, each in enumerate(arrays)})
        given = iter(traced.values() if isinstance(traced, dict) else [traced])
        taken = [_map(each, lambda leaf: _for_numpy(leaf) if not isinstance(leaf, np.ndarray) else next(given))
                 for each in (args, kwargs)]  # fmt: skip
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.filterwarnings("ignore", category=RuntimeWarning)
            warnings.filterwarnings("ignore", category=np.exceptions.ComplexWarning)
            warnings.filterwarnings("ignore", category=UnusedInputWarning)
            result = row.numpy(*taken[0], **taken[1])
            outputs = list(_leaves(taken[0][0] if _writes(row, args, kwargs) else result))
            session.output_tensors("n", {f"out{i}": each for i, each in enumerate(outputs)})
        session.stop()
    finally:
        session.stop()
    passed = run_passes(session.completed[0].recordings[0].graph, EXPORT_PASSES)
    check_graph(passed)
    change = _for_numpy if row.numpy in KEPT else _reversed
    other = _map(args, change), _map(kwargs, change)
    inputs = {f"in{i}": torch.from_numpy(np.array(change(each))) for i, each in enumerate(arrays)}
    plain, words, expected = _in_numpy(row, *other)
    results = run_graph(passed, {port.name: inputs[port.name] for port in passed.spec.inputs})
    _compare(row, list(_leaves(expected)), list(results.values()), plain, words)


def _reversed(thing):
    if not isinstance(thing, np.ndarray):
        return _for_numpy(thing)
    return np.ascontiguousarray(thing.ravel()[::-1]).reshape(thing.shape)


def _compare(row, expected, actual, args, kwargs):
    several = isinstance(expected, (list, tuple))
    assert several == isinstance(actual, (list, tuple)), (row.numpy.__name__, expected, actual)
    ours, theirs = list(_leaves(actual)), list(_leaves(expected))
    assert len(ours) == len(theirs), (row.numpy.__name__, expected, actual)
    gotten = []
    for one, other in zip(theirs, ours, strict=True):
        wanted = np.asarray(one)
        assert isinstance(other, torch.Tensor)
        where = (row.numpy.__name__, args, kwargs, wanted, other)
        assert tuple(other.shape) == wanted.shape, where
        assert _np_twin.numpy_dtype(other.dtype) == wanted.dtype, where
        got = other.detach().resolve_conj().resolve_neg().numpy()
        gotten.append(got)
        if row.check.whole:
            continue
        assert row.check.wrong(wanted, got, row.numpy, args, kwargs) is None, where
    if row.check.whole:
        wanted = tuple(np.asarray(each) for each in theirs)
        assert row.check.wrong(wanted, tuple(gotten), row.numpy, args, kwargs) is None, (
            row.numpy,
            args,
            wanted,
            gotten,
        )


__all__ = ["DTYPES", "EXACT", "FLOATS", "REAL", "Plain", "check", "draw", "layouts", "rows"]
