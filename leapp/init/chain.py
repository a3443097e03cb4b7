"""The tool chain that a written noxfile installs: the versions that run here, unless the project says otherwise."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

REQUIREMENTS: Final = "requirements.txt"
CONSTRAINTS: Final = "constraints.txt"
_TORCH_INDEX: Final = "https://download.pytorch.org/whl/"
_BUILDS: Final = re.compile(r"cpu.*|cu\d+|rocm[\d.]+|xpu")
"""Parts of a version that name builds of torch which lie on its index."""
_MOST_FILES: Final = 20
"""Files of requirements that name each other; more would be a circle."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the project itself asks of a package."""

    requirement: Requirement
    file: str
    """Where that stands, relative to the project."""

    def settles(self, version: str) -> bool:
        """Whether nothing is left to pin, or a pin to ``version`` could not be met beside it."""
        specifiers = self.requirement.specifier
        exact = any(each.operator in {"==", "==="} and "*" not in each.version for each in specifiers)
        return exact or self.requirement.url is not None or not self.allows(version)

    def allows(self, version: str) -> bool:
        """Whether what runs here is what is asked for, as far as versions tell."""
        return self.requirement.specifier.contains(version, prereleases=True)


@dataclass(frozen=True, slots=True)
class Chain:
    """What the noxfile says of it."""

    torch: tuple[str, ...]
    """For pip, which asks the index of torch for nothing else; empty where the project has a place of its own."""
    rest: tuple[str, ...]
    """Lines of a Python list: pins, and comments where there is none."""
    notes: tuple[str, ...]
    """What a person should know."""


def tool_chain(
    versions: Mapping[str, str], wishes: Mapping[str, Wish], *, own_index: bool = False, wanted: Sequence[str] = ()
) -> Chain:
    """Pin what runs here, and leave to the project what it pins itself.

    Args:
        versions: of the packages that take part in the bytes of a bundle, in full: ``2.13.0+cpu``.
        wishes: of the project, by package.
        own_index: whether the project names an index of torch.
        wanted: all packages that should be pinned; those without a version are told.
    """
    rest, notes = [], []
    torch = "torch"
    for name, version in versions.items():
        wish = wishes.get(name)
        public, _, build = version.partition("+")
        if wish is not None and wish.settles(version):
            rest.append(f"    # {name}: as {wish.file} has it")
            if name == "torch":
                torch = f"torch{wish.requirement.specifier}"
            if not wish.allows(version):
                notes.append(
                    f"{wish.file} asks for {wish.requirement}, and {version} runs here; nox installs the former."
                )
        elif build and not _BUILDS.fullmatch(build):
            rest.append(f"    # {name}: {version} is a build that no index has")
            notes.append(f"{name} {version} is on no index: `nox --no-venv` takes what is there, and installs nothing.")
        elif name == "torch":
            torch = f"torch=={public}"
        else:
            rest.append(f'    "{name}=={public}",')
    if missing := [name for name in wanted if name not in versions and name not in wishes]:
        names = ", ".join(missing)
        rest.append(f"    # not pinned, since not installed when this was written: {names}")
        notes.append(f"Not installed here, so nox installs whatever is newest: {names}. `leapp doctor` says how to")
        notes[-1] += " get them; `leapp init --force noxfile.py` then pins them."
    wish = wishes.get("torch")
    if own_index or (wish is not None and (wish.requirement.url or "+" in str(wish.requirement.specifier))):
        return Chain((), tuple(rest), tuple(notes))
    return Chain((torch, "--extra-index-url", _index_of(versions.get("torch", ""))), tuple(rest), tuple(notes))


def _index_of(version: str) -> str:
    """Where builds of torch lie that need no libraries of graphics cards."""
    return f"{_TORCH_INDEX}{'nightly/' if '.dev' in version else ''}cpu"


# --- the project's own --------------------------------------------------------------------------------------------


def project_install(root: Path) -> list[str]:
    """What pip has to be told for the entries to find what they import."""
    project = _project_file(root)
    if project.get("project", {}).get("name") or "poetry" in project.get("tool", {}) or (root / "setup.py").is_file():
        found = ["-e", "."]
    else:
        found = ["-r", REQUIREMENTS] if (root / REQUIREMENTS).is_file() else []
    return [*found, "-c", CONSTRAINTS] if (root / CONSTRAINTS).is_file() else found


def installed_by(root: Path) -> list[str]:
    """The files that decide what ``project_install`` installs, relative to the project."""
    found = [name for name in project_install(root) if not name.startswith("-") and name != "."]
    if "-e" in project_install(root):
        found = [name for name in ("pyproject.toml", "setup.py") if (root / name).is_file()] + found
    return found


def wishes_of(root: Path) -> tuple[dict[str, Wish], bool]:
    """What the files that ``project_install`` names ask for, by package, and whether they name an index of torch."""
    install = project_install(root)
    found: dict[str, Wish] = {}
    own_index = False
    if install[:1] == ["-e"]:
        for text in _project_file(root).get("project", {}).get("dependencies", ()):
            _add(found, str(text), "pyproject.toml")
    for option, name in zip(install[::2], install[1::2], strict=True):
        for file, line in _lines(root, name) if option in {"-r", "-c"} else ():
            own_index = own_index or _TORCH_INDEX in line
            _add(found, line, file)
    return found, own_index


def _add(found: dict[str, Wish], text: str, file: str) -> None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:  # an option, a path, an URL without a name
        return
    if requirement.marker is not None and not requirement.marker.evaluate():
        return
    name = canonicalize_name(requirement.name)
    if name in found:
        requirement.specifier &= found[name].requirement.specifier
        requirement.url = requirement.url or found[name].requirement.url
    found[name] = Wish(requirement, file)


def _lines(root: Path, name: str) -> Iterator[tuple[str, str]]:
    """The lines of a file of requirements and of those that it includes, each with its file."""
    pending = [name]
    seen: set[str] = set()
    while pending and len(seen) < _MOST_FILES:
        file = pending.pop(0)
        if file in seen:
            continue
        seen.add(file)
        try:
            text = (root / file).read_text("utf-8")
        except (OSError, ValueError):
            continue
        for line in text.replace("\\\n", " ").splitlines():
            bare = re.sub(r"(^|\s)#.*", "", line).partition(" --hash")[0].strip()
            included = re.fullmatch(r"(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", bare)
            if included is not None:
                pending.append(os.path.normpath(Path(file).parent / included[1]))
            elif bare:
                yield file, bare


def _project_file(root: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
