"""What an export backend is, and the table format -> backend, each imported on first use."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import random
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from leapp._spec import JSON, ExportFormat, NodeSpec
from leapp.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Our own facts for a file that holds some (ONNX ``metadata_props``); the only ones that stay in it."""


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


_PACKAGES: Final = ("torch", "numpy", "onnx", "onnxscript", "onnxruntime")


def backend_for(format: ExportFormat) -> Backend:
    """The backend of a format. Raises MissingDependencyError when its library is not installed."""
    module_name, attribute = _BACKENDS[format]
    try:
        module: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise missing_library(format, error) from error
    backend: Backend = getattr(module, attribute)
    return backend


def missing_library(format: ExportFormat, error: ModuleNotFoundError) -> BaseException:
    """The error to raise for ``error``: ours when a known library is not installed, else ``error`` itself."""
    package = (error.name or "").partition(".")[0]
    if package not in _PACKAGES:
        return error
    from leapp._source import install_command

    return MissingDependencyError(what_for=f"The format {format.value!r}", package=package, command=install_command())


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run torch's exporters so that neither the user's terminal nor the user's torch notices.

    Printed text, log records and warnings are swallowed; grad mode, default dtype, the state of the random generators
    and the logging threshold are as before afterwards, also when an exporter raises half-way.
    """
    import torch

    generator, python_generator = torch.get_rng_state(), random.getstate()
    dtype, log_threshold = torch.get_default_dtype(), logging.root.manager.disable
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        # Exporters run or retrace the recording: a constant made in inference mode cannot be retraced inside it.
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        # Asked of a tensor: torch.get_default_device() raises before torch 2.9 where the default was set and unset.
        if torch.empty(0).device.type != "cpu":
            stack.enter_context(torch.device("cpu"))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(log_threshold)
            torch.set_default_dtype(dtype)
            torch.set_rng_state(generator)
            random.setstate(python_generator)


@contextlib.contextmanager
def removed_on_error(*paths: Path) -> Iterator[None]:
    """Leave none of ``paths`` behind when the block raises."""
    try:
        yield
    except BaseException:
        for path in paths:
            path.unlink(missing_ok=True)
        raise
