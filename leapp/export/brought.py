"""A finished model that a node brings along: ``backend_params={"model_path": FILE}``.

The file is taken as it is, byte for byte; what it says of its ports must be what the node declares. Importing this
module needs neither torch nor onnx.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leapp import _dtypes
from leapp._spec import BroughtModel, ExportFormat, NodeSpec, Port, Unset
from leapp.bundle.schema import BROUGHT
from leapp.errors import (
    ArtifactLoadError,
    BroughtFileMissingError,
    BroughtModelError,
    BroughtPortsError,
    MissingDependencyError,
)
from leapp.export._backend import ArtifactInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leapp._spec import JSON

_FORMATS: Final[Mapping[str, ExportFormat]] = {
    ".onnx": ExportFormat.ONNX,
    ".pt": ExportFormat.TORCHSCRIPT,
    ".pt2": ExportFormat.PT2,
}
_OURS: Final = frozenset(("manifest.json", "graph.json", "graph.txt"))
"""Files of ours in a node's folder."""


# --- what the script says ------------------------------------------------------------------------------------------


def brought_model(
    node: str, formats: tuple[ExportFormat, ...] | Unset | None, params: Mapping[str, Any]
) -> BroughtModel | None:
    """The model that a node's ``backend_params`` bring; None where they bring none.

    A relative path is looked up from the working folder, now.

    Raises:
        BroughtFileMissingError: there is no such file.
        BroughtModelError: its suffix names no format, or another one than ``export_with``.
    """
    given = params.get("model_path")
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike)):
        raise BroughtModelError(
            node=node, path=given, why=f"model_path is a {type(given).__name__}", advice="Give the path of a file."
        )
    path = Path(os.path.abspath(os.fspath(given)))  # noqa: PTH100  # as given, so that a link keeps its own name
    found = _FORMATS.get(path.suffix)
    if found is None:
        known = ", ".join(_FORMATS)
        raise BroughtModelError(
            node=node, path=str(given), why=f"its suffix {path.suffix!r} names no format",
            advice=f"Bring a file that ends in one of {known}; of .pt files only TorchScript.",
        )  # fmt: skip
    if isinstance(formats, tuple) and [each.suffix for each in formats] != [path.suffix]:
        said = ", ".join(repr(each.value) for each in formats)
        raise BroughtModelError(
            node=node, path=str(given), why=f"export_with says {said}",
            advice="Leave export_with out, or None: the file is the node's only model.",
        )  # fmt: skip
    if not path.is_file():
        raise BroughtFileMissingError(node=node, path=str(given), folder=str(Path.cwd()))
    return BroughtModel(path, found, copied=params.get("copy_original_model", True) is not False)


# --- what the file says --------------------------------------------------------------------------------------------


class _NoNodeError(Exception):
    """A model whose inputs or outputs no node has; the text says why."""


_ADVICE: Final[Mapping[ExportFormat, str]] = {
    ExportFormat.ONNX: "Bring a file that onnxruntime loads.",
    ExportFormat.TORCHSCRIPT: "Bring what torch.jit.save wrote of a module with tensors in and out; no state_dict.",
    ExportFormat.PT2: "Bring what torch.export.save wrote of a module with tensors in and out.",
}


class FilePort(NamedTuple):
    """A port as a model file has it; None for what its format, or this file, does not tell."""

    name: str | None
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None

    def __str__(self) -> str:
        form = f"{self.dtype or ''}{_shape_text(self.shape)}"
        return " ".join(part for part in (self.name, form) if part) or "a tensor"


class FilePorts(NamedTuple):
    """All ports of a model file, in its order. ``named``: whether models of the format are fed by name."""

    inputs: tuple[FilePort, ...]
    outputs: tuple[FilePort, ...]
    named: bool = False


def in_file_order(model: BroughtModel, spec: NodeSpec) -> NodeSpec:
    """The node with its ports in the order that the file has them.

    Raises:
        BroughtPortsError: they are not the file's ports: another number, name, dtype or shape, as far as it tells.
        BroughtModelError: the file is no model of its format, or takes and gives something else than tensors.
    """
    try:
        file = _READERS[model.format](model.path)
    except (ArtifactLoadError, _NoNodeError) as error:
        why = str(error) if isinstance(error, _NoNodeError) else f"it cannot be loaded: {error.facts['why']}"
        raise BroughtModelError(node=spec.name, path=str(model.path), why=why, advice=_ADVICE[model.format]) from error
    found = {}
    for direction in ("inputs", "outputs"):
        ports, theirs = getattr(spec, direction), getattr(file, direction)
        try:
            found[direction] = _matched(direction.removesuffix("s"), ports, theirs, named=file.named)
        except ValueError as error:
            raise BroughtPortsError(
                node=spec.name, file=str(model.path), why=str(error),
                inputs=_listed(file.inputs), outputs=_listed(file.outputs),
            ) from None  # fmt: skip
    return replace(spec, inputs=found["inputs"], outputs=found["outputs"])


def _matched(direction: str, ports: Sequence[Port], theirs: Sequence[FilePort], *, named: bool) -> tuple[Port, ...]:
    """Our ports in their order. Raises ValueError, which says why there is none."""
    ours = {port.name: port for port in ports}
    names = [each.name for each in theirs]
    if set(names) == set(ours) and len(names) == len(ours):
        ordered = tuple(ours[name] for name in names if name is not None)
    elif named or len(theirs) != len(ports):
        raise ValueError(f"its {direction}s are {_listed(theirs)}, declared are {', '.join(ours) or 'none'}")
    else:
        ordered = tuple(ports)
    for port, each in zip(ordered, theirs, strict=True):
        spec = port.spec
        dims = each.shape
        shapes_fit = dims is None or (
            len(dims) == len(spec.shape)
            and all(theirs in (None, size) for theirs, size in zip(dims, spec.shape, strict=True))
        )
        if each.dtype not in (None, spec.dtype) or not shapes_fit:
            raise ValueError(f"its {direction} {each} is declared as {port.name} {spec.dtype}{_shape_text(spec.shape)}")
    return ordered


def _listed(ports: Sequence[FilePort]) -> str:
    return ", ".join(map(str, ports)) or "none"


def _shape_text(shape: Sequence[int | None] | None) -> str:
    return "" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def _onnx_ports(path: Path) -> FilePorts:
    from leapp.export.onnx import open_session

    session = open_session(path)

    def ports(values: Any) -> tuple[FilePort, ...]:
        return tuple(
            FilePort(
                value.name,
                _onnx_dtype(value.type),
                tuple(size if isinstance(size, int) and size >= 0 else None for size in value.shape),
            )
            for value in values
        )

    return FilePorts(ports(session.get_inputs()), ports(session.get_outputs()), named=True)


def _onnx_dtype(text: str) -> str:
    """Our name of what onnxruntime spells ``tensor(double)``; other types, such as sequences, as it spells them."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


def _torchscript_ports(path: Path) -> FilePorts:
    from leapp.export.torchscript import open_forward

    schema = open_forward(path).schema
    inputs = []
    for argument in schema.arguments[1:]:  # the first one is the module
        if str(argument.type) != "Tensor":
            if argument.has_default_value():
                continue
            why = f"its argument {argument.name!r} is a {argument.type}; a port is one Tensor"
            raise _NoNodeError(why)
        inputs.append(FilePort(argument.name))
    (returned,) = schema.returns
    elements = returned.type.elements() if returned.type.kind() == "TupleType" else [returned.type]
    if any(str(each) != "Tensor" for each in elements):
        why = f"it returns {returned.type}; the outputs of a node are one Tensor or a tuple of them"
        raise _NoNodeError(why)
    return FilePorts(tuple(inputs), tuple(FilePort(None) for _ in elements))


def _pt2_ports(path: Path) -> FilePorts:
    from leapp.export.pt2 import open_program

    program = open_program(path)
    form = program.call_spec.in_spec
    positional, keywords = form.children() if form is not None else (None, None)
    if positional is None or keywords is None or any(not each.is_leaf() for each in positional.children()):
        why = "its inputs are nested; the inputs of a node are tensors"
        raise _NoNodeError(why)
    if keywords.children():
        why = "it takes inputs by keyword; a node hands them over in order"
        raise _NoNodeError(why)
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}

    def port(key: Any, *, named: bool) -> FilePort:
        value = values.get(key) if isinstance(key, str) else None
        name = key if named and isinstance(key, str) else None
        if value is None or not hasattr(value, "shape"):
            return FilePort(name)
        shape = tuple(size if type(size) is int else None for size in value.shape)
        return FilePort(name, _dtypes.name_of(value.dtype), shape)

    signature = program.graph_signature
    return FilePorts(
        tuple(port(key, named=True) for key in signature.user_inputs),
        tuple(port(key, named=False) for key in signature.user_outputs),
    )


_READERS: Final = {
    ExportFormat.ONNX: _onnx_ports,
    ExportFormat.TORCHSCRIPT: _torchscript_ports,
    ExportFormat.PT2: _pt2_ports,
}


# --- the file in the bundle ----------------------------------------------------------------------------------------


def take(node: str, model: BroughtModel, folder: Path) -> ArtifactInfo:
    """Copy a brought file, with the data files that an ONNX model names, into a node's folder.

    A model that is not to be copied is left where it is, and only looked at.

    Raises:
        BroughtModelError: its data files cannot lie beside it in a bundle, or are missing.
        MissingDependencyError: onnx is not installed.
    """
    details: dict[str, JSON] = {"method": BROUGHT}
    data: list[PurePosixPath] = []
    if model.format is ExportFormat.ONNX:
        data, facts = _onnx_facts(node, model)
        details |= facts
    if not model.copied:
        if data:
            raise BroughtModelError(
                node=node, path=str(model.path), why=f"it keeps weights in {data[0]}, whose digest nobody would have",
                advice="Let it be copied into the bundle (copy_original_model=True), or save it as one file.",
            )  # fmt: skip
        return ArtifactInfo(model.format, (model.path,), details)
    paths = [folder / model.path.name, *(folder / each for each in data)]
    for source, target in zip((model.path, *(model.path.parent / each for each in data)), paths, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return ArtifactInfo(model.format, tuple(paths), details)


def _onnx_facts(node: str, model: BroughtModel) -> tuple[list[PurePosixPath], dict[str, JSON]]:
    """Data files of an ONNX model, relative to it and each once, and its versions."""
    try:
        import onnx
        from onnx import external_data_helper
    except ModuleNotFoundError as error:
        from leapp._source import install_command

        raise MissingDependencyError(
            what_for="Bringing an ONNX model", package="onnx", command=install_command()
        ) from error
    proto = onnx.load(str(model.path), load_external_data=False)
    versions = [each.version for each in proto.opset_import if each.domain in ("", "ai.onnx")]
    facts: dict[str, JSON] = {"ir_version": int(proto.ir_version)}
    if versions:
        facts["opset_version"] = int(versions[0])
    found: dict[PurePosixPath, None] = {}
    for tensor in external_data_helper._get_all_tensors(proto):
        if not external_data_helper.uses_external_data(tensor):
            continue
        location = external_data_helper.ExternalDataInfo(tensor).location
        data = PurePosixPath(location)
        why = None
        if data.is_absolute() or ".." in data.parts or str(data) in _OURS or str(data) == model.path.name:
            why = f"it keeps weights in {location!r}, which cannot lie beside it in a bundle"
        elif not (model.path.parent / data).is_file():
            why = f"it keeps weights in {location!r}, and there is no such file beside it"
        if why is not None:
            raise BroughtModelError(
                node=node, path=str(model.path), why=why, advice="Save it again, its data in a file beside it."
            )
        found[data] = None
    return sorted(found), facts
