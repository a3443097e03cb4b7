"""The border of a running pipeline: memory of ports, and values that are taken into it and handed out of it.

NumPy has no bfloat16: in arrays such ports are ``uint16`` bit patterns. torch takes part only where it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leapp._dtypes import torch_dtype
from leapp.errors import PipelineInputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import numpy.typing as npt

    from leapp._spec import TensorSpec
    from leapp.bundle.samples import RawTensor

BITS: Final = "uint16"
"""What NumPy holds a bfloat16 in."""


class Buffer:
    """Memory of one port, allocated once: an array and, where torch is there, a tensor on the same bytes."""

    __slots__ = ("array", "tensor")

    def __init__(self, spec: TensorSpec, torch: ModuleType | None) -> None:
        self.array: npt.NDArray[Any] = np.zeros(spec.shape, array_dtype(spec))
        self.tensor: Any = None if torch is None else as_tensor(self.array, spec, torch)


def array_dtype(spec: TensorSpec) -> np.dtype[Any]:
    """The dtype of a port's arrays."""
    return np.dtype(BITS if spec.dtype == "bfloat16" else spec.dtype)


def as_tensor(array: npt.NDArray[Any], spec: TensorSpec, torch: Any) -> Any:
    """A tensor on the memory of an array of ``array_dtype``."""
    if spec.dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def raw_array(raw: RawTensor) -> npt.NDArray[Any]:
    """A stored tensor as an array of ``array_dtype``."""
    little = np.dtype(BITS if raw.dtype == "bfloat16" else raw.dtype).newbyteorder("<")
    return np.frombuffer(raw.data, little).reshape(raw.shape).astype(little.newbyteorder("="))


def writer(key: str, spec: TensorSpec, buffer: Buffer, torch: Any) -> Callable[[Any], None]:
    """A function that copies a user's value into ``buffer``, or raises PipelineInputError and leaves it as it is.

    It takes arrays, NumPy scalars (for shape ``[]``) and, where torch is there, tensors on any device, in whatever
    layout in memory, of the port's own shape and dtype; nothing is converted or broadcast.
    """
    shape, dtype = spec.shape, array_dtype(spec)
    tensor_dtype = None if torch is None else torch_dtype(spec.dtype)
    tensor_class = None if torch is None else torch.Tensor
    array, tensor = buffer.array, buffer.tensor

    def write(value: Any) -> None:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            array[...] = value
        elif tensor_class is not None and isinstance(value, tensor_class):
            if value.dtype is not tensor_dtype or value.shape != shape:
                raise _unfit(key, spec, str(value.dtype).removeprefix("torch."), tuple(value.shape))
            if type(value) is not tensor_class:
                _copy_subclass(tensor, value, torch)
            else:
                _copy(key, tensor, value)
        elif isinstance(value, np.ndarray | np.generic) and not isinstance(value, np.ma.MaskedArray):
            plain = _plain(value, spec)
            if plain.dtype != dtype or plain.shape != shape:
                raise _unfit(key, spec, value.dtype.name, value.shape)
            array[...] = plain
        else:
            kinds = "an array" if torch is None else "a tensor or an array"
            raise PipelineInputError(port=key, why=f"a {_kind(value)} was given, {kinds} of {_text(spec)} is expected")

    return write


def giver(buffer: Buffer) -> Callable[[], Any]:
    """A function that hands out a copy of ``buffer``: a tensor where torch is there, else an array."""
    return buffer.array.copy if buffer.tensor is None else buffer.tensor.clone


def _plain(value: Any, spec: TensorSpec) -> npt.NDArray[Any]:
    """An array without its subclass; of an ``ml_dtypes`` bfloat16 its bits."""
    array = np.asarray(value).view(np.ndarray)
    if spec.dtype == "bfloat16" and array.dtype.name == "bfloat16":
        return array.view(BITS)
    return array


def _copy(key: str, target: Any, value: Any) -> None:
    try:
        target.copy_(value)
    except (RuntimeError, TypeError) as error:  # a meta or sparse tensor, for one
        raise PipelineInputError(port=key, why=f"it cannot be copied: {str(error).splitlines()[0]}") from error


def _copy_subclass(target: Any, value: Any, torch: Any) -> None:
    """Parameters and tensors of classes with hooks: their values, and none of their hooks."""
    with torch._C.DisableTorchFunctionSubclass():
        target.copy_(value.detach())


def _unfit(key: str, spec: TensorSpec, dtype: str, shape: tuple[int, ...]) -> PipelineInputError:
    return PipelineInputError(port=key, why=f"{dtype}{list(shape)} was given, {_text(spec)} is expected")


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype}{list(spec.shape)}"


def _kind(value: Any) -> str:
    module, name = type(value).__module__, type(value).__qualname__
    return name if module == "builtins" else f"{module}.{name}"
