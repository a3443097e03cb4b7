"""Ufuncs of NumPy and the torch functions that compute the same.

The bounds of ``Ulp`` were measured over hard values (denormal and huge numbers, infinities, NaN) and 200,000 random
ones of every magnitude, in float16, float32 and float64, with the code that NumPy and torch have for processors with
vectors of 128, 256 and 512 bits, each with each: 3 units at most, 4 for the cube root; what is allowed leaves room for
other processors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from leapp.ops import _np_methods
from leapp.ops import _np_ufunc_twins as twins
from leapp.ops._np_checks import Accumulated, Ulp
from leapp.ops._np_loops import loop, ufunc_twin
from leapp.ops._np_methods import method_check
from leapp.ops._np_row import Group, NumpyRow, Op, OutOfScope

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GROUPS", "ROWS", "loop", "method_check", "method_twin", "ufunc_twin"]


def _ufunc(name: str) -> Any:
    """A ufunc that NumPy keeps for itself, or that only later releases have; None where this one lacks it."""
    return getattr(np._core.umath, name, None)  # type: ignore[attr-defined]


def _contracted(args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: Any) -> float:
    """Number of products that make up an element of a product of matrices or vectors, at most."""
    del kwargs, expected
    return float(max(max(np.shape(each), default=1) for each in args))


def _product_sizes(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: Any, places: Any, most: int | None = None
) -> Any:
    """Sums of absolute products for some elements of a product of matrices; None where it has other axes.

    ``most`` limits the products that are summed: sums of some of them are too small.
    """
    a, b = (np.asarray(each) for each in args)
    if kwargs.keys() & {"axes", "axis"} or a.ndim < 2 or b.ndim < 2:
        return None
    if most is not None:
        step = slice(None, None, -(-a.shape[-1] // most) or 1)
        a, b = a[..., step], b[..., step, :]
    if len(places) * a.shape[-1] > 8 * expected.size:
        return None
    *stack, row, column = np.unravel_index(places, expected.shape)
    rows = np.broadcast_to(a, (*expected.shape[:-2], *a.shape[-2:]))[(*stack, row)]
    b = np.swapaxes(b, -1, -2)
    columns = np.broadcast_to(b, (*expected.shape[:-2], *b.shape[-2:]))[(*stack, column)]
    return np.sum(np.abs(rows) * np.abs(columns), axis=-1, dtype=np.float64)


def _least_product_sizes(args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: Any, places: Any) -> Any:
    """The same, of 32 products for each."""
    return _product_sizes(args, kwargs, expected, places, 32)


def _one(args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: Any) -> float:
    """No sum of many terms."""
    del args, kwargs, expected
    return 1.0


def _larger(a: Any, b: Any, **_: Any) -> Any:
    """What the error of a logarithm of a sum follows, also where the result itself is near 0."""
    return np.maximum(a, b) + 1


_FUNCTION: Final = Ulp(5)
_POWER: Final = Ulp(5, of_complex=500)
"""NumPy multiplies for complex numbers to small whole powers; the error of both grows with the power."""
_LOG1P: Final = Ulp(5, floor=1.0)
"""NumPy adds the 1 to complex numbers as it stands, and loses what is small."""
_REMAINDER: Final = (
    "integers: 0 for a division by 0, where torch raises; floats: NaN in torch where the quotient overflows"
)
_RANGE: Final = "infinite in torch already where the exponential overflows, which is ln 2 earlier"
_INFINITE: Final = "complex infinities: torch makes the other part NaN"
_ROUNDED: Final = Ulp(0)
"""Real numbers exactly; parts of complex ones are rounded more than once."""
_VECTORS: Final = Accumulated(2, terms=_contracted)
_PRODUCT: Final = Accumulated(2, terms=_contracted, sizes_at=_product_sizes, least_at=_least_product_sizes)
_LOG_OF_SUM: Final = Accumulated(4, terms=_one, sizes=_larger)


def _group(title: str, *rows: NumpyRow) -> Group:
    """Rows of the ufuncs that this NumPy has."""
    return Group(title, tuple(row for row in rows if isinstance(row.numpy, np.ufunc)))


def _of_each(numpy: Any, **row: Any) -> Op:
    """A ufunc that computes each element from the elements at its place."""
    return Op(numpy, elementwise=True, **row)


_ARITHMETIC: Final = _group(
    "Arithmetic",
    _of_each(np.add, direct=torch.add, numbers=(1,), commutes=True, bits=True, check=_ROUNDED, note=_INFINITE),
    _of_each(np.subtract, direct=torch.sub, numbers=(1,), bits=True, check=_ROUNDED, note=_INFINITE),
    _of_each(np.multiply, direct=torch.mul, numbers=(1,), commutes=True, bits=True, check=_ROUNDED),
    _of_each(np.divide, direct=torch.div, kinds="fc", twin=twins.true_divide, numbers=(1,), check=_ROUNDED),
    _of_each(
        np.floor_divide,
        twin=twins.floor_divide,
        uint64=twins.floor_divide_uint64,
        numbers=(1,),
        note="integers: 0 for a division by 0, and wraps around, where torch raises",
    ),
    _of_each(
        np.remainder,
        twin=twins.remainder,
        uint64=twins.remainder_uint64,
        numbers=(1,),
        note=_REMAINDER,
    ),
    _of_each(
        np.fmod,
        direct=torch.fmod,
        kinds="f",
        twin=twins.fmod,
        uint64=twins.remainder_uint64,
        numbers=(1,),
        note=_REMAINDER,
    ),
    _of_each(
        np.divmod, twin=twins.divmod_, uint64=twins.divmod_uint64, numbers=(1,), note="as floor_divide and remainder"
    ),
    _of_each(np.power, direct=torch.pow, kinds="f", twin=twins.power, numbers=(0, 1), bits=True, check=_POWER),
    _of_each(np.float_power, direct=torch.pow, kinds="f", twin=twins.complex_power, numbers=(0, 1), check=_POWER),
    _of_each(np.negative, direct=torch.neg, unsigned=twins.negative, bits=True),
    _of_each(np.positive, twin=twins.same, bits=True),
    _of_each(np.absolute, direct=torch.abs, kinds="ifc", twin=twins.same, unsigned=twins.same, bits=True, check=Ulp(2)),
    _of_each(np.fabs, direct=torch.abs),
    _of_each(
        np.sign, direct=torch.sign, kinds="i", twin=twins.sign, unsigned=twins.unsigned_sign, bits=True, check=Ulp(0)
    ),
    _of_each(np.square, direct=torch.square, kinds="fc", twin=twins.square, bits=True, check=_ROUNDED),
    _of_each(np.sqrt, direct=torch.sqrt, check=Ulp(1)),
    _of_each(np.cbrt, twin=twins.cbrt, check=Ulp(6)),
    _of_each(
        np.reciprocal,
        direct=torch.reciprocal,
        kinds="f",
        twin=twins.reciprocal,
        unsigned=twins.unsigned_reciprocal,
        bits=True,
        check=_ROUNDED,
    ),
    _of_each(np.gcd, twin=twins.gcd),
    _of_each(np.lcm, twin=twins.lcm),
    _of_each(np.maximum, twin=twins.maximum, numbers=(1,), commutes=True, ordered=True),
    _of_each(np.minimum, twin=twins.minimum, numbers=(1,), commutes=True, ordered=True),
    _of_each(np.fmax, direct=torch.fmax, kinds="biuf", twin=twins.fmax, ordered=True),
    _of_each(np.fmin, direct=torch.fmin, kinds="biuf", twin=twins.fmin, ordered=True),
    _of_each(_ufunc("clip"), twin=twins.clip, numbers=(1, 2), ordered=True),
    _of_each(np.heaviside, twin=twins.heaviside, note="NaN stays NaN, where torch gives 0"),
    _of_each(_ufunc("_ones_like"), direct=torch.ones_like, bits=True),
)

_FUNCTIONS: Final = _group(
    "Exponentials, logarithms, trigonometry",
    _of_each(np.exp, direct=torch.exp, check=_FUNCTION),
    _of_each(np.exp2, direct=torch.exp2, check=_FUNCTION),
    _of_each(np.expm1, direct=torch.expm1, check=_FUNCTION),
    _of_each(np.log, direct=torch.log, check=_FUNCTION),
    _of_each(np.log2, direct=torch.log2, check=_FUNCTION),
    _of_each(np.log10, direct=torch.log10, check=_FUNCTION),
    _of_each(np.log1p, direct=torch.log1p, check=_LOG1P),
    _of_each(np.logaddexp, direct=torch.logaddexp, check=_LOG_OF_SUM),
    _of_each(np.logaddexp2, direct=torch.logaddexp2, check=_LOG_OF_SUM),
    _of_each(np.sin, direct=torch.sin, check=_FUNCTION),
    _of_each(np.cos, direct=torch.cos, check=_FUNCTION),
    _of_each(np.tan, direct=torch.tan, check=_FUNCTION),
    _of_each(np.arcsin, direct=torch.asin, check=_FUNCTION),
    _of_each(np.arccos, direct=torch.acos, check=_FUNCTION),
    _of_each(np.arctan, direct=torch.atan, check=_FUNCTION),
    _of_each(np.arctan2, direct=torch.atan2, check=_FUNCTION),
    _of_each(np.hypot, direct=torch.hypot, check=Ulp(2)),
    _of_each(np.sinh, direct=torch.sinh, check=_FUNCTION, note=_RANGE),
    _of_each(np.cosh, direct=torch.cosh, check=_FUNCTION, note=_RANGE),
    _of_each(np.tanh, direct=torch.tanh, check=_FUNCTION),
    _of_each(np.arcsinh, direct=torch.asinh, check=_FUNCTION),
    _of_each(np.arccosh, direct=torch.acosh, check=_FUNCTION),
    _of_each(np.arctanh, direct=torch.atanh, check=_FUNCTION),
    _of_each(np.deg2rad, direct=torch.deg2rad, check=Ulp(2)),
    _of_each(np.radians, direct=torch.deg2rad, check=Ulp(2)),
    _of_each(np.rad2deg, direct=torch.rad2deg, check=Ulp(3)),
    _of_each(np.degrees, direct=torch.rad2deg, check=Ulp(3)),
)

_PARTS: Final = _group(
    "Rounding, and parts of numbers",
    _of_each(np.floor, direct=torch.floor, kinds="f", twin=twins.same, bits=True),
    _of_each(np.ceil, direct=torch.ceil, kinds="f", twin=twins.same, bits=True),
    _of_each(np.trunc, direct=torch.trunc, kinds="f", twin=twins.same, bits=True),
    _of_each(np.rint, direct=torch.round, kinds="f", twin=twins.rint, note="half to even, in both"),
    _of_each(np.modf, twin=twins.modf, note="the fraction of an infinity is 0"),
    _of_each(np.frexp, direct=torch.frexp),
    _of_each(np.ldexp, twin=twins.ldexp, check=Ulp(1), note="exponents of any size, where torch overflows"),
    _of_each(np.copysign, direct=torch.copysign, numbers=(1,)),
    _of_each(np.signbit, direct=torch.signbit),
    _of_each(np.nextafter, direct=torch.nextafter),
    _of_each(np.spacing, twin=twins.spacing),
    _of_each(np.conjugate, direct=torch.conj_physical, kinds="c", twin=twins.same, bits=True),
)

_LOGIC: Final = _group(
    "Comparison and logic",
    _of_each(np.equal, direct=torch.eq, numbers=(1,), commutes=True, ordered=True),
    _of_each(np.not_equal, direct=torch.ne, numbers=(1,), commutes=True, ordered=True),
    _of_each(np.less, direct=torch.lt, kinds="biuf", twin=twins.less, numbers=(1,), ordered=True),
    _of_each(np.less_equal, direct=torch.le, kinds="biuf", twin=twins.less_equal, numbers=(1,), ordered=True),
    _of_each(np.greater, direct=torch.gt, kinds="biuf", twin=twins.greater, numbers=(1,), ordered=True),
    _of_each(np.greater_equal, direct=torch.ge, kinds="biuf", twin=twins.greater_equal, numbers=(1,), ordered=True),
    _of_each(np.logical_and, direct=torch.logical_and, bits=True),
    _of_each(np.logical_or, direct=torch.logical_or, bits=True),
    _of_each(np.logical_xor, direct=torch.logical_xor, bits=True),
    _of_each(np.logical_not, direct=torch.logical_not, bits=True),
    _of_each(np.isnan, direct=torch.isnan, kinds="fc", twin=twins.never, bits=True),
    _of_each(np.isinf, direct=torch.isinf, kinds="fc", twin=twins.never, bits=True),
    _of_each(np.isfinite, direct=torch.isfinite, kinds="fc", twin=twins.always, bits=True),
)

_BITS: Final = _group(
    "Bits",
    _of_each(np.bitwise_and, direct=torch.bitwise_and, numbers=(1,), commutes=True, bits=True),
    _of_each(np.bitwise_or, direct=torch.bitwise_or, numbers=(1,), commutes=True, bits=True),
    _of_each(np.bitwise_xor, direct=torch.bitwise_xor, numbers=(1,), commutes=True, bits=True),
    _of_each(np.invert, direct=torch.bitwise_not, bits=True),
    _of_each(np.left_shift, direct=torch.bitwise_left_shift, unsigned=twins.left_shift, numbers=(1,), bits=True),
    _of_each(
        np.right_shift,
        direct=torch.bitwise_right_shift,
        unsigned=twins.right_shift,
        uint64=twins.right_shift_uint64,
        numbers=(1,),
    ),
    _of_each(np.bitwise_count, twin=twins.bitwise_count, unsigned=twins.unsigned_bitwise_count, bits=True),
)

_PRODUCTS: Final = _group(
    "Products of matrices and vectors",
    Op(np.matmul, direct=torch.matmul, kinds="fc", twin=twins.matmul, bits=True, check=_PRODUCT),
    Op(_ufunc("vecdot"), twin=twins.vecdot, bits=True, check=_VECTORS),
    Op(_ufunc("matvec"), twin=twins.matvec, bits=True, check=_VECTORS),
    Op(_ufunc("vecmat"), twin=twins.vecmat, bits=True, check=_VECTORS),
)

_TEXT: Final = """
    _center _expandtabs _expandtabs_length _ljust _lstrip_chars _lstrip_whitespace _partition _partition_index
    _replace _rjust _rpartition _rpartition_index _rstrip_chars _rstrip_whitespace _slice _strip_chars
    _strip_whitespace _zfill count endswith find index isalnum isalpha isdecimal isdigit islower isnumeric isspace
    istitle isupper rfind rindex startswith str_len
"""

_NO_NUMBERS: Final = _group(
    "Text and dates",
    OutOfScope(np.isnat, "dates and spans of time"),
    *(OutOfScope(_ufunc(name), "text") for name in _TEXT.split()),
)

GROUPS: Final[tuple[Group, ...]] = (_ARITHMETIC, _FUNCTIONS, _PARTS, _LOGIC, _BITS, _PRODUCTS, _NO_NUMBERS)
ROWS: Final[dict[Any, Op]] = {row.numpy: row for group in GROUPS for row in group.rows if isinstance(row, Op)}
"""The recorded ones, by ufunc."""


def method_twin(ufunc: Any, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a call of a ufunc's method gives, computed by torch; for ``at``, what the array holds afterwards."""
    return _np_methods.method_twin(ROWS[ufunc], method, args, kwargs)
