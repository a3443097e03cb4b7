"""Frozen values that every stage shares. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

JSON: TypeAlias = "str | int | float | bool | None | Sequence[JSON] | Mapping[str, JSON]"


class Unset(Enum):
    """The type of ``UNSET``: nothing was said, which differs from an explicit None."""

    UNSET = "UNSET"


UNSET: Final = Unset.UNSET

LEAPP_SOURCE: Final = "LEAPP's own source"
"""Fact of a build that an unreleased LEAPP changes by without another version."""
PYTHON: Final = "Python"
"""Fact of a build: the interpreter and its version in full. The runtime file has its first two numbers."""


class ExportFormat(StrEnum):
    """A file format a recording can leave in. The value is the canonical name."""

    TORCHSCRIPT = "torchscript"
    TORCHSCRIPT_TRACE = "jit-trace"
    PT2 = "pt2"
    ONNX = "onnx"
    ONNX_TORCHSCRIPT = "onnx-torchscript"

    @property
    def suffix(self) -> str:
        """File suffix with its dot; two formats with one suffix write the same file."""
        return _SUFFIX[self]

    @property
    def backend(self) -> str:
        """Loader name in the runtime file: ``jit``, ``pt2`` or ``onnx``."""
        return _BACKEND[self]


_SUFFIX = {
    ExportFormat.TORCHSCRIPT: ".pt",
    ExportFormat.TORCHSCRIPT_TRACE: ".pt",
    ExportFormat.PT2: ".pt2",
    ExportFormat.ONNX: ".onnx",
    ExportFormat.ONNX_TORCHSCRIPT: ".onnx",
}
_BACKEND = {
    ExportFormat.TORCHSCRIPT: "jit",
    ExportFormat.TORCHSCRIPT_TRACE: "jit",
    ExportFormat.PT2: "pt2",
    ExportFormat.ONNX: "onnx",
    ExportFormat.ONNX_TORCHSCRIPT: "onnx",
}

FORMAT_NAMES: Mapping[str, ExportFormat] = {
    "torchscript": ExportFormat.TORCHSCRIPT,
    "jit": ExportFormat.TORCHSCRIPT,
    "jit-script": ExportFormat.TORCHSCRIPT,
    "jit-trace": ExportFormat.TORCHSCRIPT_TRACE,
    "pt2": ExportFormat.PT2,
    "exported-program": ExportFormat.PT2,
    "onnx": ExportFormat.ONNX,
    "onnx-dynamo": ExportFormat.ONNX,
    "onnx-torchscript": ExportFormat.ONNX_TORCHSCRIPT,
}
"""Every name a user may write for a format."""


@dataclass(frozen=True, slots=True)
class BroughtModel:
    """A finished model file that is a node's artifact; ``path`` is absolute."""

    path: Path
    format: ExportFormat
    copied: bool = True
    """It is copied into the bundle. Else the bundle holds its name and digest alone."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Dtype name (NumPy's, plus ``bfloat16``) and static shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]


RESET_KIND: Final = "reset"
"""Kind of an input that starts its node's state anew where it is true; a runtime may take false for granted."""


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output of a node.

    ``semantics`` holds the free and known fields of the runtime file (``kind``, ``element_names``, ``unit``, ...),
    in plain JSON values.
    """

    name: str
    spec: TensorSpec
    semantics: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def is_reset(self) -> bool:
        """Whether this is an input that starts its node's state anew."""
        return self.semantics.get("kind") == RESET_KIND and self.spec.dtype == "bool"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """Interface of a node; port order is positional order of the exported model."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """Nodes in order of completion, and how their ports are wired.

    Flows map a producer ``node/port`` to its consumers; ``inputs`` and ``outputs`` list outer ports by node.
    """

    name: str
    nodes: tuple[NodeSpec, ...]
    data_flow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    feedback_flow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    configs: Mapping[str, JSON] = field(default_factory=dict)


class StartKind(StrEnum):
    """What a state or feedback input holds at the first tick, where nothing fed it yet."""

    ZEROS = "zeros"
    CONSTANT = "constant"
    """The value that it was traced with."""
    FIRST_INPUT = "first-input"
    """What another input of its node holds at that tick."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a state or feedback input starts; ``str()`` gives it as manifests and ports have it."""

    kind: StartKind
    port: str = ""
    """The input that is copied; empty for the other kinds."""

    @classmethod
    def parse(cls, text: str) -> Start:
        """Read ``zeros``, ``constant`` or ``first-input:PORT``. Raises ValueError for anything else."""
        name, _, port = text.partition(":")
        start = cls(StartKind(name), port)
        if bool(port) != (start.kind is StartKind.FIRST_INPUT):
            raise ValueError(f"{text!r} does not say how a state starts")
        return start

    def __str__(self) -> str:
        return f"{self.kind}:{self.port}" if self.port else str(self.kind)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Where in the user's code something happened. Evidence only: never part of content."""

    file: str
    line: int
    function: str = ""
    """``module:qualname`` of the function that holds the line, as ``allow`` lists name it."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
