"""Walk over every overridable function of torch: recorded and exported, or in a reviewed list. ``nox -s ops`` runs it.

Arguments: names of functions to look at, all without any. ``--formats torchscript,pt2,onnx``, ``--most 2`` samples a
function in the exports, ``--list FILE`` writes what failed, one line each.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from pathlib import Path

import forms
import reviewed
import samples
import walk

from leapp import errors
from leapp.ops._row import Kind
from leapp.ops.format_gaps import FORMAT_GAPS

BATCH = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--formats", default="torchscript,pt2,onnx")
    parser.add_argument("--most", type=int, default=1)
    parser.add_argument("--list", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    begin = time.perf_counter()

    listed = samples.subjects()
    chosen = [subject for subject in listed if not options.names or subject.name in options.names]
    problems = [] if options.names else stale({subject.name for subject in listed})
    trials, counts = [], dict.fromkeys(("recorded", "metadata", "escape", "refused", "random", "reviewed"), 0)
    for subject in chosen:
        kind, found, problem = classified(subject)
        counts[kind] = counts.get(kind, 0) + 1
        trials += found[: options.most]
        problems += [problem] if problem else []
    written = [trial for trial in forms.trials() if not options.names or trial.label in options.names]
    problems += [f"{trial.label}: {problem}" for trial in written if (problem := recorded(trial))]
    seconds = time.perf_counter() - begin
    print(
        f"{len(chosen)} functions: {counts}, {len(written)} forms of calls, {len(problems)} problems, {seconds:.0f} s",
        flush=True,
    )

    failures = []
    for format in walk.FORMATS:
        if format.value not in options.formats.split(","):
            continue
        start = time.perf_counter()
        gaps = {name for gap in FORMAT_GAPS if format.value in gap.formats for name in gap.names}
        fit = [trial for trial in trials if trial.subject.name not in gaps]
        bad = []
        everything = [*fit, *written]
        for first in range(0, len(everything), BATCH):
            bad += exported(everything[first : first + BATCH], format)
        works = still_works([trial for trial in trials if trial.subject.name in gaps], format)
        problems += [f"{format.value}: {label}: {why}" for label, why in bad]
        problems += [f"{format.value}: {name} is listed as a gap and works" for name in works]
        failures += [f"{format.value}\t{label}\t{why}" for label, why in bad]
        held = len({trial.subject.name for trial in fit} - {label.partition("#")[0] for label, _ in bad})
        all_recorded = len({trial.subject.name for trial in trials})
        share, seconds = 100 * held / max(all_recorded, 1), time.perf_counter() - start
        print(
            f"{format.value}: {held} of {all_recorded} recorded functions ({share:.1f} %), {seconds:.0f} s", flush=True
        )
    if options.list:
        options.list.write_text("\n".join(failures) + "\n")
    print("\n".join(problems))
    return 1 if problems else 0


def stale(names: set[str]) -> list[str]:
    """Names in the lists that torch does not know."""
    listed = reviewed.NEVER_RUN | reviewed.UNINITIALISED
    listed |= {name for gap in FORMAT_GAPS for name in gap.names}
    return [f"{name} is in a list and is no overridable function" for name in sorted(listed - names)]


def classified(subject: samples.Subject) -> tuple[str, list[walk.Trial], str]:
    """What became of a function: its class, the trials to export, and what is wrong."""
    kind = walk.kind_of(subject)
    if kind is Kind.METADATA:
        return "metadata", [], ""
    drawn = samples.samples_of(subject)
    if subject.name in reviewed.NEVER_RUN:
        return "reviewed", [], f"{subject.name} is listed as never run and has samples that run" if drawn else ""
    if kind is Kind.REFUSE:
        return "refused", [], refusal(subject, drawn)
    if kind is Kind.ESCAPE:
        return "escape", [], "" if drawn else f"{subject.name}: no samples"
    if not drawn:
        return "reviewed", [], f"{subject.name}: no samples, and in no list"
    trials, random = [], False
    for number, sample in enumerate(drawn):
        trial = walk.Trial(subject, sample, f"{subject.name}#{number}")
        if walk.is_random(trial):
            random = True
            continue
        try:
            if not walk.expected(trial, sample.first):
                return "reviewed", [], f"{trial.label}: gives no tensor, and is in no list"
            walk.check_recording(walk.record([trial]))
        except Exception as error:  # noqa: BLE001 - whatever a recording raises is what the walk is after
            if subject.name in reviewed.UNINITIALISED:
                return "reviewed", [], ""
            return "recorded", [], f"{trial.label}: {short(error)}"
        trials.append(trial)
    if random and not trials:
        return "random", [], ""
    return "recorded", trials, ""


def recorded(trial: walk.Trial) -> str:
    """What is wrong with the recording of a trial; nothing if all is well."""
    try:
        walk.check_recording(walk.record([trial]))
    except Exception as error:  # noqa: BLE001 - as above
        return short(error)
    return ""


def refusal(subject: samples.Subject, drawn: list[samples.Sample]) -> str:
    for sample in drawn:
        try:
            walk.record([walk.Trial(subject, sample, subject.name)])
        except errors.UnrecordableOpError:
            continue
        return f"{subject.name} is a row that is refused, and it was not"
    return ""


def exported(trials: list[walk.Trial], format: walk.ExportFormat) -> list[tuple[str, str]]:
    """Export all in one graph; where that fails, in halves. Returns the trials that fail by themselves."""
    if not trials:
        return []
    error = attempted(trials, format)
    if not error:
        return []
    if len(trials) == 1:
        return [(trials[0].label, error)]
    half = len(trials) // 2
    return exported(trials[:half], format) + exported(trials[half:], format)


def attempted(trials: list[walk.Trial], format: walk.ExportFormat) -> str:
    """What went wrong; nothing if all is well."""
    try:
        walk.check_format(walk.record(trials), format)
    except Exception as error:  # noqa: BLE001 - as above
        return short(error)
    return ""


def still_works(trials: list[walk.Trial], format: walk.ExportFormat) -> list[str]:
    """Names of listed gaps of which every sample works by itself."""
    fails = {label.partition("#")[0] for trial in trials for label, _ in exported([trial], format)}
    return sorted({trial.subject.name for trial in trials} - fails)


def short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    sys.exit(main())
