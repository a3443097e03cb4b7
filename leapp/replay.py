"""Run samples through an artifact and compare: the one check behind validation, ``leapp replay`` and the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp.compare import Difference, Statistics, Tally, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from leapp._spec import NodeSpec

RTOL = 1e-3
ATOL = 1e-5

_ROUNDING = 20.0
"""A difference of so many times what is allowed may still be rounding; a wrong computation is further off."""


@dataclass(frozen=True, slots=True)
class PortReport:
    """One port over all samples: how far the model was from the recording, and where it was furthest."""

    port: str
    samples: int
    """How many samples were replayed."""
    sample: int
    """Index of the sample that ``difference`` speaks of."""
    difference: Difference
    """The worst element of the worst sample."""
    statistics: Statistics = field(default_factory=Statistics)
    """Over all elements of all samples."""
    label: str = ""
    """What the sample is called: ``entry 2`` of the node, ``probe, entry 1`` in a second session, ``tick 3``."""
    failed: tuple[int, ...] = ()
    """Indices of the samples that are out of tolerance."""
    rtol: float = RTOL
    atol: float = ATOL
    source: str = ""
    """For an input: the ``node/port`` that feeds it, or ``start`` for its first value; empty for an output."""
    hint: str = ""
    """What else is known of the difference."""

    @property
    def ok(self) -> bool:
        """Whether every sample was within the tolerances."""
        return self.difference.ok


@dataclass(frozen=True, slots=True)
class Cause:
    """A warning that the trace issued for a node: why a check of it may have failed."""

    kind: str
    """``random``, ``escape``, ... as the notes of a session have it."""
    text: str
    """The warning in one line: what, where, and what to do about it."""


_CAUSES_AT_MOST: Final = 4


def cause_lines(causes: Sequence[Cause]) -> list[str]:
    """The likeliest causes, a line each; how many more there are in the last one."""
    lines = [each.text for each in causes[:_CAUSES_AT_MOST]]
    if len(causes) > _CAUSES_AT_MOST:
        lines.append(f"{len(causes) - _CAUSES_AT_MOST} more warnings stand in evidence/notes.json.")
    return lines


def causes_text(causes: Sequence[Cause]) -> str:
    """The same as an error begins with them; empty where there are none."""
    return "".join(f"{line}\n" for line in cause_lines(causes))


@dataclass(frozen=True, slots=True)
class FormatReport:
    """One artifact: its ports, or why it could not be run at all."""

    format: str
    ports: tuple[PortReport, ...] = ()
    error: str = ""
    note: str = ""
    """What was not compared, and why."""

    @property
    def ok(self) -> bool:
        """Whether the artifact ran and every port agreed."""
        return not self.error and all(port.ok for port in self.ports)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """All artifacts of one node; false in a boolean context, for ``compile_graph`` gives True for those that agree."""

    node: str
    formats: tuple[FormatReport, ...] = field(default_factory=tuple)
    pipeline: tuple[FormatReport, ...] = field(default_factory=tuple)
    """The node's wires and outputs when the whole pipeline was played tick by tick, in each format. Where ticks part,
    the first tick is reported, and of its nodes those whose inputs still agreed."""
    causes: tuple[Cause, ...] = ()
    """What the trace of the node warned of, the likeliest cause first."""
    explained: bool = False
    """Whether an error of its own says already what is wrong with the recording."""
    brought: bool = False
    """Whether the node's model is a file that the user brought, and what was recorded is the function beside it."""

    @property
    def ok(self) -> bool:
        """Whether every artifact agreed, alone and in the pipeline."""
        return all(each.ok for each in (*self.formats, *self.pipeline))

    def __bool__(self) -> bool:
        return False

    def lines(self) -> list[str]:
        """What is wrong: what the trace warned of, a line per failing port or format, and what to do about it."""
        found = cause_lines(self._likely())
        for each in self.formats:
            if each.error:
                found.append(f"{self.node} ({each.format}): {each.error}")
            found.extend(f"{self.node} ({each.format}): {describe(port)}" for port in each.ports if not port.ok)
        for each in self.pipeline:
            name = f"{self.node} (whole pipeline, {each.format})"
            if each.error:
                found.append(f"{name}: {each.error}")
            found.extend(f"{name}: {describe(port)}" for port in each.ports if not port.ok)
        return [*found, *self.advice()]

    def _likely(self) -> Sequence[Cause]:
        """What may be why a check failed; a model that gives its own samples froze nothing."""
        if self.explained or self.ok:
            return ()
        if any(not port.ok for each in self.formats for port in each.ports):
            return self.causes
        if any(not port.ok for each in self.pipeline for port in each.ports):
            return [each for each in self.causes if each.kind in {"random", "hidden-state"}]
        return ()

    def advice(self) -> list[str]:
        """What the failures have in common, and what to do about it; empty where nothing failed."""
        ports = [(each, port) for each in self.formats for port in each.ports if not port.ok]
        if self.explained:
            return []
        if not ports:
            return self._pipeline_advice()
        agreeing = [each.format for each in self.formats if each.ok]
        first_agrees = all(port.failed and 0 not in port.failed for _, port in ports)
        if all(port.statistics.nan_model > port.statistics.nan_recorded for _, port in ports):
            said = (
                "The model gives NaN where the code gave numbers: look for 0/0, sqrt or log of what rounds below zero"
            )
        elif any(each.kind == "random" for each in self.causes):
            said = (
                "Random numbers are no rounding, and wider tolerances would only hide them: no model gives again what "
                "was drawn while recording; do what the warning of the draw says"
            )
        elif all(_may_be_rounding(port) for _, port in ports):
            said = (
                "That may be rounding: if it is good enough, raise rtol and atol (of compile_graph(), or in "
                f"[nodes.{self.node}] of the manifest); else compute the step in float64, or in another order"
            )
        elif self.brought:
            said = (
                "The function's body and the model file that the node brings compute different values; the file "
                "is what runs. Let the body compute what the file does (inputs may be prepared otherwise), or bring "
                "the file that belongs to it"
            )
        elif first_agrees:
            said = (
                "The first entry agrees and a later one does not: a value of the first entry was frozen into the "
                "model. Declare it as an input or as state; the warnings of the trace name candidates"
            )
        elif agreeing:
            said = f"The recording is right, since {', '.join(agreeing)} agrees: export this node in that format"
        elif len({each.format for each in self.formats}) == 1:
            said = (
                "Either the recording is not what the code computed (look for random numbers, memory that carries "
                f"values between entries, and the warnings of the trace), or {self.formats[0].format} computes it "
                "otherwise: a second format tells which"
            )
        else:
            said = (
                "Every format is off, so the recording is not what the code computed: look for random numbers, "
                "memory that carries values between entries, and the warnings of the trace"
            )
        return [f"{self.node}: {said}."]

    def _pipeline_advice(self) -> list[str]:
        ports = [port for each in self.pipeline for port in each.ports if not port.ok]
        if not ports:
            return []
        if any(port.source == "start" for port in ports):
            said = (
                "It starts with another value than the traced run did: say how it starts in "
                f"[nodes.{self.node}.state] of the manifest, or build again"
            )
        elif any(port.source for port in ports):
            said = (
                "The exported wire brings another value than the traced program handed over: hand over the very output "
                "(a copy will do), of the tick before where it is fed back; or declare what is kept longer as state"
            )
        else:
            said = (
                "The model gives its own samples and not these values: what it is fed differs by less than the "
                "tolerances and grows from tick to tick, or it answers to differences that small; compute in float64, "
                "or raise rtol and atol"
            )
        return [f"{self.node}: {said}."]


def _may_be_rounding(port: PortReport) -> bool:
    found = port.difference
    return not found.note and found.allowed > 0 and found.apart <= _ROUNDING * found.allowed


def describe(port: PortReport) -> str:
    """A port's report in words: the worst element, and how the others do."""
    found, stats = port.difference, port.statistics
    name = f"output {port.port!r}"
    if port.source:
        name = f"input {port.port!r} ({'its start' if port.source == 'start' else f'fed by {port.source}'})"
    where = port.label or f"sample {port.sample}"
    values = values_text(found.expected, found.actual, source=port.source)
    if found.note:
        return f"{name}: {where}: {found.note}: {values}"
    if found.where is None:
        return f"{name}: equal"
    text = (
        f"{name}: element {list(found.where)} of {where}: {values}: "
        f"apart by {found.apart:.3g}, allowed {found.allowed:.3g}"
    )
    if found.allowed:
        text += f" (atol {port.atol:g} + rtol {port.rtol:g} x |recorded|)"
    return "; ".join(filter(None, (text, summary(stats) if stats.elements else "", port.hint)))


def values_text(expected: str, actual: str, *, source: str = "") -> str:
    """Both values of an element."""
    return f"recorded {expected}, {'the pipeline brings' if source else 'the model gives'} {actual}"


def summary(stats: Statistics) -> str:
    """Statistics in one line."""
    text = f"{stats.beyond} of {stats.elements} elements out of tolerance"
    if stats.largest:
        text += (
            f", largest difference {stats.largest:.2g}, mean {stats.mean:.2g}, "
            f"50% {stats.p50:.2g}, 95% {stats.p95:.2g}, 99% {stats.p99:.2g}"
        )
    for kind, recorded, model in (
        ("NaN", stats.nan_recorded, stats.nan_model),
        ("infinite", stats.inf_recorded, stats.inf_model),
    ):
        if recorded or model:
            text += f", {kind}: {recorded} recorded, {model} in the model"
    return text


DRAWS: Final = "it draws random numbers: only dtypes and shapes were compared"
"""``FormatReport.note`` of a model whose values no second run gives again."""


class PortTally:
    """One port, sample by sample; small however many there are."""

    def __init__(self, port: str, *, rtol: float, atol: float, source: str = "", keep_first: bool = False) -> None:
        """``keep_first``: report the first sample that is out of tolerance; else the worst one."""
        self.port = port
        self._limits = rtol, atol
        self._source = source
        self._keep_first = keep_first
        self._hint = ""
        self._tally = Tally()
        self._samples = 0
        self._worst: tuple[int, str, Difference] = (0, "", Difference(True, 0.0, None))
        self._failed: list[int] = []

    def add(
        self, actual: Any, expected: Any, *, index: int | None = None, label: str = "", hint: str = ""
    ) -> Difference:
        """Compare one sample of the port: tensors or arrays. ``index``: which one it is, where some are left out."""
        index = self._samples if index is None else index
        rtol, atol = self._limits
        found = compare(as_array(actual), as_array(expected), rtol=rtol, atol=atol, tally=self._tally)
        settled = self._keep_first and self._failed
        if self._samples == 0 or (found.further_than(self._worst[2]) and not settled):
            self._worst = index, label, found
        self._hint = self._hint or hint
        if not found.ok:
            self._failed.append(index)
        self._samples += 1
        return found

    def add_form(self, actual: Any, expected: Any, *, label: str = "") -> Difference:
        """Compare dtype and shape of one sample, and no values."""
        ours, theirs = as_array(actual), as_array(expected)
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return self.add(ours, theirs, label=label)
        self._samples += 1
        return Difference(True, 0.0, None)

    def report(self) -> PortReport:
        """What was found so far."""
        index, label, found = self._worst
        return PortReport(
            self.port,
            self._samples,
            index,
            found,
            self._tally.statistics(),
            label,
            tuple(self._failed),
            *self._limits,
            self._source,
            self._hint if self._failed else "",
        )


def replay(
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    spec: NodeSpec,
    samples: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    *,
    rtol: float = RTOL,
    atol: float = ATOL,
    labels: Sequence[str] = (),
    draws: bool = False,
) -> tuple[PortReport, ...]:
    """Run each sample and compare every output element by element.

    Args: run: an artifact by port name. samples: (inputs, outputs) by port name, at least one; tensors or arrays.
        atol: in the output's own unit. labels: what messages call the samples; by default entries of the node,
        counted from 1. draws: the model draws random numbers; only dtypes and shapes are compared.
    Returns: one row per port. A mismatch is a result, not an exception.
    """
    tallies = [PortTally(port.name, rtol=rtol, atol=atol) for port in spec.outputs]
    for label, (inputs, outputs) in zip(labels or sample_labels(len(samples)), samples, strict=True):
        results = run(inputs)
        for tally in tallies:
            add = tally.add_form if draws else tally.add
            add(results[tally.port], outputs[tally.port], label=label)
    return tuple(tally.report() for tally in tallies)


def sample_labels(entries: int, resets: int = 0, *, prefix: str = "") -> list[str]:
    """What messages call the samples of a node: its entries, counted from 1, then those that try its reset input."""
    return [f"{prefix}entry {index + 1}" for index in range(entries)] + [
        f"reset {index + 1}" if index else "reset" for index in range(resets)
    ]


def as_array(value: Any) -> npt.NDArray[Any]:
    """A tensor or array as a NumPy array; bfloat16, which NumPy lacks, widens to float32 without loss."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        value = value.numpy()
    array: npt.NDArray[Any] = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
