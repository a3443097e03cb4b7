"""Where the files of a bundle lie, each checked against its digest before anything is loaded from it."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leapp.bundle._mistaken import no_bundle
from leapp.bundle._tree import BUNDLE_FILE, path_problem
from leapp.bundle.contract import NO_MODELS, NOT_A_MAP, parse_contract
from leapp.bundle.read import Bundle, load
from leapp.bundle.schema import FAILED
from leapp.errors import (
    BundleFormatError,
    FailedBundleWarning,
    ModelDigestError,
    ModelNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leapp.runtime.plan import ModelFile

_SUFFIXES: Final = frozenset({".yaml", ".yml"})


@dataclass(frozen=True)
class Files:
    """An opened bundle, or a runtime file with its models and nothing else."""

    contract_path: Path
    contract: dict[str, Any]
    name: str
    model_dirs: tuple[Path, ...]
    bundle: Bundle | None = None

    def model(self, node: str, model: ModelFile) -> Path:
        """A model file, its digest and those of its external data checked.

        Raises: ModelNotFoundError, ModelDigestError, BundleDigestError, BundleFormatError.
        """
        if self.bundle is not None and model.path in self.bundle.files:
            for artifact in self.bundle.artifacts(node):
                if artifact.path == model.path:
                    for path in artifact.data_paths:
                        self.bundle.content(path)
            file = self.bundle.content(model.path)
            if model.sha256 != self.bundle.files[model.path].sha256:
                why = f"it has another digest of {model.path!r} than {BUNDLE_FILE}"
                raise BundleFormatError(path=str(self.contract_path), why=why)
            return file
        return self._found(node, model)

    def initial_values(self, path: str, digest: str | None) -> Path:
        """The file of first-tick values, its digest checked where there is one."""
        if self.bundle is not None:
            return self.bundle.content(path)
        file = self.contract_path.parent / path
        if not file.is_file():
            raise BundleFormatError(path=str(self.contract_path), why=f"its initial values {path!r} are not there")
        if digest is not None:
            _check(file, "sha256", digest)
        return file

    def _found(self, node: str, model: ModelFile) -> Path:
        """A file that ``bundle.json`` does not cover: beside the runtime file, or by its name in the model folders."""
        candidates = [folder / Path(model.path).name for folder in self.model_dirs]
        folder = self.contract_path.parent
        # Neither an absolute path of the machine that exported it nor one that leads outside is followed.
        if self.bundle is None and path_problem(model.path) is None:
            candidates.insert(0, folder / model.path)
        found = [path for path in candidates if path.is_file()]
        if not found:
            places = [str(path) for path in (folder, *self.model_dirs)]
            raise ModelNotFoundError(node=node, file=model.path, places=", ".join(places))
        algorithm, digest = ("sha256", model.sha256) if model.sha256 is not None else ("md5", model.md5 or "")
        for path in found[:-1]:
            if _digest(path, algorithm) == digest:
                return path
        _check(found[-1], algorithm, digest)
        return found[-1]


def open_files(path: Path | str, model_dirs: Sequence[Path | str] = ()) -> Files:
    """Open a bundle by its folder, its ``bundle.json`` or its runtime file; a runtime file may also stand alone.

    Raises:
        NotABundleError: there is none, or a folder holds several runtime files and no ``bundle.json``.
        BundleFormatError, BundleTooNewError, BundleDigestError: as ``leapp.bundle.read.load``.
    """
    path = Path(path)
    folders = tuple(Path(each) for each in model_dirs)
    if path.is_file() and path.suffix not in _SUFFIXES and path.name != BUNDLE_FILE:
        raise no_bundle(path)
    folder = path if path.is_dir() else path.parent
    if (folder / BUNDLE_FILE).exists() and path.exists():
        bundle = load(path)
        named = folder / bundle.contract_file
        if path.suffix not in _SUFFIXES or path.is_dir() or path.name == named.name:
            if bundle.status == FAILED:
                warnings.warn(FailedBundleWarning(path=bundle.folder), stacklevel=3)
            return Files(named, bundle.contract, bundle.name, folders, bundle)
        why = f"the runtime file of the bundle in this folder is {named.name}"
        raise no_bundle(path, why)
    if path.is_dir():
        path = _only_contract(path)
    if not path.is_file():
        raise no_bundle(path)
    return Files(path, _own_contract(path), path.stem, folders)


def _own_contract(path: Path) -> dict[str, Any]:
    """A runtime file that stands alone. Raises NotABundleError where the YAML file is of another kind."""
    try:
        return parse_contract(path.read_bytes(), path, aliases=True)
    except BundleFormatError as error:
        if error.facts["why"] in {NOT_A_MAP, NO_MODELS}:
            raise no_bundle(path, "it is a YAML file that says nothing of models") from None
        raise


def _only_contract(folder: Path) -> Path:
    found = sorted(each for each in folder.iterdir() if each.suffix in _SUFFIXES)
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.name for each in found)
    why = f"it holds no {BUNDLE_FILE} and {f'several runtime files ({names}); name one' if found else 'no .yaml file'}"
    raise no_bundle(folder, why)


def _digest(path: Path, algorithm: str) -> str:
    # MD5 is what old runtime files have; it finds a damaged file, no more.
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def _check(path: Path, algorithm: str, expected: str) -> None:
    found = _digest(path, algorithm)
    if found != expected:
        raise ModelDigestError(path=str(path), algorithm=algorithm, found=found, expected=expected)
