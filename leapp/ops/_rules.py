"""Argument rules of the torch table: small pure functions over graph arguments."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from leapp.ops._row import Rule

Args = tuple[tuple[Any, ...], dict[str, Any]]


def _is_int(thing: Any) -> bool:
    return isinstance(thing, int) and not isinstance(thing, bool)


def packed(*args: Any, **kwargs: Any) -> Args:
    """``x.flip(0, 1)`` -> ``torch.flip(x, [0, 1])``: methods take loose integers where the function wants a list."""
    first, *rest = args
    if rest and all(_is_int(item) or isinstance(item, torch.fx.Node) for item in rest):
        return (first, tuple(rest)), kwargs
    return args, kwargs


def packed_dims(*args: Any, **kwargs: Any) -> Args:
    """``x.sum(0, 1)`` -> ``torch.sum(x, [0, 1])``; a single integer and ``(dim, keepdim)`` stay as they are."""
    first, *rest = args
    if len(rest) > 1 and all(_is_int(item) for item in rest):
        return (first, tuple(rest)), kwargs
    return args, kwargs


_NUMPY_KEYWORDS = {"axis": "dim", "keepdims": "keepdim"}


def numpy_keywords(*args: Any, **kwargs: Any) -> Args:
    """Torch accepts NumPy's ``axis`` and ``keepdims``; no exporter does."""
    return args, {_NUMPY_KEYWORDS.get(name, name): value for name, value in kwargs.items()}


def swapped(*args: Any, **kwargs: Any) -> Args:
    """Reflected operators: ``x.__rpow__(2)`` -> ``torch.pow(2, x)``."""
    first, second, *rest = args
    return (second, first, *rest), kwargs


def condition_first(*args: Any, **kwargs: Any) -> Args:
    """``x.where(condition, y)`` -> ``torch.where(condition, x, y)``."""
    first, *rest = args
    if rest:
        condition, *rest = rest
    else:
        condition = kwargs.pop("condition")
    return (condition, first, *rest), kwargs


def strided(input: Any, size: Any, stride: Any, storage_offset: Any = None) -> Args:
    """``torch.as_strided`` with positional arguments."""
    return (input, size, stride, storage_offset), {}


def combined(input: Any, r: int = 2, with_replacement: bool = False) -> Args:
    """``torch.combinations`` with positional arguments."""
    return (input, r, with_replacement), {}


def cast_to(dtype: torch.dtype) -> Rule:
    """``x.bool()`` -> ``x.to(torch.bool)``; a memory format goes with it."""

    def rule(*args: Any, **kwargs: Any) -> Args:
        return (args[0], dtype), kwargs

    return rule


def cast(*args: Any, **kwargs: Any) -> Args:
    """``x.type(torch.int64)`` and ``x.type("torch.LongTensor")`` -> ``x.to(dtype)``."""
    wanted = kwargs.get("dtype", args[1] if len(args) > 1 else None)
    if isinstance(wanted, torch.dtype):
        return (args[0], wanted), {}
    name = wanted if isinstance(wanted, str) else f"torch.{getattr(wanted, '__name__', wanted)}"
    return (args[0], _LEGACY_TYPES[name.removeprefix("torch.")]), {}


_LEGACY_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


def device_free(*args: Any, **kwargs: Any) -> Args:
    """``x.to(device, dtype)`` -> ``x.to(dtype)``: a recording runs wherever its runtime runs."""
    first, *rest = args
    kept = [item for item in rest if not isinstance(item, (torch.device, str))]
    keywords = {name: value for name, value in kwargs.items() if name not in ("device", "non_blocking")}
    # to(dtype, non_blocking, copy) and to(device, dtype, non_blocking, copy): only a copy means something in a model.
    flags = [item for item in kept if isinstance(item, bool)]
    kept = [item for item in kept if not isinstance(item, bool) and item is not None]
    if keywords.pop("copy", False) or flags[1:] == [True]:
        keywords["copy"] = True
    if keywords.get("dtype", ...) is None:
        del keywords["dtype"]
    if not kept and not keywords:
        return moved(first)
    return (first, *kept), keywords


def moved(*args: Any, **kwargs: Any) -> Args:
    """``x.cuda()`` -> ``x.to(x)``: a copy to another device changes no value."""
    del kwargs
    return (args[0], args[0]), {}


def without_defaults(function: Any) -> Rule | None:
    """A rule that drops keywords left at their default, as torch's Python functions pass all of them on.

    None when the signature cannot be read. ``_stacklevel`` speaks of Python and is dropped always.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    defaults = {name: item.default for name, item in parameters.items() if item.default is not item.empty}

    def rule(*args: Any, **kwargs: Any) -> Args:
        kept = {
            name: value
            for name, value in kwargs.items()
            if name != "_stacklevel" and not (name in defaults and _same(value, defaults[name]))
        }
        return numpy_keywords(*args, **kept)

    return rule


def with_defaults(operator: Any) -> Rule:
    """A rule that gives an operator's arguments by position, left-out ones as its schema has them.

    What its schema takes by keyword alone stays a keyword.
    """
    ordered = [each for each in operator._schema.arguments if not each.kwarg_only]

    def rule(*args: Any, **kwargs: Any) -> Args:
        rest = [kwargs.pop(each.name, each.default_value) for each in ordered[len(args) :]]
        return (*args, *rest), kwargs

    return rule


def _same(value: Any, default: Any) -> bool:
    if isinstance(value, torch.fx.Node):
        return False
    return value is default or (type(value) is type(default) and bool(value == default))
