"""Prove a bundle reproducible: run its entry once more with everything varied at once, and compare byte for byte.

What the bytes must not depend on is one table, ``VARIATIONS``. A bundle that comes out differently is explained by
``leapp.bundle.diff``, and the variation that does it is found by bisection: further sessions under fewer variations.
The first of them varies nothing, which finds clocks and entropy.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leapp._canonical import readable_json
from leapp.build._messages import Varied
from leapp.build._vary import STRAYS_FILE
from leapp.build.isolate import GRACE_S, HowEnded, run_session, session_environment
from leapp.build.mirror import Inputs, Kind, make_mirror, project_files
from leapp.bundle import read
from leapp.bundle.diff import BundleDiff, diff
from leapp.errors import BuildCancelledError, NotReproducibleError, UnknownVariationError
from leapp.manifest.problems import did_you_mean
from leapp.pipeline.start import recorded_starts

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from leapp._spec import JSON
    from leapp.build.isolate import SessionOutcome
    from leapp.build.mirror import Mirror
    from leapp.build.plan import PipelinePlan
    from leapp.build.reads import Reads
    from leapp.bundle.read import Bundle

EVIDENCE_FILE: Final = "evidence/reproduction.json"
RUN_TO_RUN: Final = "differs from run to run (a clock, entropy, or threads)"
FAILS_ALWAYS: Final = "it fails without any variation as well"
INCOMPLETE: Final = "its reads cannot be proved complete: in a copy of what it was seen to read, this is missing"
CHANGED_SINCE: Final = "the project, its inputs or the tool chain changed since the bundle was built"
SESSION: Final = "(the session)"
"""Stands in a table where there is no file to name: the second session left no bundle."""
_MISSING: Final = frozenset(
    {"FileNotFoundError", "NotADirectoryError", "ModuleNotFoundError", "ImportError", "EntryMissingError"}
)
"""Errors by which an entry says that it wants a file that is not there."""
_SESSION_KEY: Final = "session"
_ZONE: Final = "Asia/Kathmandu"
"""A quarter of an hour away from everyone else's."""
_ZONE_FOLDER: Final = Path("/usr/share/zoneinfo")
_HASH_SEED_STEP: Final = 0x9E3779B9


# --- what is varied ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """How one more session is set up. Without any variation it is set up as the first one was."""

    environment: Mapping[str, str]
    """All variables of its process."""
    place: Path
    """A folder of its own."""
    varied: Varied = field(default_factory=Varied)
    """What it does otherwise inside its process."""
    folder: bool = False
    """It runs in a copy of the project."""
    only_inputs: bool = False
    """The copy holds what the first session read, and nothing else."""
    shift: bool = False
    """The copy's Python files have comment lines on top."""

    def setting(self, **variables: str) -> Scene:
        """The scene with other variables."""
        return replace(self, environment={**self.environment, **variables})


@dataclass(frozen=True, slots=True)
class Variation:
    """One thing that the bytes of a bundle must not depend on."""

    name: str
    summary: str
    """What is done."""
    change: Callable[[Scene], Scene]
    blames: str
    """What a bundle that changes with it depends on."""
    needs: tuple[str, ...] = ()
    """Variations without which it cannot be done."""


def _hash_seed(scene: Scene) -> Scene:
    first = int(scene.environment["PYTHONHASHSEED"])
    return scene.setting(PYTHONHASHSEED=str((first + _HASH_SEED_STEP) % 2**32))


def _time_zone(scene: Scene) -> Scene:
    # Without the zone's file the C library would take the name for UTC; the rule says the same without a file.
    return scene.setting(TZ=_ZONE if (_ZONE_FOLDER / _ZONE).exists() else "NPT-5:45")


def _locale(scene: Scene) -> Scene:
    name = another_locale()
    return scene.setting(LANG=name, LC_ALL=name)


VARIATIONS: Final = (
    Variation("hash-seed", "another PYTHONHASHSEED", _hash_seed, "hash(), or the order of a set of texts"),
    Variation(
        "home",
        "another HOME",
        lambda scene: scene.setting(HOME=str(scene.place / "another-home")),
        "the path of the home folder",
    ),
    Variation(
        "tmpdir",
        "another TMPDIR",
        lambda scene: scene.setting(TMPDIR=str(scene.place / "another-tmp")),
        "the path of the folder for temporary files",
    ),
    Variation("time-zone", "another time zone (TZ)", _time_zone, "local time"),
    Variation("locale", "another locale (LANG, LC_ALL)", _locale, "the language or number format of the machine"),
    Variation(
        "umask",
        "another umask",
        lambda scene: replace(scene, varied=replace(scene.varied, umask=True)),
        "the mode of new files",
    ),
    Variation(
        "listings",
        "folders listed in another order",
        lambda scene: replace(scene, varied=replace(scene.varied, listings=True)),
        "the order in which a folder is listed; sort it",
    ),
    Variation(
        "other-exports",
        "another pipeline exported before in the same process",
        lambda scene: replace(scene, varied=replace(scene.varied, other_exports=True)),
        "what the process did before",
    ),
    Variation(
        "folder",
        "a copy of the project under another path",
        lambda scene: replace(scene, folder=True),
        "the path of the project or of a file in it, or times of files",
    ),
    Variation(
        "inputs",
        "a copy that holds only what the first session was seen to read",
        lambda scene: replace(scene, only_inputs=True),
        "a file that it was not seen to read: its reads cannot be proved complete",
        needs=("folder",),
    ),
    Variation(
        "lines",
        "a copy whose Python files have comment lines on top",
        lambda scene: replace(scene, shift=True),
        "line numbers or the text of its own source",
        needs=("folder",),
    ),
)
"""Threads are not varied: a constant that is computed eagerly may depend on them."""

BY_NAME: Final = {variation.name: variation for variation in VARIATIONS}


def chosen(names: Iterable[str] | None) -> tuple[str, ...]:
    """Names of variations in the table's order; None: all. Raises UnknownVariationError."""
    if names is None:
        return tuple(BY_NAME)
    wanted = set(names)
    for name in sorted(wanted - BY_NAME.keys()):
        raise UnknownVariationError(name=name, known=", ".join(BY_NAME), near=did_you_mean(name, BY_NAME))
    return tuple(name for name in BY_NAME if name in wanted)


def with_needs(names: Iterable[str]) -> tuple[str, ...]:
    """The variations and those that they cannot do without, in the table's order."""
    wanted = set(names)
    return chosen(wanted | {need for name in wanted for need in BY_NAME[name].needs})


@functools.cache
def another_locale() -> str:
    """A locale of this machine that differs from C.UTF-8 in as much as possible: comma for point, if there is one."""
    try:
        answer = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return "POSIX"
    found = sorted(line.strip() for line in answer.splitlines())
    unicode = [name for name in found if name.lower().endswith((".utf8", ".utf-8")) and not name.startswith("C.")]
    commas = [name for name in unicode if name.startswith(("de_", "fr_", "es_", "it_", "pl_", "ru_", "nl_"))]
    return next(iter([*commas, *unicode]), "POSIX")


# --- what came of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One more session, and how its bundle compares."""

    variations: tuple[str, ...]
    difference: BundleDiff | None
    """None: it left no bundle."""
    failure: str = ""
    """Why it left none."""
    missing: bool = False
    """It left none because a file or module was not there."""
    strays: tuple[str, ...] = ()
    """Files of the project itself that it opened, although it was to do with the copy."""
    wall_s: float = 0.0

    @property
    def same(self) -> bool:
        """Whether it gave the same bundle."""
        return self.difference is not None and self.difference.equal

    @property
    def keys(self) -> frozenset[str]:
        """What differs, as names that can be compared between runs."""
        return frozenset((_SESSION_KEY,)) if self.difference is None else self.difference.keys

    @property
    def files(self) -> tuple[str, ...]:
        """Paths that differ."""
        return (SESSION,) if self.difference is None else tuple(each.path for each in self.difference.files)

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "variations": list(self.variations),
            "same": self.same,
            "differing": list(self.files),
            "failure": self.failure,
            "strays": list(self.strays),
            "wall_s": round(self.wall_s, 3),
        }


@dataclass(frozen=True, slots=True)
class Blame:
    """What makes content differ, and which."""

    variations: tuple[str, ...]
    """One name, or several that do it only together; none: it differs without any."""
    text: str
    files: tuple[str, ...]

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {"variations": list(self.variations), "text": self.text, "files": list(self.files)}


@dataclass(frozen=True, slots=True)
class ReproductionRecord:
    """Whether a bundle came out the same once more, and if not, why."""

    digest: str
    """Of the bundle that was to be reproduced."""
    varied: tuple[str, ...]
    inputs: Inputs
    """What the copy of the project held."""
    content_files: int
    runs: tuple[Run, ...]
    """The first one had everything varied; the others bisected."""
    blames: tuple[Blame, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all content is byte-identical."""
        return self.runs[0].same

    @property
    def complete(self) -> bool:
        """Whether it is proved that nothing was read but what is recorded."""
        proved = self.inputs.kind is Kind.RECORDED and "inputs" in self.varied
        return self.ok and proved and not self.runs[0].strays

    def rows(self) -> list[tuple[str, str, str]]:
        """A table for people: file, what differs in it, and what does it. Empty when all is the same."""
        whole = self.runs[0]
        if whole.same:
            return []
        found: list[tuple[str, str]] = []
        if whole.difference is None:
            found.append((SESSION, whole.failure))
        else:
            found += [
                (path, f"{change}: {why}" if change != "differs" else why)
                for path, change, why in whole.difference.rows()
            ]
            found += [(SESSION, each.text()) for each in whole.difference.findings if not whole.difference.files]
        return [(path, why, self._blamed(path)) for path, why in found]

    def _blamed(self, path: str) -> str:
        said = [blame.text for blame in self.blames if path in blame.files]
        return "; ".join(dict.fromkeys(said or [blame.text for blame in self.blames])) or "not looked for"

    def lines(self) -> list[str]:
        """For people, without the table."""
        if self.ok:
            varied = ", ".join(self.varied) or "nothing"
            lines = [f"all {self.content_files} content files are byte-identical with {varied} varied"]
        else:
            lines = [f"{path}: {why} [{blame}]" for path, why, blame in self.rows()]
        return lines + [f"note: {note}" for note in self.notes]

    def as_json(self) -> dict[str, JSON]:
        """For evidence and machines."""
        difference = self.runs[0].difference
        return {
            "schema": 1,
            "reproduced": self.ok,
            "digest": self.digest,
            "content_files": self.content_files,
            "varied": {name: BY_NAME[name].summary for name in self.varied},
            "inputs": {"kind": self.inputs.kind.value, "files": len(self.inputs.files), "complete": self.complete},
            "runs": [run.as_json() for run in self.runs],
            "blames": [blame.as_json() for blame in self.blames],
            "difference": None if difference is None or difference.equal else difference.as_json(),
            "notes": list(self.notes),
        }


# --- the work ------------------------------------------------------------------------------------------------------


def reproduce(
    plan: PipelinePlan,
    first: Path,
    reads: Reads | None,
    *,
    vary: Iterable[str] | None = None,
    bisect: bool = True,
    fresh: bool = True,
    session_folder: Path | None = None,
    notes: Sequence[str] = (),
    grace_s: float = GRACE_S,
    cancel: threading.Event | None = None,
) -> ReproductionRecord:
    """Run a pipeline once more with everything varied at once, and find out what does it where the bundle differs.

    Args:
        plan: what to run.
        first: the sealed bundle that is to come out again.
        reads: what the first session read. Where it is not known, or not known to be complete, all files of the project
            are taken.
        vary: names out of ``VARIATIONS``; None: all of them.
        bisect: find what does it by further sessions.
        fresh: whether the bundle was made from the project as it stands, just now. Else it is told apart whether the
            project has changed since.
        session_folder: where HOME (``home``) and TMPDIR (``tmp``) of the first session lay.
        notes: what the record is to say besides.
        grace_s: how long a session may go on after its bundle was written.
        cancel: ends the session at work when it is set from another thread.

    Raises:
        UnknownVariationError: ``vary`` holds a name that is none.
        BuildCancelledError: ``cancel`` was set.
    """
    names = chosen(vary)
    said = list(notes)
    inputs = inputs_of(plan, reads)
    if inputs.kind is not Kind.RECORDED and "inputs" in names:
        names = tuple(name for name in names if name != "inputs")
        why = "; ".join(reads.gaps) if reads is not None else "what the first session read is not recorded"
        whose = "git knows" if inputs.kind is Kind.GIT else "lie below the project's root"
        said.append(
            f"not proved that nothing else is read: the {len(inputs.files)} files that {whose} were taken ({why})"
        )
    with tempfile.TemporaryDirectory(prefix="leapp-reproduce-", ignore_cleanup_errors=True) as place:
        bundle = read.load(first)
        sessions = _Sessions(plan, bundle, inputs, Path(place).resolve(), session_folder, grace_s, cancel)
        whole = sessions.run(names)
        blames: tuple[Blame, ...] = ()
        if not whole.same and bisect:
            blames = tuple(_blames(sessions, whole, names, fresh=fresh))
        if whole.strays:
            some = ", ".join(whole.strays[:5]) + (f" and {len(whole.strays) - 5} more" if len(whole.strays) > 5 else "")
            said.append(
                f"not proved that nothing else is read: the copy of the project still read {some} of the project"
            )
        runs = (whole, *(run for run in sessions.runs if run is not whole))
    return ReproductionRecord(bundle.digest, names, inputs, len(bundle.files), runs, blames, tuple(said))


def inputs_of(plan: PipelinePlan, reads: Reads | None) -> Inputs:
    """What the copy of a project is to hold: what was read, else all files of the project."""
    root = plan.manifest.root
    if reads is None:
        return project_files(plan.manifest, without=_output(plan))
    # What was declared by an absolute path is opened by it, wherever the project lies.
    names = [each.path for each in (*reads.project, *reads.declared) if not Path(each.path).is_absolute()]
    files = {Path(os.path.normpath(root / name)) for name in names}
    folders = {root / each.path for each in reads.listings}
    # A folder that is written into has to be there.
    folders |= {(root / each.path).parent for each in reads.written if not Path(each.path).is_absolute()}
    links = tuple((root / each.path, each.target) for each in reads.links)
    kind = Kind.RECORDED
    if not reads.complete:
        around = project_files(plan.manifest, without=_output(plan))
        kind, files = around.kind, files | set(around.files)
    return Inputs(kind, tuple(sorted(files)), tuple(sorted(folders)), links)


def _output(plan: PipelinePlan) -> tuple[Path, ...]:
    """The build's own output folder, unless the project lies in it."""
    out = plan.target.absolute().parent.parent
    return () if plan.manifest.root.is_relative_to(out) else (out,)


def reproduce_stage(
    plan: PipelinePlan,
    first: Path,
    reads: Reads | None,
    *,
    session_folder: Path | None = None,
    grace_s: float = GRACE_S,
    cancel: threading.Event | None = None,
) -> ReproductionRecord:
    """The stage of a build: reproduce, and leave the record in the bundle's evidence, whose index the caller renews.

    Raises:
        NotReproducibleError: the second session gave another bundle; ``facts["record"]`` says how.
    """
    record = reproduce(
        plan, first, reads, vary=plan.vary, session_folder=session_folder, grace_s=grace_s, cancel=cancel
    )
    (first / EVIDENCE_FILE).write_bytes(readable_json(record.as_json()))
    if not record.ok:
        raise not_reproducible(plan, record)
    return record


def not_reproducible(plan: PipelinePlan, record: ReproductionRecord) -> NotReproducibleError:
    """The error that says what differs, and what does it."""
    detail = "\n".join(f"  {line}" for line in record.lines())
    return NotReproducibleError(manifest=plan.manifest.shown, detail=detail, record=record)


@dataclass
class _Sessions:
    """Further sessions of one pipeline, each under some variations; what was run once is not run again."""

    plan: PipelinePlan
    first: Bundle
    """What their bundles are compared with."""
    inputs: Inputs
    place: Path
    session_folder: Path | None
    grace_s: float
    cancel: threading.Event | None
    runs: list[Run] = field(default_factory=list)
    bundles: dict[tuple[str, ...], Path] = field(default_factory=dict)
    _known: dict[tuple[str, ...], Run] = field(default_factory=dict)

    def run(self, names: Iterable[str]) -> Run:
        """The session under these variations and those that they need."""
        wanted = with_needs(names)
        if wanted not in self._known:
            self._known[wanted] = self.run_anew(wanted)
        return self._known[wanted]

    def run_anew(self, wanted: tuple[str, ...]) -> Run:
        """The same, also when it was run before."""
        place = self.place / f"{len(self.runs):02}"
        place.mkdir()
        session = self.plan.manifest.session
        own = self.session_folder or self.place / "session"
        scene = Scene(
            session_environment(
                self.plan.outer_environment,
                home=own / "home",
                temporary=own / "tmp",
                seed=session.seed,
                threads=session.threads,
                pass_env=session.pass_env,
            ),
            place,
        )
        for name in wanted:
            scene = BY_NAME[name].change(scene)
        outcome, mirror = self._session(scene)
        run = self._judged(wanted, outcome, mirror)
        self.runs.append(run)
        if outcome.compiled is not None:
            self.bundles[wanted] = Path(outcome.compiled.bundle)
        shutil.rmtree(place / "mirror", ignore_errors=True)
        return run

    def _session(self, scene: Scene) -> tuple[SessionOutcome, Mirror | None]:
        request = self.plan.request(scene.place / "out")
        manifest = request.manifest
        mirror = None
        if scene.folder:
            inputs = self.inputs
            if not scene.only_inputs and inputs.kind is Kind.RECORDED:
                around = project_files(manifest, without=_output(self.plan))
                inputs = replace(inputs, files=tuple(sorted({*inputs.files, *around.files})))
            mirror = make_mirror(manifest.root, inputs, scene.place / "mirror", shift=scene.shift)
            manifest = replace(manifest, root=mirror.root)
        varied = replace(scene.varied, moved_from=mirror.original if mirror is not None else None)
        folders = [scene.place / "records", *(Path(scene.environment[name]) for name in ("HOME", "TMPDIR"))]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        try:
            outcome = run_session(
                # How state starts took a probe to find out; it is not done over.
                replace(request, manifest=manifest, varied=varied, starts=recorded_starts(self.first.contract)),
                python=self.plan.python,
                folder=folders[0],
                environment=scene.environment,
                timeout_s=manifest.session.timeout_s,
                grace_s=self.grace_s,
                cancel=self.cancel,
            )
        finally:
            for folder in folders[1:]:
                shutil.rmtree(folder, ignore_errors=True)
        if outcome.how is HowEnded.CANCELLED:
            raise BuildCancelledError(manifest=manifest.shown)
        return outcome, mirror

    def _judged(self, wanted: tuple[str, ...], outcome: SessionOutcome, mirror: Mirror | None) -> Run:
        strays = _lines_of(outcome.log.with_name(STRAYS_FILE))
        if outcome.compiled is not None:
            difference = diff(self.first, Path(outcome.compiled.bundle))
            return Run(wanted, difference, strays=strays, wall_s=outcome.wall_s)
        ending = outcome.ending
        missing = ending is not None and ending.error_class in _MISSING
        if ending is not None:
            failure = f"the entry {ending.text}" if ending.kind == "raised" else ending.text
        elif outcome.how is HowEnded.TIMEOUT:
            failure = f"it did not finish within {self.plan.manifest.session.timeout_s:g} s"
        else:
            failure = f"its process ended with status {outcome.status} before its bundle was written"
        return Run(wanted, None, failure if mirror is None else mirror.back(failure), missing, strays, outcome.wall_s)


def _lines_of(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text("utf-8", "replace").splitlines()) if file.exists() else ()


def _blames(sessions: _Sessions, whole: Run, names: Sequence[str], *, fresh: bool) -> list[Blame]:
    """What makes the bundle differ: nothing that is varied, single variations, or some that do it together."""
    plain = sessions.run(())
    blames = []
    if not plain.same:
        text = RUN_TO_RUN
        if plain.difference is None:
            text = FAILS_ALWAYS
        elif not fresh and _stable(sessions):
            text = CHANGED_SINCE
        blames.append(Blame((), text, plain.files))
    left = whole.keys - plain.keys
    if left:

        def differing(wanted: frozenset[str]) -> frozenset[str]:
            needed = sorted(set(with_needs(wanted)) - wanted)
            found = sessions.run(wanted).keys - plain.keys
            # What the variations do that it merely needs is theirs.
            return found - sessions.run(needed).keys if found and needed else found

        for group in culprits(tuple(names), differing):
            run = sessions.run(group)
            blames.append(Blame(group, INCOMPLETE if run.missing else _text(group), run.files))
    return blames


def _stable(sessions: _Sessions) -> bool:
    """Whether the project gives one bundle when nothing is varied, if another one than it once did."""
    rebuilt = sessions.bundles[()]
    sessions.run_anew(())
    again = sessions.bundles[()]
    return again != rebuilt and diff(rebuilt, again).equal


def _text(group: Sequence[str]) -> str:
    if len(group) == 1:
        (name,) = group
        return f"{name}: it depends on {BY_NAME[name].blames}"
    return f"{' + '.join(group)}, only together"


def culprits(
    names: Sequence[str], differing: Callable[[frozenset[str]], frozenset[str]], alongside: frozenset[str] = frozenset()
) -> list[tuple[str, ...]]:
    """Bisect: the single names, or smallest groups of names found, under which something differs.

    Args:
        names: known to make something differ when they are all there.
        differing: what differs under a set of names.
        alongside: names that are there as well.
    """
    if len(names) == 1:
        return [tuple(names)]
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    found: list[tuple[str, ...]] = []
    for half in halves:
        if differing(frozenset(half) | alongside):
            found += culprits(half, differing, alongside)
    if found:
        return found
    # Neither half does it alone: look in each for its part of it, with the other one there.
    parts = [culprits(half, differing, alongside | frozenset(other))[0] for half, other in (halves, reversed(halves))]
    return [tuple(name for part in parts for name in part)]
