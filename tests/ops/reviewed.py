"""Functions that the walk does not record, each class with its reason. The walk fails where one of them is wrong."""

from __future__ import annotations

from typing import Final

NOT_DENSE: Final = frozenset(
    "Tensor._coalesced_ Tensor._dimI Tensor._dimV Tensor._indices Tensor._nnz Tensor._sparse_mask_projection "
    "Tensor._to_dense Tensor._values Tensor.ccol_indices Tensor.coalesce Tensor.col_indices Tensor.crow_indices "
    "Tensor.indices Tensor.resize_as_sparse_ Tensor.row_indices Tensor.smm Tensor.sparse_resize_ Tensor.to_dense "
    "Tensor.sparse_resize_and_clear_ Tensor.sspaddmm Tensor.values torch.ccol_indices_copy torch.col_indices_copy "
    "torch.crow_indices_copy torch.dsmm torch.hsmm torch.hspmm torch.indices_copy torch.row_indices_copy torch.saddmm "
    "torch.smm torch.spmm torch.sspaddmm torch.values_copy Tensor._nested_tensor_size Tensor._nested_tensor_strides "
    "Tensor._nested_tensor_storage_offsets".split()
)
"""They take sparse or nested tensors, which are refused as inputs and as constants."""

QUANTISED: Final = frozenset(
    "Tensor.dequantize Tensor.int_repr Tensor.q_per_channel_axis Tensor.q_per_channel_scales Tensor.q_scale "
    "Tensor.q_per_channel_zero_points Tensor.q_zero_point Tensor.qscheme torch.dequantize torch.int_repr "
    "torch.fbgemm_linear_fp16_weight torch.fbgemm_linear_fp16_weight_fp32_activation torch.fbgemm_linear_int8_weight "
    "torch.fbgemm_linear_int8_weight_fp32_activation torch.fused_moving_avg_obs_fake_quant torch.q_per_channel_axis "
    "torch.q_per_channel_scales torch.q_per_channel_zero_points torch.q_scale torch.q_zero_point "
    "torch.quantized_batch_norm torch.quantized_gru_cell torch.quantized_lstm_cell torch.quantized_max_pool1d "
    "torch.quantized_max_pool2d torch.quantized_max_pool3d torch.quantized_rnn_relu_cell "
    "torch.quantized_rnn_tanh_cell".split()
)
"""They take quantised or packed tensors, which are refused as inputs and as constants."""

OTHER_DEVICES: Final = frozenset(
    "Tensor.cuda Tensor.ipu Tensor.mtia Tensor.xpu torch.batch_norm_backward_elemt torch.batch_norm_backward_reduce "
    "torch.batch_norm_elemt torch.batch_norm_gather_stats torch.batch_norm_gather_stats_with_counts "
    "torch.batch_norm_stats torch.batch_norm_update_stats torch.miopen_batch_norm torch.miopen_convolution "
    "torch.miopen_convolution_add_relu torch.miopen_convolution_relu torch.miopen_convolution_transpose "
    "torch.miopen_depthwise_convolution torch.miopen_rnn".split()
)
"""They run on a GPU only, or on hardware that this project has no tests for."""

NO_TENSORS: Final = frozenset(
    "torch._sym_sqrt torch.autocast torch.sym_float torch.sym_int torch.sym_ite torch.sym_max torch.sym_min "
    "torch.sym_not torch.sym_sum Tensor._clear_non_serializable_cached_data Tensor._autocast_to_full_precision "
    "Tensor._autocast_to_reduced_precision Tensor.__setstate__ Tensor.index torch.native_norm Tensor.__dlpack__ "
    "Tensor.__array_wrap__".split()
)
"""They take no tensors, or are parts of torch that its own functions call."""

UNINITIALISED: Final = frozenset("torch.empty_like".split())
"""What they hold is not defined, so that there is nothing to compare."""

NEVER_RUN: Final = NOT_DENSE | QUANTISED | OTHER_DEVICES | NO_TENSORS
