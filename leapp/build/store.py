"""Content by digest: ``objects/ab/abcd...`` below the cache folder, each file written whole, read-only, never changed.

Nothing is trusted: a file is copied out while its digest is taken, and one that is not what its name says is dropped.
Copies, or clones that share blocks where the file system has them; never hard links, through which a published bundle
and the store would change together. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leapp.errors import StoreObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_CHUNK_BYTES: Final = 1 << 20
_OBJECT_MODE: Final = 0o444
_FICLONE: Final = 0x40049409
_NO_CLONE: Final = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
_SCRATCH_PREFIX: Final = ".new-"
_SCRATCH_LIFE_S: Final = 3600.0
"""A file that was not finished for so long was left behind by a process that ended."""
_YOUNG_S: Final = 3600.0
"""Objects of this age may belong to a build that is still at work; they are dropped after all others."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What ``verify`` found."""

    objects: int
    size_bytes: int
    dropped: tuple[str, ...]
    """Digests of the objects that were not what their names say; they are gone now."""


@dataclass(frozen=True, slots=True)
class Freed:
    """What ``gc`` removed, and what stays."""

    objects: int
    size_bytes: int
    kept_objects: int
    kept_bytes: int


class Store:
    """Files by the SHA-256 of their bytes. Any number of processes and threads may use one folder.

    Args:
        root: the cache folder; it is made when something is first put in.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._objects = root / "objects"
        self._damaged: set[str] = set()

    def path(self, digest: str) -> Path:
        """Where an object lies, or would. Raises ValueError for what is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"not a SHA-256 digest: {digest!r}")
        return self._objects / digest[:2] / digest

    def has(self, digest: str) -> bool:
        """Whether an object is there. Its bytes are looked at when they are fetched."""
        return self.path(digest).is_file()

    def was_damaged(self, digest: str) -> bool:
        """Whether an object was found damaged when it was fetched, and was dropped for that."""
        return digest in self._damaged

    def put_file(self, path: Path) -> str:
        """Take a copy of a file, unless its bytes are here; gives their digest. Raises OSError."""
        self._objects.mkdir(parents=True, exist_ok=True)
        scratch = self._objects / f"{_SCRATCH_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            digest = _copy(path, scratch)
            target = self.path(digest)
            if _is_whole(target, scratch.stat().st_size):
                _touch(target)
            else:
                target.parent.mkdir(exist_ok=True)
                scratch.chmod(_OBJECT_MODE)
                scratch.replace(target)  # of two writers at once, both have the same bytes
        finally:
            scratch.unlink(missing_ok=True)
        return digest

    def fetch(self, digest: str, target: Path) -> None:
        """Write an object's bytes to a new file that belongs to the caller alone.

        Raises:
            StoreObjectError: it is not here, or was not what its name says and is gone now; no file is left.
            OSError: the file cannot be written.
        """
        source = self.path(digest)
        try:
            found = _copy(source, target)
        except FileNotFoundError:
            if source.exists():
                raise  # it is the target's folder that is not there
            raise StoreObjectError(digest=digest, folder=self.root, why="it is not there") from None
        if found != digest:
            target.unlink()
            self._damaged.add(digest)
            self._drop(digest)
            raise StoreObjectError(digest=digest, folder=self.root, why=f"its bytes have the digest {found}")
        _touch(source)

    def verify(self) -> StoreReport:
        """Read every object, and drop those that are not what their names say. Raises OSError."""
        dropped: list[str] = []
        count = size_bytes = 0
        for each in self._all():
            try:
                with each.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
                    size = file.tell()
            except FileNotFoundError:  # another process's gc was faster
                continue
            if found == each.name:
                count, size_bytes = count + 1, size_bytes + size
            else:
                self._drop(each.name)
                dropped.append(each.name)
        return StoreReport(count, size_bytes, tuple(sorted(dropped)))

    def size_bytes(self) -> int:
        """All objects together."""
        return sum(status.st_size for _, status in self._statuses())

    def gc(self, max_bytes: int, used: Mapping[str, float] | None = None) -> Freed:
        """Drop objects until the rest takes at most ``max_bytes``, those first that were not used for the longest.

        Args:
            max_bytes: 0 drops all.
            used: when objects were last used, in seconds since 1970, where the caller knows better than their files.
        """
        now = time.time()
        self._remove_scratch(now)
        known = used or {}
        found = [(path, status) for path, status in self._statuses()]
        total, count = sum(status.st_size for _, status in found), len(found)

        def age(each: tuple[Path, os.stat_result]) -> tuple[bool, float]:
            path, status = each
            last = max(known.get(path.name, 0.0), status.st_mtime)
            return now - status.st_ctime < _YOUNG_S and path.name not in known, last

        removed = freed = 0
        for path, status in sorted(found, key=age):
            if total - freed <= max_bytes:
                break
            self._drop(path.name)
            removed, freed = removed + 1, freed + status.st_size
        return Freed(removed, freed, count - removed, total - freed)

    def _all(self) -> Iterator[Path]:
        if self._objects.is_dir():
            yield from (path for path in self._objects.glob("??/*") if _DIGEST.fullmatch(path.name))

    def _statuses(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._all():
            with contextlib.suppress(FileNotFoundError):
                yield path, path.stat()

    def _drop(self, digest: str) -> None:
        # A folder that others own stays as it is: what is wrong in it is noticed again the next time.
        with contextlib.suppress(OSError):
            self.path(digest).unlink()

    def _remove_scratch(self, now: float) -> None:
        for path in self._objects.glob(f"{_SCRATCH_PREFIX}*"):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > _SCRATCH_LIFE_S:
                    path.unlink()


def _is_whole(path: Path, size_bytes: int) -> bool:
    """Whether an object of the right size is there: one that a full disk cut short is written again."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size_bytes


def _copy(source: Path, target: Path) -> str:
    """A file's bytes to a new file, and their digest as they came to lie there. Nothing is left where that fails."""
    with source.open("rb") as read:
        try:
            with target.open("xb") as write:
                copied = _clone(read.fileno(), write.fileno())
                if not copied:
                    digest = _copy_bytes(read.read, write.write)
        except FileExistsError:
            raise
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        if copied:
            with target.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest


def _copy_bytes(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> str:
    digest = hashlib.sha256()
    while chunk := read(_CHUNK_BYTES):
        digest.update(chunk)
        write(chunk)
    return digest.hexdigest()


def _clone(source: int, target: int) -> bool:
    """Share blocks with the source, copied when one of them is written; False where the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
        return False
    return True


def _touch(path: Path) -> None:
    """It was used just now. A store that is only to be read keeps its times."""
    with contextlib.suppress(OSError):
        os.utime(path)
