"""``leapp reproduce``: build what a manifest says and reproduce it, or build again what a bundle holds and compare."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp.build._messages import exit_code_of, head_json
from leapp.build.cache import Miss
from leapp.build.plan import make_plan
from leapp.build.reads import Reads
from leapp.build.reproduce import chosen, not_reproducible, reproduce
from leapp.build.result import Stage
from leapp.build.run import build
from leapp.bundle import read
from leapp.errors import NoManifestError, StoreObjectError
from leapp.manifest.load import load, load_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.build.cache import Cache
    from leapp.build.plan import PipelinePlan
    from leapp.build.reproduce import ReproductionRecord
    from leapp.bundle.read import Bundle
    from leapp.errors import LeappError
    from leapp.manifest.model import Manifest

SESSION_EVIDENCE: Final = "evidence/session.json"
READS_EVIDENCE: Final = "evidence/reads.json"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came of building one pipeline again."""

    plan: PipelinePlan
    bundle: Path | None
    """The bundle that was to be reproduced; None: one that was made for it and is gone."""
    record: ReproductionRecord | None
    """None: there was nothing to compare, see ``error``."""
    error: LeappError | None = None
    details: str = ""
    """What helps to understand the error."""

    @property
    def exit_code(self) -> int:
        """What the command exits with on account of this pipeline."""
        return exit_code_of(self.error)

    def as_json(self) -> dict[str, JSON]:
        """One record for machines."""
        return {
            **head_json(self.error, self.details, plan=self.plan),
            "bundle": None if self.bundle is None else str(self.bundle),
            "reproduction": None if self.record is None else self.record.as_json(),
        }


def reproduce_manifests(
    path: Path,
    *,
    vary: Iterable[str] | None = None,
    on_stage: Callable[[PipelinePlan, Stage], None] = lambda _plan, _stage: None,
    cache: Cache | None = None,
) -> tuple[Rebuilt, ...]:
    """Build all pipelines of a manifest, or of a folder with some, in a scratch folder and reproduce each.

    Args:
        path: a manifest, or a folder.
        vary: names out of ``VARIATIONS``; None: all.
        on_stage: told when a pipeline enters a stage; called from worker threads.
        cache: bundles that were built before of the very same; each stands in for the first of the two that are
            compared. None: both are built.

    Raises:
        ManifestError: a manifest has problems.
        UnknownVariationError: ``vary`` holds a name that is none.
    """
    names = chosen(vary)
    with tempfile.TemporaryDirectory(prefix="leapp-rebuild-", ignore_cleanup_errors=True) as out:
        plan = make_plan(load([path]), out=Path(out), environment=os.environ, vary=names, probe=False, locked=False)
        known = {each.target: _known(each, cache, on_stage) for each in plan.pipelines} if cache is not None else {}
        rest = tuple(each for each in plan.pipelines if known.get(each.target) is None)
        built = {each.plan.target: each for each in build(replace(plan, pipelines=rest), on_stage=on_stage)}
    made = {
        target: Rebuilt(each.plan, None, each.reproduction, each.error, each.details) for target, each in built.items()
    }
    return tuple(known.get(each.target) or made[each.target] for each in plan.pipelines)


def _known(plan: PipelinePlan, cache: Cache, on_stage: Callable[[PipelinePlan, Stage], None]) -> Rebuilt | None:
    """Reproduce what the cache has of a pipeline; None where it has nothing."""
    found = cache.lookup(replace(plan, probe=True))  # what is kept was probed
    if isinstance(found, Miss):
        return None
    try:
        cache.fetch(found, plan.target)
    except StoreObjectError:
        return None
    on_stage(plan, Stage.REPRODUCING)
    note = f"compared with the bundle that the cache has, built on {found.built}"
    record = _reproduced(plan, read.load(plan.target), vary=plan.vary, notes=(note,))
    on_stage(plan, Stage.DONE)
    return Rebuilt(plan, None, record, None if record.ok else not_reproducible(plan, record))


def reproduce_bundle(path: Path, *, manifest: Path | None = None, vary: Iterable[str] | None = None) -> Rebuilt:
    """Build the pipeline of a bundle again, with everything varied, and compare it with the bundle.

    Args:
        path: the bundle. Neither it nor its evidence is changed.
        manifest: what it was built from; None: looked for above the working folder and above the bundle, by the name
            that the bundle's evidence has for it.
        vary: names out of ``VARIATIONS``; None: all.

    Raises:
        NotABundleError, BundleFormatError, BundleTooNewError, BundleDigestError: as ``leapp.bundle.read.load``.
        PartialBundleError: it has the models of one node alone.
        NoManifestError: it is not found.
        ManifestError: it has problems.
        UnknownVariationError: ``vary`` holds a name that is none.
    """
    names = chosen(vary)
    bundle = read.load(path)
    bundle.require_whole()
    session = _evidence(bundle, SESSION_EVIDENCE)
    if manifest is None:
        found = find_manifest(bundle, session, (Path.cwd(), bundle.folder.absolute()))
    else:
        found = load_one(manifest, version=bundle.version)
    # The output folder is that of the bundle: it is no part of the project.
    out = bundle.folder.absolute().parent.parent
    (plan,) = make_plan([found], out=out, environment=os.environ, vary=names).pipelines
    record = _reproduced(plan, bundle, vary=names, notes=tuple(_other_variables(plan, session)))
    error = None if record.ok else not_reproducible(plan, record)
    return Rebuilt(plan, bundle.folder, record, error)


def find_manifest(bundle: Bundle, session: Mapping[str, Any], places: Sequence[Path]) -> Manifest:
    """The manifest of a bundle: a file of the recorded name, in one of these folders or above, for this pipeline.

    Raises:
        NoManifestError: there is none.
    """
    name = session.get("manifest")
    if not isinstance(name, str):
        why = "its evidence, which says how it was built, was left behind or holds no such record"
        raise NoManifestError(bundle=bundle.folder, why=why)
    for place in places:
        for folder in (place, *place.parents):
            path = folder / name
            if path.is_file():
                manifest = load_one(path, version=bundle.version)
                if manifest.pipeline.name == bundle.name:
                    return manifest
    shown = ", ".join(map(str, places))
    raise NoManifestError(bundle=bundle.folder, why=f"{name!r} for {bundle.name!r} is not in or above {shown}")


def _reproduced(
    plan: PipelinePlan, bundle: Bundle, *, vary: Sequence[str] | None, notes: Sequence[str]
) -> ReproductionRecord:
    """Compare a bundle that was built some time ago with what the project gives now."""
    reads = _evidence(bundle, READS_EVIDENCE)
    known = Reads.from_json(reads) if reads else None
    return reproduce(plan, bundle.folder, known, vary=vary, fresh=False, notes=notes)


def _evidence(bundle: Bundle, path: str) -> dict[str, Any]:
    """A record among the evidence; empty where there is none."""
    file = bundle.evidence(path)
    value = {} if file is None else json.loads(file.read_bytes())
    return value if isinstance(value, dict) else {}


def _other_variables(plan: PipelinePlan, session: Mapping[str, Any]) -> Iterator[str]:
    recorded = session.get("variables")
    for name, digest in plan.variables.items():
        if isinstance(recorded, dict) and recorded.get(name) != digest:
            yield f"the variable {name}, which the manifest hands through, has another value than when it was built"
