"""Who sees whose memory in a finished recording."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

from leapp.trace.recorder import NO_MEMORY

if TYPE_CHECKING:
    from torch import fx

    from leapp.trace.recorder import Recorder

_WHOLE_WRITES: Final = frozenset(("copy_", "fill_", "zero_", "set_"))


def old_content_is_read(recorder: Recorder, constant: fx.Node) -> bool:
    """Whether what a written constant held before the node reaches something that is kept.

    It does not where the first thing that happens to its memory overwrites all of it. Call after pruning: every write
    that is left is seen by an output.
    """
    memory = recorder.info[constant].memory
    assert memory != NO_MEMORY
    node = constant
    while (node := node.next).op not in ("output", "root"):
        touched = [source for source in node.all_input_nodes if recorder.info[source].memory == memory]
        if not touched:
            continue
        if recorder.info[node].written and memory in recorder.info[node].written:
            return not _overwrites(node, constant)
        if recorder.info[node].memory == memory:
            continue  # a view: nothing is read yet
        return True
    return True


def _overwrites(node: fx.Node, constant: fx.Node) -> bool:
    if node.kwargs.get("out") is constant:
        return constant not in node.args
    if not node.args or node.args[0] is not constant:
        return False
    if node.op == "call_method":
        return str(node.target) in _WHOLE_WRITES and constant not in node.args[1:]
    if node.target is operator.setitem:
        index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        return all(item is Ellipsis or item == slice(None) for item in index) and constant not in node.args[2:]
    return False
