"""Which step of the version a difference asks for. ``docs/diff.md`` has the table; the findings carry their steps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leapp.bundle._difference import Cause, FileDifference, Finding, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp._spec import JSON

MAX_REASONS: Final = 5
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(.*)")


@dataclass(frozen=True, slots=True)
class Advice:
    """The version step, and why."""

    step: Step
    reasons: tuple[str, ...]
    """The findings that ask for no less, one line each; the first ones, and how many more there are."""
    given: Step | None = None
    """How far the version was moved; None where a version is no SemVer, or was moved back."""
    version: str = ""
    """The version to give to the second; empty where the first one's is no SemVer, or nothing differs."""
    bears: str = ""
    """The version that the second has."""
    at_most: bool = False
    """Digests alone were compared: what they cannot tell counts as the worst that it may be."""

    @property
    def enough(self) -> bool:
        """Whether the version was moved as far as is advised."""
        return self.given is not None and self.given >= self.step

    @property
    def line(self) -> str:
        """``asks for a major step: 0.2.0; 0.1.1 is not enough``; empty where no step is asked for."""
        if self.step is Step.NONE:
            return ""
        text = f"{'may ask' if self.at_most else 'asks'} for a {self.step.word} step"
        if not self.version:  # of another scheme
            return text
        if self.enough:
            return f"{text}: {'' if self.bears == self.version else f'{self.version}; '}{self.bears} is enough"
        still = f"the version is still {self.bears}" if self.given is Step.NONE else f"{self.bears} is not enough"
        return f"{text}: {self.version}; {still}"

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "step": self.step.word,
            "reasons": list(self.reasons),
            "given": None if self.given is None else self.given.word,
            "enough": self.enough,
            "version": self.version,
        }


def advise(
    findings: Sequence[Finding],
    files: Sequence[FileDifference],
    *,
    equal: bool,
    versions: tuple[str, str] | None = None,
    digests_only: bool = False,
) -> Advice:
    """The largest step that a finding asks for.

    Below 1.0.0 semantic versioning promises nothing: ``version`` moves the second number for what is major there, and
    the third for the rest.
    """
    step = Step.NONE
    if not equal:
        step = max((each.step for each in findings), default=Step.NONE)
        if step is Step.NONE and (files or not findings):
            step = Step.PATCH
    reasons = _reasons([each for each in findings if each.step is step and step is not Step.NONE])
    if step is Step.PATCH and not reasons:
        reasons = [f"{each.path}: the same model, written otherwise" for each in files if each.written_otherwise]
        reasons = reasons or [f"{each.path} {each.change}" for each in files]
    if step is Step.NONE:
        reasons = ["nothing differs" if equal else _label(findings)]
    if len(reasons) > MAX_REASONS:
        reasons[MAX_REASONS:] = [f"and {len(reasons) - MAX_REASONS} more"]
    given, version = (None, "") if versions is None else _moved(*versions, step)
    return Advice(step, tuple(reasons), given, version, "" if versions is None else versions[1], at_most=digests_only)


def _label(findings: Sequence[Finding]) -> str:
    """What differs where no step is asked for: packages and the machine are no difference by themselves."""
    what = " and ".join(kind for kind in ("version", "status") if any(each.kind == kind for each in findings))
    return f"only the {what} differs: the models and the contract are the same" if what else "it computes the same"


def _reasons(findings: Sequence[Finding]) -> list[str]:
    """One line for findings that say the same, as where the joints moved in each port of a node."""
    alike: dict[object, list[Finding]] = {}
    for each in findings:
        key = (each.node, each.kind, each.first, each.second) if each.is_told else _reason(each)
        alike.setdefault(key, []).append(each)
    return [
        f"{_reason(some[0])}{f'; and {len(some) - 1} more alike' if some[0].is_told and len(some) > 1 else ''}"
        for some in alike.values()
    ]


def _reason(finding: Finding) -> str:
    """Why a finding asks for its step; equal for those of one node that are nothing new to one another."""
    texts = {
        "rotation-convention": "other order or sign in the graph of node {}, where a port holds a rotation",
        "constant-rearranged": "constants of node {} have the same values in another order or with other signs",
        "constant": "constants of node {} have other values",
        "constant-added": "constants of node {} came or went",
        "constant-removed": "constants of node {} came or went",
        "brought-model": "the model of node {} was brought and is another",
        "graph-renamed": "names in the graph of node {}",
        "tool": "another tool chain",
    }
    if finding.cause is Cause.CONTRACT or finding.kind.startswith(("node-", "state-")):
        return finding.brief()
    if finding.kind == "constant" and finding.step is Step.PATCH:
        return f"constants of node {finding.node!r} differ by no more than rounding"
    return texts.get(finding.kind, "the graph of node {} computes otherwise").format(repr(finding.node))


def _moved(first: str, second: str, step: Step) -> tuple[Step | None, str]:
    """How far a version was moved, and where ``step`` would have moved it."""
    before, after = _NUMBERS.fullmatch(first), _NUMBERS.fullmatch(second)
    if before is None:
        return None, ""
    old = tuple(int(before[at]) for at in (1, 2, 3))
    place = _place(step, below_one=old[0] == 0)
    version = (
        ""
        if place is None
        else ".".join(str(number + 1 if at == place else 0 if at > place else number) for at, number in enumerate(old))
    )
    if after is None:
        return None, version
    new = tuple(int(after[at]) for at in (1, 2, 3))
    if new == old:
        return Step.NONE, version
    if new < old:
        return None, version
    moved = next(at for at in range(3) if new[at] != old[at])
    if old[0] == 0 and moved > 0:
        moved -= 1  # the second number stands for the first
    return (Step.MAJOR, Step.MINOR, Step.PATCH)[moved], version


def _place(step: Step, *, below_one: bool) -> int | None:
    """Which number is raised."""
    if step is Step.NONE:
        return None
    place = {Step.MAJOR: 0, Step.MINOR: 1, Step.PATCH: 2}[step]
    return min(place + 1, 2) if below_one else place
