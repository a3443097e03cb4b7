"""Running a bundle for a number of ticks: what ``leapp run`` does."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leapp.errors import LeappError
from leapp.runtime.log import TickWriter
from leapp.runtime.values import raw_array

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from leapp.runtime.inference import InferenceManager
    from leapp.runtime.log import TickLog


@dataclass
class Played:
    """What a run gave. Times in nanoseconds, one per tick."""

    ticks: int = 0
    """Those that went well."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Of the last one, by ``node/port``."""
    tick_ns: list[int] = field(default_factory=list)
    node_ns: dict[str, list[int]] = field(default_factory=dict)
    error: LeappError | None = None
    """Why it ended before its time, in the tick after the last that went well."""


def play(
    manager: InferenceManager,
    steps: int,
    *,
    inputs: TickLog | None = None,
    seed: int = 0,
    log: Path | None = None,
    timed: bool = False,
) -> Played:
    """Run ``steps`` ticks; an error of ours ends the run and is part of the result.

    Args: inputs: outer inputs by tick; None: mock inputs from ``seed``. log: gets inputs, outputs and feedback of every
        tick that went well, also when a later one did not or was interrupted. timed: measure ticks and nodes.
    Raises: TickLogError: the inputs end too early, or the log cannot be written.
    """
    nodes = [node.name for node in manager.pipeline.nodes]
    played = Played(node_ns={node: [] for node in nodes} if timed else {})
    writer = TickWriter() if log is not None else None
    dtypes = {
        f"{node.name}/{port.name}": port.spec.dtype
        for node in manager.pipeline.nodes
        for port in (*node.inputs, *node.outputs)
    }
    if inputs is not None and steps:
        inputs.inputs(steps - 1)
    try:
        for tick in range(steps):
            given: Mapping[str, Any]
            if inputs is None:
                given = manager.get_mock_input(seed if tick == 0 else None)
            else:
                given = {key: raw_array(raw) for key, raw in inputs.inputs(tick).items()}
            feedback = manager.feedback_inputs if writer is not None else {}
            clock: list[int] | None = [] if timed else None
            begin = time.perf_counter_ns()
            try:
                played.outputs = manager._engine.tick(given, clock)
            except LeappError as error:
                played.error = error
                break
            if clock is not None:
                played.tick_ns.append(time.perf_counter_ns() - begin)
                for node, taken in zip(nodes, clock, strict=True):
                    played.node_ns[node].append(taken)
            played.ticks += 1
            if writer is not None:
                writer.add(given, played.outputs, feedback, dtypes)
    finally:
        if writer is not None and log is not None:
            writer.write(log)
    return played
