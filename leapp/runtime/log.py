"""Logs of ticks: one ``.safetensors`` file with what went into a pipeline and what came out, tick by tick.

Keys are ``TICK/in/NODE/PORT``, ``TICK/out/NODE/PORT`` and ``TICK/feedback/NODE/PORT``, ticks from 0. A file of inputs
needs only the first; keys without a tick, ``NODE/PORT``, hold one value for every tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp.bundle.samples import RawTensor, read_tensors, write_tensors
from leapp.errors import BundleFormatError, TickLogError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from leapp.bundle.samples import Tensor

_PARTS: Final = {"in": "inputs", "out": "outputs", "feedback": "feedback"}


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick: outer inputs, outer outputs and, where they were logged, feedback inputs, by ``node/port``."""

    inputs: Mapping[str, RawTensor] = field(default_factory=dict)
    outputs: Mapping[str, RawTensor] = field(default_factory=dict)
    feedback: Mapping[str, RawTensor] = field(default_factory=dict)
    """What the feedback inputs held when the tick began."""


@dataclass(frozen=True, slots=True)
class TickLog:
    """What a file holds. ``ticks`` have the values for every tick among their inputs already."""

    path: Path
    ticks: tuple[Tick, ...]
    every: Mapping[str, RawTensor]
    """Values for every tick; all that there is where ``ticks`` is empty."""

    def inputs(self, tick: int) -> Mapping[str, RawTensor]:
        """Outer inputs of a tick. Raises TickLogError where the log ends before it."""
        if not self.ticks:
            return self.every
        if tick >= len(self.ticks):
            why = f"tick {tick} was asked for, and it ends after {len(self.ticks)}"
            raise TickLogError(path=str(self.path), why=why)
        return self.ticks[tick].inputs


class TickWriter:
    """Collects ticks and writes them as one file at the end; the format has its table of contents at the front."""

    def __init__(self) -> None:
        self._tensors: dict[str, RawTensor] = {}
        self._count = 0

    def add(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        feedback: Mapping[str, Tensor] | None = None,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        """Add a tick: tensors or arrays by ``node/port``, kept as copies.

        Args: dtypes: by ``node/port``; says where a ``uint16`` array is bfloat16.
        """
        for part, values in (("in", inputs), ("out", outputs), ("feedback", feedback or {})):
            for key, value in values.items():
                raw = RawTensor.of(value, key)
                if raw.dtype == "uint16" and (dtypes or {}).get(key) == "bfloat16":
                    raw = RawTensor("bfloat16", raw.shape, raw.data)
                self._tensors[f"{self._count}/{part}/{key}"] = raw
        self._count += 1

    def write(self, path: Path) -> None:
        """Write the file. Raises TickLogError where it cannot be written."""
        try:
            write_tensors(path, self._tensors)
        except OSError as error:
            raise TickLogError(path=str(path), why=f"it cannot be written: {error.strerror}") from error


def write_ticks(path: Path, ticks: Sequence[Tick]) -> None:
    """Write a log. Raises TickLogError where it cannot be written."""
    writer = TickWriter()
    for tick in ticks:
        writer.add(tick.inputs, tick.outputs, tick.feedback)
    writer.write(path)


def read_ticks(path: Path) -> TickLog:
    """Read a log or a file of inputs.

    Raises: TickLogError: no such file, no tensors in it, a key of another form, ticks that do not follow one another.
    """

    def bad(why: str) -> TickLogError:
        return TickLogError(path=str(path), why=why)

    try:
        tensors = read_tensors(path)
    except OSError as error:
        raise bad(f"it cannot be read: {error.strerror}") from error
    except BundleFormatError as error:
        raise bad(error.facts["why"]) from error
    every: dict[str, RawTensor] = {}
    ticks: dict[int, dict[str, dict[str, RawTensor]]] = {}
    for key, tensor in tensors.items():
        match key.split("/"):
            case [node, port] if node and port:
                every[key] = tensor
            case [tick, part, node, port] if _is_number(tick) and part in _PARTS and node and port:
                parts = ticks.setdefault(int(tick), {name: {} for name in _PARTS.values()})
                parts[_PARTS[part]][f"{node}/{port}"] = tensor
            case _:
                raise bad(f"{key!r} is no key of a log")
    if sorted(ticks) != list(range(len(ticks))):
        missing = min(set(range(max(ticks) + 1)) - set(ticks))
        raise bad(f"tick {missing} is missing: there are {len(ticks)}, the last is {max(ticks)}")
    if not tensors:
        raise bad("it holds no tensors")
    return TickLog(path, tuple(_tick(ticks[at], every) for at in range(len(ticks))), every)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and text == str(int(text))


def _tick(parts: Mapping[str, Mapping[str, Any]], every: Mapping[str, RawTensor]) -> Tick:
    return Tick({**every, **parts["inputs"]}, parts["outputs"], parts["feedback"])
