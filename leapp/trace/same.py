"""Are two recordings one computation? Names the first operation or constant in which they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from leapp.graph.dump import argument_json, target_name
from leapp.trace.constants import same_bytes

if TYPE_CHECKING:
    from torch import fx

    from leapp._spec import SourceLine
    from leapp.graph._base import NodeGraph


class Found(NamedTuple):
    """A difference in words, and the line of the first recording that it is about."""

    text: str
    source: SourceLine | None
    advice: str = "use torch.where, or make the value an input or a state"
    """What to do about it."""


def difference(first: NodeGraph, second: NodeGraph) -> Found | None:
    """Compare two recordings of a node op for op and constant for constant; None when they are equal."""
    ours, theirs = list(first.graph.nodes), list(second.graph.nodes)
    for a, b in zip(ours, theirs, strict=False):
        source = first.sources.get(a.name) or second.sources.get(b.name)
        if (a.op, target_name(a) if a.op != "output" else "") != (b.op, target_name(b) if b.op != "output" else ""):
            return Found(f"{_called(a)} became {_called(b)}", source)
        before = [argument_json(item) for item in (*a.args, *a.kwargs.values())]
        after = [argument_json(item) for item in (*b.args, *b.kwargs.values())]
        if before != after or list(a.kwargs) != list(b.kwargs):
            text = f"an argument of {_called(a)} changed from {before} to {after}"
            return Found(text, source, _EVAL) if _learns(a) else Found(text, source)
        if a.op == "get_attr" and not _same_constant(first, second, str(a.target), str(b.target)):
            text = f"the constant {a.target!r} changed its values"
            return Found(text, source, _EVAL if any(map(_learns, a.users)) else _UNSEEN)
    if len(ours) != len(theirs):
        longer, recording = (ours, first) if len(ours) > len(theirs) else (theirs, second)
        extra = longer[min(len(ours), len(theirs))]
        return Found(f"{len(ours)} operations became {len(theirs)}", recording.sources.get(extra.name))
    return None


_EVAL: Final = (
    "a normalisation is in training mode: call .eval() on its module, which then uses the running statistics and "
    "leaves them as they are"
)
_UNSEEN: Final = (
    "what made the constant was not recorded, such as a call of compiled code (SciPy) or memory kept between entries; "
    "write it with torch or NumPy operations, supply the equivalent with FunctionPatch, or make the value an input "
    "or a state"
)
_TAKES_STATISTICS: Final = {"batch_norm": ("training", False), "instance_norm": ("use_input_stats", True)}
"""Function -> its argument, the sixth, that says whether statistics are taken of the data; and that one's default."""


def _learns(node: fx.Node) -> bool:
    """Whether it is a normalisation that updates running statistics."""
    name, default = _TAKES_STATISTICS.get(getattr(node.target, "__name__", ""), ("", False))
    return bool(node.args[5] if name and len(node.args) > 5 else node.kwargs.get(name, default))


def _called(node: object) -> str:
    name = getattr(node, "name", "?")
    operation = getattr(node, "op", "")
    return "the output" if operation == "output" else f"{target_name(node)} (%{name})"  # type: ignore[arg-type]


def _same_constant(first: NodeGraph, second: NodeGraph, ours: str, theirs: str) -> bool:
    a, b = first.constants[ours], second.constants[theirs]
    return a.dtype == b.dtype and a.shape == b.shape and same_bytes(a, b)
