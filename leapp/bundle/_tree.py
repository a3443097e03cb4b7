"""The files below a folder: names that may stand in a bundle, what is there, and digests of it."""

from __future__ import annotations

import hashlib
import os
import stat
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leapp._canonical import CHUNK_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BUNDLE_FILE: Final = "bundle.json"
EVIDENCE_FOLDER: Final = "evidence"
EVIDENCE_INDEX: Final = "evidence/index.json"
LOG_FILE: Final = "log.txt"

_MEDIA_TYPES: Final[Mapping[str, str]] = {
    "json": "application/json",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "toml": "application/toml",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "png": "image/png",
    "svg": "image/svg+xml",
    "zip": "application/zip",
    # No model format has a registered type; `x-` says so, `+zip` says what such a file is to everyone else.
    "onnx": "application/x-onnx",
    "pt": "application/x-torchscript+zip",
    "pt2": "application/x-torch-export+zip",
    "safetensors": "application/x-safetensors",
}


def media_type(path: str) -> str:
    """Media type of a bundle path by its suffix; bytes of unknown meaning where the table has none."""
    return _MEDIA_TYPES.get(path.rpartition("/")[2].rpartition(".")[2].lower(), "application/octet-stream")


def path_problem(path: str) -> str | None:
    """Why ``path`` cannot name a file of a bundle, or None. Such a path is relative, POSIX, and stays inside."""
    if path.startswith("/"):
        return "it is absolute"
    if "\\" in path or "\0" in path:
        return "it holds a backslash or NUL"
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return "it holds an empty part, '.' or '..'"
    return text_problem(path)


def name_problem(name: str) -> str | None:
    """Why ``name`` cannot be one part of a bundle path, or None."""
    return "it holds '/'" if "/" in name else path_problem(name)


def text_problem(text: str) -> str | None:
    """Why ``text`` cannot be stored as UTF-8, or None."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it is not valid Unicode text"
    return None


def is_evidence(path: str, name: str) -> bool:
    """Whether a file of the bundle called ``name`` says something of one build, not of the model."""
    return path.startswith(f"{EVIDENCE_FOLDER}/") or path in {LOG_FILE, f"{name}.png"}


def folded(path: str) -> str:
    """The form in which file systems that ignore case and Unicode composition compare two paths."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


@dataclass(frozen=True, slots=True)
class Tree:
    """What lies below a folder, as sorted POSIX paths relative to it."""

    files: Mapping[str, int]
    """Plain files and their sizes in bytes."""
    folders: tuple[str, ...]
    """Parents before children."""
    others: Mapping[str, str]
    """Everything else, and what it is: links, pipes, devices. Links are never followed."""


def scan(folder: Path) -> Tree:
    """List all that lies below ``folder``, following no link."""
    files: dict[str, int] = {}
    folders: list[str] = []
    others: dict[str, str] = {}
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                path = prefix + entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    files[path] = status.st_size
                elif stat.S_ISDIR(status.st_mode):
                    folders.append(path)
                    pending.append(f"{path}/")
                else:
                    others[path] = kind_of(status.st_mode)
    return Tree(dict(sorted(files.items())), tuple(sorted(folders)), dict(sorted(others.items())))


def kind_of(mode: int) -> str:
    """What a file is, in words, from its ``st_mode``."""
    for test, words in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return words
    return "a device"


def read_plain(path: Path) -> Iterator[bytes]:
    """The bytes of a plain file in chunks. Raises OSError for a link: nothing outside a bundle is ever read."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as file:  # noqa: PTH123  # takes a descriptor
        while chunk := file.read(CHUNK_SIZE_BYTES):
            yield chunk


def size_and_sha256(path: Path) -> tuple[int, str]:
    """Size in bytes and digest of a plain file, taken in one pass over its bytes."""
    digest, size_bytes = hashlib.sha256(), 0
    for chunk in read_plain(path):
        digest.update(chunk)
        size_bytes += len(chunk)
    return size_bytes, digest.hexdigest()
