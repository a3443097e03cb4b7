"""Canonical bytes of an ONNX file: what exporters say about themselves and the host is taken out.

Format: onnx.proto of the ONNX project. Removed everywhere, subgraphs and functions included: ``doc_string`` and
``metadata_props``, which carry source lines, module paths and the exporter's own bookkeeping. The order of parts that
are looked up by name (initializers, value infos, functions, operator sets) is made that of their names; nodes keep
theirs, which is an execution order. External data lies in the order of its tensors' names.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leapp._spec import ExportFormat
from leapp.errors import ArtifactLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_ALIGNMENT_BYTES: Final = 4096
"""Of each tensor in a data file: a page, so that runtimes can map it."""

_COPY_BYTES: Final = 1 << 20


def canonicalise(path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Rewrite an ONNX file and its data file in place; ``metadata`` becomes its only ``metadata_props``, sorted.

    A second run changes nothing. Raises ArtifactLoadError for what is no ONNX file; it is left as it was then.
    """
    import onnx

    try:
        model = onnx.load_model(path, load_external_data=False)
    except Exception as error:
        raise ArtifactLoadError(path=str(path), format=ExportFormat.ONNX.value, why=_first_line(error)) from error
    if not model.HasField("graph"):
        raise ArtifactLoadError(path=str(path), format=ExportFormat.ONNX.value, why="it holds no graph")
    _strip(model)
    _sort(model)
    # "2.13.0+cpu" names the build that happened to be installed; the version is what counts.
    model.producer_version = model.producer_version.partition("+")[0]
    for key in sorted(metadata or {}):
        entry = model.metadata_props.add()
        entry.key, entry.value = key, (metadata or {})[key]
    data = _rewrite_data(path, model)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            file.write(model.SerializeToString(deterministic=True))
        if data is not None:
            data[0].replace(data[1])
        scratch.replace(path)
    finally:
        with suppress(FileNotFoundError):
            scratch.unlink()


def _strip(message: Any) -> None:
    """Clear ``doc_string`` and ``metadata_props`` in a message and everything in it, without recursion."""
    pending = [message]
    while pending:
        each = pending.pop()
        for field, value in each.ListFields():
            if field.name in ("doc_string", "metadata_props"):
                each.ClearField(field.name)
            elif field.message_type is not None:
                pending.extend(value if hasattr(value, "__len__") else [value])


def _sort(model: Any) -> None:
    """Give parts that are looked up by name the order of their names."""
    model.opset_import.sort(key=lambda each: each.domain)
    model.functions.sort(key=lambda each: (each.domain, each.name))
    for graph in _graphs(model):
        graph.initializer.sort(key=lambda each: each.name)
        graph.value_info.sort(key=lambda each: each.name)
        graph.quantization_annotation.sort(key=lambda each: each.tensor_name)
    for function in model.functions:
        function.opset_import.sort(key=lambda each: each.domain)
        function.value_info.sort(key=lambda each: each.name)


def _graphs(model: Any) -> Iterator[Any]:
    """The main graph and every graph inside an attribute."""
    pending = [model.graph]
    owners = [*model.functions]
    while pending or owners:
        owner = pending.pop() if pending else owners.pop()
        if owner.DESCRIPTOR.name == "GraphProto":
            yield owner
        for node in owner.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g)
                pending.extend(attribute.graphs)


def _tensors(model: Any) -> Iterator[Any]:
    """Every tensor of a model in the order of graphs and names."""
    for graph in _graphs(model):
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _rewrite_data(path: Path, model: Any) -> tuple[Path, Path] | None:
    """Write external tensors in name order; gives the new file and the one it replaces, None without external data."""
    import onnx

    outside = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if not outside:
        return None
    old = path.with_name(f"{path.name}.data")
    new = path.with_name(f"{path.name}.data.{os.getpid()}")
    offset = 0
    with new.open("wb") as target:
        for tensor in outside:
            fields = {entry.key: entry.value for entry in tensor.external_data}
            size = int(fields.get("length", 0))
            offset += -offset % _ALIGNMENT_BYTES
            target.seek(offset)
            _copy(path.with_name(fields["location"]), int(fields.get("offset", 0)), size, target)
            del tensor.external_data[:]
            for key, value in (("location", old.name), ("offset", str(offset)), ("length", str(size))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
            offset += size
        target.truncate(offset)
    return new, old


def _copy(source: Path, offset: int, size: int, target: Any) -> None:
    with source.open("rb") as file:
        file.seek(offset)
        while size:
            piece = file.read(min(size, _COPY_BYTES))
            if not piece:
                raise ArtifactLoadError(path=str(source), format=ExportFormat.ONNX.value, why="it ends too early")
            target.write(piece)
            size -= len(piece)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
