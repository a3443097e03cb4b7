"""A whole pipeline played tick by tick, and compared with the traced run or with a log of ticks.

Samples prove each model by itself. What is played here proves the rest: which output feeds which input, in this tick or
the next, what everything starts with, and the order of the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from leapp.compare import compare
from leapp.errors import LeappError
from leapp.replay import FormatReport, PortTally, as_array
from leapp.report.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from leapp._spec import PipelineSpec
    from leapp.bundle.schema import Tolerances
    from leapp.pipeline.ticks import TracedTicks

    Values = Mapping[str, Any]
    Samples = Sequence[tuple[Values, Values]]

WIRING: Final = "wiring"
"""In place of a format: how the wires of the bundle fit the values of the traced run. No model is run for that."""
START: Final = "start"
FIRST_INPUT: Final = "first-input:"
_NAMED_TICKS: Final = 5
"""Of more ticks, a note says how many."""


class Manager(Protocol):
    """What plays: an ``InferenceManager``."""

    @property
    def pipeline(self) -> PipelineSpec: ...  # noqa: D102
    @property
    def outputs(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def feedback_inputs(self) -> dict[str, Any]: ...  # noqa: D102
    def run_policy(self, inputs: Values) -> dict[str, Any]: ...  # noqa: D102
    def set_input_value(self, node: str, port: str, value: Any) -> None: ...  # noqa: D102
    def reset(self) -> None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Step:
    """One tick to be played; ports as ``node/port``."""

    index: int
    inputs: Values
    """Outer inputs."""
    outputs: Values
    """What is to come out, of all nodes or of some."""
    held: Values = field(default_factory=dict)
    """What feedback inputs are to hold before the tick."""
    put: Values = field(default_factory=dict)
    """Feedback inputs that are given a value first."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"tick {self.index}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """What of a traced run can be played."""

    steps: tuple[Step, ...]
    starts: Values
    """What feedback inputs are to start with; those that copy another input are left out."""
    wires: Mapping[str, FormatReport]
    """By consuming node: whether the wires bring what the traced program handed over."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the wires are those of the traced run."""
        return all(report.ok for report in self.wires.values())


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it."""

    ticks: int
    """How many ticks were played to the end."""
    reports: Mapping[str, FormatReport]
    """By node; nodes of which nothing was compared are left out."""

    @property
    def ok(self) -> bool:
        """Whether everything agreed."""
        return all(report.ok for report in self.reports.values())


class StandIns:
    """What nodes without a model give in a replay: what they gave in the traced run at that tick."""

    def __init__(self) -> None:
        self.outputs: Values = {}

    def of(self, node: str, ports: Sequence[str]) -> Callable[[Values], dict[str, Any]]:
        """In place of a node's model."""
        return lambda _inputs: {port: self.outputs[f"{node}/{port}"] for port in ports}


# --- what can be played --------------------------------------------------------------------------------------------


def schedule(pipeline: PipelineSpec, run: TracedTicks, samples: Mapping[str, Samples]) -> Schedule:
    """Lay the samples of a traced run out as ticks of a pipeline.

    A wire must bring the very values that the program handed over. What the program handed over otherwise (it wrote a
    state between two ticks, it began a new episode) is no fault of a wire: a state is given that value, and a tick in
    which another input came from outside is left out; both are noted.

    Args:
        pipeline: as the bundle has it.
        run: which entries make a tick, and where their inputs were carried from.
        samples: inputs and outputs of each node's entries, by final port name.
    """
    return _Scheduler(pipeline, run, samples).schedule()


class _Scheduler:
    def __init__(self, pipeline: PipelineSpec, run: TracedTicks, samples: Mapping[str, Samples]) -> None:
        self._run = run
        self._samples = samples
        self._nodes = [node.name for node in pipeline.nodes]
        self._forward = _producers(pipeline.data_flow)
        self._feedback = _producers(pipeline.feedback_flow)
        self._outer = [f"{node}/{port}" for node, ports in pipeline.inputs.items() for port in ports]
        self._copied = {
            f"{node.name}/{port.name}": start.removeprefix(FIRST_INPUT)
            for node in pipeline.nodes
            for port in node.inputs
            if isinstance(start := port.semantics.get("start"), str) and start.startswith(FIRST_INPUT)
        }
        self._tallies = {
            consumer: PortTally(consumer.partition("/")[2], rtol=0.0, atol=0.0, source=producer, keep_first=True)
            for consumer, producer in {**self._forward, **self._feedback}.items()
        }
        self._ticks = [self._tick(each) for each in run.rounds]
        self._agreed: set[str] = set()
        self._parted: dict[str, list[_Parted]] = {}
        self._noted: dict[str, list[int]] = {}

    def schedule(self) -> Schedule:
        steps: list[Step] = []
        for index, tick in enumerate(self._ticks):
            follows = bool(steps) and steps[-1].index == index - 1
            step = None if tick is None else self._step(index, *tick, follows=follows)
            if step is not None:
                steps.append(step)
        for consumer, parted in self._parted.items():
            self._judge(consumer, parted)
        starts, wrong = self._starts()
        wires: dict[str, list[Any]] = {}
        for consumer, tally in (*wrong, *self._tallies.items()):
            report = tally.report()
            if report.samples:
                wires.setdefault(consumer.partition("/")[0], []).append(report)
        reports = {
            node: FormatReport(WIRING, tuple(wires.get(node, ())), error)
            for node in self._nodes
            if (error := self._missing(node)) or node in wires
        }
        return Schedule(tuple(steps), starts, reports, tuple(self._notes()))

    def _tick(self, entries: Mapping[str, int | None]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Inputs and outputs of all nodes in one round; None where it is not whole."""
        found: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for node in self._nodes:
            entry = entries.get(node)
            if entry is None or entry >= len(self._samples[node]):
                return None
            for direction, values in zip(found, self._samples[node][entry], strict=True):
                direction.update({f"{node}/{port}": value for port, value in values.items()})
        return found

    def _step(self, index: int, inputs: Values, outputs: Values, *, follows: bool) -> Step | None:
        outside = False
        for consumer, producer in self._forward.items():
            brought, traced = outputs[producer], inputs[consumer]
            if _same(brought, traced):
                self._tallies[consumer].add(brought, traced, index=index, label=f"tick {index}")
            elif self._from_outside(index, consumer) and not self._whose(traced, index):
                outside = True
                self._note(f"{consumer!r} came from outside, not from {producer!r}: not played", index)
            else:
                self._wrong(consumer, index, brought, traced)
        held: dict[str, Any] = {}
        put: dict[str, Any] = {}
        for consumer, producer in self._feedback.items():
            traced = inputs[consumer]
            before = self._ticks[index - 1] if index else None
            if index == 0:
                if consumer in self._run.declared:
                    put[consumer] = traced
                continue
            if before is None:
                put[consumer] = traced
                continue
            brought = before[1][producer]
            if not _same(brought, traced):
                put[consumer] = traced
                self._parted.setdefault(consumer, []).append(_Parted(index, brought, traced))
                continue
            if _telling(as_array(traced)):
                self._agreed.add(consumer)
            self._tallies[consumer].add(brought, traced, index=index, label=f"tick {index}")
            (held if follows else put)[consumer] = traced
        if outside:
            return None
        return Step(index, {key: inputs[key] for key in self._outer}, outputs, held, put)

    def _starts(self) -> tuple[dict[str, Any], list[tuple[str, PortTally]]]:
        """What the first entries of the nodes held, and copies of an input that were none."""
        starts: dict[str, Any] = {}
        wrong = []
        for consumer in self._feedback:
            node, _, port = consumer.partition("/")
            if consumer in self._run.declared:
                self._note(f"{consumer!r} starts otherwise than it was traced, as declared", 0)
                continue
            inputs = self._samples[node][0][0]
            if consumer not in self._copied:
                starts[consumer] = inputs[port]
            elif not _same(inputs[port], inputs[self._copied[consumer]]):
                tally = PortTally(port, rtol=0.0, atol=0.0, source=START, keep_first=True)
                hint = f"it starts as a copy of {self._copied[consumer]!r}"
                tally.add(inputs[self._copied[consumer]], inputs[port], label="entry 1", hint=hint)
                wrong.append((consumer, tally))
        return starts, wrong

    def _judge(self, consumer: str, parted: Sequence[_Parted]) -> None:
        """What a feedback wire did not bring: written by the program between two ticks, unless the wire is wrong.

        It is wrong where the values are those of another output; and where it never brought the right ones, though they
        were some output's.
        """
        origins = [self._origin(each.index, consumer) for each in parted]
        whose = [self._whose(each.traced, each.index) for each in parted]
        other = [
            found is not None and found.key == origin != self._feedback[consumer]
            for found, origin in zip(whose, origins, strict=True)
        ]
        right = consumer in self._agreed
        suspect = any(whose) or any(origins) or not self._run.known
        for each, definite in zip(parted, other, strict=True):
            if definite or (suspect and not right):
                self._wrong(consumer, each.index, each.brought, each.traced)
            else:
                unproved = "" if right else ", and no tick shows that the wire is right"
                text = f"{consumer!r} did not come from {self._feedback[consumer]!r}: given the traced value{unproved}"
                self._note(text, each.index)

    def _wrong(self, consumer: str, index: int, brought: Any, traced: Any) -> None:
        whose = self._whose(traced, index, self._origin(index, consumer))
        hint = f"at tick {index} it was traced with the value of {whose.key!r} at tick {whose.index}" if whose else ""
        self._tallies[consumer].add(brought, traced, index=index, label=f"tick {index}", hint=hint)

    def _from_outside(self, index: int, consumer: str) -> bool:
        """Whether the program gave an input a value of its own. Not at the first entry, which made the wire."""
        first = self._run.rounds[index][consumer.partition("/")[0]] == 0
        return self._run.known and not first and self._origin(index, consumer) is None

    def _missing(self, node: str) -> str:
        """A wire of the traced run that the bundle does not have; empty where all are there."""
        for entry in self._run.wires.get(node, ()):
            for port, producer in entry.items():
                if f"{node}/{port}" in self._outer:
                    return f"input {port!r} is an outer input of the bundle; in the traced run {producer!r} fed it"
        return ""

    def _origin(self, index: int, consumer: str) -> str | None:
        node, _, port = consumer.partition("/")
        entry = self._run.rounds[index][node]
        return None if entry is None else self._run.carried(node, entry, port)

    def _whose(self, value: Any, index: int, likely: str | None = None) -> _Whose | None:
        """The output, up to a tick, that gave a value; None where none did, or might have by chance.

        ``likely``: which one is asked first.
        """
        array = as_array(value)
        if not _telling(array):
            return None
        for at in range(index, -1, -1):
            tick = self._ticks[at]
            outputs = tick[1] if tick is not None else {}
            for key, other in sorted(outputs.items(), key=lambda item: item[0] != likely):
                if _same(array, other):
                    return _Whose(key, at)
        return None

    def _note(self, text: str, index: int) -> None:
        self._noted.setdefault(text, []).append(index)

    def _notes(self) -> Iterator[str]:
        for text, ticks in self._noted.items():
            yield f"{_ticks_text(ticks)}: {text}"
        partial: dict[str, list[int]] = {}
        for index, (tick, entries) in enumerate(zip(self._ticks, self._run.rounds, strict=True)):
            if tick is None and any(entry is not None for entry in entries.values()):
                missing = [node for node in self._nodes if node not in entries]
                kept = [node for node in self._nodes if node in entries and entries[node] is None]
                why = f"{_list(missing)} had no part in it" if missing else f"no sample of {_list(kept)} was kept"
                partial.setdefault(why, []).append(index)
        for why, ticks in partial.items():
            yield f"{_ticks_text(ticks)} of the traced run: not played, {why}"


@dataclass(frozen=True, slots=True)
class _Parted:
    """A tick at which a feedback wire did not bring the traced value."""

    index: int
    brought: Any
    traced: Any


@dataclass(frozen=True, slots=True)
class _Whose:
    key: str
    index: int


def _same(one: Any, other: Any) -> bool:
    return compare(as_array(one), as_array(other), rtol=0.0, atol=0.0).ok


def _producers(flow: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {consumer: producer for producer, consumers in flow.items() for consumer in consumers}


def _telling(array: Any) -> bool:
    """Whether values are such that two of them are hardly equal by chance."""
    if not array.size or array.dtype.kind == "b":
        return False
    first = array.reshape(-1)[0]
    return bool(np.any(array != first)) or float(abs(first)) not in {0.0, 1.0}


def _ticks_text(ticks: Sequence[int]) -> str:
    if len(ticks) > _NAMED_TICKS:
        return f"{len(ticks)} ticks from {ticks[0]} on"
    return f"tick{'s' if len(ticks) > 1 else ''} {', '.join(map(str, ticks))}"


def _list(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'node')} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


# --- playing -------------------------------------------------------------------------------------------------------


def compare_ticks(
    manager: Manager,
    steps: Sequence[Step],
    limits: Mapping[str, Tolerances],
    *,
    name: str,
    starts: Values | None = None,
    stand_ins: StandIns | None = None,
    to_the_end: bool = False,
) -> Played:
    """Play ticks and compare what comes out, and what is held for the next tick.

    Args:
        manager: is reset first.
        steps: one after the other.
        limits: tolerances by node; of an input, those of the node that has it.
        name: the format that is played, for reports.
        starts: what feedback inputs are to hold after a reset.
        stand_ins: told what nodes without a model give.
        to_the_end: go on after a tick that parts; else that one is the last, and of its nodes only those are reported
            whose own inputs agreed: what others give follows from them.

    Returns: a mismatch, or a node that fails, is a result and not an exception.
    """
    return _Player(manager, limits, name, stand_ins, to_the_end=to_the_end).play(steps, starts or {})


class _Player:
    def __init__(
        self,
        manager: Manager,
        limits: Mapping[str, Tolerances],
        name: str,
        stand_ins: StandIns | None,
        *,
        to_the_end: bool,
    ) -> None:
        pipeline = manager.pipeline
        self._manager = manager
        self._limits = limits
        self._name = name
        self._stand_ins = stand_ins
        self._to_the_end = to_the_end
        self._nodes = [node.name for node in pipeline.nodes]
        self._feedback = _producers(pipeline.feedback_flow)
        self._sources: dict[str, set[str]] = {node: set() for node in self._nodes}
        for consumer, producer in _producers(pipeline.data_flow).items():
            self._sources[consumer.partition("/")[0]].add(producer.partition("/")[0])
        self._tallies: dict[str, dict[tuple[str, str], PortTally]] = {node: {} for node in self._nodes}
        self._errors: dict[str, str] = {}

    def play(self, steps: Sequence[Step], starts: Values) -> Played:
        self._manager.reset()
        ticks = 0
        initial = self._manager.feedback_inputs if starts else {}
        agreed = [self._compare(key, initial[key], value, "entry 1", 0, START) for key, value in starts.items()]
        for step in steps if all(agreed) or self._to_the_end else ():
            good = self._tick(step)
            ticks += good is not None
            if good is None or not (good or self._to_the_end):
                break
        reports = {
            node: FormatReport(
                self._name, tuple(each.report() for each in tallies.values()), self._errors.get(node, "")
            )
            for node, tallies in self._tallies.items()
            if tallies or node in self._errors
        }
        return Played(ticks, reports)

    def _tick(self, step: Step) -> bool | None:
        """Whether a tick agreed; None: it could not be played to its end."""
        clouded: set[str] = set()
        if step.held:
            held = self._manager.feedback_inputs
            for key, value in step.held.items():
                if not self._compare(key, held[key], value, step.label, step.index, self._feedback[key]):
                    clouded.add(key.partition("/")[0])
        for key, value in step.put.items():
            node, _, port = key.partition("/")
            self._manager.set_input_value(node, port, value)
        if self._stand_ins is not None:
            self._stand_ins.outputs = step.outputs
        try:
            self._manager.run_policy(step.inputs)
        except LeappError as error:
            node = str(error.facts.get("node", ""))
            self._errors[node if node in self._tallies else self._nodes[0]] = f"{step.label}: {error}"
            return None
        found = self._manager.outputs
        agreed = not clouded
        by_node: dict[str, list[str]] = {}
        for key in step.outputs:
            by_node.setdefault(key.partition("/")[0], []).append(key)
        for node in self._nodes:
            if not self._to_the_end and (node in clouded or self._sources[node] & clouded):
                clouded.add(node)
                continue
            for key in by_node.get(node, ()):
                if not self._compare(key, found[key], step.outputs[key], step.label, step.index):
                    agreed = False
                    clouded.add(node)
        return agreed

    def _compare(self, key: str, actual: Any, expected: Any, label: str, index: int, source: str = "") -> bool:
        node, _, port = key.partition("/")
        tallies = self._tallies[node]
        tally = tallies.get((port, source))
        if tally is None:
            limits = self._limits[node]
            # What a pipeline starts with is stored, not computed.
            rtol, atol = (0.0, 0.0) if source == START else (limits.rtol, limits.atol)
            tally = PortTally(port, rtol=rtol, atol=atol, source=source, keep_first=True)
            tallies[port, source] = tally
        return tally.add(actual, expected, index=index, label=label).ok
