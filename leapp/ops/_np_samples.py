"""Which elements of a large array are looked at."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_ABOVE: Final = 1 << 16
"""Elements of a result above which a row that has a rule for it is checked on fewer."""
SAMPLE_SIZE: Final = 1 << 12

_BLOCK: Final = 16
"""Neighbours that are looked at together: memory is read in pieces of about as many."""
_ALL: Final = slice(None)


class Sample(NamedTuple):
    """Places in a result and in what it follows from: slices, the last of which may be cut into blocks."""

    parts: tuple[slice, ...]
    blocks: tuple[int, int] | None
    """How many of how many elements, of each of which the first few count; they lie along an axis of their own."""


@lru_cache(maxsize=64)
def sample_of(shape: tuple[int, ...]) -> Sample:
    """About ``SAMPLE_SIZE`` elements that are spread over all axes."""
    steps = _steps(shape, SAMPLE_SIZE)
    length = shape[-1]
    count = -(-length // steps[-1].step) // _BLOCK
    if count < 4 or steps[-1].step == 1:
        return Sample(steps, None)
    return Sample((*steps[:-1], slice(0, count * (length // count), 1)), (count, length // count))


def _steps(shape: tuple[int, ...], size: int) -> tuple[slice, ...]:
    """Steps along each axis that leave about ``size`` elements."""
    parts = [_ALL] * len(shape)
    axes_left, left = len(shape), size
    for axis in sorted(range(len(shape)), key=shape.__getitem__):  # short ones leave more to the long ones
        keep = max(1, min(shape[axis], round(left ** (1 / axes_left))))
        parts[axis] = slice(0, shape[axis], -(-shape[axis] // keep) or 1)
        axes_left, left = axes_left - 1, max(1, left // keep)
    return tuple(parts)


def sampled(array: Any, sample: Sample) -> Any:
    """What an operand, an array or a tensor, has at the places of a sample; axes of length 1 are repeated."""
    shape = array.shape
    if shape == (1,) * len(shape):
        return array
    fitting = sample.parts[len(sample.parts) - len(shape) :]
    some = array[tuple([_ALL if size == 1 else part for size, part in zip(shape, fitting, strict=True)])]
    if sample.blocks is None:
        return some
    return some[..., None] if shape[-1] == 1 else some.reshape((*some.shape[:-1], *sample.blocks))[..., :_BLOCK]


def place_of(index: tuple[int, ...], sample: Sample) -> tuple[int, ...]:
    """Index into a result of an element of its sample."""
    if sample.blocks is not None:
        *before, block, inside = index
        index = (*before, block * sample.blocks[1] + inside)
    return tuple(place * part.step for place, part in zip(index, sample.parts, strict=True))


def fewer(place: int, name: str, size: int = SAMPLE_SIZE) -> Callable[[Any, Any], Any]:
    """The part of a large call in which one array is smaller: a sample of its elements, at steps along each axis.

    For what gives each element of that array an answer of its own, whatever the others are, as ``np.take`` its indices.
    """

    def part(args: Any, kwargs: Any) -> Any:
        whole = args[place] if len(args) > place else kwargs.get(name)
        if not isinstance(whole, np.ndarray) or whole.size <= size:
            return None
        some = whole[_steps(whole.shape, size)].copy()
        if len(args) > place:
            return (*args[:place], some, *args[place + 1 :]), kwargs
        return args, {**kwargs, name: some}

    return part
