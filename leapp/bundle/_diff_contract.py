"""Where the contracts of two bundles part: nodes, ports and their meaning, wires, rate, settings. Pure values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp.bundle._difference import Cause, Change, Finding, Step
from leapp.bundle.digests import WIRES, node_settings, pipeline_contract
from leapp.bundle.schema import PARTIAL, UNFIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from leapp.bundle.read import Bundle
    from leapp.bundle.schema import NodeManifest, PortEntry

_SAID: Final = {"kind": "kind", "unit": "unit", "range": "range", "element_names": "elements", "start": "state-start"}
"""Facts of a port that runtimes act on, and the kind of finding that a change of one is."""
_PROSE: Final = frozenset({"description", "comment", "doc", "note", "notes", "label", "title"})
"""Free fields that only people read."""
_CONVENTION: Final = re.compile(
    r"frame|convention|order|quat|euler|rotation|orientation|handed|axes|axis|encoding|scale|offset|sign", re.IGNORECASE
)
"""Free fields by such names say how numbers are meant."""
_ROTATION: Final = re.compile(r"quat|rot(?!or)|orientation|euler|pose|attitude", re.IGNORECASE)
_ROTATION_ORDER: Final = re.compile(r"(?<![a-z])(wxyz|xyzw|[xyz]{3}|rpy|ypr|zyz|zxz)(?![a-z])", re.IGNORECASE)
_QUATERNION: Final = frozenset("wxyz")
_SPELLED: Final = {"scalar": "w", "real": "w", "roll": "r", "pitch": "p", "yaw": "y"}
_GONE: Final = {"input": "whoever gives it cannot any more", "output": "whoever reads it does not find it any more"}
_OUTER: Final = ("inner", "an output of the pipeline")
MAX_MOVES: Final = 4
"""So many elements that moved are named."""


# --- what belongs to what ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one direction of a node, laid side by side."""

    pairs: tuple[tuple[int, int], ...]
    """Position in the first and in the second, in the order of the first."""
    removed: tuple[int, ...]
    added: tuple[int, ...]


@dataclass(slots=True)
class Matched:
    """Which node and port of the second bundle each one of the first became."""

    nodes: dict[str, str]
    ports: dict[str, str] = field(default_factory=dict)
    """``node/port`` of the first -> that of the second; inputs and outputs of one name stand apart by direction."""

    def port(self, direction: str, name: str) -> str | None:
        """What a port ``node/port`` of the first is called in the second; None where it is gone."""
        return self.ports.get(f"{direction}:{name}")


def match_nodes(a: Bundle, b: Bundle) -> dict[str, str]:
    """Nodes by name; one that is gone became a new one where exactly one computes the same."""
    found = {name: name for name in a.nodes if name in b.nodes}
    gone = [name for name in a.nodes if name not in b.nodes]
    new = [name for name in b.nodes if name not in a.nodes]
    for name in gone:
        same = [each for each in new if _alike(a.nodes[name], b.nodes[each])]
        others = [each for each in gone if each != name and _alike(a.nodes[each], a.nodes[name])]
        if len(same) == 1 and not others:
            found[name] = same[0]
    return found


def _alike(a: NodeManifest, b: NodeManifest) -> bool:
    """Whether two nodes are one but for the name, which the graph's digest holds: ports and counts have to tell."""
    return (a.inputs, a.outputs, a.ops, a.constants) == (b.inputs, b.outputs, b.ops, b.constants)


def match_ports(before: Sequence[PortEntry], after: Sequence[PortEntry]) -> Ports:
    """By name; a port that is gone became a new one where that one is the only one like it, or stands at its place."""
    places = {port.name: at for at, port in enumerate(after)}
    pairs = {at: places[port.name] for at, port in enumerate(before) if port.name in places}
    gone = [at for at in range(len(before)) if at not in pairs]
    new = [at for at in range(len(after)) if at not in pairs.values()]
    for same in (_same_meaning, _same_type):
        for at in list(gone):
            like = [each for each in new if same(before[at], after[each])]
            here = [each for each in like if each == at]
            if here or (same is _same_meaning and len(like) == 1):
                pairs[at] = (here or like)[0]
                gone.remove(at)
                new.remove(pairs[at])
    return Ports(tuple(sorted(pairs.items())), tuple(gone), tuple(new))


def _same_meaning(a: PortEntry, b: PortEntry) -> bool:
    return (a.dtype, a.shape, a.semantics) == (b.dtype, b.shape, b.semantics)


def _same_type(a: PortEntry, b: PortEntry) -> bool:
    return (a.dtype, a.shape) == (b.dtype, b.shape)


# --- the pipeline --------------------------------------------------------------------------------------------------


def head(a: Bundle, b: Bundle) -> Iterator[Finding]:
    """Name, version and status."""
    if a.name != b.name:
        note = "another pipeline, or another name for it: whoever loads it by its name does not find it"
        yield _differs("", "name", a.name, b.name, kind="name", step=Step.MAJOR, note=note)
    if a.version != b.version:
        yield _differs("", "version", a.version, b.version, kind="version", step=Step.NONE)
    if a.status != b.status:
        note = UNFIT.get(b.status, "")
        yield _differs("", "status", a.status, b.status, kind="status", step=Step.NONE, note=note)


def contract_findings(a: Bundle, b: Bundle, matched: Matched) -> Iterator[Finding]:
    """Nodes, ports, wires and settings. ``matched.ports`` is filled."""
    yield from _nodes(a, b, matched)
    after = {node: at for at, node in enumerate(b.nodes)}
    order = [matched.nodes[node] for node in a.nodes if node in matched.nodes]
    if order != sorted(order, key=after.__getitem__):
        first, second = ([*map(str, names)] for names in (order, sorted(order, key=after.__getitem__)))
        yield _differs("", "order of nodes", _list(first), _list(second), kind="nodes-reordered", step=Step.PATCH)
    for old, new in matched.nodes.items():
        yield from _node_ports(a, b, old, new, matched)
        yield from _settings(new, *_comparable((a, node_settings(a.nodes[old])), (b, node_settings(b.nodes[new]))))
    yield from _wires(a, b, matched)
    yield from _configs(a, b)


def _nodes(a: Bundle, b: Bundle, matched: Matched) -> Iterator[Finding]:
    for node in a.nodes:
        if node not in matched.nodes:
            note = "its ports are gone, and its model files"
            yield Finding(
                Cause.GRAPH, node, "the node", Change.ONLY_FIRST, kind="node-removed", step=Step.MAJOR, note=note
            )
        elif matched.nodes[node] != node:
            note = "values are handed over as node/port"
            yield Finding(
                Cause.GRAPH, matched.nodes[node], "name of the node", Change.DIFFERS, node, matched.nodes[node],
                kind="node-renamed", step=Step.MAJOR, note=note,
            )  # fmt: skip
    kept = set(matched.nodes.values())
    feeds = _Feeds(b)
    for node in b.nodes:
        if node not in kept:
            outer = [port.name for port in b.nodes[node].inputs if feeds.of(f"{node}/{port.name}")[0] != "wire"]
            yield Finding(
                Cause.GRAPH, node, "the node", Change.ONLY_SECOND, kind="node-added",
                step=Step.MAJOR if outer else Step.MINOR,
                note=f"whoever runs the pipeline has to give or keep {_names(outer)}" if outer else "",
            )  # fmt: skip


class _Feeds:
    """What feeds each input of a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        pipeline = bundle.contract["pipeline"]
        self._by_target = {
            target: (how, source)
            for how, key in (("feedback", "feedback_flow"), ("wire", "data_flow"))
            for source, targets in pipeline.get(key, {}).items()
            for target in targets
        }

    def of(self, port: str) -> tuple[str, str]:
        """``wire`` or ``feedback`` and the output that does it; ``outside`` and nothing where none does."""
        return self._by_target.get(port, ("outside", ""))


def _wires(a: Bundle, b: Bundle, matched: Matched) -> Iterator[Finding]:
    """Inputs that both have and that something else feeds; outputs that are no longer, or are now, outer ones."""
    before, after = _Feeds(a), _Feeds(b)
    for key, new in matched.ports.items():
        direction, _, old = key.partition(":")
        if direction != "inputs":
            continue
        (how, source), (how_now, source_now) = before.of(old), after.of(new)
        renamed = matched.port("outputs", source) if source else ""
        if (how, renamed) == (how_now, source_now):
            continue
        if how == how_now and renamed is None and source_now not in matched.ports.values():
            continue  # the output that fed it was replaced: that is said of the output
        note, step = "", Step.MINOR
        if how_now == "outside":
            note, step = "whoever runs the pipeline has to give it now", Step.MAJOR
        elif how == "outside":
            note, step = "whoever runs the pipeline cannot give it any more", Step.MAJOR
        elif how != how_now:
            note, step = "it holds a value of another tick", Step.MAJOR
        node, _, port = new.rpartition("/")
        texts = (f"{source} ({how})" if source else how, f"{source_now} ({how_now})" if source_now else how_now)
        yield _differs(node, f"what feeds input {port!r}", *texts, kind="wire", step=step, note=note)
    outer = [
        {f"{node}/{port}" for node, ports in each.contract["pipeline"].get("outputs", {}).items() for port in ports}
        for each in (a, b)
    ]
    for key, new in matched.ports.items():
        direction, _, old = key.partition(":")
        was, now = old in outer[0], new in outer[1]
        if direction == "outputs" and was != now:
            node, _, port = new.rpartition("/")
            yield _differs(
                node, f"output {port!r}", _OUTER[was], _OUTER[now], kind="outer-output",
                step=Step.MAJOR if was else Step.MINOR, note=_GONE["output"] if was else "",
            )  # fmt: skip


def _configs(a: Bundle, b: Bundle) -> Iterator[Finding]:
    before, after = pipeline_contract(a), pipeline_contract(b)
    for key in WIRES:  # compared port by port
        for each in (before, after):
            each["pipeline"].pop(key, None)
    rates = [each["pipeline"].get("configs", {}).pop("frequency", None) for each in (before, after)]
    for each, rate in zip((before, after), rates, strict=True):
        if rate is not None and "semantic" in each:
            each["semantic"].get("scene", {}).pop("dt", None)  # says the same
    if rates[0] != rates[1]:
        first, second = ("" if rate is None else f"{rate} Hz" for rate in rates)
        yield _valued(
            "", "rate", first, second, kind="rate", step=Step.MINOR if rates[0] is None else Step.MAJOR,
            note="" if rates[0] is None else "whoever calls it has to call it at another rate",
        )  # fmt: skip
    # Where the values are kept is told by their own differences.
    for each in (before, after):
        each["pipeline"].pop("initial_values", None)
    yield from plain_findings(Cause.CONTRACT, "", before, after, kind="setting", step=Step.MINOR)


# --- ports ---------------------------------------------------------------------------------------------------------


def _node_ports(a: Bundle, b: Bundle, old: str, new: str, matched: Matched) -> Iterator[Finding]:
    feeds = _Feeds(b)
    for direction, word in (("inputs", "input"), ("outputs", "output")):
        before: Sequence[PortEntry] = getattr(a.nodes[old], direction)
        after: Sequence[PortEntry] = getattr(b.nodes[new], direction)
        ports = match_ports(before, after)
        for at, then in ports.pairs:
            matched.ports[f"{direction}:{old}/{before[at].name}"] = f"{new}/{after[then].name}"
        yield from _which(new, word, before, after, ports, feeds)
        for at, then in ports.pairs:
            yield from port_findings(new, word, before[at], after[then])


def _which(
    node: str, word: str, before: Sequence[PortEntry], after: Sequence[PortEntry], ports: Ports, feeds: _Feeds
) -> Iterator[Finding]:
    """Ports removed, added, renamed, reordered."""
    for at in ports.removed:
        port = before[at]
        yield Finding(
            Cause.CONTRACT, node, f"{word} {port.name!r}", Change.ONLY_FIRST, _type(port), kind="port-removed",
            step=Step.MAJOR,
            note=_GONE[word],
        )  # fmt: skip
    for at in ports.added:
        port = after[at]
        step, note = Step.MINOR, ""
        if word == "input":
            how, source = feeds.of(f"{node}/{port.name}")
            note = {
                "wire": f"{source} feeds it",
                "feedback": f"whoever runs the pipeline has to keep {source} for it from tick to tick, and to reset it",
                "outside": "whoever runs the pipeline has to give it",
            }[how]
            step = Step.MINOR if how == "wire" else Step.MAJOR
        yield Finding(
            Cause.CONTRACT, node, f"{word} {port.name!r}", Change.ONLY_SECOND, "", _type(port), kind="port-added",
            step=step, note=note,
        )  # fmt: skip
    for at, then in ports.pairs:
        if before[at].name != after[then].name:
            yield _differs(
                node, f"name of {word} {at}", before[at].name, after[then].name, kind="port-renamed", step=Step.MAJOR
            )
    order = [then for _, then in ports.pairs]
    if order != sorted(order):
        names = [after[then].name for then in order]
        yield _differs(
            node, f"order of {word}s", _list(names), _list([after[then].name for then in sorted(order)]),
            kind="ports-reordered", step=Step.MAJOR, note=moves(names, [after[then].name for then in sorted(order)]),
        )  # fmt: skip


def port_findings(node: str, word: str, before: PortEntry, after: PortEntry) -> Iterator[Finding]:
    """What two ports that belong together do not share, their name aside. ``word``: ``input`` or ``output``."""
    part = f"{word} {after.name!r}"
    if before.dtype != after.dtype:
        yield _differs(node, f"{part}: dtype", before.dtype, after.dtype, kind="dtype", step=Step.MAJOR)
    if before.shape != after.shape:
        shapes = (str(list(each.shape)) for each in (before, after))
        yield _differs(node, f"{part}: shape", *shapes, kind="shape", step=Step.MAJOR)
    for key in dict.fromkeys([*before.semantics, *after.semantics]):
        old, new = before.semantics.get(key), after.semantics.get(key)
        if key == "element_names":
            yield from _elements(node, part, old, new, rotation=_is_rotation(after))
        elif json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True):
            yield _fact(node, word, part, key, old, new)


def _fact(node: str, word: str, part: str, key: str, old: Any, new: Any) -> Finding:
    kind = _SAID.get(key, "rate" if key == "temporal_period_ms" else "fact")
    step, note = Step.MAJOR, ""
    if key == "start":
        note = "the state starts otherwise"
    elif old is None:
        step = Step.MINOR
    elif key == "range":
        step, note = _range_step(word, old, new)
    elif key in _PROSE:
        step = Step.PATCH
    elif kind == "fact" and not _CONVENTION.search(key) and not _rotation_orders(old, new):
        step = Step.MINOR
    if orders := _rotation_orders(old, new):
        note = f"another rotation convention: {orders[0]} -> {orders[1]}"
    return _valued(node, f"{part}: {key}", _text(old), _text(new), kind=kind, step=step, note=note)


def _range_step(word: str, old: Any, new: Any) -> tuple[Step, str]:
    """An input may take more and an output may give less without anyone having to look at their side."""
    if not _is_range(old) or not _is_range(new):
        return Step.MAJOR, ""
    wider = new[0] <= old[0] and new[1] >= old[1]
    narrower = new[0] >= old[0] and new[1] <= old[1]
    if word == "input":
        return (Step.MINOR, "it takes more") if wider else (Step.MAJOR, "it does not take all that it took")
    return (
        (Step.MINOR, "it gives no more than it gave") if narrower else (Step.MAJOR, "it may give what it did not give")
    )


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(each, int | float) and not isinstance(each, bool) for each in value)
    )


def _elements(node: str, part: str, old: Any, new: Any, *, rotation: bool) -> Iterator[Finding]:
    """Element names, axis by axis."""
    if json.dumps(old) == json.dumps(new):
        return
    before, after = _axes(old), _axes(new)
    part = f"{part}: element names"
    if len(before) != len(after):
        step = Step.MINOR if old is None else Step.MAJOR
        yield _valued(node, part, _text(old), _text(new), kind="elements", step=step)
        return
    for axis, (names, names_now) in enumerate(zip(before, after, strict=True)):
        if names == names_now:
            continue
        place = part if len(before) == 1 else f"{part} of axis {axis}"
        if not isinstance(names, list) or not isinstance(names_now, list):
            step = Step.MINOR if names is None else Step.MAJOR
            yield _valued(node, place, _text(names), _text(names_now), kind="elements", step=step)
            continue
        if sorted(names) == sorted(names_now):
            note, kind = moves(names, names_now), "elements-reordered"
        else:
            note, kind = _renamed(names, names_now), "elements"
        if convention := _convention(names, names_now, rotation=rotation):
            note = f"another rotation convention: {convention}; {note}"
            kind = "rotation-convention"
        yield _differs(node, place, _list(names), _list(names_now), kind=kind, step=Step.MAJOR, note=note)


def _axes(names: Any) -> list[Any]:
    """One entry per axis: a list of names, a marker or None."""
    if names is None:
        return []
    if isinstance(names, str):
        return [[names]]
    if all(isinstance(each, str) for each in names) and not any(each.startswith("__") for each in names):
        return [list(names)]
    return [list(each) if isinstance(each, list | tuple) else each for each in names]


def moves(before: Sequence[str], after: Sequence[str]) -> str:
    """Which members of a list stand elsewhere: ``3 of 12 moved: hip 0 -> 2, ...``."""
    places = {name: at for at, name in enumerate(after)}
    moved = [(name, at, places[name]) for at, name in enumerate(before) if places[name] != at]
    shown = ", ".join(f"{name} {at} -> {then}" for name, at, then in moved[:MAX_MOVES])
    return f"{len(moved)} of {len(before)} moved: {shown}{', ...' if len(moved) > MAX_MOVES else ''}"


def _renamed(before: Sequence[str], after: Sequence[str]) -> str:
    if len(before) != len(after):
        gone, new = (
            [*dict.fromkeys(each for each in x if each not in y)] for x, y in ((before, after), (after, before))
        )
        texts = [f"without {_names(gone)}"] if gone else []
        return ", ".join(texts + ([f"new: {_names(new)}"] if new else []))
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    shown = ", ".join(f"{old} -> {new}" for old, new in changed[:MAX_MOVES])
    return f"{len(changed)} of {len(before)} have another name: {shown}{', ...' if len(changed) > MAX_MOVES else ''}"


# --- rotations -----------------------------------------------------------------------------------------------------


def is_rotation(manifest: NodeManifest) -> bool:
    """Whether a port of the node holds a rotation, as far as its name, kind and element names say so."""
    return any(map(_is_rotation, (*manifest.inputs, *manifest.outputs)))


def _is_rotation(port: PortEntry) -> bool:
    said = f"{port.name} {port.semantics.get('kind') or ''}"
    return bool(_ROTATION.search(said)) or any(
        isinstance(axis, list) and _letters(axis) for axis in _axes(port.semantics.get("element_names"))
    )


def _letters(names: Sequence[Any]) -> str:
    """``wxyz`` of ``[qw, qx, qy, qz]``, ``rpy`` of ``[roll, pitch, yaw]``: the order of a rotation; else empty."""
    texts = [str(name).casefold() for name in names]
    if len(texts) not in {3, 4} or len(set(texts)) != len(texts):
        return ""
    if set(texts) <= _SPELLED.keys():
        return "".join(_SPELLED[text] for text in texts)
    tails = [re.split(r"[^a-z0-9]", text)[-1] for text in texts]
    letters = "".join(_SPELLED.get(tail, tail[-1:]) for tail in tails)
    if len(texts) == 4 and set(letters) == _QUATERNION:
        return letters
    return letters if set(letters) == set("rpy") and set(tails) <= {*_SPELLED, *"rpy"} else ""


def _convention(before: Sequence[str], after: Sequence[str], *, rotation: bool) -> str:
    old, new = _letters(before), _letters(after)
    if rotation and not (old and new) and len(before) == 3:
        old, new = ("".join(name[-1:].casefold() for name in names) for names in (before, after))
        if set(old) != set("xyz"):
            return ""
    return f"{old} -> {new}" if old and new and old != new and sorted(old) == sorted(new) else ""


def _rotation_orders(old: Any, new: Any) -> tuple[str, str] | None:
    """Two orders that texts name: ``quaternion_wxyz`` and ``quaternion_xyzw``."""
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    found = [_ROTATION_ORDER.search(text) for text in (old.replace("_", "-"), new.replace("_", "-"))]
    if found[0] is None or found[1] is None:
        return None
    orders = found[0][0].lower(), found[1][0].lower()
    return None if orders[0] == orders[1] else orders


# --- settings ------------------------------------------------------------------------------------------------------


def _comparable(*sides: tuple[Bundle, dict[str, Any]]) -> list[dict[str, Any]]:
    """Settings of one node in two bundles, without its models where a build of another node alone left them out."""
    left_out = any(bundle.status == PARTIAL and not settings["artifacts"] for bundle, settings in sides)
    return [settings | ({"artifacts": []} if left_out else {}) for _, settings in sides]


def _settings(node: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Finding]:
    """Formats, tolerances and whatever else a node manifest says of its models."""
    formats = [{each["format"]: each for each in side["artifacts"]} for side in (before, after)]
    for name in dict.fromkeys([*formats[0], *formats[1]]):
        if name not in formats[1]:
            note = "whoever loads this format does not find it any more"
            yield Finding(
                Cause.CONTRACT, node, f"model as {name}", Change.ONLY_FIRST, kind="format-removed", step=Step.MAJOR,
                note=note,
            )  # fmt: skip
        elif name not in formats[0]:
            yield Finding(
                Cause.CONTRACT, node, f"model as {name}", Change.ONLY_SECOND, kind="format-added", step=Step.MINOR
            )
        else:
            old, new = ({key: each for key, each in side[name].items() if key != "path"} for side in formats)
            for found in plain_findings(Cause.CONTRACT, node, old, new, kind="format", step=Step.MINOR):
                raised = found.part in {"opset_version", "ir_version"}
                note = "an older runtime may not load it" if raised else ""
                yield _valued(
                    node, f"model as {name}: {found.part}", found.first, found.second, kind="format",
                    step=Step.MINOR if raised else Step.PATCH, note=note,
                )  # fmt: skip
    orders = [[name for name in side if name in formats[1 - at]] for at, side in enumerate(formats)]
    if orders[0] != orders[1]:
        yield _differs(
            node, "order of formats", *map(_list, orders), kind="format", step=Step.MINOR,
            note="the first one is what a runtime takes",
        )  # fmt: skip
    rest = [{key: each for key, each in side.items() if key != "artifacts"} for side in (before, after)]
    yield from plain_findings(Cause.CONTRACT, node, *rest, kind="setting", step=Step.PATCH)


# --- plain values --------------------------------------------------------------------------------------------------


def plain_findings(
    cause: Cause, node: str, a: Mapping[str, Any], b: Mapping[str, Any], *, kind: str, step: Step
) -> Iterator[Finding]:
    """Plain values that differ, by key path."""
    before, after = _flat(a), _flat(b)
    for key in dict.fromkeys([*before, *after]):
        if key in before and key in after:
            if before[key] == after[key] and type(before[key]) is type(after[key]):
                continue
            change, texts = Change.DIFFERS, (json_text(before[key]), json_text(after[key]))
        elif key in before:
            change, texts = Change.ONLY_FIRST, (json_text(before[key]), "")
        else:
            change, texts = Change.ONLY_SECOND, ("", json_text(after[key]))
        yield Finding(cause, node, key, change, *texts, kind=kind, step=step)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves by dotted path. Lists are leaves when they hold plain values only; an empty map says nothing."""
    if isinstance(value, dict):
        items: Iterable[tuple[str, Any]] = ((f".{key}", each) for key, each in value.items())
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        items = ((f"[{index}]", each) for index, each in enumerate(value))
    else:
        return {path.removeprefix("."): value}
    found: dict[str, Any] = {}
    for key, each in items:
        found |= _flat(each, path + key)
    return found


def _differs(node: str, part: str, first: str, second: str, *, kind: str, step: Step, note: str = "") -> Finding:
    return Finding(Cause.CONTRACT, node, part, Change.DIFFERS, first, second, kind=kind, step=step, note=note)


def _valued(node: str, part: str, first: str, second: str, *, kind: str, step: Step, note: str = "") -> Finding:
    """A value that one side may lack."""
    change = Change.DIFFERS if first and second else Change.ONLY_FIRST if first else Change.ONLY_SECOND
    return Finding(Cause.CONTRACT, node, part, change, first, second, kind=kind, step=step, note=note)


def _type(port: PortEntry) -> str:
    return f"{port.dtype}{list(port.shape)}"


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json_text(value)


def _list(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names))


def _names(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:MAX_MOVES])
    return f"{shown}, ..." if len(names) > MAX_MOVES else shown


def json_text(value: Any) -> str:
    """A plain value as JSON."""
    # Dates and the like come out of YAML only where a bundle was edited by hand.
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
