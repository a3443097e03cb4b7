"""Refusing what no machine should follow: outputs that are not finite, ports outside the range that they declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from leapp.errors import BundleFormatError, GuardError, GuardInputError, GuardRangeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from leapp._spec import Port
    from leapp.runtime.plan import Plan

    Bounds: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any]]

_FLOATS: Final = ("float", "bfloat", "complex")


class Guard:
    """Looks at a tick: outer inputs and all outputs must be in range, outer outputs and what is fed back finite."""

    def __init__(self, plan: Plan, file: str) -> None:
        """Read the ranges. Raises BundleFormatError for one that is none."""
        self._inputs = [
            (key, port)
            for key, port in plan.inputs.items()
            if key in plan.outer_inputs and port.spec.dtype.startswith(_FLOATS)
        ]
        self._ranges = [
            (key, port, bounds)
            for key, port in plan.inputs.items()
            if key in plan.outer_inputs and (bounds := _bounds_in_dtype(key, port, file)) is not None
        ]
        finite = {*plan.outer_outputs, *plan.feedback.values()}
        self._rows: list[tuple[str, Port, bool, Bounds | None]] = []
        for key, port in plan.outputs.items():
            bounds = _bounds_in_dtype(key, port, file)
            floats = port.spec.dtype.startswith(_FLOATS)
            if bounds is not None or (key in finite and floats):
                self._rows.append((key, port, key in finite and floats, bounds))

    def __call__(self, read: Callable[[str], npt.NDArray[Any]], read_input: Callable[[str], npt.NDArray[Any]]) -> None:
        """Look at each port. Raises GuardError, which names port and element, and first an input that is to blame."""
        for key, port, (low, high) in self._ranges:
            array = read_input(key)
            outside = (array < low) | (array > high)  # what is not finite is told with the output that it reaches
            if outside.any():
                raise _refused(key, port, array, outside, f"its range is {port.semantics['range']}", GuardRangeError)
        try:
            self._check_outputs(read)
        except GuardError as error:
            for key, port in self._inputs:
                array = read_input(key)
                if not np.isfinite(array).all():
                    raise _from_input(key, port, array, error) from None
            raise

    def _check_outputs(self, read: Callable[[str], npt.NDArray[Any]]) -> None:
        for key, port, finite, bounds in self._rows:
            array = read(key)
            if finite and not np.isfinite(array).all():
                raise _refused(key, port, array, ~np.isfinite(array), "it is not finite")
            if bounds is not None:
                low, high = bounds
                outside = ~((array >= low) & (array <= high))
                if outside.any():
                    raise _refused(key, port, array, outside, f"its range is {port.semantics['range']}")


def _from_input(key: str, port: Port, array: npt.NDArray[Any], error: GuardError) -> GuardInputError:
    index = tuple(int(each) for each in np.argwhere(~np.isfinite(array))[0])
    return GuardInputError(input=key, given=array[index], place=element_text(port, index), **error.facts)


def bounds_of(key: str, port: Port, file: str) -> Bounds | None:
    """``range: [low, high]`` of a port; each a number, or nested lists of numbers that fit its shape.

    Raises: BundleFormatError.
    """
    given: Any = port.semantics.get("range")
    if given is None:
        return None
    try:
        low, high = (np.broadcast_to(np.asarray(each, np.float64), port.spec.shape) for each in given)
    except (TypeError, ValueError):
        low = high = np.array(np.nan)
    if port.spec.dtype.startswith("complex") or not (low <= high).all():
        why = f"the range {given!r} of {key!r} is no pair of a lower and an upper bound"
        raise BundleFormatError(path=file, why=why)
    return low, high


def _bounds_in_dtype(key: str, port: Port, file: str) -> Bounds | None:
    """The same, and what they become in the port's dtype: 0.1 clipped to in float32 is a little above 0.1."""
    bounds = bounds_of(key, port, file)
    if bounds is None or not port.spec.dtype.startswith(("float", "bfloat")):
        return bounds
    low, high = bounds
    if port.spec.dtype == "bfloat16":  # NumPy lacks it; it has 8 bits of precision
        return low - abs(low) * 2.0**-8, high + abs(high) * 2.0**-8
    with np.errstate(over="ignore"):
        return np.minimum(low, low.astype(port.spec.dtype)), np.maximum(high, high.astype(port.spec.dtype))


def _refused(
    key: str,
    port: Port,
    array: npt.NDArray[Any],
    bad: npt.NDArray[np.bool_],
    why: str,
    kind: type[GuardError] = GuardError,
) -> GuardError:
    index = tuple(int(each) for each in np.argwhere(bad)[0])
    return kind(port=key, value=array[index], element=element_text(port, index), why=why)


def element_text(port: Port, index: tuple[int, ...]) -> str:
    """An element for people: its index, and its names where the port has some."""
    names: Any = port.semantics.get("element_names")
    found = []
    if isinstance(names, list):
        for axis, at in zip(names, index, strict=False):
            if isinstance(axis, list) and at < len(axis):
                found.append(str(axis[at]))
    return f"{list(index)} ({', '.join(found)})" if found else str(list(index))
