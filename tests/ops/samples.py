"""Real arguments for every overridable function of torch: from torch's own table, and from one of ours for the rest.

A sample is a call whose tensors can be drawn again, with other values and the same shapes.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
import unittest
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import own_samples
import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_SAMPLES = 6
_LOOKED_AT = 60
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


@dataclass
class Sample:
    """One call: what stands where tensors do not, and the tensors of two draws."""

    arguments: list[Any]
    """The flat arguments; ``None`` where a tensor goes."""
    tree: Any
    places: list[int]
    first: list[torch.Tensor]
    second: list[torch.Tensor]

    def call(self, function: Callable[..., Any], tensors: list[torch.Tensor]) -> Any:
        """``function`` of these arguments, with ``tensors`` in their places."""
        flat = list(self.arguments)
        for place, tensor in zip(self.places, tensors, strict=True):
            flat[place] = tensor
        args, kwargs = pytree.tree_unflatten(flat, self.tree)
        return function(*args, **kwargs)

    @property
    def is_empty(self) -> bool:
        return any(tensor.numel() == 0 for tensor in self.first)


@dataclass(frozen=True)
class Subject:
    """An overridable function, under the name of the walk."""

    name: str
    function: Any = field(compare=False)

    @property
    def bare(self) -> str:
        """``relu`` of ``torch.nn.functional.relu`` and of ``Tensor.relu_``."""
        return self.name.removesuffix(".__get__").removesuffix(".__set__").rpartition(".")[2]


def subjects() -> list[Subject]:
    """Every function that torch lets a subclass override, each once."""
    found: dict[str, Subject] = {}
    for owner, functions in torch.overrides.get_overridable_functions().items():
        for function in functions:
            name = _name(owner, function)
            if name:
                found.setdefault(name, Subject(name, function))
    return [found[name] for name in sorted(found)]


def _name(owner: Any, function: Any) -> str:
    kind = getattr(function, "__name__", "")
    if kind in ("__get__", "__set__", "__delete__"):
        owner = function.__self__
        return f"Tensor.{getattr(owner, '__name__', None) or owner.fget.__name__}.{kind}"
    if owner is torch.Tensor:
        return f"Tensor.{kind}"
    prefix = "torch" if owner.__name__ == "torch.functional" else owner.__name__
    # torch.fft.fft is called fft_fft by itself.
    return f"{prefix}.{kind.removeprefix(prefix.rpartition('.')[2] + '_')}"


def samples_of(subject: Subject, most: int = MOST_SAMPLES) -> list[Sample]:
    """Calls that run eagerly, of different kinds: first those of torch's table, else those of ours."""
    own = _own_samples(subject)
    chosen: dict[Any, Sample] = {}
    source = iter(own) if own is not None else itertools.chain.from_iterable(map(_drawn, _infos(subject)))
    for sample in source:
        kind = _kind(sample)
        if kind in chosen or (sample.is_empty and any(each.is_empty for each in chosen.values())):
            continue
        if _runs(subject.function, sample):
            chosen[kind] = sample
        if len(chosen) >= most:
            break
    return list(chosen.values())


def _kind(sample: Sample) -> Any:
    return (
        str(sample.tree),
        tuple(type(each).__name__ for each in sample.arguments),
        tuple((tensor.dtype, tensor.dim()) for tensor in sample.first[:2]),
        sample.is_empty,
    )


def _runs(function: Any, sample: Sample) -> bool:
    for tensors in (sample.first, sample.second):
        try:
            sample.call(function, [tensor.clone() for tensor in tensors])
        except Exception:  # noqa: BLE001 - torch's samples are for some forms of a function, and this may be another
            return False
    return True


# --- torch's own table ---------------------------------------------------------------------------------------------


@functools.cache
def _table() -> dict[str, list[Any]]:
    """``OpInfo`` by bare name."""
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ModuleNotFoundError:
            # torch's table imports it for the base class of torch's own tests, which are not run here.
            stub = types.ModuleType("expecttest")
            stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
            sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[Any]] = {}
    for info in op_db:
        for name in (info.name, *(alias.name for alias in info.aliases)):
            found.setdefault(name.rpartition(".")[2], []).append((name, info))
    return found


_OPERATOR_NAMES = {
    "__div__": "div", "__idiv__": "div", "__itruediv__": "div", "__truediv__": "div", "__floordiv__": "floor_divide",
    "__ifloordiv__": "floor_divide", "__mod__": "remainder", "__imod__": "remainder", "__invert__": "bitwise_not",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift", "__and__": "bitwise_and",
    "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__iand__": "bitwise_and", "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
}  # fmt: skip


def _infos(subject: Subject) -> Iterator[Any]:
    bare = subject.bare
    names = [bare]
    if bare.startswith("__"):
        middle = bare.strip("_")
        names += [_OPERATOR_NAMES.get(bare, ""), middle, middle.removeprefix("i"), middle.removeprefix("r")]
    elif bare.endswith("_"):
        names.append(bare.rstrip("_"))
    names.append(bare.removesuffix("_copy").removesuffix("_with_indices").removesuffix("_with_values"))
    owner = subject.name.removesuffix(f".{bare}").removeprefix("torch").strip(".")
    for name in names:
        entries = _table().get(name, [])
        # torch.nn.functional.softmax before torch.softmax, where both are known.
        entries = sorted(entries, key=lambda entry: entry[0].rpartition(".")[0] != owner)
        if entries:
            yield from (info for _, info in entries)
            return


def _drawn(info: Any) -> Iterator[Sample]:
    dtypes = [dtype for dtype in _DTYPES if info.supports_dtype(dtype, "cpu")]
    # All kinds of one dtype, then a few of the others.
    for index, dtype in enumerate(dtypes):
        draws = []
        for seed in (11, 12):
            torch.manual_seed(seed)
            try:
                listed = itertools.islice(
                    info.sample_inputs("cpu", dtype, set_seed=False), _LOOKED_AT if index == 0 else 6
                )
                draws.append([((each.input, *each.args), each.kwargs) for each in listed])
            except Exception:  # noqa: BLE001 - a sampler of torch's that needs what is not installed
                draws.append([])
        for first, second in zip(*draws, strict=False):
            sample = paired(first, second)
            if sample is not None:
                yield sample


def paired(first: Any, second: Any) -> Sample | None:
    """A sample of two draws of the same call; None where they are different calls."""
    flat, tree = pytree.tree_flatten(first)
    other, other_tree = pytree.tree_flatten(second)
    if tree != other_tree or len(flat) != len(other):
        return None
    places = [index for index, each in enumerate(flat) if isinstance(each, torch.Tensor)]
    for index, (a, b) in enumerate(zip(flat, other, strict=True)):
        if index in places:
            if type(a) is not type(b) or a.shape != b.shape or a.dtype != b.dtype or a.layout != torch.strided:
                return None
        elif isinstance(a, (int, float, str, bool, torch.dtype)) and a != b:
            other[index] = a
    arguments = [None if index in places else each for index, each in enumerate(flat)]
    # A call of the same values twice would not show a result that was frozen.
    if places and all(torch.equal(flat[index], other[index]) for index in places):
        return None
    plain = [[each[index].detach().resolve_conj().resolve_neg() for index in places] for each in (flat, other)]
    return Sample(arguments, tree, places, plain[0], plain[1])


# --- ours ----------------------------------------------------------------------------------------------------------


def _own_samples(subject: Subject) -> list[Sample] | None:
    own = own_samples.OWN
    make = own.get(subject.name) or own.get(subject.bare) or own.get(subject.bare.rstrip("_"))
    if make is None:
        return None
    draws = []
    for seed in (11, 12):
        torch.manual_seed(seed)
        draws.append(make())
    found = [paired((args, kwargs), (args2, kwargs2)) for (args, kwargs), (args2, kwargs2) in zip(*draws, strict=True)]
    return [each for each in found if each is not None]
