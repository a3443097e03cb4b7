"""``evidence/report.html``: one offline page, drawn from a bundle's metadata alone. Equal metadata, equal bytes."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from leapp.errors import MissingDependencyError, PictureError
from leapp.report._html import Content, Html, element, join, table
from leapp.report.facts import collect, shape_text, value_text
from leapp.report.picture import picture_svg
from leapp.report.text import counted, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from leapp._spec import JSON, NodeSpec, Port
    from leapp.bundle.schema import Artifact
    from leapp.report.checks import CheckRow
    from leapp.report.facts import Facts, NodeFacts

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
    body = element("body", element("main", _header(page), _notes(page), _wiring(page), *_nodes(page), _tools(page)))
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
    if page.checks:
        passed = sum(row.ok for row in page.checks)
        facts.append(("Replay", f"{passed} of {len(page.checks)} outputs agree with the recording"))
    return element(
        "header",
        element("p", "Pipeline report", class_="kicker"),
        element("h1", page.name, _badge(page.status, "good" if good else "bad")),
        element("dl", *(piece for name, value in facts for piece in (element("dt", name), element("dd", value)))),
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
        parts += [element("h3", "Replay of the recorded samples"), _checks(checks)]
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
        parts.append(_folded(counted(len(node.constants), "constant").capitalize(), _constants(node)))
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
            _badge("agrees", "good")
            if row.ok
            else join(_badge("differs", "bad"), element("span", " ", row.note, class_="wrap") if row.note else None),
        )
        for row in checks
    ]
    head = ("Format", "Output", "Samples", "Largest difference", "Where", "Result")
    return table(head, rows, numbers=frozenset({2, 3}))


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
        (_code(each.name), _code(each.dtype), _code(shape_text(each.shape)), _hash(each.sha256))
        for each in node.constants
    ]
    return table(("Name", "Type", "Shape", "SHA-256"), rows)


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
