"""What the zoo holds: an item is public code with random weights, and a way to draw inputs for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Item:
    """One layer, model or function.

    ``build`` makes it, under a fixed seed; ``inputs`` draws its tensors from torch's generator, as often as asked,
    always in one shape.
    """

    name: str
    build: Callable[[], Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    branches: tuple[str, ...] = ()
    """Functions whose branches a user has to allow, as the error that names them says: both sides mean the same."""

    def program(self) -> Program:
        """The item in evaluation mode, with the weights that it always has."""
        torch.manual_seed(0)
        return Program(self.build()).eval()

    def sample(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Inputs number ``seed``: memory of their own, like what a sensor or another model gives."""
        torch.manual_seed(1000 + seed)
        return tuple(each.clone() for each in self.inputs())


class Program(nn.Module):
    """Public code as it is, with whatever it returns as a flat tuple of tensors: the form every exporter takes.

    Not under the name ``code``: torch.export loses weights below an attribute that its own modules have too.
    """

    def __init__(self, code: Any) -> None:
        super().__init__()
        self.public = code

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensors_in(self.public(*inputs)))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result, in order: of tuples, dictionaries, dataclasses, and transformers' outputs."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_in(each)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name))


def spread(module: nn.Module, scale: float = 0.5) -> nn.Module:
    """The module with random values everywhere: statistics, scales and shifts too.

    A fresh normalisation is nearly the identity, a fresh bias is zero: an exporter that drops one would go unnoticed.
    """
    with torch.no_grad():
        for name, each in [*module.named_parameters(), *module.named_buffers()]:
            if not each.is_floating_point():
                continue
            if name.endswith(("running_var", "weight")) and each.dim() == 1:
                each.uniform_(0.5, 1.5)
            elif each.dim() <= 1 or not each.any():
                each.normal_(0, scale)
    return module
