"""How the twin of a ufunc is called.

``ufunc_twin`` casts the operands to the dtypes of the loop that NumPy itself would run, calls the row's torch function,
and casts the result to the loop's. A twin therefore sees operands of the loop's dtypes only: tensors, and Python
numbers at the positions that its row names. What NumPy chooses by dtype (its promotion, its small integers, its weak
Python numbers) is asked of NumPy and is written down nowhere here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import torch

from leapp.ops._np_row import Op, Unsupported
from leapp.ops._np_twin import TOP_BIT, cast, is_tensor, number, ordered, reordered, tensor, torch_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NUMBERS: Final = frozenset({bool, int, float, complex})
_SCALARS: Final = _NUMBERS | frozenset(np.dtype(code).type for code in "?bhilqBHILQefdgFDG")
"""Operands of these types are no arrays: they may be written into a graph as Python numbers."""

_COMPUTED_AS: Final = {torch.uint16: torch.int64, torch.uint32: torch.int64, torch.uint64: torch.int64}
"""Torch computes little with these; int64 holds them, and the cast back wraps around as they do."""

_EXACT_INTEGERS: Final = 1 << 24
"""Integers up to here are the same number in every floating dtype but float16, which is cast anyway."""


# Which loop NumPy runs


def _kind(operand: Any) -> Any:
    """What the choice of a loop follows from: a scalar's type, or the dtype of an array, a tensor or a stand-in."""
    kind = type(operand)
    return kind if kind in _SCALARS else operand.dtype


def _asked(kind: Any) -> Any:
    """A kind as NumPy's resolution of dtypes wants it."""
    if kind is bool:
        return np.dtype(bool)
    if kind in _NUMBERS:
        return kind
    return np.dtype(str(kind).removeprefix("torch.")) if isinstance(kind, torch.dtype) else np.dtype(kind)


def _numpy_loop(
    ufunc: np.ufunc, kinds: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[np.dtype[Any], ...], tuple[np.dtype[Any], ...]]:
    """Dtypes of the loop that NumPy runs for operands of these kinds."""
    signature = kwargs.get("signature", kwargs.get("sig"))
    if kwargs.get("dtype") is not None:
        signature = (None,) * ufunc.nin + (np.dtype(kwargs["dtype"]),) * ufunc.nout
    elif isinstance(signature, (list, tuple)):
        signature = tuple(each if each is None else np.dtype(each) for each in signature)
    resolved = ufunc.resolve_dtypes(
        (*map(_asked, kinds), *(None,) * ufunc.nout),
        casting=kwargs.get("casting", "same_kind"),
        **({} if signature is None else {"signature": signature}),
    )
    return resolved[: ufunc.nin], resolved[ufunc.nin :]


def loop(
    ufunc: np.ufunc, operands: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[torch.dtype, ...], tuple[torch.dtype, ...]]:
    """Input and output dtypes of the loop that NumPy runs for these operands.

    Operands are tensors, stand-ins, arrays and numbers; ``dtype``, ``signature`` and ``casting`` count as they do in
    NumPy. Raises Unsupported for a loop over what torch has no dtype for: long doubles, objects, text, dates.
    """
    given, made = _numpy_loop(ufunc, [_kind(each) for each in operands], kwargs)
    return tuple(map(torch_dtype, given)), tuple(map(torch_dtype, made))


# How a call is made


def _number_for(kind: Any, dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """What makes the Python number that torch takes for the very value that NumPy computes with."""
    if dtype.kind == "b":
        return bool
    if dtype.kind in "iu":
        return int
    if dtype.kind == "c":
        return lambda value: complex(dtype.type(value)) if np.isfinite(value) else tensor(np.asarray(value, dtype))
    if dtype == np.float16:  # torch would compute with the number as it is
        return lambda value: float(np.float16(value))
    if issubclass(kind, int | np.integer):
        exact = dtype.type if dtype.kind == "f" else np.float64

        def integer(value: Any) -> Any:
            value = int(value)
            return value if -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS else float(exact(value))

        return integer
    return float


def _computing(row: Op, dtype: np.dtype[Any]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]] | None:
    """What brings tensors of a dtype that torch does not compute with to int64, and back; None for all others."""
    exact = torch_dtype(dtype)
    if exact not in _COMPUTED_AS:
        return None
    computed = _COMPUTED_AS[exact]
    if row.ordered:
        return ordered, lambda value: reordered(value, exact)
    return lambda value: cast(value, computed), lambda value: cast(value, exact)


def _converter(row: Op, place: int, kind: Any, dtype: np.dtype[Any]) -> Callable[[Any], Any] | None:
    """What turns one operand into what the twin takes; None where it is that already."""
    exact = torch_dtype(dtype)
    computing = _computing(row, dtype)
    if isinstance(kind, type):
        if _takes_number(row, place) and not (row.ordered and dtype.kind == "c"):
            if exact is torch.uint64:
                turned = TOP_BIT if row.ordered else 0
                return lambda value: int(np.uint64(value).astype(np.int64)) ^ turned
            made = _number_for(kind, dtype)
            return None if kind is made and kind is not int else made
        if computing is None:
            return lambda value: tensor(np.asarray(value, dtype))
        return lambda value: computing[0](tensor(np.asarray(value, dtype)))
    if computing is not None:
        return lambda value: computing[0](cast(tensor(value), exact))
    if kind is exact:
        return None
    return lambda value: cast(tensor(value), exact)


_COMPARISONS: Final[dict[Any, tuple[bool, bool]]] = {
    np.less: (False, True),
    np.less_equal: (False, True),
    np.greater: (True, False),
    np.greater_equal: (True, False),
    np.equal: (False, False),
    np.not_equal: (True, True),
}
"""What holds of every element and an integer below, and an integer above, all that the dtype has."""


def _out_of_range(ufunc: np.ufunc, operands: Sequence[Any], dtype: np.dtype[Any]) -> Any:
    """The result of a comparison with a Python integer that the dtype cannot hold; None for all else."""
    place = 1 if is_tensor(operands[0]) else 0
    number, limits = operands[place], np.iinfo(dtype)
    if limits.min <= number <= limits.max:
        return None
    above = (number > limits.max) == (place == 1)
    return torch.full_like(operands[1 - place], _COMPARISONS[ufunc][above], dtype=torch.bool)


def _function(row: Op, given: Sequence[np.dtype[Any]]) -> Callable[..., Any]:
    """The torch function or the twin that computes a loop over these dtypes."""
    name, dtype = row.numpy.__name__, given[0]
    if np.dtype(np.uint64) in given and not (row.bits or row.ordered):
        if row.uint64 is None:
            raise Unsupported(f"torch computes no {name} of uint64")
        return row.uint64
    if row.ordered and len({np.dtype(np.uint64), *given}) == 2 and np.dtype(np.uint64) in given:
        raise Unsupported("NumPy compares signed with unsigned 64-bit integers; torch has no dtype for both")
    if dtype.kind == "u" and row.unsigned is not None:
        return row.unsigned
    if row.direct is not None and dtype.kind in row.kinds:
        return row.direct  # type: ignore[no-any-return]
    if row.twin is not None:
        return row.twin
    raise Unsupported(f"torch computes no {name} of {dtype.name}")


class Plan(NamedTuple):
    """How a call of a ufunc on operands of certain kinds is made."""

    call: Callable[[Sequence[Any]], Any]
    by_value: bool
    """Whether what is called depends on the value of a number, or has several results."""
    converted: tuple[tuple[int, Callable[[Any], Any]], ...]
    """The positions of operands of other kinds than torch's function takes, and the way there."""
    swapped: bool
    """Whether torch's function takes its two operands the other way round."""


def _plan(row: Op, kinds: Sequence[Any], kwargs: Mapping[str, Any]) -> Plan:
    """How a call of a ufunc on operands of these kinds is made."""
    ufunc: np.ufunc = row.numpy  # type: ignore[assignment]
    given, made = _numpy_loop(ufunc, kinds, kwargs)
    results = tuple(map(torch_dtype, made))
    function = _function(row, given)
    converters = [
        _converter(row, place, kind, dtype) for place, (kind, dtype) in enumerate(zip(kinds, given, strict=True))
    ]
    converted = tuple((place, each) for place, each in enumerate(converters) if each is not None)
    swapped = row.commutes and isinstance(kinds[0], type) and 0 not in row.numbers
    back = None if made[0].kind == "b" else _computing(row, made[0])
    result = results[0]
    ranged = given[0] if ufunc in _COMPARISONS and int in kinds and given[0].kind in "iu" else None

    def plain(operands: Sequence[Any]) -> Any:
        value = function(*operands)
        return value if value.dtype is result else value.to(result)

    def careful(operands: Sequence[Any]) -> Any:
        if ranged is not None and (known := _out_of_range(ufunc, operands, ranged)) is not None:
            return known
        taken = list(operands)
        for place, converter in converted:
            taken[place] = converter(taken[place])
        value = function(taken[1], taken[0]) if swapped else function(*taken)
        if len(results) > 1:
            return tuple(cast(each, dtype) for each, dtype in zip(value, results, strict=True))
        return cast(value, result) if back is None else back[1](value)

    call = careful if converted or swapped or ranged is not None or len(results) > 1 else plain
    # A twin may treat some numbers in a way of their own: 0 as a divisor.
    chosen = function is not row.direct and any(isinstance(kind, type) for kind in kinds)
    return Plan(call, chosen or ranged is not None or len(results) > 1, converted, swapped)


def _takes_number(row: Op, place: int) -> bool:
    return place in row.numbers or (row.commutes and 1 - place in row.numbers)


def plan_of(row: Op, operands: Sequence[Any]) -> Plan | None:
    """How a call without keywords was made, once it was."""
    try:
        return _plans.get((row.numpy, *map(_kind, operands)))
    except AttributeError:  # a list, which becomes an array first
        return None


_plans: Final[dict[Any, Plan]] = {}


def ufunc_twin(row: Op, operands: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a ufunc's call gives, computed by torch.

    Args:
        row: the ufunc's row.
        operands: tensors or stand-ins; arrays, NumPy scalars and Python numbers are constants.
        kwargs: NumPy's own. ``out`` is a tensor (or a tuple of them and None): the result is what it holds afterwards.

    Returns: a tensor with the dtype that NumPy gives, or a tuple of them. Raises Unsupported.
    """
    try:
        key = (row.numpy, *map(_kind, operands))
    except AttributeError:
        return ufunc_twin(row, [_array(each) for each in operands], kwargs)
    if kwargs:
        return _with_keywords(row, operands, key, kwargs)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _plan(row, key[1:], kwargs)
    return plan.call(operands)


def _array(operand: Any) -> Any:
    """An operand that has a dtype: nested lists become what NumPy makes of them."""
    return operand if type(operand) in _SCALARS or hasattr(operand, "dtype") else tensor(operand)


_LAYOUT_ONLY: Final = frozenset({"order", "subok"})
_CHOOSE_LOOP: Final = frozenset({"dtype", "signature", "sig", "casting"})


def _with_keywords(row: Op, operands: Sequence[Any], key: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A call with keywords."""
    choice = {name: kwargs[name] for name in kwargs if name in _CHOOSE_LOOP}
    rest = {name: kwargs[name] for name in kwargs if name not in _CHOOSE_LOOP and name not in _LAYOUT_ONLY}
    outs = rest.pop("out", None)
    where = rest.pop("where", True)
    keyed = (key, *((name, str(value)) for name, value in sorted(choice.items())))
    plan = _plans.get(keyed)
    if plan is None:
        plan = _plans[keyed] = _plan(row, key[1:], choice)
    value = _along_axes(plan.call, operands, rest) if rest else plan.call(operands)
    return _written(value, outs, where)


def _along_axes(plan: Callable[[Sequence[Any]], Any], operands: Sequence[Any], rest: Mapping[str, Any]) -> Any:
    """A product of stacks whose vectors and matrices do not lie along the last axes."""
    operands = [tensor(each) for each in operands]
    if "axes" in rest:
        asked = [each if isinstance(each, (tuple, list)) else (each,) for each in number(rest["axes"], "axes")]
    else:
        asked = [(number(rest.get("axis", -1), "axis"),)] * len(operands)
    moved = [
        torch.movedim(each, tuple(places), tuple(range(-len(places), 0)))
        for each, places in zip(operands, asked, strict=False)
    ]
    value = plan(moved)
    if rest.get("keepdims"):
        return torch.unsqueeze(value, asked[0][0])
    if len(asked) > len(operands) and asked[-1]:
        return torch.movedim(value, tuple(range(-len(asked[-1]), 0)), tuple(asked[-1]))
    return value


def _written(value: Any, outs: Any, where: Any) -> Any:
    """What the arrays given as ``out`` hold afterwards; the result itself where there are none."""
    masked = where is not True
    if outs is None or (isinstance(outs, tuple) and all(each is None for each in outs)):
        if masked:
            raise Unsupported("where without out leaves elements unset")
        return value
    if not isinstance(value, tuple):
        out = outs[0] if isinstance(outs, tuple) else outs
        return _one_written(value, out, where)
    return tuple(each if out is None else _one_written(each, out, where) for each, out in zip(value, outs, strict=True))


def _one_written(value: Any, out: Any, where: Any) -> Any:
    """What one array holds after a result was written to it, where a mask lets it."""
    out = tensor(out)
    value = cast(value, out.dtype)
    if where is not True:
        return torch.where(tensor(where), value, out)
    return value if tuple(value.shape) == tuple(out.shape) else torch.clone(value.expand(out.shape))
