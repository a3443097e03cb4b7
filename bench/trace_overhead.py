"""Cost of tracing one op, against a bare tensor subclass that runs the op and appends an FX node.

The floor does the least that any tracer of this kind must do, with the collector off. Tensors have 8 elements, so that
the ops themselves cost next to nothing. CPU time, in turns: what else the machine does changes that least, and meets
both alike. Long chains are timed in stretches, of each of which the best turn counts: all of a long chain is never
undisturbed at once on a machine that others use, and would seem to cost more per op than a short one.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from _measure import ratio
from torch import fx

from leapp.trace.session import Session, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

STRETCH = 1000
"""Ops. Longer chains are multiples of it."""
SCALE = torch.full((8,), 1.0001)


class Bare(torch.Tensor):
    """The floor: run the op, call ``fx.Graph.call_function``."""

    graph: fx.Graph
    node: fx.Node

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and append."""
        del types
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        arguments = tuple(
            [item.node if type(item) is cls else 0.0 if type(item) is torch.Tensor else item for item in args]
        )
        result.__class__ = cls
        result.node = cls.graph.call_function(func, arguments, kwargs)
        return result


def chain(value: torch.Tensor, length: int) -> torch.Tensor:
    """``length`` ops in a row."""
    for _ in range(length // 4):
        value = value * SCALE
        value = torch.clamp(value, -3.0, 3.0)
        value = value.add(0.5)
        value = torch.sub(value, 0.25)
    return value


def timed(value: torch.Tensor, length: int) -> tuple[torch.Tensor, list[float]]:
    """What a chain of that length gives, and the CPU seconds of its stretches."""
    seconds = []
    for _ in range(math.ceil(length / STRETCH)):
        begin = time.process_time()
        value = chain(value, min(length, STRETCH))
        seconds.append(time.process_time() - begin)
    return value, seconds


def floor(length: int) -> list[float]:
    """CPU seconds of the bare subclass, by stretch."""
    Bare.graph = fx.Graph()
    value: Any = torch.ones(8)
    value.__class__ = Bare
    value.node = Bare.graph.placeholder("x")
    gc.collect()
    gc.disable()
    _, seconds = timed(value, length)
    gc.enable()
    return seconds


def ours(length: int, *, sentinel: bool = False) -> list[float]:
    """CPU seconds of tracing, by stretch, and of closing the node."""
    session = Session(SessionOptions("bench", Path("unused"), sentinel=sentinel))
    value = torch.ones(8)
    gc.collect()
    session.input_tensors("n", {"x": value})
    result, seconds = timed(value, length)
    begin = time.process_time()
    session.output_tensors("n", {"y": result})
    seconds.append(time.process_time() - begin)
    session.stop()
    return seconds


def best(turns: Sequence[list[float]]) -> list[float]:
    """The best turn of each stretch."""
    return [min(each) for each in zip(*turns, strict=True)]


def main() -> int:
    """Print each figure; 1 when one is above its limit."""
    torch.set_num_threads(1)
    fine = True
    per_op = {}
    for length in (100, 1000, 5000, 20_000):
        # The shorter a run, the likelier something disturbs all of five.
        floors, traces = [], []
        for _ in range(max(5, 10_000 // length)):
            floors.append(floor(length))
            traces.append(ours(length))
        *traced, closing = best(traces)
        base, per_op[length] = sum(best(floors)) / length, sum(traced) / length
        pruned = per_op[length] + closing / length
        fine &= ratio(f"{length} ops, tracing", per_op[length], "bare subclass", base, 1.8, "us")
        fine &= ratio(f"{length} ops, with pruning", pruned, "bare subclass", base, 2.0, "us")
    watched = sum(best([ours(5000, sentinel=True)[:-1] for _ in range(5)])) / 5000
    # For a person to know: builds and LEAPP_STRICT=1 pay it.
    ratio("5000 ops, tracing with the sentinel", watched, "tracing without", per_op[5000], math.inf, "us")
    fine &= ratio("20,000 ops per op", per_op[20_000], "100 ops per op", per_op[100], 1.15, "us")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
