"""Judge many random programs and say how many recordings are right: `nox -s programs`.

Programs are drawn by hypothesis in portions, each with a seed of its own. A portion ends at its first wrong program,
which is made as small as hypothesis can and printed as code to run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import judge as torch_judge
import numpy_judge
from hypothesis import HealthCheck, Phase, given, seed, settings
from judge import FORMATS, Verdict, WrongError, computes_complex, export, smaller
from numpy_programs import numpy_programs, printed
from programs import Program, programs

from leapp._spec import ExportFormat

if TYPE_CHECKING:
    from collections.abc import Callable


class Language(NamedTuple):
    """How programs of a kind are drawn, judged and shown."""

    programs: Callable[[], Any]
    judge: Callable[[Program], Verdict]
    text: Callable[[Program], str]


LANGUAGES = {
    "torch": Language(programs, torch_judge.judge, lambda program: program.text),
    "numpy": Language(numpy_programs, numpy_judge.judge, printed),
}

PORTION = 250
TOGETHER = 16


def walk(language: Language, count: int, first_seed: int, exported: int) -> int:
    """Print the counts; the number of wrong programs."""
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-(-count // PORTION)):
            judged = _portion(language, first_seed + number, min(PORTION, count - number * PORTION), counts, refusals)
            if number * PORTION < count:
                share = -(-exported * len(judged) // max(count, 1))
                for format in FORMATS:
                    _exported(language, judged[:share], format, Path(folder), formats)
            print(f"{sum(counts.values())} programs, {dict(counts)}", file=sys.stderr)
    total = sum(counts.values())
    print(f"{total} programs in {time.perf_counter() - started:.0f} s: {_shares(counts, total)}")
    for why, times in refusals.most_common():
        print(f"  refused {times} times: {why}")
    for format in FORMATS:
        found = Counter({key[1]: times for key, times in formats.items() if key[0] == format.value})
        print(f"{format.value}: {_shares(found, sum(found.values()))}")
        for key, times in formats.most_common():
            if key[0] == f"{format.value} why":
                print(f"  refused {times} times: {key[1]}")
    return counts["wrong"] + sum(times for key, times in formats.items() if key[1] == "wrong")


def _shares(counts: Counter[str], total: int) -> str:
    names = [name for name in ("equal", "refused", "wrong", "skipped") if counts[name] or name != "skipped"]
    return ", ".join(f"{counts[name]} {name} ({100 * counts[name] / max(total, 1):.2f}%)" for name in names)


def _portion(language: Language, number: int, size: int, counts: Counter[str], refusals: Counter[str]) -> list[Verdict]:
    judged: list[Verdict] = []
    last: list[Program] = []

    @seed(number)
    @settings(
        max_examples=size,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(language.programs())
    def run(program: Program) -> None:
        last[:] = [program]
        verdict = language.judge(program)
        if failed:
            return  # smaller ones are tried for the sake of the wrong one
        counts["skipped" if verdict.skipped else "refused" if verdict.refused else "equal"] += 1
        if verdict.refused:
            refusals[_kind(verdict.refused)] += 1
        elif not verdict.skipped:
            judged.append(verdict)

    failed: list[WrongError] = []

    def once(program: Program) -> None:
        try:
            inner(program)
        except WrongError as error:
            failed.append(error)
            raise

    inner = run.hypothesis.inner_test  # type: ignore[attr-defined]
    run.hypothesis.inner_test = once  # type: ignore[attr-defined]
    try:
        run()
    except WrongError as error:
        counts["wrong"] += 1
        print(f"\n{'=' * 80}\nWrong (seed {number}): {error}\n\n{language.text(last[0])}")
    return judged


def _exported(
    language: Language, verdicts: list[Verdict], format: ExportFormat, folder: Path, found: Counter[tuple[str, str]]
) -> None:
    groups = [verdicts[start : start + TOGETHER] for start in range(0, len(verdicts), TOGETHER)]
    if format is ExportFormat.ONNX:
        real = [each for each in verdicts if not computes_complex(each)]
        groups = [real[start : start + TOGETHER] for start in range(0, len(real), TOGETHER)]
        groups += [[each] for each in verdicts if computes_complex(each)]
    for group in groups:
        _group(language, group, format, folder, found)


def _group(
    language: Language, group: list[Verdict], format: ExportFormat, folder: Path, found: Counter[tuple[str, str]]
) -> None:
    try:
        refused = export(group, format, folder)
    except WrongError as error:
        if len(group) > 1:
            half = len(group) // 2
            _group(language, group[:half], format, folder, found)
            _group(language, group[half:], format, folder, found)
            return

        def is_wrong(program: Program) -> bool:
            try:
                export([language.judge(program)], format, folder)
            except WrongError:
                return True
            return False

        found[format.value, "wrong"] += 1
        small = smaller(group[0].program, is_wrong)
        print(f"\n{'=' * 80}\nWrong: {str(error).splitlines()[0]}\n\n{language.text(small)}")
        return
    found[format.value, "refused"] += len(refused)
    found[format.value, "equal"] += len(group) - len(refused)
    for why in refused.values():
        found[f"{format.value} why", _kind(why)] += 1


def _kind(why: str) -> str:
    """A refusal without what is true of one program alone."""
    text = re.sub(r"/tmp/\S+|\S*program\.py:\d+|program\.py|'p?\d*_?(a|b|out)\d*'|\d+", "...", why)
    return " ".join(text.split())[:240]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("--exported", type=int, default=500, help="how many of them leave in all three formats as well")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--language", choices=LANGUAGES, nargs="+", default=list(LANGUAGES), help="both unless one is named"
    )
    chosen = parser.parse_args()
    wrong = 0
    for name in chosen.language:
        print(f"{name}:")
        wrong += walk(LANGUAGES[name], chosen.count, chosen.seed, chosen.exported)
    sys.exit(1 if wrong else 0)
