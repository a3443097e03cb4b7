"""Canonical bytes of a ``.pt2`` file: what follows from the process that wrote it is taken out.

Dropped: stack traces and other origins of nodes, ``.data/serialization_id`` (a digest of all the rest), and the
example inputs, whose member stays, empty, because torch's reader asks for it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError
from leapp.export._archive import READ_ERRORS, Member, ReadArchive, replaced, write_archive

if TYPE_CHECKING:
    from pathlib import Path

_ORIGINS: Final = ("stack_trace", "from_node", "custom", "torch_fn", "source_fn_stack")
"""Keys of a node's metadata that say where it came from; nothing that runs needs them."""


def canonicalise(path: Path) -> None:
    """Rewrite a ``.pt2`` file in place, so that its bytes follow from the model alone.

    A second run changes nothing. Raises ArtifactLoadError for what is no ``.pt2`` file or is damaged; it is left as it
    was then.
    """
    try:
        with ReadArchive(path) as archive:
            members = _canonical(archive)
            with replaced(path) as file:
                write_archive(file, members)
    except READ_ERRORS as error:
        raise ArtifactLoadError(path=str(path), format=ExportFormat.PT2.value, why=str(error)) from error


def _canonical(archive: ReadArchive) -> list[Member]:
    names = archive.names()
    if "archive_format" not in names or archive.read("archive_format").strip() != b"pt2":
        raise ValueError("it is no pt2 archive")
    members = []
    for name in names:
        if name == ".data/serialization_id":
            continue
        if name.startswith("data/sample_inputs/"):
            members.append(Member(name, b""))
        elif name.startswith("models/") and name.endswith(".json"):
            members.append(Member(name, _model(archive.read(name))))
        elif name.endswith("_config.json"):
            # The order of the keys is the order of the parameters.
            members.append(Member(name, _compact(json.loads(archive.read(name)), sort=False)))
        else:
            members.append(archive.member(name))
    return members


def _model(data: bytes) -> bytes:
    model = json.loads(data)
    pending: list[Any] = [model]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            metadata = value.get("metadata")
            if isinstance(metadata, dict) and "target" in value:
                _strip(metadata)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return _compact(model, sort=True)


def _strip(metadata: dict[str, Any]) -> None:
    for key in _ORIGINS:
        metadata.pop(key, None)
    stack = metadata.get("nn_module_stack")
    if isinstance(stack, str) and stack:
        entries = [entry.partition(",") for entry in stack.split(";")]
        metadata["nn_module_stack"] = ";".join(f"{depth},{rest}" for depth, (_, _, rest) in enumerate(entries))


def _compact(value: Any, *, sort: bool) -> bytes:
    return json.dumps(value, sort_keys=sort, separators=(",", ":")).encode()
