"""What is installed, against what the distribution's own metadata asks for. Imports nothing that it looks at."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.version import InvalidVersion

from leapp._other import mend_command, other_version
from leapp._source import DISTRIBUTION, install_command
from leapp._tried import untried
from leapp._version import __version__
from leapp.report.text import Cell, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leapp._spec import JSON
    from leapp.report.text import Printer

BASE: Final = "base"
USES: Final = {
    BASE: "the command line, manifests, reading and verifying bundles",
    "build": "tracing, exporting and replaying",
    "onnx": "running ONNX bundles",
    "picture": "drawing pipelines",
    "dask": "builds on a Dask cluster",
    "examples": "the example pipelines",
}
"""What each extra of the distribution is for; extras without a line here are named alone."""


class State(StrEnum):
    """How an installed package stands to its requirement."""

    FINE = "ok"
    MISSING = "missing"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Part:
    """One package that something here needs."""

    package: str
    installed: str | None
    supported: str
    """The version specifier of the distribution's metadata; empty where any version will do."""
    state: State
    needed_for: tuple[str, ...]
    """``base`` or names of extras."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything ``leapp doctor`` says."""

    version: str
    python: str
    executable: str
    platform: str
    cpus: int
    parts: tuple[Part, ...]
    other: str | None = None
    """Version of the other package named ``leapp``, which puts its files where ours are; None: not installed."""
    untried: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What is newer than all that LEAPP was tried with: its version, and the newest tried one. No fault by itself."""

    @property
    def ok(self) -> bool:
        """Whether the base works and nothing that is installed is out of range. A missing extra is a choice."""
        return self.other is None and all(
            part.state is State.FINE or (part.state is State.MISSING and BASE not in part.needed_for)
            for part in self.parts
        )

    def can(self, use: str) -> bool:
        """Whether all packages of an extra are there in supported versions."""
        return all(part.state is State.FINE for part in self.parts if use in part.needed_for)

    @property
    def uses(self) -> tuple[str, ...]:
        """Base and extras, in the order of the metadata."""
        return tuple(dict.fromkeys(use for part in self.parts for use in part.needed_for))

    @property
    def command(self) -> str | None:
        """The one command that brings what a build needs; None when nothing is missing for it."""
        if self.other is not None:
            return mend_command()
        if self.ok and self.can("build"):
            return None
        return install_command()

    def as_json(self) -> dict[str, JSON]:
        """The diagnosis for machines."""
        return {
            "schema": 1,
            "leapp": self.version,
            "python": self.python,
            "executable": self.executable,
            "platform": self.platform,
            "cpus": self.cpus,
            "ok": self.ok,
            "other_leapp": self.other,
            "can": {use: self.can(use) for use in self.uses},
            "parts": [
                {
                    "package": part.package,
                    "installed": part.installed,
                    "supported": part.supported,
                    "state": part.state.value,
                    "needed_for": list(part.needed_for),
                }
                for part in self.parts
            ],
            "untried": {
                name: {"version": here, "newest_tried": newest} for name, (here, newest) in self.untried.items()
            },
            "install": self.command,
        }


def diagnose(
    requirements: Iterable[str] | None = None,
    version_of: Callable[[str], str | None] | None = None,
) -> Diagnosis:
    """Look at this interpreter.

    Args:
        requirements: as in the distribution's metadata; None: those of the installed ``leapp-build``.
        version_of: gives the installed version of a package or None.
    """
    if requirements is None:
        requirements = _own_requirements()
    ask = version_of or _installed_version
    return Diagnosis(
        version=__version__,
        python=platform.python_version(),
        executable=sys.executable,
        platform=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver()).strip() or 'unknown libc'}",
        cpus=len(os.sched_getaffinity(0)),
        parts=_parts([Requirement(text) for text in requirements], ask),
        other=other_version(),
        untried=untried(ask),
    )


def show(diagnosis: Diagnosis, printer: Printer) -> None:
    """The diagnosis for people."""
    printer.line(Cell("leapp ", "soft"), diagnosis.version, Cell("  python ", "soft"), diagnosis.python)
    printer.line(Cell("on ", "soft"), f"{diagnosis.platform}, {counted(diagnosis.cpus, 'CPU')}")
    printer.line(Cell("in ", "soft"), diagnosis.executable)
    printer.line()
    styles = {State.FINE: "good", State.MISSING: "soft", State.UNSUPPORTED: "bad"}
    printer.table(
        ("Package", "Installed", "Supported", "State", "Needed for"),
        [
            (
                part.package,
                part.installed or "-",
                part.supported or "any",
                Cell(part.state.value, styles[part.state]),
                ", ".join(part.needed_for),
            )
            for part in diagnosis.parts
        ],
    )
    printer.line()
    for use in diagnosis.uses:
        ready = Cell("ready    ", "good") if diagnosis.can(use) else Cell("not ready", "warn")
        printer.line(ready, f"  {use}", Cell(f": {USES[use]}" if use in USES else "", "soft"))
    if diagnosis.untried:
        newer = ", ".join(
            f"{name} {here} (newest tried: {newest})" for name, (here, newest) in diagnosis.untried.items()
        )
        printer.line()
        printer.line(Cell("Not tried yet: ", "warn"), f"{newer}; a warning of tracing may be missing there.")
    if diagnosis.command is not None:
        printer.line()
        if diagnosis.other is not None:
            other = f"Another package, leapp {diagnosis.other}, is installed where leapp-build has its files."
            printer.line(Cell(other, "bad"))
            printer.line("To remove it, and restore ours:")
        else:
            printer.line("To get all that a build needs:")
        printer.line(Cell(f"  {diagnosis.command}", "title"))


def _parts(requirements: Sequence[Requirement], version_of: Callable[[str], str | None]) -> tuple[Part, ...]:
    needed: dict[str, list[tuple[Requirement, str]]] = {}
    for requirement in requirements:
        needed.setdefault(requirement.name, []).append((requirement, _extra(requirement)))
    parts: list[Part] = []
    for name, uses in needed.items():
        installed = version_of(name)
        specifiers = dict.fromkeys(str(requirement.specifier) for requirement, _ in uses if requirement.specifier)
        state = State.MISSING
        if installed is not None:
            fine = all(_fits(requirement, installed) for requirement, _ in uses)
            state = State.FINE if fine else State.UNSUPPORTED
        parts.append(Part(name, installed, ", ".join(specifiers), state, tuple(dict.fromkeys(use for _, use in uses))))
    return tuple(parts)


def _fits(requirement: Requirement, installed: str) -> bool:
    try:
        return requirement.specifier.contains(installed, prereleases=True)
    except InvalidVersion:
        return False


def _extra(requirement: Requirement) -> str:
    """The extra that a requirement belongs to: the one that makes its marker true."""
    if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
        return BASE
    for extra in importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ():
        if requirement.marker.evaluate({"extra": extra}):
            return str(extra)
    return "other platforms"


def _own_requirements() -> list[str]:
    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return []


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
