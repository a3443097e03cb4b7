"""What ATen operators that torch's ONNX exporter lacks, or writes wrongly, are made of.

Each function is the operator written with others that the exporter knows, for shapes that are known. Every entry was
found missing, or wrong, by the walk over all functions of torch (``nox -s ops``).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch._decomp import get_decompositions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_aten: Any = torch.ops.aten
_TABLE: dict[Any, Callable[..., Any]] = {}


def lowered(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program without the operators of the table; itself when it has none."""
    names = {overload._schema.name for overload in _TABLE} - _OF_BOOLS
    called = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
    masks = any(
        schema.name.rstrip("_") in _OF_BOOLS and getattr(node.meta.get("val"), "dtype", None) in (torch.bool, *_WIDER)
        for node in program.graph.nodes
        if (schema := getattr(node.target, "_schema", None)) is not None
    )
    # A written form, ``copy_``, becomes the other one on the way.
    learns = any(_updates_statistics(node) for node in program.graph.nodes)
    if masks or learns or any(schema is not None and schema.name.rstrip("_") in names for schema in called):
        changed: torch.export.ExportedProgram = program.run_decompositions(_TABLE)
        return changed
    return program


def _updates_statistics(node: Any) -> bool:
    """Whether a node normalises in training mode, and writes running statistics on the way."""
    if node.target is not _aten.batch_norm.default:
        return False
    return bool(node.kwargs.get("training", node.args[5] if len(node.args) > 5 else False))


def _for(*overloads: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def kept(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            _TABLE[overload] = function
        return function

    return kept


def _older(name: str) -> tuple[Any, ...]:
    """An operator that torch no longer has since 2.14."""
    return (getattr(_aten, name).default,) if hasattr(_aten, name) else ()


# Training statistics: the exporter leaves the running ones as they were.
_TABLE.update(get_decompositions([_aten.native_batch_norm, _aten._native_batch_norm_legit_functional]))


# --- copies --------------------------------------------------------------------------------------------------------


def _copies() -> None:
    for name in ("detach", "select", "slice", "split", "split_with_sizes", "unbind"):
        view, copy = getattr(_aten, name), getattr(_aten, f"{name}_copy")
        for overload in copy.overloads():
            if overload in view.overloads():
                _TABLE[getattr(copy, overload)] = functools.partial(_copied, getattr(view, overload))


def _copied(view: Any, *args: Any, **kwargs: Any) -> Any:
    result = view(*args, **kwargs)
    return result.clone() if isinstance(result, Tensor) else [each.clone() for each in result]


_copies()


@_for(_aten.copy.default)
def _copy(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """The exporter loses that the source is broadcast."""
    del non_blocking
    return source.to(self.dtype).expand(self.shape).clone()


@_for(_aten.diagonal_scatter.default)
def _diagonal_scatter(self: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    at = torch.arange(self.numel()).reshape(self.shape).diagonal(offset, dim1, dim2)
    return _put_flat(self, at, source)


@_for(_aten.as_strided_scatter.default)
def _as_strided_scatter(
    self: Tensor, source: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    at = torch.arange(self.numel()).as_strided(size, stride, storage_offset or 0)
    return _put_flat(self, at, source)


def _put_flat(self: Tensor, at: Tensor, source: Tensor) -> Tensor:
    flat = torch.index_put(self.reshape(-1), (at.reshape(-1),), source.expand(at.shape).reshape(-1))
    return flat.reshape(self.shape)


@_for(_aten.put.default)
def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = torch.index_put(self.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate=accumulate)
    return flat.reshape(self.shape)


# --- of truth values -----------------------------------------------------------------------------------------------

_OF_BOOLS: Final = frozenset(("aten::where", "aten::masked_fill", "aten::add"))
"""Operators that lack a form for bools alone, or for few other dtypes; they are common, so programs are not decomposed
for others."""


@_for(_aten.where.self, _aten.where.ScalarSelf, _aten.where.ScalarOther, _aten.where.Scalar)
def _where(condition: Tensor, self: Any, other: Any) -> Any:
    if _is_bool(self) and _is_bool(other):
        return (condition & self) | (~condition & other)
    dtype = torch.result_type(self, other)
    wide = _WIDER.get(dtype)
    if wide is None:
        return NotImplemented
    return torch.where(condition, _as(self, wide), _as(other, wide)).to(dtype)


_WIDER: Final = {torch.int16: torch.int32, torch.bfloat16: torch.float32}
"""What onnxruntime has no kernel to choose from -> what it has, and holds the same values."""


def _as(thing: Any, dtype: torch.dtype) -> Any:
    return thing.to(dtype) if isinstance(thing, Tensor) else thing


@_for(_aten.masked_fill.Scalar, _aten.masked_fill.Tensor)
def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> Any:
    if self.dtype is not torch.bool:
        return NotImplemented
    filled = value != 0 if isinstance(value, Tensor) else bool(value)
    return (mask & filled) | (~mask & self)


@_for(_aten.add.Tensor, _aten.add.Scalar)
def _add(self: Tensor, other: Any, alpha: Any = 1) -> Any:
    if not (_is_bool(self) and _is_bool(other)):
        return NotImplemented
    return self | (other & bool(alpha))


def _is_bool(thing: Any) -> bool:
    return thing.dtype is torch.bool if isinstance(thing, Tensor) else isinstance(thing, bool)


# --- elementwise ---------------------------------------------------------------------------------------------------


@_for(_aten.copysign.Tensor, _aten.copysign.Scalar)
def _copysign(self: Tensor, other: Any) -> Tensor:
    dtype = torch.result_type(self, other)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size = self.to(dtype).abs()
    if not isinstance(other, Tensor):
        return -size if math.copysign(1.0, other) < 0 else size
    if not other.dtype.is_floating_point:
        return torch.where(other < 0, -size, size)
    # One over a negative zero is minus infinity.
    return torch.where((other < 0) | ((other == 0) & (1 / other < 0)), -size, size)


@_for(_aten.fmax.default)
def _fmax(self: Tensor, other: Tensor) -> Tensor:
    larger = torch.maximum(self, other)
    if not larger.dtype.is_floating_point:
        return larger
    return torch.where(self.isnan(), other, torch.where(other.isnan(), self, larger))


@_for(_aten.fmin.default)
def _fmin(self: Tensor, other: Tensor) -> Tensor:
    smaller = torch.minimum(self, other)
    if not smaller.dtype.is_floating_point:
        return smaller
    return torch.where(self.isnan(), other, torch.where(other.isnan(), self, smaller))


@_for(_aten.hypot.default)
def _hypot(self: Tensor, other: Tensor) -> Tensor:
    a, b = self.abs(), other.abs()
    large, small = torch.maximum(a, b), torch.minimum(a, b)
    ratio = small / torch.where(large == 0, 1.0, large)
    return large * torch.sqrt(1 + ratio * ratio)


@_for(_aten.erfinv.default)
def _erfinv(self: Tensor) -> Tensor:
    """Giles' approximation, corrected twice by Newton's method."""
    wide = _real(self)
    w = -torch.log((1 - wide) * (1 + wide))
    near, far = w - 2.5, torch.sqrt(w.clamp(min=5)) - 3
    series = (
        (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
         -0.00417768164, 0.246640727, 1.50140941),
        (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
         0.00943887047, 1.00167406, 2.83297682),
    )  # fmt: skip
    close, distant = (_polynomial(value, factors) for value, factors in zip((near, far), series, strict=True))
    y = torch.where(w < 5, close, distant) * wide
    for _ in range(2):
        y = y - (torch.erf(y) - wide) * (math.sqrt(math.pi) / 2) * torch.exp(y * y)
    y = torch.where(wide == 1, math.inf, torch.where(wide == -1, -math.inf, y))
    return torch.where(wide.abs() > 1, math.nan, y)


_LANCZOS: Final = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


@_for(_aten.lgamma.default)
def _lgamma(self: Tensor) -> Tensor:
    """Lanczos' approximation, and the reflection formula below one half."""
    given = _real(self)
    x = given.double()
    reflected = x < 0.5
    z = torch.where(reflected, 1 - x, x) - 1
    total = torch.full_like(z, _LANCZOS[0])
    for index, factor in enumerate(_LANCZOS[1:], 1):
        total = total + factor / (z + index)
    t = z + 7.5
    value = 0.5 * math.log(2 * math.pi) + (z + 0.5) * torch.log(t) - t + torch.log(total)
    sine = torch.sin(math.pi * (x - torch.floor(x))).abs()
    value = torch.where(reflected, math.log(math.pi) - torch.log(sine) - value, value)
    pole = (x <= 0) & (x == torch.floor(x))
    return torch.where(pole | x.isinf(), math.inf, value).to(given.dtype)


@_for(_aten.digamma.default)
def _digamma(self: Tensor) -> Tensor:
    """The recurrence up to 8, and the asymptotic series from there; the reflection formula below zero."""
    given = _real(self)
    x = given.double()
    negative = x < 0
    z = torch.where(negative, 1 - x, x)
    value = torch.zeros_like(z)
    for _ in range(8):
        value = value - torch.where(z < 8, 1 / z, 0.0)
        z = torch.where(z < 8, z + 1, z)
    square = 1 / (z * z)
    series = _polynomial(square, (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)) * square
    turn = math.pi * (x - torch.floor(x))
    value = value + torch.log(z) - 0.5 / z - series
    value = torch.where(negative, value - math.pi * torch.cos(turn) / torch.sin(turn), value)
    value = torch.where(negative & (x == torch.floor(x)), math.nan, value)
    # The sign of zero says from which side the pole is reached.
    return torch.where(x == 0, -1 / x, value).to(given.dtype)


def _polynomial(x: Tensor, factors: Sequence[float]) -> Tensor:
    """The factor of the highest power first."""
    total = torch.full_like(x, factors[0])
    for factor in factors[1:]:
        total = total * x + factor
    return total


def _real(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype.is_floating_point else tensor.to(torch.get_default_dtype())


# --- along a dimension ---------------------------------------------------------------------------------------------


@_for(_aten.amax.default)
def _amax(self: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    """The exporter asks for dimensions."""
    if self.dim() == 0:
        return self.clone()
    if dim:
        return NotImplemented
    return self.amax(list(range(self.dim())), keepdim)


@_for(_aten.amin.default)
def _amin(self: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
    if self.dim() == 0:
        return self.clone()
    if dim:
        return NotImplemented
    return self.amin(list(range(self.dim())), keepdim)


@_for(_aten.aminmax.default)
def _aminmax(self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    dims = [dim] if dim is not None else list(range(self.dim()))
    return self.amin(dims, keepdim), self.amax(dims, keepdim)


@_for(_aten.cummax.default)
def _cummax(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running(self, dim, torch.ge)


@_for(_aten.cummin.default)
def _cummin(self: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return _running(self, dim, torch.le)


def _running(self: Tensor, dim: int, better: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """Best value so far, and where it was last seen. NaN beats everything."""
    if self.dim() == 0 or self.shape[dim] == 0:
        return self.clone(), torch.zeros(self.shape, dtype=torch.int64)
    items = self.unbind(dim)
    best, where = items[0], torch.zeros(items[0].shape, dtype=torch.int64)
    values, places = [best], [where]
    for index, item in enumerate(items[1:], 1):
        takes = better(item, best)
        if item.dtype.is_floating_point:
            takes = item.isnan() | (takes & ~best.isnan())
        best, where = torch.where(takes, item, best), torch.where(takes, index, where)
        values.append(best)
        places.append(where)
    return torch.stack(values, dim), torch.stack(places, dim)


@_for(_aten.cumprod.default)
def _cumprod(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    kind = dtype or (self.dtype if self.dtype.is_floating_point or self.dtype.is_complex else torch.int64)
    self = self.to(kind)
    if self.dim() == 0 or self.shape[dim] == 0:
        return self.clone()
    products = [self.select(dim, 0)]
    for item in self.unbind(dim)[1:]:
        products.append(products[-1] * item)
    return torch.stack(products, dim)


@_for(_aten.sort.stable)
def _sort_stable(
    self: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    del stable  # TopK of ONNX, which a sort becomes, gives equal elements in the order of their indices.
    return torch.sort(self, dim=dim, descending=descending)


@_for(_aten.kthvalue.default)
def _kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    values, places = torch.sort(self, dim=dim)
    picked = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return picked if keepdim else (picked[0].squeeze(dim), picked[1].squeeze(dim))


@_for(_aten.median.default)
def _median(self: Tensor) -> Tensor:
    flat = self.reshape(-1)
    value = torch.sort(flat)[0][(flat.shape[0] - 1) // 2]
    return torch.where(flat.isnan().any(), math.nan, value) if value.dtype.is_floating_point else value


@_for(_aten.median.dim)
def _median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    found: tuple[Tensor, Tensor] = _kthvalue(self, (self.shape[dim] + 1) // 2, dim, keepdim)
    if not self.dtype.is_floating_point:
        return found
    missing = self.isnan().any(dim, keepdim)
    first = self.isnan().to(torch.int64).argmax(dim, keepdim)
    return torch.where(missing, math.nan, found[0]), torch.where(missing, first, found[1])


@_for(_aten.nanmedian.default)
def _nanmedian(self: Tensor) -> Tensor:
    return _nanmedian_dim(self.reshape(-1), 0)[0]  # type: ignore[no-any-return]


@_for(_aten.nanmedian.dim)
def _nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return self.clone(), torch.zeros((), dtype=torch.int64)
    if not self.dtype.is_floating_point:
        return _median_dim(self, dim, keepdim)  # type: ignore[no-any-return]
    missing = self.isnan()
    values, places = torch.sort(torch.where(missing, math.inf, self), dim=dim)
    number = self.shape[dim] - missing.to(torch.int64).sum(dim, keepdim=True)
    at = ((number - 1).clamp(min=0)) // 2
    value = torch.where(number == 0, math.nan, values.gather(dim, at))
    place = places.gather(dim, at)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


@_for(_aten.searchsorted.Tensor)
def _searchsorted(
    sorted_sequence: Tensor,
    self: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """As many as are smaller: every value is compared with every other."""
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    edges = sorted_sequence if sorted_sequence.dim() == 1 else sorted_sequence.unsqueeze(-2)
    values = self.unsqueeze(-1)
    below = edges <= values if right or side == "right" else edges < values
    return below.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


@_for(_aten.bucketize.Tensor)
def _bucketize(self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    below = boundaries <= self.unsqueeze(-1) if right else boundaries < self.unsqueeze(-1)
    return below.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


# --- distances, layers ---------------------------------------------------------------------------------------------


@_for(_aten._cdist_forward.default, _aten.cdist.default)
def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    del compute_mode
    return _distance(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@_for(_aten._pdist_forward.default, _aten.pdist.default)
def _pdist(self: Tensor, p: float = 2.0) -> Tensor:
    if self.shape[0] < 2:
        return self.new_zeros(0)
    pairs = torch.triu_indices(self.shape[0], self.shape[0], 1)
    return _distance(self[pairs[0]] - self[pairs[1]], p)


def _distance(difference: Tensor, p: float) -> Tensor:
    size = difference.abs()
    if p == 0:
        return (size != 0).to(size.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (size * size).sum(-1).sqrt()
    if math.isinf(p):
        return size.amax(-1)
    total: Tensor = (size**p).sum(-1) ** (1 / p)
    return total


@_for(_aten.conv_tbc.default)
def _conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    result = torch.nn.functional.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return result.permute(2, 0, 1)


@_for(_aten.rrelu_with_noise_functional.default, _aten.rrelu_with_noise.default)
def _rrelu(
    self: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    del training, generator  # a model in training mode draws, and its draws are an error before this
    return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise


@_for(_aten.avg_pool2d.default)
def _avg_pool2d(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The exporter counts what ``ceil_mode`` and padding add, and leaves another divisor out."""
    kernel = (list(kernel_size) * 2)[:2]
    stride, padding = (list(stride or kernel) * 2)[:2], (list(padding) * 2)[:2]
    if not ceil_mode and divisor_override is None and not any(padding):
        return NotImplemented
    ends, counts = [], []
    for size, window, step, edge in zip(self.shape[-2:], kernel, stride, padding, strict=True):
        span = size + 2 * edge - window
        cells = (-(-span // step) if ceil_mode else span // step) + 1
        if ceil_mode and (cells - 1) * step >= size + edge:
            cells -= 1
        ends.append((cells - 1) * step + window - size - edge)
        low, high = (-edge, size + edge) if count_include_pad else (0, size)
        starts = torch.arange(cells) * step - edge
        counts.append((starts + window).clamp(max=high) - starts.clamp(min=low))
    padded = torch.nn.functional.pad(self, (padding[1], max(ends[1], 0), padding[0], max(ends[0], 0)))
    area = math.prod(kernel)
    divisors = counts[0].unsqueeze(1) * counts[1]
    if divisor_override is not None:
        divisors = torch.full_like(divisors, divisor_override)
    averaged = torch.nn.functional.avg_pool2d(padded, kernel, stride)
    return averaged[..., : counts[0].shape[0], : counts[1].shape[0]] * (area / divisors).to(self.dtype)


@_for(_aten._adaptive_avg_pool3d.default, _aten.adaptive_avg_pool3d.default)
def _adaptive_avg_pool3d(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """One dimension after the other: all cells of a box weigh the same."""
    for dim, size in zip((-3, -2, -1), output_size, strict=True):
        self = torch.stack([cell.mean(dim) for cell in _cells(self, dim, size)], dim)
    return self


@_for(_aten.adaptive_max_pool2d.default, _aten.adaptive_max_pool3d.default)
def _adaptive_max_pool(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Flattened boxes: the largest of each, and where it was in the whole plane."""
    rank = len(output_size)
    plane = self.shape[-rank:]
    places = torch.arange(math.prod(plane)).reshape(plane)
    boxes = [(self, places)]
    for dim, size in zip(range(-rank, 0), output_size, strict=True):
        boxes = [
            pair
            for value, place in boxes
            for pair in zip(_cells(value, dim, size), _cells(place, dim, size), strict=True)
        ]
    values, at = [], []
    for value, place in boxes:
        flat = value.reshape(*self.shape[:-rank], -1)
        values.append(flat.amax(-1))
        at.append(place.reshape(-1)[flat.argmax(-1)])
    shape = (*self.shape[:-rank], *output_size)
    return torch.stack(values, -1).reshape(shape), torch.stack(at, -1).reshape(shape)


def _cells(self: Tensor, dim: int, size: int) -> list[Tensor]:
    length = self.shape[dim]
    starts = [(index * length) // size for index in range(size)]
    ends = [-((-(index + 1) * length) // size) for index in range(size)]
    return [self.narrow(dim, start, end - start) for start, end in zip(starts, ends, strict=True)]


# --- linear algebra, unrolled --------------------------------------------------------------------------------------


@_for(_aten.linalg_cholesky_ex.default)
def _cholesky_ex(self: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    del check_errors
    size = self.shape[-1]
    given = self.mT if upper else self
    columns: list[Tensor] = []
    for j in range(size):
        rest = given[..., j:, j]
        if columns:
            done = torch.stack([column[..., j:] for column in columns], -1)
            rest = rest - (done * done[..., :1, :]).sum(-1)
        column = rest / rest[..., :1].sqrt()
        columns.append(torch.nn.functional.pad(column, (j, 0)))
    lower = torch.stack(columns, -1) if columns else given.clone()
    info = torch.zeros(self.shape[:-2], dtype=torch.int32)
    return (lower.mT if upper else lower), info


@_for(*_older("cholesky"))
def _cholesky(self: Tensor, upper: bool = False) -> Tensor:
    return _cholesky_ex(self, upper=upper)[0]  # type: ignore[no-any-return]


@_for(_aten.linalg_solve_triangular.default)
def _solve_triangular(
    self: Tensor,
    B: Tensor,  # noqa: N803
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Tensor:
    if not left:
        return _solve_triangular(self.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT  # type: ignore[no-any-return]
    size = self.shape[-1]
    rows: dict[int, Tensor] = {}
    for i in reversed(range(size)) if upper else range(size):
        row = B[..., i : i + 1, :]
        for j, done in rows.items():
            row = row - self[..., i : i + 1, j : j + 1] * done
        rows[i] = row if unitriangular else row / self[..., i : i + 1, i : i + 1]
    if not rows:
        return B.clone()
    shape = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        *(row.shape for row in rows.values())
    )
    return torch.cat([rows[i].expand(shape) for i in range(size)], -2)


@_for(_aten.triangular_solve.default)
def _triangular_solve(
    self: Tensor,
    A: Tensor,  # noqa: N803
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    matrix, above = (A.mT, not upper) if transpose else (A, upper)
    return _solve_triangular(matrix, self, upper=above, unitriangular=unitriangular), A.clone()


@_for(_aten.cholesky_solve.default)
def _cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    lower = input2.mT if upper else input2
    half = _solve_triangular(lower, self, upper=False)
    return _solve_triangular(lower.mT, half, upper=True)  # type: ignore[no-any-return]


@_for(_aten.cholesky_inverse.default)
def _cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    identity = torch.eye(self.shape[-1], dtype=self.dtype).expand(self.shape)
    return _cholesky_solve(identity, self, upper)  # type: ignore[no-any-return]


def _factored(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """LU in one matrix with partial pivoting, as LAPACK does it, and the row that each step swapped with (from 0)."""
    size, width = matrix.shape[-2:]
    rows = torch.arange(size)
    swaps = []
    for k in range(min(size, width)):
        pivot = matrix[..., k:, k].abs().argmax(-1, keepdim=True) + k
        swaps.append(pivot)
        swapped = torch.where(rows == k, pivot, torch.where(rows == pivot, k, rows))
        matrix = matrix.gather(-2, swapped.unsqueeze(-1).expand(matrix.shape))
        below = rows > k
        factor = torch.where(below, matrix[..., k] / matrix[..., k : k + 1, k], 0.0)
        kept = torch.where(torch.arange(width) > k, matrix[..., k, :], 0.0)
        changed = matrix - factor.unsqueeze(-1) * kept.unsqueeze(-2)
        column = torch.where(below, factor, matrix[..., k]).unsqueeze(-1)
        matrix = torch.where(torch.arange(width) == k, column, changed)
    return matrix, torch.cat(swaps, -1)


def _permuted(right: Tensor, swaps: Tensor) -> Tensor:
    rows = torch.arange(right.shape[-2])
    for k in range(swaps.shape[-1]):
        pivot = swaps[..., k : k + 1]
        order = torch.where(rows == k, pivot, torch.where(rows == pivot, k, rows))
        right = (order.unsqueeze(-1) == rows).to(right.dtype) @ right
    return right


def _solved(factors: Tensor, swaps: Tensor, right: Tensor) -> Tensor:
    half = _solve_triangular(factors, _permuted(right, swaps), upper=False, unitriangular=True)
    return _solve_triangular(factors, half, upper=True)  # type: ignore[no-any-return]


def _solved_transposed(factors: Tensor, swaps: Tensor, right: Tensor) -> Tensor:
    half = _solve_triangular(factors.mT, right, upper=False)
    whole = _solve_triangular(factors.mT, half, upper=True, unitriangular=True)
    for k in reversed(range(swaps.shape[-1])):  # the swaps undo themselves, the last one first
        rows, pivot = torch.arange(whole.shape[-2]), swaps[..., k : k + 1]
        order = torch.where(rows == k, pivot, torch.where(rows == pivot, k, rows))
        whole = (order.unsqueeze(-1) == rows).to(whole.dtype) @ whole
    return whole  # type: ignore[no-any-return]


@_for(_aten.linalg_inv_ex.default)
def _inv_ex(self: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    del check_errors
    info = torch.zeros(self.shape[:-2], dtype=torch.int32)
    if self.shape[-1] == 0:
        return self.clone(), info
    identity = torch.eye(self.shape[-1], dtype=self.dtype).expand(self.shape)
    return _solved(*_factored(self), identity), info


@_for(_aten._linalg_solve_ex.default)
def _solve_ex(
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    *,
    left: bool = True,
    check_errors: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del check_errors
    info = torch.zeros(A.shape[:-2], dtype=torch.int32)
    matrix = A if left else A.mT
    is_vector = B.dim() == 1 or B.shape == A.shape[:-1]
    right = B.unsqueeze(-1) if is_vector else (B if left else B.mT)
    factors, swaps = _factored(matrix)
    result = _solved(factors, swaps, right)
    result = result.squeeze(-1) if is_vector else (result if left else result.mT)
    return result, factors, (swaps + 1).to(torch.int32), info


# Composed ones, whose parts would come to light in the exporter only.
@_for(_aten.inverse.default, _aten.linalg_inv.default)
def _inverse(self: Tensor) -> Tensor:
    return _inv_ex(self)[0]  # type: ignore[no-any-return]


@_for(_aten.linalg_cholesky.default)
def _linalg_cholesky(self: Tensor, *, upper: bool = False) -> Tensor:
    return _cholesky_ex(self, upper=upper)[0]  # type: ignore[no-any-return]


@_for(_aten.linalg_solve.default)
def _solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803
    return _solve_ex(A, B, left=left)[0]  # type: ignore[no-any-return]


@_for(_aten.linalg_solve_ex.default)
def _solve_and_info(
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    *,
    left: bool = True,
    check_errors: bool = False,
) -> tuple[Tensor, Tensor]:
    del check_errors
    result, _, _, info = _solve_ex(A, B, left=left)
    return result, info


@_for(_aten.slogdet.default, _aten.linalg_slogdet.default)
def _slogdet_alone(self: Tensor) -> tuple[Tensor, Tensor]:
    return _slogdet(self)[:2]  # type: ignore[no-any-return]


@_for(_aten.linalg_lu_factor.default)
def _lu_factor(self: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    return _lu_factor_ex(self, pivot=pivot)[:2]  # type: ignore[no-any-return]


@_for(_aten.linalg_tensorsolve.default)
def _tensorsolve(self: Tensor, other: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    if dims:
        moved = [axis % self.dim() for axis in dims]
        self = self.movedim(moved, list(range(self.dim() - len(moved), self.dim())))
    shape = self.shape[other.dim() :]
    size = math.prod(shape)
    return _solve(self.reshape(size, size), other.reshape(-1)).reshape(shape)  # type: ignore[no-any-return]


@_for(_aten.linalg_tensorinv.default)
def _tensorinv(self: Tensor, ind: int = 2) -> Tensor:
    size = math.prod(self.shape[ind:])
    inverse: Tensor = _inverse(self.reshape(size, size))
    return inverse.reshape(*self.shape[ind:], *self.shape[:ind])


@_for(*_older("qr"))
def _old_qr(self: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    return _qr(self, "reduced" if some else "complete")  # type: ignore[no-any-return]


@_for(_aten.linalg_vander.default)
def _vander(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803
    x = x if x.dim() else x.unsqueeze(0)
    number = x.shape[-1] if N is None else N
    columns = [torch.ones_like(x if x.dtype.is_floating_point or x.dtype.is_complex else x.to(torch.int64))]
    for _ in range(number - 1):
        columns.append(columns[-1] * x)
    return torch.stack(columns[:number], -1)


@_for(_aten.linalg_lu_factor_ex.default)
def _lu_factor_ex(self: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    del pivot, check_errors
    factors, swaps = _factored(self)
    return factors, (swaps + 1).to(torch.int32), torch.zeros(self.shape[:-2], dtype=torch.int32)


@_for(_aten.linalg_lu_solve.default)
def _lu_solve(
    LU: Tensor,  # noqa: N803
    pivots: Tensor,
    B: Tensor,  # noqa: N803
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Tensor:
    swaps = pivots.to(torch.int64) - 1
    right = B if left else B.mT
    # From the right is from the left with both sides transposed; of real matrices that is the adjoint.
    result = _solved_transposed(LU, swaps, right) if adjoint == left else _solved(LU, swaps, right)
    return result if left else result.mT


@_for(_aten._linalg_slogdet.default)
def _slogdet(self: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors, swaps = _factored(self)
    diagonal = factors.diagonal(0, -2, -1)
    odd = (swaps != torch.arange(swaps.shape[-1])).to(torch.int64).sum(-1) % 2
    sign = diagonal.sign().prod(-1) * (1 - 2 * odd).to(self.dtype)
    return sign, diagonal.abs().log().sum(-1), factors, (swaps + 1).to(torch.int32)


@_for(_aten.linalg_qr.default)
def _qr(self: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Householder's reflections, with the signs of LAPACK."""
    rows, columns = self.shape[-2:]
    steps = min(rows, columns)
    upper = self
    whole = torch.eye(rows, dtype=self.dtype).expand(*self.shape[:-2], rows, rows)
    for k in range(min(rows - 1, columns)):
        head = upper[..., k:, k]
        first = head[..., :1]
        length = (head * head).sum(-1, keepdim=True).sqrt()
        # LAPACK leaves a column alone that is zero below its head.
        idle = (head[..., 1:] == 0).all(-1, keepdim=True)
        beta = torch.where(first < 0, length, -length)
        vector = torch.cat([first - beta, head[..., 1:]], -1)
        norm = (vector * vector).sum(-1, keepdim=True)
        vector = torch.nn.functional.pad(vector, (k, 0)).unsqueeze(-1)
        scale = torch.where(idle, 0.0, 2 / torch.where(norm == 0, 1.0, norm)).unsqueeze(-1)
        upper = upper - scale * vector @ (vector.mT @ upper)
        whole = whole - scale * (whole @ vector) @ vector.mT
    if mode == "complete":
        return whole, upper.triu()
    return whole[..., :steps] if mode != "r" else self.new_zeros(0), upper[..., :steps, :].triu()


@_for(_aten._masked_softmax.default)
def _masked_softmax(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    """``mask_type``: 0 for a mask (length, length), 1 for one (batch, length), 2 for one of the whole shape."""
    if mask_type == 0:
        mask = mask.reshape(1, 1, *mask.shape)
    elif mask_type == 1:
        mask = mask.reshape(mask.shape[0], 1, 1, mask.shape[1])
    axis = self.dim() - 1 if dim is None else dim
    return torch.softmax(self.masked_fill(mask, float("-inf")), axis)


@_for(_aten.unfold_backward.default)
def _unfold_backward(grad: Tensor, input_size: Sequence[int], dim: int, size: int, step: int) -> Tensor:
    """What is written through windows: torch's own form counts places in int32, which no ScatterND takes."""
    if not input_size:
        return grad.squeeze(0)
    axis = dim % len(input_size)
    whole = grad.new_zeros(tuple(input_size))
    windows = grad.shape[axis]
    for offset in reversed(range(size)):  # the order in which torch's kernel adds what overlaps
        places = torch.arange(windows, dtype=torch.int64) * step + offset
        whole = whole.index_add(axis, places, grad.select(-1, offset))
    return whole
