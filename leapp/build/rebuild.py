"""``leapp reproduce``: build what a manifest says and reproduce it, or build again what a bundle holds and compare."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp.build._messages import exit_code_of, head_json
from leapp.build.plan import make_plan
from leapp.build.reads import Reads
from leapp.build.reproduce import chosen, not_reproducible, reproduce
from leapp.build.run import build
from leapp.bundle import read
from leapp.errors import NoManifestError
from leapp.manifest.load import load, load_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.build.plan import PipelinePlan
    from leapp.build.reproduce import ReproductionRecord
    from leapp.build.result import Stage
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
) -> tuple[Rebuilt, ...]:
    """Build all pipelines of a manifest, or of a folder with some, in a scratch folder and reproduce each.

    Raises:
        ManifestError: a manifest has problems.
        UnknownVariationError: ``vary`` holds a name that is none.
    """
    names = chosen(vary)
    with tempfile.TemporaryDirectory(prefix="leapp-rebuild-", ignore_cleanup_errors=True) as out:
        plan = make_plan(load([path]), out=Path(out), environment=os.environ, vary=names, probe=False, locked=False)
        results = build(plan, on_stage=on_stage)
    return tuple(Rebuilt(each.plan, None, each.reproduction, each.error, each.details) for each in results)


def reproduce_bundle(path: Path, *, manifest: Path | None = None, vary: Iterable[str] | None = None) -> Rebuilt:
    """Build the pipeline of a bundle again, with everything varied, and compare it with the bundle.

    Args:
        path: the bundle. Neither it nor its evidence is changed.
        manifest: what it was built from; None: looked for above the working folder and above the bundle, by the name
            that the bundle's evidence has for it.
        vary: names out of ``VARIATIONS``; None: all.

    Raises:
        NotABundleError, BundleFormatError, BundleTooNewError, BundleDigestError: as ``leapp.bundle.read.load``.
        NoManifestError: it is not found.
        ManifestError: it has problems.
        UnknownVariationError: ``vary`` holds a name that is none.
    """
    names = chosen(vary)
    bundle = read.load(path)
    session = _evidence(bundle, SESSION_EVIDENCE)
    if manifest is None:
        found = find_manifest(bundle, session, (Path.cwd(), bundle.folder.absolute()))
    else:
        found = load_one(manifest, version=bundle.version)
    # The output folder is that of the bundle: it is no part of the project.
    out = bundle.folder.absolute().parent.parent
    (plan,) = make_plan([found], out=out, environment=os.environ, vary=names).pipelines
    reads = _evidence(bundle, READS_EVIDENCE)
    record = reproduce(
        plan,
        bundle.folder,
        Reads.from_json(reads) if reads else None,
        vary=names,
        fresh=False,
        notes=tuple(_other_variables(plan, session)),
    )
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
