"""Cost of tracing one NumPy call, with the self-check and without.

On small arrays against a bare array subclass that runs the call and appends an FX node, with the collector off: the
least that any tracer of this kind must do. On large ones against NumPy itself. All in processor time, and in turns:
what else the machine does must not count, and it counts for more where a run takes longer.
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from _measure import ratio
from torch import fx

from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]

SCALE = np.full(8, 1.0001)
SMALL_OPS = 1000
LARGE = 1_000_000


class Bare(np.ndarray[Any, Any]):
    """The floor: run the ufunc, call ``fx.Graph.call_function``."""

    graph: fx.Graph
    node: fx.Node

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Run and append."""
        plain = [item.view(np.ndarray) if type(item) is Bare else item for item in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs).view(Bare)
        arguments = tuple(
            [item.node if type(item) is Bare else 0.0 if type(item) is np.ndarray else item for item in inputs]
        )
        result.node = Bare.graph.call_function(_TWINS[ufunc], arguments, kwargs)
        return result


_TWINS: dict[Any, Any] = {np.multiply: torch.mul, np.maximum: torch.maximum, np.add: torch.add, np.subtract: torch.sub}


def chain(value: Any, length: int) -> Any:
    """``length`` ufuncs in a row, with arrays and with numbers."""
    for _ in range(length // 4):
        value = value * SCALE
        value = np.maximum(value, SCALE)
        value = value + 0.5
        value = value - 0.25
    return value


def floor(length: int) -> float:
    """Seconds per call of the bare subclass."""
    Bare.graph = fx.Graph()
    value: Any = np.ones(8).view(Bare)
    value.node = Bare.graph.placeholder("x")
    gc.collect()
    gc.disable()
    begin = time.process_time()
    chain(value, length)
    seconds = time.process_time() - begin
    gc.enable()
    return seconds / length


def ours(length: int, *, self_check: bool) -> float:
    """Seconds per call of tracing."""
    session = Session(SessionOptions("bench", Path("unused"), self_check=self_check))
    gc.collect()
    (value,) = session.input_tensors("n", {"x": np.ones(8)}).values()
    begin = time.process_time()
    result = chain(value, length)
    traced = time.process_time() - begin
    session.output_tensors("n", {"y": result})
    session.stop()
    return traced / length


def not_watched(length: int) -> float:
    """Seconds per call of tracing where the arrays that others make are not looked at."""
    with contextlib.ExitStack() as without:
        for name in ("begin", "end"):
            without.enter_context(mock.patch(f"leapp.trace.made.{name}"))
        return ours(length, self_check=True)


def _inputs() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal(LARGE, np.float32),
        "y": rng.standard_normal(LARGE, np.float32),
        "mask": rng.random(LARGE) > 0.5,
        "a": rng.standard_normal((1000, 1000), np.float32),
        "b": rng.standard_normal((1000, 1000), np.float32),
        "index": rng.integers(0, LARGE, LARGE),
    }


ELEMENTWISE: dict[str, Callable[[Any], Any]] = {
    "add": lambda v: v["x"] + v["y"],
    "multiply": lambda v: v["x"] * v["y"],
    "exp": lambda v: np.exp(v["x"]),
    "where": lambda v: np.where(v["mask"], v["x"], v["y"]),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda v: np.sum(v["x"]),
    "sort": lambda v: np.sort(v["x"]),
    "matmul 1000x1000": lambda v: v["a"] @ v["b"],
    "cumsum": lambda v: np.cumsum(v["x"]),
    "take": lambda v: np.take(v["x"], v["index"]),
}


def best(operation: Callable[[Any], Any], plain: Any, traced: Any, seconds: float = 1.0) -> tuple[float, float]:
    """Shortest times of one call, of NumPy and of tracing; its result is gone before the next, as in any loop."""
    times: tuple[list[float], list[float]] = [], []
    end = time.process_time() + seconds
    while len(times[0]) < 10 or time.process_time() < end:
        for values, taken in zip((plain, traced), times, strict=True):
            for _ in range(3):  # the first finds the processor's cache as the other one left it
                begin = time.process_time()
                operation(values)
                taken.append(time.process_time() - begin)
    return min(times[0]), min(times[1])


def large() -> bool:
    """The calls on a million elements."""
    fine = True
    for rows, limit in ((ELEMENTWISE, 1.3), (OTHERS, 4.0)):
        for name, operation in rows.items():
            plain = _inputs()
            session = Session(SessionOptions("bench", Path("unused")))
            given = session.input_tensors("n", plain)
            base, seconds = best(operation, plain, {port: given[id(array)] for port, array in plain.items()})
            session.stop()
            fine &= ratio(f"{name}, 1M elements, checked", seconds, "NumPy", base, limit, "ms")
    return fine


def main() -> int:
    """Print each figure; 1 when one is above its limit."""
    torch.set_num_threads(1)
    fine = True
    base, checked, unchecked, unwatched = (
        min(times)
        for times in zip(
            *[
                (
                    floor(SMALL_OPS),
                    ours(SMALL_OPS, self_check=True),
                    ours(SMALL_OPS, self_check=False),
                    not_watched(SMALL_OPS),
                )
                for _ in range(15)
            ],
            strict=True,
        )
    )
    fine &= ratio("8 elements, checked", checked, "bare subclass", base, 2.5, "us")
    fine &= ratio("8 elements, unchecked", unchecked, "bare subclass", base, 1.6, "us")
    # For a person to know: what it costs that arrays made by others are watched.
    ratio("8 elements, checked", checked, "the same without the watch on allocations", unwatched, math.inf, "us")
    fine &= large()
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
