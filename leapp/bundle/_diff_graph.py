"""Two recordings of a node as ``graph.json`` has them -> operations added, removed, and arguments that changed.

The two lists of operations are laid side by side by what they call, so that one more operation in front does not make
all others differ; names of values, which are counted, are followed from one side to the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leapp.bundle._diff_contract import json_text
from leapp.bundle._difference import Cause, Change, Finding, Step
from leapp.bundle.schema import parse_json
from leapp.errors import BundleFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leapp.bundle.schema import Constant

Op: TypeAlias = "Mapping[str, Any]"

MAX_OPERATIONS: Final = 50
"""So many operations of a node are named; the others are counted."""
MAX_ALIGNED: Final = 3000
"""Where more operations than these differ in between, they are not laid side by side: it is another graph."""
_ANONYMOUS: Final = re.compile(r"_tensor_constant\d+")
"""Constants that are counted in the order of their use."""


@dataclass(frozen=True, slots=True)
class Graph:
    """One recording and where the user's code made it."""

    content: Mapping[str, Any]
    """``graph.json``; empty where there is none."""
    sources: Mapping[str, str]
    """``file:line`` by operation."""

    @property
    def ops(self) -> list[Op]:
        """All operations."""
        return list(self.content.get("ops", ()))

    def source(self, op: Op | None) -> str:
        """The user's line; empty where it is not known."""
        return "" if op is None else self.sources.get(str(op.get("id")), "")

    def source_of_constant(self, name: str) -> str:
        """The user's line that uses a constant first."""
        return next((self.source(op) for op in self.ops if op.get("op") == "get_attr" and op.get("target") == name), "")

    def output_of_constant(self, name: str) -> str:
        """The output that hands a constant out as it is; empty where none does."""
        own = {op.get("id") for op in self.ops if op.get("op") == "get_attr" and op.get("target") == name}
        for each in self.content.get("outputs", ()):
            value = each.get("value")
            if isinstance(value, Mapping) and value.get("ref") in own:
                return str(each["name"])
        return ""


def parse_graph(data: bytes, path: Path) -> dict[str, Any]:
    """``graph.json`` from its bytes. Raises BundleFormatError where it is not in the form that we write."""
    value = parse_json(data, path)
    kinds = {"ops": ("id", "target"), "inputs": ("id", "name"), "outputs": ("name",)}
    for key, texts in kinds.items():
        members = value.get(key, [])
        if not isinstance(members, list) or not all(
            isinstance(each, dict) and all(isinstance(each.get(text), str) for text in texts) for each in members
        ):
            raise BundleFormatError(path=str(path), why=f"{key}: expected a list of objects with {' and '.join(texts)}")
    for op in value.get("ops", []):
        if not isinstance(op.get("args", []), list) or not isinstance(op.get("kwargs", {}), dict):
            raise BundleFormatError(path=str(path), why=f"ops: the arguments of {op['id']!r} are none")
    return value


# --- constants by name ---------------------------------------------------------------------------------------------


def match_constants(before: Sequence[Constant], after: Sequence[Constant]) -> dict[str, str]:
    """Names of the first -> names of the second. Counted names are followed by content, then by their place."""
    found = {each.name: each.name for each in before if any(each.name == other.name for other in after)}
    old = [each for each in before if is_counted(each.name)]
    new = [each for each in after if is_counted(each.name)]
    if len(old) != len(new):
        for each in old:
            found.pop(each.name, None)
        old.sort(key=_number)
        new.sort(key=_number)
        keys = [[f"{each.dtype} {each.shape} {each.sha256}" for each in side] for side in (old, new)]
        for tag, i, j, k, m in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
            if tag == "equal":
                found |= {a.name: b.name for a, b in zip(old[i:j], new[k:m], strict=True)}
            elif tag == "replace":
                like = zip(old[i:j], new[k:m], strict=False)
                found |= {a.name: b.name for a, b in like if (a.dtype, a.shape) == (b.dtype, b.shape)}
    gone = [each for each in before if each.name not in found and not is_counted(each.name)]
    free = [each for each in after if each.name not in found.values() and not is_counted(each.name)]
    for each in gone:
        same = [other for other in free if other.sha256 == each.sha256 and other.shape == each.shape]
        if len(same) == 1:
            found[each.name] = same[0].name
            free.remove(same[0])
    return found


def is_counted(name: str) -> bool:
    """Whether a constant has no name of its own."""
    return bool(_ANONYMOUS.fullmatch(name))


def _number(constant: Constant) -> int:
    return int(constant.name.removeprefix("_tensor_constant"))


# --- operations ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Names:
    """Which value of the second graph each one of the first became."""

    same: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)


def graph_findings(
    node: str, first: Graph, second: Graph, constants: Mapping[str, str], *, rotation: bool
) -> Iterator[Finding]:
    """What the two recordings do not share. Findings of kind ``graph-renamed`` say that only names moved.

    ``constants`` as from ``match_constants``; ``rotation``: whether a port of the node holds a rotation.
    """
    found = [*_operations(node, first, second, constants, rotation=rotation)]
    yield from found[:MAX_OPERATIONS]
    if len(found) > MAX_OPERATIONS:
        note = f"and {len(found) - MAX_OPERATIONS} more operations"
        yield Finding(
            Cause.GRAPH, node, "the rest of the graph", Change.DIFFERS, kind="graph", step=Step.MINOR, note=note
        )
    if not found:
        note = "the same operations under other names"
        yield Finding(
            Cause.GRAPH, node, "the naming of values", Change.DIFFERS, kind="graph-renamed", step=Step.PATCH, note=note
        )


def _operations(
    node: str, first: Graph, second: Graph, constants: Mapping[str, str], *, rotation: bool
) -> Iterator[Finding]:
    a, b = first.ops, second.ops
    if (not a or not b) and (a or b):
        change = Change.ONLY_FIRST if a else Change.ONLY_SECOND
        yield Finding(Cause.GRAPH, node, "its operations", change, kind="graph", step=Step.MINOR)
        return
    names = _Names()
    for old, new in _ports(first, second, "inputs"):
        names.same[str(old.get("id"))] = str(new.get("id"))
    aligned = [*_align(a, b, constants)]
    for i, j in aligned:
        if i is not None and j is not None:
            names.same[str(a[i].get("id"))] = str(b[j].get("id"))
        elif i is not None:
            names.gone.add(str(a[i].get("id")))
        elif j is not None:
            names.new.add(str(b[j].get("id")))
    for i, j in aligned:
        if i is not None and j is not None:
            yield from _pair(node, i, j, first, second, names, constants, rotation=rotation)
        elif i is not None:
            yield Finding(
                Cause.GRAPH, node, f"operation {i + 1}", Change.ONLY_FIRST, op_text(a[i]), source=first.source(a[i]),
                kind="op-removed", step=Step.MINOR,
            )  # fmt: skip
        elif j is not None:
            yield Finding(
                Cause.GRAPH, node, f"operation {j + 1}", Change.ONLY_SECOND, "", op_text(b[j]),
                second_source=second.source(b[j]), kind="op-added", step=Step.MINOR,
            )  # fmt: skip
    for old, new in _ports(first, second, "outputs"):
        was, now = old.get("value"), new.get("value")
        if not _follows(was, now, names):
            yield Finding(
                Cause.GRAPH, node, f"what output {new.get('name')!r} returns", Change.DIFFERS,
                argument_text(was), argument_text(now), kind="op-changed", step=Step.MINOR,
            )  # fmt: skip


def _ports(first: Graph, second: Graph, direction: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Ports of both graphs that belong together: by name, else by place where neither side knows the other's name."""
    before, after = (list(each.content.get(direction, ())) for each in (first, second))
    names, names_now = ({port.get("name"): port for port in side} for side in (before, after))
    for at, port in enumerate(before):
        if port.get("name") in names_now:
            yield port, names_now[port.get("name")]
        elif at < len(after) and after[at].get("name") not in names:
            yield port, after[at]


def _align(a: Sequence[Op], b: Sequence[Op], constants: Mapping[str, str]) -> Iterator[tuple[int | None, int | None]]:
    """Positions that belong together, in order; None where one side has no such operation.

    By what is called with which plain arguments first, in what is left by what is called, then one for one.
    """
    back = {new: old for old, new in constants.items()}
    exact = [[f"{_key(op, names)} {_plain_arguments(op)}" for op in ops] for ops, names in ((a, {}), (b, back))]
    called = [[_key(op, names) for op in ops] for ops, names in ((a, {}), (b, back))]
    for i, j, k, m in _blocks(exact[0], exact[1]):
        if i is None:
            yield k, m
            continue
        for i2, j2, k2, m2 in _blocks(called[0][i:j], called[1][k:m]):
            if i2 is None:
                yield i + k2, k + m2
                continue
            # What was replaced one for one stands side by side.
            pairs = j2 - i2 if j2 - i2 == m2 - k2 else 0
            yield from ((i + i2 + at, k + k2 + at) for at in range(pairs))
            yield from ((i + at, None) for at in range(i2 + pairs, j2))
            yield from ((None, k + at) for at in range(k2 + pairs, m2))


def _blocks(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int | None, int, int, int]]:
    """``(None, 0, i, k)`` for members that are the same, ``(i, j, k, m)`` for runs ``i:j`` and ``k:m`` that are not."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        yield None, 0, start, start
        start += 1
    tail = 0
    while tail < min(len(a), len(b)) - start and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    end_a, end_b = len(a) - tail, len(b) - tail
    if max(end_a, end_b) - start > MAX_ALIGNED:
        yield start, end_a, start, end_b
    else:
        matcher = SequenceMatcher(None, a[start:end_a], b[start:end_b], autojunk=False)
        for tag, i, j, k, m in matcher.get_opcodes():
            if tag == "equal":
                yield from ((None, 0, start + i + at, start + k + at) for at in range(j - i))
            else:
                yield start + i, start + j, start + k, start + m
    yield from ((None, 0, len(a) - at, len(b) - at) for at in range(tail, 0, -1))


def _key(op: Op, names: Mapping[str, str]) -> str:
    target = str(op.get("target"))
    return f"{op.get('op')} {names.get(target, target) if op.get('op') == 'get_attr' else target}"


def _plain_arguments(op: Op) -> str:
    def plain(value: Any) -> Any:
        if _is_ref(value):
            return "%"
        if isinstance(value, list):
            return [plain(each) for each in value]
        return {key: plain(each) for key, each in value.items()} if isinstance(value, Mapping) else value

    return json_text(plain([op.get("args"), op.get("kwargs")]))


def _pair(
    node: str,
    i: int,
    j: int,
    first: Graph,
    second: Graph,
    names: _Names,
    constants: Mapping[str, str],
    *,
    rotation: bool,
) -> Iterator[Finding]:
    before, after = first.ops[i], second.ops[j]
    note, step, kind = "", Step.MINOR, "op-changed"
    if _key(before, constants) != _key(after, {}):
        kind, note = "op-replaced", f"{_call(before)} became {_call(after)}"
    else:
        changed = [*_changed(before, after, names)]
        typed = ("dtype", "shape") if before.get("op") != "get_attr" else ()
        if not changed and all(before.get(key) == after.get(key) for key in typed):
            return
        # What only reads a value that is new, or reads another one because the old one is gone, is a consequence.
        if changed and all(_follows(was, now, names) for _, was, now in changed):
            return
        parts = [f"{label}: {argument_text(was)} -> {argument_text(now)}" for label, was, now in changed]
        note = f"{after.get('target')}: " + "; ".join(parts or [f"gives {_result(before)} -> {_result(after)}"])
        reordered = next((text for _, was, now in changed if (text := _pattern(was, now))), "")
        if reordered:
            note = f"{note}; {reordered}"
            if rotation:
                kind, step = "rotation-convention", Step.MAJOR
                note += ", where a port holds a rotation: it looks like another rotation convention"
    yield Finding(
        Cause.GRAPH, node, f"operation {i + 1}", Change.DIFFERS, op_text(before), op_text(after),
        source=first.source(before), kind=kind, step=step, note=note, second_source=second.source(after),
    )  # fmt: skip


def _changed(before: Op, after: Op, names: _Names) -> Iterator[tuple[str, Any, Any]]:
    """Arguments that are not the same: what they are called, and both."""
    a, b = list(before.get("args", ())), list(after.get("args", ()))
    for at in range(max(len(a), len(b))):
        was, now = (side[at] if at < len(side) else _ABSENT for side in (a, b))
        if not _same(was, now, names):
            yield f"argument {at + 1}", was, now
    was_named, now_named = dict(before.get("kwargs", {})), dict(after.get("kwargs", {}))
    for key in dict.fromkeys([*was_named, *now_named]):
        was, now = was_named.get(key, _ABSENT), now_named.get(key, _ABSENT)
        if not _same(was, now, names):
            yield key, was, now


_ABSENT: Final = {"absent": True}


def _is_ref(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"ref"} and isinstance(value["ref"], str)


def _same(was: Any, now: Any, names: _Names) -> bool:
    """Whether two arguments are one, values followed by their names."""
    if _is_ref(was) and _is_ref(now):
        return names.same.get(str(was["ref"]), str(was["ref"])) == str(now["ref"])
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        return was.keys() == now.keys() and all(_same(was[key], now[key], names) for key in was)
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(_same(x, y, names) for x, y in zip(was, now, strict=True))
    return type(was) is type(now) and bool(was == now)


def _follows(was: Any, now: Any, names: _Names) -> bool:
    """Whether an argument is another one only because an operation came or went before it."""
    if _is_ref(was) and _is_ref(now):
        return _same(was, now, names) or was["ref"] in names.gone or now["ref"] in names.new
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return all(_follows(x, y, names) for x, y in zip(was, now, strict=True))
    return _same(was, now, names)


def _pattern(was: Any, now: Any) -> str:
    """In words, where two arguments hold the same numbers in another order or with another sign."""
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now) and len(was) > 1:
        texts = [[json_text(each) for each in side] for side in (was, now)]
        if sorted(texts[0]) == sorted(texts[1]):
            return "the same members in another order"
        inner = [text for x, y in zip(was, now, strict=True) if (text := _pattern(x, y))]
        return inner[0] if inner else ""
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (was, now))
    return "the same number with the other sign" if numbers and was == -now else ""


# --- text ----------------------------------------------------------------------------------------------------------


def op_text(op: Op) -> str:
    """One operation on one line: ``%mul = torch.mul(%x, 2.0) -> float32[3]``."""
    shape = f" -> {_result(op)}" if "dtype" in op and "shape" in op else ""
    return f"%{op.get('id')} = {_call(op)}{shape}"


def _call(op: Op) -> str:
    given = [argument_text(each) for each in op.get("args", ())]
    given += [f"{key}={argument_text(each)}" for key, each in dict(op.get("kwargs", {})).items()]
    return f"{op.get('target')}({', '.join(given)})"


def _result(op: Op) -> str:
    return f"{op.get('dtype')}{op.get('shape')}"


def argument_text(value: Any) -> str:
    """One argument; values by their name."""
    if value is _ABSENT:
        return "(not given)"
    if _is_ref(value):
        return f"%{value['ref']}"
    if isinstance(value, list):
        return f"[{', '.join(map(argument_text, value))}]"
    if isinstance(value, Mapping) and isinstance(value.get("slice"), list):
        return f"slice({', '.join(map(argument_text, value['slice']))})"
    return json_text(value)
