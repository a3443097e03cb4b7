"""Composed ATen calls that torch's ONNX exporter gets wrong, depending on their arguments, in terms of others.

What it lacks altogether is in ``_onnx_decompositions``. A row is asked while the exported program is decomposed and
answers ``NotImplemented`` where the exporter's own translation of the call is right; then the call stays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import fx

_aten: Any = torch.ops.aten


class NoFormError(Exception):
    """A call for which there is no form that computes the same."""


def in_known_forms(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with every call of ``_FORMS`` rewritten; the same program where it has none.

    Raises: NoFormError, while a local variable of its traceback holds the node.
    """
    if not any(_may_need(node) for node in program.graph.nodes):
        return program
    return cast("torch.export.ExportedProgram", program.run_decompositions(_FORMS))


def _may_need(node: fx.Node) -> bool:
    """Decomposing takes as long as exporting: not for common calls that are fine as they are.

    Views of writes become calls of ``_FORMS`` on the way, so that a program with such views may need it.
    """
    if node.target in _WRITTEN:
        return True
    if node.target not in _FORMS:
        return False
    if node.target is _aten.index.Tensor:
        indices: Any = node.args[1]
        return any(each is not None and each.meta["val"].dtype == torch.int32 for each in indices)
    if node.target is _aten.scaled_dot_product_attention.default:
        return (node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")) is not None
    if node.target is _aten.lstm.input:
        state: Any = node.args[1]
        return bool(state[0].meta["val"].shape[-1] != state[1].meta["val"].shape[-1])
    if _FORMS[node.target] is _resampled:
        image: Any = node.args[0]
        return not image.meta["val"].is_floating_point()
    if node.target in _OF_DOUBLES:
        return bool(node.meta["val"].dtype == torch.float64)
    return True


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention whose mask may hide all keys from a query: torch gives zeros there, the exporter's form a mean."""
    if attn_mask is None or dropout_p or is_causal:
        return NotImplemented
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], dim=-3) for each in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
    else:
        scores = scores + attn_mask
    hidden = (scores == -math.inf).all(dim=-1, keepdim=True)
    # All hidden: any finite score keeps softmax from 0 / 0; its weights are dropped.
    weights = scores.masked_fill(hidden, 0.0).softmax(dim=-1).masked_fill(hidden, 0.0)
    return weights @ value


def _cross_entropy(
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Cross entropy; the exporter's form forgets the weights of smoothed labels, and knows no probabilities."""
    if target.dtype == scores.dtype and target.shape == scores.shape:
        classes = 0 if scores.dim() == 1 else 1
        count = scores.shape[classes]
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / count
        losses = -(scores.log_softmax(classes) * target)
        if weight is not None:
            losses = losses * weight.reshape([count if dim == classes else 1 for dim in range(scores.dim())])
        losses = losses.sum(classes)
        batch = scores.numel() // count
        return losses if reduction == 0 else losses.sum() / batch if reduction == 1 else losses.sum()
    if not label_smoothing:
        return NotImplemented
    classes = 0 if scores.dim() == 1 else 1
    count = scores.shape[classes]
    logs = scores.log_softmax(classes)
    ignored = target == ignore_index
    chosen = target.masked_fill(ignored, 0)
    each = torch.ones_like(scores) if weight is None else weight.reshape(
        [count if dim == classes else 1 for dim in range(scores.dim())]
    ).expand(scores.shape)  # fmt: skip
    index = chosen.unsqueeze(classes)
    weights = each.gather(classes, index).squeeze(classes).masked_fill(ignored, 0.0)
    plain = -logs.gather(classes, index).squeeze(classes) * weights
    smooth = -(logs * each).sum(classes).masked_fill(ignored, 0.0)
    losses = plain * (1 - label_smoothing) + smooth * (label_smoothing / count)
    return losses if reduction == 0 else losses.sum() / weights.sum() if reduction == 1 else losses.sum()


def _multilabel_margin(scores: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> Any:
    """Multi-label margin loss: target lists the right classes of a sample up to the first -1."""
    listed = (target < 0).to(torch.int64).cumsum(dim=-1) == 0
    index = target.masked_fill(listed.logical_not(), 0)
    count = scores.shape[-1]
    classes = torch.arange(count)
    right = ((index.unsqueeze(-1) == classes) & listed.unsqueeze(-1)).any(dim=-2)
    margin = 1 - scores.gather(-1, index).unsqueeze(-1) + scores.unsqueeze(-2)
    counted = listed.unsqueeze(-1) & right.logical_not().unsqueeze(-2)
    losses = margin.clamp(min=0).masked_fill(counted.logical_not(), 0.0).sum(dim=(-2, -1)) / count
    return losses if reduction == 0 else losses.mean() if reduction == 1 else losses.sum()


def _projected_lstm(
    inputs: torch.Tensor,
    state: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """An LSTM whose hidden state is projected: ONNX has none, so that its steps are written out."""
    hidden, cell = state
    if hidden.shape[-1] == cell.shape[-1]:
        return NotImplemented
    if dropout and train:
        return NotImplemented
    outputs = inputs.transpose(0, 1) if batch_first else inputs
    count = 5 if has_biases else 3
    directions = 2 if bidirectional else 1
    last_hidden, last_cell = [], []
    for layer in range(num_layers):
        ways = []
        for direction in range(directions):
            number = layer * directions + direction
            own = weights[number * count : (number + 1) * count]
            steps, h, c = _lstm_steps(outputs, hidden[number], cell[number], own, reverse=direction == 1)
            ways.append(steps)
            last_hidden.append(h)
            last_cell.append(c)
        outputs = torch.cat(ways, dim=-1) if directions == 2 else ways[0]
    if batch_first:
        outputs = outputs.transpose(0, 1)
    return outputs, torch.stack(last_hidden), torch.stack(last_cell)


def _lstm_steps(
    inputs: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: Sequence[torch.Tensor], *, reverse: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    from_input, from_hidden, *biases, projection = weights
    gates_of_inputs = torch.nn.functional.linear(inputs, from_input, biases[0] if biases else None)
    outputs = []
    for step in reversed(range(inputs.shape[0])) if reverse else range(inputs.shape[0]):
        gates = gates_of_inputs[step] + torch.nn.functional.linear(h, from_hidden, biases[1] if biases else None)
        take, forget, new, give = gates.chunk(4, dim=-1)
        c = forget.sigmoid() * c + take.sigmoid() * new.tanh()
        h = torch.nn.functional.linear(give.sigmoid() * c.tanh(), projection)
        outputs.append(h)
    return torch.stack(outputs[::-1] if reverse else outputs), h, c


_HALF_PI: Final = (1.57079637050628662109375, -4.371139000186243e-8)
"""Half of pi in two parts that float32 holds: the exporter rounds Python's numbers to that, in float64 graphs too."""


def _asin_small(x: torch.Tensor) -> torch.Tensor:
    """Asin of 0 .. 0.75 in float64: the float32 kernel, and two steps of Newton, whose slope is no smaller than 0.6."""
    angle = x.float().asin().double()
    for _ in range(2):
        angle = angle - (angle.sin() - x) / angle.cos()
    return angle


def _asin(x: torch.Tensor) -> Any:
    """Onnxruntime has inverse functions of float32 alone."""
    if x.dtype != torch.float64:
        return NotImplemented
    size = x.abs()
    near_one = _HALF_PI[0] - 2 * _asin_small(((1 - size).clamp(min=0) / 2).sqrt()) + _HALF_PI[1]
    angle = torch.where(size <= 0.5, _asin_small(size.clamp(max=0.5)), near_one)
    return torch.where(size > 1, math.nan, torch.where(x < 0, -angle, angle))


def _acos(x: torch.Tensor) -> Any:
    """As ``_asin``; near 1 the angle is small, and taken from its half."""
    if x.dtype != torch.float64:
        return NotImplemented
    size = x.abs()
    far = 2 * _asin_small(((1 - size).clamp(min=0) / 2).sqrt())
    near = _HALF_PI[0] - _asin_small(size.clamp(max=0.5)) + _HALF_PI[1]
    angle = torch.where(size <= 0.5, near, far)
    return torch.where(size > 1, math.nan, torch.where(x < 0, 2 * _HALF_PI[0] - angle + 2 * _HALF_PI[1], angle))


def _atan(x: torch.Tensor) -> Any:
    """As ``_asin``; of the inverse where that is smaller."""
    if x.dtype != torch.float64:
        return NotImplemented
    size = x.abs()
    steep = size > 1
    ratio = torch.where(steep, 1 / size, size)
    angle = _asin(ratio / (1 + ratio * ratio).sqrt())
    angle = torch.where(steep, _HALF_PI[0] - angle + _HALF_PI[1], angle)
    return torch.where(x < 0, -angle, angle)


def _atan2(y: torch.Tensor, x: torch.Tensor) -> Any:
    """As ``_asin``: the angle to the nearer axis, and from there around."""
    if y.dtype != torch.float64 or x.dtype != torch.float64:
        return NotImplemented
    wide, high = x.abs(), y.abs()
    near, far = torch.minimum(wide, high), torch.maximum(wide, high)
    ratio = torch.where(far == 0, 0.0, torch.where(near == far, 1.0, near / far))
    angle = _asin(ratio / (1 + ratio * ratio).sqrt())
    angle = torch.where(high > wide, _HALF_PI[0] - angle + _HALF_PI[1], angle)
    angle = torch.where(_below_zero(x), 2 * _HALF_PI[0] - angle + 2 * _HALF_PI[1], angle)
    angle = torch.where(_below_zero(y), -angle, angle)
    return torch.where(torch.isnan(x) | torch.isnan(y), math.nan, angle)


def _below_zero(x: torch.Tensor) -> torch.Tensor:
    """The sign, also of zero: the exporter's own is that of the value."""
    return (x < 0) | (1 / x < 0)


def _tan(x: torch.Tensor) -> Any:
    """Onnxruntime has sine and cosine of float64, and no tangent."""
    return x.sin() / x.cos() if x.dtype == torch.float64 else NotImplemented


def _sinh_small(x: torch.Tensor) -> torch.Tensor:
    """Sinh of -1 .. 1: its series, from the last term that float64 sees."""
    square, total = x * x, torch.ones_like(x)
    for place in range(18, 0, -2):
        total = 1 + square / (place * (place + 1)) * total
    return x * total


def _sinh(x: torch.Tensor) -> Any:
    """As ``_tan``, from exponentials."""
    if x.dtype != torch.float64:
        return NotImplemented
    return torch.where(x.abs() < 1, _sinh_small(x.clamp(-1, 1)), (x.exp() - (-x).exp()) / 2)


def _cosh(x: torch.Tensor) -> Any:
    """As ``_sinh``."""
    return (x.exp() + (-x).exp()) / 2 if x.dtype == torch.float64 else NotImplemented


def _asinh(x: torch.Tensor) -> Any:
    """As ``_asin``: small ones by Newton, large ones by the logarithm, huge ones without a square."""
    if x.dtype != torch.float64:
        return NotImplemented
    size = x.abs()
    small = size.clamp(max=1)
    near = small.float().asinh().double()
    for _ in range(2):
        near = near - (_sinh_small(near) - small) / ((near.exp() + (-near).exp()) / 2)
    some = size.clamp(max=1e9)
    far = torch.where(size > 1e9, (2 * size).log(), (some + (some * some + 1).sqrt()).log())
    found = torch.where(size < 1, near, far)
    return torch.where(x < 0, -found, found)


def _acosh(x: torch.Tensor) -> Any:
    """As ``_asinh``, of half the way: near 1 the result is small."""
    return 2 * _asinh(((x - 1) / 2).sqrt()) if x.dtype == torch.float64 else NotImplemented


def _atanh(x: torch.Tensor) -> Any:
    """As ``_asinh``."""
    if x.dtype != torch.float64:
        return NotImplemented
    small = x.clamp(-0.5, 0.5)
    near = small.float().atanh().double()
    for _ in range(2):
        tangent = near.tanh()
        near = near - (tangent - small) / (1 - tangent * tangent)
    return torch.where(x.abs() < 0.5, near, ((1 + x) / (1 - x)).log() / 2)


def _index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> Any:
    """The exporter takes the indices for those of whole elements, whatever the shape; ONNX scatters over no scalar."""
    if not x.dim():
        return _index_copy(x.reshape(1), 0, index, source.reshape(1)).reshape(())
    shape = [-1 if each == dim % x.dim() else 1 for each in range(x.dim())]
    return x.scatter(dim, index.reshape(shape).expand(source.shape), source)


def _index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    """As ``_index_copy``."""
    if not x.dim():
        return _index_fill(x.reshape(1), 0, index, value).reshape(())
    shape = [-1 if each == dim % x.dim() else 1 for each in range(x.dim())]
    wide = [index.numel() if each == dim % x.dim() else size for each, size in enumerate(x.shape)]
    source = torch.zeros(wide, dtype=x.dtype) + value
    return x.scatter(dim, index.reshape(shape).expand(wide), source.to(x.dtype))


def _fractional_max_pool(
    x: torch.Tensor, kernel_size: Sequence[int], output_size: Sequence[int], samples: torch.Tensor
) -> Any:
    """Windows lie where the random samples say; those are an input like any other."""
    rank = len(output_size)
    sizes = list(x.shape[-rank:])
    # Two dimensions take their samples in the other order than three.
    order = list(range(rank)) if rank == 3 else [1, 0]
    lead = list(x.shape[:-rank])
    places = torch.zeros((*lead, *(1,) * (2 * rank)), dtype=torch.int64)
    for dim, (size, count, kernel) in enumerate(zip(sizes, output_size, kernel_size, strict=True)):
        sample = samples[..., order[dim]].reshape(*lead, 1)
        step = (size - kernel) / (count - 1) if count > 1 else 0.0
        cells = torch.arange(count)
        first = ((cells + sample) * step).to(torch.int64) - (sample * step).to(torch.int64)
        first = torch.where(cells == count - 1, size - kernel, first)
        inside = first.unsqueeze(-1) + torch.arange(kernel)
        shape = [1] * (2 * rank)
        shape[dim], shape[rank + dim] = count, kernel
        places = places + inside.reshape(*lead, *shape) * math.prod(sizes[dim + 1 :])
    places = places.flatten(-rank).flatten(-rank - 1, -2)
    seen = x.flatten(-rank).unsqueeze(-2).expand(*lead, places.shape[-2], math.prod(sizes)).gather(-1, places)
    values, at = seen.max(dim=-1)
    found = places.gather(-1, at.unsqueeze(-1)).squeeze(-1)
    return values.reshape(*lead, *output_size), found.reshape(*lead, *output_size)


def _indexed(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """ONNX gathers by int64 alone."""
    if all(each is None or each.dtype != torch.int32 for each in indices):
        return NotImplemented
    wide = [each if each is None or each.dtype != torch.int32 else each.to(torch.int64) for each in indices]
    return _aten.index.Tensor(x, wide)


def _resampled(x: torch.Tensor, *_: Any, **__: Any) -> Any:
    """Torch resamples bytes in fixed point, and rounds as no ONNX operator does."""
    if not x.is_floating_point():
        raise NoFormError(f"{x.dtype} images are resampled in fixed point; convert to float32 before")
    return NotImplemented


_OF_DOUBLES: Final[dict[Any, Callable[..., Any]]] = {
    _aten.acos.default: _acos,
    _aten.acosh.default: _acosh,
    _aten.asin.default: _asin,
    _aten.asinh.default: _asinh,
    _aten.atan.default: _atan,
    _aten.atan2.default: _atan2,
    _aten.atanh.default: _atanh,
    _aten.cosh.default: _cosh,
    _aten.sinh.default: _sinh,
    _aten.tan.default: _tan,
}
"""What onnxruntime has of float32 alone."""

_FORMS: Final[dict[Any, Callable[..., Any]]] = {
    _aten.scaled_dot_product_attention.default: _attention,
    _aten.cross_entropy_loss.default: _cross_entropy,
    _aten.multilabel_margin_loss.default: _multilabel_margin,
    _aten.lstm.input: _projected_lstm,
    **_OF_DOUBLES,
    _aten.index_copy.default: _index_copy,
    _aten.index_fill.int_Scalar: _index_fill,
    _aten.index_fill.int_Tensor: _index_fill,
    _aten.fractional_max_pool2d.default: _fractional_max_pool,
    _aten.fractional_max_pool3d.default: _fractional_max_pool,
    _aten.index.Tensor: _indexed,
    **{
        overload: _resampled
        for name in (
            "_upsample_bilinear2d_aa",
            "_upsample_bicubic2d_aa",
            "upsample_bilinear2d",
            "upsample_bicubic2d",
        )
        for overload in (getattr(_aten, name).default, getattr(_aten, name).vec)
    },
}

_WRITTEN: Final = frozenset((_aten.index_copy_.default, _aten.index_fill_.int_Scalar, _aten.index_fill_.int_Tensor))
"""What becomes a call of ``_FORMS`` when writes become values."""
