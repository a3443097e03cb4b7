"""``leapp inspect``: a bundle's nodes, ports, state, wiring, model files, constants and digests, as text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leapp.bundle.schema import BROUGHT, UNFIT
from leapp.report.facts import shape_text, value_text
from leapp.report.text import Cell, counted, size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leapp._spec import JSON, Port
    from leapp.report.facts import ConstantFacts, Facts, NodeFacts
    from leapp.report.text import Printer

MAX_CONSTANTS: Final = 40
"""Rows of a table of constants; ``--json`` has all of them."""
ROLES: Final = ("parameter", "buffer", "constant", "")


def show(facts: Facts, printer: Printer) -> None:
    """Print all of it."""
    printer.line(
        Cell(f"{facts.name} {facts.version}".rstrip(), "title"),
        "  ",
        Cell(facts.status, "good" if facts.status == "ok" else "bad"),
    )
    if facts.status in UNFIT:
        why = UNFIT[facts.status]
        printer.line(Cell(f"{why[0].upper()}{why[1:]}.", "bad"))
        for row in facts.checks:
            if not row.ok:
                printer.line(Cell(f"  {row.node} ({row.format}) {row.port}: {row.note}", "bad"))
    if facts.digest:
        printer.line(Cell("digest     ", "soft"), f"sha256:{facts.digest}")
    for name, value in sorted(facts.configs.items()):
        printer.line(Cell(f"{name:<11}", "soft"), value_text(value))
    for node in facts.nodes:
        _show_node(node, printer)
    if facts.feedback_flow:
        printer.line()
        printer.line(Cell("state", "title"))
        printer.table(("Input", "Fed back by", "At the first tick"), list(state_rows(facts)))
    wires = list(_wires(facts))
    if wires:
        printer.line()
        printer.line(Cell("wiring", "title"))
        printer.table(("From", "To", "When"), wires)
    printer.line()
    printer.line(Cell("tool chain", "title"))
    printer.table(
        ("What", "Version"), [(name, value_text(value)) for name, value in facts.toolchain.items() if value is not None]
    )


def _show_node(node: NodeFacts, printer: Printer) -> None:
    printer.line()
    made_of = f"{counted(sum(node.op_counts.values()), 'operation')}, {constants_text(node.constants)}"
    if any(each.method == BROUGHT for each in node.artifacts):
        made_of = "a model that was brought along"
    printer.line(Cell(f"node {node.spec.name}", "title"), Cell(f"  {made_of}", "soft"))
    rows = [("in", *_port(port)) for port in node.spec.inputs] + [("out", *_port(port)) for port in node.spec.outputs]
    printer.table(("", "Port", "Type", "Shape", "Semantics"), rows)
    if node.artifacts:
        printer.line()
        files = [
            (each.format, f"{each.path} (not in the bundle)" if each.external else each.path, size_text(each.size))
            for each in node.artifacts
        ]
        printer.table(("Format", "File", "Size"), files, numbers=(2,))
    if node.constants:
        printer.line()
        printer.table(
            ("Role", "Constant", "Type", "Shape", "Size", "Used first at"),
            [
                (each.role or "-", each.name, each.dtype, shape_text(each.shape), size_text(each.size_bytes),
                 each.source or "-")
                for each in shown_constants(node.constants)
            ],
            numbers=(4,),
        )  # fmt: skip
        if len(node.constants) > MAX_CONSTANTS:
            rest = len(node.constants) - MAX_CONSTANTS
            printer.line(Cell(f"and {rest} smaller ones; --json has all of them", "soft"))
    # In a table of two columns: a digest that is folded cannot be copied.
    digests = [*node.digests.items(), *((each.format, each.sha256) for each in node.artifacts)]
    if digests:
        printer.line()
    printer.table(("Digest of", "SHA-256"), [(name.lower(), digest) for name, digest in digests])


def constants_text(constants: Iterable[ConstantFacts]) -> str:
    """How many constants of each role there are, and how large they are."""
    texts = []
    for role in ROLES:
        members = [each for each in constants if each.role == role]
        if members:
            size = size_text(sum(each.size_bytes for each in members))
            texts.append(f"{counted(len(members), role or 'constant')} ({size})")
    return ", ".join(texts) or "no constants"


def shown_constants(constants: Iterable[ConstantFacts]) -> list[ConstantFacts]:
    """By role, then name; of many only the largest."""
    largest = sorted(constants, key=lambda each: (-each.size_bytes, each.name))[:MAX_CONSTANTS]
    return sorted(largest, key=lambda each: (ROLES.index(each.role), each.name))


def state_rows(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Every input that is fed back, what feeds it, and what it holds at the first tick."""
    for source in sorted(facts.feedback_flow):
        for target in facts.feedback_flow[source]:
            note = facts.start_notes.get(target)
            yield target, source, facts.starts.get(target, "-") + (f" ({note})" if note else "")


def _port(port: Port) -> tuple[str, str, str, str]:
    meaning = ", ".join(f"{name} {value_text(value)}" for name, value in port.semantics.items())
    return port.name, port.spec.dtype, shape_text(port.spec.shape), meaning


def _wires(facts: Facts) -> Iterator[tuple[str, str, str]]:
    for node in sorted(facts.inputs):
        for port in facts.inputs[node]:
            yield "(outside)", f"{node}/{port}", "outer input"
    for kind, flow in (("same tick", facts.data_flow), ("next tick", facts.feedback_flow)):
        for source in sorted(flow):
            for target in flow[source]:
                yield source, target, kind
    for node in sorted(facts.outputs):
        for port in facts.outputs[node]:
            yield f"{node}/{port}", "(outside)", "outer output"


def as_json(facts: Facts) -> dict[str, JSON]:
    """The same for machines, and what the evidence says of the build."""
    return {
        "schema": 1,
        "name": facts.name,
        "version": facts.version,
        "ok": facts.status == "ok",
        "status": facts.status,
        "digest": facts.digest or None,
        "configs": dict(facts.configs),
        "nodes": [_node_json(node) for node in facts.nodes],
        "data_flow": _flow(facts.data_flow),
        "feedback_flow": _flow(facts.feedback_flow),
        "inputs": _flow(facts.inputs),
        "outputs": _flow(facts.outputs),
        "state": [
            {
                "input": target,
                "output": source,
                "start": facts.starts.get(target),
                "note": facts.start_notes.get(target),
            }
            for source, targets in sorted(facts.feedback_flow.items())
            for target in targets
        ],
        "checks": [row.as_json() for row in facts.checks],
        "warnings": list(facts.warnings),
        "notes": [
            {"node": each.node, "kind": each.kind, "op": each.op, "source": each.source, "function": each.function}
            for each in facts.noted
        ],
        "toolchain": dict(facts.toolchain),
    }


def _node_json(node: NodeFacts) -> dict[str, JSON]:
    return {
        "name": node.spec.name,
        "inputs": [_port_json(port) for port in node.spec.inputs],
        "outputs": [_port_json(port) for port in node.spec.outputs],
        "artifacts": [
            {
                "format": each.format,
                "backend": each.backend,
                "path": each.path,
                "external": each.external,
                "size": each.size,
                "sha256": each.sha256,
                "opset_version": each.opset_version,
            }
            for each in node.artifacts
        ],
        "operations": dict(node.op_counts),
        "constants": [
            {
                "name": each.name,
                "role": each.role or None,
                "dtype": each.dtype,
                "shape": list(each.shape),
                "size": each.size_bytes,
                "sha256": each.sha256,
                "source": each.source or None,
            }
            for each in node.constants
        ],
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
