"""Arguments for the functions that torch's own table of samples does not hold.

Each entry draws its tensors when called, so that a second call gives other values: ``(args, kwargs)``, one or several.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

OWN: dict[str, Callable[[], list[Arguments]]] = {}
"""By the walk's name, or by the bare name, in-place forms included."""


def _of(names: str, *makes: Callable[..., Any]) -> None:
    """Each of ``makes`` gives the positional arguments, or them and a dict of keywords."""

    def listed() -> list[Arguments]:
        found = []
        for make in makes:
            made = make()
            made = made if isinstance(made, tuple) else (made,)
            found.append((made[:-1], made[-1]) if isinstance(made[-1], dict) else (made, {}))
        return found

    for name in names.split():
        OWN[name] = listed


def f(*shape: int) -> torch.Tensor:
    """Floats around zero."""
    return torch.randn(shape)


def p(*shape: int) -> torch.Tensor:
    """Positive floats."""
    return torch.rand(shape) + 0.25


def i(*shape: int, high: int = 5, low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape)


def weights(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape) * 0.3 for shape in shapes]


# --- methods and operators

OWN["Tensor.__deepcopy__"] = lambda: [((f(3, 4), {}), {})]
_of("Tensor.__reversed__ Tensor.data.__get__ Tensor.cpu detach detach_copy", lambda: f(3, 4))
_of("Tensor.__rfloordiv__ Tensor.__rmod__", lambda: (p(3, 4), 7))
_of("Tensor.__rlshift__ Tensor.__rrshift__", lambda: (i(3, 4), 64))
_of(
    "Tensor.__setitem__",
    lambda: (f(3, 4), 1, 2.0),
    lambda: (f(3, 4), (slice(None), 1), f(3)),
    lambda: (f(3, 4), (Ellipsis, slice(None, None, 2)), f(3, 2)),
    lambda: (f(3, 4), f(3, 4) > 0, 0.5),
    lambda: (f(3, 4), (i(2, high=3), i(2, high=4)), 0.5),
    lambda: (i(3, 4), (slice(1, None), [0, 2]), i(2, 2)),
)
_of("Tensor.copy_", lambda: (f(3, 4), f(4)), lambda: (f(3, 4), i(3, 4)))
_of("Tensor.fill_diagonal_", lambda: (f(3, 3), 0.5), lambda: (f(7, 3), 2.0, {"wrap": True}))
_of("Tensor.float_power_", lambda: (p(3, 4).double(), 2.0), lambda: (p(3).double(), p(3).double()))
_of("Tensor.type", lambda: (f(3, 4), torch.int64), lambda: (i(3), "torch.DoubleTensor"))
_of("Tensor.type_as", lambda: (f(3, 4), i(2)))
_of("unsafe_split_with_sizes", lambda: (f(3, 5), [2, 3], 1), lambda: (f(5, 2), [1, 4]))
_of("slice_inverse", lambda: (f(3, 5), f(3, 5), 0, 0, 3, 1))
_of("Tensor.map_", lambda: (f(3), f(3), max))
_of("Tensor.index_fill", lambda: (f(3, 4), 1, torch.tensor([0, 2]), 0.5))
_of("Tensor.is_nonzero torch.is_nonzero Tensor.__complex__ Tensor.__nonzero__", lambda: f(1))
_of("torch.cartesian_prod", lambda: (f(3), f(2)), lambda: (f(2), f(3), f(2)))
_of("torch.combinations", lambda: f(4), lambda: (f(4), 3), lambda: (f(3), 2, True))
_of("torch.unravel_index", lambda: (i(6, high=12), (3, 4)))
OWN["Tensor.__index__"] = lambda: [((torch.randint(0, 5, ()),), {})]
_of("Tensor.numpy Tensor.tolist Tensor.__repr__ Tensor.__array__", lambda: f(3))
_of("Tensor.__contains__", lambda: (f(3), 2.0))
_of("Tensor.__format__", lambda: (f(1).sum(), ".3f"))
_of("Tensor.__reduce_ex__", lambda: (f(3), 4))

# --- torch and torch.nn.functional
_of("torch.batch_norm", lambda: (f(2, 3, 4), p(3), f(3), f(3), p(3), False, 0.1, 1e-5, False))
_of(
    "torch.nn.functional.batch_norm",
    lambda: (f(2, 3, 4), f(3), p(3)),
    lambda: (f(2, 3), f(3), p(3), p(3), f(3)),
    lambda: (f(4, 3, 5), f(3), p(3), {"training": True}),
)
_of("torch.instance_norm", lambda: (f(2, 3, 4), p(3), f(3), f(3), p(3), True, 0.1, 1e-5, False))
_of("torch.adaptive_max_pool1d adaptive_max_pool1d_with_indices", lambda: (f(2, 3, 8), 4))
_of("adaptive_max_pool2d_with_indices", lambda: (f(2, 3, 8, 8), (4, 2)))
_of("adaptive_max_pool3d_with_indices", lambda: (f(1, 2, 4, 4, 4), 2))
_of("torch.max_pool1d torch.max_pool1d_with_indices", lambda: (f(2, 3, 8), 2), lambda: (f(2, 3, 9), 3, 2, 1))
_of("torch.max_pool2d", lambda: (f(2, 3, 8, 8), 2), lambda: (f(2, 3, 9, 9), 3, 2, 1))
_of("torch.max_pool3d", lambda: (f(1, 2, 4, 4, 4), 2))
_of("torch.affine_grid_generator", lambda: (f(2, 2, 3), [2, 3, 4, 5], False))
_of(
    "torch.nn.functional.affine_grid",
    lambda: (f(2, 2, 3), [2, 3, 4, 5]),
    lambda: (f(1, 3, 4), torch.Size((1, 2, 3, 4, 5)), {"align_corners": True}),
)
_of("torch.grid_sampler", lambda: (f(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1, 0, 0, False))
_of("chain_matmul", lambda: (f(3, 4), f(4, 2), f(2, 5)))
_of("conv_tbc", lambda: (f(5, 2, 3), f(2, 3, 4), f(4), 1))
_of(
    "torch.convolution",
    lambda: (f(1, 2, 6), f(3, 2, 2), f(3), [1], [0], [1], False, [0], 1),
    lambda: (f(1, 2, 6), f(2, 3, 2), None, [2], [0], [1], True, [0], 1),
)
_of("torch.cosine_embedding_loss", lambda: (f(3, 4), f(3, 4), torch.tensor([1, -1, 1]), 0.1))
_of("torch.margin_ranking_loss", lambda: (f(3), f(3), torch.tensor([1.0, -1.0, 1.0]), 0.1))
_of("torch.poisson_nll_loss", lambda: (f(3), p(3), True, False, 1e-8, 1))
_of("torch.kl_div", lambda: (f(3, 4).log_softmax(1), p(3, 4), 1), lambda: (f(3), f(3), {"log_target": True}))
_of(
    "torch.ctc_loss",
    lambda: (f(8, 2, 5).log_softmax(2), i(2, 3, low=1), torch.tensor([8, 8]), torch.tensor([3, 2])),
)
_of(
    "torch.nn.functional.ctc_loss",
    lambda: (f(8, 2, 5).log_softmax(2), i(2, 3, low=1), torch.tensor([8, 8]), torch.tensor([3, 2])),
)
_of(
    "einsum",
    lambda: ("ij,jk->ik", f(3, 4), f(4, 2)),
    lambda: ("ij,jk", [f(3, 4), f(4, 2)]),
    lambda: ("ii", f(3, 3)),
    lambda: ("ii->i", f(3, 3)),
    lambda: ("...ij->...ji", f(2, 3, 4)),
    lambda: ("bn,anm,bm->ba", f(2, 5), f(3, 5, 4), f(2, 4)),
    lambda: (f(3, 4), [0, 1], f(4, 2), [1, 2], [0, 2]),
    lambda: (f(2, 3, 4), [Ellipsis, 0], f(4), [0], [Ellipsis]),
    lambda: ("i,i->", f(3), f(3)),
    lambda: ("ij->", i(3, 4)),
)
_of("torch.embedding", lambda: (f(5, 3), i(2, 4)))
_of(
    "torch.nn.functional.embedding",
    lambda: (i(2, 4), f(5, 3)),
    lambda: (i(3), f(5, 3), {"padding_idx": -1}),
    lambda: (i(3), f(5, 3), {"max_norm": 1.0}),
)
_of("torch.embedding_bag", lambda: (f(5, 3), i(6), torch.tensor([0, 2, 3])))
_of(
    "torch.nn.functional.embedding_bag",
    lambda: (i(2, 4), f(5, 3)),
    lambda: (i(6), f(5, 3), torch.tensor([0, 2, 3]), {"mode": "sum"}),
    lambda: (i(2, 3), f(5, 3), {"mode": "max"}),
)
_of("torch.frobenius_norm", lambda: (f(3, 4), [0, 1]), lambda: (f(3, 4), [1], True))
_of("torch.nuclear_norm", lambda: f(3, 4), lambda: (f(2, 3, 4), [1, 2]))
_of("torch.native_norm", lambda: f(3, 4), lambda: (f(3, 4), 1))
_of("torch.norm_except_dim", lambda: (f(3, 4), 2, 0))
_of("native_channel_shuffle channel_shuffle", lambda: (f(1, 4, 3, 3), 2))
_of("torch.polygamma torch.special.polygamma Tensor.polygamma", lambda: (1, p(3)))
OWN["Tensor.polygamma"] = lambda: [((p(3), 1), {})]
OWN["Tensor.polygamma_"] = OWN["Tensor.polygamma"]
OWN["Tensor.bincount"] = lambda: [((i(8),), {}), ((i(8), f(8), 6), {})]
OWN["torch.bincount"] = OWN["Tensor.bincount"]
_of("torch.nn.functional._threshold torch.threshold torch.nn.functional.threshold", lambda: (f(3, 4), 0.1, 20.0))
_of("torch.nn.functional.log_sigmoid torch.nn.functional.logsigmoid", lambda: f(3, 4))
_of("torch.nn.functional.fold", lambda: (f(1, 8, 9), (4, 4), (2, 2)), lambda: (f(2, 8, 4), (4, 4), 2, {"stride": 2}))
_of("torch.nn.functional.lp_pool1d", lambda: (p(1, 2, 6), 2.0, 2), lambda: (f(1, 2, 6), 2.0, 3, 1))
_of("torch.nn.functional.lp_pool2d", lambda: (p(1, 2, 6, 6), 3.0, 2), lambda: (f(1, 2, 6, 6), 2.0, (3, 2)))
_of("torch.nn.functional.lp_pool3d", lambda: (p(1, 2, 4, 4, 4), 3.0, 2))
_of("svd_lowrank pca_lowrank", lambda: (f(6, 4), 2))
_of("torch.fake_quantize_per_tensor_affine", lambda: (f(3, 4), 0.1, 0, -128, 127))
_of(
    "torch.fake_quantize_per_channel_affine",
    lambda: (f(3, 4), p(3), torch.zeros(3, dtype=torch.int32), 0, 0, 255),
)
_of("torch.choose_qparams_optimized", lambda: (f(16), 16, 200, 0.16, 8))
_of("torch.native_dropout", lambda: (f(3, 4), 0.5, True))
_of("torch.nn.functional.dropout torch.nn.functional.alpha_dropout torch.nn.functional.feature_alpha_dropout",
    lambda: (f(3, 4), 0.5, False), lambda: (f(3, 4), {"training": True}))  # fmt: skip
_of("torch.nn.functional.dropout1d", lambda: (f(2, 3, 4), 0.5, False), lambda: (f(2, 3, 4), {"training": True}))
_of("torch.nn.functional.dropout2d", lambda: (f(2, 3, 4, 4), 0.5, False), lambda: (f(2, 3, 4, 4), {"training": True}))
_of("torch.nn.functional.dropout3d", lambda: (f(2, 3, 4, 4, 4), 0.5, False))
_of(
    "torch.dropout torch.alpha_dropout torch.feature_dropout torch.feature_alpha_dropout", lambda: (f(3, 4), 0.5, False)
)
OWN["Tensor.dropout_"] = OWN["torch.dropout"]
_of(
    "torch.dropout_ torch.alpha_dropout_ torch.feature_dropout_ torch.feature_alpha_dropout_",
    lambda: (f(3, 4), 0.5, False),
)
_of("torch.nn.functional.gumbel_softmax", lambda: (f(3, 4), 1.0))
_of("torch.poisson", lambda: p(3))
_of("torch.binomial", lambda: (i(3).float(), torch.rand(3)))
_of("Tensor.random_", lambda: f(3), lambda: (f(3), 7))
_of("torch.rrelu torch.nn.functional.rrelu", lambda: (f(3, 4), 0.1, 0.3, False))
_of("torch.nn.functional.fractional_max_pool2d torch.nn.functional.fractional_max_pool2d_with_indices",
    lambda: (f(1, 2, 8, 8), 2, 3, {"_random_samples": torch.rand(1, 2, 2)}))  # fmt: skip
_of("torch.nn.functional.fractional_max_pool3d torch.nn.functional.fractional_max_pool3d_with_indices",
    lambda: (f(1, 2, 6, 6, 6), 2, 3, {"_random_samples": torch.rand(1, 2, 3)}))  # fmt: skip
_of("torch.nn.functional.scaled_dot_product_attention",
    lambda: (f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4)),
    lambda: (f(2, 2, 3, 4), f(2, 2, 3, 4), f(2, 2, 3, 4), {"is_causal": True}),
    lambda: (f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), {"attn_mask": f(3, 5)}),
    lambda: (f(1, 2, 3, 4), f(1, 2, 5, 4), f(1, 2, 5, 4), f(3, 5) > -9.0, 0.0, {"scale": 0.3}),
)  # fmt: skip
_of("torch.nn.functional.multi_head_attention_forward",
    lambda: (*(f(3, 2, 8) for _ in range(3)), 8, 2, *weights((24, 8), (24,)), None, None, False, 0.0,
             *weights((8, 8), (8,)), {"training": False}),
    lambda: (*(f(3, 2, 8) for _ in range(3)), 8, 2, *weights((24, 8), (24,)), None, None, False, 0.0,
             *weights((8, 8), (8,)), {"training": False, "need_weights": False, "attn_mask": f(3, 3)}),
)  # fmt: skip
_of(
    "torch.max_unpool1d torch.nn.functional.max_unpool1d",
    lambda: (p(1, 2, 3), torch.tensor([[[0, 2, 5], [1, 3, 4]]]), 2),
)
_of("torch.nn.functional.max_unpool2d",
    lambda: (p(1, 1, 2, 2), torch.tensor([[[[0, 2], [8, 15]]]]), 2))  # fmt: skip
_of("torch.nn.functional.max_unpool3d", lambda: (p(1, 1, 1, 1, 2), torch.tensor([[[[[0, 11]]]]]), 2))

# --- recurrent cells and layers, as torch._VF takes them
_CELL = ((6, 3), (6, 2), (6,), (6,))
_of("torch.gru_cell", lambda: (f(4, 3), f(4, 2), *weights(*_CELL)))
_of("torch.rnn_relu_cell torch.rnn_tanh_cell", lambda: (f(4, 3), f(4, 2), *weights((2, 3), (2, 2), (2,), (2,))))
_of("torch.lstm_cell", lambda: (f(4, 3), [f(4, 2), f(4, 2)], *weights((8, 3), (8, 2), (8,), (8,))))
_of(
    "torch.gru",
    lambda: (f(5, 1, 3), f(1, 1, 2), weights(*_CELL), True, 1, 0.0, False, False, False),
    lambda: (f(1, 5, 3), f(2, 1, 2), weights(*_CELL, *_CELL), True, 1, 0.0, False, True, True),
)
_of(
    "torch.rnn_relu torch.rnn_tanh",
    lambda: (f(5, 1, 3), f(1, 1, 2), weights((2, 3), (2, 2), (2,), (2,)), True, 1, 0.0, False, False, False),
)
_LSTM = ((8, 3), (8, 2), (8,), (8,))
_of(
    "torch.lstm",
    lambda: (f(5, 1, 3), [f(1, 1, 2), f(1, 1, 2)], weights(*_LSTM), True, 1, 0.0, False, False, False),
    lambda: (f(1, 5, 3), [f(2, 1, 2), f(2, 1, 2)], weights(*_LSTM, *_LSTM), True, 1, 0.0, False, True, True),
    lambda: (
        f(5, 1, 3), [f(2, 1, 2), f(2, 1, 2)], weights(*_LSTM, (8, 2), (8, 2), (8,), (8,)), True, 2, 0.0, False, False,
        False,
    ),
)  # fmt: skip
warnings.filterwarnings("ignore", message=".*RNN module weights are not part of single contiguous.*")


def _positive_definite(size: int) -> torch.Tensor:
    root = f(size, size)
    return root @ root.T + torch.eye(size)


_of("torch.lobpcg", lambda: (_positive_definite(9), 1))
