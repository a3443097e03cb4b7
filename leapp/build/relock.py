"""``leapp lock``: bundles, published or built for it -> the locks beside their manifests."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from leapp import lock
from leapp._canonical import sha256_file
from leapp._spec import LEAPP_SOURCE, PYTHON
from leapp.build._messages import exit_code_of, head_json
from leapp.build._tools import builder, installed_packages
from leapp.build.locked import lock_of, not_met, published, remove_refused, shown_lock, why
from leapp.build.plan import BuildPlan
from leapp.build.run import build
from leapp.bundle import read, write
from leapp.bundle.contract import toolchain
from leapp.bundle.digests import OS, SESSION_FILE, SYSTEM, built_with, inputs_read
from leapp.bundle.schema import UNFIT
from leapp.errors import LeappError, LockNotMetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.build.cache import Cache
    from leapp.build.plan import PipelinePlan
    from leapp.build.result import PipelineResult, Stage
    from leapp.bundle.digests import BundleDigests
    from leapp.bundle.read import Bundle
    from leapp.lock import Lock

_MOST_NAMED: Final = 3


class State(StrEnum):
    """What became of the section of one lock."""

    NEW = "locked"
    UNCHANGED = "unchanged"
    REFRESHED = "refreshed"
    """The bundle is the same one, and what explains it is not: files that were read, for the most part."""
    UPDATED = "updated"
    """Another bundle took the place of the one that was locked."""
    REFUSED = "refused"
    """Another bundle, and nobody said that it is accepted."""
    FAILED = "failed"
    """There is no bundle to take digests of."""


@dataclass(frozen=True, slots=True)
class Locked:
    """What became of the lock of one manifest."""

    plan: PipelinePlan
    file: Path
    """The lock, as the user would name it."""
    state: State
    platform: str = ""
    digest: str = ""
    """Of the bundle."""
    differences: tuple[str, ...] = ()
    """How the bundle differs from the one that was locked before."""
    built: str = ""
    """Why it was built; empty where a bundle was taken that is published or in the cache."""
    result: PipelineResult | None = None
    """What became of the build, where there was one."""
    error: LeappError | None = None

    @property
    def exit_code(self) -> int:
        """What the command exits with on account of this manifest."""
        return exit_code_of(self.error)

    def as_json(self) -> dict[str, JSON]:
        """One record for machines."""
        return {
            **head_json(self.error, "" if self.result is None else self.result.details, plan=self.plan),
            "lock": str(self.file),
            "platform": self.platform or None,
            "state": self.state.value,
            "digest": self.digest or None,
            "differences": list(self.differences),
            "built": self.built or None,
        }


def lock_manifests(
    plan: BuildPlan,
    *,
    update: bool = False,
    jobs: int = 1,
    cache: Cache | None = None,
    on_stage: Callable[[PipelinePlan, Stage], None] = lambda _plan, _stage: None,
    on_result: Callable[[PipelineResult], None] = lambda _result: None,
) -> tuple[Locked, ...]:
    """Write the lock of each manifest of a plan: the section of one platform, all others stay as they are.

    A bundle that is published in the plan's folder is taken where nothing that it was built from has changed since;
    else the pipeline is built, or taken out of the cache, and published as ``leapp build`` does.

    Args:
        plan: what is locked, and the folder of the bundles.
        update: a bundle that differs from the locked one takes its place.
        jobs: how many are built at once.
        cache: what was built before; None: what no published bundle answers is built.
        on_stage: told when a pipeline that is built enters a stage; called from worker threads.
        on_result: told when one is built; called from worker threads.

    Returns:
        One result per manifest, in the plan's order. A failure is a result, and leaves its lock as it was.

    Raises:
        OutputFileError: a lock cannot be written.
        KeyboardInterrupt: as ``build``.
    """
    refused: dict[str, LeappError] = {}
    reasons: dict[str, str] = {}
    for each in plan.pipelines:
        try:
            lock_of(each)
        except LeappError as error:
            refused[each.manifest.shown] = error
        else:
            reasons[each.manifest.shown] = to_build(each)
    wanted = [each for each in plan.pipelines if reasons.get(each.manifest.shown)]
    asked = BuildPlan(tuple(wanted), plan.out)
    built = build(asked, jobs=jobs, on_stage=on_stage, on_result=on_result, cache=cache) if wanted else ()
    results = {each.plan.manifest.shown: each for each in built}

    def one(each: PipelinePlan) -> Locked:
        shown = each.manifest.shown
        result = results.get(shown)
        from_cache = result is not None and result.cache is not None and result.cache.state != "built"
        reason = "" if from_cache else reasons.get(shown, "")
        made = Locked(each, shown_lock(each), State.FAILED, built=reason, result=result)
        error = refused.get(shown) or (result.error if result is not None else None)
        try:
            if isinstance(error, LockNotMetError):
                return _accept(made, error) if update else _refuse(made, error)
            if error is not None:
                return replace(made, error=error)
            return _write(made, read.load(each.target), update=update)
        except LeappError as failure:
            return replace(made, error=failure)

    return tuple(map(one, plan.pipelines))


def _refuse(made: Locked, error: LockNotMetError) -> Locked:
    return replace(made, state=State.REFUSED, differences=tuple(error.facts["lines"]), error=error)


def _accept(made: Locked, error: LockNotMetError) -> Locked:
    """Lock and publish a bundle that the build had to refuse."""
    kept = made.plan.refused
    accepted = replace(_write(made, read.load(kept), update=True), differences=tuple(error.facts["lines"]))
    write.publish(kept, made.plan.target)
    remove_refused(made.plan)
    return accepted


def _write(made: Locked, bundle: Bundle, *, update: bool) -> Locked:
    """Put the section of a bundle into its lock, where that is allowed or changes nothing that counts."""
    plan = made.plan
    file = lock.beside(plan.manifest.path)
    section = lock.section_of(bundle)
    known: Lock = lock_of(plan) or lock.Lock(plan.name, {})
    before = known.sections.get(section.platform)
    lines: tuple[str, ...] = ()
    made = replace(made, platform=section.platform, digest=bundle.digest)
    if before is None:
        state = State.NEW
    elif lock.met(before, section):
        section = _keep_evidence(section, before)
        state = State.UNCHANGED if _tells_as_much(before, section) else State.REFRESHED
    else:
        state, lines = State.UPDATED, tuple(why(before, bundle, published(plan))[1])
        if not update:
            advice = f"`leapp lock --update {plan.manifest.shown}` accepts it."
            return _refuse(made, not_met(plan.manifest.shown, made.file, section.platform, [*lines], advice))
    if state is not State.UNCHANGED:
        lock.write(file, known.with_section(section))
    return replace(made, state=state, differences=lines)


def _keep_evidence(section: BundleDigests, before: BundleDigests) -> BundleDigests:
    """A bundle whose evidence was left behind does not say what it was made of; the lock still does."""
    return replace(
        section,
        inputs=before.inputs if section.inputs is None else section.inputs,
        packages=before.packages if section.packages is None else section.packages,
        builder=before.builder if section.builder is None else section.builder,
    )


def _tells_as_much(before: BundleDigests, now: BundleDigests) -> bool:
    """Whether a lock would explain a later difference as well as one that is written now.

    The same bundle out of another machine is no reason to write: two people would do so in turns. Nor is a package that
    only one of the sessions had loaded: forked ones load a little more than fresh ones do.
    """
    if before.packages is None or now.packages is None or before.builder is None:
        return before == now
    versions = all(now.packages.get(name, version) == version for name, version in before.packages.items())
    return versions and replace(before, packages=now.packages, builder=now.builder) == now


# --- bundles that are there -----------------------------------------------------------------------------------------


def to_build(plan: PipelinePlan) -> str:
    """Why a pipeline has to be built before it can be locked; empty where a bundle that is published will do."""
    if not read.is_bundle(plan.target):
        return f"{plan.target} holds no bundle"
    try:
        report = read.verify(plan.target)
        if not report.ok:
            return f"the bundle in {plan.target} is damaged"
        if report.status in UNFIT:
            return f"the bundle in {plan.target} is marked as {report.status}"
        return "; ".join(_moved(plan, read.load(plan.target)))
    except (LeappError, OSError) as error:
        return f"the bundle in {plan.target} cannot be read: {str(error).splitlines()[0]}"


def _moved(plan: PipelinePlan, bundle: Bundle) -> Iterator[str]:
    """What is not as it was when a bundle was built."""
    root = plan.manifest.root
    inputs = inputs_read(bundle)
    evidence = bundle.evidence(SESSION_FILE)
    if inputs is None or evidence is None:
        yield f"the bundle in {plan.target} does not say what it was built from"
        return
    session: Mapping[str, Any] = json.loads(evidence.read_bytes())
    if session.get("manifest_sha256") != sha256_file(plan.manifest.path):
        yield f"{plan.manifest.shown} changed"
    files = [path for path, digest in inputs.items() if _digest(root / path) != digest]
    if files:
        more = f" and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else ""
        yield f"{', '.join(files[:_MOST_NAMED])}{more} changed"
    variables = dict(plan.variables)
    if session.get("variables") != variables:
        yield "variables that the manifest hands through have other values"
    recorded, here = bundle.contract[SYSTEM], toolchain()
    # A bundle that was brought from another machine can be locked, and only that machine could build it again.
    if recorded.get(OS) == here[OS] and plan.own_interpreter:
        moved = [key for key in here if here[key] != recorded.get(key)]
        yield from (f"{key} is {here[key]}, and was {recorded.get(key)}" for key in moved)
        if not moved:
            yield from _other_versions(bundle, root)


def _other_versions(bundle: Bundle, root: Path) -> Iterator[str]:
    """What the runtime file does not say of the tool chain. Another machine is no reason: it may have been CI's."""
    packages, built_by = built_with(bundle)
    here = installed_packages(sys.path, root)
    for name, version in (packages or {}).items():
        if here.get(name) != version:
            yield f"{name} is {here.get(name, 'not installed')}, and was {version}"
    now = builder()
    for name in (PYTHON, LEAPP_SOURCE):
        if built_by is not None and name in built_by and now[name] != built_by[name]:
            yield f"{name} changed" if name == LEAPP_SOURCE else f"{name} is {now[name]}, and was {built_by[name]}"


def _digest(path: Path) -> str | None:
    try:
        return sha256_file(path)
    except OSError:
        return None
