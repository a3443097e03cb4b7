"""Torch's fused attention, written with the public functions that its CPU kernels are made of.

In evaluation ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` call one operation of torch's each, which no
format but torch's own holds. The steps here, their order and the multiplication by ``1 / sqrt(width)`` are those of
``aten/src/ATen/native/transformers`` in PyTorch: the recording gives the fused kernel's values bit for bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYER: Any = torch._transformer_encoder_layer_fwd
MULTI_HEAD: Any = torch._native_multi_head_attention


class Masked(NamedTuple):
    """The mask of one attention: a graph node, the tensor it stands for, and torch's number for what it masks."""

    node: Any
    tensor: Any
    kind: Any


def _attention(
    emit: Any, source: Any, shape: tuple[int, ...], heads: int, weights: Sequence[Any], masked: Masked
) -> tuple[Any, Any]:
    """Self-attention of a batch (batch, length, width); the result and the attention weights per head."""
    batch, length, width = shape
    per_head = width // heads
    weight, bias, out_weight, out_bias = weights
    whole = (batch, length, 3, heads, per_head)
    one = (batch, length, heads, per_head)
    turned = emit(torch.t, weight, shape=(width, 3 * width))
    projected = emit(torch.matmul, source, turned, shape=(batch, length, 3 * width))
    projected = emit(torch.reshape, projected, whole, shape=whole)
    biases = emit(torch.reshape, bias, (3, heads, per_head), shape=(3, heads, per_head))
    parts = []
    for index in range(3):
        part = emit(torch.select, projected, 2, index, shape=one)
        part = emit(torch.add, part, emit(torch.select, biases, 0, index, shape=(heads, per_head)), shape=one)
        if index == 0:
            part = emit(torch.mul, part, 1 / math.sqrt(per_head), shape=one)
        part = emit(torch.transpose, part, 1, 2, shape=(batch, heads, length, per_head))
        flat = (batch * heads, length, per_head)
        parts.append(emit(torch.reshape, part, flat, shape=flat))
    query, key, value = parts
    square = (batch, heads, length, length)
    flat_square = (batch * heads, length, length)
    turned = emit(torch.transpose, key, 1, 2, shape=(batch * heads, per_head, length))
    scores = emit(torch.reshape, emit(torch.bmm, query, turned, shape=flat_square), square, shape=square)
    if masked.node is None:
        share = emit(torch.softmax, scores, -1, shape=square)
    else:
        mask = masked.node
        if masked.tensor.dtype is not torch.bool:
            mask = emit("to", mask, torch.bool, shape=tuple(masked.tensor.shape), stored=torch.bool)
        share = emit(torch._masked_softmax, scores, mask, 3, masked.kind, shape=square)
    flat_share = emit(torch.reshape, share, flat_square, shape=flat_square)
    mixed = emit(torch.bmm, flat_share, value, shape=(batch * heads, length, per_head))
    mixed = emit(torch.reshape, mixed, (batch, heads, length, per_head), shape=(batch, heads, length, per_head))
    mixed = emit(torch.transpose, mixed, 1, 2, shape=one)
    mixed = emit(torch.reshape, mixed, (batch, length, width), shape=shape)
    return emit(torch.nn.functional.linear, mixed, out_weight, out_bias, shape=shape), share


def multi_head(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> tuple[Any, Any]:
    """``_native_multi_head_attention`` of one sequence with itself."""
    query, _, _, width, heads, *weights = args[:9]
    mask, need_weights, averaged, kind = args[9:13]
    batch, length, _ = eager[0].shape
    result, share = _attention(emit, query, (batch, length, width), heads, weights, Masked(mask, eager[9], kind))
    if not need_weights:
        return result, None
    if averaged:
        shape = (batch, length, length)
        summed = emit(torch.sum, share, 1, shape=shape)
        share = emit(torch.div, summed, heads, shape=shape)
    return result, share


def encoder_layer(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """``_transformer_encoder_layer_fwd``: attention and feed-forward with their residuals and norms."""
    source, width, heads, *weights = args[:7]
    gelu, norm_first, eps = args[7:10]
    norms = (args[10:12], args[12:14])
    first, second = args[14:16], args[16:18]
    mask, kind = args[18:20]
    shape = tuple(eager[0].shape)
    wide = (*shape[:2], eager[14].shape[0])

    def normed(value: Any, which: int) -> Any:
        return emit(torch.nn.functional.layer_norm, value, (width,), *norms[which], eps, shape=shape)

    value = normed(source, 0) if norm_first else source
    value, _ = _attention(emit, value, shape, heads, weights, Masked(mask, eager[18], kind))
    value = emit(torch.add, value, source, shape=shape)
    if not norm_first:
        value = normed(value, 0)
    kept = value
    if norm_first:
        value = normed(value, 1)
    value = emit(torch.nn.functional.linear, value, *first, shape=wide)
    value = emit(torch.nn.functional.gelu if gelu else torch.relu, value, shape=wide)
    value = emit(torch.nn.functional.linear, value, *second, shape=shape)
    value = emit(torch.add, value, kept, shape=shape)
    return value if norm_first else normed(value, 1)
