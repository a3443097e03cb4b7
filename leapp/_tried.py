"""What LEAPP was tried with: the one place that says so. ``leapp doctor`` and docs/versions.md read it.

A version belongs here once builds in all three formats and tests of tracing passed with it.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Callable

TRIED: Final = {
    "python": ("3.11", "3.12", "3.13"),
    "torch": ("2.8", "2.13", "2.14"),
    "numpy": ("2.1", "2.4"),
}
"""By what a recording depends on: minor versions, the lowest first. Those between two of them are taken to work."""

FLOOR_UNTRIED: Final = frozenset(("distributed", "gymnasium"))
"""Packages whose lowest version in pyproject.toml was not tried, only the one in constraints.txt."""


def untried(version_of: Callable[[str], str | None]) -> dict[str, tuple[str, str]]:
    """What is newer than all that was tried: name -> its version, the newest that was tried.

    Tracing reads what Python runs, and takes part in what torch and NumPy do in Python: a newer one may leave out a
    warning that an older one gives. What is older than the oldest is refused by the package's requirements.

    Args: version_of: gives the installed version of a package or None.
    """
    found = {}
    for name, versions in TRIED.items():
        installed = platform.python_version() if name == "python" else version_of(name)
        if installed is None:
            continue
        try:
            release = Version(installed).release[:2]
        except InvalidVersion:
            continue
        if release > Version(versions[-1]).release[:2]:
            found[name] = installed, versions[-1]
    return found
