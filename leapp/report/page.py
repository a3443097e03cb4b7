"""``evidence/report.html``: one offline page, drawn from a bundle's metadata alone. Equal metadata, equal bytes."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from leapp.errors import MissingDependencyError, PictureError
from leapp.report._html import Content, Html, element, join, table
from leapp.report.checks import STATISTICS_HEAD
from leapp.report.facts import collect, shape_text, value_text
from leapp.report.inspect import ROLES, constants_text, state_rows
from leapp.report.outcomes import NOTED
from leapp.report.picture import picture_svg
from leapp.report.text import counted, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON, NodeSpec, Port
    from leapp.bundle.schema import Artifact
    from leapp.report.checks import CheckRow
    from leapp.report.facts import Facts, NodeFacts

_SESSION: Final[Mapping[str, str]] = {
    "manifest": "Manifest",
    "entry": "Entry",
    "seed": "Seed",
    "threads": "Threads",
    "network": "Network",
    "variables": "Variables",
}
MAX_OPS: Final = 2000
"""Rows of a graph that are shown; a browser has trouble with more, and graph.txt has them all."""
_KNOWN_SEMANTICS: Final = ("kind", "element_names", "unit")


def render(folder: Path) -> bytes:
    """The page of a bundle, sealed or still staged.

    Needs the runtime file and the nodes' manifests; says what it can of everything else that is there.
    """
    return draw(collect(folder))


def draw(page: Facts) -> bytes:
    """The whole page as UTF-8. No script, nothing loaded from anywhere."""
    title = f"{page.name} {page.version}".rstrip()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(_css())),
    )
    parts = (_header(page), _notes(page), _wiring(page), _state(page), _noted(page), _build(page))
    body = element("body", element("main", *parts, *_nodes(page), _tools(page)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n".encode()


def _css() -> str:
    return files("leapp.report").joinpath("page.css").read_text(encoding="utf-8").strip()


def _header(page: Facts) -> Html:
    good = page.status == "ok"
    facts: list[tuple[str, Content]] = []
    if page.version:
        facts.append(("Version", page.version))
    facts.append(("Digest", _code(page.digest) if page.digest else _soft("in bundle.json, once the bundle is sealed")))
    for name, value in sorted(page.configs.items()):
        unit = " Hz" if name == "frequency" else None
        facts.append((name.replace("_", " ").capitalize(), join(_value(value), unit)))
    facts.append(("Nodes", join(*_separated([_link(node.spec.name, page) for node in page.nodes]))))
    if page.probe:
        sound = all(run["ok"] for run in page.probe)
        facts.append(("Probe", "nothing in it follows the data of a run" if sound else _badge("failed", "bad")))
    if page.reproduction:
        again = page.reproduction["reproduced"]
        facts.append(("Reproduction", "byte-identical" if again else _badge("differs", "bad")))
    if page.checks:
        rows = [row for row in page.checks if not row.in_pipeline]
        facts.append(("Replay", f"{sum(row.ok for row in rows)} of {len(rows)} outputs agree with the recording"))
    if page.played:
        facts.append(
            ("Whole pipeline", join(*_separated([*map(_text, (page.played, *page.played_notes))], Html("<br/>"))))
        )
    return element(
        "header",
        element("p", "Pipeline report", class_="kicker"),
        element("h1", page.name, _badge(page.status, "good" if good else "bad")),
        _facts_list(facts),
        class_="card",
    )


def _notes(page: Facts) -> Html | None:
    if not page.warnings:
        return None
    items = (element("li", text) for text in page.warnings)
    return element("section", element("h2", "Warnings"), element("ul", *items, class_="notes"), class_="card")


def _wiring(page: Facts) -> Html:
    rows: list[tuple[Content, ...]] = [
        (_code(source), _code(target), kind)
        for kind, flow in (("same tick", page.data_flow), ("next tick", page.feedback_flow))
        for source in sorted(flow)
        for target in flow[source]
    ]
    outside = _soft("outside")
    rows += [
        (outside, _code(f"{node}/{port}"), "outer input") for node in sorted(page.inputs) for port in page.inputs[node]
    ]
    rows += [
        (_code(f"{node}/{port}"), outside, "outer output")
        for node in sorted(page.outputs)
        for port in page.outputs[node]
    ]
    wires = table(("From", "To", "When"), rows) if rows else element("p", "No wires.", class_="soft")
    return element(
        "section",
        element("h2", "Wiring"),
        _picture(page),
        element("details", element("summary", f"Wires and outer ports: {len(rows)}"), wires),
        class_="card",
    )


def _picture(page: Facts) -> Html:
    try:
        drawn = Html(picture_svg(page, framed=False))
    except (MissingDependencyError, PictureError) as error:
        return element("p", f"Not drawn. {str(error).splitlines()[0]}", class_="soft")
    return join(
        element("div", drawn, class_="scroll", tabindex="0"),
        element(
            "div",
            element("span", element("i"), "same tick"),
            element("span", element("i", class_="b"), "fed back to the next tick") if page.feedback_flow else None,
            element("span", element("i", class_="o"), "from and to the outside"),
            class_="key",
        ),
    )


def _state(page: Facts) -> Html | None:
    rows: list[tuple[Content, ...]] = [
        (_code(target), _code(source), start) for target, source, start in state_rows(page)
    ]
    if not rows:
        return None
    head = ("Input", "Fed back by", "At the first tick")
    return element("section", element("h2", "State and feedback"), table(head, rows), class_="card")


def _noted(page: Facts) -> Html | None:
    """Where traced values left the trace, were allowed to, or are meant to be fixed."""
    if not page.noted:
        return None
    rows: list[tuple[Content, ...]] = []
    for each in page.noted:
        kind = each.kind.removesuffix("-allowed")
        allowed = _badge("allowed", "good") if each.kind != kind else None
        place = element("span", each.source, element("br"), _soft(each.function), class_="m")
        rows.append((join(NOTED.get(kind, kind), " ", allowed), _code(each.op), place, each.node))
    return element(
        "section",
        element("h2", "Where values left the trace"),
        table(("What", "Operation", "Line", "Node"), rows),
        class_="card",
    )


def _build(page: Facts) -> Html | None:
    """What the build did besides: how the session was set up, the probe, the reproduction."""
    parts = [*_session(page.session), *_probe(page), *_reproduction(page.reproduction)]
    return element("section", element("h2", "Build"), *parts, class_="card") if parts else None


def _session(session: Mapping[str, Any]) -> Iterator[Content]:
    if not session:
        return
    facts: list[tuple[str, Content]] = [
        (title, _value(session[key]))
        for key, title in _SESSION.items()
        if key in session and (session[key] or session[key] == 0) and session[key] is not False
    ]
    if memory := session.get("peak_memory_bytes"):
        facts.append(("Peak memory", size_text(memory)))
    for name, value in sorted((session.get("metadata") or {}).items()):
        facts.append((name.replace("_", " ").capitalize(), _value(value)))
    yield _facts_list(facts)
    yield _texts(session.get("notes", ()))


def _probe(page: Facts) -> Iterator[Content]:
    runs = page.probe
    if not runs:
        return
    yield element("h3", "Probe: the entry once more, on other data")
    rows: list[tuple[Content, ...]] = []
    for at, run in enumerate(runs, 1):
        state = _badge("nothing was frozen", "good") if run["ok"] else _badge("failed", "bad")
        ports = (_varied(page, run), _ports_list(run.get("not_varied", ())))
        rows.append((f"{at}", state, *ports, _ports_list([str(each) for each in run.get("unseeded_weights", ())])))
    yield table(("Run", "Result", "Inputs that varied", "Inputs that did not vary", "Unseeded weights"), rows)
    moved: list[tuple[Content, ...]] = [
        (
            join(each["node"], " ", _badge("allowed", "good") if each.get("allowed") else _badge("frozen", "bad")),
            join(each["what"], " of ", _code(each["op"])),
            _soft("-") if each.get("largest") is None else f"{each['largest']:.3g}",
            _code(f"{each['file']}:{each['line']}") if each.get("file") else _soft("-"),
            each.get("escape") or _soft("no read was seen"),
        )
        for run in runs
        for each in run.get("moved", ())
    ]
    if moved:
        yield table(("Node", "What moved with the data", "Largest change", "Line", "Fed by"), moved)


def _varied(page: Facts, run: Mapping[str, Any]) -> Html:
    """Outer inputs that had other values in a run: other arguments gave them, or the probe where they enter."""
    perturbed = run.get("perturbed", ())
    outer = [f"{node}/{port}" for node in sorted(page.inputs) for port in page.inputs[node]]
    varied = [name for name in dict.fromkeys((*outer, *perturbed)) if name not in run.get("not_varied", ())]
    pieces = [join(_code(name), _soft(" by the probe") if name in perturbed else None) for name in varied]
    return join(*_separated(pieces, Html("<br/>"))) if pieces else _soft("-")


def _reproduction(record: Mapping[str, Any]) -> Iterator[Content]:
    if not record:
        return
    yield element("h3", "Reproduction: once more, with everything varied")
    state = _badge("byte-identical", "good") if record["reproduced"] else _badge("differs", "bad")
    inputs = record.get("inputs") or {}
    facts: list[tuple[str, Content]] = [("Result", join(state, f" {counted(record['content_files'], 'content file')}"))]
    if inputs:
        complete = "complete" if inputs.get("complete") else "not known to be complete"
        facts.append(("Inputs", f"{counted(inputs['files'], 'file')}, {inputs['kind']}, {complete}"))
    yield _facts_list(facts)
    varied = [(name, text) for name, text in sorted((record.get("varied") or {}).items())]
    if varied:
        yield _folded(f"Varied: {', '.join(name for name, _ in varied)}", table(("What", "How"), [*varied]))
    differing = [path for run in record.get("runs", ()) for path in run.get("differing", ())]
    yield _texts([*(f"{path} differs" for path in dict.fromkeys(map(str, differing))), *record.get("notes", ())])


def _facts_list(facts: Sequence[tuple[str, Content]]) -> Html:
    return element("dl", *(piece for name, value in facts for piece in (element("dt", name), element("dd", value))))


def _texts(texts: Sequence[str]) -> Html | None:
    return element("ul", *(element("li", text) for text in texts), class_="notes") if texts else None


def _ports_list(names: Sequence[str]) -> Html:
    return join(*_separated([_code(name) for name in names], Html("<br/>"))) if names else _soft("-")


def _nodes(page: Facts) -> list[Html]:
    return [_node(node, page, at) for at, node in enumerate(page.nodes)]


def _node(node: NodeFacts, page: Facts, at: int) -> Html:
    name = node.spec.name
    checks = [row for row in page.checks if row.node == name]
    failed = any(not row.ok for row in checks)
    state = _badge("failed", "bad") if failed else _badge("replayed", "good") if checks else _badge("not replayed", "")
    parts: list[Content] = [
        element("h2", name, " ", state),
        element("h3", "Ports"),
        table(("Direction", "Name", "Type", "Shape", "Semantics"), _ports(node.spec)),
    ]
    parts += [element("h3", "Model files"), _artifacts(node)]
    if checks:
        parts += [element("h3", "Replay of the recorded samples and ticks"), _checks(checks)]
        if any(row.statistics for row in checks):
            parts.append(_folded("Statistics of the differences", _statistics(checks)))
    if node.op_counts:
        ordered = sorted(node.op_counts.items(), key=lambda item: (-item[1], item[0]))
        chips = (
            element("span", target, element("b", Html("&times;"), count), class_="chip") for target, count in ordered
        )
        heading = counted(sum(node.op_counts.values()), "operation")
        parts += [element("h3", heading), element("div", *chips, class_="chips")]
    if node.digests:
        rows = [piece for key, value in node.digests.items() for piece in (element("dt", key), _digest_line(value))]
        parts += [element("h3", "Digests"), element("dl", *rows)]
    if node.steps:
        parts.append(_folded(f"Graph: {counted(len(node.steps), 'step')} with source lines", _ops(node)))
    if node.constants:
        parts.append(_folded(constants_text(node.constants), _constants(node)))
    return element("section", *parts, class_="card", id=f"node-{at}")


def _ports(spec: NodeSpec) -> list[tuple[Content, ...]]:
    rows: list[tuple[Content, ...]] = []
    for kind, ports in (("in", spec.inputs), ("out", spec.outputs)):
        rows += [
            (_soft(kind), _code(port.name), _code(port.spec.dtype), _code(shape_text(port.spec.shape)), _meaning(port))
            for port in ports
        ]
    return rows


def _meaning(port: Port) -> Html:
    known = [name for name in _KNOWN_SEMANTICS if name in port.semantics]
    others = sorted(set(port.semantics) - set(known))
    pieces = [join(_soft(f"{name.replace('_', ' ')} "), _value(port.semantics[name])) for name in (*known, *others)]
    return element("span", *_separated(pieces, Html("<br/>")), class_="wrap") if pieces else _soft("-")


def _artifacts(node: NodeFacts) -> Html:
    if not node.artifacts:
        return element("p", "None: the node is wired and has no model file.", class_="soft")
    rows: list[tuple[Content, ...]] = [
        (each.format, _code(each.path), size_text(each.size), _facts(_written_as(each)), _hash(each.sha256))
        for each in node.artifacts
    ]
    return table(("Format", "File", "Size", "Written as", "SHA-256"), rows, numbers=frozenset({2}))


def _written_as(artifact: Artifact) -> dict[str, JSON]:
    facts: dict[str, JSON] = {
        "opset": artifact.opset_version,
        "IR version": artifact.ir_version,
        "method": artifact.method,
        "external": True if artifact.external else None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _checks(checks: Sequence[CheckRow]) -> Html:
    rows: list[tuple[Content, ...]] = [
        (
            row.format,
            _code(row.port),
            row.samples,
            row.difference_text(),
            _code(row.where) if row.where else _soft("-"),
            join(
                _badge("agrees", "good") if row.ok else _badge("differs", "bad"),
                element("span", " ", row.note, class_="wrap") if row.note else None,
            ),
        )
        for row in checks
    ]
    head = ("Format", "Output", "Samples", "Largest difference", "Where", "Result")
    return table(head, rows, numbers=frozenset({2, 3}))


def _statistics(checks: Sequence[CheckRow]) -> Html:
    rows: list[tuple[Content, ...]] = [(row.format, _code(row.port), *row.statistics_texts()) for row in checks]
    return table(("Format", "Output", *STATISTICS_HEAD), rows, numbers=frozenset(range(2, 6)))


def _ops(node: NodeFacts) -> Html:
    rows: list[tuple[Content, ...]] = [
        (
            _code(op.id),
            _code(op.target),
            element("span", op.arguments, class_="m wrap"),
            _code(op.result),
            _code(op.source),
        )
        for op in node.steps[:MAX_OPS]
    ]
    rest = len(node.steps) - len(rows)
    more = element("p", f"{rest} more in graph.txt of this node.", class_="soft") if rest else None
    return join(table(("Step", "Function", "Arguments", "Result", "Source"), rows), more)


def _constants(node: NodeFacts) -> Html:
    rows: list[tuple[Content, ...]] = [
        (
            each.role or _soft("-"),
            _code(each.name),
            _code(each.dtype),
            _code(shape_text(each.shape)),
            size_text(each.size_bytes),
            _code(each.source),
            _hash(each.sha256),
        )
        for each in sorted(node.constants, key=lambda each: (ROLES.index(each.role), each.name))
    ]
    head = ("Role", "Name", "Type", "Shape", "Size", "Used first at", "SHA-256")
    return table(head, rows, numbers=frozenset({4}))


def _tools(page: Facts) -> Html:
    rows: list[tuple[Content, ...]] = [
        (name, _value(value)) for name, value in page.toolchain.items() if value is not None
    ]
    return element("section", element("h2", "Tool chain"), table(("What", "Version"), rows), class_="card")


def _folded(summary: str, content: Html) -> Html:
    return element("details", element("summary", summary), content)


def _link(node: str, page: Facts) -> Html:
    at = next(index for index, each in enumerate(page.nodes) if each.spec.name == node)
    return element("a", node, href=f"#node-{at}")


def _separated(pieces: Sequence[Html], by: Content = ", ") -> list[Content]:
    result: list[Content] = []
    for piece in pieces:
        result += [by, piece] if result else [piece]
    return result


def _badge(text: str, kind: str) -> Html:
    return element("span", text, class_=f"badge {kind}".strip())


def _text(text: str) -> Html:
    return element("span", text)


def _code(text: str) -> Html:
    return element("span", text, class_="m")


def _soft(text: str) -> Html:
    return element("span", text, class_="soft")


def _hash(digest: str) -> Html:
    """The beginning to look at, the whole to copy or hover."""
    return element("span", f"{digest[:16]}…", class_="m hash", title=digest)


def _digest_line(digest: str) -> Html:
    return element("dd", element("span", digest, class_="m hash"))


def _facts(details: Mapping[str, JSON]) -> Html:
    pieces = [join(_soft(f"{name.replace('_', ' ')} "), _value(value)) for name, value in sorted(details.items())]
    return join(*_separated(pieces)) if pieces else _soft("-")


def _value(value: JSON) -> Html:
    return element("span", value_text(value), class_="m" if not isinstance(value, str) else None)
