"""``leapp inspect``: a bundle's nodes, ports, wiring, model files and digests as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapp.report.facts import value_text
from leapp.report.text import Cell, counted, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from leapp._spec import JSON, Port
    from leapp.report.facts import Facts, NodeFacts
    from leapp.report.text import Printer


def show(page: Facts, printer: Printer) -> None:
    """Print all of it."""
    printer.line(
        Cell(f"{page.name} {page.version}".rstrip(), "title"),
        "  ",
        Cell(page.status, "good" if page.status == "ok" else "bad"),
    )
    if page.digest:
        printer.line(Cell("digest     ", "soft"), f"sha256:{page.digest}")
    for name, value in sorted(page.configs.items()):
        printer.line(Cell(f"{name:<11}", "soft"), value_text(value))
    for node in page.nodes:
        _show_node(node, printer)
    wires = list(_wires(page))
    if wires:
        printer.line()
        printer.line(Cell("wiring", "title"))
        printer.table(("From", "To", "When"), wires)
    printer.line()
    printer.line(Cell("tool chain", "title"))
    printer.table(
        ("What", "Version"), [(name, value_text(value)) for name, value in page.toolchain.items() if value is not None]
    )


def _show_node(node: NodeFacts, printer: Printer) -> None:
    printer.line()
    made_of = f"{counted(sum(node.op_counts.values()), 'operation')}, {counted(len(node.constants), 'constant')}"
    printer.line(Cell(f"node {node.spec.name}", "title"), Cell(f"  {made_of}", "soft"))
    rows = [("in", *_port(port)) for port in node.spec.inputs] + [("out", *_port(port)) for port in node.spec.outputs]
    printer.table(("", "Port", "Type", "Shape", "Semantics"), rows)
    if node.artifacts:
        printer.line()
        files = [(each.format, each.path, size_text(each.size)) for each in node.artifacts]
        printer.table(("Format", "File", "Size"), files, numbers=(2,))
    # In a table of two columns: a digest that is folded cannot be copied.
    digests = [*node.digests.items(), *((each.format, each.sha256) for each in node.artifacts)]
    if digests:
        printer.line()
    printer.table(("Digest of", "SHA-256"), [(name.lower(), digest) for name, digest in digests])


def _port(port: Port) -> tuple[str, str, str, str]:
    meaning = ", ".join(f"{name} {value_text(value)}" for name, value in port.semantics.items())
    return port.name, port.spec.dtype, str(list(port.spec.shape)), meaning


def _wires(page: Facts) -> Iterator[tuple[str, str, str]]:
    for node in sorted(page.inputs):
        for port in page.inputs[node]:
            yield "(outside)", f"{node}/{port}", "outer input"
    for kind, flow in (("same tick", page.data_flow), ("next tick", page.feedback_flow)):
        for source in sorted(flow):
            for target in flow[source]:
                yield source, target, kind
    for node in sorted(page.outputs):
        for port in page.outputs[node]:
            yield f"{node}/{port}", "(outside)", "outer output"


def as_json(page: Facts) -> dict[str, JSON]:
    """The same for machines."""
    return {
        "schema": 1,
        "name": page.name,
        "version": page.version,
        "status": page.status,
        "digest": page.digest or None,
        "configs": dict(page.configs),
        "nodes": [_node_json(node) for node in page.nodes],
        "data_flow": _flow(page.data_flow),
        "feedback_flow": _flow(page.feedback_flow),
        "inputs": _flow(page.inputs),
        "outputs": _flow(page.outputs),
        "toolchain": dict(page.toolchain),
    }


def _node_json(node: NodeFacts) -> dict[str, JSON]:
    return {
        "name": node.spec.name,
        "inputs": [_port_json(port) for port in node.spec.inputs],
        "outputs": [_port_json(port) for port in node.spec.outputs],
        "artifacts": [
            {"format": each.format, "path": each.path, "size": each.size, "sha256": each.sha256}
            for each in node.artifacts
        ],
        "operations": dict(node.op_counts),
        "constants": len(node.constants),
        "digests": {name.lower(): digest for name, digest in node.digests.items()},
    }


def _port_json(port: Port) -> dict[str, JSON]:
    return {
        "name": port.name,
        "dtype": port.spec.dtype,
        "shape": list(port.spec.shape),
        "semantics": dict(port.semantics),
    }


def _flow(flow: Mapping[str, tuple[str, ...]]) -> dict[str, JSON]:
    return {source: list(targets) for source, targets in flow.items()}
