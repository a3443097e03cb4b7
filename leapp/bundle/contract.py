"""The runtime file ``<name>.yaml``: what a runtime needs to load the models and wire them."""

from __future__ import annotations

import ast
import importlib.util
import math
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from leapp._canonical import canonical_json
from leapp._version import CONFIG_VERSION, __version__
from leapp.bundle.schema import Artifact, PortEntry, plain
from leapp.errors import BundleFormatError, BundleValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leapp._spec import JSON, NodeSpec, PipelineSpec, Port
    from leapp.bundle.schema import NodeManifest

NOT_A_MAP: Final = "expected a map"
NO_MODELS: Final = "the map 'models' is missing"
"""What is wrong with YAML files that are no runtime files at all."""
_PORT_FIELDS: Final = ("name", "dtype", "shape", "type")
_KNOWN_SEMANTICS: Final = ("kind", "element_names", "temporal_period_ms")
_SYSTEM_FIELDS: Final = (
    "leapp config version",
    "leapp version",
    "torch version",
    "python version",
    "warp version",
    "cuda version",
    "os",
)

# Text that some YAML reader takes for something else although PyYAML's own rules do not: numbers of YAML 1.2 (`1e3`,
# `0o7`), sexagesimals, single letters of YAML 1.1. Quoting too much costs nothing.
_AMBIGUOUS: Final = re.compile(
    r"""
      [-+]?(\d[\d_]*(\.[\d_]*)?|\.[\d_]+)(e[-+]?\d+)?
    | [-+]?0[xob][\da-f_]+
    | [-+]?\d[\d_]*(:[0-5]?\d)+(\.[\d_]*)?
    | [-+]?\.(inf|nan)
    | [yn]
    """,
    re.IGNORECASE | re.VERBOSE,
)


# --- writing -------------------------------------------------------------------------------------------------------


class _Line(dict[str, Any]):
    """A map that is written on one line."""


class _Row(list[Any]):
    """A list that is written on one line."""


class _Quoted(str):
    """Text that is always quoted: digests, some of which look like numbers."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Pure Python on purpose: the C emitter breaks lines elsewhere, and bytes must not depend on what is installed."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's signature
        """Write equal values twice: an anchor would depend on object identity."""
        return True


def _text(dumper: _Dumper, value: str) -> yaml.Node:
    style = "'" if _AMBIGUOUS.fullmatch(value) else None
    if len(value.splitlines()) > 1 or value[-1:].isspace():
        style = '"'  # the only style that escapes line breaks; the others fold some of them into spaces
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Quoted, lambda d, v: d.represent_scalar("tag:yaml.org,2002:str", str(v), style='"'))
_Dumper.add_representer(dict, lambda d, v: d.represent_mapping("tag:yaml.org,2002:map", v.items(), flow_style=False))
_Dumper.add_representer(_Line, lambda d, v: d.represent_mapping("tag:yaml.org,2002:map", v.items(), flow_style=True))
_Dumper.add_representer(list, lambda d, v: d.represent_sequence("tag:yaml.org,2002:seq", v, flow_style=False))
_Dumper.add_representer(_Row, lambda d, v: d.represent_sequence("tag:yaml.org,2002:seq", v, flow_style=True))


def contract_yaml(
    spec: PipelineSpec,
    nodes: Sequence[NodeManifest],
    *,
    initial_values: tuple[str, str] | None = None,
    toolchain: Mapping[str, str | None],
) -> bytes:
    """The bytes of the runtime file.

    Args:
        spec: ports and wires; a rate stands in ``spec.configs["frequency"]``, in Hz.
        nodes: one manifest per node of ``spec``, in any order.
        initial_values: path relative to the bundle and sha256 of the first-tick values, where there is feedback.
        toolchain: what ``toolchain()`` gives, or what it gave where the models were made.

    Raises:
        BundleValueError: a free field that YAML cannot hold or that bears a name of ours, a rate that is no positive
            number, a manifest that is missing or describes other ports.
    """
    manifests = {manifest.node: manifest for manifest in nodes}
    if missing := [node.name for node in spec.nodes if node.name not in manifests]:
        raise BundleValueError(where=f"pipeline {spec.name!r}", why=f"no manifest was given for {missing}")
    pipeline: dict[str, Any] = {
        "configs": _one_line_values(plain(spec.configs, "pipeline.configs")),
        "data_flow": _wires(spec.data_flow),
        # Isaac ROS Deploy reads the wires of the next tick under this name.
        "feedback_connections": _wires(spec.feedback_flow),
        "feedback_flow": _wires(spec.feedback_flow),
    }
    if initial_values is not None:
        path, digest = initial_values
        pipeline |= {"initial_values": plain_name(path), "initial_values_sha256sum": _Quoted(digest)}
    pipeline |= {"inputs": _wires(spec.inputs), "outputs": _wires(spec.outputs)}
    document: dict[str, Any] = {
        "models": {plain_name(node.name): _model(node, manifests[node.name]) for node in spec.nodes},
        "pipeline": pipeline,
        "system information": _in_order(toolchain, _SYSTEM_FIELDS),
    }
    if (rate_hz := spec.configs.get("frequency")) is not None:
        document["semantic"] = {"scene": {"dt": 1 / _rate(rate_hz)}}
    return _dump(document)


def _dump(document: Mapping[str, Any]) -> bytes:
    text: bytes = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize, encoding="utf-8"
    )
    return text


def _model(node: NodeSpec, manifest: NodeManifest) -> dict[str, Any]:
    for direction in ("inputs", "outputs"):
        declared = tuple(PortEntry.of(port) for port in getattr(node, direction))
        if declared != getattr(manifest, direction):
            raise BundleValueError(where=f"node {node.name!r}", why=f"its manifest describes other {direction}")
    return {
        "inputs": [port_fields(port, node.name) for port in node.inputs],
        "outputs": [port_fields(port, node.name) for port in node.outputs],
        "parameters": parameters(manifest),
    }


def port_fields(port: Port, node: str) -> dict[str, Any]:
    """What the runtime file says of a port, in its order: ours, known semantics, free fields sorted."""
    where = f"{node}/{port.name}"
    if taken := sorted(set(port.semantics) & set(_PORT_FIELDS)):
        raise BundleValueError(where=where, why=f"the free field {taken[0]!r} is a field of LEAPP")
    semantics: Any = plain(port.semantics, where)
    given = {key: value for key, value in semantics.items() if value is not None or key not in _KNOWN_SEMANTICS}
    own = {
        "name": plain(port.name, where),
        "dtype": port.spec.dtype,
        "shape": [int(size) for size in port.spec.shape],
        "type": "tensor",
    }
    return _Line(own | _in_order(given, _KNOWN_SEMANTICS))


def onnx_metadata(node: NodeSpec, more: Mapping[str, JSON] | None = None) -> dict[str, str]:
    """What an ONNX file says of itself, in text as ONNX has it: a small set that equals the runtime file.

    ``leapp.config_version``; ``leapp.node``; ``leapp.inputs`` and ``leapp.outputs``, the port lists of the runtime file
    in canonical JSON; and ``leapp.metadata.KEY`` for each of ``more``, text as it is, other values in canonical JSON.
    """

    def text(value: JSON) -> str:
        return value if isinstance(value, str) else canonical_json(value).decode().strip()

    free = more or {}
    return {
        "leapp.config_version": CONFIG_VERSION,
        "leapp.inputs": text([port_fields(port, node.name) for port in node.inputs]),
        **{f"leapp.metadata.{key}": text(plain(free[key], f"metadata.{key}")) for key in sorted(free)},
        "leapp.node": plain_name(node.name),
        "leapp.outputs": text([port_fields(port, node.name) for port in node.outputs]),
    }


def parameters(manifest: NodeManifest) -> dict[str, Any]:
    """What the runtime file says of a node's model files: the first artifact, the others as ``variants``."""
    fields: dict[str, Any] = {"backend": "none"}
    if manifest.artifacts:
        first, *others = manifest.artifacts
        fields = _artifact(first) | {"md5sum": _Quoted(first.md5)}
        if first.backend == "onnx" and first.opset_version is not None:
            fields["opset_version"] = first.opset_version
    fields["warp_segments"] = manifest.warp_segments
    if len(manifest.artifacts) > 1:
        fields["variants"] = [_Line(_artifact(each)) for each in others]
    return fields


def _artifact(artifact: Artifact) -> dict[str, Any]:
    return {"backend": artifact.backend, "model_path": artifact.path, "sha256sum": _Quoted(artifact.sha256)}


def _in_order(fields: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    first = {key: fields[key] for key in order if key in fields}
    return first | {key: fields[key] for key in sorted(fields) if key not in first}


def _wires(wires: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {plain_name(key): _Row(plain_name(each) for each in wires[key]) for key in sorted(wires)}


def plain_name(name: str) -> str:
    """A name in exact ``str``; subclasses have no form in YAML."""
    return str(plain(name, f"the name {name!r}"))


def _one_line_values(value: Any) -> dict[str, Any]:
    wrap: dict[type, Any] = {dict: _Line, list: _Row}
    return {key: wrap.get(type(each), lambda each: each)(each) for key, each in value.items()}


def _rate(rate_hz: Any) -> float:
    if isinstance(rate_hz, bool) or not isinstance(rate_hz, int | float) or not 0 < rate_hz < math.inf:
        raise BundleValueError(where="pipeline.configs.frequency", why=f"{rate_hz!r} is not a rate in Hz above zero")
    return float(rate_hz)


# --- reading -------------------------------------------------------------------------------------------------------

_BaseLoader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_BaseLoader):  # type: ignore[misc]  # the faster one where PyYAML was built with it; the same values
    """Plain values only, every key once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As PyYAML's, and an error for what it would silently drop."""
        result: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(result) != len(node.value):
            line = node.start_mark.line + 1
            raise yaml.constructor.ConstructorError(None, None, f"a key occurs twice in the map at line {line}", None)
        return result


def parse_contract(data: bytes, path: Path | str, *, aliases: bool = False) -> dict[str, Any]:
    """The runtime file as plain values. Raises BundleFormatError where it is not one.

    Args: aliases: whether YAML's are taken. Ours has none; other writers make one of every list that they write twice.
    """
    try:
        # An alias makes a small file unfold into a huge value, and we never write one.
        if (
            not aliases
            and b"*" in data
            and any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(data, Loader=_BaseLoader))
        ):
            raise BundleFormatError(path=str(path), why="aliases are not allowed")
        value = yaml.load(data, Loader=_Loader)  # noqa: S506  # derives from SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        if isinstance(error, BundleFormatError):
            raise
        raise BundleFormatError(path=str(path), why=f"it is not valid YAML: {error}") from error
    if not isinstance(value, dict):
        raise BundleFormatError(path=str(path), why=NOT_A_MAP)
    for key, kind in (("models", dict), ("pipeline", dict), ("system information", dict)):
        if not isinstance(value.get(key), kind):
            raise BundleFormatError(path=str(path), why=f"the map {key!r} is missing")
    version = str(value["system information"].get("leapp config version"))
    if version.partition(".")[0] != CONFIG_VERSION.partition(".")[0]:
        raise BundleFormatError(path=str(path), why=f"config version {version} cannot be read by {CONFIG_VERSION}")
    return value


# --- tool chain ----------------------------------------------------------------------------------------------------


def toolchain() -> dict[str, str | None]:
    """Versions of what made a bundle, nothing of the host; found without importing any of it."""
    return {
        "leapp config version": CONFIG_VERSION,
        "leapp version": __version__,
        "torch version": _version("torch"),
        "python version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "warp version": _version("warp-lang"),
        "cuda version": _cuda_version(),
        "os": f"{sys.platform}-{platform.machine()}",
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def _cuda_version() -> str | None:
    """The CUDA version torch was built for, from the file that torch itself reads it from."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        module = ast.parse(Path(spec.origin).with_name("version.py").read_text("utf-8"))
    except (OSError, SyntaxError):
        return None
    for statement in module.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id="cuda"), value=ast.Constant(value=str() as version)):
                return version
            case ast.Assign(targets=[ast.Name(id="cuda")], value=ast.Constant(value=str() as version)):
                return version
    return None
