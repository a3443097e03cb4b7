"""A manifest as frozen values. Whoever holds one knows that it was validated; nothing here needs more than Python."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from leapp._spec import UNSET, ExportFormat, Start, Unset
from leapp.errors import UnknownNodeError
from leapp.manifest.positions import KeyPath, line_of
from leapp.manifest.problems import Problem, did_you_mean, key_text
from leapp.semantics import TemporalAxis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leapp._spec import JSON
    from leapp.semantics import PortFacts


SCHEMA_VERSION: Final = 1

# semver.org, "Is there a suggested regular expression to check a SemVer string?", with [0-9] for \d, which is any
# script's digit in Python.
SEMVER: Final = (
    r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
)

SEED_LIMIT: Final = 2**32
"""NumPy's global generator takes seeds below this."""

_NAME: Final = r"[^\W0-9]\w*"
_DOTTED: Final = rf"{_NAME}(?:\.{_NAME})*"
_FILE: Final = r"(?![-/])[^:]+\.py"
CALLABLE_ENTRY: Final = rf"^(?:{_FILE}|{_DOTTED}):{_DOTTED}$"
"""``file.py:callable`` or ``package.module:callable``."""
SCRIPT_ENTRY: Final = rf"^(?:{_FILE}|-m +{_DOTTED})$"
"""``file.py`` or ``-m package.module``."""
ENTRY_FORMS: Final = "'file.py:callable', 'package.module:callable', 'file.py', '-m package.module'"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a build runs: a callable or a script, in a file or in a module."""

    text: str
    """As written in the manifest."""
    file: str | None = None
    """POSIX path relative to the project root. Exactly one of ``file`` and ``module`` is set."""
    module: str | None = None
    callable: str | None = None
    """Dotted name inside the file or module; None for a script."""

    @property
    def is_script(self) -> bool:
        """Run as ``__main__`` with an ``argv``, rather than called with keywords."""
        return self.callable is None

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Read one of the four forms. Raises ValueError, whose text says which there are."""
        if not (re.fullmatch(CALLABLE_ENTRY, text) or re.fullmatch(SCRIPT_ENTRY, text)):
            if text.startswith("/"):
                raise ValueError(f"{text!r} is absolute; entries are relative to the project root.")
            is_module = re.fullmatch(_DOTTED, text) is not None
            advice = f" To run that module as a script, write '-m {text}'." if is_module else ""
            raise ValueError(f"{text!r} is none of the forms {ENTRY_FORMS}.{advice}")
        if text.startswith("-m "):
            module = text[3:].strip()
            if module.endswith(".py"):
                raise ValueError(f"'-m' takes a module, not a file: write {module!r} alone to run a file.")
            return cls(text, module=module)
        place, _, called = text.partition(":")
        # Forms without a module are files; PurePosixPath drops a leading "./" and doubled slashes.
        file = str(PurePosixPath(place)) if place.endswith(".py") else None
        return cls(text, file=file, module=place if file is None else None, callable=called or None)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``[pipeline]``: what is built, from which code."""

    name: str
    version: str
    entry: Entry
    args: Mapping[str, JSON] = field(default_factory=dict)
    """Keywords of a callable."""
    argv: tuple[str, ...] = ()
    """``sys.argv[1:]`` of a script."""
    frequency_hz: float | None = None
    trace: str | None = None
    """Name of the session that counts, where the entry opens several."""


@dataclass(frozen=True, slots=True)
class OnnxOptions:
    """Versions an ``.onnx`` file is written for; the defaults are the project's pins."""

    opset: int = 20
    ir_version: int = 10


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """``[export]``, or the same keys for one node in ``[nodes.NAME]``. None: the manifest does not say."""

    formats: tuple[ExportFormat, ...] | None = None
    """Empty: the node is wired and gets no artifact."""
    opset: int | None = None
    ir_version: int | None = None
    rtol: float | None = None
    atol: float | None = None
    onnx_metadata: tuple[str, ...] | None = None
    """Keys of ``[metadata]`` that ONNX files carry."""


@dataclass(frozen=True, slots=True)
class NodeSettings(ExportSettings):
    """``[nodes.NAME]``: what ``[export]`` says as well, and what is true of one node alone."""

    state: Mapping[str, Start] = field(default_factory=dict)
    """How state and feedback inputs start, by port."""
    ports: Mapping[str, PortFacts] = field(default_factory=dict)
    """What inputs and outputs mean, by port; wins over what the script says."""
    reset: str | None = None
    """A boolean input that the model is to have: where it is true, the node's state starts anew."""


@dataclass(frozen=True, slots=True)
class Session:
    """``[session]``: the process that the entry runs in."""

    python: str = ""
    """Interpreter: a name to look up in PATH, or a path from the root; empty: the one that runs the build."""
    pass_env: tuple[str, ...] = ()
    seed: int = 0
    threads: int = 1
    timeout_s: float = 600
    network: bool = False
    inputs: tuple[str, ...] = ()
    """Glob patterns relative to the project root; each matched at least one file when the manifest was loaded."""


@dataclass(frozen=True, slots=True)
class Range:
    """A perturbed port takes values evenly spread between ``low`` and ``high``."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Choices:
    """Every element of a perturbed port is one of ``values``."""

    values: tuple[int | float | bool, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """A perturbed port keeps a structure: one hot, a unit quaternion, or its own values in another order."""

    kind: Literal["one-hot", "unit-quaternion", "permute"]


@dataclass(frozen=True, slots=True)
class FromFile:
    """A perturbed port takes its value from a ``.safetensors`` file, under the port's ``node/port`` key."""

    file: str
    """Relative to the project root."""


PortHint: TypeAlias = Range | Choices | Structure | FromFile

PORT_HINTS: Final = ("range", "choices", "one-hot", "unit-quaternion", "permute", "file")
"""Keys of a table in ``[probe] ports``, of which there is one."""


@dataclass(frozen=True, slots=True)
class Probe:
    """``[probe]``: how the second run differs from the first. None: as in the first."""

    args: Mapping[str, JSON] | None = None
    argv: tuple[str, ...] | None = None
    seed: int | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    """File that the entry opens -> file that it gets instead; both relative to the project root."""
    runs: int = 1
    ports: Mapping[str, PortHint] = field(default_factory=dict)
    """By ``node/port``."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One validated manifest. Paths in it are relative to ``root``."""

    path: Path
    """Absolute path of the file."""
    shown: str
    """The file as the user named it, for messages."""
    root: Path
    """The project: nearest folder above the manifest with ``pyproject.toml`` or ``.git``, else the manifest's own."""
    pipeline: Pipeline
    export: ExportSettings = field(default_factory=ExportSettings)
    nodes: Mapping[str, NodeSettings] = field(default_factory=dict)
    session: Session = field(default_factory=Session)
    probe: Probe = field(default_factory=Probe)
    allow: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """In the form that ``leapp.start(allow=...)`` takes; lists that are empty are left out."""
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    """Free values; dates and times are ISO 8601 text here."""
    schema: int = SCHEMA_VERSION
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False, compare=False)
    """Line of each key in the file."""
    own_version: str = field(default="", compare=False)
    """The version that the file says, also where ``leapp build --version`` puts another in its place."""

    def formats_for(
        self, node: str, script: tuple[ExportFormat, ...] | None | Unset = UNSET, *, brings_model: bool = False
    ) -> tuple[ExportFormat, ...] | None:
        """The formats that a node leaves in, or None for a node without an artifact made here.

        The first that says something wins: ``[nodes.NAME]``; the script's ``export_with`` where it is an explicit None
        or ``backend_params`` bring a model; ``[export]``; the ``export_with`` given; ONNX.

        Args:
            node: name as annotated.
            script: ``export_with`` as the entry gave it, ``UNSET`` when it said nothing.
            brings_model: ``backend_params`` hold a ``model_path``: then None means that this model is the artifact.
        """
        settings = self.nodes.get(node)
        if settings is not None and settings.formats is not None:
            return settings.formats or None
        if script is None or brings_model:
            return None
        if self.export.formats is not None:
            return self.export.formats or None
        return (ExportFormat.ONNX,) if script is UNSET else script

    def onnx_for(self, node: str, otherwise: OnnxOptions | None = None) -> OnnxOptions:
        """ONNX versions of a node: ``[nodes.NAME]``, else ``[export]``, else ``otherwise``, else the project's pins."""
        fallback = otherwise or OnnxOptions()
        opset, ir_version = self._first(node, "opset"), self._first(node, "ir_version")
        return OnnxOptions(
            fallback.opset if opset is None else int(opset),
            fallback.ir_version if ir_version is None else int(ir_version),
        )

    def tolerances_for(self, node: str, *, rtol: float = 1e-3, atol: float = 1e-5) -> tuple[float, float]:
        """``rtol`` and ``atol`` of a node: ``[nodes.NAME]``, else ``[export]``, else those given here."""
        relative, absolute = self._first(node, "rtol"), self._first(node, "atol")
        return rtol if relative is None else relative, atol if absolute is None else absolute

    def onnx_metadata_for(self, node: str) -> dict[str, JSON]:
        """The entries of ``[metadata]`` that an ONNX file of a node carries: ``[nodes.NAME]``, else ``[export]``."""
        for settings in (self.nodes.get(node), self.export):
            if settings is not None and settings.onnx_metadata is not None:
                return {key: self.metadata[key] for key in sorted(settings.onnx_metadata)}
        return {}

    def _first(self, node: str, key: Literal["opset", "ir_version", "rtol", "atol"]) -> float | None:
        for settings in (self.nodes.get(node), self.export):
            value: float | None = getattr(settings, key, None)
            if value is not None:
                return value
        return None

    def probe_seed(self, run: int = 0) -> int:
        """Seed of the probe's run ``run``, counted from 0; without ``probe.seed`` they follow the session's."""
        first = self.session.seed + 1 if self.probe.seed is None else self.probe.seed
        return (first + run) % SEED_LIMIT

    def probe_args(self) -> dict[str, JSON]:
        """Keywords of the callable in the probe: those of ``[pipeline]``, updated with those of ``[probe]``."""
        return {**self.pipeline.args, **(self.probe.args or {})}

    def probe_argv(self) -> tuple[str, ...]:
        """Arguments of the script in the probe: those of ``[probe]`` as a whole, else those of ``[pipeline]``."""
        return self.pipeline.argv if self.probe.argv is None else self.probe.argv

    def input_files(self) -> tuple[Path, ...]:
        """All files that ``session.inputs`` name, absolute and sorted; a folder stands for the files below it."""
        return tuple(sorted({path for pattern in self.session.inputs for path in matches(self.root, pattern)}))

    def where(self, *key: str | int) -> str:
        """Place of a key for messages: ``manifests/policy.toml:14, nodes.policy``."""
        return str(Problem(self.shown, "", key_text(key), line_of(self.lines, key))).removesuffix(": ")

    def check_nodes(self, recorded: Iterable[str]) -> None:
        """Raise UnknownNodeError unless every ``[nodes.NAME]`` is one of the ``recorded`` nodes."""
        known = sorted(recorded)
        for name in self.nodes:
            if name not in known:
                line = line_of(self.lines, ("nodes", name))
                raise UnknownNodeError(
                    manifest=f"{self.shown}:{line}" if line else self.shown,
                    node=key_text((name,)),
                    known=", ".join(known) or "none",
                    near=did_you_mean(name, known),
                )


def is_foreign(data: Mapping[str, Any]) -> bool:
    """Whether a document is of another schema, so that our rules do not apply to it."""
    version = data.get("schema", SCHEMA_VERSION)
    return type(version) is int and version != SCHEMA_VERSION


def element_names(value: Any) -> Any:
    """Element names of a manifest as ``TensorSemantics`` takes them: TOML has neither None nor classes.

    Raises ValueError with the text of the problem.
    """
    if not isinstance(value, list) or all(isinstance(each, str) for each in value):
        return value
    return [_named_axis(axis, each) for axis, each in enumerate(value)]


def _named_axis(axis: int, value: Any) -> Any:
    if not isinstance(value, dict):
        return value or None
    if list(value) != ["temporal_period_ms"]:
        raise ValueError(
            f"the entry of axis {axis} is a table with {', '.join(map(repr, value)) or 'no key'}; an axis of moments "
            "is written { temporal_period_ms = 20 }."
        )
    return TemporalAxis(value["temporal_period_ms"])


def matches(root: Path, pattern: str) -> Iterator[Path]:
    """Files that a pattern names, as absolute paths without ``..``; hidden ones only when written out.

    ``**`` stands for any folders; a folder stands for the files below it.
    """
    # pathlib would follow neither ".." nor absolute patterns, and would take hidden files in.
    for found in glob.iglob(pattern, root_dir=root, recursive=True):  # noqa: PTH207
        path = Path(os.path.normpath(root / found))
        if path.is_dir():
            for folder, _, files in os.walk(path):
                yield from (Path(folder, name) for name in files)
        else:
            yield path
