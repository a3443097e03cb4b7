"""Two bundles -> what differs between them, and why. Nothing is executed; neither torch nor NumPy is needed.

The digests of ``bundle.json`` say which files differ; node manifests, graphs and the runtime file say why: the graph,
its constants, the contract (ports, wires, settings), the tool chain, or nothing of these: bytes only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leapp.bundle.read import Bundle, load, node_manifest_path
from leapp.bundle.samples import read_tensors
from leapp.bundle.schema import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON
    from leapp.bundle.schema import NodeManifest

Flat: TypeAlias = "dict[str, Any]"
"""Nested plain values by their dotted path."""

MAX_SHOWN: Final = 160
"""Longer values are cut in texts for people."""
MAX_OPERATIONS: Final = 20
"""So many operations of a graph are named; a graph that differs in more is another graph."""
_DIGEST_FIELDS: Final = frozenset({"sha256sum", "md5sum", "initial_values_sha256sum"})
"""What the runtime file repeats of other files: a difference there is theirs."""
_SYSTEM: Final = "system information"


class Cause(StrEnum):
    """Why a file differs."""

    GRAPH = "graph"
    """The computation: operations, their order, arguments, shapes."""
    CONSTANTS = "constants"
    """The values of tensors: weights, constants, first-tick values."""
    CONTRACT = "contract"
    """Ports, wires, settings, tolerances, name, version, status."""
    TOOL_CHAIN = "tool chain"
    """What the models were made with."""
    BYTES = "bytes only"
    """The same model, written differently."""


class Change(StrEnum):
    """How a file or part differs."""

    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the two bundles do not share, apart from bytes."""

    cause: Cause
    node: str
    """The node that it is about; empty for what belongs to the pipeline."""
    part: str
    """What it is called there: an operation, a constant, a key path."""
    change: Change
    first: str = ""
    second: str = ""
    """As text; empty where only one bundle has it, or where the value is too large to be shown."""
    source: str = ""
    """The user's ``file:line`` that it was recorded at, where the evidence of the first bundle has it."""

    def text(self) -> str:
        """One line for people."""
        where = f"node {self.node!r}: " if self.node else ""
        what = f"{self.part} {self.change}"
        if self.first and self.second:
            what = f"{self.part}: {_cut(self.first)} -> {_cut(self.second)}"
        return f"{where}{what}{f' ({self.source})' if self.source else ''}"

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "cause": self.cause.value,
            "node": self.node,
            "part": self.part,
            "change": self.change.value,
            "first": self.first,
            "second": self.second,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class FileDifference:
    """One content file that the two bundles do not share."""

    path: str
    change: Change
    causes: tuple[Cause, ...]
    """At least one. ``BYTES`` stands alone: nothing that the bundles say of themselves explains the difference."""
    detail: str = ""

    def as_json(self) -> dict[str, JSON]:
        """For machines."""
        return {
            "path": self.path,
            "change": self.change.value,
            "causes": [cause.value for cause in self.causes],
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class BundleDiff:
    """What two bundles do not share."""

    first: str
    """Digest of the first bundle."""
    second: str
    files: tuple[FileDifference, ...] = ()
    """Sorted by path."""
    findings: tuple[Finding, ...] = ()

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
            "causes": [cause.value for cause in self.causes],
            "files": [each.as_json() for each in self.files],
            "findings": [each.as_json() for each in self.findings],
        }


def diff(first: Path | str | Bundle, second: Path | str | Bundle) -> BundleDiff:
    """Compare the content of two bundles by their recorded digests; evidence takes no part.

    Raises:
        NotABundleError, BundleFormatError, BundleTooNewError: as ``leapp.bundle.read.load``.
        BundleDigestError: a file that would explain a difference is not the one that was written.
    """
    a, b = (each if isinstance(each, Bundle) else load(each) for each in (first, second))
    if a.digest == b.digest:
        return BundleDiff(a.digest, b.digest)
    findings = tuple(_Findings(a, b).all())
    return BundleDiff(a.digest, b.digest, tuple(_files(a, b, findings)), findings)


# --- findings ------------------------------------------------------------------------------------------------------


class _Findings:
    """What the two bundles say of themselves, and where it is not the same."""

    def __init__(self, first: Bundle, second: Bundle) -> None:
        self._first, self._second = first, second

    def all(self) -> Iterator[Finding]:
        a, b = self._first, self._second
        yield from self._map(Cause.CONTRACT, "", _head(a), _head(b))
        for node in dict.fromkeys([*a.nodes, *b.nodes]):
            if node in a.nodes and node in b.nodes:
                yield from self._node(node, a.nodes[node], b.nodes[node])
            else:
                change = Change.ONLY_FIRST if node in a.nodes else Change.ONLY_SECOND
                yield Finding(Cause.GRAPH, node, "the node", change)
        yield from self._map(Cause.CONTRACT, "", _contract(a), _contract(b))
        yield from self._map(Cause.TOOL_CHAIN, "", a.contract[_SYSTEM], b.contract[_SYSTEM])
        yield from self._initial_values()

    def _node(self, node: str, a: NodeManifest, b: NodeManifest) -> Iterator[Finding]:
        sources = _sources(self._first, node)
        graphs = [_graph(bundle, node) for bundle in (self._first, self._second)]
        if a.graph_sha256 != b.graph_sha256:
            yield from _graph_findings(node, graphs[0], graphs[1], sources)
        before, after = ({each.name: each for each in manifest.constants} for manifest in (a, b))
        users = {op.get("target"): op.get("id", "") for op in _ops(graphs[0]) if op.get("op") == "get_attr"}
        for name in sorted({*before, *after}):
            if before.get(name) == after.get(name):
                continue
            change, first, second = Change.DIFFERS, "", ""
            if name not in before or name not in after:
                change = Change.ONLY_FIRST if name in before else Change.ONLY_SECOND
            elif (before[name].dtype, before[name].shape) != (after[name].dtype, after[name].shape):
                first, second = (f"{each.dtype}{list(each.shape)}" for each in (before[name], after[name]))
            source = sources.get(users.get(name, ""), "")
            yield Finding(Cause.CONSTANTS, node, f"constant {name!r}", change, first, second, source)
        yield from self._map(Cause.CONTRACT, node, _settings(a), _settings(b))

    @staticmethod
    def _map(cause: Cause, node: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Finding]:
        """Plain values that differ, by key path."""
        before, after = _flat(a), _flat(b)
        for key in dict.fromkeys([*before, *after]):
            if key not in before:
                yield Finding(cause, node, key, Change.ONLY_SECOND, "", _json_text(after[key]))
            elif key not in after:
                yield Finding(cause, node, key, Change.ONLY_FIRST, _json_text(before[key]))
            elif before[key] != after[key] or type(before[key]) is not type(after[key]):
                yield Finding(cause, node, key, Change.DIFFERS, _json_text(before[key]), _json_text(after[key]))

    def _initial_values(self) -> Iterator[Finding]:
        paths = [self._first.initial_values, self._second.initial_values]
        before, after = ({} if path is None else read_tensors(path) for path in paths)
        for name in sorted({*before, *after}):
            if before.get(name) == after.get(name):
                continue
            change = Change.DIFFERS
            if name not in before or name not in after:
                change = Change.ONLY_FIRST if name in before else Change.ONLY_SECOND
            yield Finding(Cause.CONSTANTS, "", f"initial value of {name!r}", change)


def _head(bundle: Bundle) -> dict[str, Any]:
    return {"name": bundle.name, "version": bundle.version, "status": bundle.status}


def _settings(manifest: NodeManifest) -> dict[str, Any]:
    """What a node manifest says beside graph, constants and the digests of its files."""
    value: Any = to_json(manifest)
    artifacts = [
        {key: each for key, each in artifact.items() if key not in {"sha256", "md5", "size"}}
        for artifact in value["artifacts"]
    ]
    kept = ("inputs", "outputs", "tolerances", "warp_segments")
    return {key: value[key] for key in kept} | {"artifacts": artifacts}


def _contract(bundle: Bundle) -> dict[str, Any]:
    """The runtime file without what node manifests say too, digests and the tool chain."""
    kept = {key: value for key, value in bundle.contract.items() if key not in {"models", _SYSTEM}}
    cleaned: dict[str, Any] = _without_digests(kept)
    return cleaned


def _without_digests(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_digests(each) for key, each in value.items() if key not in _DIGEST_FIELDS}
    return [_without_digests(each) for each in value] if isinstance(value, list) else value


def _flat(value: Any, path: str = "") -> Flat:
    """Leaves by dotted path; an empty map or list is a leaf. Lists are leaves when they hold plain values only."""
    if isinstance(value, dict) and value:
        items: Iterable[tuple[str, Any]] = ((f".{key}", each) for key, each in value.items())
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        items = ((f"[{_label(each, index)}]", each) for index, each in enumerate(value))
    else:
        return {path.removeprefix("."): value}
    found: Flat = {}
    for key, each in items:
        found |= _flat(each, path + key)
    return found


def _label(item: Any, index: int) -> str:
    """How an item of a list is called: by its own name where it has one."""
    if isinstance(item, dict):
        for key in ("name", "format"):
            if isinstance(item.get(key), str):
                return f"{index}: {item[key]}"
    return str(index)


# --- graphs --------------------------------------------------------------------------------------------------------


def _graph(bundle: Bundle, node: str) -> Mapping[str, Any]:
    path = f"nodes/{node}/graph.json"
    if path not in bundle.files:
        return {}
    value = json.loads(bundle.read_bytes(path))
    return value if isinstance(value, dict) else {}


def _ops(graph: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [op for op in graph.get("ops", ()) if isinstance(op, dict)]


def _graph_findings(
    node: str, first: Mapping[str, Any], second: Mapping[str, Any], sources: Mapping[str, str]
) -> Iterator[Finding]:
    """Operations that are not the same, each as one line before and one after, up to the first that is another one.

    Behind that one the two graphs cannot be laid side by side any more.
    """
    a, b = _ops(first), _ops(second)
    found = 0
    for index in range(max(len(a), len(b))):
        before, after = (ops[index] if index < len(ops) else None for ops in (a, b))
        if before == after:
            continue
        known: Mapping[str, Any] = before or after or {}
        change = Change.DIFFERS if before and after else Change.ONLY_FIRST if before else Change.ONLY_SECOND
        was, became = ("" if op is None else _op_text(op) for op in (before, after))
        source = sources.get(str(known.get("id")), "")
        yield Finding(Cause.GRAPH, node, f"operation {index + 1}", change, was, became, source)
        found += 1
        if before is None or after is None or before.get("target") != after.get("target") or found == MAX_OPERATIONS:
            return
    if not found:
        yield Finding(Cause.GRAPH, node, "inputs or outputs of the graph", Change.DIFFERS)


def _op_text(op: Mapping[str, Any]) -> str:
    given = [_argument(each) for each in op.get("args", ())]
    given += [f"{key}={_argument(each)}" for key, each in dict(op.get("kwargs", {})).items()]
    shape = f" -> {op['dtype']}{op['shape']}" if "dtype" in op and "shape" in op else ""
    return f"%{op.get('id')} = {op.get('target')}({', '.join(given)}){shape}"


def _argument(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"ref"}:
        return f"%{value['ref']}"
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    return _json_text(value)


def _sources(bundle: Bundle, node: str) -> Mapping[str, str]:
    """``file:line`` by operation, where the evidence is there."""
    path = bundle.sources(node)
    lines = {} if path is None else json.loads(path.read_bytes())
    if not isinstance(lines, dict):
        return {}
    return {op: f"{line.get('file')}:{line.get('line')}" for op, line in lines.items() if isinstance(line, dict)}


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
            detail = "it holds the digests of files that differ" if causes else ""
        found[path] = FileDifference(path, _change(path, a, b), causes or (Cause.BYTES,), detail)
    yield from (found[path] for path in differing)


def _node_of(path: str, *bundles: Bundle) -> str:
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "nodes" and any(parts[1] in b.nodes for b in bundles) else ""


def _change(path: str, a: Bundle, b: Bundle) -> Change:
    if path not in b.files:
        return Change.ONLY_FIRST
    return Change.DIFFERS if path in a.files else Change.ONLY_SECOND


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
        mine = [each for each in self._findings if each.cause in wanted and each.node == node]
        if not mine:
            mine = [each for each in self._findings if each.cause is Cause.TOOL_CHAIN]
        return self._said(mine) if mine else ((Cause.BYTES,), "")

    def summary(self, node: str, *, whole: bool) -> tuple[tuple[Cause, ...], str]:
        """A node manifest, or the runtime file as a whole."""
        if whole:
            shown = {Cause.CONTRACT, Cause.TOOL_CHAIN}
            return self._said([each for each in self._findings if each.cause in shown])
        return self._said([each for each in self._findings if each.node == node])

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


def _json_text(value: Any) -> str:
    # Dates and the like come out of YAML only where a bundle was edited by hand.
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
