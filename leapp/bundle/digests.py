"""The digests of a bundle: what two builds are compared by where a bundle is not at hand, as a lock has them.

Of each part that can change for a reason of its own there is one digest, so that a difference can be named: the
contract of the pipeline and of each node, graph, weights, model files, first-tick values, inputs read, tool chain.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from leapp._canonical import canonical_json, sha256
from leapp.bundle.schema import to_json
from leapp.errors import BundleFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leapp.bundle.read import Bundle
    from leapp.bundle.schema import NodeManifest

READS_FILE: Final = "evidence/reads.json"
SESSION_FILE: Final = "evidence/session.json"
"""How the session of a build was set up, and from which manifest."""
SYSTEM: Final = "system information"
"""Section of the runtime file that holds the tool chain."""
OS: Final = "os"
"""Key of the tool chain that names the platform, as ``linux-x86_64``."""
WIRES: Final = ("data_flow", "feedback_flow", "feedback_connections", "inputs", "outputs")
"""Maps under ``pipeline`` of the runtime file from a name to names."""
_REPEATED: Final = frozenset({"sha256sum", "md5sum", "initial_values_sha256sum"})
"""What the runtime file repeats of other files: a difference there is theirs."""


@dataclass(frozen=True, slots=True)
class NodeDigests:
    """One node of a bundle."""

    ports: str
    """Of its inputs and outputs: names, order, dtypes, shapes, meaning."""
    settings: str
    """Of tolerances and of how its models are stored: formats, opset, file names."""
    graph: str | None
    """Of the recording without the values of its constants; None where nothing was recorded."""
    weights: str | None
    """Of all constants."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Its model files, external data files among them, by path in the bundle."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Each constant by name; empty where only their common digest is known."""


@dataclass(frozen=True, slots=True)
class BundleDigests:
    """A bundle of one platform."""

    name: str
    version: str
    platform: str
    """``linux-x86_64``."""
    bundle: str
    """The bundle digest: two are the same bundle if and only if this one is equal."""
    contract: str
    """Of the pipeline without what its nodes say: wires, outer ports, rate, free settings."""
    initial_values: str | None
    """Of the first-tick values; None without feedback."""
    nodes: Mapping[str, NodeDigests]
    inputs: Mapping[str, str] | None
    """Files read, relative to the project, and their sha256; None where no record of them is there."""
    toolchain: Mapping[str, str | None]
    packages: Mapping[str, str] | None = None
    """Versions of the distributions that its session had loaded; None where no record of them is there."""
    builder: Mapping[str, str] | None = None
    """The interpreter and the machine that built it, in words; None where no record of them is there."""


def digests_of(bundle: Bundle) -> BundleDigests:
    """The digests of an opened bundle. No file is read but metadata.

    Raises BundleFormatError or BundleDigestError, as reading the bundle's contract and node manifests does.
    """
    check_contract(bundle)
    toolchain = {key: None if value is None else str(value) for key, value in bundle.contract[SYSTEM].items()}
    initial = bundle.contract["pipeline"].get("initial_values")
    return BundleDigests(
        bundle.name,
        bundle.version,
        toolchain.get(OS) or "",
        bundle.digest,
        _digest(pipeline_contract(bundle)),
        bundle.files[initial].sha256 if initial in bundle.files else None,
        {name: _node(bundle, manifest) for name, manifest in bundle.nodes.items()},
        inputs_read(bundle),
        toolchain,
        *built_with(bundle),
    )


def _node(bundle: Bundle, manifest: NodeManifest) -> NodeDigests:
    paths = {
        path: bundle.files[path].sha256
        for each in manifest.artifacts
        for path in each.data_paths
        if path in bundle.files
    }
    return NodeDigests(
        _digest(node_ports(manifest)),
        _digest(node_settings(manifest)),
        manifest.graph_sha256,
        manifest.weights_sha256,
        dict(sorted({**{each.path: each.sha256 for each in manifest.artifacts}, **paths}.items())),
        {each.name: each.sha256 for each in manifest.constants},
    )


def node_ports(manifest: NodeManifest) -> dict[str, Any]:
    """What a node manifest says of inputs and outputs."""
    value: Any = to_json(manifest)
    return {key: value[key] for key in ("inputs", "outputs")}


def node_settings(manifest: NodeManifest) -> dict[str, Any]:
    """What a node manifest says beside ports, graph, constants and the digests of its files."""
    value: Any = to_json(manifest)
    artifacts = [
        {key: each for key, each in artifact.items() if key not in {"sha256", "md5", "size"}}
        for artifact in value["artifacts"]
    ]
    return {"tolerances": value["tolerances"], "warp_segments": value["warp_segments"], "artifacts": artifacts}


def pipeline_contract(bundle: Bundle) -> dict[str, Any]:
    """The runtime file without what node manifests say too, digests and the tool chain."""
    kept = {key: value for key, value in bundle.contract.items() if key not in {"models", SYSTEM}}
    cleaned: dict[str, Any] = _without_digests(kept)
    return cleaned


def check_contract(bundle: Bundle) -> None:
    """Raise BundleFormatError where the runtime file's maps are none, so that nobody else has to look."""
    pipeline, file = bundle.contract["pipeline"], str(bundle.folder / bundle.contract_file)
    for key in WIRES:
        wires = pipeline.get(key, {})
        if not isinstance(wires, dict) or not all(
            isinstance(name, str) and isinstance(ends, list) and all(isinstance(end, str) for end in ends)
            for name, ends in wires.items()
        ):
            raise BundleFormatError(path=file, why=f"pipeline.{key}: expected a map of lists of names")
    semantic = bundle.contract.get("semantic", {})
    maps = {"pipeline.configs": pipeline.get("configs", {}), "semantic": semantic}
    if isinstance(semantic, dict):
        maps["semantic.scene"] = semantic.get("scene", {})
    for name, value in maps.items():
        if not isinstance(value, dict):
            raise BundleFormatError(path=file, why=f"{name}: expected a map")
    if not isinstance(pipeline.get("initial_values"), str | None):
        raise BundleFormatError(path=file, why="pipeline.initial_values: expected a path")


def inputs_read(bundle: Bundle) -> dict[str, str] | None:
    """Files that the build read and their digests, by path, from the evidence; None where it has no record of them."""
    path = bundle.evidence(READS_FILE)
    if path is None:
        return None
    record: Any = json.loads(path.read_bytes())
    found = {
        each["path"]: each["sha256"] for key in ("project", "declared", "undeclared") for each in record.get(key, ())
    }
    return dict(sorted(found.items()))


def built_with(bundle: Bundle) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """What the session of a build had loaded, and what it ran on, from the evidence; None where that does not say.

    It is no part of the content: where other versions give the same bytes, it is the same bundle.
    """
    path = bundle.evidence(SESSION_FILE)
    record: Any = {} if path is None else json.loads(path.read_bytes())
    packages, builder = (record.get(key) for key in ("packages", "builder"))
    return _texts(packages), _texts(builder)


def _texts(value: Any) -> dict[str, str] | None:
    return {str(name): str(text) for name, text in sorted(value.items())} if isinstance(value, dict) else None


def _without_digests(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_digests(each) for key, each in value.items() if key not in _REPEATED}
    return [_without_digests(each) for each in value] if isinstance(value, list) else value


def _digest(value: Any) -> str:
    return sha256(canonical_json(json.loads(json.dumps(value, default=str))))
