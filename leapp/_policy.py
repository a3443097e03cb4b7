"""What a build decides for the entry it runs; torch-free, so that a build can make one without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from leapp.pipeline.start import StartRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from leapp._compile import CompileResult
    from leapp._spec import JSON, ExportFormat, Unset
    from leapp.pipeline.port_rules import PortRules
    from leapp.trace.session import Session
    from leapp.trace.variation import Variation

    class FormatsFor(Protocol):
        """Formats of a node, given what the script said (``UNSET`` when nothing), and whether it brings a model."""

        def __call__(
            self, node: str, script: tuple[ExportFormat, ...] | None | Unset, *, brings_model: bool = False
        ) -> tuple[ExportFormat, ...] | None: ...


def _ignore(result: CompileResult) -> None:
    del result


def _as_given(_node: str, rtol: float, atol: float) -> tuple[float, float]:
    return rtol, atol


@dataclass(frozen=True)
class BuildPolicy:
    """The manifest's word over an entry's own calls (design: name, version, rate and formats win)."""

    name: str
    version: str
    save_path: Path
    """The bundle is written to ``save_path/name``."""
    manifest: str
    """The manifest as messages name it."""
    root: Path
    """The project root: evidence names files relative to it."""
    formats_for: FormatsFor
    """None: no artifact that is made here."""
    onnx_for: Callable[[str], tuple[int, int]]
    """ONNX opset and IR version of a node."""
    tolerances_for: Callable[[str, float, float], tuple[float, float]] = _as_given
    """``rtol`` and ``atol`` of a node, given those of ``compile_graph``."""
    configured_nodes: frozenset[str] = frozenset()
    """Nodes that the manifest has a table for; one that the entry never opens is an error."""
    nodes_with_formats: frozenset[str] = frozenset()
    """Nodes whose formats the manifest says, also that there are none: a model that the script brings gives way."""
    frequency_hz: float | None = None
    trace: str | None = None
    """Which ``leapp.start(name)`` counts, when the entry makes several."""
    allow: Mapping[str, Sequence[str]] = field(default_factory=dict)
    strict: bool = False
    only: str | None = None
    """The one node that gets artifacts; None: all of them."""
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    starts: StartRules = field(default_factory=StartRules)
    """How state starts, and which nodes get a reset input."""
    ports: PortRules | None = None
    """What the manifest says of ports; None where there is none."""
    onnx_metadata_for: Callable[[str], Mapping[str, JSON]] = lambda _node: {}
    """Entries of ``[metadata]`` that the ONNX file of a node carries."""
    watch_modules: bool = False
    """Keep the weights of every module at its first call, for a second session."""
    variation: Variation | None = None
    """How a second session differs from the first."""
    judge: Callable[[Session], None] | None = None
    """Takes the place of compiling in a second session: it is compared, and exports nothing."""
    on_compiled: Callable[[CompileResult], None] = _ignore
    """Called as soon as a bundle is written, before control returns to the entry."""
