"""What an export backend is, and the table format -> backend, each imported on first use."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from leapp._spec import JSON, ExportFormat, NodeSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from leapp.graph._base import NodeGraph


OPSET_VERSION: Final = 20
IR_VERSION: Final = 10


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Settings of one artifact; defaults are the project's pins."""

    opset_version: int = OPSET_VERSION
    ir_version: int = IR_VERSION
    optimize: bool = True


@dataclass(frozen=True, slots=True)
class ArtifactInfo:
    """What the node manifest says about one artifact beyond its digest."""

    format: ExportFormat
    paths: tuple[Path, ...]
    """The model file first, then external data files, all in one folder."""
    details: Mapping[str, JSON] = field(default_factory=dict)
    """Free facts: ``opset_version``, ``ir_version``, ``method`` (``script`` | ``trace``)."""


class Runnable(Protocol):
    """A loaded artifact."""

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Run once on CPU tensors by port name; outputs by port name. Inputs are never written."""
        ...


class Backend(Protocol):
    """Writes a recording in one format and opens such files again."""

    format: ExportFormat

    def write(
        self, graph: NodeGraph, example: tuple[torch.Tensor, ...], path: Path, options: ExportOptions
    ) -> ArtifactInfo:
        """Write ``graph`` to ``path``. ``example`` holds one tensor per input, only its dtypes and shapes matter.

        Raises UnsupportedOpError where the format cannot hold the recording; nothing is left at ``path`` then.
        """
        ...

    def open(self, path: Path, spec: NodeSpec) -> Runnable:
        """Load an artifact for the CPU. Raises ArtifactLoadError."""
        ...


_BACKENDS: Final[Mapping[ExportFormat, tuple[str, str]]] = {
    ExportFormat.TORCHSCRIPT: ("leapp.export.torchscript", "SCRIPT"),
    ExportFormat.TORCHSCRIPT_TRACE: ("leapp.export.torchscript", "TRACE"),
    ExportFormat.PT2: ("leapp.export.pt2", "PT2"),
    ExportFormat.ONNX: ("leapp.export.onnx", "DYNAMO"),
    ExportFormat.ONNX_TORCHSCRIPT: ("leapp.export.onnx", "FROM_TORCHSCRIPT"),
}


def backend_for(format: ExportFormat) -> Backend:
    """The backend of a format. Raises MissingDependencyError when its library is not installed."""
    module_name, attribute = _BACKENDS[format]
    module: Any = importlib.import_module(module_name)
    backend: Backend = getattr(module, attribute)
    return backend
