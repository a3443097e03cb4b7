"""ATen overloads, as torch's dispatcher sees them -> the public torch function that is recorded.

Used where a call is only visible below the public functions: inside ``torch.func`` transforms, under autocast. Most
ATen operations have a public function of the same name and signature; what differs is listed. What has no public
function stays the overload itself (``torch.ops.aten.tanh_backward.default``).
"""

from __future__ import annotations

import operator
from types import BuiltinFunctionType
from typing import Any, Final

import torch

from leapp.ops._row import Kind, Row
from leapp.ops._rules import Args, with_defaults


def _cast_arguments(source: Any, *, dtype: Any = None, **placement: Any) -> Args:
    """``_to_copy``: where the copy lies is no part of a recording."""
    del placement
    return (source, dtype), {}


def _cast_copy(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """A copy, in another dtype where one is named."""
    source, dtype = args
    if dtype is None or dtype is eager[0].dtype:
        return emit(torch.clone, source)
    return emit("to", source, dtype)


def _slice_arguments(source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Args:
    return (source, dim, start, end, step), {}


def _slice(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """``slice(x, dim, start, end, step)`` as the index that users write."""
    source, dim, start, end, step = args
    stop = None if end is None or end >= 2**62 else end
    part = slice(start, stop, None if step == 1 else step)
    return emit(operator.getitem, source, (*[slice(None)] * (dim % eager[0].dim()), part))


def _index(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """``index(x, [None, i])`` as ``x[:, i]``."""
    del eager
    return emit(operator.getitem, args[0], tuple([slice(None) if item is None else item for item in args[1]]))


def _alias(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    """Another name for the same memory."""
    if eager[0].is_contiguous():
        return emit("view", args[0], tuple(eager[0].shape))
    return emit(torch.detach, args[0])


def _normalised(target: Any) -> Any:
    def expand(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
        """``_softmax(x, dim, half_to_float)``: the last argument speaks of CUDA kernels alone."""
        del eager
        return emit(target, args[0], args[1])

    return expand


_INDEXED: Final = frozenset(("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"))
"""``None`` in their index lists takes a whole axis, which no binding in Python accepts: recorded as they are."""

_EXPANDED: Final[dict[str, dict[str, Any]]] = {
    "_to_copy": {"expand": _cast_copy, "rule": _cast_arguments},
    "slice": {"expand": _slice, "rule": _slice_arguments},
    "index": {"expand": _index},
    "alias": {"expand": _alias},
    "lift_fresh": {"expand": _alias},
    "_softmax": {"expand": _normalised(torch.softmax)},
    "_log_softmax": {"expand": _normalised(torch.log_softmax)},
    **{
        f"{name}_": {"target": getattr(torch, name), "rebinds": True}
        for name in ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims")
    },
}

_RENAMED: Final[dict[str, Any]] = {
    "_unsafe_view": torch.reshape,
    "_conj": torch.conj,
    "_conj_physical": torch.conj_physical,
    "_adaptive_avg_pool2d": torch.nn.functional.adaptive_avg_pool2d,
    "_adaptive_avg_pool3d": torch.nn.functional.adaptive_avg_pool3d,
}
"""Operations that torch's public function of another name computes with the same arguments."""

_SAID_BY_SHAPE: Final = frozenset(
    "is_same_size _has_same_storage_numel sym_size sym_stride sym_numel sym_storage_offset size stride numel dim "
    "is_pinned _pin_memory _efficientzerotensor is_contiguous is_strides_like_format is_non_overlapping_and_dense "
    "_linalg_check_errors _nested_tensor_size _version retain_grad detach_".split()
)

_READS: Final = {"_local_scalar_dense": "item", "item": "item", "is_nonzero": "__bool__", "equal": "equal"}
"""Operations that hand a value to Python or C++, and what they are called there."""

_NEW: Final = frozenset(("new_empty", "new_empty_strided", "new_zeros", "new_ones", "empty_like"))
"""Operations that take nothing from a tensor's values."""

_ROWS: dict[Any, Row] = {}


def row_of_overload(overload: Any) -> Row:
    """The row of a ``torch._ops.OpOverload``; derived once and kept."""
    row = _ROWS.get(overload)
    if row is None:
        row = _ROWS[overload] = _derive(overload)
    return row


def _derive(overload: Any) -> Row:
    namespace, _, name = overload._schema.name.partition("::")
    random = torch.Tag.nondeterministic_seeded in overload.tags
    writes = overload._schema.is_mutable
    if namespace != "aten":
        return Row(Kind.RECORD, name, target=overload, random=random, writes=writes)
    if name in _READS:
        return Row(Kind.ESCAPE, _READS[name])
    if name in _SAID_BY_SHAPE:
        return Row(Kind.METADATA, name)
    if name in _NEW:
        return Row(Kind.PLAIN, name)
    if name in _INDEXED:
        return Row(Kind.RECORD, name.lstrip("_"), target=overload, writes=writes)
    if name in _EXPANDED:
        return Row(Kind.RECORD, name.strip("_"), **_EXPANDED[name])
    target = _RENAMED.get(name) or _public(name)
    if target is None and hasattr(torch.Tensor, name) and _first_is_tensor(overload):
        return Row(Kind.RECORD, name, op="call_method", target=name, random=random, writes=writes)
    loss = any(each.name == "reduction" for each in overload._schema.arguments)
    # Defaults are said aloud: those of torch's bindings are not always those of the operator.
    rule = with_defaults(overload) if loss or hasattr(torch._C._nn, name) else None
    return Row(Kind.RECORD, name.lstrip("_"), target=target or overload, rule=rule, random=random, writes=writes)


def _public(name: str) -> Any:
    """The built-in function that parses the operation's own schema; Python functions have signatures of their own."""
    places = [(torch, name), (torch._C._nn, name)]
    places += [
        (module, name.removeprefix(prefix))
        for prefix, module in (("linalg_", torch.linalg), ("special_", torch.special))
        if name.startswith(prefix)
    ]
    found = (getattr(module, each, None) for module, each in places)
    return next((each for each in found if isinstance(each, BuiltinFunctionType)), None)


def _first_is_tensor(overload: Any) -> bool:
    arguments = overload._schema.arguments
    return bool(arguments) and arguments[0].name == "self" and "Tensor" in str(arguments[0].type)


def written_arguments(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that a call writes, as its schema says."""
    found: list[Any] = []
    for index, argument in enumerate(overload._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        found.extend(value if isinstance(value, (list, tuple)) else [value])
    return [each for each in found if isinstance(each, torch.Tensor)]
