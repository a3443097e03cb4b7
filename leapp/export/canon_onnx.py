"""Canonical bytes of an ONNX file: what exporters say about themselves and the host is taken out.

Format: onnx.proto of the ONNX project. Removed everywhere, subgraphs and functions included: ``doc_string`` and
``metadata_props``, which carry source lines, module paths and the exporter's own bookkeeping. The order of parts that
are looked up by name (initializers, value infos, functions, operator sets) is made that of their names; nodes keep
theirs, which is an execution order. External data lies in the order of its tensors' names.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

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
    canonicalise_model(model, metadata)
    scratch = path.with_name(f"{path.name}.{os.getpid()}.new")
    new_data = path.with_name(f"{path.name}.data.{os.getpid()}.new")
    try:
        external = _rewrite_data(path, model, new_data)
        scratch.write_bytes(model.SerializeToString(deterministic=True))
        shutil.copymode(path, scratch)
        # The old model does not fit the new data: nothing may go wrong between these two.
        if external:
            new_data.replace(_data_file(path))
        scratch.replace(path)
    except (FileNotFoundError, ValueError) as error:
        why = f"its tensors cannot be rewritten ({_first_line(error)})"
        raise ArtifactLoadError(path=str(path), format=ExportFormat.ONNX.value, why=why) from error
    finally:
        for each in (scratch, new_data):
            with suppress(FileNotFoundError):
                each.unlink()


def canonicalise_model(model: Any, metadata: Mapping[str, str] | None = None) -> None:
    """The same for an ``onnx.ModelProto`` in memory, whose deterministic serialisation is then canonical.

    External data are left as they are; they are rewritten with the file.
    """
    _strip(model)
    _sort(model)
    # "2.13.0+cpu" names the build that happened to be installed; the version is what counts.
    model.producer_version = model.producer_version.partition("+")[0]
    for key in sorted(metadata or {}):
        entry = model.metadata_props.add()
        entry.key, entry.value = key, (metadata or {})[key]


def _data_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


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
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        yield from _attribute_tensors(graph)
    for function in model.functions:
        yield from _attribute_tensors(function)


def _attribute_tensors(owner: Any) -> Iterator[Any]:
    for node in owner.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _rewrite_data(path: Path, model: Any, new: Path) -> bool:
    """Write external tensors to ``new`` in name order; gives whether there are any."""
    import onnx

    outside = [tensor for tensor in _tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if not outside:
        return False
    end = 0
    with new.open("wb") as target:
        for tensor in outside:
            source, begin, size = _place(path, tensor)
            offset = end + -end % _ALIGNMENT_BYTES
            target.seek(offset)
            _copy(source, begin, size, target)
            del tensor.external_data[:]
            for key, value in (("location", _data_file(path).name), ("offset", str(offset)), ("length", str(size))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
            end = offset + size
        target.truncate(end)
    return True


def _place(path: Path, tensor: Any) -> tuple[Path, int, int]:
    """File, offset and size of an external tensor. A length that is not told reaches to the end of the file."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    source = path.parent / location
    if not location or not source.resolve().is_relative_to(path.parent.resolve()):
        raise ValueError(f"tensor {tensor.name!r} lies at {location!r}, not beside the model")
    offset = int(fields.get("offset", 0))
    return source, offset, int(fields.get("length", source.stat().st_size - offset))


def _copy(source: Path, offset: int, size: int, target: IO[bytes]) -> None:
    with source.open("rb") as file:
        file.seek(offset)
        while size:
            piece = file.read(min(size, _COPY_BYTES))
            if not piece:
                raise ValueError(f"{source.name!r} ends too early")
            target.write(piece)
            size -= len(piece)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
