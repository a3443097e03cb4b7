"""Whether a bundle is the one that is locked: asked by a build before it publishes, and by ``leapp verify``."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from leapp import lock
from leapp.build.result import Checked, Standing
from leapp.bundle import read
from leapp.bundle.diff import diff, diff_digests, explain
from leapp.bundle.digests import SESSION_FILE
from leapp.errors import LeappError, LockNotMetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp.build.plan import PipelinePlan
    from leapp.bundle.digests import BundleDigests
    from leapp.bundle.read import Bundle
    from leapp.lock import Lock


# --- a build --------------------------------------------------------------------------------------------------------


def lock_of(plan: PipelinePlan) -> Lock | None:
    """The lock beside the manifest of a pipeline; None where there is none. Raises LockError."""
    return lock.read_if_there(lock.beside(plan.manifest.path), name=plan.name)


def check_built(plan: PipelinePlan, folder: Path) -> Checked | None:
    """Hold a bundle that is about to be published against the lock of its manifest; None where there is none.

    A version that ``--version`` gave is no difference: the lock speaks of the manifest's own.

    Raises:
        LockError: the lock cannot be read.
        LockNotMetError: the bundle is another one. The caller keeps it at ``plan.refused``.
    """
    found = lock_of(plan)
    if found is None:
        return None
    bundle = read.load(folder)
    built = lock.section_of(bundle)
    file = shown_lock(plan)
    section = found.sections.get(built.platform)
    if section is None:
        return Checked(file, Standing.NO_SECTION, built.platform)
    own = plan.manifest.own_version
    if lock.met(section, built, any_version=bool(own) and own != plan.version):
        standing = Standing.MET if section.version == built.version else Standing.OTHER_VERSION
        return Checked(file, standing, built.platform, section.version)
    former, detail = why(section, bundle, published(plan))
    advice = (
        f"Nothing was published; what was built lies in {plan.refused}.\n"
        f"`leapp diff {file if former is None else former} {plan.refused}` says more.\n"
        f"`leapp lock --update {plan.manifest.shown}` accepts it."
    )
    raise not_met(plan.manifest.shown, file, built.platform, detail, advice)


def not_met(shown: str, file: Path, platform: str, lines: list[str], advice: str) -> LockNotMetError:
    """The error for a bundle that is not the one that is locked.

    Args:
        shown: the manifest or bundle, as the user named it.
        file: the lock.
        platform: section of the lock.
        lines: what differs.
        advice: what to do.
    """
    detail = "\n".join(f"  {line}" for line in lines)
    return LockNotMetError(subject=shown, lock=file, platform=platform, detail=detail, advice=advice, lines=lines)


def shown_lock(plan: PipelinePlan) -> Path:
    """The lock file, as the user would name it."""
    return lock.beside(Path(plan.manifest.shown))


def published(plan: PipelinePlan) -> list[Path]:
    """Where the locked bundle of a pipeline may lie: it has another folder since the manifest got another version."""
    return [plan.target, *_versions(plan.target.parent)]


def _versions(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):  # nothing was published yet
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    return []


def why(section: BundleDigests, bundle: Bundle, places: Sequence[Path]) -> tuple[Path | None, list[str]]:
    """Why a bundle is not the locked one.

    Args:
        section: what is locked.
        bundle: what differs from it.
        places: folders that may hold the locked bundle: it tells more than digests can.

    Returns:
        The folder of the locked bundle, None where it is not to be found or is damaged; and lines that say what
        differs, the last one which step of the version that asks for.
    """
    found, folder = None, None
    former = read.find(section.bundle, places)
    if former is not None:
        with contextlib.suppress(LeappError, OSError):  # it is damaged, or went away
            found, folder = diff(former, bundle), former.folder
    if found is None:
        found = diff_digests(section, lock.section_of(bundle))
    step = found.advice.line
    return folder, [*explain(found), *([step] if step else [])]


def remove_refused(plan: PipelinePlan) -> None:
    """Remove what an earlier build of a pipeline left because it was not what was locked."""
    shutil.rmtree(plan.refused, ignore_errors=True)
    with contextlib.suppress(OSError):  # there are none, or others are kept there
        plan.refused.parent.rmdir()
        plan.refused.parents[1].rmdir()


# --- a bundle that is there -----------------------------------------------------------------------------------------


def check_bundle(bundle: Bundle, place: Path | None = None) -> Checked | None:
    """Hold a bundle against a lock. Another version is no difference where nothing else differs.

    Args:
        bundle: what is held against it.
        place: a lock, or a folder that holds the one of this pipeline; None: the one beside the manifest, which is
            looked for above the working folder and above the bundle by the name that the evidence has for it.

    Returns:
        How it stands; None where no ``place`` was given and there is no lock.

    Raises:
        LockError: the lock cannot be read, or the ``place`` has none of this pipeline.
        LockNotMetError: the bundle is another one, or the lock that was given does not speak of its platform.
    """
    built = lock.section_of(bundle)
    file = lock.find(place, bundle.name) if place is not None else _beside_manifest(bundle)
    if file is None:
        return None
    section = lock.read(file, name=bundle.name).sections.get(built.platform)
    if section is None:
        if place is None:
            return Checked(file, Standing.NO_SECTION, built.platform)
        lines = [f"the lock has no section for {built.platform}"]
        raise not_met(str(bundle.folder), file, built.platform, lines, "`leapp lock` on that platform adds it.")
    if lock.met(section, built, any_version=True):
        standing = Standing.MET if section.version == built.version else Standing.OTHER_VERSION
        return Checked(file, standing, built.platform, section.version)
    former, lines = why(section, bundle, _versions(bundle.folder.parent))
    advice = f"`leapp diff {file if former is None else former} {bundle.folder}` says more."
    raise not_met(str(bundle.folder), file, built.platform, lines, advice)


def _beside_manifest(bundle: Bundle) -> Path | None:
    """The lock of the manifest that a bundle was built from; None where either is not to be found."""
    evidence = bundle.evidence(SESSION_FILE)
    name = None if evidence is None else json.loads(evidence.read_bytes()).get("manifest")
    if not isinstance(name, str):
        return None
    for place in (Path.cwd(), bundle.folder.absolute()):
        for folder in (place, *place.parents):
            file = lock.beside(folder / name)
            if file.is_file() and (folder / name).is_file():
                return _short(file)
    return None


def _short(path: Path) -> Path:
    """As seen from the working folder, where it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
