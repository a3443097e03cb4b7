"""Twins of ufuncs that torch computes by other rules, or in other words.

Operands have the dtypes of NumPy's loop, but that unsigned integers above 8 bits come as int64; numbers are plain
Python. Most twins are for integers, which torch divides by zero with an error or a crash, and for NaN.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from leapp.ops._np_row import Unsupported
from leapp.ops._np_twin import TOP_BIT, cast, is_tensor


def widened(thing: Any) -> Any:
    """An operand in float64; numbers as they are."""
    return cast(thing, torch.float64) if is_tensor(thing) else thing


def same(x: Any) -> Any:
    """Another array of the same elements: the caller may write to it."""
    return torch.clone(x)


# Division


def true_divide(a: Any, b: Any) -> Any:
    """Small integers have loops of their own, which divide float64."""
    return torch.div(widened(a), widened(b))


def _divisor(b: Any) -> Any:
    """Integers with 1 in the place of what torch cannot divide by: 0, and -1, by which the least integer overflows."""
    bad = (b == 0) | (b == -1) if b.dtype.is_signed else b == 0
    return torch.where(bad, 1, b)


def floor_divide(a: Any, b: Any) -> Any:
    """NumPy gives 0 for a division by 0, and wraps around for the least integer divided by -1."""
    if a.dtype is torch.float16:  # torch rounds in between
        return torch.floor_divide(cast(a, torch.float32), cast(b, torch.float32) if is_tensor(b) else b)
    if a.dtype.is_floating_point:
        return torch.floor_divide(a, b)
    if not is_tensor(b):
        if b in {0, -1}:
            return torch.zeros_like(a) if b == 0 else torch.neg(a)
        return torch.floor_divide(a, b)
    quotient = torch.where(b == 0, 0, torch.floor_divide(a, _divisor(b)))
    return torch.where(b == -1, -a, quotient) if b.dtype.is_signed else quotient


def remainder(a: Any, b: Any) -> Any:
    """Of integers NumPy gives 0 for a division by 0; of floats a result of 0 has the sign of the divisor."""
    if a.dtype.is_floating_point:
        found = torch.remainder(a, b)
        # Where b is a number above 0: 0.0 added to -0.0 is 0.0, and nothing else changes.
        return found + 0.0 if not is_tensor(b) and b > 0 else torch.copysign(found, b)
    if not is_tensor(b):
        return torch.zeros_like(a) if b in {0, -1} else torch.remainder(a, b)
    return torch.where(b == 0, 0, torch.remainder(a, _divisor(b)))


def fmod(a: Any, b: Any) -> Any:
    """NumPy gives 0 for the remainder of a division by 0."""
    if not is_tensor(b):
        return torch.zeros_like(a) if b in {0, -1} else torch.fmod(a, b)
    return torch.where(b == 0, 0, torch.fmod(a, _divisor(b)))


_ONES: Final = 0x7FFF_FFFF_FFFF_FFFF


def floor_divide_uint64(a: Any, b: Any) -> Any:
    """Half of the dividend fits into int64: its quotient, twice, is 1 too small at most."""
    above = torch.bitwise_xor(a, TOP_BIT) >= (b ^ TOP_BIT)  # unsigned: a >= b
    if is_tensor(b):
        divisor = torch.where(b > 0, b, 1)
    elif b <= 0:
        return torch.zeros_like(a) if b == 0 else cast(above, torch.int64)
    else:
        divisor = b
    twice = torch.floor_divide(torch.bitwise_right_shift(a, 1) & _ONES, divisor) * 2
    left = a - twice * divisor
    quotient = twice + cast(torch.bitwise_xor(left, TOP_BIT) >= (divisor ^ TOP_BIT), torch.int64)
    if not is_tensor(b):
        return quotient
    return torch.where(b > 0, quotient, torch.where(b == 0, 0, cast(above, torch.int64)))


def remainder_uint64(a: Any, b: Any) -> Any:
    """What the quotient leaves; 0 for a division by 0."""
    left = a - floor_divide_uint64(a, b) * b
    if not is_tensor(b):
        return left if b else torch.zeros_like(a)
    return torch.where(b == 0, 0, left)


def divmod_uint64(a: Any, b: Any) -> Any:
    """Quotient and remainder."""
    return floor_divide_uint64(a, b), remainder_uint64(a, b)


def divmod_(a: Any, b: Any) -> Any:
    """Quotient and remainder, each by its own rules."""
    return floor_divide(a, b), remainder(a, b)


def reciprocal(x: Any) -> Any:
    """Of integers: 1 and -1 are their own, all else gives 0; 0 what the processor makes of infinity.

    Of complex numbers: NaN for 0, where torch gives an infinite real part.
    """
    if x.dtype.is_complex:
        return torch.where(torch.eq(x, 0), no_number(x), torch.reciprocal(x))
    inverse = torch.where(x == 1, 1, 0)
    if x.dtype.is_signed:
        inverse = torch.where(x == -1, -1, inverse)
    if x.dtype in {torch.int32, torch.int64}:
        inverse = torch.where(x == 0, torch.iinfo(x.dtype).min, inverse)
    return cast(inverse, x.dtype)


def unsigned_reciprocal(x: Any) -> Any:
    """1 is its own reciprocal, all else gives 0."""
    return torch.eq(x, 1)


def gcd(a: Any, b: Any) -> Any:
    """Torch gives some divisors of the least integer a sign."""
    return torch.abs(torch.gcd(a, b))


def lcm(a: Any, b: Any) -> Any:
    """Of absolute values, wrapping around; 0 where both are 0."""
    a, b = torch.abs(a), torch.abs(b)
    divisor = gcd(a, b)
    return torch.div(a, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc") * b


# Order


def maximum(a: Any, b: Any) -> Any:
    """Element by element; NaN wins."""
    if a.dtype.is_complex:
        return torch.where(torch.isnan(a) | greater_equal(a, b), a, b)
    if is_tensor(b):
        return torch.maximum(a, b)
    return torch.bitwise_or(a, b) if a.dtype is torch.bool else torch.clamp(a, min=b)


def minimum(a: Any, b: Any) -> Any:
    """Element by element; NaN wins."""
    if a.dtype.is_complex:
        return torch.where(torch.isnan(a) | less_equal(a, b), a, b)
    if is_tensor(b):
        return torch.minimum(a, b)
    return torch.bitwise_and(a, b) if a.dtype is torch.bool else torch.clamp(a, max=b)


def fmax(a: Any, b: Any) -> Any:
    """Complex numbers; the other one of a NaN."""
    return torch.where(torch.isnan(b) | greater_equal(a, b), a, b)


def fmin(a: Any, b: Any) -> Any:
    """Complex numbers; the other one of a NaN."""
    return torch.where(torch.isnan(b) | less_equal(a, b), a, b)


def clip(x: Any, low: Any, high: Any) -> Any:
    """The upper bound wins where the lower one is above it, as in NumPy."""
    if is_tensor(low) == is_tensor(high) and not (x.dtype is torch.bool or x.dtype.is_complex):
        return torch.clamp(x, low, high)
    return minimum(maximum(x, low), high)


def less(a: Any, b: Any) -> Any:
    """Complex numbers: real parts decide, imaginary ones where those are equal."""
    return _by_parts(a, b, torch.lt, torch.lt)


def less_equal(a: Any, b: Any) -> Any:
    """Complex numbers: real parts decide, imaginary ones where those are equal."""
    return _by_parts(a, b, torch.lt, torch.le)


def greater(a: Any, b: Any) -> Any:
    """Complex numbers: real parts decide, imaginary ones where those are equal."""
    return _by_parts(a, b, torch.gt, torch.gt)


def greater_equal(a: Any, b: Any) -> Any:
    """Complex numbers: real parts decide, imaginary ones where those are equal."""
    return _by_parts(a, b, torch.gt, torch.ge)


def _by_parts(a: Any, b: Any, of_real: Any, of_imaginary: Any) -> Any:
    a_real, a_imag, b_real, b_imag = torch.real(a), torch.imag(a), torch.real(b), torch.imag(b)
    known = ~(torch.isnan(a_imag) | torch.isnan(b_imag))
    return (of_real(a_real, b_real) & known) | (torch.eq(a_real, b_real) & of_imaginary(a_imag, b_imag))


# Parts and signs of numbers


def sign(x: Any) -> Any:
    """NaN stays NaN, where torch gives 0."""
    if x.dtype.is_complex:
        return torch.sgn(x)
    return torch.where(torch.isnan(x), x, torch.sign(x))


def unsigned_sign(x: Any) -> Any:
    """1 but for 0."""
    return torch.ne(x, 0)


def rint(x: Any) -> Any:
    """The parts of complex numbers are rounded each for itself."""
    return torch.complex(torch.round(torch.real(x)), torch.round(torch.imag(x)))


def heaviside(x: Any, at_zero: Any) -> Any:
    """NaN stays NaN, where torch gives 0."""
    return torch.where(torch.isnan(x), x, torch.heaviside(x, at_zero))


def modf(x: Any) -> Any:
    """Fraction and whole, both with the sign of the number; infinities have the fraction 0."""
    whole = torch.trunc(x)
    return torch.copysign(torch.where(torch.isinf(x), 0, x - whole), x), whole


def spacing(x: Any) -> Any:
    """Distance to the next number away from 0, with the sign of the number; none after an infinity."""
    if x.dtype is torch.float16:
        raise Unsupported("NumPy counts spacing of float16 by another rule")
    return torch.nextafter(x, torch.where(x < 0, torch.full_like(x, -math.inf), math.inf)) - x


def ldexp(x: Any, exponent: Any) -> Any:
    """In double precision, and in three steps, as the power alone may be out of range where the result is not."""
    steps = torch.clamp(cast(exponent, torch.int64), -2200, 2200)
    third = torch.div(steps, 3, rounding_mode="trunc")
    once, last = (torch.exp2(cast(each, torch.float64)) for each in (third, steps - 2 * third))
    return cast(widened(x) * once * once * last, x.dtype)


def square(x: Any) -> Any:
    """Integers; few runtimes have powers of them."""
    return torch.mul(x, x)


def negative(x: Any) -> Any:
    """Unsigned integers, in terms that every runtime has for them."""
    return torch.bitwise_not(x) + 1


def cbrt(x: Any) -> Any:
    """The power in double precision; of doubles with a step of Newton's, on numbers that have a cube."""
    wide = widened(x)
    size = torch.abs(wide)
    if x.dtype is not torch.float64:
        return cast(torch.copysign(torch.pow(size, 1 / 3), wide), x.dtype)
    small, large = size < 2.0**-600, size > 2.0**600
    scaled = size * torch.where(small, 2.0**600, torch.where(large, 2.0**-600, torch.ones_like(size)))
    root = torch.pow(scaled, 1 / 3)
    better = root - (root * root * root - scaled) / (3 * root * root)
    root = torch.where(torch.isfinite(better), better, root)
    root = root * torch.where(small, 2.0**-200, torch.where(large, 2.0**200, torch.ones_like(size)))
    return torch.copysign(root, x)


def power(a: Any, b: Any) -> Any:
    """Small integers wrap around as those of 64 bits do, and few runtimes have powers of them."""
    dtype = (a if is_tensor(a) else b).dtype
    if dtype.is_complex:
        return complex_power(a, b)
    if dtype in _SMALL:
        a, b = (cast(each, torch.int64) if is_tensor(each) else each for each in (a, b))
    return torch.pow(a, b)


_SMALL: Final = frozenset({torch.int8, torch.int16, torch.uint8})


def complex_power(a: Any, b: Any) -> Any:
    """Anything to the power 0 is 1; 0 gives 0 for powers with a positive real part, and NaN for all others."""
    power = torch.pow(a, b)
    if not is_tensor(b):
        if b == 0:
            return torch.ones_like(power)
        return torch.where(torch.eq(a, 0), 0 if b.real > 0 else no_number(power), power)
    if is_tensor(a) or a == 0:
        of_zero = torch.where(torch.real(b) > 0, 0, no_number(power))
        power = torch.where(torch.eq(a, 0), of_zero, power) if is_tensor(a) else of_zero
    return torch.where(torch.eq(b, 0), 1, power)


def no_number(x: Any) -> Any:
    """NaN in both parts; a graph has no word for it."""
    return torch.mul(x, math.nan)


def never(x: Any) -> Any:
    """No integer is infinite or NaN."""
    return torch.zeros_like(x, dtype=torch.bool)


def always(x: Any) -> Any:
    """Every integer is finite."""
    return torch.ones_like(x, dtype=torch.bool)


# Bits


def left_shift(a: Any, by: Any) -> Any:
    """Unsigned integers as int64."""
    return torch.bitwise_left_shift(cast(a, torch.int64), cast(by, torch.int64) if is_tensor(by) else by)


def right_shift(a: Any, by: Any) -> Any:
    """Unsigned integers as int64."""
    return torch.bitwise_right_shift(cast(a, torch.int64), cast(by, torch.int64) if is_tensor(by) else by)


def right_shift_uint64(a: Any, by: Any) -> Any:
    """Zeros come in from the left."""
    rest = torch.bitwise_right_shift(torch.bitwise_right_shift(a, 1) & _ONES, by - 1)
    return torch.where(torch.eq(by, 0), a, rest) if is_tensor(by) else (rest if by else torch.clone(a))


def bitwise_count(x: Any) -> Any:
    """Number of bits set in the absolute value."""
    return unsigned_bitwise_count(torch.abs(cast(x, torch.int64)))


def unsigned_bitwise_count(x: Any) -> Any:
    """Number of bits set: sums of neighbours, of pairs, of fours, then of all bytes in the uppermost."""
    x = cast(x, torch.int64)
    x = x - ((x >> 1) & 0x5555_5555_5555_5555)
    x = (x & 0x3333_3333_3333_3333) + ((x >> 2) & 0x3333_3333_3333_3333)
    x = (x + (x >> 4)) & 0x0F0F_0F0F_0F0F_0F0F
    return ((x * 0x0101_0101_0101_0101) >> 56) & 0xFF


# Products of matrices


def matmul(a: Any, b: Any) -> Any:
    """Of booleans: whether any pair of elements is true in both; small integers wrap around as larger ones do."""
    if a.dtype is torch.bool:
        return torch.ne(torch.matmul(cast(a, torch.int64), cast(b, torch.int64)), 0)
    if a.dtype in _SMALL:
        a, b = cast(a, torch.int32), cast(b, torch.int32)
    return torch.matmul(a, b)


def matvec(a: Any, v: Any) -> Any:
    """Stacks of matrices times stacks of vectors."""
    return matmul(a, v) if v.ndim == 1 else matmul(a, v[..., None])[..., 0]


def vecmat(v: Any, a: Any) -> Any:
    """Stacks of conjugated vectors times stacks of matrices."""
    v = torch.conj_physical(v) if v.dtype.is_complex else v
    return matmul(v, a) if v.ndim == 1 else matmul(v[..., None, :], a)[..., 0, :]


def vecdot(a: Any, b: Any) -> Any:
    """Stacks of inner products; the first vector is conjugated."""
    a = torch.conj_physical(a) if a.dtype.is_complex else a
    return matmul(a, b) if a.ndim == b.ndim == 1 else matmul(a[..., None, :], b[..., :, None])[..., 0, 0]
