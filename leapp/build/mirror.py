"""A copy of a project under another path, for one session: which files it holds, and what is changed in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leapp.manifest.load import ROOT_MARKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leapp.manifest.model import Manifest

SHIFT_LINES: Final = 7
"""So many comment lines are put on top of each source file."""
_COMMENT: Final = b"# Put here to shift the lines of this file.\n"
_BOM: Final = b"\xef\xbb\xbf"
_COOKIE: Final = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+")  # PEP 263
_BLANK: Final = re.compile(rb"^[ \t\f]*(?:#.*)?$")
_NOT_PROJECT: Final = frozenset(
    ".git .hg .svn .nox .tox .venv venv node_modules __pycache__ dist .leapp-cache"
    " .mypy_cache .pytest_cache .ruff_cache".split()
)
"""Folders that hold what tools made, not what a project is made of."""


class Kind(StrEnum):
    """How the files of a mirror were found."""

    RECORDED = "recorded"
    """The first session was seen to read them."""
    GIT = "git"
    """Git knows them: tracked, or untracked and not ignored. Declared inputs too."""
    WHOLE = "whole"
    """All that lies below the root but folders that tools make. Declared inputs too."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a mirror holds."""

    kind: Kind
    files: tuple[Path, ...]
    """Absolute paths, as the session named them; also outside the root."""
    folders: tuple[Path, ...] = ()
    """Folders that are to be there although nothing in them is."""
    links: tuple[tuple[Path, str], ...] = ()
    """Symbolic links of the project, each with its own text; what they lead to is among the files."""


def project_files(manifest: Manifest, *, without: Iterable[Path] = ()) -> Inputs:
    """Files that a project is made of, for sessions whose reads are not known, and its declared inputs.

    Args:
        manifest: its root is the project.
        without: folders that are left out, such as the build's own output.
    """
    declared = manifest.input_files()
    known = _git_files(manifest.root)
    kind = Kind.WHOLE if known is None else Kind.GIT
    left_out = tuple(without)
    found = {path for path in (_walk(manifest.root) if known is None else known) if not _below(path, left_out)}
    return Inputs(kind, tuple(sorted(found | set(declared) | {manifest.path})))


def _git_files(root: Path) -> list[Path] | None:
    """What git knows below a folder; None where there is no git, or it does not keep this folder."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    names = sorted({os.fsdecode(name) for name in answer.stdout.split(b"\0") if name})
    if not names:
        return None  # the whole folder is ignored by a repository further up
    found: list[Path] = []
    for name in names:
        path = root / name
        found += _walk(path) if path.is_dir() else [path]  # a submodule stands there as a folder
    return found


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [
            name for name in folders if name not in _NOT_PROJECT and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(folder, name) for name in names)


def _below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@dataclass(frozen=True, slots=True)
class Mirror:
    """A project and what lies around it, copied."""

    original: Path
    """The project's root."""
    root: Path
    """The copy of it, under another name."""
    base: Path
    """The deepest folder that holds the project and all inputs outside it."""
    base_copy: Path
    """What stands for it."""

    def back(self, text: str) -> str:
        """A text in which paths of the copy are those of the project: relative inside, absolute outside it."""
        text = text.replace(f"{self.root}{os.sep}", "").replace(str(self.root), str(self.original))
        return text.replace(str(self.base_copy), str(self.base).rstrip(os.sep))


def make_mirror(root: Path, inputs: Inputs, place: Path, *, shift: bool = False) -> Mirror:
    """Copy the inputs of a session to another folder, each where it lies relative to the project.

    Copies, never links to the project: nothing that the session writes reaches it. Its own links stay links. Times are
    not kept, as no checkout keeps them. What has gone meanwhile is left out; whoever needs it will say so. The files
    that mark a project's root are always there (``.git`` as an empty folder): programs look for them without opening
    them.

    Args:
        root: the project.
        inputs: what is copied.
        place: an empty folder.
        shift: put comment lines on top of the project's Python files.
    """
    outside = [path for path in (*inputs.files, *inputs.folders) if not path.is_relative_to(root)]
    base = Path(os.path.commonpath([root.parent, *(path.parent for path in outside)]))
    above = root.parent.relative_to(base)
    name = "another-folder" if root.name != "another-folder" else "one-more-folder"
    # The project's own name changes; folders between it and its outer inputs keep theirs: `../` must lead there.
    mirror = Mirror(root, place / above / name, base, place)
    mirror.root.mkdir(parents=True)
    for mark in ROOT_MARKS:
        if (root / mark).is_dir():
            (mirror.root / mark).mkdir()
        elif (root / mark).is_file():
            _copy(root / mark, mirror.root / mark)
    for folder in inputs.folders:
        _place_of(folder, mirror).mkdir(parents=True, exist_ok=True)
    for link, target in inputs.links:
        _link(link, target, mirror)
    # Backwards: a folder that lists its files as they came lists them in another order.
    for path in sorted(set(inputs.files), reverse=True):
        if path.is_file():
            copy = _place_of(path, mirror)
            _copy(path, copy)
            if shift and path.suffix == ".py" and path.is_relative_to(root):
                copy.write_bytes(shifted(copy.read_bytes()))
    return mirror


def _place_of(path: Path, mirror: Mirror) -> Path:
    if path.is_relative_to(mirror.original):
        return mirror.root / path.relative_to(mirror.original)
    return mirror.base_copy / path.relative_to(mirror.base)


def _link(link: Path, target: str, mirror: Mirror) -> None:
    """A link of the project, leading into the copy."""
    copy = _place_of(link, mirror)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(copy):
        inside = Path(target).is_relative_to(mirror.original)
        copy.symlink_to(_place_of(Path(target), mirror) if inside else target)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)
    target.chmod(target.stat().st_mode | 0o200)  # lines are shifted in it, and the folder is removed later


def shifted(source: bytes) -> bytes:
    """A Python source with comment lines on top: the same program, each line further down.

    A byte order mark, ``#!`` and the line that declares the encoding stay where they must be.
    """
    mark = _BOM if source.startswith(_BOM) else b""
    lines = source[len(mark) :].splitlines(keepends=True)
    keep = 1 if lines and lines[0].startswith(b"#!") else 0
    for index, line in enumerate(lines[:2]):
        if _COOKIE.match(line):
            keep = index + 1
            break
        if not _BLANK.match(line.rstrip(b"\r\n")):
            break
    head = b"".join(lines[:keep])
    if head and not head.endswith((b"\n", b"\r")):
        head += b"\n"
    return mark + head + _COMMENT * SHIFT_LINES + b"".join(lines[keep:])
