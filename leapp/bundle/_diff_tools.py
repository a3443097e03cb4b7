"""Where the tool chains of two bundles part: what the runtime file has of them, and what only the evidence has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leapp._spec import LEAPP_SOURCE, PYTHON
from leapp.bundle._diff_contract import plain_findings
from leapp.bundle._difference import Cause, Change, Finding, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PACKAGE: Final = "package"
"""Kind of finding: another version of a package that the session had loaded, or of LEAPP or Python in full."""
MACHINE: Final = "machine"
"""Kind of finding: another machine, as far as libraries compute by it."""
BUILT_WITH: Final = frozenset({PACKAGE, MACHINE})
"""Kinds that are no difference of the content: they may be why there is one."""
_IN_RUNTIME_FILE: Final = {
    LEAPP_SOURCE: "leapp version",
    PYTHON: "python version",
    "torch": "torch version",
    "warp-lang": "warp version",
}
"""What is said of the tool chain already where the runtime file says it, though less exactly."""
_WRITERS: Final = (
    *("onnxscript", "onnx", "onnx-ir", "onnxruntime", "numpy"),
    *("ml-dtypes", "protobuf", "safetensors", "torch"),
)
"""Packages that change bytes more often than others do: named first."""
_MOST: Final = 6
_MOST_RARE: Final = 2
_DIGITS: Final = 12
"""Of a digest, enough to tell two apart."""


@dataclass(frozen=True, slots=True)
class BuiltWith:
    """What one side was built with. None: no record of it is there."""

    toolchain: Mapping[str, Any]
    packages: Mapping[str, str] | None
    builder: Mapping[str, str] | None


def tool_findings(a: BuiltWith, b: BuiltWith, *, same_inputs: bool) -> Iterator[Finding]:
    """Versions that differ, by their name in the runtime file, then those that only the evidence or a lock has.

    Args:
        a: the first.
        b: the second.
        same_inputs: both read the same files. Else a package that only one loaded is what a script now imports.
    """
    said = [*plain_findings(Cause.TOOL_CHAIN, "", a.toolchain, b.toolchain, kind="tool", step=Step.PATCH)]
    yield from said
    known = {each.part for each in said}
    found = []
    for first, second, machine in (a.builder, b.builder, True), (a.packages, b.packages, False):
        if first is None or second is None:
            continue
        for name in _in_order({*first, *second}):
            one, other = first.get(name, ""), second.get(name, "")
            if one == other or _IN_RUNTIME_FILE.get(name) in known:
                continue
            if not machine and not (one and other) and not same_inputs:
                continue
            found.append(_finding(name, one, other, MACHINE if machine and name not in _IN_RUNTIME_FILE else PACKAGE))
    # What both have explains more: another torch may bring dozens of packages.
    yield from sorted(found, key=_came_or_went)


def _came_or_went(finding: Finding) -> bool:
    return finding.kind == PACKAGE and finding.change is not Change.DIFFERS


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (_WRITERS.index(name) if name in _WRITERS else len(_WRITERS), name))


def _finding(name: str, first: str, second: str, kind: str) -> Finding:
    change = Change.DIFFERS if first and second else Change.ONLY_FIRST if first else Change.ONLY_SECOND
    if name == LEAPP_SOURCE:
        first, second = first[:_DIGITS], second[:_DIGITS]
    return Finding(Cause.TOOL_CHAIN, "", name, change, first, second, kind=kind, step=Step.NONE)


def tools_text(findings: Sequence[Finding]) -> str:
    """Findings in one line for people: what each was and is."""
    rare = [each for each in findings if _came_or_went(each)]
    shown = [each for each in findings if each not in rare] if len(rare) > _MOST_RARE else [*findings]
    texts = [_text(each) for each in shown]
    parts = [", ".join(texts[:_MOST])]
    if len(texts) > _MOST:
        parts.append(f"{len(texts) - _MOST} more")
    if len(shown) < len(findings):
        parts.append(f"{len(rare)} packages that only one has")
    return " and ".join(filter(None, parts))


def _text(finding: Finding) -> str:
    name = finding.part.removesuffix(" version")
    if name == LEAPP_SOURCE:  # digests tell people nothing
        return name
    return f"{name} {plain_version(finding.first) or 'none'} -> {plain_version(finding.second) or 'none'}"


def plain_version(text: str) -> str:
    """A version as a person writes it; empty where there is none."""
    return "" if text == "null" else text.strip('"')
