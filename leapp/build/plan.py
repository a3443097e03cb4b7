"""Manifests -> what a build will do, decided before anything runs. Pure: reads no file and starts nothing."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from leapp.build._messages import SessionRequest
from leapp.build.isolate import environment_digests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from leapp.manifest.model import Manifest

LOG_FOLDER: Final = ".logs"
"""Below the output folder: what failed sessions printed, until the pipeline is built again."""
REFUSED_FOLDER: Final = ".refused"
"""Below the output folder: bundles that are not what is locked, until their pipelines are built again."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """One pipeline that will be built."""

    manifest: Manifest
    target: Path
    """``<out>/<name>/<version>``."""
    python: str
    """Interpreter of the session: absolute, or a name that PATH resolves."""
    variables: Mapping[str, str | None] = field(default_factory=dict)
    """Digest of each variable that ``pass_env`` hands through; None: not set outside."""
    only: str | None = None
    """The one node that gets artifacts. Nothing is published then."""
    strict: bool = False
    """Everything that leaves the trace is an error at its line."""
    vary: tuple[str, ...] | None = None
    """What the reproduction varies, which may be nothing; None: there is no reproduction."""
    probe: bool = True
    """Whether the entry runs again on other data before its bundle is believed."""
    locked: bool = True
    """Whether the bundle must be the one that is locked beside the manifest, where there is a lock."""
    environment: Mapping[str, str] | None = None
    """What sessions draw their variables from; None: the environment of the process that starts them."""

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.manifest.pipeline.name

    @property
    def version(self) -> str:
        """Version that is published."""
        return self.manifest.pipeline.version

    @property
    def own_interpreter(self) -> bool:
        """Whether the session runs in the interpreter that runs the build."""
        return self.python == sys.executable

    @property
    def outer_environment(self) -> Mapping[str, str]:
        """All variables that its sessions may be given."""
        return os.environ if self.environment is None else self.environment

    @property
    def refused(self) -> Path:
        """Where the bundle is kept when it is not the one that is locked: ``<out>/.refused/<name>/<version>``."""
        return self.target.parents[1] / REFUSED_FOLDER / self.name / self.version

    def request(self, save_path: Path) -> SessionRequest:
        """What the session process is told, when its bundle is to be written below ``save_path``."""
        return SessionRequest(self.manifest, save_path, only=self.only, strict=self.strict)


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """All pipelines of one build, in the order in which they were named, and where they go."""

    pipelines: tuple[PipelinePlan, ...]
    out: Path


def make_plan(
    manifests: Sequence[Manifest],
    *,
    out: Path,
    environment: Mapping[str, str],
    only: str | None = None,
    strict: bool = False,
    vary: tuple[str, ...] | None = None,
    probe: bool = True,
    locked: bool = True,
) -> BuildPlan:
    """Decide what is built where.

    Args:
        manifests: as ``leapp.manifest.load`` gives them: no two with one name and version.
        out: folder that takes ``<name>/<version>/``.
        environment: variables that ``pass_env`` draws from.
        only: the one node that gets artifacts; its pipelines are not published.
        strict: everything that leaves the trace is an error.
        vary: what the reproduction of each pipeline varies; None: there is none.
        probe: whether each entry runs again on other data.
        locked: whether bundles must be those that are locked beside the manifests.
    """
    pipelines = tuple(
        PipelinePlan(
            manifest=manifest,
            target=out / manifest.pipeline.name / manifest.pipeline.version,
            python=_interpreter(manifest),
            variables=environment_digests(environment, manifest.session.pass_env),
            only=only,
            strict=strict,
            vary=vary,
            probe=probe,
            locked=locked,
        )
        for manifest in manifests
    )
    return BuildPlan(pipelines, out)


def _interpreter(manifest: Manifest) -> str:
    python = manifest.session.python
    if not python:
        return sys.executable
    # A bare name is looked up in PATH; anything with a folder is relative to the project.
    return str(manifest.root / python) if "/" in python else python
