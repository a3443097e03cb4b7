"""``torch.full(size, x)``, ``y.new_full(size, x)`` and ``torch.full_like(y, x)`` where the value is itself computed.

Torch reads such a value as a number, and an exporter would freeze it. What is recorded is the value, cast and spread:
the same elements, computed anew at every run.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx

from leapp.ops._row import Kind, Row

Args = tuple[tuple[Any, ...], dict[str, Any]]


def _full(size: Any, fill_value: Any, **options: Any) -> Args:
    return (size, fill_value, options), {}


def _new_full(self: Any, size: Any, fill_value: Any, **options: Any) -> Args:
    return (self, size, fill_value, options), {}


def _full_like(input: Any, fill_value: Any, **options: Any) -> Args:
    return (input, fill_value, options), {}


def _spread(emit: Any, original: Any, args: tuple[Any, ...], size: Any, dtype: torch.dtype) -> Any:
    *leading, value, options = args
    if not isinstance(value, fx.Node) or "out" in options:
        return emit(original, *leading, value, **options)
    cast = emit("to", value, dtype, shape=())
    return emit(torch.clone, emit("expand", cast, size))  # elements of its own, for those who write them


def _as_full(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    dtype = eager[-1].get("dtype") or _dtype_of_number(eager[1])
    return _spread(emit, torch.full, args, args[0], dtype)


def _as_new_full(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    return _spread(emit, "new_full", args, args[1], eager[-1].get("dtype") or eager[0].dtype)


def _as_full_like(emit: Any, args: tuple[Any, ...], eager: tuple[Any, ...]) -> Any:
    return _spread(emit, torch.full_like, args, tuple(eager[0].shape), eager[-1].get("dtype") or eager[0].dtype)


def _dtype_of_number(value: Any) -> torch.dtype:
    """What torch makes of a number of the kind of ``value``, whatever that one's width."""
    if isinstance(value, torch.Tensor):
        if value.dtype.is_complex:
            return torch.get_default_dtype().to_complex()
        if value.dtype.is_floating_point:
            return torch.get_default_dtype()
        return torch.bool if value.dtype is torch.bool else torch.int64
    return torch.int64  # not asked for: the call is recorded as it is


FILLED: Final[dict[str, Row]] = {
    "full": Row(Kind.RECORD, "full", expand=_as_full, rule=_full),
    "new_full": Row(Kind.RECORD, "new_full", expand=_as_new_full, rule=_new_full),
    "full_like": Row(Kind.RECORD, "full_like", expand=_as_full_like, rule=_full_like),
}
