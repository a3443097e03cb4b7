"""THE table NumPy -> torch: every row by its NumPy function."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leapp.ops import numpy_indexing
from leapp.ops._np_row import Group, Op

if TYPE_CHECKING:
    from leapp.ops._np_row import NumpyRow

_MODULES: Final = (
    "numpy_ufuncs", "numpy_reductions", "numpy_layout", "numpy_selection", "numpy_creation", "numpy_algebra",
    "numpy_fft", "numpy_statistics", "numpy_signal", "numpy_scope",
)  # fmt: skip


def _groups() -> tuple[Group, ...]:
    found: list[Group] = []
    for name in _MODULES:
        try:
            module: Any = importlib.import_module(f"leapp.ops.{name}")
        except ModuleNotFoundError:
            continue
        found += module.GROUPS
    return tuple(found)


GROUPS: Final = (
    *_groups(),
    Group(
        "Methods",
        (
            Op(numpy_indexing.astype, twin=numpy_indexing.astype),
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
