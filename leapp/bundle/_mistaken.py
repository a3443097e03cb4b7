"""What was named in place of a bundle, and what to type instead."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import Final

from leapp.bundle._tree import BUNDLE_FILE
from leapp.errors import NotABundleError

MODEL_SUFFIXES: Final = frozenset((".onnx", ".pt", ".pt2", ".pth", ".ckpt", ".safetensors"))
_ARCHIVE_SUFFIXES: Final = frozenset((".zip", ".tar", ".tgz", ".gz", ".xz", ".zst", ".7z"))
_YAML_SUFFIXES: Final = frozenset((".yaml", ".yml"))
_MOST_SHOWN: Final = 3
_USUAL: Final = "Name a folder that holds a bundle.json, for example dist/<name>/<version>."


def no_bundle(path: Path, why: str = "") -> NotABundleError:
    """The error for a path where a bundle was expected; ``why`` where the caller knows more than the path shows."""
    return NotABundleError(path=str(path), why=why or _why(path), advice=_advice(path))


def _why(path: Path) -> str:
    if not path.exists():
        return "it does not exist"
    if path.is_dir():
        return f"it holds no {BUNDLE_FILE}"
    if path.suffix in MODEL_SUFFIXES:
        return "it is a model file, of which a bundle holds several with their wiring and digests"
    if path.suffix in _ARCHIVE_SUFFIXES:
        return "it is an archive"
    if path.suffix in _YAML_SUFFIXES:
        return f"no {BUNDLE_FILE} lies beside it"
    if path.suffix == ".toml":
        return "it is a manifest, from which a bundle is built" if path.name != "pyproject.toml" else "it is a file"
    return "it is neither a folder nor a runtime file (.yaml)"


def _advice(path: Path) -> str:
    if path.is_file():
        around = next((each for each in path.absolute().parents if (each / BUNDLE_FILE).is_file()), None)
        if around is not None:
            return f"It lies in the bundle {shlex.quote(str(around))}: name that folder."
        if path.suffix in _ARCHIVE_SUFFIXES:
            return f"Unpack it, and name the folder in it that holds the {BUNDLE_FILE}."
        if path.suffix == ".toml" and path.name != "pyproject.toml":
            return f"`leapp build {shlex.quote(str(path))}` builds it."
    return bundles_in(path if path.is_dir() else Path("dist"))


def bundles_in(folder: Path) -> str:
    """A sentence that names bundles below a folder, or says how one comes to be."""
    found = sorted({str(each.parent) for each in _bundles_below(folder)})
    if found:
        more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        return f"Bundles in {folder}: {', '.join(found[:_MOST_SHOWN])}{more}."
    return f"{_USUAL} `leapp build` writes it there."


def _bundles_below(folder: Path) -> itertools.chain[Path]:
    """A bundle lies two folders below the output of a build, and one below the ``save_path`` of a script."""
    return itertools.chain(folder.glob(f"*/*/{BUNDLE_FILE}"), folder.glob(f"*/{BUNDLE_FILE}"))
