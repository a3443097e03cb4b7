"""How state and feedback inputs start: as declared, else as two sessions show it. Pure: no tensors, no files.

An input that an output feeds back has no value at the first tick of a runtime. What it was traced with is one value of
one run; whether that value is meant, or was a copy of another input, only a second run on other data can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from leapp._spec import NodeSpec, PipelineSpec, Start, StartKind
from leapp.errors import ResetPortError, StartNameError, StartPortError
from leapp.manifest.problems import did_you_mean, key_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leapp._spec import JSON, Port
    from leapp.pipeline.wiring import PortNames

FIELD: Final = "start"
"""Of a port, in its semantics; only where another input is copied. Zeros and constants stand in the initial values."""


class Stored(Protocol):
    """A value as dtype name, shape and bytes."""

    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def data(self) -> bytes: ...  # noqa: D102


def _as_shown(*key: str) -> str:
    return ".".join(key)


@dataclass(frozen=True)
class StartRules:
    """What is said about starts before a session's values are looked at; nothing, in a plain script."""

    declared: Mapping[str, Mapping[str, Start]] = field(default_factory=dict)
    """By node and port; recorded and final port names both count."""
    resets: Mapping[str, str] = field(default_factory=dict)
    """Reset input that the manifest asks for, by node."""
    where: Callable[..., str] = _as_shown
    """Place of a key of the manifest, for messages."""
    told: Mapping[str, Start] | None = None
    """By ``node/port``, final names: what two sessions showed. None: they have not been compared."""
    scripted: Mapping[str, str] = field(default_factory=dict)
    """By ``node/port``: the input whose very value the script handed in as the state's; final names."""
    not_updated: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """States that the script declared and never updated, by node; recorded names."""
    guess: bool = False
    """Take a start that equals exactly one other input for a copy of it; a second session will be the judge."""

    def reset_of(self, node: str, backend_params: Mapping[str, Any]) -> tuple[str, str] | None:
        """The reset input that a node is to have, and where that is said; the manifest wins over the script."""
        port = self.resets.get(node)
        if port is not None:
            return port, self.where("nodes", node, "reset")
        port = backend_params.get("reset_port")
        return None if port is None else (port, 'backend_params["reset_port"]')


@dataclass(frozen=True, slots=True)
class Started:
    """How one input starts, and how that is known."""

    start: Start
    how: str
    """``declared``, ``scripted``, ``told`` by what it was equal to, or ``traced``."""
    note: str = ""
    """What people should know of it; usually nothing."""

    @property
    def otherwise(self) -> bool:
        """Whether it is declared to start with another value than it was traced with."""
        return self.how == "declared" and bool(self.note)


# --- which inputs ----------------------------------------------------------------------------------------------------


def fed_back(pipeline: PipelineSpec) -> dict[str, str]:
    """Input ports that start some way -> the output that feeds them from then on, both as ``node/port``."""
    return {consumer: producer for producer, each in pipeline.feedback_flow.items() for consumer in each}


def own_states(pipeline: PipelineSpec, node: str) -> tuple[str, ...]:
    """Ports of a node's state: inputs that its own outputs feed back, in positional order."""
    fed = fed_back(pipeline)
    (spec,) = (each for each in pipeline.nodes if each.name == node)
    return tuple(
        port.name
        for port in spec.inputs
        if (producer := fed.get(f"{node}/{port.name}")) is not None and producer.partition("/")[0] == node
    )


# --- what two sessions show ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What one session, or some of them together, showed of a value at the first tick."""

    zero: bool
    same: bool
    like: tuple[str, ...] = ()
    """Inputs of its node that held the very same value in each of the sessions."""

    def together(self, other: Seen) -> Seen:
        """What both showings leave."""
        like = tuple(port for port in self.like if port in other.like)
        return Seen(self.zero and other.zero, self.same and other.same, like)

    def start(self) -> Start | None:
        """The one way to start that fits; None: it is not one of the three, or could be several copies."""
        if self.zero:
            return Start(StartKind.ZEROS)
        if self.same:
            return Start(StartKind.CONSTANT)
        return Start(StartKind.FIRST_INPUT, self.like[0]) if len(self.like) == 1 else None


def seen(port: str, others: Sequence[str], sessions: Sequence[Mapping[str, Stored]]) -> Seen:
    """Look at the first inputs of a node in one or more sessions.

    Args:
        port: the input that starts.
        others: inputs of the same node that it may be a copy of.
        sessions: the node's inputs at its first entry, by port.
    """
    values = [_form(inputs[port]) for inputs in sessions]
    like = tuple(
        other
        for other in others
        if all(
            other in inputs and _form(inputs[other]) == value for inputs, value in zip(sessions, values, strict=True)
        )
    )
    return Seen(all(not any(data) for _, _, data in values), all(each == values[0] for each in values), like)


def _form(value: Stored) -> tuple[str, tuple[int, ...], bytes]:
    return value.dtype, tuple(value.shape), value.data


# --- the decision ----------------------------------------------------------------------------------------------------


def decide(
    rules: StartRules,
    pipeline: PipelineSpec,
    names: Mapping[str, PortNames],
    first: Mapping[str, Mapping[str, Stored]],
) -> dict[str, Started]:
    """How every input that is fed back starts, by ``node/port``.

    Args:
        rules: what is declared, and what was told before.
        pipeline: with final port names.
        names: recorded -> final port names, by node.
        first: inputs of the first entry by node and final port name, of nodes that have such an input.

    Raises:
        StartNameError: a declaration for what is no input that is fed back.
        StartPortError: a declared copy of an input that does not exist, is fed back itself, or has another form.
    """
    declared = _declared(rules, pipeline, names)
    started: dict[str, Started] = {}
    for consumer in sorted(fed_back(pipeline)):
        node, _, port = consumer.partition("/")
        (spec,) = (each for each in pipeline.nodes if each.name == node)
        sources = copied_from(pipeline, spec, port)
        shown = seen(port, sources, [first[node]])
        scripted = rules.scripted.get(consumer)
        if consumer not in declared and scripted in sources:
            started[consumer] = Started(Start(StartKind.FIRST_INPUT, scripted), "scripted")
        else:
            started[consumer] = _started(consumer, declared.get(consumer), shown, rules)
    return started


def _started(consumer: str, declared: Start | None, shown: Seen, rules: StartRules) -> Started:
    node, _, port = consumer.partition("/")
    who = f"Input {port!r} of node {node!r}"
    if declared is not None:
        note = ""
        if declared.kind is StartKind.ZEROS and not shown.zero:
            note = f"{who} starts with zeros, as declared; it was traced with other values"
        elif declared.kind is StartKind.FIRST_INPUT and declared.port not in shown.like:
            note = f"{who} starts as a copy of {declared.port!r}, as declared; it was traced with other values"
        return Started(declared, "declared", note)
    if rules.told is not None:
        start, how = rules.told.get(consumer, Start(StartKind.CONSTANT)), "told"
    elif rules.guess and not shown.zero and len(shown.like) == 1:
        start, how = Start(StartKind.FIRST_INPUT, shown.like[0]), "told"
    else:
        start, how = Start(StartKind.ZEROS if shown.zero else StartKind.CONSTANT), "traced"
    note = ""
    if start.kind is StartKind.FIRST_INPUT:
        note = f"{who} starts as a copy of {start.port!r}, whose value it had at the first tick"
    return Started(start, how, note)


def copied_from(pipeline: PipelineSpec, spec: NodeSpec, port: str) -> tuple[str, ...]:
    """Inputs of a node that one of its inputs may start as a copy of: of its form, and not fed back themselves."""
    fed = fed_back(pipeline)
    (form,) = (each.spec for each in spec.inputs if each.name == port)
    return tuple(each.name for each in spec.inputs if each.spec == form and f"{spec.name}/{each.name}" not in fed)


def _declared(rules: StartRules, pipeline: PipelineSpec, names: Mapping[str, PortNames]) -> dict[str, Start]:
    """The manifest's declarations under final names."""
    fed = fed_back(pipeline)
    specs = {spec.name: spec for spec in pipeline.nodes}
    found: dict[str, Start] = {}
    for node, given in rules.declared.items():
        if node not in specs:  # an unknown node has an error of its own
            continue
        recorded = {final: name for name, final in names[node].inputs.items()}
        for name, start in given.items():
            where = rules.where("nodes", node, "state", name)
            port = names[node].inputs.get(name, name)
            if f"{node}/{port}" not in fed:
                states = [recorded[each.name] for each in specs[node].inputs if f"{node}/{each.name}" in fed]
                if recorded.get(port) in rules.not_updated.get(node, ()):
                    raise _not_updated_state(where, node, name)
                raise _unknown_state(where, specs[node], name, states, is_input=port in recorded)
            if f"{node}/{port}" in found:
                raise StartNameError(
                    where=where, node=node, name=name, why=f"; it is {recorded[port]!r}, which has a start already",
                    advice="Keep one of the two lines",
                )  # fmt: skip
            if start.kind is StartKind.FIRST_INPUT:
                start = Start(start.kind, names[node].inputs.get(start.port, start.port))  # noqa: PLW2901
                _check_copy(where, pipeline, specs[node], port, start.port, recorded)
            found[f"{node}/{port}"] = start
    return found


def _not_updated_state(where: str, node: str, name: str) -> StartNameError:
    return StartNameError(
        where=where, node=node, name=name, why="; it was declared with annotate.state_tensors() and never updated",
        advice=f"Call annotate.update_state({node!r}, {{{name!r}: next value}}) before annotate.output_tensors()",
    )  # fmt: skip


def _unknown_state(where: str, spec: NodeSpec, name: str, states: Sequence[str], *, is_input: bool) -> StartNameError:
    known = f"It has: {', '.join(states)}" if states else "It has none: declare one with annotate.state_tensors()"
    known = ("" if is_input else did_you_mean(name, states)) + known
    return StartNameError(
        where=where, node=spec.name, name=name, advice=known,
        why="; it is an input that no output feeds back, and needs no start" if is_input else "",
    )  # fmt: skip


def _check_copy(
    where: str, pipeline: PipelineSpec, spec: NodeSpec, port: str, source: str, recorded: Mapping[str, str]
) -> None:
    possible = copied_from(pipeline, spec, port)
    if source in possible:
        return
    ports = {each.name: each for each in spec.inputs}
    if source not in ports:
        why = "the node has no such input"
    elif f"{spec.name}/{source}" in fed_back(pipeline):
        why = "it is fed back itself, and has no value then"
    else:
        why = f"it is {_shown(ports[source])}, and the state is {_shown(ports[port])}"
    listed = ", ".join(recorded[each] for each in possible)
    advice = f"It can start as a copy of: {listed}" if listed else 'No input has its form: use "zeros" or "constant"'
    raise StartPortError(
        where=where, node=spec.name, name=recorded[port], port=recorded.get(source, source), why=why, advice=advice
    )  # fmt: skip


def _shown(port: Port) -> str:
    return f"{port.spec.dtype}{list(port.spec.shape)}"


# --- what becomes of it ----------------------------------------------------------------------------------------------


def marked(pipeline: PipelineSpec, started: Mapping[str, Started]) -> PipelineSpec:
    """The pipeline with ``start`` in the ports that begin as a copy of another one."""

    def mark(node: str, port: Port) -> Port:
        found = started.get(f"{node}/{port.name}")
        if found is None or found.start.kind is not StartKind.FIRST_INPUT:
            return port
        return replace(port, semantics={**port.semantics, FIELD: str(found.start)})

    nodes = tuple(replace(spec, inputs=tuple(mark(spec.name, port) for port in spec.inputs)) for spec in pipeline.nodes)
    return replace(pipeline, nodes=nodes)


def recorded_starts(contract: Mapping[str, Any]) -> dict[str, str]:
    """What a runtime file says of starts, by ``node/port``, in the form that ``StartRules.told`` is made from."""
    ports = {
        f"{node}/{port['name']}": port.get(FIELD, str(StartKind.CONSTANT))
        for node, model in contract["models"].items()
        for port in model["inputs"]
    }
    flow = contract["pipeline"]["feedback_flow"] or {}
    return {consumer: ports[consumer] for consumers in flow.values() for consumer in consumers}


def check_reset(
    pipeline: PipelineSpec, names: PortNames, node: str, port: str, where: str, *, brought: bool
) -> tuple[str, ...]:
    """The states that a reset input of a node sets. Raises ResetPortError where the node cannot have that input."""
    (spec,) = (each for each in pipeline.nodes if each.name == node)
    states = own_states(pipeline, node)
    taken = {*names.inputs, *names.inputs.values(), *names.outputs, *names.outputs.values()}
    if brought:
        why, advice = "a model that is brought along is not rewritten", "Leave it out, or give that model such an input"
    elif port in taken:
        why, advice = "a port of the node has that name", f"Choose another one; taken: {', '.join(sorted(taken))}"
    elif not states:
        others = [each.name for each in spec.inputs if f"{node}/{each.name}" in fed_back(pipeline)]
        why = "it has no state of its own" + (f"; {', '.join(others)} is fed by another node" if others else "")
        advice = "Declare state with annotate.state_tensors() or annotate.module(), or leave the reset input out"
    else:
        return states
    raise ResetPortError(node=node, port=port, where=where, why=why, advice=advice)


def with_input(pipeline: PipelineSpec, node: str, port: Port) -> PipelineSpec:
    """The pipeline with one more outer input, the last one of its node."""
    nodes = tuple(replace(spec, inputs=(*spec.inputs, port)) if spec.name == node else spec for spec in pipeline.nodes)
    inputs = {**pipeline.inputs, node: (*pipeline.inputs.get(node, ()), port.name)}
    return replace(pipeline, nodes=nodes, inputs=dict(sorted(inputs.items())))


# --- the verdict of a build ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """What the first session and one other showed of one input that is fed back."""

    port: str
    """``node/port``, final names."""
    name: str
    """The port as it was recorded."""
    seen: Seen
    sources: tuple[str, ...]
    """Inputs of its form that it could be a copy of."""
    largest: float | None
    """The largest difference between its two values; None where that is no number."""
    declared: bool
    """The manifest or the script says how it starts: what was seen decides nothing."""

    def as_json(self) -> dict[str, JSON]:
        """For evidence, and on the way from a session to its build."""
        return {
            "port": self.port,
            "name": self.name,
            "zero": self.seen.zero,
            "same": self.seen.same,
            "like": list(self.seen.like),
            "sources": list(self.sources),
            "largest": self.largest,
            "declared": self.declared,
        }

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Shown:
        """What ``as_json`` gave."""
        shown = Seen(fields["zero"], fields["same"], tuple(fields["like"]))
        return cls(
            fields["port"], fields["name"], shown, tuple(fields["sources"]), fields["largest"], fields["declared"]
        )


def settled(runs: Sequence[Sequence[Shown]]) -> tuple[dict[str, Start], list[str]]:
    """What all second sessions together tell.

    Returns: how each input that nothing is declared for starts, by ``node/port``; and a text for each that starts in
        none of the three ways.
    """
    together: dict[str, Shown] = {}
    for each in (each for run in runs for each in run if not each.declared):
        before = together.get(each.port, each)
        largest = None if each.largest is None or before.largest is None else max(each.largest, before.largest)
        together[each.port] = replace(each, seen=before.seen.together(each.seen), largest=largest)
    starts: dict[str, Start] = {}
    texts = []
    for port, each in sorted(together.items()):
        start = each.seen.start()
        if start is None:
            texts.append(unsettled(port.partition("/")[0], each.name, each.seen, each.sources, each.largest))
        else:
            starts[port] = start
    return starts, texts


def other_starts(contract: Mapping[str, Any], starts: Mapping[str, Start]) -> dict[str, str] | None:
    """What a bundle has to be made with again, where it lets an input start otherwise than was found; else None."""
    known = recorded_starts(contract)
    # Zeros and constants are both values that the bundle holds.
    found = {
        port: str(start) if start.kind is StartKind.FIRST_INPUT else str(StartKind.CONSTANT)
        for port, start in starts.items()
    }
    return None if all(known[port] == text for port, text in found.items()) else {**known, **found}


# --- what people read ------------------------------------------------------------------------------------------------


def unsettled(node: str, name: str, shown: Seen, sources: Sequence[str], largest: float | None) -> str:
    """Why two sessions do not tell how an input starts, with the lines of a manifest that would.

    Args:
        node: name of the node.
        name: the input as it was recorded.
        shown: what the sessions showed.
        sources: inputs that it may be a copy of.
        largest: the largest difference between its values; None where that is no number.
    """
    change = "" if largest is None else f", largest difference {largest:.3g}"
    what = f"node {node!r}: {name!r} starts with another value in each run{change}"
    if shown.like:
        what += f"; in each it was equal to several inputs: {', '.join(shown.like)}"
    key = key_text((name,))
    lines = [f'{key} = "{StartKind.ZEROS}"', f'{key} = "{StartKind.CONSTANT}"  # the value of the first run']
    for source in shown.like or sources or ("PORT",):
        of_form = "" if shown.like or sources else "; none has its form yet"
        lines.append(f'{key} = "{StartKind.FIRST_INPUT}:{source}"  # a copy of an input{of_form}')
    table = f"[{key_text(('nodes', node, 'state'))}]"
    return "\n".join(
        [f"{what}; say how it starts, with one of these lines:", f"  {table}", *(f"  {each}" for each in lines)]
    )


def notes(started: Mapping[str, Started]) -> list[dict[str, JSON]]:
    """For evidence: every start, and how it is known."""
    return [
        {"port": port, "start": str(each.start), "how": each.how, "note": each.note}
        for port, each in sorted(started.items())
    ]
