"""Every form in which a call can be written, as functions of one matrix of three rows and four columns."""

from __future__ import annotations

import enum
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import samples
import torch
import torch.nn.functional as F
import walk

if TYPE_CHECKING:
    from collections.abc import Callable


class Axis(enum.IntEnum):
    ROWS = 0
    COLUMNS = 1


class Mode(enum.StrEnum):
    NEAREST = "nearest"


CONSTANT = torch.arange(12.0).reshape(3, 4)
INDEX = torch.tensor([2, 0])
MASK = torch.tensor([True, False, True])


def _out(function):
    def form(a):
        out = torch.empty(0)
        function(a, out=out)
        return out * 2

    return form


def _written_after_full(a):
    result = torch.full((3, 4), a.sum())
    result[0] = 1.0
    result += a
    return result


FORMS = {
    # known traps
    "tile": lambda a: a.tile(1, 2),
    "flip": lambda a: a.flip(0),
    "norm": lambda a: a.norm(p=1),
    "axis": lambda a: a.sum(axis=1),
    "keepdims": lambda a: torch.sum(a, axis=0, keepdims=True),
    "floordiv": lambda a: a // 2.5,
    "and": lambda a: (a > 0) & (a < 1),
    "invert": lambda a: ~(a > 0),
    "bool": lambda a: a.bool(),
    "mT": lambda a: a.mT,
    "type": lambda a: a.type(torch.int64),
    "new_tensor": lambda a: a + a.new_tensor([1.0, 2.0, 3.0, 4.0]),
    "ellipsis-list": lambda a: a[..., [2, 0]],
    "unsqueeze-squeeze": lambda a: a.unsqueeze(2).squeeze(2),
    # reflected operators
    "radd": lambda a: 1 + a,
    "rsub": lambda a: 2.5 - a,
    "rmul": lambda a: 2 * a,
    "rtruediv": lambda a: 2 / a,
    "rfloordiv": lambda a: 7 // (a.abs() + 1),
    "rmod": lambda a: 7 % (a.abs() + 1),
    "rpow": lambda a: 2**a,
    "rmatmul": lambda a: CONSTANT.T @ a,
    "rand": lambda a: 6 & a.long(),
    "ror": lambda a: 4 | a.long(),
    "rxor": lambda a: 3 ^ a.long(),
    "rshift": lambda a: 1 << a.long().abs().clamp(max=8),
    "numpy-left": lambda a: np.float32(2.0) * a,
    "reversed": lambda a: reversed(a),
    # properties
    "T": lambda a: a.T,
    "H": lambda a: a.H,
    "mH": lambda a: a.mH,
    "real": lambda a: torch.fft.rfft(a).real,
    "imag": lambda a: torch.fft.rfft(a).imag,
    "data": lambda a: a.data + 1,
    # indexing
    "int": lambda a: a[1],
    "negative": lambda a: a[-1, -2],
    "step": lambda a: a[::2, 1::2],
    "negative-slice": lambda a: a[-2:, :-1],
    "none": lambda a: a[:, None, ..., None],
    "ellipsis": lambda a: a[..., 0],
    "empty-tuple": lambda a: a[()] + 1,
    "mask": lambda a: a[MASK],
    "mask-of-all": lambda a: a[:, torch.tensor([True, False, False, True])],
    "list": lambda a: a[[0, 2]],
    "list-negative": lambda a: a[[-1, 0]],
    "tensor": lambda a: a[INDEX],
    "two-tensors": lambda a: a[INDEX, torch.tensor([3, 1])],
    "tensor-and-slice": lambda a: a[INDEX, 1:3],
    "int-and-tensor": lambda a: a[0, INDEX],
    "slice-none-tensor": lambda a: a[:, None, INDEX],
    "split-tensors": lambda a: a.reshape(3, 2, 2)[[0, 1], :, [1, 0]],
    "matrix-of-indices": lambda a: a[torch.tensor([[0, 1], [2, 0]])],
    "numpy-index": lambda a: a[np.int64(1)] + a[np.array([0, 2])][1],
    "traced-index": lambda a: a[a.sum(1).argsort()],
    "range": lambda a: a[list(range(2))],
    # creation
    "new_zeros": lambda a: torch.cat([a, a.new_zeros(1, 4)]),
    "new_ones": lambda a: a + a.new_ones((3, 1)),
    "new_full": lambda a: a + a.new_full((4,), 2.5),
    "zeros_like": lambda a: torch.zeros_like(a) + a,
    "full_like": lambda a: torch.full_like(a, 3) * a,
    "ones-like-dtype": lambda a: torch.ones_like(a, dtype=torch.float64) * a,
    "from-a-shape": lambda a: a + torch.ones(a.shape) + torch.arange(a.shape[1]),
    "eye-of-size": lambda a: a @ torch.eye(a.size(-1)),
    "full-of-a-traced-value": lambda a: torch.full((3, 4), a.sum()) + a,
    "full-of-a-traced-value-cast": lambda a: torch.full(size=(2,), fill_value=a.sum() * 9, dtype=torch.int64),
    "full-of-a-traced-int8": lambda a: torch.full((2,), a.sum().to(torch.int8)),
    "full-of-a-traced-double": lambda a: torch.full((2,), a.double().sum()),
    "full-of-a-traced-bool": lambda a: torch.full((2,), a[0, 0] > 0),
    "new_full-of-a-traced-value": lambda a: INDEX.new_full((2,), a.sum() * 9) + a.long().new_full((2,), a.sum() * 9),
    "full_like-of-a-traced-value": lambda a: torch.full_like(CONSTANT, a.sum()) + torch.full_like(a, a.max()),
    "full_like-of-a-traced-value-cast": lambda a: torch.full_like(a, a.sum() * 9, dtype=torch.int32),
    "written-after-full": _written_after_full,
    "new_tensor-of-a-traced-value": lambda a: a.new_tensor([a.sum(), 2.0]) + CONSTANT.new_tensor([a[0, 0], 1.0]),
    "linspace": lambda a: a * torch.linspace(0, 1, a.shape[1]),
    # arguments of other kinds
    "numpy-integer": lambda a: a.narrow(int(np.int64(0)), np.int64(1), np.int32(2)),
    "numpy-dim": lambda a: a.sum(np.int64(1)),
    "numpy-float": lambda a: torch.clamp(a, np.float64(-0.5), np.float32(0.5)),
    "numpy-bool": lambda a: a * np.bool_(True),
    "int-enum": lambda a: a.sum(Axis.COLUMNS),
    "int-enum-in-a-list": lambda a: a.sum([Axis.ROWS, Axis.COLUMNS]),
    "str-enum": lambda a: F.interpolate(a[None], scale_factor=2.0, mode=Mode.NEAREST),
    "size": lambda a: a.reshape(torch.Size((4, 3))),
    "size-of-another": lambda a: torch.zeros(2, 6).add(a.reshape(torch.Size((2, 6)))),
    "scalars": lambda a: torch.where(a > 0, 1.0, -1.0),
    "keyword-only": lambda a: torch.add(input=a, other=a, alpha=2),
    "bool-as-number": lambda a: a * True,
    "dtype": lambda a: a.to(dtype=torch.float64).sum(dtype=torch.float32),
    "where-method": lambda a: a.where(a > 0, -a),
    "where-keywords": lambda a: a.where(condition=a > 0, other=a * 2),
    "list-for-einsum": lambda a: torch.einsum("ij,kj", [a, a]),
    "list-for-meshgrid": lambda a: torch.meshgrid([a[0], a[1]], indexing="ij")[1],
    "list-for-atleast_1d": lambda a: torch.atleast_1d([a[0, 0], a])[0],
    # truth values
    "and-true": lambda a: (a > 0) & True,
    "true-and": lambda a: True & (a > 0),
    "or-false": lambda a: (a > 0) | False,
    "xor-true": lambda a: True ^ (a > 0),
    "and-one": lambda a: (a > 0) & 1,
    "int-and-true": lambda a: a.long() & True,
    "int8-xor-true": lambda a: a.to(torch.int8) ^ True,
    "scalar-and-true": lambda a: (a.sum() > 0) & True,
    "bitwise_or-true": lambda a: torch.bitwise_or(a > 0, other=True),
    "and-in-place": lambda a: (a > 0).bitwise_and_(True),
    "float-masked_fill-true": lambda a: a.masked_fill(a > 1, True),
    "where-of-truth-values": lambda a: torch.where(a > 0, True, False),
    "where-of-masks": lambda a: torch.where(a > 0, a > 1, a < -1),
    "masked_fill-of-a-mask": lambda a: (a > 0).masked_fill(a > 1, False),
    "mask-plus-mask": lambda a: (a > 0) + (a < -1),
    "generator-of-tensors": lambda a: torch.stack([row * 2 for row in a]),
    # out=
    "out": _out(lambda a, out: torch.mul(a, 2, out=out)),
    "out-sum": _out(lambda a, out: torch.sum(a, 1, out=out)),
    # namespaces
    "linalg": lambda a: torch.linalg.norm(a, ord=2, dim=1) + torch.linalg.vector_norm(a, dim=-1),
    "special": lambda a: torch.special.expit(a) + torch.special.erf(a),
    "fft": lambda a: torch.fft.irfft(torch.fft.rfft(a, dim=1), n=4, dim=1),
    "einsum": lambda a: torch.einsum("ij,kj->ik", a, CONSTANT),
    "einsum-implicit": lambda a: torch.einsum("ij,jk", a, CONSTANT.T),
    "einsum-ellipsis": lambda a: torch.einsum("...i,i->...", a, CONSTANT[0]),
    "einsum-sublist": lambda a: torch.einsum(a, [0, 1], CONSTANT, [0, 1], [0]),
    "einsum-diagonal": lambda a: torch.einsum("ii->i", a[:, :3]),
    "method-of-linalg": lambda a: (a @ a.T + 3 * torch.eye(3)).inverse(),
    "operator-module": lambda a: operator.mul(operator.add(a, 1), 2),
}


class Form(NamedTuple):
    """A form, as the walk takes functions."""

    name: str
    function: Callable[..., Any]


def form(function: Callable[..., Any], name: str) -> walk.Trial:
    """A trial of one form."""
    torch.manual_seed(1)
    sample = samples.paired(((torch.randn(3, 4),), {}), ((torch.randn(3, 4),), {}))
    return walk.Trial(Form(f"form:{name}", function), sample, f"form:{name}")


def trials() -> list[walk.Trial]:
    """One trial of every form."""
    return [form(function, name) for name, function in FORMS.items()]
