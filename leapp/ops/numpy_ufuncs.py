"""Ufuncs of NumPy and their twins.

``ufunc_twin`` casts the operands to the dtypes of the loop that NumPy itself would run, calls the row's torch function,
and casts the result to the loop's. A twin therefore sees operands of the loop's dtypes only: tensors, and Python
numbers at the positions that its row names. What NumPy chooses by dtype (its promotion, its small integers, its weak
Python numbers) is asked of NumPy and is written down nowhere here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops._np_checks import Accumulated, Ulp
from leapp.ops._np_row import Group, Op, Unsupported
from leapp.ops._np_twin import cast, is_tensor, tensor, torch_dtype

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
    if issubclass(kind, complex | np.complexfloating):
        return complex
    if dtype == np.float16:  # torch would compute with the number as it is
        return lambda value: float(np.float16(value))
    if issubclass(kind, int | np.integer):
        exact = dtype.type if dtype.kind == "f" else np.float64

        def integer(value: Any) -> Any:
            value = int(value)
            return value if -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS else float(exact(value))

        return integer
    return float


def _converter(
    row: Op, place: int, kind: Any, dtype: np.dtype[Any], computed: torch.dtype
) -> Callable[[Any], Any] | None:
    """What turns one operand into what the twin takes; None where it is that already."""
    takes_number = place in row.numbers or (row.commutes and 1 - place in row.numbers)
    if isinstance(kind, type):
        if takes_number:
            made = _number_for(kind, dtype)
            return None if kind is made and kind is not int else made
        return lambda value: cast(tensor(np.asarray(value, dtype)), computed)
    if kind == computed:
        return None
    exact = torch_dtype(dtype)

    def operand(value: Any) -> Any:
        return cast(cast(tensor(value), exact), computed)

    return operand


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


def _function(row: Op, dtype: np.dtype[Any]) -> Callable[..., Any]:
    """The torch function or the twin that computes a loop over ``dtype``."""
    if dtype == np.uint64 and not row.bits:
        raise Unsupported(f"torch computes {row.numpy.__name__} of no uint64")
    if row.direct is not None and dtype.kind in row.kinds:
        return row.direct  # type: ignore[no-any-return]
    if row.twin is not None:
        return row.twin
    raise Unsupported(f"torch computes {row.numpy.__name__} of no {dtype.name}")


def _plan(row: Op, kinds: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[Sequence[Any]], Any]:
    """How a call of a ufunc on operands of these kinds is made."""
    ufunc: np.ufunc = row.numpy  # type: ignore[assignment]
    given, made = _numpy_loop(ufunc, kinds, kwargs)
    exact = tuple(map(torch_dtype, given))
    results = tuple(map(torch_dtype, made))
    function = _function(row, max(given, key=lambda dtype: dtype == np.uint64))
    computed = tuple(_COMPUTED_AS.get(each, each) for each in exact)
    converters = tuple(
        _converter(row, place, kind, dtype, wanted)
        for place, (kind, dtype, wanted) in enumerate(zip(kinds, given, computed, strict=True))
    )
    converted = tuple((place, each) for place, each in enumerate(converters) if each is not None)
    swapped = row.commutes and isinstance(kinds[0], type) and 0 not in row.numbers
    result = results[0]
    ranged = given[0] if ufunc in _COMPARISONS and int in kinds and given[0].kind in "iu" else None

    def call(operands: Sequence[Any]) -> Any:
        value = function(*operands)
        return value if value.dtype is result else value.to(result)

    def careful(operands: Sequence[Any]) -> Any:
        if ranged is not None and (known := _out_of_range(ufunc, operands, ranged)) is not None:
            return known
        taken = list(operands)
        for place, converter in converted:
            taken[place] = converter(taken[place])
        value = function(taken[1], taken[0]) if swapped else function(*taken)
        if len(results) == 1:
            return cast(value, result)
        return tuple(cast(each, dtype) for each, dtype in zip(value, results, strict=True))

    return careful if converted or swapped or ranged is not None or len(results) > 1 else call


_plans: Final[dict[Any, Callable[[Sequence[Any]], Any]]] = {}


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
    return plan(operands)


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
    if rest:
        raise Unsupported(f"{row.numpy.__name__} takes no {', '.join(rest)} here")
    return _written(plan(operands), outs, where)


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


# Twins


def _is_float(thing: Any) -> bool:
    dtype: torch.dtype = thing.dtype
    return dtype.is_floating_point


def _divide(a: Any, b: Any) -> Any:
    """Loops over small integers divide float64."""
    return torch.div(_float64(a), _float64(b))


def _float64(thing: Any) -> Any:
    return cast(thing, torch.float64) if is_tensor(thing) else thing


def _one_for(b: Any, zero: bool) -> Any:
    """An integer divisor with 1 in the place of what torch cannot divide by: 0 where ``zero`` says so, and -1."""
    bad = b == 0
    if b.dtype.is_signed:
        bad = bad | (b == -1) if zero else b == -1
    return torch.where(bad, torch.ones_like(b), b)


def _floor_divide(a: Any, b: Any) -> Any:
    """NumPy gives 0 for a division by 0, and wraps around for the least integer divided by -1."""
    if not is_tensor(b):
        if b in {0, -1}:
            return torch.zeros_like(a) if b == 0 else torch.neg(a)
        return torch.floor_divide(a, b)
    quotient = torch.where(b == 0, torch.zeros_like(a), torch.floor_divide(a, _one_for(b, zero=True)))
    return torch.where(b == -1, torch.neg(a), quotient) if b.dtype.is_signed else quotient


def _remainder(a: Any, b: Any) -> Any:
    """NumPy gives 0 for the remainder of a division by 0."""
    if not is_tensor(b):
        return torch.zeros_like(a) if b in {0, -1} else torch.remainder(a, b)
    return torch.where(b == 0, torch.zeros_like(a), torch.remainder(a, _one_for(b, zero=True)))


def _maximum(a: Any, b: Any) -> Any:
    return torch.maximum(a, b) if is_tensor(b) else torch.clamp(a, min=b)


def _minimum(a: Any, b: Any) -> Any:
    return torch.minimum(a, b) if is_tensor(b) else torch.clamp(a, max=b)


def _contracted(args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: Any) -> float:
    """Number of products that a matrix product adds up."""
    del kwargs, expected
    return float(np.shape(args[0])[-1])


# The table

_ARITHMETIC: Final = Group(
    "Arithmetic",
    (
        Op(np.add, direct=torch.add, numbers=(1,), commutes=True, bits=True, elementwise=True),
        Op(np.subtract, direct=torch.sub, numbers=(1,), bits=True, elementwise=True),
        Op(np.multiply, direct=torch.mul, numbers=(1,), commutes=True, bits=True, elementwise=True),
        Op(np.divide, direct=torch.div, kinds="fc", twin=_divide, numbers=(1,), elementwise=True),
        Op(np.floor_divide, direct=torch.floor_divide, kinds="f", twin=_floor_divide, numbers=(1,), elementwise=True),
        Op(np.remainder, direct=torch.remainder, kinds="f", twin=_remainder, numbers=(1,), elementwise=True),
        Op(np.power, direct=torch.pow, check=Ulp(4), numbers=(1,), elementwise=True),
        Op(np.negative, direct=torch.neg, bits=True, elementwise=True),
        Op(np.absolute, direct=torch.abs, kinds="iufc", twin=torch.clone, elementwise=True),
        Op(np.square, direct=torch.square, elementwise=True),
        Op(np.sqrt, direct=torch.sqrt, elementwise=True),
        Op(np.maximum, twin=_maximum, numbers=(1,), commutes=True, elementwise=True),
        Op(np.minimum, twin=_minimum, numbers=(1,), commutes=True, elementwise=True),
        Op(np.matmul, direct=torch.matmul, check=Accumulated(2, _contracted)),
    ),
)

_FUNCTIONS: Final = Group(
    "Functions",
    (
        Op(np.exp, direct=torch.exp, check=Ulp(4), elementwise=True),
        Op(np.log, direct=torch.log, check=Ulp(4), elementwise=True),
        Op(np.sin, direct=torch.sin, check=Ulp(4), elementwise=True),
        Op(np.cos, direct=torch.cos, check=Ulp(4), elementwise=True),
        Op(np.tanh, direct=torch.tanh, check=Ulp(4), elementwise=True),
        Op(np.arctan2, direct=torch.arctan2, check=Ulp(4), elementwise=True),
        Op(np.floor, direct=torch.floor, elementwise=True),
        Op(np.ceil, direct=torch.ceil, elementwise=True),
        Op(np.rint, direct=torch.round, elementwise=True),
    ),
)

_LOGIC: Final = Group(
    "Comparison and logic",
    (
        Op(np.equal, direct=torch.eq, numbers=(1,), commutes=True, bits=True, elementwise=True),
        Op(np.not_equal, direct=torch.ne, numbers=(1,), commutes=True, bits=True, elementwise=True),
        Op(np.less, direct=torch.lt, numbers=(1,), elementwise=True),
        Op(np.less_equal, direct=torch.le, numbers=(1,), elementwise=True),
        Op(np.greater, direct=torch.gt, numbers=(1,), elementwise=True),
        Op(np.greater_equal, direct=torch.ge, numbers=(1,), elementwise=True),
        Op(np.logical_and, direct=torch.logical_and, bits=True, elementwise=True),
        Op(np.logical_or, direct=torch.logical_or, bits=True, elementwise=True),
        Op(np.logical_not, direct=torch.logical_not, bits=True, elementwise=True),
        Op(np.isnan, direct=torch.isnan, bits=True, elementwise=True),
        Op(np.isfinite, direct=torch.isfinite, bits=True, elementwise=True),
    ),
)

GROUPS: Final[tuple[Group, ...]] = (_ARITHMETIC, _FUNCTIONS, _LOGIC)
ROWS: Final[dict[Any, Any]] = {row.numpy: row for group in GROUPS for row in group.rows}
