"""Comparing what was expected with what came: one element-wise rule, and how it reports.

Works on NumPy arrays, so that an ONNX bundle can be checked without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one array is from another.

    ``largest`` is the largest absolute difference in the port's own unit, infinity where shape, dtype or NaN positions
    differ; ``where`` its index, None for equal arrays.
    """

    ok: bool
    largest: float
    where: tuple[int, ...] | None
    expected: str = ""
    actual: str = ""
    note: str = ""


def compare(actual: npt.NDArray[Any], expected: npt.NDArray[Any], *, rtol: float, atol: float) -> Difference:
    """Compare two arrays element by element: ``|actual - expected| <= atol + rtol |expected|``.

    NaN equals NaN and an infinity only itself; integers and booleans must be equal whatever the tolerances.
    """
    if actual.dtype != expected.dtype:
        return Difference(False, float("inf"), None, str(expected.dtype), str(actual.dtype), "dtype differs")
    if actual.shape != expected.shape:
        return Difference(False, float("inf"), None, str(expected.shape), str(actual.shape), "shape differs")
    if not actual.size:
        return Difference(True, 0.0, None)
    exact = expected.dtype.kind not in "fcV"
    if exact:
        apart = _distance_exact(actual, expected)
        allowed = np.zeros(apart.shape)
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        a, e = actual.astype(wide), expected.astype(wide)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(a - e)
            allowed = atol + rtol * np.abs(e)
        both_nan = np.isnan(a) & np.isnan(e)
        apart = np.where((a == e) | both_nan, 0.0, apart)
        apart = np.where(np.isnan(apart), np.inf, apart)
        allowed = np.where(np.isfinite(allowed), allowed, 0.0)
    ok = bool(np.all(apart <= allowed))
    # Report the worst offender, and where nothing offends the largest difference.
    ranking = apart - allowed if not ok else apart
    index = np.unravel_index(int(np.argmax(ranking)), apart.shape)
    largest = float(np.max(apart))
    if largest == 0.0:
        return Difference(True, 0.0, None)
    place = tuple(int(i) for i in index)
    return Difference(ok, largest, place, str(expected[index]), str(actual[index]))


def _distance_exact(actual: npt.NDArray[Any], expected: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if expected.dtype == np.bool_:
        flags: npt.NDArray[np.float64] = (actual != expected).astype(np.float64)
        return flags
    # Python integers would be exact; float64 is enough to rank, and != decides what counts.
    distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    result: npt.NDArray[np.float64] = np.where(actual != expected, np.maximum(distance, 1.0), 0.0)
    return result
