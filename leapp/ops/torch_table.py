"""Method, operator and property forms of torch -> the public torch function that is recorded.

Rows that follow from a name are derived when first met (``row_of``); rows that do not are listed. What has no public
function stays ``call_method``.
"""

from __future__ import annotations

import itertools
import operator
import sys
from types import FunctionType
from typing import Any, Final, NamedTuple

import torch

from leapp.ops import _rules as rules
from leapp.ops import attention
from leapp.ops._row import Kind, Row
from leapp.ops.filled import FILLED

_TensorBase: Any = torch._C.TensorBase


def _function(target: Any, **facts: Any) -> Row:
    return Row(Kind.RECORD, facts.pop("name", target.__name__), target=target, **facts)


def _method(name: str, **facts: Any) -> Row:
    return Row(Kind.RECORD, name, op="call_method", target=name, **facts)


def _divided_by(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """``2 / x`` is computed by torch as ``x.reciprocal() * 2``; the last bit follows from that."""
    del eager
    return emit(torch.mul, emit(torch.reciprocal, args[0]), args[1])


def _transposed(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    rank = eager[0].dim()
    if rank <= 2:
        return emit(torch.t, args[0])
    return emit(torch.permute, args[0], tuple(reversed(range(rank))))


def _cloned(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    del eager
    return emit(torch.clone, args[0])


def _strided(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """The offset counts from the start of a storage, and where in its storage a value lies is no part of a recording.

    Recorded is how many elements of the tensor itself are skipped, where it is dense and all that is seen is its own.
    """
    source, size, stride, asked = args
    tensor = eager[0]
    dense = tuple(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    if not tensor.is_contiguous() and tensor.permute(dense).is_contiguous():
        tensor = tensor.permute(dense)
        source = emit(torch.permute, source, dense, shape=tuple(tensor.shape))
    count, start = tensor.numel(), tensor.storage_offset()
    skipped = 0 if asked is None else asked - start
    reach = skipped + 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if not tensor.is_contiguous() or skipped < 0 or reach > count:
        return emit(torch.as_strided, source, size, stride, asked)
    if skipped:
        row = emit(torch.reshape, source, (-1,), shape=(count,))
        source = emit(torch.narrow, row, 0, skipped, count - skipped, shape=(count - skipped,))
    return emit(torch.as_strided, source, size, stride)


def _reversed(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    return emit(torch.flip, args[0], (0,)) if eager[0].dim() else args[0]


def _combinations(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """Torch selects by a mask that is always the same; by index it says how long the result is."""
    source, r, with_replacement = args
    draw = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    columns = list(zip(*draw(range(len(eager[0])), r), strict=True))
    if not columns:
        return emit(torch.combinations, source, r, with_replacement)
    picked = [emit(operator.getitem, source, list(column), shape=(len(column),)) for column in columns]
    return emit(torch.stack, picked, 1)


_OPERATORS: Final[dict[str, Row]] = {
    "__add__": _function(torch.add),
    "__radd__": _function(torch.add),
    "__sub__": _function(torch.sub),
    "__rsub__": _function(torch.rsub),
    "__mul__": _function(torch.mul),
    "__rmul__": _function(torch.mul),
    "__truediv__": _function(torch.div),
    "__div__": _function(torch.div),
    "__rdiv__": Row(Kind.RECORD, "div", expand=_divided_by),
    "__rtruediv__": Row(Kind.RECORD, "div", expand=_divided_by),
    "__floordiv__": _function(torch.floor_divide),
    "__rfloordiv__": _function(torch.floor_divide, rule=rules.swapped),
    "__mod__": _function(torch.remainder),
    "__rmod__": _function(torch.remainder, rule=rules.swapped),
    "__pow__": _function(torch.pow),
    "__rpow__": _function(torch.pow, rule=rules.swapped),
    "__matmul__": _function(torch.matmul),
    "__rmatmul__": _function(torch.matmul, rule=rules.swapped),
    "__and__": _function(torch.bitwise_and),
    "__rand__": _function(torch.bitwise_and),
    "__or__": _function(torch.bitwise_or),
    "__ror__": _function(torch.bitwise_or),
    "__xor__": _function(torch.bitwise_xor),
    "__rxor__": _function(torch.bitwise_xor),
    "__invert__": _function(torch.bitwise_not),
    "__lshift__": _function(torch.bitwise_left_shift),
    "__rlshift__": _function(torch.bitwise_left_shift, rule=rules.swapped),
    "__rshift__": _function(torch.bitwise_right_shift),
    "__rrshift__": _function(torch.bitwise_right_shift, rule=rules.swapped),
    "__eq__": _function(torch.eq),
    "__ne__": _function(torch.ne),
    "__lt__": _function(torch.lt),
    "__le__": _function(torch.le),
    "__gt__": _function(torch.gt),
    "__ge__": _function(torch.ge),
    "__neg__": _function(torch.neg),
    "__pos__": _function(torch.positive),
    "__abs__": _function(torch.abs),
    "__getitem__": _function(operator.getitem),
    "__setitem__": _function(operator.setitem, writes=True),
    "__iadd__": _method("add_", writes=True),
    "__isub__": _method("sub_", writes=True),
    "__imul__": _method("mul_", writes=True),
    "__itruediv__": _method("div_", writes=True),
    "__idiv__": _method("div_", writes=True),
    "__ifloordiv__": _method("floor_divide_", writes=True),
    "__imod__": _method("remainder_", writes=True),
    "__ipow__": _method("pow_", writes=True),
    "__iand__": _method("bitwise_and_", writes=True),
    "__ior__": _method("bitwise_or_", writes=True),
    "__ixor__": _method("bitwise_xor_", writes=True),
    "__ilshift__": _method("bitwise_left_shift_", writes=True),
    "__irshift__": _method("bitwise_right_shift_", writes=True),
    "__reversed__": Row(Kind.RECORD, "flip", expand=_reversed),
    "__deepcopy__": Row(Kind.RECORD, "clone", expand=_cloned, own_class=True),
}

_PROPERTIES: Final[dict[str, Row]] = {
    "T": Row(Kind.RECORD, "t", expand=_transposed),
    "H": _function(torch.adjoint),
    "mT": _function(torch.transpose, rule=lambda x: ((x, -2, -1), {})),
    "mH": _function(torch.adjoint),
    "real": _function(torch.real),
    "imag": _function(torch.imag),
    "data": _function(torch.detach),
}
"""Properties that compute; every other one reads what a recording fixes."""

_METHODS: Final[dict[str, Row]] = {
    "bool": _method("to", rule=rules.cast_to(torch.bool)),
    "byte": _method("to", rule=rules.cast_to(torch.uint8)),
    "char": _method("to", rule=rules.cast_to(torch.int8)),
    "short": _method("to", rule=rules.cast_to(torch.int16)),
    "int": _method("to", rule=rules.cast_to(torch.int32)),
    "long": _method("to", rule=rules.cast_to(torch.int64)),
    "half": _method("to", rule=rules.cast_to(torch.float16)),
    "bfloat16": _method("to", rule=rules.cast_to(torch.bfloat16)),
    "float": _method("to", rule=rules.cast_to(torch.float32)),
    "double": _method("to", rule=rules.cast_to(torch.float64)),
    "cfloat": _method("to", rule=rules.cast_to(torch.complex64)),
    "cdouble": _method("to", rule=rules.cast_to(torch.complex128)),
    "type": _method("to", rule=rules.cast),
    "to": _method("to", rule=rules.device_free),
    **{name: _method("to", rule=rules.moved) for name in ("cpu", "cuda", "ipu", "mtia", "xpu")},
    **{name: _function(getattr(torch, name), rule=rules.packed) for name in ("flip", "permute", "tile", "reshape")},
    **{
        name: _function(
            getattr(torch, name),
            rule=lambda *args, **kwargs: rules.numpy_keywords(*rules.packed_dims(*args)[0], **kwargs),
        )
        for name in ("sum", "mean", "amax", "amin", "nansum", "nanmean", "count_nonzero")
    },
    "where": _function(torch.where, rule=rules.condition_first),
    "polygamma": _function(torch.polygamma, rule=rules.swapped),
    "as_strided": Row(Kind.RECORD, "as_strided", expand=_strided, rule=rules.strided),
    # The other objects over the same memory keep their form.
    **{
        f"{name}_": _function(getattr(torch, name), writes=True, rebinds=True)
        for name in ("unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims")
    },
    "combinations": Row(Kind.RECORD, "combinations", expand=_combinations, rule=rules.combined),
    "new_full": FILLED["new_full"],
    # No public function of these names takes a tensor.
    **{name: _method(name) for name in ("view", "expand", "repeat", "unfold", "contiguous", "type_as", "unflatten")},
}

_FUNCTIONS: Final[dict[Any, Row]] = {
    torch.as_strided: _METHODS["as_strided"],
    torch.combinations: _METHODS["combinations"],
    torch.full: FILLED["full"],
    torch.full_like: FILLED["full_like"],
    torch.native_channel_shuffle: _function(torch.channel_shuffle),
}
"""Functions that are recorded as others."""

METADATA: Final[frozenset[str]] = frozenset(
    "size dim ndim ndimension shape stride numel nelement element_size storage_offset is_contiguous "
    "is_floating_point is_complex is_signed is_inference is_conj is_neg is_pinned is_shared is_set_to get_device "
    "data_ptr const_data_ptr untyped_storage storage storage_type _typed_storage dim_order is_same_size is_tensor "
    "is_storage result_type can_cast promote_types numel is_coalesced sparse_dim dense_dim is_distributed "
    "has_names requires_grad_ retain_grad register_hook register_post_accumulate_grad_hook backward detach_ "
    "__len__ __hash__ __dir__ __dlpack_device__ __sizeof__ __class__ _is_view _use_count _fix_weakref "
    "share_memory_ record_stream pin_memory align_as rename names refine_names _has_compatible_shallow_copy_type "
    "_shallow_copy_type_compatible set_default_dtype broadcast_shapes overrides _debug_has_internal_overlap "
    # Makes a tensor of an array that NumPy has computed; of its own tensor it reads nothing.
    "__array_wrap__".split()
)
"""Calls whose answer follows from shape, dtype, layout or autograd state."""

ESCAPES: Final[frozenset[str]] = frozenset(
    "item tolist __float__ __int__ __index__ __complex__ __long__ __bool__ __nonzero__ __contains__ __format__ "
    "__repr__ __str__ numpy __array__ __dlpack__ __reduce_ex__ __reduce__ _reduce_ex_internal "
    "equal allclose is_nonzero unique_consecutive_length".split()
)

_LOOK_AT_CLASS: Final = frozenset(("__format__", "__repr__", "__str__", "__reduce__", "__reduce_ex__"))

_PLAIN: Final[frozenset[str]] = frozenset("new_tensor new_zeros new_ones new_empty new_empty_strided new".split())
"""Factories that take only dtype and device from the tensor."""

_CROSSINGS: Final[frozenset[str]] = frozenset(("tensor", "as_tensor", "asarray", "scalar_tensor"))

RANDOM: Final[frozenset[str]] = frozenset(
    "rand randn randint randperm normal bernoulli multinomial poisson binomial rand_like randn_like randint_like "
    "normal_ uniform_ random_ exponential_ geometric_ cauchy_ log_normal_ bernoulli_ _standard_gamma "
    "_sample_dirichlet gumbel_softmax _fused_dropout native_dropout".split()
)
"""Calls that always draw."""

_DRAWS_WHEN_TRAINING: Final[frozenset[str]] = frozenset(
    "dropout dropout_ dropout1d dropout2d dropout3d feature_dropout feature_dropout_ alpha_dropout alpha_dropout_ "
    "feature_alpha_dropout feature_alpha_dropout_ rrelu rrelu_ rrelu_with_noise rnn_tanh rnn_relu lstm gru "
    "multi_head_attention_forward scaled_dot_product_attention fractional_max_pool2d fractional_max_pool3d".split()
)
"""Calls that draw depending on their arguments; whether one did is seen by the generator's state."""

MAY_DRAW: Final = RANDOM | _DRAWS_WHEN_TRAINING

LENGTHS: Final = frozenset(("shape", "size", "__len__", "numel", "nelement", "nbytes"))
"""Reads of how many elements there are: of a result that selects, they follow the data."""

SELECTS: Final = frozenset(
    "nonzero argwhere masked_select unique unique_consecutive bincount repeat_interleave".split()
)
"""Calls whose result is as long as the data say."""

LISTS: Final = frozenset(
    "einsum meshgrid broadcast_tensors atleast_1d atleast_2d atleast_3d block_diag cartesian_prod chain_matmul".split()
)
"""Python functions of torch that take their tensors in a list as well, and look for hooks in none."""

STATISTICS: Final = frozenset(("batch_norm", "instance_norm", "native_batch_norm"))
"""Calls that write running statistics without telling torch's version counters."""


class _Refused(NamedTuple):
    names: str
    why: str
    advice: str


REFUSED: Final = (
    _Refused(
        "torch.autograd.grad torch.autograd.backward",
        "gradients are not part of a recording",
        "Use torch.func.grad or another transform of torch.func, which is recorded, or compute it outside the node.",
    ),
    _Refused(
        "Tensor.set_ Tensor.module_load",
        "it replaces memory behind the trace",
        "Use the other tensor itself, or copy its values with Tensor.copy_.",
    ),
    _Refused(
        "Tensor.resize_ Tensor.resize_as_ Tensor.resize Tensor.resize_as",
        "it changes how much memory a tensor has, and what the new part holds is not defined",
        "Use torch.nn.functional.pad, torch.cat or a slice.",
    ),
    _Refused(
        "Tensor.to_sparse Tensor.to_sparse_coo Tensor.to_sparse_csr Tensor.to_sparse_csc Tensor.to_sparse_bsr "
        "Tensor.to_sparse_bsc Tensor.sparse_mask Tensor.to_mkldnn",
        "it gives a tensor that is not dense, which no model file holds",
        "Stay with dense tensors; multiply with a mask instead of selecting.",
    ),
    _Refused(
        "torch.quantize_per_tensor torch.quantize_per_channel torch.quantize_per_tensor_dynamic "
        "torch.fbgemm_pack_gemm_matrix_fp16 torch.fbgemm_linear_quantize_weight torch.fbgemm_pack_quantized_matrix",
        "it gives a quantised or packed tensor, which no recording holds",
        "Use torch.fake_quantize_per_tensor_affine, or quantise the exported model.",
    ),
    _Refused(
        "torch._nested_tensor_from_tensor_list torch._nested_tensor_from_mask "
        "torch._nested_tensor_from_mask_left_aligned",
        "it makes a nested tensor, which no model file holds; nn.TransformerEncoder does so with a padded batch",
        "Pad the sequences; make nn.TransformerEncoder with enable_nested_tensor=False.",
    ),
    _Refused(
        "Tensor.apply_ Tensor.map_ Tensor.map2_",
        "it calls a Python function for every element",
        "Write the function with tensor operations.",
    ),
)
"""Calls on a traced tensor that are an error; the walk over all functions shows that each is one."""

OPERATOR_CLASSES: Final = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)

_FUSED: Final = {
    attention.LAYER: (attention.encoder_layer, torch.ops.aten._transformer_encoder_layer_fwd.default),
    attention.MULTI_HEAD: (attention.multi_head, torch.ops.aten._native_multi_head_attention.default),
}
"""Calls of fused kernels, and what is recorded for them."""

_REFUSED: Final = {name: each for each in REFUSED for name in each.names.split()}

GRADIENTS: Final = frozenset((torch.autograd.grad, torch.autograd.backward))
"""Calls that need what torch kept of each operation: where a transform of ``torch.func`` is recorded, that is known."""

FUSED_NAMES: Final = frozenset(each.__name__ for each in _FUSED)

_ROWS: dict[Any, Row] = {}


def row_of(function: Any) -> Row:
    """The row of a callable as ``__torch_function__`` receives it; derived once and kept."""
    row = _ROWS.get(function)
    if row is None:
        row = _ROWS[function] = _derive(function)
    return row


def _derive(function: Any) -> Row:
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, OPERATOR_CLASSES):
        base = name.partition(".")[0]
        return Row(Kind.OPERATOR, base, target=function, random=base in MAY_DRAW)
    if isinstance(function, torch._ops.HigherOrderOperator):
        if name in ("cond", "while_loop"):
            return Row(Kind.CONTROL, f"torch.{name}")
        return Row(
            Kind.REFUSE,
            f"torch.ops.higher_order.{name}",
            why="it hands Python functions to torch's compiler",
            advice="Write the loop in Python: it is unrolled. For elements of a batch, use torch.func.vmap.",
        )
    why = _unnameable(function)
    if why:
        return Row(Kind.REFUSE, name, why=why, advice="Call a public function.")
    refused = _REFUSED.get(_listed_name(function, name))
    if refused is not None:
        return Row(Kind.REFUSE, _listed_name(function, name), why=refused.why, advice=refused.advice)
    if name in FUSED_NAMES and function in _FUSED:
        expand, operator_ = _FUSED[function]
        return Row(Kind.RECORD, name, expand=expand, rule=rules.with_defaults(operator_))
    if name in ("__get__", "__set__", "__delete__"):
        return _property_row(function, name)
    if name in METADATA:
        return Row(Kind.METADATA, name)
    if name in ESCAPES:
        return Row(Kind.ESCAPE, name, own_class=name in _LOOK_AT_CLASS)
    if _is_tensor_method(function):
        return _method_row(function, name)
    if name in _CROSSINGS:
        return Row(Kind.CROSSING, name)
    if function in _FUNCTIONS:
        return _FUNCTIONS[function]
    return Row(
        Kind.RECORD,
        name,
        target=function,
        rule=rules.without_defaults(function) if isinstance(function, FunctionType) else rules.numpy_keywords,
        writes=_is_in_place(name),
        random=name in MAY_DRAW,
    )


def _listed_name(function: Any, name: str) -> str:
    if _is_tensor_method(function):
        return f"Tensor.{name}"
    return f"{getattr(function, '__module__', None) or 'torch'}.{name}"  # built-in functions of torch have no module


def _unnameable(function: Any) -> str:
    """Why generated code cannot call a function; empty when it can, by the module it lives in."""
    if isinstance(function, torch._C.ScriptMethod | torch._C.ScriptFunction):
        return "TorchScript runs outside Python, and this call came to it by a way that is not traced through"
    if not isinstance(function, FunctionType) or _is_tensor_method(function):
        return ""
    named = getattr(sys.modules.get(function.__module__), function.__name__, None)
    return "" if named is function else f"{function.__module__}.{function.__qualname__} cannot be called by its name"


def _property_row(wrapper: Any, access: str) -> Row:
    name = getattr(wrapper.__self__, "__name__", "")
    if access != "__get__":
        if name in ("requires_grad", "grad", "names", "_grad", "_backward_hooks"):
            return Row(Kind.METADATA, name)
        return Row(
            Kind.REFUSE,
            f"assigning to Tensor.{name}",
            why="it replaces memory behind the trace",
            advice="Compute a new tensor, or write its elements: x[...] = value.",
        )
    return _PROPERTIES.get(name) or Row(Kind.METADATA, name)


def _method_row(function: Any, name: str) -> Row:
    if name in _PLAIN:
        return Row(Kind.PLAIN, name)
    listed = _OPERATORS.get(name) or _METHODS.get(name)
    if listed is not None:
        return listed
    public = None if name.endswith("_") else getattr(torch, name, None)
    if callable(public) and not isinstance(public, type):
        rule = rules.without_defaults(function) if isinstance(function, FunctionType) else rules.numpy_keywords
        return _function(public, name=name, rule=rule, random=name in MAY_DRAW)
    return _method(name, rule=rules.numpy_keywords, writes=_is_in_place(name), random=name in MAY_DRAW)


def _is_tensor_method(function: Any) -> bool:
    name = function.__name__ if hasattr(function, "__name__") else ""
    owner = getattr(function, "__objclass__", None)
    if owner is not None:
        return issubclass(torch.Tensor, owner)
    return (
        isinstance(function, FunctionType)
        and function.__qualname__.split(".")[0] in ("Tensor", "TensorBase")
        and (getattr(torch.Tensor, name, None) is function or hasattr(_TensorBase, name))
    )


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def public_name(target: Any) -> str:
    """Name of an FX target as its users write it: ``torch.nn.functional.linear``, not where it is defined."""
    name = _public_names().get(_identity(target))
    if name is not None:
        return name
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    module = getattr(target, "__module__", None) or ""
    return f"{module}.{getattr(target, '__qualname__', repr(target))}".removeprefix("builtins.").lstrip(".")


def _identity(target: Any) -> Any:
    """Built-in functions are equal where their code is, whatever they are called: ``torch.mm``, ``torch.dsmm``."""
    try:
        hash(target)
    except TypeError:
        return id(target)
    return target, getattr(target, "__name__", "")


_PUBLIC_NAMES: dict[Any, str] = {}


def _public_names() -> dict[Any, str]:
    if not _PUBLIC_NAMES:
        modules = (
            ("operator", operator),
            ("torch", torch),
            ("torch.nn.functional", torch.nn.functional),
            ("torch.linalg", torch.linalg),
            ("torch.special", torch.special),
            ("torch.fft", torch.fft),
        )
        for prefix, module in modules:
            exported = getattr(module, "__all__", None) if prefix == "operator" else dir(module)
            for name in exported or ():
                thing = getattr(module, name, None)
                if not name.startswith("_") and callable(thing) and not isinstance(thing, type):
                    _PUBLIC_NAMES.setdefault(_identity(thing), f"{prefix}.{name}")
    return _PUBLIC_NAMES
