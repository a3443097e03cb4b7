"""Bundles that several machines built, gathered in one output folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leapp.build._messages import exit_code_of, head_json
from leapp.build.locked import check_built, check_bundle, remove_refused
from leapp.bundle import read, write
from leapp.bundle.schema import UNFIT
from leapp.errors import (
    BundlesDifferError,
    LeappError,
    LockError,
    LockNotMetError,
    MergedBundleError,
    NothingToMergeError,
    ShardMissingError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.build.plan import BuildPlan, PipelinePlan
    from leapp.build.result import Checked


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of one pipeline of several output folders."""

    name: str
    version: str
    bundle: Path | None
    """Where it lies now; None: it was not gathered."""
    sources: tuple[Path, ...] = ()
    """Bundles that hold it, in the order of the folders; the first one was taken."""
    digest: str = ""
    already: bool = False
    """The very bundle lay there before."""
    lock: Checked | None = None
    """How it stands to the lock beside its manifest; None where there is none."""
    error: LeappError | None = None

    @property
    def exit_code(self) -> int:
        """What the command exits with on account of this pipeline."""
        return exit_code_of(self.error)

    def as_json(self) -> dict[str, JSON]:
        """One record for machines."""
        return {
            **head_json(self.error),
            "name": self.name,
            "version": self.version,
            "bundle": None if self.bundle is None else str(self.bundle),
            "digest": self.digest or None,
            "sources": [str(each) for each in self.sources],
            "already": self.already,
            "lock": None if self.lock is None else self.lock.as_json(),
        }


def merge(folders: Sequence[Path], out: Path, plan: BuildPlan | None = None) -> tuple[Merged, ...]:
    """Gather the bundles of several output folders in one; all are verified before the first one is published.

    Bundles that other builds left in ``out`` are replaced, as a build would. The same bundle in two folders is fine. A
    bundle that is not the one that is locked is not published: as a build does, it is kept apart in ``out`` where the
    plan has its pipeline, and left where it is otherwise.

    Args:
        folders: as ``leapp build --out`` filled them.
        out: takes ``<name>/<version>/``; may be one of the folders.
        plan: pipelines that have to be there, and whose locks have to be met, in ``out``; None: the lock of each bundle
            is looked for as ``leapp verify`` does.

    Returns:
        One result per pipeline, sorted; for a pipeline that nobody built, or whose lock is not met, one with an error.

    Raises:
        NothingToMergeError: a folder is not there, or no folder has a bundle.
        MergedBundleError: a bundle is damaged or marked as failed.
        BundlesDifferError: two folders hold one name and version with different content.
    """
    found: dict[tuple[str, str], list[tuple[Path, str]]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise NothingToMergeError(folder=folder, why="it is no folder")
        for path in _bundles(folder):
            report = read.verify(path)
            if not report.ok or report.status != "ok":
                why = "; ".join(str(problem) for problem in report.problems) or UNFIT[report.status]
                raise MergedBundleError(bundle=path, why=why)
            found.setdefault((report.name, report.version), []).append((path, report.digest))
    plans = {(each.name, each.version): each for each in plan.pipelines} if plan is not None else {}
    if not found and not plans:
        raise NothingToMergeError(folder=", ".join(map(str, folders)), why="there is no bundle in it")
    for (name, version), bundles in found.items():
        first, digest = bundles[0]
        for other, other_digest in bundles[1:]:
            if other_digest != digest:
                raise BundlesDifferError(
                    name=name,
                    version=version,
                    first=first,
                    first_digest=digest,
                    second=other,
                    second_digest=other_digest,
                )
    merged = [_gathered(key, bundles, out, plans.get(key)) for key, bundles in found.items()]
    shown = ", ".join(map(str, folders))
    merged += [
        Merged(name, version, None, error=ShardMissingError(name=name, version=version, folders=shown))
        for name, version in plans
        if (name, version) not in found
    ]
    return tuple(sorted(merged, key=lambda each: (each.name, each.version)))


def _bundles(folder: Path) -> Iterator[Path]:
    """``<name>/<version>/`` with a bundle in it; names that begin with a dot are logs and leftovers of ours."""
    for name in sorted(folder.iterdir()):
        if name.is_dir() and not name.name.startswith("."):
            versions = (each for each in sorted(name.iterdir()) if not each.name.startswith("."))
            yield from (each for each in versions if read.is_bundle(each))


def _gathered(
    key: tuple[str, str], bundles: Sequence[tuple[Path, str]], out: Path, plan: PipelinePlan | None
) -> Merged:
    (source, digest), target = bundles[0], out.joinpath(*key)
    done = Merged(*key, target, tuple(path for path, _ in bundles), digest)
    try:
        lock = _lock_of(source, plan)
        if plan is not None:
            remove_refused(plan)
    except LockNotMetError as error:
        if plan is not None:  # the error says that it lies there
            _copy(source, digest, plan.refused)
        return replace(done, bundle=None, error=error)
    except LockError as error:
        return replace(done, bundle=None, error=error)
    done = replace(done, lock=lock)
    there = any(path.resolve() == target.resolve() for path, _ in bundles)
    if there or (read.is_bundle(target) and _sound(target, digest)):
        return replace(done, already=True)
    _copy(source, digest, target)
    return done


def _lock_of(source: Path, plan: PipelinePlan | None) -> Checked | None:
    """How a bundle stands to its lock, which the plan finds, or its evidence. Raises LockError, LockNotMetError."""
    return check_built(plan, source) if plan is not None else check_bundle(read.load(source))


def _copy(source: Path, digest: str, target: Path) -> None:
    """Publish a bundle elsewhere. What was copied is what counts, not what was there a moment ago."""
    write.ensure_replaceable(target)
    with write.scratch_beside(target) as scratch:
        copy = scratch / "bundle"
        shutil.copytree(source, copy, symlinks=True)
        report = read.verify(copy)
        if not report.ok or report.digest != digest:
            raise MergedBundleError(bundle=source, why="it changed while it was copied")
        write.publish(copy, target)


def _sound(target: Path, digest: str) -> bool:
    try:
        report = read.verify(target)
    except LeappError:
        return False
    return report.ok and report.digest == digest
