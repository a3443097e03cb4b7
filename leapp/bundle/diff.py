"""Two bundles, or their digests -> what differs between them, why, and the version step that asks for.

Nothing is executed, and neither torch nor onnx is needed; NumPy only where values of constants are compared. The
digests of ``bundle.json`` say which files differ; node manifests, graphs and the runtime file say why: the contract
(ports, wires, settings), the graph, its constants, the tool chain, or nothing of these: bytes only.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from leapp.bundle._diff_contract import (
    Matched,
    contract_findings,
    head,
    is_rotation,
    match_nodes,
    plain_findings,
)
from leapp.bundle._diff_graph import Graph, graph_findings, is_counted, match_constants, parse_graph
from leapp.bundle._diff_tools import BUILT_WITH, MACHINE, BuiltWith, tool_findings, tools_text
from leapp.bundle._diff_values import ROUNDING_ULP, compare_constants, compare_tensors, tensor_text
from leapp.bundle._difference import REPEATS, Cause, Change, FileDifference, Finding, Step, Values
from leapp.bundle.advice import Advice, advise
from leapp.bundle.digests import SYSTEM, built_with, check_contract, inputs_read
from leapp.bundle.read import Bundle, load, node_manifest_path
from leapp.bundle.samples import read_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.bundle.digests import BundleDigests, NodeDigests
    from leapp.bundle.schema import Constant

__all__ = [
    "BundleDiff",
    "Cause",
    "Change",
    "FileDifference",
    "Finding",
    "Side",
    "Step",
    "Values",
    "diff",
    "diff_digests",
    "explain",
]

START: Final = "state-start"
"""Kind of what says how a state starts."""
_NOT_IN_A_LOCK: Final = "digests do not hold what: compare the bundles"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared."""

    name: str
    version: str
    platform: str
    """``linux-x86_64``."""

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {"name": self.name, "version": self.version, "platform": self.platform}


@dataclass(frozen=True, slots=True)
class BundleDiff:
    """What two bundles do not share."""

    first: str
    """Digest of the first bundle."""
    second: str
    files: tuple[FileDifference, ...] = ()
    """Sorted by path."""
    findings: tuple[Finding, ...] = ()
    sides: tuple[Side, Side] | None = None
    inputs: tuple[tuple[str, Change], ...] = ()
    """Files that the builds read and that are not the same: why the rest may differ, no difference by themselves."""
    digests_only: bool = False
    """At least one of the two was known by its digests alone: what changed inside a part cannot be told."""

    @property
    def equal(self) -> bool:
        """Whether the two are one: equal digests, and so equal content."""
        return self.first == self.second

    @property
    def causes(self) -> tuple[Cause, ...]:
        """All causes, in the order of the class."""
        found = {cause for each in self.files for cause in each.causes} | {each.cause for each in self.findings}
        return tuple(cause for cause in Cause if cause in found)

    @property
    def keys(self) -> frozenset[str]:
        """What differs, as names that can be compared between two diffs of one first bundle."""
        parts = {f"{each.cause}:{each.node}:{each.part}" for each in self.findings}
        return frozenset(parts | {f"file:{each.path}" for each in self.files if each.causes == (Cause.BYTES,)})

    @property
    def advice(self) -> Advice:
        """The version step that the difference asks for, and why."""
        versions = None if self.sides is None else (self.sides[0].version, self.sides[1].version)
        return advise(self.findings, self.files, equal=self.equal, versions=versions, digests_only=self.digests_only)

    def rows(self) -> list[tuple[str, str, str]]:
        """A table for people: file, how it differs, and why."""
        return [(each.path, str(each.change), _why(each)) for each in self.files]

    def lines(self) -> list[str]:
        """Text for people: each file, then each finding behind them."""
        lines = [f"{path}: {change}: {why}" for path, change, why in self.rows()]
        return lines + [f"{each.cause}: {each.text()}" for each in self.findings]

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "equal": self.equal,
            "first": self.first,
            "second": self.second,
            "sides": None if self.sides is None else [each.as_json() for each in self.sides],
            "digests_only": self.digests_only,
            "causes": [cause.value for cause in self.causes],
            "summary": [*explain(self)],
            "advice": self.advice.as_json(),
            "findings": [each.as_json() for each in self.findings],
            "files": [each.as_json() for each in self.files],
            "inputs": [{"path": path, "change": change.value} for path, change in self.inputs],
        }


def diff(first: Path | str | Bundle, second: Path | str | Bundle) -> BundleDiff:
    """Compare the content of two bundles by their recorded digests; evidence takes no part but to explain.

    Raises:
        NotABundleError, BundleFormatError, BundleTooNewError: as ``leapp.bundle.read.load``.
        BundleDigestError: a file that would explain a difference is not the one that was written.
    """
    a, b = (each if isinstance(each, Bundle) else load(each) for each in (first, second))
    for each in (a, b):
        check_contract(each)
    sides = _side(a), _side(b)
    if a.digest == b.digest:
        return BundleDiff(a.digest, b.digest, sides=sides)
    findings = tuple(_Findings(a, b).all())
    inputs = _inputs(inputs_read(a), inputs_read(b))
    return BundleDiff(a.digest, b.digest, tuple(_files(a, b, findings)), findings, sides, inputs)


def _side(bundle: Bundle) -> Side:
    return Side(bundle.name, bundle.version, str(bundle.contract[SYSTEM].get("os") or ""))


def _inputs(a: Mapping[str, str] | None, b: Mapping[str, str] | None) -> tuple[tuple[str, Change], ...]:
    if a is None or b is None:
        return ()
    return tuple(
        (path, Change.ONLY_FIRST if path not in b else Change.DIFFERS if path in a else Change.ONLY_SECOND)
        for path in sorted({*a, *b})
        if a.get(path) != b.get(path)
    )


# --- in words ------------------------------------------------------------------------------------------------------


def explain(found: BundleDiff) -> list[str]:
    """Why two bundles are not one: a line per cause and node, then what stayed. Empty where they are equal.

    ``weights of node 'policy' changed: net.0.weight: largest difference 0.03; graph unchanged`` and the like.
    """
    if found.equal:
        return []
    lines = [line for group in GROUPS for line in _said(found, group)]
    written = [each for each in found.files if each.written_otherwise]
    if paths := [each.path for each in written if each.causes == (Cause.BYTES,)]:
        lines.append(f"bytes only: {_some(paths)} {'is' if len(paths) == 1 else 'are'} written otherwise")
    if paths := [each.path for each in written if each.causes == (Cause.TOOL_CHAIN,) and "/" in each.path]:
        lines.append(f"written otherwise: {_some(paths)}")
    if found.inputs:
        lines.append(f"files read changed: {_some([path for path, _ in found.inputs])}")
    changed = {group_of(each) for each in found.findings}
    if any(each.kind in _NODES for each in found.findings):
        changed |= {"graph", "constants"}  # of a node that only one has there is nothing to be the same
    stayed = [STAYED[group] for group in GROUPS if group in STAYED and group not in changed]
    if stayed:
        lines.append(f"unchanged: {', '.join(stayed)}")
    return lines


GROUPS: Final = ("about", "contract", "state", "graph", "constants", "tool chain", MACHINE)
"""What findings are put together as, for people, in this order."""
STAYED: Final = {
    "contract": "contract",
    "graph": "graph",
    "constants": "weights",
    "tool chain": "tool chain",
}
"""Groups that are worth a word when nothing is in them."""
_ABOUT: Final = frozenset({"name", "version", "status"})
_NODES: Final = frozenset({"node-added", "node-removed", "node-renamed"})


def group_of(finding: Finding) -> str:
    """Which of ``GROUPS`` a finding belongs to."""
    if finding.kind in _ABOUT:
        return "about"
    if finding.kind == START:
        return "state"
    if finding.kind == MACHINE:
        return MACHINE
    return "contract" if finding.kind in _NODES else finding.cause.value


def _said(found: BundleDiff, group: str) -> Iterator[str]:
    """A line for each node that something of the group changed in; the pipeline itself is a node without a name."""
    mine = [each for each in found.findings if group_of(each) == group]
    if group == "about":
        yield from (each.text() for each in mine)
        return
    for node in dict.fromkeys(each.node for each in mine):
        some = sorted((each for each in mine if each.node == node), key=lambda each: -each.step)
        if some[0].kind in {"node-added", "node-removed"}:
            what = "removed" if some[0].change is Change.ONLY_FIRST else "added"
            yield f"node {node!r} {what}{f' ({some[0].note})' if some[0].note else ''}"
            continue
        of_node = f" of node {node!r}" if node else " of the pipeline" if group == "contract" else ""
        how = _how(group, some, digests_only=found.digests_only)
        yield f"{_title(group, some)}{of_node} changed{f': {how}' if how else ''}"


def _how(group: str, findings: Sequence[Finding], *, digests_only: bool) -> str:
    """What changed, largest step first; empty where it is known only that something did."""
    first = findings[0]
    if group in {"tool chain", MACHINE}:
        return tools_text(findings)
    if group == "constants":
        return _constant_text(findings) + (f" ({first.note})" if first.note else "")
    if digests_only:
        return f"{', '.join(each.part for each in findings)} ({first.note})" if group == "contract" else ""
    text = f"{first.short()}{f' ({first.note})' if first.note and not first.is_told else ''}"
    if group == "graph":
        # Where the arguments are told, both operations in full tell nothing more.
        text = f"{first.part}: {first.note}" if first.note else text
        source = first.second_source or first.source
        text += f" at {source}" if source else ""
    return f"{text}; and {len(findings) - 1} more" if len(findings) > 1 else text


def _title(group: str, findings: Sequence[Finding]) -> str:
    if group == "state":
        return "start of state"
    if group == MACHINE:
        return "machine of the build"
    if group != "constants":
        return group
    named = {not is_counted(constant_name(each)) for each in findings}
    return "weights and constants" if len(named) == 2 else "weights" if named == {True} else "constants"


def constant_name(finding: Finding) -> str:
    """What a constant is called that a finding is about."""
    name: str = ast.literal_eval(finding.part.removeprefix("constant ")) if finding.part.startswith("constant ") else ""
    return name or finding.part


def shown_constant(finding: Finding) -> str:
    """The same for people: a counted name tells them nothing where an output hands the constant out."""
    name = constant_name(finding)
    return f"output {finding.output!r}" if finding.output and is_counted(name) else name


def _constant_text(findings: Sequence[Finding]) -> str:
    """Names, the one that moved most first."""
    largest = sorted(findings, key=lambda each: -1.0 if each.values is None else -each.values.largest)
    largest.sort(key=lambda each: each.values is None)
    first = largest[0]
    name = shown_constant(first)
    source = first.second_source or first.source
    if source and is_counted(constant_name(first)):  # such a name tells people nothing
        name += f" ({source})"
    if first.values is not None:
        text = f"{name}, largest difference {first.values.largest:.2g}"
    elif first.first and first.second:
        text = f"{name}: {first.first} -> {first.second}"
    else:
        text = name if first.change is Change.DIFFERS else f"{name} {first.change}"
    others = [shown_constant(each) for each in largest[1:]]
    return f"{text}; also {_some(others)}" if others else text


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


# --- findings ------------------------------------------------------------------------------------------------------


class _Findings:
    """What the two bundles say of themselves, and where it is not the same."""

    def __init__(self, first: Bundle, second: Bundle) -> None:
        self._first, self._second = first, second
        self._matched = Matched(match_nodes(first, second))

    def all(self) -> Iterator[Finding]:
        a, b = self._first, self._second
        yield from head(a, b)
        yield from contract_findings(a, b, self._matched)
        yield from self._initial_values()
        for old, new in self._matched.nodes.items():
            yield from self._node(old, new)
        yield from tool_findings(_built_with(a), _built_with(b), same_inputs=inputs_read(a) == inputs_read(b))

    def _node(self, old: str, new: str) -> Iterator[Finding]:
        a, b = self._first.nodes[old], self._second.nodes[new]
        first, second = Graph(*_graph(self._first, old)), Graph(*_graph(self._second, new))
        constants = match_constants(a.constants, b.constants)
        if a.graph_sha256 != b.graph_sha256 and (old == new or a.ops != b.ops):
            rotation = is_rotation(a) or is_rotation(b)
            yield from graph_findings(new, first, second, constants, rotation=rotation)
        yield from self._constants(old, new, first, second, constants)
        if a.graph_sha256 is None and b.graph_sha256 is None:
            before, after = ({each.format: each.sha256 for each in side.artifacts} for side in (a, b))
            yield from _brought(new, before, after)

    def _constants(
        self, old: str, new: str, first: Graph, second: Graph, names: Mapping[str, str]
    ) -> Iterator[Finding]:
        before = {each.name: each for each in self._first.nodes[old].constants}
        after = {each.name: each for each in self._second.nodes[new].constants}
        moved = {
            name: then
            for name, then in names.items()
            if replace(before[name], name="") != replace(after[then], name="")
        }
        values = compare_constants(self._first, self._second, old, new, moved) if moved else {}
        for name in sorted(before):
            source = first.source_of_constant(name)
            if name not in names:
                output = first.output_of_constant(name)
                yield _constant(new, name, Change.ONLY_FIRST, first=_type(before[name]), source=source, output=output)
                continue
            source_now = second.source_of_constant(names[name])
            if name in moved:
                found = _moved(new, before[name], after[moved[name]], values.get(name), source, source_now)
                output = second.output_of_constant(moved[name]) or first.output_of_constant(name)
                yield replace(found, output=output)
        for name in sorted(set(after) - set(names.values())):
            source = second.source_of_constant(name)
            output = second.output_of_constant(name)
            yield _constant(
                new, name, Change.ONLY_SECOND, second=_type(after[name]), second_source=source, output=output
            )

    def _initial_values(self) -> Iterator[Finding]:
        paths = [self._first.initial_values, self._second.initial_values]
        before, after = ({} if path is None else read_tensors(path) for path in paths)
        before = {self._matched.port("inputs", name) or name: value for name, value in before.items()}
        for name in sorted({*before, *after}):
            old, new = before.get(name), after.get(name)
            if old == new:
                continue
            part = f"initial value of {name!r}"
            if old is None or new is None:
                change = Change.ONLY_FIRST if new is None else Change.ONLY_SECOND
                # That there is a state more or less is said of its port.
                yield Finding(Cause.CONSTANTS, "", part, change, kind=START, step=Step.NONE)
            else:
                yield Finding(
                    Cause.CONSTANTS, "", part, Change.DIFFERS, tensor_text(old), tensor_text(new), kind=START,
                    step=Step.MAJOR, note="the first tick computes otherwise", values=compare_tensors(old, new),
                )  # fmt: skip


def _brought(node: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Finding]:
    """Models that were brought: nothing was recorded that could tell what in them is another."""
    for name in [each for each in before if each in after]:
        if before[name] != after[name]:
            yield Finding(
                Cause.GRAPH, node, f"model {name}", Change.DIFFERS, kind="brought-model", step=Step.MINOR,
                note="it was brought: its weights, its computation, or both",
            )  # fmt: skip


def _constant(node: str, name: str, change: Change, **more: Any) -> Finding:
    kind = "constant-removed" if change is Change.ONLY_FIRST else "constant-added"
    return Finding(Cause.CONSTANTS, node, f"constant {name!r}", change, kind=kind, step=Step.MINOR, **more)


def _moved(
    node: str, before: Constant, after: Constant, values: Values | None, source: str, source_now: str
) -> Finding:
    """A constant that is not the same. Values that only moved were not trained: someone meant other elements."""
    first = second = ""
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        first, second = _type(before), _type(after)
    kind, step, note = "constant", Step.MINOR, ""
    if values is not None and values.pattern:
        kind, step = "constant-rearranged", Step.MAJOR
        note = f"{values.pattern}; it looks like reordered elements, or another rotation or sign convention"
    elif values is not None and values.ulp is not None and values.ulp <= ROUNDING_ULP and _no_more_nan(values):
        step, note = Step.PATCH, "no more than rounding"
    return Finding(
        Cause.CONSTANTS, node, f"constant {before.name!r}", Change.DIFFERS, first, second, source, kind, step, note,
        source_now, values,
    )  # fmt: skip


def _no_more_nan(values: Values) -> bool:
    return (values.nan_first, values.infinite_first) == (values.nan_second, values.infinite_second)


def _type(constant: Constant) -> str:
    return f"{constant.dtype}{list(constant.shape)}"


def _built_with(bundle: Bundle) -> BuiltWith:
    return BuiltWith(dict(bundle.contract[SYSTEM]), *built_with(bundle))


def _graph(bundle: Bundle, node: str) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    path = f"nodes/{node}/graph.json"
    if path not in bundle.files:
        return {}, {}
    return parse_graph(bundle.read_bytes(path), bundle.folder / path), _sources(bundle, node)


def _sources(bundle: Bundle, node: str) -> Mapping[str, str]:
    """``file:line`` by operation, where the evidence is there."""
    path = bundle.sources(node)
    lines = {} if path is None else json.loads(path.read_bytes())
    if not isinstance(lines, dict):
        return {}
    return {op: f"{line.get('file')}:{line.get('line')}" for op, line in lines.items() if isinstance(line, dict)}


# --- digests -------------------------------------------------------------------------------------------------------


def diff_digests(a: BundleDigests, b: BundleDigests) -> BundleDiff:
    """Compare two bundles of which one, or both, are known by their digests alone, as a lock holds them."""
    sides = tuple(Side(each.name, each.version, each.platform) for each in (a, b))
    sides = (sides[0], sides[1])
    if a.bundle == b.bundle:
        return BundleDiff(a.bundle, b.bundle, sides=sides, digests_only=True)
    findings = tuple(_of_digests(a, b))
    files = tuple(_files_of_digests(a, b, findings))
    return BundleDiff(a.bundle, b.bundle, files, findings, sides, _inputs(a.inputs, b.inputs), digests_only=True)


def _of_digests(a: BundleDigests, b: BundleDigests) -> Iterator[Finding]:
    yield from plain_findings(Cause.CONTRACT, "", {"name": a.name}, {"name": b.name}, kind="name", step=Step.MAJOR)
    yield from plain_findings(
        Cause.CONTRACT, "", {"version": a.version}, {"version": b.version}, kind="version", step=Step.NONE
    )
    if a.contract != b.contract:
        yield _digest(Cause.CONTRACT, "", "wires, rate or settings", Step.MAJOR)
    for node in a.nodes:
        if node not in b.nodes:
            yield Finding(Cause.GRAPH, node, "the node", Change.ONLY_FIRST, kind="node-removed", step=Step.MAJOR)
    for node, digests in b.nodes.items():
        if node not in a.nodes:
            yield Finding(
                Cause.GRAPH, node, "the node", Change.ONLY_SECOND, kind="node-added", step=Step.MAJOR,
                note=f"whether it has inputs from outside, {_NOT_IN_A_LOCK}",
            )  # fmt: skip
        else:
            yield from _of_node(node, a.nodes[node], digests)
    if a.initial_values != b.initial_values:
        yield _digest(Cause.CONSTANTS, "", "a first-tick value", Step.MAJOR, kind=START)
    # A lock keeps no versions of what was not there.
    tools = [{key: value for key, value in each.toolchain.items() if value is not None} for each in (a, b)]
    first, second = (BuiltWith(tool, each.packages, each.builder) for tool, each in zip(tools, (a, b), strict=True))
    yield from tool_findings(first, second, same_inputs=a.inputs == b.inputs)


def _of_node(node: str, a: NodeDigests, b: NodeDigests) -> Iterator[Finding]:
    if a.ports != b.ports:
        yield _digest(Cause.CONTRACT, node, "the list of ports", Step.MAJOR)
    if a.settings != b.settings:
        yield _digest(Cause.CONTRACT, node, "formats or tolerances", Step.MINOR)
    if a.graph != b.graph:
        yield _digest(Cause.GRAPH, node, "the graph", Step.MINOR)
    if a.graph is None and b.graph is None:
        yield from _brought(node, a.artifacts, b.artifacts)
    if a.weights == b.weights:
        return
    if not a.constants or not b.constants or a.constants == b.constants:
        yield _digest(Cause.CONSTANTS, node, "a constant", Step.MINOR)
        return
    for name in sorted({*a.constants, *b.constants}):
        if name not in a.constants or name not in b.constants:
            yield _constant(node, name, Change.ONLY_FIRST if name in a.constants else Change.ONLY_SECOND)
        elif a.constants[name] != b.constants[name]:
            yield Finding(Cause.CONSTANTS, node, f"constant {name!r}", Change.DIFFERS, kind="constant", step=Step.MINOR)


def _digest(cause: Cause, node: str, part: str, step: Step, kind: str = "digest") -> Finding:
    note = _NOT_IN_A_LOCK if cause is Cause.CONTRACT else ""
    return Finding(cause, node, part, Change.DIFFERS, kind=kind, step=step, note=note)


def _files_of_digests(a: BundleDigests, b: BundleDigests, findings: Sequence[Finding]) -> Iterator[FileDifference]:
    """Model files that differ, and whether anything explains it."""
    explained = _Explained(findings)
    for node in [each for each in a.nodes if each in b.nodes]:
        before, after = a.nodes[node].artifacts, b.nodes[node].artifacts
        for path in sorted({*before, *after}):
            if before.get(path) == after.get(path):
                continue
            change = Change.DIFFERS
            if path not in before or path not in after:
                change = Change.ONLY_FIRST if path in before else Change.ONLY_SECOND
            causes, detail = explained.file(path, node)
            yield FileDifference(path, change, causes, detail)


# --- files ---------------------------------------------------------------------------------------------------------


def _files(a: Bundle, b: Bundle, findings: Sequence[Finding]) -> Iterator[FileDifference]:
    """Each content file that differs, with the findings that explain it."""
    explained = _Explained(findings)
    models: dict[str, tuple[Cause, ...]] = {}
    later: list[str] = []
    differing = [
        path
        for path in sorted({*a.files, *b.files})
        if path not in a.files or path not in b.files or a.files[path].sha256 != b.files[path].sha256
    ]
    found: dict[str, FileDifference] = {}
    contract_files = {a.contract_file, b.contract_file}
    for path in differing:
        node = _node_of(path, a, b)
        if path in contract_files or (node and path == node_manifest_path(node)):
            later.append(path)  # they repeat digests of the others
            continue
        causes, detail = explained.file(path, node)
        models[path] = causes
        found[path] = FileDifference(path, _change(path, a, b), causes, detail)
    for path in sorted(later, key=lambda path: path in contract_files):
        node = _node_of(path, a, b)
        causes, detail = explained.summary(node, whole=path in contract_files)
        if not causes:
            below = f"nodes/{node}/" if node else ""
            causes = _in_order({cause for each, its in models.items() if each.startswith(below) for cause in its})
            detail = REPEATS if causes else ""
        found[path] = FileDifference(path, _change(path, a, b), causes or (Cause.BYTES,), detail)
    yield from (found[path] for path in differing)


def _node_of(path: str, *bundles: Bundle) -> str:
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "nodes" and any(parts[1] in b.nodes for b in bundles) else ""


def _change(path: str, a: Bundle, b: Bundle) -> Change:
    if path not in b.files:
        return Change.ONLY_FIRST
    return Change.DIFFERS if path in a.files else Change.ONLY_SECOND


def _about(finding: Finding, node: str) -> bool:
    """Whether a finding is about a node, also by the name that it had."""
    return finding.node == node or (finding.kind == "node-renamed" and finding.first == node)


class _Explained:
    """Findings by the file that they show in."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._findings = findings

    def file(self, path: str, node: str) -> tuple[tuple[Cause, ...], str]:
        """A file that holds no digests: a graph, a model, first-tick values."""
        name = path.rpartition("/")[2]
        if node and name in {"graph.txt", "graph.json"}:
            wanted = {Cause.GRAPH}
        elif node:
            # A model file may hold its ports as metadata, and is written by the tool chain.
            wanted = {Cause.GRAPH, Cause.CONSTANTS, Cause.CONTRACT}
        else:
            wanted = {Cause.CONSTANTS}
        mine = [each for each in self._findings if each.cause in wanted and _about(each, node)]
        if not mine and not node:
            mine = [
                each for each in self._findings if each.kind.startswith(("port-", "node-"))
            ]  # values are kept by port
        if not mine:
            mine = [each for each in self._findings if each.cause is Cause.TOOL_CHAIN]
        return self._said(mine) if mine else ((Cause.BYTES,), "")

    def summary(self, node: str, *, whole: bool) -> tuple[tuple[Cause, ...], str]:
        """A node manifest, or the runtime file as a whole."""
        if whole:
            shown = {Cause.CONTRACT, Cause.TOOL_CHAIN}
            mine = [each for each in self._findings if each.cause in shown and each.kind not in BUILT_WITH]
            return self._said(mine)
        return self._said([each for each in self._findings if _about(each, node)])

    @staticmethod
    def _said(findings: Sequence[Finding]) -> tuple[tuple[Cause, ...], str]:
        return _in_order({each.cause for each in findings}), "; ".join(each.text() for each in findings[:3])


def _in_order(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Without ``BYTES`` where anything else explains the difference."""
    found = set(causes)
    better = tuple(cause for cause in Cause if cause in found and cause is not Cause.BYTES)
    return better or ((Cause.BYTES,) if found else ())


# --- text ----------------------------------------------------------------------------------------------------------


def _why(difference: FileDifference) -> str:
    causes = ", ".join(difference.causes)
    return f"{causes} ({difference.detail})" if difference.detail else causes
