"""Python numbers in double precision: torch's ONNX exporter takes them for float32.

``x * 9.1`` of a float64 tensor would become a product with 9.100000381. Each number that float32 does not hold becomes
a tensor of its own, in the form of the operator that takes one, and the exporter is told how to write such a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import fx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_aten: Any = torch.ops.aten


def _pairs() -> Iterator[tuple[Any, Any]]:
    for name in "add sub mul div remainder fmod eq ne lt le gt ge masked_fill lerp copysign rsub fill".split():
        packet = getattr(_aten, name)
        for overload in ("Scalar", "Tensor", "Scalar_mode", "Tensor_mode"):
            wanted = overload.replace("Scalar", "Tensor")
            if overload in packet.overloads() and wanted in packet.overloads():
                yield getattr(packet, overload), getattr(packet, wanted)
    yield _aten.floor_divide.default, _aten.floor_divide.default
    yield _aten.pow.Tensor_Scalar, _aten.pow.Tensor_Tensor
    yield _aten.pow.Scalar, _aten.pow.Tensor_Tensor
    for overload in ("ScalarSelf", "ScalarOther", "Scalar"):
        yield getattr(_aten.where, overload), _aten.where.self
    for overload in ("Scalar_Other", "Scalar_Self"):
        yield getattr(_aten.xlogy, overload), _aten.xlogy.Tensor


_WITH_TENSORS: Final[dict[Any, Any]] = dict(_pairs())
"""Overload that takes a number -> the one that takes a tensor in its place."""


def with_exact_numbers(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program, changed, with a tensor for each number of a double computation that float32 does not hold."""
    graph = program.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_double(node):
            continue
        if node.target in (_aten.full.default, _aten.full_like.default, _aten.new_full.default):
            _fill_exactly(graph, node)
        elif node.target in _LIMITS:
            _limit_exactly(graph, node)
        elif node.target in _WITH_TENSORS:
            _take_tensors(graph, node)
        _multiply_first(graph, node)
    graph.lint()
    return program


def _is_double(node: fx.Node) -> bool:
    values = [node.meta.get("val"), *(each.meta.get("val") for each in node.all_input_nodes)]
    return any(isinstance(each, torch.Tensor) and each.dtype == torch.float64 for each in values)


def _is_inexact(thing: Any) -> bool:
    return isinstance(thing, float) and thing == thing and float(np.float32(thing)) != thing  # noqa: PLR0124 - NaN


def call_before(graph: fx.Graph, node: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """One call more before ``node``, with the shape and dtype that it gives in that one's program."""
    with graph.inserting_before(node):
        made = graph.call_function(target, args, kwargs)
    values = [each.meta["val"] if isinstance(each, fx.Node) else each for each in args]
    with node.meta["val"].fake_mode:
        made.meta["val"] = target(*values, **kwargs)
    return made


def _scalar(graph: fx.Graph, node: fx.Node, number: Any) -> fx.Node:
    """A tensor of one number."""
    return call_before(graph, node, _aten.scalar_tensor.default, float(number), dtype=torch.float64)


def _take_tensors(graph: fx.Graph, node: fx.Node) -> None:
    schema = node.target._schema  # type: ignore[union-attr]
    names = [each.name for each in schema.arguments]
    numbers = [index for index, each in enumerate(node.args) if index < len(names) and _is_inexact(each)]
    keywords = [name for name, each in node.kwargs.items() if name != "alpha" and _is_inexact(each)]
    if not numbers and not keywords:
        return
    node.target = _WITH_TENSORS[node.target]
    # What one overload takes as numbers the other takes as tensors, all of them.
    whole = {
        index for index, each in enumerate(node.args) if isinstance(each, (int, float)) and not isinstance(each, bool)
    }
    node.args = tuple(_scalar(graph, node, each) if index in whole else each for index, each in enumerate(node.args))
    node.kwargs = {name: _scalar(graph, node, each) if name in keywords else each for name, each in node.kwargs.items()}


_LIMITS: Final[dict[Any, Callable[..., tuple[Any, Any]]]] = {
    _aten.clamp.default: lambda x, min=None, max=None: (min, max),  # noqa: A006, ARG005 - torch's own names
    _aten.clamp_min.default: lambda x, min: (min, None),  # noqa: A006, ARG005
    _aten.clamp_max.default: lambda x, max: (None, max),  # noqa: A006, ARG005
    _aten.hardtanh.default: lambda x, min_val=-1.0, max_val=1.0: (min_val, max_val),  # noqa: ARG005
}
"""What cuts off, and its limits."""


def _limit_exactly(graph: fx.Graph, node: fx.Node) -> None:
    """``clamp(x, low, high)`` -> ``minimum(maximum(x, low), high)``, which treat NaN alike."""
    low, high = _LIMITS[node.target](*node.args, **node.kwargs)
    if not (_is_inexact(low) or _is_inexact(high)):
        return
    value: Any = node.args[0]
    if low is not None and high is not None:
        value = call_before(graph, node, _aten.maximum.default, value, _scalar(graph, node, low))
        low = None
    node.target = _aten.maximum.default if low is not None else _aten.minimum.default
    node.args, node.kwargs = (value, _scalar(graph, node, high if low is None else low)), {}


def _fill_exactly(graph: fx.Graph, node: fx.Node) -> None:
    """``full(size, v)`` -> ``expand(tensor(v), size)``."""
    place = 1 if node.target is not _aten.new_full.default else 2
    number = node.args[place] if len(node.args) > place else node.kwargs.get("fill_value")
    if not _is_inexact(number) or node.meta["val"].dtype != torch.float64:
        return
    size = list(node.meta["val"].shape)
    made = _scalar(graph, node, number)
    node.target = _aten.expand.default
    node.args, node.kwargs = (made, size), {}


def _multiply_first(graph: fx.Graph, node: fx.Node) -> None:
    """``add(x, y, alpha=a)`` -> ``add(x, y * a)``, and so for the other factors that are numbers."""
    kwargs: Any = dict(node.kwargs)
    name = next((name for name in ("alpha", "beta", "value") if _is_inexact(kwargs.get(name))), None)
    if name is None:
        return
    first, second, *rest = node.args
    if node.target in _PRODUCTS:
        beta, alpha = kwargs.pop("beta", 1), kwargs.pop("alpha", 1)
        product = call_before(graph, node, _PRODUCTS[node.target], second, *rest)
        if alpha != 1:
            product = call_before(graph, node, _aten.mul.Tensor, product, _scalar(graph, node, alpha))
        if beta != 1:
            first = call_before(graph, node, _aten.mul.Tensor, first, _scalar(graph, node, beta))
        node.target, node.args = _aten.add.Tensor, (first, product)
    elif node.target in _WITH_FACTOR and isinstance(second, fx.Node):
        factor = _scalar(graph, node, kwargs.pop(name))
        node.args = (first, call_before(graph, node, _aten.mul.Tensor, second, factor), *rest)
    else:
        return
    node.kwargs = kwargs


_PRODUCTS: Final = {
    _aten.addmm.default: _aten.mm.default,
    _aten.baddbmm.default: _aten.bmm.default,
    _aten.addmv.default: _aten.mv.default,
}
_WITH_FACTOR: Final = frozenset((_aten.add.Tensor, _aten.sub.Tensor, _aten.addcmul.default, _aten.addcdiv.default))


def translations() -> dict[Any, Callable[..., Any]]:
    """What the exporter is told: how a tensor of one number is written."""
    import onnx_ir
    from onnxscript import opset18

    def scalar_tensor(s: float, dtype: int = -1, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
        del layout, device, pin_memory
        element = onnx_ir.DataType(dtype) if dtype >= 0 else onnx_ir.DataType.FLOAT
        return opset18.Constant(
            value=onnx_ir.serde.serialize_tensor(onnx_ir.tensor(np.asarray(s).astype(element.numpy()), dtype=element))
        )

    return {_aten.scalar_tensor.default: scalar_tensor}
