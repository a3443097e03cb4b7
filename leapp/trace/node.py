"""One node of a session, entered once or many times, and its entries."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leapp.errors import SampleMismatchError
from leapp.trace.state import BUFFER, States, form_text, port_of

if TYPE_CHECKING:
    import weakref
    from collections.abc import Mapping, Sequence

    import torch

    from leapp._spec import BroughtModel, Port
    from leapp.trace._tree import Leaf
    from leapp.trace.recording import Recording
    from leapp.trace.source import Place


@dataclass(frozen=True)
class GivenModule:
    """A module whose buffers a node watches, in every entry from the one in which it was given."""

    model: weakref.ref[torch.nn.Module]
    names: tuple[str, ...] | None
    place: Place


@dataclass
class NodeTrace:
    """All entries of one node in a session."""

    name: str
    origin: Place
    recordings: list[Recording] = field(default_factory=list)
    """Closed entries that were recorded, at most ``max_cached_io``."""
    current: Recording | None = None
    passing: bool = False
    """Open, but not recorded any more: enough samples are kept."""
    passing_thread: tuple[int, str] = (0, "")
    """Identifier and name of the thread that opened it then."""
    entries: int = 0
    passing_inputs: dict[str, Port] = field(default_factory=dict)
    """Inputs that were declared in an entry that is not recorded."""
    passing_states: States | None = None
    """Those of an entry that is not recorded."""
    modules: list[GivenModule] = field(default_factory=list)
    export_with: Any = None
    backend_params: Mapping[str, Any] = field(default_factory=dict)
    brought: BroughtModel | None = None
    """The model that takes the place of what would be exported."""

    @property
    def is_partial(self) -> bool:
        """Whether an entry has outputs that were not recorded, as those of a brought model may be."""
        return any(entry.partial for entry in self.recordings)

    @property
    def is_open(self) -> bool:
        """Between its ``input_tensors`` and its ``output_tensors``."""
        return self.current is not None or self.passing

    @property
    def state(self) -> Mapping[str, str]:
        """State that leaves for the next tick: recorded port name -> how it was declared, ``state`` or ``module``."""
        return {state.name: state.how for state in self.recordings[0].states.updated} if self.recordings else {}

    @property
    def states(self) -> States | None:
        """The states of the entry that is open."""
        return self.current.states if self.current is not None else self.passing_states

    @property
    def draws(self) -> bool:
        """Whether its model draws random numbers and may: nothing gives the traced values again."""
        if not any(each.drew_random for each in self.recordings):
            return False
        notes = self.recordings[0].session.escapes.notes
        return not any(note.kind == "random" and note.node == self.name for note in notes)

    def place_of(self, port: str) -> Place:
        """The user's line that declares an input, by its recorded name."""
        return self.recordings[0].place_of(port)

    def check_interface(self) -> None:
        """Raise SampleMismatchError when the last entry has another interface than the first."""
        last = self.recordings[-1].graph
        assert last is not None
        self._check_ports("input", {port.name: port for port in last.spec.inputs})
        self._check_ports("output", {port.name: port for port in last.spec.outputs})

    def check_passing(self, outputs: Sequence[Leaf]) -> None:
        """The same for an entry that is not recorded; call it with hooks off."""
        states = self.passing_states.declared if self.passing_states is not None else {}
        declared = {name: state.port for name, state in states.items()}
        self._check_ports("input", {**self.passing_inputs, **declared}, recorded=False)
        self._check_ports("output", {leaf.port: port_of(leaf) for leaf in outputs}, recorded=False)

    def _check_ports(self, direction: str, new: Mapping[str, Port], *, recorded: bool = True) -> None:
        first = self.recordings[0].graph
        assert first is not None
        old = {port.name: port for port in (first.spec.inputs if direction == "input" else first.spec.outputs)}
        # Of an entry that is not recorded, what a module holds is looked at when it closes, and no order is known.
        buffers = set() if recorded else {name for name, how in self.state.items() if how == BUFFER}
        known = [name for name in old if name in new or name not in buffers]
        if known != list(new) and (recorded or set(known) != set(new)):
            raise SampleMismatchError(node=self.name, difference=f"{direction}s {list(new)} instead of {known}")
        for name, port in new.items():
            difference = _port_difference(old[name], port)
            if difference:
                raise SampleMismatchError(node=self.name, difference=f"{direction} {name!r} {difference}")


def _port_difference(before: Port, now: Port) -> str:
    """How a port of a later entry differs from the first one's, in words."""
    if before.spec != now.spec:
        return f"is {form_text(now.spec)} instead of {form_text(before.spec)}"
    for key in dict.fromkeys((*before.semantics, *now.semantics)):
        if key not in now.semantics:
            return f"lost its {key}"
        if key not in before.semantics:
            return f"got {key} = {now.semantics[key]!r}, which it did not have"
        if before.semantics[key] != now.semantics[key]:
            return f"has {key} = {now.semantics[key]!r} instead of {before.semantics[key]!r}"
    return ""


class CollectorPause:
    """Raises the threshold of Python's cyclic collector while long graphs are made; restores it, never disables it.

    Long graphs hold many objects and free none, and every young collection walks them.
    """

    THRESHOLD = 100_000

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        """Raise the threshold, once."""
        before = gc.get_threshold()
        if self._before is None and 0 < before[0] < self.THRESHOLD:
            self._before = before
            gc.set_threshold(self.THRESHOLD, *before[1:])

    def end(self) -> None:
        """Put the user's threshold back, unless the user's code has set another one meanwhile."""
        if self._before is not None and gc.get_threshold() == (self.THRESHOLD, *self._before[1:]):
            gc.set_threshold(*self._before)
        self._before = None
