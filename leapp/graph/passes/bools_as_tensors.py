"""Hand truth values to operators, comparisons, ``where`` and fills as tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from leapp._spec import TensorSpec
from leapp.graph._base import PassResult
from leapp.trace.recorder import free_name

if TYPE_CHECKING:
    from leapp.graph._base import NodeGraph

_NAMES: Final = (
    "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift eq ne lt le gt ge pow remainder fmod "
    "masked_fill index_fill"
).split()
_TARGETS: Final = {*(getattr(torch, name) for name in _NAMES), torch.where}
_METHODS: Final = {*_NAMES, *(f"{name}_" for name in _NAMES), "where", "fill_"}
_AS_NUMBERS: Final = {torch.full_like, "new_full"}
"""Their result has the dtype of a tensor, to which one is cast as true is."""


def bools_as_tensors(recording: NodeGraph) -> PassResult:
    """Replace ``True`` and ``False`` as arguments of these functions by constants without dimensions.

    Why: TorchScript has no overload of them that takes a bool, neither its language nor its tracer.
    Ensures: no bool is left among their arguments; values and dtypes unchanged, as neither a bool nor a tensor of bools
    changes the dtype of a result. A second run changes nothing.
    """
    found = [node for node in recording.graph.nodes if _takes_bool(node)]
    if not found:
        return PassResult(recording, changed=False)
    names = {node.name for node in recording.graph.nodes}
    constants, specs = dict(recording.constants), dict(recording.specs)
    first = next(node for node in recording.graph.nodes if node.op != "placeholder")
    made: dict[bool, fx.Node] = {}

    def as_tensor(thing: Any) -> Any:
        if type(thing) is not bool:
            return thing
        if thing not in made:
            target = free_name(f"_{str(thing).lower()}", constants)
            constants[target] = torch.tensor(thing)
            with recording.graph.inserting_before(first):
                node = made[thing] = recording.graph.get_attr(target)
            node.name = free_name(target.strip("_"), names)
            names.add(node.name)
            specs[node.name] = TensorSpec("bool", ())
        return made[thing]

    for node in found:
        if node.target in _AS_NUMBERS:
            node.args = tuple(int(each) if type(each) is bool else each for each in node.args)
            continue
        node.args = tuple(as_tensor(each) for each in node.args)
        node.kwargs = {name: as_tensor(each) for name, each in node.kwargs.items()}
    return PassResult(replace(recording, constants=constants, specs=specs), changed=True)


def _takes_bool(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method") or node.target not in _TARGETS | _METHODS | _AS_NUMBERS:
        return False
    if node.target in _AS_NUMBERS:
        return any(type(each) is bool for each in node.args)
    return any(type(each) is bool for each in (*node.args, *node.kwargs.values()))
