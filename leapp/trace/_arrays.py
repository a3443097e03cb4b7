"""Plain arrays: who owns their memory, and tensors over it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp import _dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]

_from_numpy: Callable[[Array], torch.Tensor] = torch.from_numpy
"""Torch's own: it is wrapped while a session is open."""


def is_array(thing: Any) -> bool:
    """Whether a thing can be a port as an array: an array or a scalar of NumPy."""
    return isinstance(thing, (np.ndarray, np.generic))


def owner_of(array: Array) -> Array:
    """The array whose memory this one sees; itself where it is its own, or where something else owns it."""
    base: Any = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            array = base
        elif type(base) is not _STRIDED:
            break
        base = base.base
    return array


_STRIDED: Final[Any] = type(np.lib.stride_tricks.as_strided(np.zeros(1)).base)
"""What NumPy puts between a view that ``as_strided`` makes and the array that it is a view of."""


@lru_cache(maxsize=256)
def has_torch_dtype(dtype: np.dtype[Any]) -> bool:
    """Whether torch has the same elements: no objects, text, dates, records, extended floats or foreign byte order."""
    return dtype.isnative and dtype.name in _dtypes.BY_NAME


_view: Any = np.ndarray.view  # our class has a method of its own, which records

_BY_NAME: Final = {code: np.dtype(np.dtype(code).name) for code in np.typecodes["AllInteger"]}
"""Integer type of C -> the one of the same size that torch knows: C has two names for one of them."""


def from_numpy(array: Array) -> torch.Tensor:
    """A tensor over an array's memory."""
    known = _BY_NAME.get(array.dtype.char)
    return _from_numpy(array if known is None or known.char == array.dtype.char else array.view(known))


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor over the memory of an array; over a copy where torch cannot see it so (it runs backwards).

    Views are views of one tensor over the owner's memory. The array must have a dtype that torch has.
    """
    plain = array if type(array) is np.ndarray else _view(array, np.ndarray)
    base = plain.base
    if base is None or not isinstance(base, np.ndarray):
        return _over(plain)
    if any(stride < 0 for stride in plain.strides):
        return from_numpy(plain.copy())
    owner = owner_of(plain)
    size = plain.itemsize
    if type(owner) is not np.ndarray:
        owner = _view(owner, np.ndarray)
    if owner.dtype != plain.dtype or not _in_rows(owner) or any(stride % size for stride in plain.strides):
        return _over(plain)
    offset = plain.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    if offset % size or not owner.size:
        return _over(plain)
    whole = _over(owner)
    return whole.as_strided(plain.shape, [stride // size for stride in plain.strides], offset // size)


def _in_rows(owner: Array) -> bool:
    return bool(owner.flags.c_contiguous or owner.flags.f_contiguous)


class _Writable:
    """The same memory without its mark as read-only, of which torch would warn; nothing is written through it."""

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}
        self.keeper = array


def _over(array: Array) -> torch.Tensor:
    if any(stride < 0 for stride in array.strides):
        return from_numpy(array.copy())
    if any(stride % array.itemsize for stride in array.strides):
        return from_numpy(array.copy())  # a field of records: torch counts in whole elements
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return from_numpy(array)
