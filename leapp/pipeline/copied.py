"""Outer inputs that hold what an output gave: a wire that nobody saw, because the values were copied out of its sight.

``torch.tensor(y.tolist())``, a message or a shared memory hands on numbers alone, so what was a wire becomes an input
from outside. The numbers tell all the same: measured floating-point values do not equal an output bit for bit, tick
after tick. Whole numbers and constants might, so they prove nothing; nor does an output that hands an outer input on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from leapp.bundle.samples import RawTensor
    from leapp.pipeline.ticks import Round

    _Array: TypeAlias = npt.NDArray[Any]

_LARGEST_SEARCHED: Final = 1 << 14
"""Elements of a port in which another one is looked for; larger ones are only compared as wholes."""


@dataclass(frozen=True, slots=True)
class PortValues:
    """One entry of a node, its ports under one kind of names; without values where they were not kept."""

    node: str
    inputs: Mapping[str, RawTensor] = field(default_factory=dict)
    outputs: Mapping[str, RawTensor] = field(default_factory=dict)
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Copy:
    """An outer input, ``node/port``, that held an output whenever there was one."""

    input: str
    output: str
    part: bool
    """One of them is a part of the other."""


@dataclass(frozen=True, slots=True)
class _Point:
    """What an outer input held, and what could be told of the other ports then."""

    held: _Array
    outputs: Mapping[str, _Array]
    """The last value that each output had."""
    others: Mapping[str, tuple[_Array, ...]]
    """The last two values that other outer inputs had."""


def unseen_copies(runs: Iterable[Sequence[PortValues]], outer: Collection[str]) -> Iterator[Copy]:
    """Outer inputs that are copies of outputs in all of some runs of one pipeline.

    Args:
        runs: the entries of all nodes, in the order in which they were closed.
        outer: inputs, ``node/port``, that no output feeds.
    """
    points: dict[str, list[_Point]] = {}
    for run in runs:
        for consumer, point in _points(run, outer):
            points.setdefault(consumer, []).append(point)
    for consumer, found in points.items():
        outputs = dict.fromkeys(name for point in found for name in point.outputs)
        copies = [copy for name in outputs if (copy := _copy(consumer, name, found)) is not None]
        yield from sorted(copies, key=lambda copy: copy.part)[:1]


def played(
    rounds: Sequence[Round], entries: Mapping[str, Sequence[tuple[Mapping[str, RawTensor], Mapping[str, RawTensor]]]]
) -> list[PortValues]:
    """A traced run, entry by entry. ``entries``: inputs and outputs of those of each node that were kept."""
    return [
        PortValues(node, kept=False) if index is None else PortValues(node, *entries[node][index])
        for each in rounds
        for node, index in each.items()
        if index is None or index < len(entries.get(node, ()))
    ]


def _points(run: Sequence[PortValues], outer: Collection[str]) -> Iterator[tuple[str, _Point]]:
    outputs: dict[str, _Array] = {}
    inputs: dict[str, tuple[_Array, ...]] = {}
    for entry in run:
        if not entry.kept:
            for name in [name for name in outputs if name.partition("/")[0] == entry.node]:
                del outputs[name]
            continue
        given = {
            f"{entry.node}/{port}": value.numpy().reshape(-1)
            for port, value in entry.inputs.items()
            if f"{entry.node}/{port}" in outer and _tells(value)
        }
        inputs.update({name: (*inputs.get(name, ())[-1:], value) for name, value in given.items()})
        for name, value in given.items():
            others = {other: values for other, values in inputs.items() if other != name}
            yield name, _Point(value, dict(outputs), others)
        outputs.update(
            {
                f"{entry.node}/{port}": value.numpy().reshape(-1)
                for port, value in entry.outputs.items()
                if _tells(value)
            }
        )


def _tells(value: RawTensor) -> bool:
    return value.dtype in {"float16", "bfloat16", "float32", "float64"} and bool(value.data)


def _copy(consumer: str, output: str, points: Sequence[_Point]) -> Copy | None:
    compared = [point for point in points if output in point.outputs]
    if not compared:
        return None
    whole = all(point.outputs[output].size == point.held.size for point in compared)
    offsets: set[int] | None = None
    needles = []
    for point in compared:
        short, long = _ordered(point.held, point.outputs[output])
        needles.append(short)
        if whole:
            if not _equal(short, long):
                return None
        elif _is_telling(short):
            here = _offsets(short, long)
            offsets = here if offsets is None else offsets & here
            if not offsets:
                return None
    if not any(_is_telling(needle) for needle in needles):
        return None
    at = 0
    if not whole:
        assert offsets is not None
        found = next((at for at in sorted(offsets) if all(_lies_at(at, point, output) for point in compared)), None)
        if found is None:
            return None
        at = found
    size = needles[0].size
    seen = compared if len(compared) > 1 else points  # a start is another value as well, though a weaker sign
    if not _differ([point.held[at : at + size] if point.held.size > size else point.held for point in seen]):
        return None
    names = dict.fromkeys(name for point in compared for name in point.others)
    pairs = list(zip(compared, needles, strict=True))
    if any(all(_holds(point.others.get(name, ()), needle) for point, needle in pairs) for name in names):
        return None  # the node hands on what was given to both
    return Copy(consumer, output, part=not whole)


def _ordered(held: _Array, output: _Array) -> tuple[_Array, _Array]:
    """The two in the dtype of the input, the shorter one first."""
    with np.errstate(over="ignore", invalid="ignore"):
        output = output.astype(held.dtype)
    return (held, output) if held.size <= output.size else (output, held)


def _equal(first: _Array, second: _Array) -> bool:
    return first.tobytes() == second.tobytes()


def _is_telling(values: _Array) -> bool:
    """Whether a value is no number that one would write down: finite, and not a whole one."""
    return bool((np.isfinite(values) & (values != np.round(values))).any())


def _offsets(short: _Array, long: _Array) -> set[int]:
    """Where the elements of one array lie in another one."""
    found: set[int] = set()
    if long.size > _LARGEST_SEARCHED:
        return found
    needle, hay, size = short.tobytes(), long.tobytes(), long.itemsize
    at = hay.find(needle)
    while at >= 0:
        if at % size == 0:
            found.add(at // size)
        at = hay.find(needle, at + 1)
    return found


def _lies_at(at: int, point: _Point, output: str) -> bool:
    short, long = _ordered(point.held, point.outputs[output])
    return _equal(short, long[at : at + short.size])


def _holds(values: Sequence[_Array], needle: _Array) -> bool:
    """Whether one of some values holds the elements of another one."""
    return any(
        bool(_offsets(needle, value.astype(needle.dtype))) if value.size > needle.size else _equal(value, needle)
        for value in values
        if value.size >= needle.size
    )


def _differ(values: Sequence[_Array]) -> bool:
    return any(not _equal(each, values[0]) for each in values[1:])
