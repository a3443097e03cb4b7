"""Comparing what was expected with what came: one element-wise rule, and how it reports.

Works on NumPy arrays, so that an ONNX bundle can be checked without torch. Large arrays are walked in pieces: a
comparison holds a few pieces beside the arrays themselves, whatever their size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

_PIECE: Final = 1 << 17
"""Elements that are compared at once."""
_EXACT_UP_TO: Final = 1 << 16
"""Differences that are kept as they are; of more, a histogram."""
_DROPPED_BITS: Final = 46
"""Of a float64's 52 mantissa bits; the other 6 make the bins of the histogram 1/64 wide, relative to their value."""
_BINS: Final = 1 << (63 - _DROPPED_BITS)


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one array is from another.

    ``largest`` is the largest absolute difference in the port's own unit, infinity where shape, dtype or NaN positions
    differ. ``where`` is the index of the element that is furthest beyond its tolerance, or where none is, of the
    largest difference; None for equal arrays. The last four fields speak of that element.
    """

    ok: bool
    largest: float
    where: tuple[int, ...] | None
    expected: str = ""
    actual: str = ""
    note: str = ""
    """What differs instead of values: dtype or shape."""
    apart: float = 0.0
    """By how much the element differs."""
    allowed: float = 0.0
    """By how much it may."""

    def further_than(self, other: Difference) -> bool:
        """Whether this is the worse one of two."""
        return (not self.ok, self.largest) > (not other.ok, other.largest)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Absolute differences over many elements, in the port's own unit.

    ``largest``, ``mean`` and the percentiles are over the elements that are finite on both sides; the percentiles are
    exact up to 65,536 elements that differ, and within 1% beyond.
    """

    elements: int = 0
    beyond: int = 0
    """How many elements are out of tolerance."""
    largest: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    nan_recorded: int = 0
    """How many elements are NaN in the recording,"""
    nan_model: int = 0
    """and in what the model gave."""
    inf_recorded: int = 0
    inf_model: int = 0


class Tally:
    """Gathers the differences of any number of comparisons into ``Statistics``."""

    def __init__(self) -> None:
        self.elements = self.beyond = 0
        self._finite = 0
        self._sum = self._largest = 0.0
        self._kept: list[npt.NDArray[np.float64]] = []
        self._kept_count = 0
        self._bins: npt.NDArray[np.int64] | None = None
        self._odd = dict.fromkeys(("nan_recorded", "nan_model", "inf_recorded", "inf_model"), 0)

    def equal(self, count: int) -> None:
        """Note finite elements that do not differ."""
        self.elements += count
        self._finite += count

    def add(
        self,
        apart: npt.NDArray[np.float64],
        finite: npt.NDArray[np.bool_] | None,
        beyond: int,
    ) -> None:
        """Note differences: ``finite`` says which of them are between finite elements, None: all."""
        self.elements += apart.size
        self.beyond += beyond
        found = apart if finite is None else apart[finite]
        self._finite += found.size
        found = found[found > 0]
        if not found.size:
            return
        self._sum += float(np.sum(found))
        self._largest = max(self._largest, float(np.max(found)))
        self._kept_count += found.size
        if self._bins is None:
            self._kept.append(found)
        if self._kept_count > _EXACT_UP_TO:
            self._fold(found)

    def odd(self, recorded: npt.NDArray[Any], model: npt.NDArray[Any]) -> None:
        """Count NaN and infinities on both sides."""
        for side, values in (("recorded", recorded), ("model", model)):
            self._odd[f"nan_{side}"] += int(np.count_nonzero(np.isnan(values)))
            self._odd[f"inf_{side}"] += int(np.count_nonzero(np.isinf(values)))

    def statistics(self) -> Statistics:
        """All that was noted so far."""
        # A sum that overflowed still lies below the largest difference.
        mean = min(self._sum / self._finite, self._largest) if self._finite else 0.0
        low, middle, high = self._percentiles()
        return Statistics(self.elements, self.beyond, self._largest, mean, low, middle, high, **self._odd)

    def _fold(self, found: npt.NDArray[np.float64]) -> None:
        """Keep a histogram in place of the differences. The bits of positive floats sort as they do."""
        pieces = [found] if self._bins is not None else self._kept
        bins = np.zeros(_BINS, np.int64) if self._bins is None else self._bins
        for piece in pieces:
            bins += np.bincount(np.ascontiguousarray(piece).view(np.int64) >> _DROPPED_BITS, minlength=_BINS)
        self._bins = bins
        self._kept = []

    def _percentiles(self) -> tuple[float, float, float]:
        if not self._kept_count:
            return 0.0, 0.0, 0.0
        equal = self._finite - self._kept_count
        ranks = [math.ceil(self._finite * percent / 100) - 1 - equal for percent in (50, 95, 99)]
        if self._bins is None:
            ordered = np.sort(np.concatenate(self._kept))
            values = [float(ordered[rank]) if rank >= 0 else 0.0 for rank in ranks]
        else:
            upto = np.cumsum(self._bins)
            middles = [
                (int(np.searchsorted(upto, rank, side="right")) << _DROPPED_BITS) | (1 << (_DROPPED_BITS - 1))
                for rank in ranks
            ]
            values = [
                min(float(np.int64(bits).view(np.float64)), self._largest) if rank >= 0 else 0.0
                for rank, bits in zip(ranks, middles, strict=True)
            ]
        return values[0], values[1], values[2]


def compare(
    actual: npt.NDArray[Any], expected: npt.NDArray[Any], *, rtol: float, atol: float, tally: Tally | None = None
) -> Difference:
    """Compare two arrays element by element: ``|actual - expected| <= atol + rtol |expected|``.

    NaN equals NaN and an infinity only itself; integers and booleans must be equal whatever the tolerances. Where a
    ``tally`` is given, the differences are added to it.
    """
    if actual.dtype != expected.dtype:
        return Difference(False, float("inf"), None, str(expected.dtype), str(actual.dtype), "dtype differs")
    if actual.shape != expected.shape:
        return Difference(False, float("inf"), None, str(expected.shape), str(actual.shape), "shape differs")
    shape = expected.shape
    ours, theirs = actual.reshape(-1), expected.reshape(-1)
    beyond = 0
    largest = furthest = _Place(-math.inf)
    for start in range(0, ours.size, _PIECE):
        piece = _Piece.of(ours[start : start + _PIECE], theirs[start : start + _PIECE], rtol=rtol, atol=atol)
        if piece is None:
            if tally is not None:
                tally.equal(min(_PIECE, ours.size - start))
            continue
        out = int(np.count_nonzero(~(piece.apart <= piece.allowed)))
        beyond += out
        largest = max(largest, _Place.first(piece.apart, start), key=_Place.rank)
        if out:
            with np.errstate(invalid="ignore"):
                furthest = max(furthest, _Place.first(piece.apart - piece.allowed, start), key=_Place.rank)
        if tally is not None:
            tally.add(piece.apart, piece.finite, out)
            if piece.finite is not None:
                tally.odd(theirs[start : start + _PIECE], ours[start : start + _PIECE])
    if largest.value <= 0.0:
        return Difference(True, 0.0, None)
    at = furthest.at if beyond else largest.at
    place = tuple(int(index) for index in np.unravel_index(at, shape))
    there = _Piece.of(ours[at : at + 1], theirs[at : at + 1], rtol=rtol, atol=atol)
    assert there is not None  # only what differs has a place
    return Difference(
        not beyond,
        largest.value,
        place,
        str(theirs[at]),
        str(ours[at]),
        apart=float(there.apart[0]),
        allowed=float(there.allowed[0]),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """An element, by the value that it is ranked by."""

    value: float
    at: int = -1

    @classmethod
    def first(cls, ranking: npt.NDArray[np.float64], start: int) -> _Place:
        """The highest one of a piece that begins at ``start``."""
        at = int(np.argmax(ranking))
        return cls(float(ranking[at]), start + at)

    def rank(self) -> float:
        """What decides."""
        return self.value


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some elements of two arrays: by how much they differ, and may."""

    apart: npt.NDArray[np.float64]
    allowed: npt.NDArray[np.float64]
    finite: npt.NDArray[np.bool_] | None
    """Which of them are finite on both sides; None: all."""

    @classmethod
    def of(cls, actual: npt.NDArray[Any], expected: npt.NDArray[Any], *, rtol: float, atol: float) -> _Piece | None:
        """None where all elements are finite and equal, which is the rule."""
        same = actual == expected
        if expected.dtype.kind not in "fcV":
            if same.all():
                return None
            return cls(_distance_exact(actual, expected, same), np.zeros(same.shape), None)
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        a, e = actual.astype(wide), expected.astype(wide)
        finite = np.isfinite(a) & np.isfinite(e)
        all_finite = bool(finite.all())
        if all_finite and same.all():
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(a - e)
            allowed = atol + rtol * np.abs(e)
        if not all_finite:
            apart[same | (np.isnan(a) & np.isnan(e))] = 0.0
            apart[np.isnan(apart)] = np.inf
            allowed[~np.isfinite(allowed)] = 0.0
        return cls(apart, allowed, None if all_finite else finite)


def _distance_exact(
    actual: npt.NDArray[Any], expected: npt.NDArray[Any], same: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    if expected.dtype == np.bool_:
        flags: npt.NDArray[np.float64] = (~same).astype(np.float64)
        return flags
    # Python integers would be exact; float64 is enough to rank, and != decides what counts.
    distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    result: npt.NDArray[np.float64] = np.where(same, 0.0, np.maximum(distance, 1.0))
    return result
