"""Small helpers that twins are written with; they work on tensors and on the recorder's stand-ins alike."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import torch

from leapp import _dtypes
from leapp.ops._np_row import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Builder(Protocol):
    """Makes constants for twins: of a recording, or plain tensors."""

    def constant(self, array: np.ndarray[Any, Any]) -> Any:
        """A tensor of the elements of a plain array; the array's memory is what is watched for changes."""


class _PlainBuilder:
    """Outside a recording a constant is a tensor."""

    def constant(self, array: np.ndarray[Any, Any]) -> Any:
        return torch.from_numpy(np.array(array))


_builders: Final[list[Builder]] = [_PlainBuilder()]


def building(builder: Builder) -> None:
    """Constants are made by ``builder`` until ``built``."""
    _builders.append(builder)


def built() -> None:
    """The builder before makes the constants again."""
    _builders.pop()


def is_tensor(thing: Any) -> bool:
    """Whether a thing is a tensor, or stands for one."""
    return hasattr(thing, "__torch_function__")


def tensor(thing: Any, dtype: torch.dtype | None = None) -> Any:
    """A tensor of a traced value, an array, a number or nested lists of them, with the dtype that NumPy gives them.

    Raises Unsupported for what torch has no dtype for.
    """
    if is_tensor(thing):
        return thing if dtype is None else cast(thing, dtype)
    if isinstance(thing, (list, tuple)) and holds_tensor(thing):
        parts = [tensor(each) for each in thing]
        common = result_dtype(*parts)
        made = torch.stack([cast(each, common) for each in parts])
    else:
        array = np.asarray(thing)
        if array.dtype.name not in _dtypes.BY_NAME:
            raise Unsupported(f"torch has no dtype {array.dtype}")
        if array.dtype.char in "qQ":  # C's long long: the elements of int64 under a type that torch does not know
            array = array.view(array.dtype.name)
        made = _builders[-1].constant(array)
    return made if dtype is None else cast(made, dtype)


def holds_tensor(things: Any) -> bool:
    """Whether nested lists and tuples hold a tensor at any depth."""
    if isinstance(things, (list, tuple)):
        return any(holds_tensor(each) for each in things)
    return is_tensor(things)


def flat(thing: Any) -> Any:
    """A tensor as one line of elements."""
    return thing if thing.ndim == 1 else torch.reshape(thing, (-1,))


def is_whole(dtype: torch.dtype) -> bool:
    """Whether elements are integers or bools."""
    return not (dtype.is_floating_point or dtype.is_complex)


def cast(thing: Any, dtype: torch.dtype) -> Any:
    """A tensor in another dtype; itself where it has it."""
    return thing if thing.dtype == dtype else thing.to(dtype)


def number(thing: Any, name: str) -> Any:
    """An argument that says how a call is done (an axis, a shape, a flag), as plain Python.

    Raises Unsupported where it is computed from the data.
    """
    if is_tensor(thing) or holds_tensor(thing):
        raise Unsupported(f"{name} follows the data")
    if isinstance(thing, np.generic):
        return thing.item()
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    if isinstance(thing, (list, tuple)):
        return type(thing)(number(each, name) for each in thing)
    return thing


def axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that NumPy means by ``axis``, counted from the front; all of them for None."""
    axis = number(axis, "axis")
    if axis is None:
        return tuple(range(ndim))
    return tuple(each % ndim for each in (axis if isinstance(axis, (tuple, list)) else (axis,)))


def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """NumPy's dtype of the same elements."""
    return np.dtype(_dtypes.name_of(dtype))


def torch_dtype(dtype: Any) -> torch.dtype:
    """Torch's dtype of the same elements; takes all that NumPy takes. Raises Unsupported where there is none."""
    given = np.dtype(dtype)
    name = given.name
    if not given.isnative:
        raise Unsupported("torch has no numbers in another byte order than the machine's")
    if name not in _dtypes.BY_NAME:
        raise Unsupported(f"torch has no dtype {name}")
    return _dtypes.torch_dtype(name)


def result_dtype(*things: Any) -> torch.dtype:
    """The dtype that NumPy gives results of these operands: tensors, arrays, and Python numbers as weak ones."""
    kinds = [numpy_dtype(each.dtype) if is_tensor(each) else each for each in things]
    return torch_dtype(np.result_type(*kinds))


def promoted(*things: Any) -> list[Any]:
    """Tensors of the operands in the dtype that NumPy gives their result."""
    common = result_dtype(*things)
    return [tensor(each, common) for each in things]


def together(*things: Any) -> list[Any]:
    """Tensors of the operands in one dtype, for functions in which no Python number is a weak operand.

    Most that is no ufunc makes an array of each argument first: ``np.dot(float32_array, 2.0)`` is float64.
    """
    parts = [tensor(each) for each in things]
    common = result_dtype(*parts)
    return [cast(each, common) for each in parts]


_CARRIERS: Final = {
    torch.bool: torch.int32,
    torch.uint8: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}


def modular(compute: Callable[..., Any], *operands: Any) -> Any:
    """Sums and products of tensors of one dtype, in that dtype, also where neither torch nor ONNX has them in it.

    Narrow and unsigned integers are computed in a wider dtype, or in one as wide, and cut: sums and products modulo a
    power of two do not mind. A sum of products of booleans is true where it is not 0.
    """
    dtype = operands[0].dtype
    carrier = _CARRIERS.get(dtype, dtype)
    return cast(compute(*(cast(each, carrier) for each in operands)), dtype)


def inexact(thing: Any) -> Any:
    """A tensor of floating-point or complex numbers: what is neither becomes float64, as in most of NumPy."""
    made = tensor(thing)
    return made if made.dtype.is_floating_point or made.dtype.is_complex else cast(made, torch.float64)


def bucketed(values: Any, edges: Any, *, right: bool = False) -> Any:
    """``torch.bucketize``, without its remark that values do not lie side by side: they lie as the user's do."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*non-contiguous", UserWarning)
        return torch.bucketize(values, edges, right=right)


def shape_of(thing: Any) -> tuple[int, ...]:
    """Shape of a tensor or stand-in as a tuple of integers."""
    return tuple(int(each) for each in thing.shape)


def reversed_order(ndim: int) -> Sequence[int]:
    """The permutation that turns column-major order into row-major order."""
    return tuple(reversed(range(ndim)))


def not_given(argument: Any) -> bool:
    """Whether an argument is NumPy's mark of one that was left out."""
    return argument is np._NoValue


_WIDER: Final = {
    torch.bool: torch.uint8,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}
"""For dtypes that few torch functions take: one of at least as many bits that all of them take."""
LONG_UNSIGNED: Final = (torch.uint16, torch.uint32, torch.uint64)
TOP_BIT: Final = -(1 << 63)
"""The highest bit of an int64: the sign, and what a uint64 has above the others."""


def widened(thing: Any) -> Any:
    """The same bits in a dtype that every torch function takes; ``cast`` gives them back."""
    return thing.to(_WIDER[thing.dtype]) if thing.dtype in _WIDER else thing


def ordered(thing: Any) -> Any:
    """Elements that stand in the same order, in a dtype that torch compares; ``reordered`` undoes it."""
    wide = widened(thing)
    return wide ^ TOP_BIT if thing.dtype == torch.uint64 else wide


def reordered(thing: Any, dtype: torch.dtype) -> Any:
    """What ``ordered`` was given."""
    return cast(thing ^ TOP_BIT if dtype == torch.uint64 else thing, dtype)


broadcast: Final[Any] = torch.broadcast_tensors
"""Tensors of one shape; torch leaves the function without types."""


def moving(torch_function: Any, thing: Any, *args: Any) -> Any:
    """What a torch function that only moves elements gives; some do not move unsigned ones of 16 bits and more."""
    if thing.dtype not in LONG_UNSIGNED:
        return torch_function(thing, *args)
    return torch_function(widened(thing), *args).to(thing.dtype)
