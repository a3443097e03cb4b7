"""One table: our dtype name <-> torch <-> ONNX element type. NumPy's name is ours, except for ``bfloat16``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Dtype:
    """One row: names of one element type in every vocabulary."""

    name: str
    torch_name: str
    onnx_element: int
    """``onnx.TensorProto.DataType``; the numbers are part of the ONNX format."""
    size_bytes: int


DTYPES: Final[tuple[Dtype, ...]] = (
    Dtype("float16", "float16", 10, 2),
    Dtype("bfloat16", "bfloat16", 16, 2),
    Dtype("float32", "float32", 1, 4),
    Dtype("float64", "float64", 11, 8),
    Dtype("int8", "int8", 3, 1),
    Dtype("int16", "int16", 5, 2),
    Dtype("int32", "int32", 6, 4),
    Dtype("int64", "int64", 7, 8),
    Dtype("uint8", "uint8", 2, 1),
    Dtype("uint16", "uint16", 4, 2),
    Dtype("uint32", "uint32", 12, 4),
    Dtype("uint64", "uint64", 13, 8),
    Dtype("bool", "bool", 9, 1),
    Dtype("complex64", "complex64", 14, 8),
    Dtype("complex128", "complex128", 15, 16),
)

BY_NAME: Final = {row.name: row for row in DTYPES}
_BY_TORCH_TEXT: Final = {f"torch.{row.torch_name}": row.name for row in DTYPES}


def name_of(dtype: torch.dtype) -> str:
    """Our name of a torch dtype; quantised and other exotic ones keep torch's own (``quint8``)."""
    text = str(dtype)
    return _BY_TORCH_TEXT.get(text, text.removeprefix("torch."))


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of one of our names. Raises KeyError for a name that is not in the table."""
    import torch

    dtype: torch.dtype = getattr(torch, BY_NAME[name].torch_name)
    return dtype
