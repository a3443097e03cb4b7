"""Things that lie in a range of addresses each, and which of them touch another range."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Ranges(Generic[Thing]):
    """Things by the half-open range of addresses they lie in; an empty range touches nothing.

    Things are kept by the power of two of their length, so that those which may reach a place are neighbours.
    """

    def __init__(self) -> None:
        self._of_length: dict[int, list[tuple[int, int]]] = {}
        """Power of two -> (first address, number), sorted."""
        self._things: dict[int, tuple[int, int, Thing]] = {}
        self._numbers: dict[int, int] = {}
        self._next = 0

    def add(self, thing: Thing, low: int, high: int) -> None:
        """Note a thing; one that is there already becomes the latest."""
        self.discard(thing)
        self._next += 1
        self._numbers[id(thing)] = self._next
        self._things[self._next] = (low, high, thing)
        insort(self._of_length.setdefault((high - low).bit_length(), []), (low, self._next))

    def discard(self, thing: Thing) -> None:
        """Forget a thing, if it is there."""
        number = self._numbers.pop(id(thing), None)
        if number is None:
            return
        low, high, _ = self._things.pop(number)
        starts = self._of_length[(high - low).bit_length()]
        del starts[bisect_left(starts, (low, number))]

    def touching(self, low: int, high: int) -> list[Thing]:
        """What shares an address with ``low`` .. ``high``, the latest first."""
        if low >= high:
            return []
        found = []
        for bits, starts in self._of_length.items():
            for start, number in starts[bisect_left(starts, (low - (1 << bits), 0)) :]:
                if start >= high:
                    break
                if self._things[number][1] > low:
                    found.append(number)
        return [self._things[number][2] for number in sorted(found, reverse=True)]
