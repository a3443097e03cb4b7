"""All that can change the bytes of a bundle beside the files that its session reads, as flat facts in words.

A fact is a name that people understand and a short text; two builds are the same when all their facts are. Which files
are read, and what they hold, is found by running: ``leapp.build.cache`` looks at those one by one.
"""

from __future__ import annotations

import json
import os
import platform
import re
import site
import sys
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import leapp
from leapp._canonical import canonical_json, sha256
from leapp._spec import LEAPP_SOURCE, PYTHON
from leapp.manifest.model import FromFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from leapp._spec import JSON
    from leapp.build.plan import PipelinePlan

NOT_SET: Final = "not set"
NONE: Final = "none"
"""Value of a fact about what the machine does not have."""
PLATFORM: Final = f"{sys.platform}-{os.uname().machine}"
"""What locks call the platform that this process runs on."""
_CPU_LINES: Final = ("model name", "flags", "CPU implementer", "CPU part", "Features")
_CPU_BYTES: Final = 1 << 14
"""Enough for the first processor; a large machine lists hundreds, all alike."""
_NOT_CONTENT: Final = frozenset(
    {"path", "shown", "root", "lines", "own_version", "session.timeout_s", "session.python", "pipeline.entry.text"}
)
"""Values of a manifest that say where things are or how long they may take, not what comes out."""
_HIDDEN_CODE: Final = (".pth", ".egg-link")
_LOOSE_CODE: Final = (".py", ".so")
_CUSTOM: Final = frozenset({"sitecustomize.py", "usercustomize.py"})
_INSTALLERS: Final = frozenset(f"package {name}" for name in ("pip", "setuptools", "wheel", "uv", "virtualenv"))
OWN: Final = "leapp_build"
"""This package, in the names of folders."""
_JUDGES: Final = re.compile(r"pydantic(_core)?-[^-]+\.dist-info")
"""What validates manifests: both of these."""


def plan_facts(plan: PipelinePlan, digest: Callable[[Path], str]) -> dict[str, str]:
    """What one pipeline is built from, as its manifest, the command and the environment say.

    Args:
        plan: the pipeline.
        digest: of a file; files that only the probe sees are told apart by it.
    """
    manifest = plan.manifest
    facts = {"manifest's place": manifest.path.relative_to(manifest.root).as_posix()}
    facts |= {f"manifest {key}": text for key, text in _flat(manifest)}
    facts["option --strict"] = str(plan.strict)
    facts["option probe"] = str(plan.probe)
    for name, value in plan.variables.items():
        facts[f"variable {name}"] = NOT_SET if value is None else value
    names = [os.path.relpath(path, manifest.root) for path in manifest.input_files()]
    if names:
        facts["files that [session] inputs names"] = sha256(canonical_json(list(names)))
    for name in _probe_files(plan):
        facts[f"probe file {name}"] = _digest_or_missing(manifest.root / name, digest)
    return facts


def tool_facts(digest: Callable[[Path], str], root: Path, source: str | None = None) -> dict[str, str]:
    """What every pipeline of a project is built with: LEAPP itself, Python, the machine, installed packages.

    Args:
        digest: of a file.
        root: the project; packages that are installed from it count by the files that are read.
        source: what ``leapp_digest`` gives, where it is known.
    """
    facts = {
        LEAPP_SOURCE: leapp_digest(digest) if source is None else source,
        PYTHON: f"{platform.python_implementation()} {sys.version}",
        "platform": PLATFORM,
        **machine_facts(),
        "GPUs": _gpus(),
        "variable LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", NOT_SET),
    }
    for folder in _site_folders():
        facts |= _packages(folder, digest, root)
    return facts


def machine_facts() -> dict[str, str]:
    """What a machine shares with others of its kind, and libraries compute by."""
    return {
        "C library": os.confstr("CS_GNU_LIBC_VERSION") or "unknown",
        "processor": _processor(),
        "GPU driver": _first_line(Path("/proc/driver/nvidia/version")),
    }


def judge(source: str) -> str:
    """Digest of all that decides whether a manifest or a lock is a good one, beside its bytes.

    Empty where the packages that have a say in it cannot be told.

    Args:
        source: what ``leapp_digest`` gives.
    """
    names = [entry for folder in _site_folders() for entry in os.listdir(folder)]  # noqa: PTH208
    found = sorted({name for name in names if _JUDGES.fullmatch(name)})
    return sha256(canonical_json([source, sys.version, *found])) if len(found) == 2 else ""


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not as it was, one line each: the shorter values are shown.

    What both have comes first, and tells most: another environment may lack dozens of packages, and another torch.
    Of packages, those that only install others come last.
    """

    def weight(name: str) -> tuple[bool, bool, str]:
        return name not in before or name not in now, name in _INSTALLERS, name

    names = sorted(before.keys() | now.keys(), key=weight)
    return [_difference(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]


def _difference(name: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"{name}: new, {_short(now)}" if _is_short(now) else f"{name}: new"
    if now is None:
        return f"{name}: was {_short(before)}, gone" if _is_short(before) else f"{name}: gone"
    if _is_short(before) and _is_short(now):
        return f"{name}: {_short(before)} -> {_short(now)}"
    return f"{name} changed"


def _is_short(text: str | None) -> bool:
    # 64 letters are a digest, which tells nobody anything.
    return text is not None and len(text) < 60 and "\n" not in text


def _short(text: str | None) -> str:
    return text or "nothing"


# --- a manifest ----------------------------------------------------------------------------------------------------


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """All values below one, each with its dotted key. Empty tables and lists say so: they are not absent ones."""
    if key in _NOT_CONTENT:
        return
    inner: Mapping[str, Any]
    if is_dataclass(value) and not isinstance(value, type):
        inner = {each.name: getattr(value, each.name) for each in fields(value)}
    elif hasattr(value, "items") and value:
        inner = value
    else:
        yield key, json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)
        return
    for name, each in inner.items():
        # A key may hold a dot itself: it is quoted, as TOML has it.
        step = name if "." not in str(name) else json.dumps(name)
        yield from _flat(each, f"{key}.{step}" if key else str(step))


def _plain(value: Any) -> JSON:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Enum):
        return _plain(value.value)
    if hasattr(value, "items"):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _probe_files(plan: PipelinePlan) -> list[str]:
    probe = plan.manifest.probe
    hints = (hint.file for hint in probe.ports.values() if isinstance(hint, FromFile))
    return sorted({*probe.inputs, *probe.inputs.values(), *hints}) if plan.probe else []


def _digest_or_missing(path: Path, digest: Callable[[Path], str]) -> str:
    try:
        return digest(path)
    except OSError as error:
        return f"missing: {error.strerror}"


# --- the tool chain ------------------------------------------------------------------------------------------------


def leapp_digest(digest: Callable[[Path], str]) -> str:
    """Of this package's files: an unreleased LEAPP changes without another version."""
    folder = os.path.dirname(leapp.__file__)  # noqa: PTH120
    found: dict[str, JSON] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = f"{place}/{name}"
            found[path[len(folder) :]] = digest(Path(path))
    return sha256(canonical_json(found))


def _processor() -> str:
    """What the first processor is and can do: libraries choose their kernels by it, and those round differently."""
    try:
        with open("/proc/cpuinfo", "rb") as file:  # noqa: PTH123
            lines = file.read(_CPU_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    model = found.get("model name") or found.get("CPU part", "unknown")
    return f"{model}, {sha256(canonical_json([found.get(name, '') for name in _CPU_LINES]))[:12]}"


def _first_line(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").partition("\n")[0]
    except OSError:
        return NONE


def _gpus() -> str:
    found = [_first_line(path) for path in _gpu_files()]
    return "; ".join(" ".join(line.split()) for line in found) or NONE


def gpu_models() -> str:
    """The GPUs by their models, with nothing that tells one from its like."""
    return "; ".join(_first_line(path).partition(":")[2].strip() for path in _gpu_files()) or NONE


def _gpu_files() -> list[Path]:
    return sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))


def _site_folders() -> list[str]:
    known = [*site.getsitepackages(), site.getusersitepackages()]
    return sorted({os.path.realpath(each) for each in (*known, *sys.path) if each in known and os.path.isdir(each)})  # noqa: PTH112


def _packages(folder: str, digest: Callable[[Path], str], root: Path) -> dict[str, str]:
    """Installed distributions by the names of their metadata, of which no file is opened, and single modules."""
    facts = {
        f"package {name}": f"{version}{package_source(info, name, digest, root)}"
        for info, name, version in distributions(folder)
    }
    for entry in os.scandir(folder):
        if entry.name.endswith(_HIDDEN_CODE) or entry.name in _CUSTOM:
            facts[f"start-up file {entry.name}"] = _without_root(entry.path, root)
        elif entry.name.endswith(_LOOSE_CODE) and entry.is_file():
            # Of no distribution, perhaps: somebody put it there by hand.
            facts[f"module {entry.name}"] = _without_root(entry.path, root)
    return facts


def distributions(folder: str) -> Iterator[tuple[str, str, str]]:
    """Those of one folder: path of the metadata, name as in that path, version."""
    for entry in os.scandir(folder):
        stem, dot, kind = entry.name.rpartition(".")
        if dot and kind in {"dist-info", "egg-info"}:
            name, _, version = stem.partition("-")
            yield entry.path, name, version or "unknown"


def _without_root(path: str, root: Path) -> str:
    """Digest of a file, small as those are that run when Python starts; where the project lies makes no difference."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return sha256(data.replace(os.fsencode(root), b".").replace(os.fsencode(Path(leapp.__file__).parent.parent), b"."))


def package_source(info: str, name: str, digest: Callable[[Path], str], root: Path) -> str:
    """What a distribution is beside its version, where it did not come from an index; empty where it did.

    Args:
        info: path of its metadata.
        name: as in that path.
        digest: of a file.
        root: the project.
    """
    try:
        text = Path(info, "direct_url.json").read_text("utf-8")
        place = _editable(json.loads(text))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError, AttributeError):
        return ", of unknown origin"
    if place is None:
        return f", {_record(info, text)[:12]}"
    if name == OWN or place == root:
        return ", editable"
    # Its Python files are seen when they are read. Libraries outside the project are not, so they count here.
    libraries = sorted(path for path in place.rglob("*.so*") if path.is_file())
    found: dict[str, JSON] = {
        path.relative_to(place).as_posix(): _digest_or_missing(path, digest) for path in libraries
    }
    return f", editable, {sha256(canonical_json(found))[:12]}" if found else ", editable"


def editable_place(info: str) -> Path | None:
    """The folder that an editable distribution is used from; None for all others."""
    try:
        return _editable(json.loads(Path(info, "direct_url.json").read_bytes()))
    except (OSError, ValueError, AttributeError):
        return None


def _editable(origin: Any) -> Path | None:
    folder = origin.get("dir_info") or {}
    return Path(str(origin.get("url", "")).removeprefix("file://")) if folder.get("editable") else None


def recorded_files(info: str) -> Iterator[str]:
    """Paths of the files that a distribution installed, relative to the folder that it lies in."""
    # A path with a comma is quoted, and nothing that can be loaded is called so.
    return (line.partition(",")[0] for line in _record_lines(info))


def _record_lines(info: str) -> list[str]:
    try:
        return Path(info, "RECORD").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return []


def _record(info: str, origin: str) -> str:
    """Digest of the files that a distribution installed, without what differs from one environment to another."""
    kept = [
        line
        for line in _record_lines(info)
        if not line.startswith("../") and ".dist-info/" not in line and "__pycache__" not in line
    ]
    return sha256(canonical_json([origin if not kept else "", *sorted(kept)]))
