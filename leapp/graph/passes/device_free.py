"""Remove the devices that a recording names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leapp.graph._base import PassResult

if TYPE_CHECKING:
    from leapp.graph._base import NodeGraph

_DROPPED: Final = ("device", "pin_memory", "non_blocking")


def device_free(recording: NodeGraph) -> PassResult:
    """Drop ``device=``, ``pin_memory=`` and ``non_blocking=`` from every call.

    Why: a model runs where its runtime runs; a device written into it fails elsewhere.
    Ensures: no call names a device; values unchanged on the CPU. A second run changes nothing.
    """
    changed = False
    for node in recording.graph.nodes:
        kept = {name: value for name, value in node.kwargs.items() if name not in _DROPPED}
        if len(kept) != len(node.kwargs):
            node.kwargs = kept
            changed = True
    return PassResult(recording, changed=changed)
