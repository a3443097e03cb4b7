"""What was found true of bytes before, and need not be found out again: kept in the cache folder, by digest.

Only the digest of a statement is kept, in which the digests of all bytes stand that it speaks of. So a record that is
damaged says nothing, rather than something false, and nothing that a build works with is ever read from here. Standard
library only.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from leapp._canonical import canonical_json, sha256
from leapp.build._file_digests import write_whole

if TYPE_CHECKING:
    from pathlib import Path

_MOST: Final = 10_000
"""Above this, only what was asked for or found out now is kept."""
_LIFE_S: Final = 30 * 86400.0


class Known:
    """Statements that were found true. May be used from any thread.

    Args:
        folder: where records lie.
        by: digest of all that decides whether a statement is true, beside the bytes that it speaks of: LEAPP's own
            source, for one. What another one found is not known to this one. Empty: nothing is known, nor kept.
    """

    def __init__(self, folder: Path, by: str) -> None:
        self._folder, self._by = folder, by
        self._lock = threading.Lock()
        self._found: set[str] | None = None
        self._asked: set[str] = set()
        self._changed = False

    def holds(self, *statement: str) -> bool:
        """Whether this was found true before: what was found, and the digests of the bytes that it is about."""
        with self._lock:
            digest = _digest(statement)
            self._asked.add(digest)
            return digest in self._load()

    def add(self, *statement: str) -> None:
        """It was found true."""
        with self._lock:
            digest = _digest(statement)
            self._load().add(digest)
            self._asked.add(digest)
            self._changed = bool(self._by)

    def save(self) -> None:
        """Keep what is new for the next process; of two at once the later one stays. Raises OSError."""
        with self._lock:
            if self._changed:
                found = self._load()
                kept = found if len(found) <= _MOST else found & self._asked
                write_whole(self._folder / self._by, "".join(f"{each}\n" for each in sorted(kept)).encode())
                self._changed = False

    def remove_old(self) -> None:
        """Remove what was found by a LEAPP that is not in use any more. Raises OSError."""
        for path in self._folder.glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.name != self._by and time.time() - path.stat().st_mtime > _LIFE_S:
                    path.unlink()

    def _load(self) -> set[str]:
        if self._found is None:
            self._found = set()
            with contextlib.suppress(OSError):
                if self._by:
                    self._found = set((self._folder / self._by).read_bytes().decode("ascii", "replace").split())
        return self._found


def _digest(statement: tuple[str, ...]) -> str:
    return sha256(canonical_json(list(statement)))
