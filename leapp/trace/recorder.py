"""The owner of one ``fx.Graph``: placeholders, calls, constants, and what is erased at the end.

It knows no tensor type. Memory is a number: values with the same number alias each other.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import fx

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from leapp.trace.source import Place

# An argument of such a name would hide what generated code refers to; it never reads from the console.
_MEANT: Final = frozenset(
    "self torch operator math inf nan NoneType device fx_pytree pytree collections annotate".split()
).union(dir(builtins)) - {"input"}

NO_MEMORY = 0
"""Memory number of values that alias nothing (scalars, tuples)."""


class OpInfo(NamedTuple):
    """What the recorder keeps beside a graph node; none of it is stored in ``node.meta``."""

    place: Place | None
    memory: int
    """Which memory the result sees."""
    written: tuple[int, ...]
    """Which memories the call writes."""
    dtype: Any
    shape: Any


def identifier(name: str) -> str:
    """A Python identifier for generated code, as close to ``name`` as possible."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not text or text[0].isdigit():
        text = f"_{text}"
    return f"{text}_" if keyword.iskeyword(text) or text in _MEANT else text


def free_name(base: str, taken: Container[str]) -> str:
    """``base``, or the first of ``base_1``, ``base_2``, ... that is not taken."""
    name, count = base, 1
    while name in taken:
        name = f"{base}_{count}"
        count += 1
    return name


class Recorder:
    """One recording in progress."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.info: dict[fx.Node, OpInfo] = {}
        self.order: dict[fx.Node, int] = {}
        """Place of every node that was ever recorded, erased ones counted; filled by ``finish``."""
        self.laid_out: dict[fx.Node, tuple[int, ...]] = {}
        """Order of the axes in memory, the slowest first, of what a view was taken of that only this order allows."""
        self._memories = NO_MEMORY
        self._inputs: dict[str, None] = {}
        self._last_input: fx.Node | None = None
        self._last_state: fx.Node | None = None
        # Bound once: two attribute look-ups per recorded op are measurable.
        self._create = self.graph.create_node

    def new_memory(self) -> int:
        """A number for memory that was not seen before."""
        self._memories += 1
        return self._memories

    def placeholder(self, port: str, *, memory: int, dtype: Any, shape: Any, state: bool = False) -> fx.Node:
        """Append an input; all inputs come before the first call, wherever they are declared, and state comes last."""
        target = free_name(identifier(port), self._inputs)
        self._inputs[target] = None
        last = (self._last_state if state else None) or self._last_input
        with self.graph.inserting_before(None) if last is None else self.graph.inserting_after(last):
            node = self._create("placeholder", target, (), {}, target)
        if state:
            self._last_state = node
        else:
            self._last_input = node
        self.info[node] = OpInfo(None, memory, (), dtype, tuple(shape))
        return node

    def constant(self, hint: str, place: Place | None, *, memory: int, dtype: Any, shape: Any) -> fx.Node:
        """Append a ``get_attr``; its final name is given by ``rename`` when the recording is finished."""
        node = self._create("get_attr", hint, (), {}, hint.replace(".", "_"))
        self.info[node] = OpInfo(place, memory, (), dtype, tuple(shape))
        return node

    def to_constant(self, node: fx.Node, hint: str, place: Place | None) -> None:
        """An input that nothing changes and nobody feeds is a constant; its name is given as for ``constant``."""
        node.op, node.target = "get_attr", hint
        self.info[node] = self.info[node]._replace(place=place)

    def call(
        self,
        op: str,
        target: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        info: OpInfo,
    ) -> fx.Node:
        """Append one call; ``name`` is its base name in the dump."""
        node = self._create(op, target, args, kwargs, name)
        self.info[node] = info
        return node

    def finish(self, outputs: tuple[fx.Node, ...]) -> None:
        """Append the output and erase what no output needs, without recursion.

        A write stays when a value that is needed later, or an output, sees the written memory.
        """
        result: Any = outputs[0] if len(outputs) == 1 else outputs
        self.graph.output(result)
        self.order = {node: index for index, node in enumerate(self.info)}
        for node in self._dead(outputs):
            self.graph.erase_node(node)
            del self.info[node]

    def _dead(self, outputs: Iterable[fx.Node]) -> list[fx.Node]:
        """Nodes to erase, last one first."""
        info = self.info
        live = set(outputs)
        seen_memory = {info[node].memory for node in live}
        dead: list[fx.Node] = []
        for node in reversed(self.graph.nodes):
            if node.op in ("output", "placeholder"):
                continue
            if node in live or any(memory in seen_memory for memory in info[node].written):
                for source in node.all_input_nodes:
                    live.add(source)
                    seen_memory.add(info[source].memory)
            else:
                dead.append(node)
        seen_memory.discard(NO_MEMORY)
        return dead

    def free_names(self, nodes: Iterable[fx.Node], name_for: Callable[[fx.Node], str]) -> None:
        """Rename ``nodes`` among all names that are in use; collisions get ``_1``, ``_2``."""
        renamed = list(nodes)
        used = {node.name for node in self.graph.nodes} - {node.name for node in renamed}
        for node in renamed:
            node.name = free_name(name_for(node), used)
            used.add(node.name)
