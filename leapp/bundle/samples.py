"""Tensors in ``.safetensors`` files: recorded samples of a node, first-tick values of a pipeline.

The format is a length, a JSON header and raw bytes; it is written and read here because the package of that name wants
NumPy or torch for it, changed its low-level interface between releases, and orders free header fields by chance. Equal
tensors give equal bytes. Tensors may be torch's, NumPy's or ``RawTensor``; reading needs neither library.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from leapp._dtypes import BY_NAME, name_of, torch_dtype
from leapp.bundle.schema import parse_json
from leapp.errors import BundleFormatError, BundleValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import torch

    Tensor: TypeAlias = "torch.Tensor | np.ndarray[Any, Any] | np.generic | RawTensor"

_CODES: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
"""Our dtype name -> that of the format."""

_NAMES: Final = {code: name for name, code in _CODES.items()}
_PAIRS: Final = "complex128"
"""Has no name in the format: stored as pairs of float64, and listed under this key of the free header fields."""

_MAX_HEADER_BYTES: Final = 100_000_000  # what other readers of the format accept


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as dtype name, shape and contiguous little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, tensor: Tensor, name: str = "tensor") -> RawTensor:
        """The bytes of a torch tensor or NumPy array, on whatever device and in whatever layout.

        Raises BundleValueError, which bears ``name``, for other objects and for dtypes outside our table.
        """
        if isinstance(tensor, RawTensor):
            return tensor
        torch: Any = sys.modules.get("torch")  # whoever holds a tensor has imported it
        if torch is not None and isinstance(tensor, torch.Tensor):
            return _from_torch(tensor, name)
        if hasattr(tensor, "__array_interface__"):
            return _from_numpy(tensor, name)
        raise BundleValueError(where=name, why=f"a {type(tensor).__name__} is no tensor")

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy array that owns its memory. ``bfloat16``, which NumPy lacks, becomes ``float32`` of equal values."""
        import numpy as np

        if self.dtype == "bfloat16":
            wide = np.frombuffer(self.data, "<u2").astype(np.uint32) << np.uint32(16)
            return wide.view(np.float32).reshape(self.shape)
        return np.frombuffer(self.data, np.dtype(self.dtype).newbyteorder("<")).reshape(self.shape).astype(self.dtype)

    def torch(self) -> torch.Tensor:
        """A CPU tensor that owns its memory."""
        import torch

        dtype = torch_dtype(self.dtype)
        if not self.data:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(bytearray(self.data), dtype=dtype).reshape(self.shape)


class Sample(NamedTuple):
    """What went into a node and came out of it, once, by port."""

    inputs: Mapping[str, RawTensor]
    outputs: Mapping[str, RawTensor]


def write_samples(path: Path, samples: Sequence[tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]) -> None:
    """Write the samples of a node: pairs of inputs and outputs by port, stored as ``0/in/PORT`` and ``0/out/PORT``."""
    tensors = {
        f"{index}/{direction}/{port}": tensor
        for index, sample in enumerate(samples)
        for direction, ports in zip(("in", "out"), sample, strict=True)
        for port, tensor in ports.items()
    }
    write_tensors(path, tensors)


def read_samples(path: Path) -> tuple[Sample, ...]:
    """The samples of a node in the order they were recorded. Raises BundleFormatError."""
    samples: dict[int, tuple[dict[str, RawTensor], dict[str, RawTensor]]] = {}
    for key, tensor in read_tensors(path).items():
        index, _, rest = key.partition("/")
        direction, _, port = rest.partition("/")
        if not (index.isascii() and index.isdigit()) or direction not in {"in", "out"} or not port:
            raise BundleFormatError(path=str(path), why=f"{key!r} is no key of a sample")
        pair = samples.setdefault(int(index), ({}, {}))
        pair[direction == "out"][port] = tensor
    if sorted(samples) != list(range(len(samples))):
        raise BundleFormatError(path=str(path), why=f"its samples are {sorted(samples)}, not one after the other")
    return tuple(Sample(*samples[index]) for index in range(len(samples)))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by key. Raises BundleValueError for what the format cannot hold."""
    raw = {key: RawTensor.of(tensors[key], key) for key in tensors}
    # Wide elements first keeps every tensor aligned; readers map such files without a copy.
    order = sorted(raw, key=lambda key: (-BY_NAME[raw[key].dtype].size_bytes, key))
    header: dict[str, Any] = {}
    pairs = sorted(key for key in raw if raw[key].dtype == _PAIRS)
    if pairs:
        header["__metadata__"] = {_PAIRS: json.dumps(pairs, ensure_ascii=False)}
    if "__metadata__" in raw:
        raise BundleValueError(where="__metadata__", why="the file format keeps this key for itself")
    end = 0
    for key in order:
        tensor = raw[key]
        begin, end = end, end + len(tensor.data)
        code, shape = ("F64", (*tensor.shape, 2)) if tensor.dtype == _PAIRS else (_CODES[tensor.dtype], tensor.shape)
        header[key] = {"dtype": code, "shape": shape, "data_offsets": (begin, end)}
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BundleValueError(where=str(path), why=f"a key is not valid Unicode text: {error.object!r}") from error
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for key in order:
            file.write(raw[key].data)


def read_tensors(path: Path) -> dict[str, RawTensor]:
    """The tensors of a file by key, sorted. Raises BundleFormatError for whatever is not such a file, whole."""

    def bad(why: str) -> BundleFormatError:
        return BundleFormatError(path=str(path), why=f"it is no sound .safetensors file: {why}")

    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or begin > len(data) or begin > _MAX_HEADER_BYTES:
        raise bad("its header is longer than the file")
    header = parse_json(data[8:begin], path)
    free = header.pop("__metadata__", {})
    try:
        pairs = set(json.loads(free.get(_PAIRS, "[]")))
        entries = {
            key: (_NAMES[each["dtype"]], tuple(each["shape"]), tuple(each["data_offsets"]))
            for key, each in header.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise bad(f"{error!r} in its header") from error
    tensors = {}
    for key, (dtype, shape, offsets) in sorted(entries.items()):
        if not all(type(each) is int and each >= 0 for each in (*shape, *offsets)) or len(offsets) != 2:
            raise bad(f"shape or place of {key!r}")
        start, stop = offsets
        if stop - start != math.prod(shape) * BY_NAME[dtype].size_bytes or begin + stop > len(data):
            raise bad(f"the bytes of {key!r} do not fit its shape")
        if key in pairs and (dtype != "float64" or shape[-1:] != (2,)):
            raise bad(f"{key!r} holds no pairs")
        kind = (_PAIRS, shape[:-1]) if key in pairs else (dtype, shape)
        tensors[key] = RawTensor(*kind, data[begin + start : begin + stop])
    places = sorted(offsets for _, _, offsets in entries.values())
    ends = [(0, 0), *places, (len(data) - begin, len(data) - begin)]
    if any(before[1] != after[0] for before, after in pairwise(ends)):
        raise bad("there are gaps or overlaps between its tensors")
    return tensors


def _from_torch(tensor: torch.Tensor, name: str) -> RawTensor:
    import torch

    dtype = name_of(tensor.dtype)
    if dtype not in BY_NAME or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise BundleValueError(where=name, why=f"a {tensor.layout} tensor of {tensor.dtype} cannot be stored")
    with torch.no_grad():
        flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        data: bytes = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return RawTensor(dtype, tuple(tensor.shape), data)


def _from_numpy(array: Any, name: str) -> RawTensor:
    import numpy as np

    array = np.asarray(array)
    if array.dtype.name not in BY_NAME:
        raise BundleValueError(where=name, why=f"an array of {array.dtype} cannot be stored")
    little = array if array.dtype.name == "bfloat16" else array.astype(array.dtype.newbyteorder("<"), copy=False)
    return RawTensor(array.dtype.name, tuple(array.shape), little.tobytes())
