"""What it means when a traced value leaves the trace, decided in one place."""

from __future__ import annotations

import ast
import itertools
import os
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leapp.errors import (
    DataDependentBranchError,
    HiddenStateWarning,
    LeappWarning,
    LeftTraceError,
    NoTwinWarning,
    RandomOpWarning,
    TraceEscapeWarning,
    UnseenStateWarning,
    UnseenWriteWarning,
    UntracedOpWarning,
)
from leapp.replay import Cause
from leapp.trace._syntax import node_at
from leapp.trace.source import caller, innermost_frame, is_of_numpy, source_line

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from pathlib import Path
    from types import CodeType, FrameType

    from leapp._spec import SourceLine
    from leapp.trace.made import Made
    from leapp.trace.source import Place

BRANCHES: Final = frozenset(("__bool__", "__nonzero__", "__contains__"))
"""Reads whose answer Python decides on."""

_SPELLING: Final = {
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "int()",
    "__bool__": "bool()",
    "__contains__": "in",
    "__complex__": "complex()",
    "__round__": "round()",
    "__floor__": "math.floor()",
    "__ceil__": "math.ceil()",
    "__trunc__": "math.trunc()",
    "__hash__": "hash()",
    "__reduce__": "pickle",
    "__reduce_ex__": "pickle",
    "__format__": "format()",
    "__str__": "str()",
    "__repr__": "repr()",
    "__array__": "numpy.asarray()",
    "__len__": "len()",
    "shape": ".shape",
    "size": ".size()",
    "numel": ".numel()",
    "item": ".item()",
    "tolist": ".tolist()",
    "numpy": ".numpy()",
}


def state_name(inputs: Container[str], wanted: str = "x") -> str:
    """A name for a state that no input of the node has."""
    numbered = (f"{wanted}_state{'' if count == 1 else count}" for count in itertools.count(1))
    return next(name for name in itertools.chain((wanted,), numbered) if name not in inputs)


def spelled(op: str) -> str:
    """An operation as users write it."""
    return _SPELLING.get(op, op)


READER: Final = "reader"
"""Kind of the notes about compiled code that read a traced array's buffer."""

_INSTEAD: Final = "torch.where(condition, a, b), torch.maximum or torch.clamp"
_INSTEAD_OF_ARRAYS: Final = "np.where(condition, a, b), np.maximum or np.clip"
"""What to write where Python would decide."""
_OF_LIST: Final = (
    " Reason: ufuncs tell nobody what stands in a list: make an array of it first, with np.array or np.stack."
)

ALLOW_KEYS: Final = ("branches", "escapes", "random", "untraced", "not-varied", "no-element-names")


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person or a later check should know; evidence only."""

    kind: str
    node: str
    op: str
    file: str
    line: int
    function: str
    at: int = 0
    """How many operations the node had recorded by then."""


@dataclass
class EscapePolicy:
    """What the user allowed, whether strictness was asked for, and what was noticed so far.

    ``allow`` maps the keys of ``ALLOW_KEYS`` to lists of ``module:qualname`` (or ``node/port``).
    """

    root: Path
    allow: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strict: bool = field(default_factory=lambda: os.environ.get("LEAPP_STRICT", "") == "1")
    notes: list[Note] = field(default_factory=list)
    progress: Callable[[], int] = lambda: 0
    """How many operations the open node has recorded."""
    _said: set[tuple[str, str, int]] = field(default_factory=set)
    _told: dict[tuple[str, str, str, str, int], LeappWarning] = field(default_factory=dict)
    """Kind, node, operation, file and line of a note -> the warning; per node, though a line warns but once."""
    _noted: set[Note] = field(default_factory=set)

    def read(self, op: str, node: str, *, array: bool = False) -> None:
        """A traced value is about to be read as a Python value. Raises on a branch that is no guard.

        ``array`` says that it is one of NumPy's.
        """
        self.reading(op, node, array=array)()

    def reading(self, op: str, node: str, *, array: bool = False) -> Callable[[], None]:
        """What reports this read, now or when it is known that the value is traced indeed."""
        place = caller()
        line = source_line(place, self.root)
        if op in BRANCHES:
            if self._allowed("branches", line.function):
                return partial(self._note, "branch-allowed", node, op, place)
            if is_guard(innermost_frame()) or _is_a_test(innermost_frame()):
                return partial(self._note, "guard", node, op, place)
            return partial(self._refuse_branch, op, node, line, _INSTEAD_OF_ARRAYS if array else _INSTEAD)
        if self._allowed("escapes", line.function):
            return partial(self._note, "escape-allowed", node, op, place)
        if _is_a_test(innermost_frame()):
            return partial(self._note, "guard", node, op, place)
        return partial(self._warn, TraceEscapeWarning, "escape", node, op, place)

    @staticmethod
    def _refuse_branch(op: str, node: str, line: SourceLine, instead: str) -> None:
        raise DataDependentBranchError(
            node=node, where=str(line), op=spelled(op), function=line.function, instead=instead
        )  # fmt: skip

    def forget(self, node: str, since: int) -> None:
        """Drop the notes about a node from the one with that index on: the entry that they are about was dropped."""
        dropped = [note for note in self.notes[since:] if note.node == node]
        self.notes[since:] = [note for note in self.notes[since:] if note.node != node]
        self._noted.difference_update(dropped)

    def meant(self, node: str, place: Place) -> None:
        """``annotate.constant`` stands at ``place``."""
        self._note("constant", node, "annotate.constant", place)

    def untraced(self, op: str, node: str, place: Place | None = None) -> None:
        """A traced value went through a call that leaves no graph node, at ``place`` or right now."""
        self._report(UntracedOpWarning, "untraced", node, op, place)

    def no_twin(self, op: str, node: str, why: str) -> None:
        """A NumPy call with a traced argument has no equivalent that could be recorded."""
        self._report(NoTwinWarning, "untraced", node, op, why=f" Reason: {why}." if why else "")

    def unseen_write(self, made: Made, node: str, inputs: Container[str] = ()) -> None:
        """A plain array becomes a constant; traced data were assigned to elements of it, as far as can be told."""
        if self._allowed("untraced", source_line(made.place, self.root).function):
            self._note(f"{READER}-allowed", node, made.function, made.place)
        else:
            self._warn_of_write(made, node, inputs)

    def _warn_of_write(self, made: Made, node: str, inputs: Container[str]) -> None:
        if not made.outlives:
            self._warn(UnseenWriteWarning, READER, node, made.function, made.place)
            return
        state = state_name(inputs, made.written.rpartition(".")[2])
        self._warn(UnseenStateWarning, READER, node, made.function, made.place, array=made.written, state=state)

    def made_by_reader(self, made: Made, node: str, inputs: Container[str] = ()) -> None:
        """A plain array becomes a constant that a call made which no hook saw, of traced data as far as can be told.

        The line that made it is named. In a build the probe decides: an array that did not move is a note.
        """
        if self._allowed("untraced", source_line(made.place, self.root).function):
            self._note(f"{READER}-allowed", node, made.function, made.place)
        elif made.written:
            self._warn_of_write(made, node, inputs)
        elif made.of_list:
            self._warn(NoTwinWarning, READER, node, made.function.removeprefix("numpy."), made.place, why=_OF_LIST)
        else:
            self._warn(UntracedOpWarning, READER, node, made.function, made.place)

    def number_read(self, made: Made, node: str) -> None:
        """A plain number meets a traced value, and was made of traced data, as far as can be told."""
        line = source_line(made.place, self.root)
        if not any(
            note.kind.startswith("escape") and (note.file, note.line) == (line.file, line.line) for note in self.notes
        ):
            self.made_by_reader(made, node)  # else what read the number told so itself

    def random(self, op: str, node: str, *, recorded: bool) -> None:
        """Random numbers were drawn while a node was open."""
        effect = "the draw is part of the exported model" if recorded else "one draw is frozen in the export"
        self._report(RandomOpWarning, "random", node, op, effect=effect)

    def hidden_state(self, node: str, place: Place, state: str) -> None:
        """A tensor that outlives the node carries values from tick to tick; ``state``: a name that it may have."""
        self._warn(HiddenStateWarning, "hidden-state", node, "a write", place, state=state)

    def _report(
        self, warning: type[LeappWarning], key: str, node: str, op: str, place: Place | None = None, **facts: Any
    ) -> None:
        place = place or caller()
        if self._allowed(key, source_line(place, self.root).function):
            self._note(f"{key}-allowed", node, op, place)
            return
        self._warn(warning, key, node, op, place, **facts)

    def _warn(self, warning: type[LeappWarning], kind: str, node: str, op: str, place: Place, **facts: Any) -> None:
        line = source_line(place, self.root)
        said = (kind + op, line.file, line.line)
        self._note(kind, node, op, place)
        self._told[kind, node, op, line.file, line.line] = message = warning(
            node=node, op=spelled(op), where=str(line), function=line.function, **facts
        )
        if self.strict:
            raise LeftTraceError(detail=str(message), warning=type(message).__name__)
        if said not in self._said:
            self._said.add(said)
            warnings.warn_explicit(message, None, place.code.co_filename, place.line)

    def causes(self, node: str, moved: SourceLine | None = None) -> tuple[Cause, ...]:
        """What the trace of a node warned of, the likeliest cause of a failed check first.

        ``moved``: the line at which a later entry recorded something else. What was frozen stands before it, mostly
        just before.
        """
        notes = [note for note in self.notes if note.node == node]
        found: dict[tuple[str, str, str, str, int], tuple[Note, LeappWarning]] = {}
        for note in notes:
            key = note.kind, note.node, note.op, note.file, note.line
            if key in self._told:
                found.setdefault(key, (note, self._told[key]))

        def rank(each: tuple[Note, LeappWarning]) -> tuple[int, ...]:
            note = each[0]
            kind = _LIKELY.index(note.kind) if note.kind in _LIKELY else len(_LIKELY)
            if moved is None:
                return (kind,)
            before = note.file == moved.file and note.line <= moved.line
            # A draw that is recorded moves no constant and no argument.
            return (kind == 0, not before, moved.line - note.line if before else 0, kind)

        ranked = sorted(found.values(), key=rank)
        return tuple(Cause(note.kind, " ".join(str(warning).split("\n"))) for note, warning in ranked)

    def _allowed(self, key: str, function: str) -> bool:
        return function in self.allow.get(key, ())

    def _note(self, kind: str, node: str, op: str, place: Place) -> None:
        line = source_line(place, self.root)
        note = Note(kind, node, op, line.file, line.line, line.function, self.progress())
        if note not in self._noted:
            self._noted.add(note)
            self.notes.append(note)


_LIKELY: Final = ("random", "hidden-state", "untraced", "escape", READER)
"""Kinds of notes, by how likely each is why a model does not give what was recorded."""

SCRIPTED_GUARD: Final = "scripted_guard"
"""Local variable of a frame that stands for a line of scripted code: what its graph says, as no syntax tree does."""


def is_guard(frame: FrameType) -> bool:
    """Whether the truth value that ``frame`` is asking for only decides if something is raised.

    ``assert`` is one, and an ``if`` without ``else`` whose body does nothing but raise.
    """
    told = frame.f_locals.get(SCRIPTED_GUARD)
    if told is not None:
        return bool(told)
    found = _deciding(frame.f_code, frame.f_lasti)
    return isinstance(found, ast.Assert) or (
        isinstance(found, ast.If) and not found.orelse and _only_raises(found.body)
    )


def _is_a_test(frame: FrameType) -> bool:
    """Whether a function of ``numpy.testing`` asks: whatever it reads, it only raises."""
    file = frame.f_code.co_filename
    return "/numpy/testing/" in file and is_of_numpy(file)


def _deciding(code: CodeType, instruction: int) -> ast.AST | None:
    """The statement or expression whose test is being decided; None when it cannot be told."""
    node = node_at(code, instruction)
    while node is not None and not isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):
        above = getattr(node, "parent", None)
        if isinstance(above, ast.If | ast.While | ast.Assert | ast.IfExp) and above.test is not node:
            return None
        # What a walrus keeps may be used anywhere.
        node = above if isinstance(above, ast.expr | ast.stmt) and not isinstance(above, ast.NamedExpr) else None
    return node


def _only_raises(body: list[ast.stmt]) -> bool:
    """Whether a block always ends in ``raise`` and does nothing else that could matter."""
    *before, last = body
    return isinstance(last, ast.Raise) and all(
        isinstance(item, (ast.Assign, ast.AnnAssign, ast.Expr, ast.Pass)) for item in before
    )
