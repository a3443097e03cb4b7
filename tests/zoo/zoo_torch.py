"""Layers and functions of torch itself; each class of ``torch.nn`` is here or in ``LEFT_OUT`` with the reason."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn, rand, randint, randn
from torch.nn import functional as F
from zoo_item import Item, spread

ITEMS: list[Item] = []

LEFT_OUT = {
    "Container Module ModuleDict ModuleList ParameterDict ParameterList Sequential": "holds others, computes nothing",
    "RNNBase RNNCellBase": "the base of RNN, LSTM and GRU; has no forward of its own",
    "DataParallel": "several graphics cards",
    "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d "
    "LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear": (
        "becomes the class without Lazy at its first call"
    ),
}


def nn_item(name: str, build: Any, *shapes: tuple[int, ...], inputs: Any = None) -> None:
    """A layer ``torch.nn.NAME``, on normal inputs of these shapes unless ``inputs`` draws others."""
    draw = inputs or (lambda: tuple(randn(shape) for shape in shapes))
    ITEMS.append(Item(f"nn.{name}", lambda: spread(build()), draw))


def f_item(name: str, function: Any, inputs: Any) -> None:
    """A function under its public name."""
    ITEMS.append(Item(name, lambda: function, inputs))


# --- convolutions ----------------------------------------------------------------------------------------------------

SIZES = {1: (2, 4, 11), 2: (2, 4, 9, 10), 3: (1, 4, 5, 6, 7)}
for d, shape in SIZES.items():
    conv, transposed = getattr(nn, f"Conv{d}d"), getattr(nn, f"ConvTranspose{d}d")
    nn_item(f"Conv{d}d", partial(conv, 4, 6, 3), shape)
    nn_item(
        f"Conv{d}d/stride+dilation+groups+no-bias",
        partial(conv, 4, 6, 2, stride=2, dilation=2, groups=2, bias=False),
        shape,
    )
    for mode in ("reflect", "replicate", "circular"):
        nn_item(f"Conv{d}d/{mode}", partial(conv, 4, 3, 3, padding=1, padding_mode=mode), shape)
    nn_item(f"Conv{d}d/same", partial(conv, 4, 3, 4, padding="same"), shape)
    nn_item(f"Conv{d}d/unbatched", partial(conv, 4, 3, 3), shape[1:])
    nn_item(f"ConvTranspose{d}d", partial(transposed, 4, 6, 3), shape)
    nn_item(
        f"ConvTranspose{d}d/stride+padding+output_padding+groups",
        partial(transposed, 4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        shape,
    )

# --- pooling ---------------------------------------------------------------------------------------------------------

for d, shape in SIZES.items():
    nn_item(f"MaxPool{d}d", partial(getattr(nn, f"MaxPool{d}d"), 3, stride=2, padding=1), shape)
    nn_item(
        f"MaxPool{d}d/ceil+dilation+indices",
        partial(getattr(nn, f"MaxPool{d}d"), 2, stride=2, dilation=2, ceil_mode=True, return_indices=True),
        shape,
    )
    nn_item(f"AvgPool{d}d", partial(getattr(nn, f"AvgPool{d}d"), 3, stride=2, padding=1), shape)
    nn_item(
        f"AvgPool{d}d/ceil+no-pad",
        partial(getattr(nn, f"AvgPool{d}d"), 2, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        shape,
    )
    nn_item(f"LPPool{d}d", partial(getattr(nn, f"LPPool{d}d"), 2, 3, stride=2), shape)
    nn_item(f"AdaptiveAvgPool{d}d", partial(getattr(nn, f"AdaptiveAvgPool{d}d"), 1), shape)
    nn_item(f"AdaptiveAvgPool{d}d/uneven", partial(getattr(nn, f"AdaptiveAvgPool{d}d"), 3), shape)
    nn_item(f"AdaptiveMaxPool{d}d", partial(getattr(nn, f"AdaptiveMaxPool{d}d"), 1), shape)
    nn_item(f"AdaptiveMaxPool{d}d/uneven", partial(getattr(nn, f"AdaptiveMaxPool{d}d"), 3), shape)


class Unpooled(nn.Module):
    """The usual pair: the places of the largest elements come from the pooling before."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.pool = getattr(nn, f"MaxPool{d}d")(2, return_indices=True)
        self.unpool = getattr(nn, f"MaxUnpool{d}d")(2)

    def forward(self, x: torch.Tensor) -> Any:
        values, places = self.pool(x)
        return self.unpool(values * 2, places)


for d, shape in {1: (2, 3, 8), 2: (2, 3, 6, 8), 3: (1, 2, 4, 6, 4)}.items():
    nn_item(f"MaxUnpool{d}d", partial(Unpooled, d), shape)
for d in (2, 3):
    fractional = getattr(nn, f"FractionalMaxPool{d}d")
    nn_item(
        f"FractionalMaxPool{d}d",
        partial(fractional, 2, output_size=3, _random_samples=torch.full((2, 3, d), 0.4)),
        (2, 3, *(8,) * d),
    )

# --- padding ---------------------------------------------------------------------------------------------------------

for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular"):
    for d, shape in SIZES.items():
        extra = (0.5,) if kind == "Constant" else ()
        nn_item(f"{kind}Pad{d}d", partial(getattr(nn, f"{kind}Pad{d}d"), tuple(range(1, 2 * d + 1))[: 2 * d] if kind
                in ("Zero", "Constant") else (1, 2) * d, *extra), shape)  # fmt: skip
nn_item("ZeroPad2d/negative", partial(nn.ZeroPad2d, (-1, 2, 1, -2)), SIZES[2])

# --- activations -----------------------------------------------------------------------------------------------------

for name in (
    "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU LogSigmoid Mish PReLU RReLU ReLU ReLU6 "
    "SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink"
).split():
    nn_item(name, getattr(nn, name), inputs=lambda: (randn(3, 5) * 3,))
for name in "ReLU ELU LeakyReLU Hardtanh SiLU Threshold".split():
    arguments = (0.1, 20.0) if name == "Threshold" else ()
    nn_item(f"{name}/inplace", partial(getattr(nn, name), *arguments, inplace=True), inputs=lambda: (randn(3, 5) * 3,))
nn_item("GELU/tanh", partial(nn.GELU, approximate="tanh"), (3, 5))
nn_item("PReLU/channels", partial(nn.PReLU, 4), (2, 4, 3))
nn_item("Softplus/threshold", partial(nn.Softplus, beta=2.0, threshold=3.0), inputs=lambda: (randn(3, 5) * 3,))
nn_item("Threshold", partial(nn.Threshold, 0.1, 20.0), (3, 5))
nn_item("GLU", nn.GLU, (3, 6))
nn_item("GLU/dim", partial(nn.GLU, dim=0), (4, 3))
nn_item("Softmax", partial(nn.Softmax, dim=1), (3, 5))
nn_item("Softmin", partial(nn.Softmin, dim=0), (3, 5))
nn_item("LogSoftmax", partial(nn.LogSoftmax, dim=-1), (3, 5))
nn_item("Softmax2d", nn.Softmax2d, (2, 3, 4, 5))
nn_item(
    "AdaptiveLogSoftmaxWithLoss",
    partial(nn.AdaptiveLogSoftmaxWithLoss, 8, 12, [4, 8]),
    inputs=lambda: (randn(5, 8), randint(12, (5,))),
)
ITEMS.append(
    Item(
        "nn.AdaptiveLogSoftmaxWithLoss/log_prob",
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 8]).log_prob,
        lambda: (randn(5, 8),),
    )
)

# --- dropout in evaluation mode --------------------------------------------------------------------------------------

for name in "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout".split():
    nn_item(
        name, lambda name=name: nn.Sequential(nn.Flatten(2), nn.Linear(60, 8), getattr(nn, name)(0.5)), (2, 3, 3, 4, 5)
    )

# --- normalisation ---------------------------------------------------------------------------------------------------

for d, shape in SIZES.items():
    nn_item(f"BatchNorm{d}d", partial(getattr(nn, f"BatchNorm{d}d"), 4), shape)
    nn_item(f"InstanceNorm{d}d", partial(getattr(nn, f"InstanceNorm{d}d"), 4, affine=True), shape)
    nn_item(
        f"InstanceNorm{d}d/running",
        partial(getattr(nn, f"InstanceNorm{d}d"), 4, affine=True, track_running_stats=True),
        shape,
    )
nn_item("BatchNorm1d/two-dims", partial(nn.BatchNorm1d, 4), (3, 4))
nn_item("BatchNorm2d/batch-statistics", partial(nn.BatchNorm2d, 4, track_running_stats=False), SIZES[2])
nn_item("SyncBatchNorm", partial(nn.SyncBatchNorm, 4), SIZES[2])
nn_item("GroupNorm", partial(nn.GroupNorm, 2, 4), SIZES[2])
nn_item("LayerNorm", partial(nn.LayerNorm, 5), (2, 3, 5))
nn_item("LayerNorm/two-dims+no-affine", partial(nn.LayerNorm, (3, 5), elementwise_affine=False), (2, 3, 5))
nn_item("RMSNorm", partial(nn.RMSNorm, 5), (2, 3, 5))
nn_item("RMSNorm/eps", partial(nn.RMSNorm, (3, 5), eps=1e-3), (2, 3, 5))
nn_item("LocalResponseNorm", partial(nn.LocalResponseNorm, 3), SIZES[2])
nn_item("CrossMapLRN2d", partial(nn.CrossMapLRN2d, 3), SIZES[2])
for name in ("spectral_norm", "weight_norm", "orthogonal"):
    nn_item(
        f"Linear/{name}",
        lambda name=name: getattr(nn.utils.parametrizations, name)(nn.Linear(4, 5)),
        (3, 4),
    )

# --- linear, shape ---------------------------------------------------------------------------------------------------

nn_item("Linear", partial(nn.Linear, 4, 5), (3, 4))
nn_item("Linear/no-bias", partial(nn.Linear, 4, 5, bias=False), (2, 3, 4))
nn_item("Bilinear", partial(nn.Bilinear, 4, 5, 6), (3, 4), (3, 5))
nn_item("Flatten", lambda: nn.Flatten(1, 2), (2, 3, 4, 5))
nn_item("Unflatten", lambda: nn.Unflatten(1, (2, 3)), (2, 6, 4))
nn_item("Fold", partial(nn.Fold, (4, 5), (2, 2)), (2, 12, 12))
nn_item("Fold/stride+padding+dilation", partial(nn.Fold, (7, 8), (2, 3), dilation=2, padding=1, stride=2), (1, 12, 12))
nn_item("Unfold", partial(nn.Unfold, (2, 3)), (2, 3, 4, 5))
nn_item("Unfold/stride+padding+dilation", partial(nn.Unfold, (2, 2), dilation=2, padding=1, stride=2), (2, 3, 6, 7))
nn_item("PixelShuffle", partial(nn.PixelShuffle, 2), (2, 8, 3, 4))
nn_item("PixelUnshuffle", partial(nn.PixelUnshuffle, 2), (2, 3, 4, 6))
nn_item("ChannelShuffle", partial(nn.ChannelShuffle, 2), (2, 6, 4, 5))
nn_item("CosineSimilarity", partial(nn.CosineSimilarity, dim=1), (3, 5, 2), (3, 5, 2))
nn_item("PairwiseDistance", nn.PairwiseDistance, (3, 5), (3, 5))
nn_item("PairwiseDistance/p1+keepdim", partial(nn.PairwiseDistance, p=1.0, keepdim=True), (3, 5), (3, 5))

# --- resampling ------------------------------------------------------------------------------------------------------

for mode, shape in {"nearest": (2, 3, 5), "linear": (2, 3, 5)}.items():
    nn_item(f"Upsample/{mode}", partial(nn.Upsample, scale_factor=2, mode=mode), shape)
for mode in ("nearest", "bilinear", "bicubic"):
    nn_item(f"Upsample/{mode}-2d", partial(nn.Upsample, size=(7, 9), mode=mode), (1, 2, 4, 5))
for mode in ("nearest", "trilinear"):
    nn_item(f"Upsample/{mode}-3d", partial(nn.Upsample, scale_factor=(2, 3, 2), mode=mode), (1, 2, 3, 4, 3))
for mode in ("bilinear", "bicubic"):
    nn_item(
        f"Upsample/{mode}-corners", partial(nn.Upsample, scale_factor=2, mode=mode, align_corners=True), (1, 2, 4, 5)
    )
nn_item("UpsamplingBilinear2d", partial(nn.UpsamplingBilinear2d, scale_factor=2), (1, 2, 4, 5))
nn_item("UpsamplingNearest2d", partial(nn.UpsamplingNearest2d, size=(6, 7)), (1, 2, 4, 5))
for mode in ("nearest", "nearest-exact", "area", "bilinear", "bicubic"):
    f_item(f"F.interpolate/{mode}-down", partial(F.interpolate, size=(4, 3), mode=mode), lambda: (randn(1, 2, 8, 6),))
for mode in ("bilinear", "bicubic"):
    f_item(
        f"F.interpolate/{mode}-antialias",
        partial(F.interpolate, size=(4, 3), mode=mode, antialias=True),
        lambda: (randn(1, 2, 8, 6),),
    )
f_item(
    "F.interpolate/recompute",
    partial(F.interpolate, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
    lambda: (randn(1, 2, 5, 6),),
)
for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        f_item(
            f"F.grid_sample/{mode}+{padding}",
            partial(F.grid_sample, mode=mode, padding_mode=padding, align_corners=padding == "border"),
            lambda: (randn(2, 3, 5, 6), rand(2, 4, 3, 2) * 2.6 - 1.3),
        )
f_item(
    "F.grid_sample/3d",
    partial(F.grid_sample, align_corners=False),
    lambda: (randn(1, 2, 4, 5, 3), rand(1, 3, 2, 4, 3) * 2.4 - 1.2),
)
f_item(
    "F.affine_grid", lambda theta: F.affine_grid(theta, [2, 3, 4, 5], align_corners=False), lambda: (randn(2, 2, 3),)
)
f_item(
    "F.affine_grid/3d",
    lambda theta: F.affine_grid(theta, [1, 2, 3, 4, 5], align_corners=True),
    lambda: (randn(1, 3, 4),),
)
f_item(
    "F.affine_grid+grid_sample",
    lambda x, theta: F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False),
    lambda: (randn(2, 3, 5, 6), randn(2, 2, 3) * 0.6),
)

# --- embeddings ------------------------------------------------------------------------------------------------------

nn_item("Embedding", partial(nn.Embedding, 10, 4), inputs=lambda: (randint(10, (3, 5)),))
nn_item("Embedding/padding_idx", partial(nn.Embedding, 10, 4, padding_idx=2), inputs=lambda: (randint(10, (3, 5)),))
nn_item("Embedding/max_norm", partial(nn.Embedding, 10, 4, max_norm=1.0), inputs=lambda: (randint(10, (3, 5)),))
for mode in ("sum", "mean", "max"):
    nn_item(f"EmbeddingBag/{mode}", partial(nn.EmbeddingBag, 10, 4, mode=mode), inputs=lambda: (randint(10, (3, 5)),))
nn_item(
    "EmbeddingBag/offsets",
    partial(nn.EmbeddingBag, 10, 4),
    inputs=lambda: (randint(10, (7,)), torch.cat((torch.zeros(1).long(), randint(1, 7, (2,)).sort().values))),
)


class WeightedBag(nn.EmbeddingBag):
    """Per-sample weights are a keyword of the layer."""

    def forward(self, words: Any, weights: Any) -> Any:  # type: ignore[override]
        return super().forward(words, per_sample_weights=weights)


nn_item(
    "EmbeddingBag/weights", partial(WeightedBag, 10, 4, mode="sum"), inputs=lambda: (randint(10, (3, 5)), randn(3, 5))
)

# --- recurrent -------------------------------------------------------------------------------------------------------

for name in ("RNN", "GRU", "LSTM"):
    layer = getattr(nn, name)
    nn_item(name, partial(layer, 4, 5), (6, 2, 4))
    nn_item(f"{name}/two-layers", partial(layer, 4, 5, num_layers=2), (6, 2, 4))
    nn_item(f"{name}/bidirectional+batch_first", partial(layer, 4, 5, bidirectional=True, batch_first=True), (2, 6, 4))
    nn_item(
        f"{name}/two-layers+bidirectional+dropout",
        partial(layer, 4, 5, num_layers=2, bidirectional=True, dropout=0.3),
        (6, 2, 4),
    )
    nn_item(f"{name}/no-bias", partial(layer, 4, 5, bias=False), (6, 2, 4))
    nn_item(f"{name}/unbatched", partial(layer, 4, 5), (6, 4))
    if name != "LSTM":
        nn_item(f"{name}/state", partial(layer, 4, 5, num_layers=2), (6, 2, 4), (2, 2, 5))
        nn_item(f"{name}/state+bidirectional", partial(layer, 4, 5, 2, bidirectional=True), (6, 2, 4), (4, 2, 5))
        nn_item(f"{name}/state+unbatched", partial(layer, 4, 5), (6, 4), (1, 5))
nn_item("RNN/relu", partial(nn.RNN, 4, 5, nonlinearity="relu"), (6, 2, 4))


class StatefulLSTM(nn.LSTM):
    """The state of an LSTM is a pair."""

    def forward(self, x: Any, h: Any, c: Any) -> Any:  # type: ignore[override]
        return super().forward(x, (h, c))


class StatefulLSTMCell(nn.LSTMCell):
    """The state of an LSTM cell is a pair."""

    def forward(self, x: Any, h: Any, c: Any) -> Any:  # type: ignore[override]
        return super().forward(x, (h, c))


nn_item("LSTM/state", partial(StatefulLSTM, 4, 5), (6, 2, 4), (1, 2, 5), (1, 2, 5))
nn_item("LSTM/state+unbatched", partial(StatefulLSTM, 4, 5), (6, 4), (1, 5), (1, 5))
nn_item("LSTM/projected", partial(nn.LSTM, 4, 5, proj_size=3), (6, 2, 4))
nn_item(
    "LSTM/projected+two-layers+bidirectional", partial(nn.LSTM, 4, 5, 2, proj_size=3, bidirectional=True), (6, 2, 4)
)
nn_item("LSTM/projected+state", partial(StatefulLSTM, 4, 5, proj_size=3), (6, 2, 4), (1, 2, 3), (1, 2, 5))
nn_item("RNNCell", partial(nn.RNNCell, 4, 5), (2, 4))
nn_item("RNNCell/state+relu", partial(nn.RNNCell, 4, 5, nonlinearity="relu"), (2, 4), (2, 5))
nn_item("GRUCell", partial(nn.GRUCell, 4, 5), (2, 4))
nn_item("GRUCell/state", partial(nn.GRUCell, 4, 5), (2, 4), (2, 5))
nn_item("LSTMCell", partial(nn.LSTMCell, 4, 5), (2, 4))
nn_item("LSTMCell/state", partial(StatefulLSTMCell, 4, 5), (2, 4), (2, 5), (2, 5))


class CellLoop(nn.Module):
    """A loop in Python over the steps of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        state, outputs = None, []
        for step in x:
            state = self.cell(step, state)
            outputs.append(state[0])
        return torch.stack(outputs)


nn_item("LSTMCell/loop", CellLoop, (6, 2, 4))


class Packed(nn.Module):
    """Sequences of several lengths, packed."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 2]))
        output, state = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(output)[0], state


nn_item("GRU/packed", Packed, (6, 3, 4))

# --- attention -------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """``MultiheadAttention`` with its masks by position; ``self_attention`` gives one tensor three times."""

    def __init__(self, *, masks: str = "", fixed: Any = None, options: Any = None, **arguments: Any) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, **arguments)
        self.masks, self.options = masks.split(), options or {}
        self.register_buffer("fixed", fixed)

    def forward(self, query: Any, *rest: Any) -> Any:
        inputs = list(rest)
        same = len(inputs) == len(self.masks)
        key, value = (query, query) if same else (inputs.pop(0), inputs.pop(0))
        given = dict(zip(self.masks, inputs, strict=True))
        if self.fixed is not None:
            given["attn_mask"] = self.fixed
        return self.layer(query, key, value, **given, **self.options)


def padded(batch: int, length: int) -> torch.Tensor:
    """A padding mask: true behind a length that is drawn."""
    return torch.arange(length) >= randint(1, length + 1, (batch, 1))


causal = nn.Transformer.generate_square_subsequent_mask(5)
nn_item("MultiheadAttention", Attention, (5, 2, 8), (6, 2, 8), (6, 2, 8))
nn_item("MultiheadAttention/self", Attention, (5, 2, 8))
nn_item("MultiheadAttention/self+batch_first", partial(Attention, batch_first=True), (2, 5, 8))
nn_item("MultiheadAttention/unbatched", Attention, (5, 8), (6, 8), (6, 8))
nn_item("MultiheadAttention/no-bias", partial(Attention, bias=False), (5, 2, 8))
nn_item("MultiheadAttention/bias_kv", partial(Attention, add_bias_kv=True), (5, 2, 8), (6, 2, 8), (6, 2, 8))
nn_item("MultiheadAttention/zero_attn", partial(Attention, add_zero_attn=True), (5, 2, 8), (6, 2, 8), (6, 2, 8))
nn_item("MultiheadAttention/kdim+vdim", partial(Attention, kdim=3, vdim=4), (5, 2, 8), (6, 2, 3), (6, 2, 4))
nn_item("MultiheadAttention/dropout", partial(Attention, dropout=0.3), (5, 2, 8))
nn_item("MultiheadAttention/no-weights", partial(Attention, options={"need_weights": False}), (5, 2, 8))
nn_item(
    "MultiheadAttention/no-weights+batch_first",
    partial(Attention, batch_first=True, options={"need_weights": False}),
    (2, 5, 8),
)
nn_item("MultiheadAttention/per-head", partial(Attention, options={"average_attn_weights": False}), (5, 2, 8))
nn_item("MultiheadAttention/causal", partial(Attention, fixed=causal, options={"is_causal": True}), (5, 2, 8))
nn_item(
    "MultiheadAttention/causal+no-weights",
    partial(Attention, fixed=causal, options={"is_causal": True, "need_weights": False}),
    (5, 2, 8),
)
nn_item("MultiheadAttention/float-mask", partial(Attention, masks="attn_mask"), (5, 2, 8), (5, 5))
nn_item("MultiheadAttention/bool-mask", partial(Attention, masks="attn_mask"),
        inputs=lambda: (randn(5, 2, 8), (rand(4, 5, 5) > 0.6).logical_and(~torch.eye(5).bool())))  # fmt: skip
nn_item("MultiheadAttention/padding", partial(Attention, masks="key_padding_mask", batch_first=True),
        inputs=lambda: (randn(2, 5, 8), padded(2, 5)))  # fmt: skip
nn_item("MultiheadAttention/padding+float-mask", partial(Attention, masks="key_padding_mask attn_mask"),
        inputs=lambda: (randn(5, 2, 8), randn(6, 2, 8), randn(6, 2, 8), randn(2, 6), randn(5, 6)))  # fmt: skip
nn_item("MultiheadAttention/padding+no-weights", partial(Attention, masks="key_padding_mask", options={"need_weights": False}),
        inputs=lambda: (randn(5, 2, 8), padded(2, 5)))  # fmt: skip


def encoder_layer(**arguments: Any) -> nn.TransformerEncoderLayer:
    """A small encoder layer."""
    return nn.TransformerEncoderLayer(8, 2, 16, **arguments)


def decoder_layer(**arguments: Any) -> nn.TransformerDecoderLayer:
    """A small decoder layer."""
    return nn.TransformerDecoderLayer(8, 2, 16, **arguments)


class Keyworded(nn.Module):
    """A layer whose later inputs are keywords."""

    def __init__(self, layer: nn.Module, names: str, **fixed: Any) -> None:
        super().__init__()
        self.layer, self.names, self.options = layer, names.split(), {}
        for name, value in fixed.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(name, value)
            self.options[name] = value

    def forward(self, *inputs: Any) -> Any:
        first = len(inputs) - len(self.names)
        given = dict(zip(self.names, inputs[first:], strict=True))
        fixed = {name: getattr(self, name) if isinstance(value, torch.Tensor) else value
                 for name, value in self.options.items()}  # fmt: skip
        return self.layer(*inputs[:first], **given, **fixed)


nn_item("TransformerEncoderLayer", encoder_layer, (5, 2, 8))
nn_item("TransformerEncoderLayer/batch_first", partial(encoder_layer, batch_first=True), (2, 5, 8))
nn_item(
    "TransformerEncoderLayer/norm_first+gelu",
    partial(encoder_layer, batch_first=True, norm_first=True, activation="gelu"),
    (2, 5, 8),
)
nn_item("TransformerEncoderLayer/callable+no-bias", partial(encoder_layer, activation=F.silu, bias=False), (5, 2, 8))
nn_item("TransformerEncoderLayer/padding", lambda: Keyworded(encoder_layer(batch_first=True), "src_key_padding_mask"),
        inputs=lambda: (randn(2, 5, 8), padded(2, 5)))  # fmt: skip
nn_item(
    "TransformerEncoderLayer/causal",
    lambda: Keyworded(encoder_layer(batch_first=True), "", src_mask=causal, is_causal=True),
    (2, 5, 8),
)
nn_item("TransformerDecoderLayer", decoder_layer, (5, 2, 8), (6, 2, 8))
nn_item(
    "TransformerDecoderLayer/norm_first",
    partial(decoder_layer, batch_first=True, norm_first=True),
    (2, 5, 8),
    (2, 6, 8),
)
nn_item("TransformerDecoderLayer/masks",
        lambda: Keyworded(decoder_layer(batch_first=True), "memory_key_padding_mask", tgt_mask=causal, tgt_is_causal=True),
        inputs=lambda: (randn(2, 5, 8), randn(2, 6, 8), padded(2, 6)))  # fmt: skip
nn_item("TransformerEncoder", lambda: nn.TransformerEncoder(encoder_layer(batch_first=True), 2), (2, 5, 8))
nn_item("TransformerEncoder/padding", lambda: Keyworded(nn.TransformerEncoder(encoder_layer(batch_first=True), 2, enable_nested_tensor=False), "src_key_padding_mask"),
        inputs=lambda: (randn(2, 5, 8), padded(2, 5)))  # fmt: skip
nn_item("TransformerEncoder/padding+nested", lambda: Keyworded(nn.TransformerEncoder(encoder_layer(batch_first=True), 2), "src_key_padding_mask"),
        inputs=lambda: (randn(2, 5, 8), torch.arange(5).expand(2, 5) >= torch.stack((torch.tensor(5), randint(1, 6, ())))[:, None]))  # fmt: skip
nn_item(
    "TransformerEncoder/causal+norm",
    lambda: Keyworded(nn.TransformerEncoder(encoder_layer(), 2, nn.LayerNorm(8)), "", mask=causal, is_causal=True),
    (5, 2, 8),
)
nn_item("TransformerDecoder", lambda: nn.TransformerDecoder(decoder_layer(), 2, nn.LayerNorm(8)), (5, 2, 8), (6, 2, 8))
nn_item("Transformer", lambda: nn.Transformer(8, 2, 1, 1, 16), (5, 2, 8), (4, 2, 8))
nn_item(
    "Transformer/batch_first+causal",
    lambda: Keyworded(nn.Transformer(8, 2, 1, 1, 16, batch_first=True), "", tgt_mask=causal, tgt_is_causal=True),
    (2, 6, 8),
    (2, 5, 8),
)

sdpa = F.scaled_dot_product_attention
f_item("F.scaled_dot_product_attention", sdpa, lambda: (randn(2, 2, 5, 4), randn(2, 2, 6, 4), randn(2, 2, 6, 4)))
f_item(
    "F.scaled_dot_product_attention/causal",
    partial(sdpa, is_causal=True),
    lambda: (randn(2, 2, 5, 4), randn(2, 2, 5, 4), randn(2, 2, 5, 4)),
)
f_item(
    "F.scaled_dot_product_attention/scale",
    partial(sdpa, scale=0.3),
    lambda: (randn(2, 2, 5, 4), randn(2, 2, 6, 4), randn(2, 2, 6, 3)),
)
f_item(
    "F.scaled_dot_product_attention/float-mask",
    lambda q, k, v, m: sdpa(q, k, v, m),
    lambda: (randn(2, 2, 5, 4), randn(2, 2, 6, 4), randn(2, 2, 6, 4), randn(5, 6)),
)
f_item("F.scaled_dot_product_attention/bool-mask", lambda q, k, v, m: sdpa(q, k, v, m),
       lambda: (randn(2, 2, 5, 4), randn(2, 2, 5, 4), randn(2, 2, 5, 4), (rand(2, 1, 5, 5) > 0.5) | torch.eye(5).bool()))  # fmt: skip
f_item("F.scaled_dot_product_attention/bool-mask+empty-rows", lambda q, k, v, m: sdpa(q, k, v, m),
       lambda: (randn(2, 2, 5, 4), randn(2, 2, 5, 4), randn(2, 2, 5, 4), rand(2, 1, 5, 5) > 0.8))  # fmt: skip
f_item(
    "F.scaled_dot_product_attention/gqa",
    partial(sdpa, enable_gqa=True),
    lambda: (randn(2, 4, 5, 4), randn(2, 2, 6, 4), randn(2, 2, 6, 4)),
)
f_item(
    "F.scaled_dot_product_attention/gqa+causal",
    partial(sdpa, enable_gqa=True, is_causal=True),
    lambda: (randn(2, 4, 5, 4), randn(2, 1, 5, 4), randn(2, 1, 5, 4)),
)
f_item("F.scaled_dot_product_attention/three-dims", sdpa, lambda: (randn(2, 5, 4), randn(2, 6, 4), randn(2, 6, 4)))

# --- losses ----------------------------------------------------------------------------------------------------------

for name in "L1Loss MSELoss SmoothL1Loss HuberLoss".split():
    nn_item(name, getattr(nn, name), (3, 5), (3, 5))
nn_item("MSELoss/sum", partial(nn.MSELoss, reduction="sum"), (3, 5), (3, 5))
nn_item("L1Loss/none", partial(nn.L1Loss, reduction="none"), (3, 5), (3, 5))
nn_item("BCELoss", nn.BCELoss, inputs=lambda: (rand(3, 5), rand(3, 5).round()))
nn_item(
    "BCEWithLogitsLoss",
    partial(nn.BCEWithLogitsLoss, pos_weight=torch.rand(5)),
    inputs=lambda: (randn(3, 5), rand(3, 5)),
)
nn_item("CrossEntropyLoss", nn.CrossEntropyLoss, inputs=lambda: (randn(6, 5), randint(5, (6,))))
nn_item(
    "CrossEntropyLoss/weight+smoothing+ignore",
    partial(nn.CrossEntropyLoss, torch.rand(5), label_smoothing=0.1, ignore_index=1),
    inputs=lambda: (randn(6, 5), randint(5, (6,))),
)
nn_item("CrossEntropyLoss/probabilities", nn.CrossEntropyLoss, inputs=lambda: (randn(6, 5), rand(6, 5).softmax(1)))
nn_item("CrossEntropyLoss/2d", nn.CrossEntropyLoss, inputs=lambda: (randn(2, 5, 3, 4), randint(5, (2, 3, 4))))
nn_item(
    "LinearCrossEntropyLoss", partial(nn.LinearCrossEntropyLoss, 8, 5), inputs=lambda: (randn(6, 8), randint(5, (6,)))
)
nn_item("NLLLoss", nn.NLLLoss, inputs=lambda: (randn(6, 5).log_softmax(1), randint(5, (6,))))
nn_item("NLLLoss2d", nn.NLLLoss2d, inputs=lambda: (randn(2, 5, 3, 4).log_softmax(1), randint(5, (2, 3, 4))))
nn_item(
    "CTCLoss",
    nn.CTCLoss,
    inputs=lambda: (randn(9, 2, 6).log_softmax(2), randint(1, 6, (2, 3)), torch.tensor([9, 8]), torch.tensor([3, 2])),
)
nn_item(
    "KLDivLoss",
    partial(nn.KLDivLoss, reduction="batchmean"),
    inputs=lambda: (randn(3, 5).log_softmax(1), rand(3, 5).softmax(1)),
)
nn_item(
    "KLDivLoss/log",
    partial(nn.KLDivLoss, reduction="sum", log_target=True),
    inputs=lambda: (randn(3, 5).log_softmax(1), rand(3, 5).log_softmax(1)),
)
nn_item(
    "PoissonNLLLoss", partial(nn.PoissonNLLLoss, full=True), inputs=lambda: (randn(3, 5), randint(6, (3, 5)).float())
)
nn_item("GaussianNLLLoss", nn.GaussianNLLLoss, inputs=lambda: (randn(3, 5), randn(3, 5), rand(3, 5)))
nn_item("HingeEmbeddingLoss", nn.HingeEmbeddingLoss, inputs=lambda: (randn(3, 5), randint(2, (3, 5)) * 2 - 1))
nn_item(
    "MarginRankingLoss",
    partial(nn.MarginRankingLoss, 0.3),
    inputs=lambda: (randn(6), randn(6), (randint(2, (6,)) * 2 - 1).float()),
)
nn_item(
    "CosineEmbeddingLoss",
    partial(nn.CosineEmbeddingLoss, 0.2),
    inputs=lambda: (randn(3, 5), randn(3, 5), randint(2, (3,)) * 2 - 1),
)
nn_item("TripletMarginLoss", nn.TripletMarginLoss, (3, 5), (3, 5), (3, 5))
nn_item("TripletMarginLoss/swap", partial(nn.TripletMarginLoss, swap=True, p=1), (3, 5), (3, 5), (3, 5))
nn_item(
    "TripletMarginWithDistanceLoss",
    partial(nn.TripletMarginWithDistanceLoss, distance_function=nn.PairwiseDistance()),
    (3, 5),
    (3, 5),
    (3, 5),
)
nn_item(
    "MultiLabelMarginLoss",
    nn.MultiLabelMarginLoss,
    inputs=lambda: (
        randn(2, 4),
        torch.stack(
            (torch.randperm(4).where(torch.arange(4) < 2, -1), torch.randperm(4).where(torch.arange(4) < 3, -1))
        ),
    ),
)
nn_item(
    "MultiLabelSoftMarginLoss", nn.MultiLabelSoftMarginLoss, inputs=lambda: (randn(3, 5), randint(2, (3, 5)).float())
)
nn_item("MultiMarginLoss", nn.MultiMarginLoss, inputs=lambda: (randn(3, 5), randint(5, (3,))))
nn_item("SoftMarginLoss", nn.SoftMarginLoss, inputs=lambda: (randn(3, 5), (randint(2, (3, 5)) * 2 - 1).float()))
