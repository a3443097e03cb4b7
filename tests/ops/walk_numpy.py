"""Count the functions of the installed NumPy by what becomes of them. A part of ``nox -s ops``.

Fails if one that can be overridden is in no row of the table. Whether the rows are right is for the tests beside it.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
from numpy.testing.overrides import get_overridable_numpy_array_functions, get_overridable_numpy_ufuncs

from leapp.ops._np_row import NoTwin, Op, OutOfScope, Through
from leapp.ops.numpy_table import GROUPS, row_of

FATES = {Op: "recorded", Through: "recorded", NoTwin: "refused", OutOfScope: "out of scope"}


def main() -> int:
    overridable = get_overridable_numpy_array_functions() | get_overridable_numpy_ufuncs()
    unclassified = sorted(each.__name__ for each in overridable if row_of(each) is None)
    counts = Counter(FATES[type(row)] for group in GROUPS for row in group.rows)
    parts = [f"{fate} {counts[fate]}" for fate in dict.fromkeys(FATES.values())]
    print(
        f"NumPy {np.__version__}: {counts.total() + len(unclassified)} functions: {', '.join(parts)}, "
        f"{len(unclassified)} unclassified",
        flush=True,
    )
    for name in unclassified:
        print(f"{name}: neither recorded nor in a list of the table")
    return 1 if unclassified else 0


if __name__ == "__main__":
    sys.exit(main())
