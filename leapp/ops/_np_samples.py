"""Which elements of a large array are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Sample = tuple[slice, ...]
"""A slice for each axis of a result."""

SAMPLE_ABOVE: Final = 1 << 16
"""Elements of a result above which a row that has a rule for it is checked on fewer."""
SAMPLE_SIZE: Final = 1 << 12

_ALL: Final = slice(None)


def sample_of(shape: tuple[int, ...], size: int = SAMPLE_SIZE) -> Sample:
    """Steps along each axis that leave about ``size`` elements, spread over all of them."""
    if len(shape) == 1:
        return (slice(None, None, -(-shape[0] // size) or 1),)
    parts = [_ALL] * len(shape)
    axes_left, left = len(shape), size
    for axis in sorted(range(len(shape)), key=shape.__getitem__):  # short ones leave more to the long ones
        keep = max(1, min(shape[axis], round(left ** (1 / axes_left))))
        parts[axis] = slice(None, None, -(-shape[axis] // keep) or 1)
        axes_left, left = axes_left - 1, max(1, left // keep)
    return tuple(parts)


def sampled(array: Any, sample: Sample) -> Any:
    """What an operand, an array or a tensor, has at the places of a sample; axes of length 1 are repeated."""
    shape = array.shape
    if shape == (1,) * len(shape):
        return array
    fitting = sample[len(sample) - len(shape) :]
    return array[tuple([_ALL if size == 1 else part for size, part in zip(shape, fitting, strict=True)])]


def fewer(place: int, name: str, size: int = SAMPLE_SIZE) -> Callable[[Any, Any], Any]:
    """The part of a large call in which one array is smaller: a sample of its elements, at steps along each axis.

    For what gives each element of that array an answer of its own, whatever the others are, as ``np.take`` its indices.
    """

    def part(args: Any, kwargs: Any) -> Any:
        whole = args[place] if len(args) > place else kwargs.get(name)
        if not isinstance(whole, np.ndarray) or whole.size <= size:
            return None
        some = whole[sample_of(whole.shape, size)].copy()
        if len(args) > place:
            return (*args[:place], some, *args[place + 1 :]), kwargs
        return args, {**kwargs, name: some}

    return part
