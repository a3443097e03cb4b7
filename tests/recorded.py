"""What tests hold of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Recorded:
    """A function recorded as a node: its graph, the session, and what the user's code got."""

    graph: Any
    session: Any
    result: Any

    def __call__(self, *inputs: Any) -> Any:
        """Evaluate the recording, after the export passes, on other inputs."""
        from leapp.graph._base import run_passes
        from leapp.graph.check import check_graph, run_graph
        from leapp.graph.passes import EXPORT_PASSES

        passed = run_passes(self.graph, EXPORT_PASSES)
        check_graph(passed)
        outputs = run_graph(passed, {port.name: t for port, t in zip(self.graph.spec.inputs, inputs, strict=True)})
        values = tuple(outputs.values())
        return values[0] if len(values) == 1 else values

    @property
    def targets(self) -> list[str]:
        """Public names of the recorded calls, in order."""
        from leapp.graph.dump import target_name

        return [target_name(node) for node in self.graph.graph.nodes if node.op.startswith("call_")]
