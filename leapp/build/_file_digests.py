"""Digests of files, taken again only when a file's size, times or inode say that it may have changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA: Final = 1
_YOUNG_NS: Final = 2_000_000_000
"""A file that changed so recently may change once more within one tick of the clock: its digest is not kept."""
_MOST: Final = 50_000
"""Above this, only files that were asked for now are kept."""


class FileDigests:
    """SHA-256 by path, kept from process to process in one JSON file. May be used from any thread.

    The time of a file's last change of status counts as well: unlike the others it cannot be set back.

    Args:
        kept: where they are kept. What is not readable there counts as nothing.
    """

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._known: dict[str, list[int | str]] | None = None
        self._asked: set[str] = set()
        self._changed = False

    def digest(self, path: str | os.PathLike[str]) -> str:
        """Digest of a file's bytes. Raises OSError, also for what is no file."""
        name = os.path.abspath(path)  # noqa: PTH100  # text is the key; links are followed by the system
        status = os.stat(name)  # noqa: PTH116
        stamp = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]
        with self._lock:
            known = self._load().get(name)
            self._asked.add(name)
        if known is not None and known[:-1] == stamp:
            return str(known[-1])
        with open(name, "rb") as file:  # noqa: PTH123
            found = hashlib.file_digest(file, "sha256").hexdigest()
            after = os.fstat(file.fileno())
        settled = max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - _YOUNG_NS
        if settled and (after.st_mtime_ns, after.st_ctime_ns) == (status.st_mtime_ns, status.st_ctime_ns):
            with self._lock:
                self._load()[name] = [*stamp, found]
                self._changed = True
        return found

    def save(self) -> None:
        """Keep what is new for the next process; of two at once the later one stays. Raises OSError."""
        with self._lock:
            if not self._changed:
                return
            known = self._load()
            if len(known) > _MOST:
                known = {name: known[name] for name in self._asked if name in known}
            text = json.dumps({"schema": _SCHEMA, "files": known}, separators=(",", ":"))
            self._changed = False
        write_whole(self._kept, text.encode("utf-8", "surrogateescape"))

    def _load(self) -> dict[str, list[int | str]]:
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                record = json.loads(self._kept.read_bytes().decode("utf-8", "surrogateescape"))
                if record["schema"] == _SCHEMA:
                    self._known = dict(record["files"])
        return self._known


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step: a reader finds the old one or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".new-{os.getpid()}-{secrets.token_hex(8)}")
    try:
        scratch.write_bytes(data)
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
