"""Refusing outputs that no machine should follow: not finite, or outside the range that their port declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from leapp.errors import BundleFormatError, GuardError, GuardInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from leapp._spec import Port
    from leapp.runtime.plan import Plan

    Bounds: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any]]

_FLOATS: Final = ("float", "bfloat", "complex")


class Guard:
    """Looks at what a tick computed: outer outputs and what is fed back must be finite, and every output in range."""

    def __init__(self, plan: Plan, file: str) -> None:
        """Read the ranges. Raises BundleFormatError for one that is none."""
        self._inputs = [
            (key, port)
            for key, port in plan.inputs.items()
            if key in plan.outer_inputs and port.spec.dtype.startswith(_FLOATS)
        ]
        finite = {*plan.outer_outputs, *plan.feedback.values()}
        self._rows: list[tuple[str, Port, bool, Bounds | None]] = []
        for key, port in plan.outputs.items():
            bounds = bounds_of(key, port, file)
            floats = port.spec.dtype.startswith(_FLOATS)
            if bounds is not None or (key in finite and floats):
                self._rows.append((key, port, key in finite and floats, bounds))

    def __call__(self, read: Callable[[str], npt.NDArray[Any]], read_input: Callable[[str], npt.NDArray[Any]]) -> None:
        """Look at each output. Raises GuardError, which names port and element, and first an input that is to blame."""
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


def _refused(key: str, port: Port, array: npt.NDArray[Any], bad: npt.NDArray[np.bool_], why: str) -> GuardError:
    index = tuple(int(each) for each in np.argwhere(bad)[0])
    return GuardError(port=key, value=array[index], element=element_text(port, index), why=why)


def element_text(port: Port, index: tuple[int, ...]) -> str:
    """An element for people: its index, and its names where the port has some."""
    names: Any = port.semantics.get("element_names")
    found = []
    if isinstance(names, list):
        for axis, at in zip(names, index, strict=False):
            if isinstance(axis, list) and at < len(axis):
                found.append(str(axis[at]))
    return f"{list(index)} ({', '.join(found)})" if found else str(list(index))
