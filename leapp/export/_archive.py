"""Archives as torch writes them, written so that the same members give the same bytes.

Format: a ZIP file with one root folder. torch maps members into memory, so each one's data begins at a multiple of 64
bytes; the padding is an extra field ``FB`` of the local header. What torch's own writer leaves open is fixed here:
root ``archive/``, order by name, no compression, no data descriptors, date 1980-01-01, no attributes of the host.
Members beyond 4 GiB and archives beyond 4 GiB or 65,534 members use the ZIP64 fields. The standard library suffices,
except to blank what no tensor shows.
"""

from __future__ import annotations

import os
import shutil
import struct
import zipfile
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Self

from leapp._canonical import CHUNK_SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

ROOT: Final = "archive/"
ALIGNMENT_BYTES: Final = 64

_LIMIT_32: Final = 0xFFFFFFFF
_LIMIT_16: Final = 0xFFFF
_VERSION: Final = 20
_VERSION_ZIP64: Final = 45
_UTF8_NAME: Final = 0x0800
_ENCRYPTED: Final = 0x0001
_DATE: Final = (0 << 9) | (1 << 5) | 1  # 1980-01-01; the time of day is 0

_LOCAL: Final = struct.Struct("<4s5H3I2H")
_CENTRAL: Final = struct.Struct("<4s6H3I5H2I")
_END_64: Final = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64: Final = struct.Struct("<4sIQI")
_END: Final = struct.Struct("<4s4H2IH")
_EXTRA: Final = struct.Struct("<2sH")


class DamagedArchiveError(ValueError):
    """Not an archive of torch's, or a broken one. Callers turn it into an error that names file and format."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A member taken over unread from the archive that is rewritten."""

    name: str


class Archive:
    """An archive opened for reading; names are without the root folder. Members are read one at a time.

    Raises: DamagedArchiveError for anything but a ZIP file with one root folder and distinct, relative names.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError, struct.error, OverflowError, EOFError, OSError) as error:
            raise DamagedArchiveError(f"it is no archive ({error})") from error
        self._members: dict[str, zipfile.ZipInfo] = {}
        roots = set()
        for info in self._zip.infolist():
            root, slash, name = info.filename.partition("/")
            roots.add(root)
            if not slash or len(roots) > 1:
                raise DamagedArchiveError("its members do not lie in one folder")
            if not name or name.startswith("/") or ".." in name.split("/"):
                raise DamagedArchiveError(f"it has a member {info.filename!r}")
            if name in self._members:
                raise DamagedArchiveError(f"it has two members {info.filename!r}")
            if info.flag_bits & _ENCRYPTED:
                raise DamagedArchiveError(f"its member {info.filename!r} is encrypted")
            self._members[name] = info

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """The archive at ``path``, closed afterwards."""
        with path.open("rb") as file:
            yield cls(file)

    @property
    def names(self) -> list[str]:
        """All members, in the order of the file."""
        return list(self._members)

    def size_bytes(self, name: str) -> int:
        """Size of a member's content."""
        return self._members[name].file_size

    def read(self, name: str) -> bytes:
        """The whole content of a member."""
        # Joining the pieces at once would join the last one many times over: they share their memory.
        content = b"".join(map(bytes, self.chunks(name)))
        self.verify(name, zlib.crc32(content))
        return content

    def verify(self, name: str, checksum: int) -> None:
        """Raise unless ``checksum`` is the one that the archive tells of a member's content."""
        info = self._members[name]
        if checksum != info.CRC:
            raise DamagedArchiveError(f"the checksum of its member {info.filename!r} is wrong")

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        """A member's content in pieces, each valid until the next; the caller verifies the checksum."""
        info = self._members[name]
        try:
            if info.compress_type == zipfile.ZIP_STORED:
                yield from self._stored(info)
            else:
                with self._zip.open(info) as stream:
                    while piece := stream.read(CHUNK_SIZE_BYTES):
                        yield piece
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, struct.error, OSError) as error:
            raise DamagedArchiveError(f"its member {info.filename!r} is damaged ({error})") from error

    def _stored(self, info: zipfile.ZipInfo) -> Iterator[memoryview]:
        """As zipfile would give it, without its copies: a third of the time for large members."""
        self._file.seek(info.header_offset)
        header = self._file.read(_LOCAL.size)
        if len(header) != _LOCAL.size or header[:4] != b"PK\x03\x04":
            raise zipfile.BadZipFile("its header is missing")
        name_size, extra_size = struct.unpack_from("<2H", header, 26)
        self._file.seek(name_size + extra_size, os.SEEK_CUR)
        left = info.file_size
        buffer = memoryview(bytearray(min(CHUNK_SIZE_BYTES, max(left, 1))))
        while left:
            count = self._file.readinto(buffer[: min(left, len(buffer))])  # type: ignore[attr-defined]
            if not count:
                raise zipfile.BadZipFile("it ends too early")
            piece = buffer[:count]
            left -= count
            yield piece


@dataclass(frozen=True, slots=True)
class View:
    """What one tensor shows of a storage; offset, sizes and strides count elements."""

    item_bytes: int
    offset: int
    sizes: Sequence[int]
    strides: Sequence[int]

    def covers(self, size_bytes: int) -> bool:
        """Whether it is plainly all of a storage of that size."""
        expected = 1
        for size, stride in sorted(zip(self.sizes, self.strides, strict=True), key=lambda each: (each[1], each[0])):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return self.offset == 0 and expected * self.item_bytes == size_bytes


def blank_hidden(content: bytes, views: Sequence[View]) -> bytes:
    """``content`` of a storage with zeros wherever no view shows it: nobody wrote what is there.

    Raises: DamagedArchiveError for a view beyond the storage.
    """
    import numpy as np

    source, target = np.frombuffer(content, np.uint8), np.zeros(len(content), np.uint8)
    for view in views:
        item = view.item_bytes
        if 0 in view.sizes:
            continue
        ends = [(size - 1) * stride for size, stride in zip(view.sizes, view.strides, strict=True)]
        if min(view.offset, *view.strides, 0) < 0 or (view.offset + sum(ends) + 1) * item > len(content):
            raise DamagedArchiveError("a tensor lies beyond its storage")
        shape, strides = (*view.sizes, item), (*(each * item for each in view.strides), 1)
        old, new = (
            np.lib.stride_tricks.as_strided(each[view.offset * item :], shape, strides) for each in (source, target)
        )
        new[...] = old
    return target.tobytes()


def rewrite(path: Path, archive: Archive, members: Mapping[str, bytes | Kept]) -> None:
    """Put ``members`` in the place of the archive at ``path``, from which ``archive`` was opened.

    The file appears whole or not at all, with the mode of the old one; at most one chunk of a kept member is held in
    memory.
    """
    scratch = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with scratch.open("wb") as target:
            _write(target, archive, members)
        shutil.copymode(path, scratch)
        scratch.replace(path)
    finally:
        with suppress(FileNotFoundError):
            scratch.unlink()


def write(target: IO[bytes], members: Mapping[str, bytes]) -> None:
    """Write an archive of contents that are at hand; ``target`` is seekable and empty."""
    _write(target, None, members)


@dataclass(frozen=True, slots=True)
class _Written:
    name: bytes
    size: int
    checksum: int
    offset: int


def _write(target: IO[bytes], archive: Archive | None, members: Mapping[str, bytes | Kept]) -> None:
    entries: list[_Written] = []
    offset = 0
    for name, content in sorted(members.items()):
        encoded = (ROOT + name).encode()
        if isinstance(content, Kept):
            assert archive is not None
            size = archive.size_bytes(content.name)
            pieces = archive.chunks(content.name)
        else:
            size, pieces = len(content), iter((content,))
        extra = _local_extra(offset, len(encoded), size)
        begin = offset + _LOCAL.size + len(encoded) + len(extra)
        target.seek(begin)
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
            target.write(piece)
        if isinstance(content, Kept) and archive is not None:
            archive.verify(content.name, checksum)
        entry = _Written(encoded, size, checksum, offset)
        # The checksum is known only now.
        target.seek(offset)
        target.write(_local_header(entry, extra) + encoded + extra)
        entries.append(entry)
        offset = begin + size
    target.seek(offset)
    directory = b"".join(map(_central, entries))
    target.write(directory + _end(len(entries), len(directory), offset))


def _local_extra(offset: int, name_size: int, size: int) -> bytes:
    """ZIP64 sizes where they are needed, then padding up to where the data may begin."""
    sizes = _extra_64(size, size) if size >= _LIMIT_32 else b""
    begin = offset + _LOCAL.size + name_size + len(sizes) + _EXTRA.size
    padding = -begin % ALIGNMENT_BYTES
    return sizes + _EXTRA.pack(b"FB", padding) + b"Z" * padding


def _extra_64(*values: int) -> bytes:
    return _EXTRA.pack(b"\x01\x00", 8 * len(values)) + struct.pack(f"<{len(values)}Q", *values)


def _local_header(entry: _Written, extra: bytes) -> bytes:
    large = entry.size >= _LIMIT_32
    size = _LIMIT_32 if large else entry.size
    version = _VERSION_ZIP64 if large else _VERSION
    sizes = (entry.checksum, size, size, len(entry.name), len(extra))
    return _LOCAL.pack(b"PK\x03\x04", version, _UTF8_NAME, zipfile.ZIP_STORED, 0, _DATE, *sizes)


def _central(entry: _Written) -> bytes:
    large = [entry.size] * 2 if entry.size >= _LIMIT_32 else []
    if entry.offset >= _LIMIT_32:
        large.append(entry.offset)
    extra = _extra_64(*large) if large else b""
    version = _VERSION_ZIP64 if large else _VERSION
    size, offset = min(entry.size, _LIMIT_32), min(entry.offset, _LIMIT_32)
    head = (b"PK\x01\x02", version, version, _UTF8_NAME, zipfile.ZIP_STORED, 0, _DATE, entry.checksum, size, size)
    return _CENTRAL.pack(*head, len(entry.name), len(extra), 0, 0, 0, 0, offset) + entry.name + extra


def _end(count: int, size: int, offset: int) -> bytes:
    tail = b""
    if count >= _LIMIT_16 or size >= _LIMIT_32 or offset >= _LIMIT_32:
        versions = (_VERSION_ZIP64, _VERSION_ZIP64)
        tail = _END_64.pack(b"PK\x06\x06", _END_64.size - 12, *versions, 0, 0, count, count, size, offset)
        tail += _LOCATOR_64.pack(b"PK\x06\x07", 0, offset + size, 1)
    count, size, offset = min(count, _LIMIT_16), min(size, _LIMIT_32), min(offset, _LIMIT_32)
    return tail + _END.pack(b"PK\x05\x06", 0, 0, count, count, size, offset, 0)
