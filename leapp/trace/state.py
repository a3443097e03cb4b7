"""State of a node: what it carries from one tick to the next, as the user declared it.

A state is an input port now and, once its next value was given, an output port of the same name. One entry of a node
has one ``States``; it is kept as well for entries that are not recorded any more, so that they are held to the same
rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp import _dtypes
from leapp._spec import Port, TensorSpec
from leapp.errors import (
    SemanticsFormError,
    StateFormError,
    StateKindError,
    StateNameError,
    StateUpdatedTwiceError,
    UnknownStateError,
)
from leapp.semantics import TensorSemantics
from leapp.trace._arrays import is_array
from leapp.trace._tree import Leaf, check_name, described_ports, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from leapp._spec import JSON
    from leapp.trace.source import Place

DECLARED: Final = "state"
"""How a state is declared: with ``annotate.state_tensors``."""
BUFFER: Final = "module"
"""How a state is declared: as a registered buffer of a module, with ``annotate.module``."""


def flat_states(node: str, tensors: Any, is_port: Callable[[Any], bool], where: str) -> list[Leaf]:
    """The states of a mapping, name by name, or of TensorSemantics.

    Raises StateKindError for what is no tensor or array by itself, SemanticsFormError for TensorSemantics in a mapping,
    and what ``TensorSemantics`` raises for facts that do not fit.
    """
    described = described_ports(node, "state", tensors)
    if described is not None:
        tensors = {each.name: each.ref for each in described}
        if len(tensors) < len(described):
            names = [each.name for each in described]
            twice = next(each for each in names if names.count(each) > 1)
            raise StateNameError(node=node, state=twice, where=where, why="it is given twice")
    if not isinstance(tensors, Mapping):
        raise StateKindError(node=node, state="?", kind=type(tensors).__name__, where=where)
    leaves = []
    for name, thing in tensors.items():
        check_name("state", str(name))
        if isinstance(thing, TensorSemantics):
            why = f"state {name!r} is a TensorSemantics inside a dict"
            raise SemanticsFormError(node=node, direction="state", why=why)
        if not is_port(thing):
            raise StateKindError(node=node, state=str(name), kind=type(thing).__name__, where=where)
        leaves.append(Leaf(str(name), f"[{name!r}]", thing))
    if described is None:
        return leaves
    facts = (facts_of(node, each, leaf) for each, leaf in zip(described, leaves, strict=True))
    return [leaf._replace(semantics=said) for leaf, said in zip(leaves, facts, strict=True)]


@dataclass
class State:
    """One declared state in one entry."""

    name: str
    how: str
    place: Place
    spec: TensorSpec
    order: int
    next: Leaf | None = None
    """What it is at the next tick; None until it was updated."""
    updated: Place | None = None
    start_input: str | None = None
    """The input port that it starts from, where the user handed in that very input; None for a value of its own."""
    semantics: Mapping[str, JSON] = field(default_factory=dict)
    """What it means; its next value means the same where nothing else is said of that."""

    @property
    def port(self) -> Port:
        """The input port that it is."""
        return Port(self.name, self.spec, self.semantics)


class States:
    """The declared states of one entry of a node, in order of declaration."""

    def __init__(self, node: str, where: Callable[[Place], str]) -> None:
        self._node = node
        self._where = where
        self.declared: dict[str, State] = {}
        self._order = 0

    def next_order(self) -> int:
        """The place of the next state among all, from 1."""
        self._order += 1
        return self._order

    def check_new(self, leaves: Sequence[Leaf], place: Place) -> None:
        """Raise StateNameError when one of the names is a state already."""
        for leaf in leaves:
            known = self.declared.get(leaf.port)
            if known is not None:
                raise StateNameError(
                    node=self._node, state=leaf.port, where=self._where(place),
                    why=f"it was declared already at {self._where(known.place)}",
                )  # fmt: skip

    def declare(
        self,
        leaves: Sequence[Leaf],
        orders: Sequence[int],
        place: Place,
        start_inputs: Mapping[str, str] | None = None,
    ) -> None:
        """Note states with their values of this tick, their places among all, and the inputs that some start from."""
        starts = start_inputs or {}
        for leaf, order in zip(leaves, orders, strict=True):
            start, form = starts.get(leaf.port), form_of(leaf.tensor)
            self.declared[leaf.port] = State(
                leaf.port, DECLARED, place, form, order, start_input=start, semantics=leaf.semantics
            )

    def add_buffer(self, name: str, spec: TensorSpec, order: int, following: Leaf, place: Place) -> None:
        """Note a registered buffer that changed."""
        self.declared[name] = State(name, BUFFER, place, spec, order, following, place)

    def update(self, leaves: Sequence[Leaf], place: Place) -> None:
        """Note next values. Raises UnknownStateError, StateUpdatedTwiceError, StateFormError; then nothing is noted."""
        for leaf in leaves:
            state = self.declared.get(leaf.port)
            if state is None:
                known = ", ".join(map(repr, self.declared)) or "none"
                raise UnknownStateError(node=self._node, state=leaf.port, where=self._where(place), known=known)
            if state.updated is not None:
                raise StateUpdatedTwiceError(
                    node=self._node, state=leaf.port, first=self._where(state.updated), second=self._where(place)
                )
            form = form_of(leaf.tensor)
            if form != state.spec:
                raise StateFormError(
                    node=self._node, state=leaf.port, old=form_text(state.spec), new=form_text(form),
                    declared=self._where(state.place), where=self._where(place),
                )  # fmt: skip
        for leaf in leaves:
            state = self.declared[leaf.port]
            state.next, state.updated = leaf._replace(semantics=leaf.semantics or state.semantics), place

    @property
    def updated(self) -> list[State]:
        """Those whose next value is known, in order of declaration."""
        return sorted((each for each in self.declared.values() if each.next is not None), key=lambda each: each.order)

    def next_values(self) -> list[Leaf]:
        """What leaves the node for the next tick, in order of declaration."""
        return [state.next for state in self.updated if state.next is not None]

    def check_outputs(self, outputs: Collection[str], place: Place) -> None:
        """Raise StateNameError when an ordinary output has the name of an updated state."""
        for state in self.updated:
            if state.name in outputs:
                raise StateNameError(
                    node=self._node, state=state.name, where=self._where(place),
                    why="an output has the same name, and an updated state is an output port itself",
                )  # fmt: skip


def port_of(leaf: Leaf) -> Port:
    """The port that a tensor or array is; call it with hooks off."""
    return Port(leaf.port, form_of(leaf.tensor), leaf.semantics)


def form_text(spec: TensorSpec) -> str:
    """Dtype and shape as messages show them."""
    return f"{spec.dtype}{list(spec.shape)}"


def form_of(thing: Any) -> TensorSpec:
    """Dtype name and shape of a tensor, an array or a scalar of NumPy; the values are not touched."""
    name = thing.dtype.name if is_array(thing) else _dtypes.name_of(thing.dtype)
    return TensorSpec(name, tuple(thing.shape))
