"""Rows of the NumPy table: Fourier transforms.

NumPy's own dtypes are torch's: single precision stays single, integers become double.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops._np_checks import Scaled
from leapp.ops._np_row import Group, Op, Unsupported
from leapp.ops._np_twin import axes as counted
from leapp.ops._np_twin import inexact, number, shape_of, tensor

if TYPE_CHECKING:
    from collections.abc import Callable


def _data(a: Any) -> Any:
    a = inexact(a)
    if 0 in shape_of(a):
        raise Unsupported("there is nothing to transform")
    if a.dtype == torch.float16:
        raise Unsupported("of halves NumPy rounds the factor of its norm to a half")
    return a


def _norm(norm: Any) -> str:
    return norm or "backward"


def _one(transform: Callable[..., Any]) -> Callable[..., Any]:
    """The twin of a transform along one axis."""

    def twin(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        del out
        a, n = _data(a), None if n is None else operator.index(number(n, "n"))
        return transform(a, n, operator.index(number(axis, "axis")), _norm(norm))

    return twin


def _several(transform: Callable[..., Any], default: Any) -> Callable[..., Any]:
    """The twin of a transform along several axes."""

    def twin(a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None) -> Any:
        del out
        a = tensor(a)
        lengths, over = number(s, "s"), number(axes, "axes")
        if over is None:
            over = range(a.ndim) if lengths is None else range(a.ndim - len(lengths), a.ndim)
        over = tuple(each % a.ndim for each in over)
        if len(set(over)) < len(over):
            raise Unsupported("an axis that is transformed twice")
        if not over:
            return a
        if lengths is not None:
            # -1 is the length of the data in NumPy, and None what the transform makes of it: which is torch's -1.
            asked = zip(lengths, over, strict=True)
            lengths = tuple(-1 if each is None else shape_of(a)[at] if each == -1 else each for each, at in asked)
        return transform(_data(a), lengths, over, _norm(norm))

    return twin


def _shift(x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    return torch.fft.fftshift(x, counted(axes, x.ndim))


def _unshift(x: Any, axes: Any = None) -> Any:
    x = tensor(x)
    return torch.fft.ifftshift(x, counted(axes, x.ndim))


def _depth(args: Any, kwargs: Any) -> float:
    """Errors grow with the logarithm of the length."""
    del kwargs
    return math.log2(max(2, np.size(args[0])))


NEAR: Final = Scaled(4.0, _depth)

GROUPS: Final[tuple[Group, ...]] = (
    Group(
        "Fourier transforms",
        (
            Op(np.fft.fft, twin=_one(torch.fft.fft), check=NEAR),
            Op(np.fft.ifft, twin=_one(torch.fft.ifft), check=NEAR),
            Op(np.fft.rfft, twin=_one(torch.fft.rfft), check=NEAR),
            Op(np.fft.irfft, twin=_one(torch.fft.irfft), check=NEAR),
            Op(np.fft.hfft, twin=_one(torch.fft.hfft), check=NEAR),
            Op(np.fft.ihfft, twin=_one(torch.fft.ihfft), check=NEAR),
            Op(np.fft.fft2, twin=_several(torch.fft.fftn, (-2, -1)), check=NEAR),
            Op(np.fft.ifft2, twin=_several(torch.fft.ifftn, (-2, -1)), check=NEAR),
            Op(np.fft.rfft2, twin=_several(torch.fft.rfftn, (-2, -1)), check=NEAR),
            Op(np.fft.irfft2, twin=_several(torch.fft.irfftn, (-2, -1)), check=NEAR),
            Op(np.fft.fftn, twin=_several(torch.fft.fftn, None), check=NEAR),
            Op(np.fft.ifftn, twin=_several(torch.fft.ifftn, None), check=NEAR),
            Op(np.fft.rfftn, twin=_several(torch.fft.rfftn, None), check=NEAR),
            Op(np.fft.irfftn, twin=_several(torch.fft.irfftn, None), check=NEAR),
            Op(np.fft.fftshift, twin=_shift, layout=True),
            Op(np.fft.ifftshift, twin=_unshift, layout=True),
        ),
    ),
)
