"""What can differ between two bundles, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leapp._spec import JSON

MAX_SHOWN: Final = 160
"""Longer values are cut in texts for people."""
_MAX_NAMES: Final = 80
"""Two lists of names that are longer together are told by what moved or has another name."""
_LISTS: Final = frozenset({"elements", "elements-reordered", "ports-reordered", "rotation-convention"})
"""Kinds whose note says how two lists of names part."""


class Cause(StrEnum):
    """Why a file differs."""

    GRAPH = "graph"
    """The computation: operations, their order, arguments, shapes."""
    CONSTANTS = "constants"
    """The values of tensors: weights, constants, first-tick values."""
    CONTRACT = "contract"
    """Ports, wires, settings, tolerances, name, version, status."""
    TOOL_CHAIN = "tool chain"
    """What the models were made with."""
    BYTES = "bytes only"
    """The same model, written differently."""


class Change(StrEnum):
    """How a file or part differs."""

    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"
    DIFFERS = "differs"


class Step(IntEnum):
    """How far a version has to move, in the order of semantic versioning; ``docs/diff.md`` has the table."""

    NONE = 0
    PATCH = 1
    """Whoever runs the bundle sees no other behaviour, as far as can be told."""
    MINOR = 2
    """Another behaviour, or more of it, within the contract that is relied upon."""
    MAJOR = 3
    """Whoever runs the bundle has to look at their side, or the robot moves otherwise than they think."""

    @property
    def word(self) -> str:
        """``major``, ``minor``, ``patch`` or ``none``."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Values:
    """How the elements of two tensors of one shape differ. Places that are not finite in both are only counted."""

    count: int
    """Elements of each."""
    differing: int
    """Elements that are not the same bytes, or not the same number where the dtypes differ."""
    largest: float
    """Largest absolute difference, in the tensor's own unit."""
    mean: float
    """Mean absolute difference over all elements that are finite in both."""
    where: tuple[int, ...]
    """Index of the largest difference."""
    ulp: int | None
    """The most floating-point numbers that lie between two elements, plus one; None for other dtypes."""
    nan_first: int
    nan_second: int
    infinite_first: int
    infinite_second: int
    pattern: str = ""
    """``the same values in another order along axis 0: ...``, ``the same values with other signs: ...``, or empty."""

    def text(self) -> str:
        """One line for people, shortest first."""
        parts = [f"largest difference {self.largest:.3g}"]
        if self.count > 1:
            parts += [f"mean {self.mean:.3g}", f"{self.differing} of {self.count} elements"]
        if self.ulp is not None:
            parts.append(f"{self.ulp} ulp" if self.ulp < MAX_ULP_SHOWN else "many ulp")
        if self.nan_first or self.nan_second:
            parts.append(f"NaN {self.nan_first} -> {self.nan_second}")
        if self.infinite_first or self.infinite_second:
            parts.append(f"infinite {self.infinite_first} -> {self.infinite_second}")
        return ", ".join(parts)

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "count": self.count,
            "differing": self.differing,
            "largest": self.largest,
            "mean": self.mean,
            "where": list(self.where),
            "ulp": self.ulp,
            "nan": [self.nan_first, self.nan_second],
            "infinite": [self.infinite_first, self.infinite_second],
            "pattern": self.pattern,
        }


MAX_ULP_SHOWN: Final = 1_000_000
"""More of them say nothing to people: numbers of different size."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the two bundles do not share, apart from bytes."""

    cause: Cause
    node: str
    """The node that it is about; empty for what belongs to the pipeline."""
    part: str
    """What it is called there: an operation, a constant, a port and its field, a key path."""
    change: Change
    first: str = ""
    second: str = ""
    """As text; empty where only one bundle has it, or where the value is too large to be shown."""
    source: str = ""
    """The user's ``file:line`` that it was recorded at, where the evidence of the first bundle has it."""
    kind: str = "setting"
    """What sort of difference it is, for machines: ``port-renamed``, ``elements-reordered``, ``rate``, ...; the list is
    in ``docs/diff.md``."""
    step: Step = Step.PATCH
    """The step of the version that it asks for by itself."""
    note: str = ""
    """What else is worth knowing: how elements moved, what it means for whoever runs the bundle."""
    second_source: str = ""
    """The same line of the second bundle, where its evidence has it."""
    values: Values | None = None
    """How the values of a tensor differ, where both could be read."""
    output: str = ""
    """Of a constant: the output that hands it out as it is, by which people know it."""

    @property
    def is_told(self) -> bool:
        """Whether it is about two lists of names so long that the note stands for them: nobody compares by eye."""
        is_list = self.cause is Cause.CONTRACT and self.kind in _LISTS and self.change is Change.DIFFERS
        return is_list and bool(self.note) and len(self.first) + len(self.second) > _MAX_NAMES

    def text(self) -> str:
        """One line for people."""
        where = f"node {self.node!r}: " if self.node else ""
        notes = f"; {self.note}" if self.note and not self.is_told else ""
        return f"{where}{self.short()}{notes}{f' ({self.source})' if self.source else ''}"

    @property
    def named(self) -> str:
        """The part, and the port by which people know it."""
        return f"{self.part} (output {self.output!r})" if self.output else self.part

    def short(self) -> str:
        """As ``text``, without node, line, and a note beside what differs."""
        if self.is_told:
            return f"{self.part}: {self.note}"
        if self.first and self.second:
            return f"{self.named}: {cut(self.first)} -> {cut(self.second)}"
        if self.values is not None:
            return f"{self.named}: {self.values.text()}"
        if self.change is Change.DIFFERS:
            return f"{self.named} {self.change}"
        value = self.first or self.second
        what = "removed" if self.change is Change.ONLY_FIRST else "added"
        return f"{self.named} {what}{f': {cut(value)}' if value else ''}"

    def brief(self) -> str:
        """As ``text``, with what it means in place of both sides."""
        where = f"node {self.node!r}: " if self.node else ""
        source = self.second_source or self.source
        said = f"{self.named}: {self.note}" if self.note and self.change is Change.DIFFERS else self.short()
        return f"{where}{said}{f' ({source})' if source else ''}"

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "cause": self.cause.value,
            "kind": self.kind,
            "node": self.node,
            "part": self.part,
            "output": self.output,
            "change": self.change.value,
            "first": self.first,
            "second": self.second,
            "source": self.source,
            "second_source": self.second_source,
            "step": self.step.word,
            "note": self.note,
            "values": None if self.values is None else self.values.as_json(),
        }


REPEATS: Final = "it holds the digests of files that differ"
"""Detail of a file that is another one on account of others."""


@dataclass(frozen=True, slots=True)
class FileDifference:
    """One content file that the two bundles do not share."""

    path: str
    change: Change
    causes: tuple[Cause, ...]
    """At least one. ``BYTES`` stands alone: nothing that the bundles say of themselves explains the difference."""
    detail: str = ""

    @property
    def written_otherwise(self) -> bool:
        """Whether it is the same model, as far as can be told, in other bytes: of its own, or of the tool chain's."""
        return self.causes in ((Cause.BYTES,), (Cause.TOOL_CHAIN,)) and self.detail != REPEATS

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "path": self.path,
            "change": self.change.value,
            "causes": [cause.value for cause in self.causes],
            "detail": self.detail,
        }


def cut(text: str) -> str:
    """Text for people, not longer than they read."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
