"""A traced run as ticks: which entries of the nodes belong together. Pure: no tensors, no files.

In a running pipeline every node computes once a tick. A traced program may do otherwise: enter one node more often than
another, leave one out, or go on when enough samples are kept. Only what looks like a tick can be compared with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leapp.errors import BundleFormatError

if TYPE_CHECKING:
    from leapp._spec import JSON

Round = Mapping[str, "int | None"]
"""Node -> index of its entry among the recorded ones; None: entered, and not recorded any more."""


def rounds(order: Sequence[tuple[str, int | None]], nodes: Sequence[str]) -> tuple[Round, ...]:
    """Cut the entries of a traced run where the next pass through the nodes begins.

    Args:
        order: node and index of each entry, as they were closed.
        nodes: in the order of their first completion, which every pass keeps.
    """
    rank = {node: at for at, node in enumerate(nodes)}
    found: list[dict[str, int | None]] = []
    last = len(nodes)
    for node, entry in order:
        if node not in rank:  # it was never recorded
            continue
        if rank[node] <= last:
            found.append({})
        found[-1][node] = entry
        last = rank[node]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TracedTicks:
    """What a session knows of its ticks beyond the samples of its nodes; ports under their final names."""

    rounds: tuple[Round, ...]
    wires: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    """By node and entry: input port -> ``node/port`` that its value was carried from; nothing for one from outside."""
    declared: frozenset[str] = frozenset()
    """Inputs, ``node/port``, that start otherwise than they were traced because that was declared."""
    draws: frozenset[str] = frozenset()
    """Nodes whose models draw random numbers: what they gave cannot be compared."""
    known: bool = True
    """Whether ``wires`` was recorded; False for what is derived from samples alone."""

    @classmethod
    def of_samples(cls, counts: Mapping[str, int]) -> TracedTicks:
        """The best guess where nothing but samples was kept: entry i of every node is tick i."""
        least = min(counts.values(), default=0)
        return cls(tuple(dict.fromkeys(counts, index) for index in range(least)), known=False)

    def carried(self, node: str, entry: int, port: str) -> str | None:
        """Where the value of an input was carried from; None: from outside, or not known."""
        entries = self.wires.get(node, ())
        return entries[entry].get(port) if entry < len(entries) else None

    def as_json(self) -> dict[str, JSON]:
        """For evidence."""
        return {
            "schema": 1,
            "rounds": [dict(each) for each in self.rounds],
            "wires": {node: [dict(each) for each in entries] for node, entries in self.wires.items()},
            "declared_starts": sorted(self.declared),
            "draws": sorted(self.draws),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], path: str) -> TracedTicks:
        """What ``as_json`` gave. Raises BundleFormatError."""
        try:
            return cls(
                tuple({str(node): entry for node, entry in each.items()} for each in value["rounds"]),
                {str(node): [dict(each) for each in entries] for node, entries in value["wires"].items()},
                frozenset(map(str, value["declared_starts"])),
                frozenset(map(str, value.get("draws", ()))),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BundleFormatError(path=path, why=f"it does not tell the ticks of a traced run: {error!r}") from error
