"""Open a bundle and check it. Standard library and PyYAML only; nothing of a bundle is ever executed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leapp._canonical import canonical_json, readable_json, sha256
from leapp.bundle._mistaken import no_bundle
from leapp.bundle._tree import (
    BUNDLE_FILE,
    EVIDENCE_FOLDER,
    EVIDENCE_INDEX,
    folded,
    is_evidence,
    kind_of,
    read_plain,
    scan,
    size_and_sha256,
)
from leapp.bundle.contract import parameters, parse_contract, port_fields
from leapp.bundle.schema import (
    MAX_METADATA_BYTES,
    PARTIAL,
    UNFIT,
    BundleManifest,
    EvidenceIndex,
    Fields,
    FileEntry,
    NodeManifest,
    PortEntry,
    parse_json,
)
from leapp.errors import (
    BundleDigestError,
    BundleError,
    BundleFileGoneError,
    BundleFormatError,
    NotInBundleError,
    PartialBundleError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from leapp.bundle._tree import Tree
    from leapp.bundle.schema import Artifact

_T = TypeVar("_T")

_MAX_ATTEMPTS: Final = 5
"""How often ``verify`` begins anew when the bundle was replaced by another one while it was read."""


def node_manifest_path(node: str) -> str:
    """Where the manifest of a node lies in a bundle."""
    return f"nodes/{node}/manifest.json"


def bundle_digest(value: Mapping[str, Any]) -> str:
    """The digest of a bundle from its parsed ``bundle.json``: of its canonical JSON without the digest itself."""
    return sha256(canonical_json({key: each for key, each in value.items() if key != "digest"}))


# --- load ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. Everything but ``manifest`` is read when it is asked for, and checked against its digest."""

    folder: Path
    manifest: BundleManifest

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """Version of the bundle."""
        return self.manifest.version

    def require_whole(self) -> None:
        """Raise PartialBundleError where models were left out, so that it is no pipeline."""
        if self.status == PARTIAL:
            raise PartialBundleError(path=self.folder)

    @property
    def status(self) -> str:
        """``ok``; ``failed`` where a check of the build did not pass; ``partial`` where one node alone was built."""
        return self.manifest.status

    @property
    def digest(self) -> str:
        """The identity of the bundle."""
        return self.manifest.digest

    @property
    def contract_file(self) -> str:
        """Path of the runtime file in the bundle."""
        return f"{self.name}.yaml"

    @cached_property
    def files(self) -> Mapping[str, FileEntry]:
        """Content files by path."""
        return {entry.path: entry for entry in self.manifest.files}

    @cached_property
    def contract(self) -> dict[str, Any]:
        """The runtime file as plain values. Raises BundleFormatError or BundleDigestError."""
        return parse_contract(self.read_bytes(self.contract_file), self.folder / self.contract_file)

    @cached_property
    def nodes(self) -> Mapping[str, NodeManifest]:
        """Node manifests in the order of the runtime file. Raises BundleFormatError or BundleDigestError."""
        nodes = {}
        for name in self.contract["models"]:
            path = node_manifest_path(name)
            nodes[name] = parse_node_manifest(self.read_bytes(path), self.folder / path)
        return nodes

    def node(self, name: str) -> NodeManifest:
        """One node's manifest. Raises NotInBundleError."""
        if name not in self.nodes:
            raise self._missing("node", name, self.nodes)
        return self.nodes[name]

    def artifacts(self, node: str) -> tuple[Artifact, ...]:
        """The model files of a node, the preferred one first."""
        return self.node(node).artifacts

    def artifact(self, node: str, format: str | None = None) -> Path:
        """The model file of a node, its digest checked: of a format or loader (``jit``), or the preferred one.

        Raises NotInBundleError where there is none or it was not copied into the bundle.
        """
        found = [each for each in self.artifacts(node) if format in {None, each.format, each.backend}]
        if not found or found[0].external:
            known = [f"{node} as {each.format}" for each in self.artifacts(node) if not each.external]
            raise self._missing("model file", node if format is None else f"{node} as {format}", known)
        for path in found[0].data_paths:
            self.content(path)
        return self.content(found[0].path)

    def content(self, path: str) -> Path:
        """A content file, its digest checked. Raises NotInBundleError or BundleDigestError."""
        entry = self._entry(path)
        file = self._file(path)
        _, digest = size_and_sha256(file)
        self._check(entry, digest)
        return file

    def read_bytes(self, path: str) -> bytes:
        """The bytes of a content file, their digest checked. Raises NotInBundleError or BundleDigestError."""
        entry = self._entry(path)
        data = b"".join(read_plain(self._file(path)))
        self._check(entry, sha256(data))
        return data

    @property
    def initial_values(self) -> Path | None:
        """First-tick values of state and feedback inputs, their digest checked; None without feedback."""
        path = self.contract["pipeline"].get("initial_values")
        return None if path is None else self.content(path)

    @cached_property
    def evidence_index(self) -> EvidenceIndex | None:
        """What is recorded of the build; None where the evidence was left behind."""
        file = self.folder / EVIDENCE_INDEX
        return parse_evidence_index(_read_metadata(file), file) if os.path.lexists(file) else None

    def evidence(self, path: str) -> Path | None:
        """An evidence file, its digest checked; None where there is none, or no index that lists it."""
        index = self.evidence_index
        entry = next((each for each in index.files if each.path == path), None) if index is not None else None
        if entry is None:
            return None
        file = self._file(path)
        _, digest = size_and_sha256(file)
        self._check(entry, digest)
        return file

    def samples(self, node: str) -> Path | None:
        """The recorded samples of a node (``leapp.bundle.samples`` reads them)."""
        return self.evidence(f"{EVIDENCE_FOLDER}/samples/{node}.safetensors")

    def sources(self, node: str) -> Path | None:
        """Where in the user's code a node's operations were recorded, as JSON."""
        return self.evidence(f"{EVIDENCE_FOLDER}/sources/{node}.json")

    def _entry(self, path: str) -> FileEntry:
        if path not in self.files:
            raise self._missing("file", path, self.files)
        return self.files[path]

    def _file(self, path: str) -> Path:
        """A path of a manifest on disk, after a look at each part of it: links would lead outside."""
        file = self.folder
        for part in path.split("/"):
            file /= part
            try:
                mode = file.lstat().st_mode
            except FileNotFoundError:
                raise BundleFileGoneError(path=str(file), bundle=str(self.folder)) from None
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise BundleFormatError(path=str(file), why=f"it is {kind_of(mode)}, which no bundle may hold")
        if not file.is_file():
            raise BundleFormatError(path=str(file), why="it is a folder where a file belongs")
        return file

    def _check(self, entry: Any, digest: str) -> None:
        if digest != entry.sha256:
            raise BundleDigestError(path=str(self.folder / entry.path), found=digest, expected=entry.sha256)

    def _missing(self, kind: str, name: str, known: Iterable[str]) -> NotInBundleError:
        return NotInBundleError(
            bundle=str(self.folder), kind=kind, name=name, known=", ".join(known) or "none, the bundle is incomplete"
        )


def load(path: Path | str) -> Bundle:
    """Open a bundle by its folder, its ``bundle.json`` or its runtime file.

    Raises:
        NotABundleError: there is none.
        BundleFormatError: ``bundle.json`` is malformed, or names files outside the bundle.
        BundleTooNewError: it needs a newer reader.
        BundleDigestError: ``bundle.json`` does not bear the digest that it should.
    """
    folder = _folder(Path(path))
    _, value = _bundle_json(folder)
    manifest = BundleManifest.read(Fields(value, str(folder / BUNDLE_FILE)))
    digest = bundle_digest(value)
    if digest != manifest.digest:
        raise BundleDigestError(path=str(folder / BUNDLE_FILE), found=digest, expected=manifest.digest)
    return Bundle(folder, manifest)


def find(digest: str, folders: Iterable[Path]) -> Bundle | None:
    """The bundle of a digest among folders; None where none of them is it. Of each only ``bundle.json`` is read."""
    for folder in folders:
        try:
            if is_bundle(folder) and _bundle_json(folder)[1]["digest"] == digest:
                return load(folder)
        except (BundleError, OSError):  # it is damaged, or went away
            continue
    return None


def is_bundle(folder: Path) -> bool:
    """Whether a folder holds a ``bundle.json`` of ours, of any schema, sound or not in the rest."""
    if not os.path.lexists(folder / BUNDLE_FILE):  # most folders: the error would look around for what was meant
        return False
    try:
        _, value = _bundle_json(folder)
    except (BundleError, OSError):
        return False
    return {"schema", "requires", "name", "version", "files", "digest"} <= value.keys()


def parse_node_manifest(data: bytes, path: Path | str) -> NodeManifest:
    """A node's ``manifest.json`` from its bytes. Raises BundleFormatError."""
    return NodeManifest.read(Fields(parse_json(data, path), str(path)))


def parse_evidence_index(data: bytes, path: Path | str) -> EvidenceIndex:
    """``evidence/index.json`` from its bytes. Raises BundleFormatError."""
    return EvidenceIndex.read(Fields(parse_json(data, path), str(path)))


def _folder(path: Path) -> Path:
    if path.is_file() and (path.name == BUNDLE_FILE or path.suffix in {".yaml", ".yml"}):
        if path.name != BUNDLE_FILE and not os.path.lexists(path.parent / BUNDLE_FILE):
            raise no_bundle(path)
        return path.parent
    if not path.is_dir():
        raise no_bundle(path)
    return path


def _bundle_json(folder: Path) -> tuple[bytes, dict[str, Any]]:
    file = folder / BUNDLE_FILE
    if not os.path.lexists(file):
        raise no_bundle(folder)
    data = _read_metadata(file)
    return data, parse_json(data, file)


def _read_metadata(file: Path) -> bytes:
    """The bytes of a metadata file, refused before they are read where they cannot be any."""
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise BundleFormatError(path=str(file), why=f"it is {kind_of(status.st_mode)}, not a file")
    if status.st_size > MAX_METADATA_BYTES:
        raise BundleFormatError(path=str(file), why=f"{status.st_size} bytes are too large for metadata")
    return b"".join(read_plain(file))


# --- verify --------------------------------------------------------------------------------------------------------


class ProblemKind(StrEnum):
    """What can be wrong with a bundle."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"
    CASE = "case"
    """A file has another spelling: upper and lower case, or composed and decomposed letters."""
    LINK = "link"
    STRUCTURE = "structure"
    EVIDENCE_CHANGED = "evidence-changed"
    EVIDENCE_MISSING = "evidence-missing"
    EVIDENCE_EXTRA = "evidence-extra"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    kind: ProblemKind
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}: {self.detail}"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What ``verify`` found. A bundle that is not to be used can be whole: look at ``status`` as well."""

    path: Path
    name: str
    version: str
    status: str
    digest: str
    problems: tuple[Problem, ...]
    """Sorted by path."""
    notes: tuple[str, ...] = field(default=())
    """What is no problem and yet worth a word."""

    @property
    def ok(self) -> bool:
        """Whether every file is the one that was written, and nothing else is there."""
        return not self.problems


def verify(path: Path | str) -> VerifyReport:
    """Check digests, completeness and structure of a bundle; a mismatch is a result, not an exception.

    Every byte of the bundle is covered: content by ``bundle.json``, evidence by its index, ``bundle.json`` by its own
    digest and form. Evidence that was left behind as a whole is no problem.

    Raises:
        NotABundleError, BundleFormatError, BundleTooNewError: as ``load``; there is nothing to compare with then.
    """
    folder = _folder(Path(path))
    for _ in range(_MAX_ATTEMPTS):
        before = _identity(folder)
        try:
            report = _verify(folder)
        except OSError:
            if _identity(folder) == before:
                raise
            continue
        if report.ok or _identity(folder) == before:
            return report
    return _verify(folder)


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _verify(folder: Path) -> VerifyReport:
    data, value = _bundle_json(folder)
    manifest = BundleManifest.read(Fields(value, str(folder / BUNDLE_FILE)))
    problems: list[Problem] = []
    digest = bundle_digest(value)
    if digest != manifest.digest:
        problems.append(Problem(ProblemKind.CHANGED, BUNDLE_FILE, f"its digest is {digest}, not {manifest.digest}"))
    elif data != readable_json(value):
        problems.append(Problem(ProblemKind.CHANGED, BUNDLE_FILE, "the bytes are not in the form that was written"))
    tree = scan(folder)
    problems += (
        Problem(ProblemKind.LINK, path, f"it is {kind}; a bundle holds plain files only")
        for path, kind in tree.others.items()
    )
    expected = {entry.path: (entry.size, entry.sha256) for entry in manifest.files}
    respelled: set[str] = set()
    problems += _compare(folder, tree, expected, _CONTENT, respelled)
    evidence = {path for path in tree.files if is_evidence(path, manifest.name)}
    notes: list[str] = []
    index = _evidence_index(folder, tree, evidence, problems, notes)
    if index is not None:
        problems += _compare(folder, tree, index, _EVIDENCE, respelled)
    explained = {BUNDLE_FILE, EVIDENCE_INDEX, *expected, *(index or {}), *respelled}
    for path in tree.files:
        if path in explained:
            continue
        if path not in evidence:
            problems.append(Problem(ProblemKind.EXTRA, path, "bundle.json does not list it"))
        elif index is not None:
            problems.append(Problem(ProblemKind.EVIDENCE_EXTRA, path, "the evidence index does not list it"))
    untouched = set(expected) & set(tree.files) - {problem.path for problem in problems}
    problems += _Structure(folder, manifest, untouched).problems()
    if manifest.status in UNFIT:
        notes.append(f"the bundle is whole; status {manifest.status}: {UNFIT[manifest.status]}")
    return VerifyReport(
        folder,
        manifest.name,
        manifest.version,
        manifest.status,
        manifest.digest,
        tuple(sorted(set(problems), key=lambda each: (each.path, each.kind, each.detail))),
        tuple(notes),
    )


_CONTENT: Final = (ProblemKind.CHANGED, ProblemKind.MISSING)
_EVIDENCE: Final = (ProblemKind.EVIDENCE_CHANGED, ProblemKind.EVIDENCE_MISSING)


def _compare(
    folder: Path,
    tree: Tree,
    expected: Mapping[str, tuple[int, str]],
    kinds: tuple[ProblemKind, ProblemKind],
    respelled: set[str],
) -> Iterator[Problem]:
    """Sizes and digests of listed files; files that are there under another spelling are added to ``respelled``."""
    changed, missing = kinds
    spellings = {folded(path): path for path in tree.files}
    for path, (size_bytes, digest) in expected.items():
        if path in tree.others:
            continue
        if path not in tree.files:
            other = spellings.get(folded(path))
            if other is not None and other not in expected:
                respelled.add(other)
                yield Problem(ProblemKind.CASE, path, f"it is called {other!r}")
            else:
                yield Problem(missing, path, "it is listed and not there")
        elif tree.files[path] != size_bytes:
            yield Problem(changed, path, f"{tree.files[path]} bytes instead of {size_bytes}")
        else:
            try:
                _, found = size_and_sha256(folder / path)
            except OSError as error:
                yield Problem(changed, path, f"it cannot be read: {error.strerror}")
                continue
            if found != digest:
                yield Problem(changed, path, f"sha256 {found} instead of {digest}")


def _evidence_index(
    folder: Path, tree: Tree, evidence: set[str], problems: list[Problem], notes: list[str]
) -> dict[str, tuple[int, str]] | None:
    """What the evidence index lists; None where there is none to compare with."""
    file = folder / EVIDENCE_INDEX
    if EVIDENCE_INDEX in tree.files:
        try:
            data = _read_metadata(file)
            index = parse_evidence_index(data, file)
        except BundleFormatError as error:
            problems.append(Problem(ProblemKind.EVIDENCE_CHANGED, EVIDENCE_INDEX, error.facts["why"]))
            return None
        if data != readable_json(parse_json(data, file)):
            why = "the bytes are not in the form that was written"
            problems.append(Problem(ProblemKind.EVIDENCE_CHANGED, EVIDENCE_INDEX, why))
        for entry in index.files:
            if entry.path not in evidence and entry.path in tree.files:
                why = f"it lists {entry.path!r}, which is no evidence"
                problems.append(Problem(ProblemKind.EVIDENCE_CHANGED, EVIDENCE_INDEX, why))
        return {entry.path: (entry.size, entry.sha256) for entry in index.files}
    if any(path.startswith(f"{EVIDENCE_FOLDER}/") for path in evidence):
        why = "there is evidence and no index of it"
        problems.append(Problem(ProblemKind.EVIDENCE_MISSING, EVIDENCE_INDEX, why))
    else:
        # The folder was left behind as a whole; what lies beside the runtime file has no digest to be checked against.
        notes += (f"{path} is not covered by any digest: the evidence folder is absent" for path in sorted(evidence))
    return None


class _Structure:
    """Whether the files of a bundle say the same of the model. Files that are known to be damaged are not asked."""

    def __init__(self, folder: Path, manifest: BundleManifest, untouched: set[str]) -> None:
        self._folder = folder
        self._manifest = manifest
        self._untouched = untouched
        self._files = {entry.path: entry for entry in manifest.files}
        self._found: list[Problem] = []

    def problems(self) -> list[Problem]:
        contract_file = f"{self._manifest.name}.yaml"
        if contract_file not in self._files:
            self._add(BUNDLE_FILE, f"it does not list the runtime file {contract_file!r}")
        contract = self._parse(contract_file, parse_contract)
        nodes = {path: self._parse(path, parse_node_manifest) for path in self._files if _is_node_manifest(path)}
        for path, node in nodes.items():
            if node is not None:
                self._node(path, node)
        if contract is not None:
            try:
                self._contract(contract_file, contract, nodes)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # Valid YAML in another shape than ours; what exactly is missing is in the error.
                self._add(contract_file, f"it does not have the form of a runtime file: {error!r}")
        return self._found

    def _add(self, path: str, detail: str) -> None:
        self._found.append(Problem(ProblemKind.STRUCTURE, path, detail))

    def _parse(self, path: str, parse: Callable[[bytes, Path], _T]) -> _T | None:
        if path not in self._untouched:
            return None
        file = self._folder / path
        try:
            return parse(_read_metadata(file), file)
        except BundleFormatError as error:
            self._add(path, error.facts["why"])
            return None

    def _node(self, path: str, node: NodeManifest) -> None:
        """A node manifest agrees with ``bundle.json``."""
        if node_manifest_path(node.node) != path:
            self._add(path, f"it describes the node {node.node!r}")
        for artifact in node.artifacts:
            if artifact.external:
                continue
            entry = self._files.get(artifact.path)
            if entry is None:
                self._add(path, f"bundle.json does not list its model file {artifact.path!r}")
            elif (entry.size, entry.sha256) != (artifact.size, artifact.sha256):
                self._add(path, f"bundle.json has another size or digest of {artifact.path!r}")
            for data_path in artifact.data_paths:
                if data_path not in self._files:
                    self._add(path, f"bundle.json does not list its data file {data_path!r}")

    def _contract(self, path: str, contract: Mapping[str, Any], nodes: Mapping[str, NodeManifest | None]) -> None:
        """The runtime file agrees with the node manifests and with itself."""
        models, pipeline = contract["models"], contract["pipeline"]
        for name, model in models.items():
            manifest_path = node_manifest_path(name)
            if manifest_path not in nodes:
                self._add(path, f"node {name!r} has no {manifest_path}")
            elif (node := nodes[manifest_path]) is not None:
                self._model(path, name, model, node)
        for manifest_path in nodes:
            if manifest_path.split("/")[1] not in models:
                self._add(manifest_path, f"its node is not in {path}")
        self._wires(path, models, pipeline)
        if (initial := pipeline.get("initial_values")) is not None:
            entry = self._files.get(initial)
            if entry is None:
                self._add(path, f"bundle.json does not list the initial values {initial!r}")
            elif entry.sha256 != pipeline.get("initial_values_sha256sum"):
                self._add(path, f"bundle.json has another digest of {initial!r}")
        elif pipeline["feedback_flow"]:
            self._add(path, "there is feedback and no initial_values")

    def _model(self, path: str, name: str, model: Mapping[str, Any], node: NodeManifest) -> None:
        for direction, ports in (("inputs", node.inputs), ("outputs", node.outputs)):
            if model[direction] != _port_list(ports, name):
                self._add(path, f"the {direction} of node {name!r} differ from its manifest")
        if model["parameters"] != parameters(node):
            self._add(path, f"the parameters of node {name!r} differ from the artifacts of its manifest")

    def _wires(self, path: str, models: Mapping[str, Any], pipeline: Mapping[str, Any]) -> None:
        """Every end of a wire is a port of the right direction."""
        ports = {
            direction: {f"{name}/{port['name']}" for name, model in models.items() for port in model[direction]}
            for direction in ("inputs", "outputs")
        }
        if pipeline.get("feedback_connections", pipeline["feedback_flow"]) != pipeline["feedback_flow"]:
            self._add(path, "feedback_connections and feedback_flow differ")
        ends: dict[str, list[str]] = {"inputs": [], "outputs": []}
        for flow in ("data_flow", "feedback_flow"):
            for source, targets in pipeline[flow].items():
                ends["outputs"].append(source)
                ends["inputs"] += targets
        for direction in ("inputs", "outputs"):
            ends[direction] += (f"{name}/{port}" for name, each in pipeline[direction].items() for port in each)
            for end in sorted(set(ends[direction]) - ports[direction]):
                self._add(path, f"{end!r} is wired and is none of the {direction} of a node")


def _is_node_manifest(path: str) -> bool:
    parts = path.split("/")
    return len(parts) == 3 and parts[0] == "nodes" and parts[2] == "manifest.json"


def _port_list(ports: tuple[PortEntry, ...], node: str) -> list[dict[str, Any]]:
    return [port_fields(port.port(), node) for port in ports]
