"""Canonical bytes of a ``.pt2`` archive: what describes the export, not the model, is taken out.

Format: ``torch/_export/serde/schema.py`` and ``torch/export/pt2_archive``. In ``models/*.json`` the metadata of nodes
loses stack traces, origins and call counters; module stacks stay, because ``torch.export.unflatten`` needs them, under
keys and type names that no process or script has a part in. Example inputs, and what was read off them, are dropped.
Bytes of a storage that no weight shows are zero.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError
from leapp.export._archive import Archive, DamagedArchiveError, Kept, View, blank_hidden, rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_FORMAT: Final = "archive_format"
_DROPPED: Final = ".data/serialization_id"
"""A hash over the other members' checksums as they were."""

_DROPPED_METADATA: Final = ("stack_trace", "from_node", "custom", "torch_fn", "source_fn_stack")
_MODULE_STACK: Final = "nn_module_stack"
_EXAMPLES: Final = "data/sample_inputs/"
_CONFIG: Final = re.compile(r"data/(weights|constants)/[^/]+_config\.json")


def canonicalise(path: Path) -> None:
    """Rewrite a ``.pt2`` archive in place, as a whole or not at all.

    A second run changes nothing. Raises ArtifactLoadError for what is no archive of torch.export; it is left as it was.
    """
    try:
        with Archive.open(path) as archive:
            rewrite(path, archive, _members(archive))
    except (DamagedArchiveError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = str(error) if isinstance(error, DamagedArchiveError) else f"its content is malformed ({error!r})"
        raise ArtifactLoadError(path=str(path), format=ExportFormat.PT2.value, why=why) from error


def _members(archive: Archive) -> dict[str, bytes | Kept]:
    if _FORMAT not in archive.names or archive.read(_FORMAT) != b"pt2":
        raise DamagedArchiveError("it is no archive of torch.export")
    members: dict[str, bytes | Kept] = {}
    configs = {name: json.loads(archive.read(name)) for name in archive.names if _CONFIG.fullmatch(name)}
    for name in archive.names:
        if name == _DROPPED:
            continue
        if name in configs:
            # The order of its keys is that of the weights in the model.
            members[name] = _json(configs[name], sort=False)
        elif name.startswith("models/") and name.endswith(".json"):
            members[name] = _json(_model(json.loads(archive.read(name))), sort=True)
        elif name.startswith(_EXAMPLES):
            members[name] = b""  # readers insist on the member and take an empty one for "none"
        else:
            members[name] = _payload(archive, name, configs)
    return members


def _json(value: Any, *, sort: bool) -> bytes:
    # Not canonical_json: torch writes and reads NaN and the infinities.
    return json.dumps(value, sort_keys=sort, separators=(",", ":")).encode()


# --- models --------------------------------------------------------------------------------------------------------


def _model(program: dict[str, Any]) -> dict[str, Any]:
    # "2.13.0+cpu" names the build that happened to be installed; the version is what counts.
    program["torch_version"] = program["torch_version"].partition("+")[0]
    program["verifiers"] = sorted(program.get("verifiers", []))
    module = program["graph_module"]
    # Free remarks of the exporting code.
    module["metadata"] = {}
    keys: dict[str, str] = {}
    for each in _dicts(module):
        if isinstance(each.get("metadata"), dict) and "target" in each:
            each["metadata"] = _node_metadata(each["metadata"], keys)
        if each.keys() == {"expr_str", "hint"}:
            # What the example inputs had in the place of a symbol.
            each["hint"] = None
    return program


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object inside ``value``, without recursion, in the order of the text."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            yield each
            pending.extend(reversed(each.values()))
        elif isinstance(each, list):
            pending.extend(reversed(each))


def _node_metadata(metadata: Mapping[str, str], keys: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in metadata.items() if name not in _DROPPED_METADATA}
    if kept.get(_MODULE_STACK):
        entries = (_entry(each) for each in kept[_MODULE_STACK].split(";"))
        kept[_MODULE_STACK] = ";".join(
            f"{keys.setdefault(key, str(len(keys)))},{where},{_type_name(kind)}" for key, where, kind in entries
        )
    return kept


def _entry(text: str) -> tuple[str, str, str]:
    """Key, path and type, which lie between commas outside brackets."""
    depth, start, parts = 0, 0, []
    for index, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    key, where, kind = [*parts, text[start:]]
    return key, where, kind


def _type_name(name: str) -> str:
    """The type of a module without the user's script or package: ``__main__`` and ``policy`` hold the same class."""
    if name.startswith("torch."):
        return name
    head = re.split(r"[\[(]", name, maxsplit=1)[0]
    return head.rpartition(".")[2] + name[len(head) :]


# --- weights -------------------------------------------------------------------------------------------------------


def _payload(archive: Archive, name: str, configs: Mapping[str, Any]) -> bytes | Kept:
    """The member as it is, unless its storage holds elements that no tensor shows: they are whatever was in memory."""
    folder, _, file = name.rpartition("/")
    shown = []
    for config_name, config in configs.items():
        if config_name.rpartition("/")[0] != folder:
            continue
        for payload in config["config"].values():
            if payload["path_name"] != file:
                continue
            meta = payload["tensor_meta"]
            if payload["use_pickle"] or meta is None or meta["dtype"] not in _ITEM_BYTES:
                return Kept(name)
            sizes, strides = ([each["as_int"] for each in meta[key]] for key in ("sizes", "strides"))
            shown.append(View(_ITEM_BYTES[meta["dtype"]], meta["storage_offset"]["as_int"], sizes, strides))
    size = archive.size_bytes(name)
    if not shown or any(view.covers(size) for view in shown):
        return Kept(name)
    return blank_hidden(archive.read(name), shown)


_ITEM_BYTES: Final[Mapping[int, int]] = {
    **dict.fromkeys((1, 2, 12, 29, 30, 31, 32, 33), 1),
    **dict.fromkeys((3, 6, 13, 28), 2),
    **dict.fromkeys((4, 7, 9, 34), 4),
    **dict.fromkeys((5, 8, 10, 35), 8),
    11: 16,
}
"""Size of an element by ``ScalarType`` of the schema."""
