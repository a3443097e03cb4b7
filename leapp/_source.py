"""Where the LEAPP that runs now came from, as a requirement that installs the same again."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import sys
import urllib.parse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from leapp._version import __version__

DISTRIBUTION: Final = "leapp-build"
EXTRA: Final = "build"
TOOL_CHAIN: Final = ("torch", "numpy", "onnx", "onnxscript", "onnxruntime", "safetensors")
"""What takes part in the bytes of a bundle, and is pinned beside LEAPP."""


@dataclass(frozen=True, slots=True)
class Source:
    """A requirement, never the bare name: that belongs to another package."""

    requirement: str
    """As pip takes it: ``leapp-build[build]==0.1.0`` or ``leapp-build[build] @ URL``."""
    local: Path | None = None
    """The folder or wheel that it is installed from, where other machines do not have it."""
    editable: bool = False
    """Whether ``local`` is a checkout whose own files run."""

    def pip_arguments(self, extra: str = EXTRA) -> str:
        """What follows ``pip install`` to get an extra, or several with commas between, of the same source."""
        if self.editable and self.local is not None:  # without -e, a copy would take the place of the checkout
            return f"-e {shlex.quote(f'{self.local}[{extra}]')}"
        return shlex.quote(self.requirement.replace(f"{DISTRIBUTION}[{EXTRA}]", f"{DISTRIBUTION}[{extra}]", 1))


def install_command(extra: str = EXTRA) -> str:
    """What to type to get an extra, or several with commas between, into the interpreter that runs now.

    It is that of the LEAPP that runs: from its URL, folder or wheel where it came from one.
    """
    return f"{shlex.quote(sys.executable)} -m pip install {find_source().pip_arguments(extra)}"


def find_source(distribution: importlib.metadata.Distribution | None = None, package: Path | None = None) -> Source:
    """The source of the package that runs.

    Args:
        distribution: the installed ``leapp-build``; None: looked for.
        package: folder of the package; None: the one that this module belongs to.
    """
    package = Path(__file__).absolute().parents[1] if package is None else package
    if distribution is None:
        try:
            distribution = importlib.metadata.distribution(DISTRIBUTION)
        except importlib.metadata.PackageNotFoundError:
            return _checkout(package)
    record = _record(distribution)
    url = str(record.get("url", ""))
    folder = _path(url) if "dir_info" in record else None
    installed = Path(str(distribution.locate_file("leapp")))
    if not any(_same(each, package) for each in (installed, *((folder / "leapp",) if folder is not None else ()))):
        return _checkout(package)  # what is installed is not what runs: another checkout stands before it on the path
    if "vcs_info" in record:
        return _from_vcs(url, record)
    if folder is not None:
        return replace(_local(folder), editable=bool(record["dir_info"].get("editable")))
    if "archive_info" in record:
        wheel = _path(url)
        return _at(url, _archive_digest(record["archive_info"])) if wheel is None else _local(wheel)
    return Source(f"{DISTRIBUTION}[{EXTRA}]=={distribution.version}")


def versions() -> dict[str, str]:
    """Versions of the tool chain that is installed here, with the part that names a build, as ``+cpu``."""
    found = {}
    for name in TOOL_CHAIN:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _record(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    """``direct_url.json`` as installers write it (PEP 610); empty for what came from an index."""
    text = distribution.read_text("direct_url.json")
    try:
        record = json.loads(text) if text else {}
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _from_vcs(url: str, record: dict[str, Any]) -> Source:
    info: dict[str, str] = record["vcs_info"]
    place = f"{info['vcs']}+{_without_password(url)}@{info['commit_id']}"
    inside = record.get("subdirectory")
    remote = _at(place, f"subdirectory={inside}" if inside else "")
    return Source(remote.requirement, _path(url))


def _at(url: str, fragment: str = "") -> Source:
    whole = f"{_without_password(url)}#{fragment}" if fragment and "#" not in url else _without_password(url)
    return Source(f"{DISTRIBUTION}[{EXTRA}] @ {whole}")


def _local(path: Path) -> Source:
    return Source(f"{DISTRIBUTION}[{EXTRA}] @ {path.as_uri()}", path)


def _checkout(package: Path) -> Source:
    root = package.parent
    if (root / "pyproject.toml").is_file():
        return _local(root)
    return Source(f"{DISTRIBUTION}[{EXTRA}]=={__version__}")


def _archive_digest(info: dict[str, Any]) -> str:
    digest = (info.get("hashes") or {}).get("sha256")
    return f"sha256={digest}" if digest else ""


def _without_password(url: str) -> str:
    """Without what must not be written down. Installers leave it out already, but for ``${NAME}``, which may stay."""
    return re.sub(r"(?<=://)[^/@${}]*:[^/@${}]*@", "", url)


def _path(url: str) -> Path | None:
    parts = urllib.parse.urlsplit(url)
    return Path(urllib.parse.unquote(parts.path)) if parts.scheme == "file" else None


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
