"""One way to turn values into bytes and bytes into digests. Standard library only."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from leapp._spec import JSON

CHUNK_SIZE_BYTES = 1 << 20


def canonical_json(value: JSON) -> bytes:
    """Sorted keys, no spaces, UTF-8, one newline at the end. Raises ValueError on NaN and infinities."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode() + b"\n"


def readable_json(value: JSON) -> bytes:
    """As canonical as ``canonical_json``, with two-space indents, for files that people open."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def sha256(data: bytes | memoryview) -> str:
    """Lower-case hex digest of ``data``."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Lower-case hex digest of a file's bytes, read in chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def md5_file(path: Path) -> str:
    """MD5 of a file, for old readers of the runtime file; never used as a safeguard."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
