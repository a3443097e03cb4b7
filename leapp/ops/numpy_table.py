"""THE table NumPy -> torch: every row by its NumPy function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leapp.ops import (
    numpy_algebra,
    numpy_creation,
    numpy_fft,
    numpy_indexing,
    numpy_layout,
    numpy_reductions,
    numpy_scope,
    numpy_selection,
    numpy_signal,
    numpy_statistics,
    numpy_ufuncs,
)
from leapp.ops._np_row import Group, Op

if TYPE_CHECKING:
    from leapp.ops._np_row import NumpyRow

GROUPS: Final[tuple[Group, ...]] = (
    *numpy_ufuncs.GROUPS,
    *numpy_reductions.GROUPS,
    *numpy_layout.GROUPS,
    *numpy_selection.GROUPS,
    *numpy_creation.GROUPS,
    *numpy_algebra.GROUPS,
    *numpy_fft.GROUPS,
    *numpy_statistics.GROUPS,
    *numpy_signal.GROUPS,
    *numpy_scope.GROUPS,
    Group(
        "Methods",
        (
            Op(numpy_indexing.astype, twin=numpy_indexing.astype, elementwise=True),
            Op(numpy_indexing.view, twin=numpy_indexing.view, layout=True),
        ),
    ),
)
_ROWS: Final[dict[Any, NumpyRow]] = {row.numpy: row for group in GROUPS for row in group.rows}


def row_of(function: Any) -> NumpyRow | None:
    """The row of a NumPy function; None for one that is not in the table."""
    found = _ROWS.get(function)
    if found is None and getattr(function, "__module__", None) == "numpy":
        # np.ones(3, like=x) hands over a double of np.ones.
        found = _ROWS.get(getattr(np, function.__name__, None))
    return found
