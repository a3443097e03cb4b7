"""How near torch's answer must be to NumPy's, row by row.

A check is made for every recorded call, and nearly always passes: each asks first whether the bytes are equal, then
what is cheap and sufficient, and computes its bound only where that fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Check(Protocol):
    """Compares one result of a call with its twin's; shapes and dtypes are known to be equal."""

    @property
    def whole(self) -> bool:
        """Takes all results of a call at once: a tuple of arrays where the call gives several."""

    def wrong(
        self,
        expected: Any,
        actual: Any,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[int, ...] | None:
        """Index of the first element that is out of bounds; None where all is well.

        ``call``, ``args`` and ``kwargs`` are NumPy's own, as plain arrays: a bound may follow from them.
        """


_SMALL_BYTES: Final = 1 << 14
"""Up to here a copy of the bytes costs less than an array of booleans."""

_SIGNED: Final[dict[int, np.dtype[Any]]] = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_UNSIGNED: Final[dict[int, np.dtype[Any]]] = {2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def _same_bytes(expected: Any, actual: Any) -> bool:
    """Whether two arrays hold the same bytes; False also where it takes too long to say."""
    size: int = expected.nbytes
    if size <= _SMALL_BYTES:
        return bool(expected.tobytes() == actual.tobytes())
    if size % 8 or not (expected.flags.c_contiguous and actual.flags.c_contiguous):
        return False
    one, other = (each.reshape(-1).view(np.uint64) for each in (expected, actual))
    # Most that differ differ early.
    return bool((one[:512] == other[:512]).all()) and bool((one == other).all())


def _first(bad: Any) -> tuple[int, ...] | None:
    """Index of the first True; None where there is none."""
    if not bad.any():
        return None
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(bad)), np.shape(bad)))


def _unequal(expected: Any, actual: Any) -> Any:
    """Where two arrays differ; NaN equals NaN, and 0 equals -0."""
    return (expected != actual) & ((expected == expected) | (actual == actual))  # noqa: PLR0124 - NaN


def _reals(array: Any) -> Any:
    """An array of floating numbers; complex ones as pairs along a last axis."""
    if array.dtype.kind != "c":
        return array
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    return array.reshape(*array.shape, 1).view(array.real.dtype)


def _few_ulps(expected: Any, actual: Any, ulps: int) -> bool:
    """Whether all elements are near by their bit patterns: sufficient, and said of no two numbers of unlike sign."""
    if not expected.ndim:  # a scalar that overflows warns, an array does not
        expected, actual = expected.reshape(1), actual.reshape(1)
    size = expected.dtype.itemsize
    signed = _SIGNED[size]
    near = (actual.view(signed) - expected.view(signed) + ulps).view(_UNSIGNED[size]) <= 2 * ulps
    return b"\0" not in near.tobytes() if near.nbytes <= _SMALL_BYTES else bool(near.all())


def _far(expected: Any, actual: Any, ulps: int) -> Any:
    """Where more than so many representable numbers lie between the elements of two arrays of floating numbers."""
    size = expected.dtype.itemsize
    signed, unsigned = _SIGNED[size], _UNSIGNED[size]
    one, other = (
        np.where(bits < 0, np.iinfo(signed).min - bits, bits) for bits in (expected.view(signed), actual.view(signed))
    )
    apart = np.maximum(one, other).view(unsigned) - np.minimum(one, other).view(unsigned)
    nan = np.isnan(expected), np.isnan(actual)
    return ((apart > ulps) & ~(nan[0] & nan[1])) | (nan[0] != nan[1])


@dataclass(frozen=True, slots=True)
class Exact:
    """Equal, but for the sign of zero and the payload of NaN."""

    whole: ClassVar[bool] = False

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        """Index of the first element that differs."""
        del call, args, kwargs
        if _same_bytes(expected, actual):
            return None
        return _first(_unequal(expected, actual))


EXACT: Final[Check] = Exact()


@dataclass(frozen=True, slots=True)
class Ulp:
    """At most ``ulps`` representable numbers apart; dtypes without fractions exactly.

    NaN equals NaN only. An infinity is the number after the largest finite one. Complex numbers may be
    ``of_complex`` times eps of their absolute value apart, as a part that nearly cancels carries the error of the
    whole; where a part is no finite number, each part counts for itself. Those nearer to 0 than ``floor`` may be as far
    apart as if they were there.
    """

    ulps: int
    of_complex: int = 6
    floor: float = 0.0
    whole: ClassVar[bool] = False

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        """Index of the first element that is too far off."""
        if expected.dtype.kind not in "fc":
            return EXACT.wrong(expected, actual, call, args, kwargs)
        if _same_bytes(expected, actual):
            return None
        if not expected.ndim:
            expected, actual = expected.reshape(1), actual.reshape(1)
            return None if self.wrong(expected, actual, call, args, kwargs) is None else ()
        is_complex = expected.dtype.kind == "c"
        parts = _reals(expected), _reals(actual)
        if _few_ulps(*parts, self.ulps):
            return None
        bad = _far(*parts, self.ulps)
        return _first(_far_complex(expected, actual, bad, self.of_complex, self.floor) if is_complex else bad)


def _far_complex(expected: Any, actual: Any, far_parts: Any, times: int, floor: float) -> Any:
    """Where complex numbers are more than so many times eps of their absolute value apart."""
    limits = np.finfo(expected.dtype)
    wide = np.asarray(expected, np.complex128)
    with np.errstate(all="ignore"):
        apart = np.abs(actual - wide)
        near = apart <= times * (np.maximum(np.abs(wide), floor) * float(limits.eps) + float(limits.smallest_subnormal))
    return far_parts.any(axis=-1) & ~near


_FLOATING: Final = "fc"
_INDICES: Final = {"at": 1, "reduceat": 1}
"""Methods of ufuncs whose operand at this place holds indices."""


def _absolute(thing: Any) -> Any:
    """Absolute values of an array of numbers, in double precision where they are no integers; all else as it is."""
    if not isinstance(thing, (np.ndarray, np.generic)) or thing.dtype.kind not in "ifc":
        return thing
    if isinstance(thing, np.integer):
        return thing  # an axis, more often than an operand
    return np.abs(thing) if thing.dtype.kind == "i" else np.abs(thing).astype(np.float64)


def _on_absolutes(call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a call gives for the absolute values of its arrays."""
    indices = _INDICES.get(getattr(call, "__name__", ""), -1)
    taken = [each if place == indices else _absolute(each) for place, each in enumerate(args)]
    named = {name: _absolute(each) for name, each in kwargs.items() if name not in {"out", "dtype"}}
    if isinstance(named.get("initial"), (int, float, complex)):
        named["initial"] = abs(named["initial"])
    made = call(*taken, **named)
    return taken[0] if made is None else made  # a call that only writes


def terms_of(args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: Any) -> float:
    """At least as many terms as make up one element: of a reduction, or of a contraction of several arrays."""
    del kwargs
    arrays = [each for each in args if isinstance(each, np.ndarray) and each.ndim and each.dtype.kind in "iufcb"]
    if not arrays:
        return 1.0
    most = math.prod(float(each.size) for each in arrays) / max(1, np.size(expected))
    if len(arrays) == 1:
        return max(1.0, most)
    return float(max(1.0, math.sqrt(most), *(max(each.shape) for each in arrays)))


_BLOCK: Final = 1 << 15
"""Elements of which all that is computed about them stays in the processor's cache."""


def _suspects(expected: Any, actual: Any, slack: float) -> Any:
    """Places in the flattened arrays of elements that are not equal within ``slack`` times their own size."""
    expected, actual = expected.reshape(-1), actual.reshape(-1)
    if expected.dtype == np.float16:
        expected, actual = expected.astype(np.float32), actual.astype(np.float32)
    slack = expected.real.dtype.type(slack / 2)
    found = []
    for start in range(0, expected.size, _BLOCK):
        one, other = expected[start : start + _BLOCK], actual[start : start + _BLOCK]
        near = np.abs(other - one) < slack * np.abs(one)
        if not near.all():
            far = np.flatnonzero(~near & _unequal(one, other))
            if far.size:
                found.append(far + start)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Accumulated:
    """Within ``factor * n * eps * sum|x|``, where n terms make up one element.

    That sum is what ``sizes``, or else the call itself, gives for the absolute values of its arrays, and n is what
    ``terms`` says. ``sizes_at`` gives the sums of some elements alone, whose places in the flattened result it takes;
    ``least_at`` gives less than they are, and sooner, which is enough for most.
    Where even the sum of absolute values is beyond the dtype, an order of summation may overflow that another does not,
    and anything passes.
    """

    factor: float
    terms: Callable[[tuple[Any, ...], Mapping[str, Any], Any], float] = terms_of
    sizes: Callable[..., Any] | None = None
    sizes_at: Callable[[tuple[Any, ...], Mapping[str, Any], Any, Any], Any] | None = None
    least_at: Callable[[tuple[Any, ...], Mapping[str, Any], Any, Any], Any] | None = None
    whole: ClassVar[bool] = False

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        """Index of the first element that is too far off."""
        if expected.dtype.kind not in _FLOATING:
            return EXACT.wrong(expected, actual, call, args, kwargs)
        if _same_bytes(expected, actual):
            return None
        if expected.size < _BLOCK and _few_ulps(_reals(expected), _reals(actual), 2):
            return None
        scale = self.factor * self.terms(args, kwargs, expected)
        with np.errstate(all="ignore"):
            places = _suspects(expected, actual, scale * float(np.finfo(expected.dtype).eps))
            if places.size and self.least_at is not None:
                least = self.least_at(args, kwargs, expected, places)
                if least is not None:
                    places = places[~_within(expected, actual, places, scale, least, args)]
            if not places.size:
                return None
            sizes = None if self.sizes_at is None else self.sizes_at(args, kwargs, expected, places)
            if sizes is None:
                sizes = np.abs(_on_absolutes(self.sizes or call, args, kwargs))
                sizes = np.broadcast_to(sizes, expected.shape).reshape(-1)[places]
            within = _within(expected, actual, places, scale, sizes, args)
        if within.all():
            return None
        place = int(places[np.argmin(within)])
        return tuple(int(each) for each in np.unravel_index(place, np.shape(expected)))


def _within(expected: Any, actual: Any, places: Any, scale: float, sizes: Any, args: tuple[Any, ...]) -> Any:
    """Which elements are ``scale`` times eps times their sums of absolute values apart, or less."""
    limits = np.finfo(expected.dtype)
    bound = scale * (float(limits.eps) * sizes + float(limits.smallest_subnormal))
    wide = np.promote_types(expected.dtype, np.float64)
    apart = np.abs(np.subtract(actual.reshape(-1)[places], expected.reshape(-1)[places], dtype=wide))
    within = (apart <= bound) & (apart < np.inf)
    return within if within.all() else within | ((sizes > limits.max) & all(_finite(each) for each in args))


def _finite(thing: Any) -> bool:
    """Whether no element of an argument is infinite or NaN."""
    return (
        not isinstance(thing, (np.ndarray, np.generic))
        or thing.dtype.kind not in "fc"
        or bool(np.isfinite(thing).all())
    )


@dataclass(frozen=True, slots=True)
class Scaled:
    """Within ``factor * eps`` times the largest element of the whole result, times what ``size`` says of the call.

    For transforms that mix all elements: each result carries errors of the largest.
    """

    factor: float
    size: Callable[[tuple[Any, ...], Mapping[str, Any]], float] | None = None
    whole: ClassVar[bool] = False

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        """Index of the first element that is too far off."""
        if expected.dtype.kind not in _FLOATING:
            return EXACT.wrong(expected, actual, call, args, kwargs)
        if _same_bytes(expected, actual) or _few_ulps(_reals(expected), _reals(actual), 2):
            return None
        bad = _unequal(expected, actual)
        if not bad.any():
            return None
        limits = np.finfo(expected.dtype)
        wide = np.promote_types(expected.dtype, np.float64)
        magnitudes = np.abs(np.asarray(expected, wide))
        largest = float(np.max(magnitudes, initial=0.0, where=np.isfinite(magnitudes)))
        times = 1.0 if self.size is None else self.size(args, kwargs)
        bound = self.factor * times * (float(limits.eps) * largest + float(limits.smallest_subnormal))
        with np.errstate(all="ignore"):
            apart = np.abs(np.subtract(actual, expected, dtype=wide))
        return _first(bad & ~(apart <= bound))


@dataclass(frozen=True, slots=True)
class Residual:
    """An identity that the twin's results fulfil as NumPy's do, for what is not determined up to signs and rounding.

    ``error`` takes the arguments of the call and all its results (a tuple, also of one), and gives the largest
    violation in units of eps times the size of the data. The twin's may be ``factor`` or, where the data is hard for
    NumPy as well, ten times NumPy's own.
    """

    error: Callable[[tuple[Any, ...], Mapping[str, Any], tuple[Any, ...]], float]
    factor: float = 100.0
    whole: ClassVar[bool] = True

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        """No index, as the identity is of the results as a whole; None where it holds."""
        del call
        ours, theirs = (tuple(each) if isinstance(each, tuple) else (each,) for each in (actual, expected))
        if all(_same_bytes(one, other) for one, other in zip(theirs, ours, strict=True)):
            return None
        with np.errstate(all="ignore"):
            worst = self.error(args, kwargs, ours)
            if worst <= self.factor:
                return None
            numpys = self.error(args, kwargs, theirs)
        if worst <= 10 * numpys or (np.isnan(worst) and np.isnan(numpys)):
            return None
        return ()
