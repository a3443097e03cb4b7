"""Canonical bytes of a TorchScript file: what follows from the process that wrote it is taken out.

Dropped: ``*.debug_pkl`` (files, lines and call stacks), ``.data/serialization_id`` (a digest of all the rest) and kept
example inputs. Renumbered: the ``___torch_mangle_N`` with which TorchScript keeps the names of classes apart; N counts
what the process has compiled before.
"""

from __future__ import annotations

import pickletools
import re
import struct
from typing import TYPE_CHECKING, Final

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError
from leapp.export._archive import READ_ERRORS, Member, ReadArchive, natural, replaced, write_archive

if TYPE_CHECKING:
    from pathlib import Path

_MANGLED: Final = re.compile(r"___torch_mangle_([0-9]+)")
_FINAL: Final = re.compile(r"  \S.* : Final\[.*\] = ")


def canonicalise(path: Path) -> None:
    """Rewrite a TorchScript file in place, so that its bytes follow from the model alone.

    A second run changes nothing. Raises ArtifactLoadError for what is no TorchScript file or is damaged; it is left
    as it was then.
    """
    try:
        with ReadArchive(path) as archive:
            members = _canonical(archive)
            with replaced(path) as file:
                write_archive(file, members)
    except READ_ERRORS as error:
        raise ArtifactLoadError(path=str(path), format=ExportFormat.TORCHSCRIPT.value, why=str(error)) from error


def _canonical(archive: ReadArchive) -> list[Member]:
    names = [name for name in archive.names() if not _is_dropped(name)]
    missing = {"data.pkl", "constants.pkl", "version"} - set(names)
    if missing:
        raise ValueError(f"it holds no {min(missing)}")
    rename = _Renumbering()
    pickles = {name: archive.read(name) for name in names if name.endswith(".pkl") and "/" not in name}
    code = {name: archive.read(name).decode() for name in names if _is_code(name)}
    # The order in which numbers are met: from the module down to what it is made of.
    for name in sorted(pickles, key=lambda each: (each != "data.pkl", each)):
        pickles[name] = _rewrite_pickle(pickles[name], rename)
    _walk(code, rename)
    members = []
    for name in names:
        if name in pickles:
            members.append(Member(name, pickles[name]))
        elif name in code:
            members.append(Member(rename(name), _sort_finals(rename(code[name])).encode()))
        else:
            members.append(archive.member(name))
    return members


def _is_dropped(name: str) -> bool:
    return (
        name.endswith(".debug_pkl")
        or name in (".data/serialization_id", "traced_inputs.pkl")
        or name.startswith("traced_inputs/")
    )


def _is_code(name: str) -> bool:
    return name.startswith("code/") and name.endswith(".py")


class _Renumbering:
    """Gives each mangled name a number in the order in which they are met."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        return _MANGLED.sub(lambda match: f"___torch_mangle_{self._number(match[1])}", text)

    def _number(self, old: str) -> int:
        return self.numbers.setdefault(old, len(self.numbers))


def _walk(code: dict[str, str], rename: _Renumbering) -> None:
    """Meet all numbers, following references from members already met; the rest follow in natural order."""
    pending = dict(sorted(code.items(), key=lambda item: (_MANGLED.sub("", item[0]), natural(item[0]))))
    while pending:
        known = [name for name in pending if all(number in rename.numbers for number in _MANGLED.findall(name))]
        name = min(known, key=lambda each: natural(rename(each))) if known else next(iter(pending))
        rename(name)
        rename(pending.pop(name))


def _sort_finals(code: str) -> str:
    """Sort the declared constants of each class: TorchScript prints them in the order of a hash table."""
    lines = code.split("\n")
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and _FINAL.match(lines[end]):
            end += 1
        lines[start:end] = sorted(lines[start:end])
        start = max(end, start + 1)
    return "\n".join(lines)


def _rewrite_pickle(data: bytes, rename: _Renumbering) -> bytes:
    """Rename inside a pickle's strings and global names. Nothing is executed."""
    parts: list[bytes] = []
    operations = list(pickletools.genops(data))
    ends = [position or 0 for _, _, position in operations[1:]] + [len(data)]
    for (operation, argument, position), end in zip(operations, ends, strict=True):
        raw = data[position:end]
        if isinstance(argument, str) and _MANGLED.search(argument):
            raw = _string(operation.name, rename(argument))
        if operation.name != "FRAME":  # an announced length that nobody needs
            parts.append(raw)
    return b"".join(parts)


def _string(operation: str, text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    if operation == "GLOBAL":
        module, _, name = text.partition(" ")
        return f"c{module}\n{name}\n".encode()
    if operation in ("BINUNICODE", "SHORT_BINUNICODE"):
        return b"X" + struct.pack("<I", len(encoded)) + encoded
    raise ValueError(f"a pickle names a class by the operation {operation}")
