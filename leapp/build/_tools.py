"""What a session was built with, as far as it can change bytes: distributions that it loaded, interpreter, machine.

The cache takes every installed distribution into its key, because nobody knows beforehand which of them an entry will
load. Once the session has run it is known, and these are what explains a bundle that is another one.
"""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leapp._canonical import sha256_file
from leapp._spec import LEAPP_SOURCE, PYTHON
from leapp.build import _facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leapp._spec import JSON

_SEPARATORS: Final = re.compile(r"[-_.]+")


@dataclass(frozen=True, slots=True)
class Tools:
    """What one session was built with, in words."""

    packages: Mapping[str, str] = field(default_factory=dict)
    """Version by name, as package indexes write it; what did not come from an index has more than its version.

    LEAPP itself is not among them, nor are packages of the project: their files are seen when they are read.
    """
    builder: Mapping[str, str] = field(default_factory=dict)
    """The interpreter and the machine: C library, processor, GPUs where there are some."""

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {"packages": dict(self.packages), "builder": dict(self.builder)}


def tools_here(root: Path) -> Tools:
    """Those of this process, as it is now. Args: root: the project."""
    return Tools(loaded_packages(loaded_files(), sys.path, root), builder())


def builder() -> dict[str, str]:
    """The interpreter of this process, and what it runs on. Nothing that tells one machine from its like."""
    facts = _facts.machine_facts()
    facts |= {
        LEAPP_SOURCE: _facts.leapp_digest(sha256_file),
        PYTHON: f"{platform.python_implementation()} {platform.python_version()}",
        "GPUs": _facts.gpu_models(),
    }
    return {name: value for name, value in sorted(facts.items()) if value != _facts.NONE}


def loaded_files() -> set[str]:
    """Paths of all modules and libraries that this process has loaded."""
    found = {str(path) for each in list(sys.modules.values()) if (path := getattr(each, "__file__", None))}
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:  # not every system tells; then libraries without a module of their own are not seen
        return found
    return found | {line[at:] for line in lines if (at := line.find("/")) >= 0}


def loaded_packages(files: Iterable[str], folders: Sequence[str], root: Path) -> dict[str, str]:
    """Versions of the distributions that files belong to, by name, sorted.

    Args:
        files: paths of what was loaded.
        folders: where distributions lie, as ``sys.path`` has them; the first one that has a name counts.
        root: the project.
    """
    paths = [*files]

    def is_loaded(folder: str, info: str, name: str) -> bool:
        place = _facts.editable_place(info)
        if place is not None:
            return any(path.startswith(f"{place}/") for path in paths)
        # Most are called as what they hold. Only of the others the list of files is read: torch has 10,000.
        return name in tops[folder] or not inside[folder].isdisjoint(_facts.recorded_files(info))

    inside: dict[str, set[str]] = {}
    tops: dict[str, set[str]] = {}
    for folder in folders:
        prefix = f"{folder.rstrip('/')}/"
        inside[folder] = {path[len(prefix) :] for path in paths if path.startswith(prefix)}
        tops[folder] = {canonical_name(path.partition("/")[0].removesuffix(".py")) for path in inside[folder]}
    return _versions(folders, root, is_loaded)


def installed_packages(folders: Sequence[str], root: Path) -> dict[str, str]:
    """Versions of all distributions, as ``loaded_packages`` gives those of some."""
    return _versions(folders, root, lambda _folder, _info, _name: True)


def _versions(folders: Sequence[str], root: Path, wanted: Callable[[str, str, str], bool]) -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in dict.fromkeys(each for each in folders if each and Path(each).is_dir()):
        for info, stem, version in _facts.distributions(folder):
            name, place = canonical_name(stem), _facts.editable_place(info)
            if name in found or stem == _facts.OWN or (place is not None and root.is_relative_to(place)):
                continue
            if wanted(folder, info, name):
                source = _facts.package_source(info, stem, sha256_file, root) if place is None else ", editable"
                found[name] = f"{version}{source}"
    return dict(sorted(found.items()))


def canonical_name(name: str) -> str:
    """A distribution's name as package indexes write it."""
    return _SEPARATORS.sub("-", name).lower()
