"""What a row of an operation table is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

Rule = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
"""Takes the call's arguments as graph arguments and gives the positional and keyword arguments to record."""


Expansion = Callable[..., Any]
"""Takes ``emit(target, *args, **kwargs)``, the call's graph arguments and its eager arguments; gives the last node.

``emit(..., shape=, stored=)`` say shape and dtype of a value that has others than the call's result. Of a call that
gives a tuple it gives a tuple of nodes. With a ``rule``, the arguments are the positional ones that the rule gives. A
target that is a string names a method."""


class Kind(Enum):
    """What the tracer does with a call."""

    RECORD = auto()
    """Append one node."""
    METADATA = auto()
    """Run only: the answer follows from shape, dtype or layout, which a recording fixes anyway."""
    PLAIN = auto()
    """Run only: the result takes nothing from the tensor's values and is an ordinary tensor."""
    ESCAPE = auto()
    """The value leaves the trace; see ``leapp.trace.escapes``."""
    CROSSING = auto()
    """A conversion that keeps the trace (``torch.tensor(x)``, ``torch.as_tensor(x)``)."""
    OPERATOR = auto()
    """A call of ``torch.ops``: made as the public function that it stands for."""
    CONTROL = auto()
    """Control flow that takes Python functions: done as Python does it, so that a branch on a traced value is named."""
    REFUSE = auto()
    """Cannot be recorded; ``why`` says so."""


@dataclass(frozen=True, slots=True)
class Row:
    """All that the tracer knows of one callable.

    ``op`` and ``target`` are those of the FX node; ``rule`` rewrites graph arguments; ``expand`` appends several nodes
    where the call has no public function of its own; ``writes`` says that the call writes its first argument;
    ``rebinds`` that it only changes how its first argument sees its memory, and is recorded as the view it leaves;
    ``random`` that it may draw from a generator; ``own_class`` that it looks at
    a tensor's class and attributes, and must find the user's.
    """

    kind: Kind
    name: str
    op: str = "call_function"
    target: Any = None
    rule: Rule | None = None
    expand: Expansion | None = None
    writes: bool = False
    rebinds: bool = False
    random: bool = False
    own_class: bool = False
    why: str = ""
    advice: str = ""
    """What to do instead of a call that is refused."""
