"""How near torch's answer must be to NumPy's, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Check(Protocol):
    """Compares one result of a call with its twin's; shapes and dtypes are known to be equal."""

    def wrong(
        self,
        expected: np.ndarray[Any, Any],
        actual: np.ndarray[Any, Any],
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> tuple[int, ...] | None:
        """Index of the first element that is out of bounds; None where all is well.

        ``call``, ``args`` and ``kwargs`` are NumPy's own, as plain arrays: a bound may follow from them.
        """


class _Exact:
    """Bit for bit, but for the sign of zero and the payload of NaN."""

    def wrong(self, expected: Any, actual: Any, call: Any, args: Any, kwargs: Any) -> tuple[int, ...] | None:
        del call, args, kwargs
        bad = (expected != actual) & ((expected == expected) | (actual == actual))  # noqa: PLR0124 - NaN
        return _first(bad)


def _first(bad: Any) -> tuple[int, ...] | None:
    """Index of the first True; None where there is none."""
    if not np.any(bad):
        return None
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(bad)), np.shape(bad)))


EXACT: Final[Check] = _Exact()
