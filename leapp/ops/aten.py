"""Operators of the dispatcher (``aten::add.Tensor``) -> the public torch function that computes the same.

TorchScript graphs and ``torch.ops`` calls name operators; a recording names public functions, which every exporter
takes. Most operators have a public function of the same name and argument order (``public_call`` finds it); those that
differ in name or arguments have a rule here, a plain function with the operator's own signature. What has neither
stays the operator itself.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PublicCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A callable, its positional and its keyword arguments."""

_RULES: Final[dict[str, Callable[..., PublicCall | None]]] = {}

_Tensor: Any = torch.Tensor
_C: Any = torch._C
F: Any = torch.nn.functional  # its name everywhere


def _rule(*names: str) -> Callable[[Callable[..., PublicCall | None]], Callable[..., PublicCall | None]]:
    """Register a rule for operators; it gives None for arguments that no public function takes."""

    def register(function: Callable[..., PublicCall | None]) -> Callable[..., PublicCall | None]:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return register


# --- indexing ------------------------------------------------------------------------------------------------------


@_rule("slice")
def _slice(self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> PublicCall:
    rank = self.dim()
    # The dispatcher clamps what is out of range, as Python's slices do; ``sys.maxsize`` means "to the end".
    stop = None if end is not None and end >= 2**63 - 1 else end
    window = slice(start or None, stop, step if step != 1 else None)
    return operator.getitem, (self, (*[slice(None)] * (dim % rank if rank else 0), window)), {}


def _index(indices: Sequence[Any]) -> tuple[Any, ...]:
    """``None`` in an operator's index list takes the whole axis; in Python it would add one."""
    return tuple([slice(None) if each is None else each for each in indices])


@_rule("index", "_unsafe_index")
def _indexed(self: Any, indices: Sequence[Any]) -> PublicCall:
    return operator.getitem, (self, _index(indices)), {}


@_rule("index_put_", "_index_put_impl_")
def _index_put_(
    self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> PublicCall | None:
    if not accumulate and not unsafe and values.dtype == self.dtype:
        return _assign, (self, _index(indices), values), {}
    if any(each is None for each in indices):
        return None
    return _Tensor.index_put_, (self, tuple(indices), values, accumulate), {}


def _assign(owner: Any, index: Any, value: Any) -> Any:
    """An assignment as an expression: the operator returns what it wrote."""
    owner[index] = value
    return owner


@_rule("index_put", "_unsafe_index_put")
def _index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> PublicCall | None:
    if any(each is None for each in indices):
        return None
    return torch.index_put, (self, tuple(indices), values, accumulate), {}


# --- shape and type ------------------------------------------------------------------------------------------------


@_rule("to")
def _to(self: Any, *args: Any, **kwargs: Any) -> PublicCall:
    while args and args[-1] is None:
        args = args[:-1]
    return _Tensor.to, (self, *[each for each in args if each is not None]), kwargs


@_rule("_to_copy")
def _to_copy(self: Any, *, dtype: Any = None, memory_format: Any = None, **placement: Any) -> PublicCall | None:
    if placement.get("layout") not in (None, torch.strided):
        return None
    keywords = {"memory_format": memory_format} if memory_format is not None else {}
    return _Tensor.to, (self, dtype or self.dtype, False, True), keywords


@_rule("_unsafe_view")
def _unsafe_view(self: Any, size: Any) -> PublicCall:
    return torch.reshape, (self, size), {}


@_rule("numpy_T")
def _numpy_t(self: Any) -> PublicCall:
    return _Tensor.T.__get__, (self,), {}


@_rule("mT")
def _matrix_t(self: Any) -> PublicCall:
    return torch.transpose, (self, -2, -1), {}


@_rule("mH", "matrix_H")
def _matrix_h(self: Any) -> PublicCall:
    return torch.adjoint, (self,), {}


@_rule("alias")
def _alias(self: Any) -> PublicCall:
    return _Tensor.view_as, (self, self), {}


@_rule("lift_fresh_copy")
def _lifted(self: Any) -> PublicCall:
    return torch.clone, (self,), {}


@_rule("lift_fresh", "lift")
def _lifted_alias(self: Any) -> PublicCall:
    return torch.detach, (self,), {}


@_rule("split", "split_with_sizes")
def _split(self: Any, sizes: Any, dim: int = 0) -> PublicCall:
    return torch.split, (self, sizes, dim), {}


@_rule("expand")
def _expand(self: Any, size: Any, *, implicit: bool = False) -> PublicCall:
    del implicit
    return _Tensor.expand, (self, size), {}


def _spread(function: Any) -> Callable[..., PublicCall]:
    """The operator takes a list where the function takes its members."""

    def rule(tensors: Any, **keywords: Any) -> PublicCall:
        return function, (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors), keywords

    return rule


for _name in (
    "broadcast_tensors",
    "block_diag",
    "cartesian_prod",
    "meshgrid",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
):
    _RULES[_name] = _spread(getattr(torch, _name))


@_rule("einsum")
def _einsum(equation: str, tensors: Sequence[Any], *, path: Any = None) -> PublicCall | None:
    # With three operands and more the function may choose an order of its own, which changes the last bits.
    if path is not None or len(tensors) > 2:
        return None
    return torch.einsum, (equation, *tensors), {}


@_rule("sym_size")
def _size(self: Any, dim: Any = None) -> PublicCall:
    return _Tensor.size, (self,) if dim is None else (self, dim), {}


@_rule("sym_stride")
def _stride(self: Any, dim: Any = None) -> PublicCall:
    return _Tensor.stride, (self,) if dim is None else (self, dim), {}


@_rule("sym_numel")
def _numel(self: Any) -> PublicCall:
    return _Tensor.numel, (self,), {}


@_rule("_local_scalar_dense")
def _item(self: Any) -> PublicCall:
    return _Tensor.item, (self,), {}


# --- layers --------------------------------------------------------------------------------------------------------


@_rule("_convolution", "convolution")
def _convolution(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *flags: Any,
) -> PublicCall | None:  # fmt: skip
    del flags  # of the CUDA library
    rank = weight.dim() - 2
    if rank not in (1, 2, 3):
        return None
    if transposed:
        args = (input, weight, bias, stride, padding, output_padding, groups, dilation)
        return getattr(F, f"conv_transpose{rank}d"), args, {}
    return getattr(F, f"conv{rank}d"), (input, weight, bias, stride, padding, dilation, groups), {}


@_rule("batch_norm")
def _batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, _cudnn: bool
) -> PublicCall:
    return F.batch_norm, (input, mean, var, weight, bias, training, momentum, eps), {}


@_rule("instance_norm")
def _instance_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, momentum: float, eps: float,
    _cudnn: bool,
) -> PublicCall:  # fmt: skip
    return F.instance_norm, (input, mean, var, weight, bias, use_input_stats, momentum, eps), {}


@_rule("layer_norm")
def _layer_norm(
    input: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, _cudnn: bool = True
) -> PublicCall:
    return F.layer_norm, (input, tuple(shape), weight, bias, eps), {}


@_rule("group_norm")
def _group_norm(
    input: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, _cudnn: bool = True
) -> PublicCall:
    return F.group_norm, (input, groups, weight, bias, eps), {}


@_rule("embedding")
def _embedding(weight: Any, indices: Any, *gradients: Any, **more: Any) -> PublicCall:
    del gradients, more  # the rest speaks of gradients
    return F.embedding, (indices, weight), {}


def _softmax(function: Any) -> Callable[..., PublicCall]:
    return lambda self, dim, dtype=None: (function, (self, dim), {"dtype": dtype} if dtype is not None else {})


def _core_softmax(function: Any) -> Callable[..., PublicCall | None]:
    return lambda self, dim, half_to_float: None if half_to_float else (function, (self, dim), {})


for _name in ("softmax", "log_softmax"):
    _RULES[_name] = _softmax(getattr(torch, _name))
    _RULES[f"_{_name}"] = _core_softmax(getattr(torch, _name))


def _dropout(function: Any, *, inplace: bool) -> Callable[..., PublicCall]:
    return lambda tensor, p, train: (function, (tensor, p, train, inplace), {})


for _name, _function in (
    ("dropout", F.dropout),
    ("alpha_dropout", F.alpha_dropout),
    ("feature_alpha_dropout", F.feature_alpha_dropout),
):
    _RULES[_name] = _dropout(_function, inplace=False)
    _RULES[f"{_name}_"] = _dropout(_function, inplace=True)


@_rule("elu")
def _elu(self: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> PublicCall | None:
    return (F.elu, (self, alpha), {}) if scale == input_scale == 1 else None


@_rule("log_sigmoid")
def _log_sigmoid(self: Any) -> PublicCall:
    return F.logsigmoid, (self,), {}


_PAD_MODES = {"reflection": "reflect", "replication": "replicate"}
for _name, _mode in _PAD_MODES.items():
    for _rank in (1, 2, 3):
        _RULES[f"{_name}_pad{_rank}d"] = lambda self, padding, _mode=_mode: (
            F.pad, (self, tuple(padding), _mode), {},
        )  # fmt: skip


@_rule("pad")
def _pad(self: Any, pad: Any, mode: str = "constant", value: Any = None) -> PublicCall:
    return F.pad, (self, tuple(pad), mode, value), {}


@_rule("constant_pad_nd")
def _constant_pad(self: Any, pad: Any, value: Any = 0) -> PublicCall:
    return F.pad, (self, tuple(pad), "constant", value), {}


@_rule("im2col")
def _unfold(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> PublicCall:
    return F.unfold, (self, tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride)), {}


@_rule("col2im")
def _fold(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> PublicCall:
    args = (self, tuple(output_size), tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride))
    return F.fold, args, {}


def _adaptive(function: Any) -> Callable[..., PublicCall]:
    return lambda self, output_size: (function, (self, tuple(output_size)), {})


for _rank in (2, 3):
    for _name in (f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d"):
        _RULES[_name] = _adaptive(getattr(F, f"adaptive_avg_pool{_rank}d"))
for _rank in (1, 2, 3):
    _RULES[f"adaptive_max_pool{_rank}d"] = _adaptive(getattr(F, f"adaptive_max_pool{_rank}d_with_indices"))


def _pool_with_indices(function: Any) -> Callable[..., PublicCall]:
    def rule(
        self: Any, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> PublicCall:
        return function, (self, kernel, stride or None, padding, dilation, ceil_mode), {}

    return rule


_RULES["max_pool1d_with_indices"] = _pool_with_indices(F.max_pool1d_with_indices)
_RULES["max_pool2d_with_indices"] = _pool_with_indices(F.max_pool2d_with_indices)
_RULES["max_pool3d_with_indices"] = _pool_with_indices(F.max_pool3d_with_indices)


def _interpolate(mode: str, *, aligned: bool) -> Callable[..., PublicCall | None]:
    """``upsample_*`` in its two forms: with a list of scales, or with one argument per scale."""

    def rule(self: Any, size: Any, *rest: Any) -> PublicCall | None:
        align = {"align_corners": rest[0]} if aligned else {}
        scales = list(rest[aligned:])
        if len(scales) == 1 and isinstance(scales[0], (list, tuple)):
            return (F.interpolate, (self, None, tuple(scales[0]), mode), align) if size is None else None
        if any(each is not None for each in scales) or size is None:
            return None
        return F.interpolate, (self, tuple(size), None, mode), align

    return rule


for _name, _mode, _aligned in (
    ("nearest1d", "nearest", False), ("nearest2d", "nearest", False), ("nearest3d", "nearest", False),
    ("_nearest_exact1d", "nearest-exact", False), ("_nearest_exact2d", "nearest-exact", False),
    ("_nearest_exact3d", "nearest-exact", False), ("linear1d", "linear", True), ("bilinear2d", "bilinear", True),
    ("bicubic2d", "bicubic", True), ("trilinear3d", "trilinear", True),
):  # fmt: skip
    _key = f"_upsample{_name}" if _name.startswith("_") else f"upsample_{_name}"
    _RULES[_key] = _interpolate(_mode, aligned=_aligned)

_REDUCTIONS: Final = ("none", "mean", "sum")


def _loss(function: Any, *, extra: tuple[str, ...] = ()) -> Callable[..., PublicCall]:
    """A loss whose reduction is a number for the operator and a word for the function."""

    def rule(self: Any, target: Any, reduction: int = 1, *rest: Any, **more: Any) -> PublicCall:
        keywords = dict(zip(extra, rest, strict=False)) | more
        return function, (self, target), {**keywords, "reduction": _REDUCTIONS[reduction]}

    return rule


def _weighted_loss(function: Any, *, before: tuple[str, ...], after: tuple[str, ...] = ()) -> Callable[..., PublicCall]:
    """As ``_loss``, with optional tensors in front of the reduction."""

    def rule(self: Any, target: Any, *rest: Any, **more: Any) -> PublicCall:
        keywords = dict(zip((*before, "reduction", *after), rest, strict=False)) | more
        keywords["reduction"] = _REDUCTIONS[keywords.get("reduction", 1)]
        return function, (self, target), {name: value for name, value in keywords.items() if value is not None}

    return rule


_RULES["mse_loss"] = _loss(F.mse_loss)
_RULES["l1_loss"] = _loss(F.l1_loss)
_RULES["smooth_l1_loss"] = _loss(F.smooth_l1_loss, extra=("beta",))
_RULES["huber_loss"] = _loss(F.huber_loss, extra=("delta",))
_RULES["binary_cross_entropy"] = _weighted_loss(F.binary_cross_entropy, before=("weight",))
_RULES["binary_cross_entropy_with_logits"] = _weighted_loss(
    F.binary_cross_entropy_with_logits, before=("weight", "pos_weight")
)
_RULES["nll_loss_nd"] = _RULES["nll_loss"] = _RULES["nll_loss2d"] = _weighted_loss(
    F.nll_loss, before=("weight",), after=("ignore_index",)
)
_RULES["cross_entropy_loss"] = _weighted_loss(
    F.cross_entropy, before=("weight",), after=("ignore_index", "label_smoothing")
)

# --- the general case ----------------------------------------------------------------------------------------------

_METHODS_FIRST: Final = frozenset(
    "view expand repeat unfold contiguous type_as unflatten size stride numel dim is_contiguous element_size item "
    "storage_offset new_zeros new_ones new_full new_empty new_empty_strided to".split()
)
"""Operators whose public form is the method, or whose function of that name is something else."""

_BUILTIN: Final = (BuiltinFunctionType, BuiltinMethodType, MethodDescriptorType)
_PREFIXES: Final = {"linalg_": torch.linalg, "fft_": torch.fft, "special_": torch.special}
_POSITIONAL_COMPATIBLE: Final = frozenset(
    "relu relu6 leaky_relu hardtanh silu mish hardswish hardsigmoid glu softmin tanhshrink normalize".split()
)
"""Python functions of ``torch.nn.functional`` whose first arguments are the operator's."""


@lru_cache(maxsize=4096)
def public_function(name: str) -> Any:
    """The public callable of an operator with the operator's arguments in the operator's order; None if there is none.

    A private builtin of torch counts as none: the operator itself has the better name.
    """
    if name in _METHODS_FIRST or name.endswith("_") or name.startswith("__"):
        return getattr(torch.Tensor, name, None)
    for prefix, module in _PREFIXES.items():
        if name.startswith(prefix):
            return getattr(module, name.removeprefix(prefix), None)
    for module in (torch, torch.nn.functional):
        found = getattr(module, name, None)
        if isinstance(found, _BUILTIN) or (name in _POSITIONAL_COMPATIBLE and isinstance(found, FunctionType)):
            return found
    variable: Any = getattr(torch._C._VariableFunctions, name, None)
    if variable is not None and not name.startswith("_"):
        return variable  # torch.stft and the like are Python functions of another signature
    return getattr(torch.Tensor, name, None) if not name.startswith("_") else variable


def overload_of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The overload that a call of ``torch.ops.aten.add`` or of one of its overloads means."""
    if isinstance(function, torch._ops.OpOverload):
        return function
    name = _C._jit_resolve_packet(function._qualified_op_name, *args, **kwargs)
    return getattr(function, name or "default")


def bound(arguments: Sequence[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """One value per argument of a schema, in order; None where the call does not fit, which torch itself explains."""
    rest = dict(kwargs)
    values = list(args)
    for argument in arguments[len(args) :]:
        if argument.name in rest:
            values.append(rest.pop(argument.name))
        elif argument.has_default_value():
            values.append(argument.default_value)
        else:
            return None
    return None if rest or len(values) != len(arguments) else values


def made_in_python(overload: Any) -> bool:
    """Whether an operator's implementation is Python code that someone registered."""
    name = overload.name().partition("::")[2].partition(".")[0]
    overloaded = overload.name().partition("::")[2]
    return any(
        f"{overload.namespace}/{each}/{key}" in torch.library._impls
        for each in {name, overloaded}
        for key in ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    )


def run_python_kernel(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the implementation itself, below the dispatcher's own hooks, so that it meets ours."""
    return overload.redispatch(_C.DispatchKeySet(_C.DispatchKey.CPU), *args, **kwargs)


def operator_of(namespace: str, name: str, overload: str) -> Any:
    """``torch.ops.<namespace>.<name>.<overload>``."""
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def public_call(namespace: str, name: str, schema: Any, values: Sequence[Any]) -> PublicCall:
    """The public call for one operator call; ``values`` holds one value per argument of the schema, in order."""
    args, kwargs = _split_arguments(schema, values)
    if namespace == "aten":
        rule = _RULES.get(name)
        found = rule(*args, **kwargs) if rule is not None and "out" not in kwargs else None
        if found is not None:
            return found
        function = public_function(name) if rule is None or "out" in kwargs else None
        if function is not None:
            return function, args, kwargs
    return operator_of(namespace, name, schema.overload_name), args, kwargs


def _split_arguments(schema: Any, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments without what stands at its default at the end."""
    positional: list[Any] = []
    needed = 0
    kwargs: dict[str, Any] = {}
    for argument, value in zip(schema.arguments, values, strict=True):
        default = argument.has_default_value() and _same(value, argument.default_value)
        if argument.kwarg_only:
            if not default:
                kwargs[argument.name] = value
        else:
            positional.append(value)
            if not default:
                needed = len(positional)
    return tuple(positional[:needed]), kwargs


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return False
    return value is default or (type(value) is type(default) and bool(value == default))


# --- numbers that stand for dtypes ---------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _numbered() -> dict[str, dict[int, Any]]:
    """What TorchScript keeps as a number, by the name of its type; the numbers are torch's own."""
    graph = _C.Graph()
    things = {each for each in vars(torch).values() if isinstance(each, (torch.dtype, torch.layout))}
    numbers = {each: graph.insertConstant(each).toIValue() for each in things}
    formats = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
    return {
        "ScalarType": {number: each for each, number in numbers.items() if isinstance(each, torch.dtype)},
        "Layout": {number: each for each, number in numbers.items() if isinstance(each, torch.layout)},
        "MemoryFormat": dict(enumerate(formats)),
    }


def named(argument: Any, value: Any) -> Any:
    """A dtype, layout or memory format where TorchScript has a number for one; any other value as it is."""
    if type(value) is not int:
        return value
    kind = _kind_of(str(argument.real_type))
    if kind is None:
        # Operators that TorchScript registers itself say "int" and mean a dtype.
        kind = "ScalarType" if argument.name == "dtype" else None
    return value if kind is None else _numbered()[kind].get(value, value)


@lru_cache(maxsize=1024)
def _kind_of(type_name: str) -> str | None:
    return next((kind for kind in ("ScalarType", "Layout", "MemoryFormat") if kind in type_name), None)
