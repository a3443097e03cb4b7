"""Each check passes what is near enough and finds what is not, at its place."""

from __future__ import annotations

import numpy as np
import pytest

from leapp.ops._np_checks import EXACT, Accumulated, Residual, Scaled, Ulp, terms_of
from leapp.ops.numpy_ufuncs import ROWS

FLOATS = [np.float16, np.float32, np.float64]
NAN, INF = np.nan, np.inf


def wrong(check, expected, actual, call=None, args=(), kwargs=None):
    return check.wrong(np.asarray(expected), np.asarray(actual), call, args, kwargs or {})


def stepped(array, steps):
    """Each element as many representable numbers up as ``steps`` says."""
    array = np.array(array)
    with np.errstate(over="ignore", under="ignore"):
        for _ in range(abs(steps)):
            array = np.nextafter(array, array.dtype.type(INF if steps > 0 else -INF))
    return array


@pytest.mark.parametrize("count", [1, 8, 5000, 100_001])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.uint64, *FLOATS, np.complex64, np.complex128])
def test_exact_finds_one_element_in_many(dtype, count):
    array = (np.arange(count) % 2).astype(dtype)
    assert wrong(EXACT, array, array.copy()) is None
    for place in {0, count // 2, count - 1}:
        other = array.copy()
        other[place] = 1 - int(array[place].real)
        assert wrong(EXACT, array, other) == (place,)


def test_exact_looks_at_values_not_at_memory():
    array = np.arange(20_000.0).reshape(100, 200)
    assert wrong(EXACT, array, np.asfortranarray(array)) is None
    assert wrong(EXACT, array[::-1, ::2], array[::-1, ::2].copy()) is None
    assert wrong(EXACT, [0.0, NAN, INF], [-0.0, -NAN, INF]) is None
    for expected, actual in ((NAN, 1.0), (1.0, NAN), (INF, -INF), (1.0, np.nextafter(1.0, 2.0))):
        assert wrong(EXACT, [0.0, expected], [0.0, actual]) == (1,)
        assert wrong(EXACT, expected, actual) == ()
    assert wrong(EXACT, np.zeros((0, 3)), np.zeros((0, 3))) is None


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulp_counts_representable_numbers(dtype):
    limits = np.finfo(dtype)
    tiny = limits.smallest_subnormal
    values = np.array([0, tiny, limits.tiny, 0.1, 1, 1000, limits.max, -1, -tiny, -limits.tiny], dtype)
    for steps in (1, 2, 3, -1, -2, -3):
        other = stepped(values, steps)
        assert wrong(Ulp(3), values, other) is None
        assert wrong(Ulp(abs(steps)), values, other) is None
        near_or_equal = abs(steps) - 1
        for place in range(values.size):
            one = values.copy()
            one[place] = other[place]
            if np.isfinite(other[place]):
                assert wrong(Ulp(near_or_equal), values, one) == (place,)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulp_of_what_is_no_number(dtype):
    for expected, actual in ((NAN, 1.0), (1.0, NAN), (NAN, INF), (INF, NAN), (INF, -INF), (INF, 1e4), (1e4, -1e4)):
        assert wrong(Ulp(4), dtype([1, expected]), dtype([1, actual])) == (1,)
        assert wrong(Ulp(4), dtype(expected), dtype(actual)) == ()
    assert wrong(Ulp(0), dtype([NAN, INF, -INF, 0.0]), dtype([-NAN, INF, -INF, -0.0])) is None
    assert wrong(Ulp(1), dtype(np.finfo(dtype).max), dtype(INF)) is None


def test_ulp_of_whole_numbers_is_exact():
    assert wrong(Ulp(4), [1, 2, 3], [1, 2, 4]) == (2,)
    assert wrong(Ulp(4), [True], [False]) == (0,)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_ulp_of_complex_numbers_follows_their_size(dtype):
    eps = np.finfo(dtype).eps
    expected = np.array([1 + 1j, 1 + 1e-12j, complex(INF, 1), complex(1, NAN)], dtype)
    near = np.array([1 + 1j + 4 * eps, 1 + 1e-12j + 4j * eps, complex(INF, 1), complex(1, NAN)], dtype)
    assert wrong(Ulp(2), expected, near) is None
    for place, value in enumerate([1 + 1j + 20 * eps, 1 + 20j * eps, complex(INF, 1.1), complex(1.1, NAN)]):
        far = expected.copy()
        far[place] = value
        assert wrong(Ulp(2), expected.reshape(2, 2), far.reshape(2, 2)) == (place // 2, place % 2)
    assert wrong(Ulp(2), dtype(1 + 1j), dtype(2)) == ()


def test_ulp_of_small_complex_numbers_may_have_a_floor():
    eps = np.finfo(np.complex128).eps
    assert wrong(Ulp(2, floor=1.0), [1e-9 + 0j], [1e-9 + 4j * eps]) is None
    assert wrong(Ulp(2, floor=1.0), [1e-9 + 0j], [1e-9 + 9j * eps]) == (0,)
    assert wrong(Ulp(2), [1e-9 + 0j], [1e-9 + 4j * eps]) == (0,)


def test_accumulated_bounds_by_the_sum_of_absolute_values():
    x = np.array([[1e6, 1.0, -1e6], [1.0, 2.0, 3.0]], np.float32)
    expected = np.sum(x, axis=1)
    eps = np.finfo(np.float32).eps
    inside = expected + np.array([0.5 * 2 * 3 * eps * 2e6, 0], np.float32)
    assert wrong(Accumulated(2), expected, inside, np.sum, (x,), {"axis": 1}) is None
    outside = expected + np.array([0, 3 * 2 * 3 * eps * 6], np.float32)
    assert wrong(Accumulated(2), expected, outside, np.sum, (x,), {"axis": 1}) == (1,)
    assert wrong(Accumulated(2), expected.sum(), np.float32(7.5), np.sum, (x,)) is None  # 2e6 eps, six times over
    assert wrong(Accumulated(2), expected.sum(), np.float32(12), np.sum, (x,)) == ()


@pytest.mark.parametrize("shapes", [((40, 300), (300, 50)), ((3, 1, 8, 300), (2, 300, 9))])
def test_bounds_of_products_are_computed_where_they_are_needed(shapes):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    expected = a @ b
    check = ROWS[np.matmul].check
    place = np.unravel_index(np.argmin(np.abs(expected)), expected.shape)
    bound = 2 * 300 * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b))[place]
    for times, found in ((0.9, None), (1.1, tuple(map(int, place)))):
        actual = expected.copy()
        actual[place] += np.float32(times * bound)
        assert wrong(check, expected, actual, np.matmul, (a, b)) == found


def test_few_products_bound_an_element_where_they_are_enough():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 900)), rng.standard_normal((900, 50))
    expected = a @ b
    check = ROWS[np.matmul].check
    place = np.unravel_index(np.argmin(np.abs(expected)), expected.shape)
    least = check.least_at((a, b), {}, expected, np.array([np.ravel_multi_index(place, expected.shape)]))[0]
    whole = (np.abs(a) @ np.abs(b))[place]
    assert 0 < least < whole / 10
    eps = np.finfo(np.float64).eps
    for size, found in ((0.9 * least, None), (0.9 * whole, None), (1.1 * whole, tuple(map(int, place)))):
        actual = expected.copy()
        actual[place] += 2 * 900 * eps * size
        assert wrong(check, expected, actual, np.matmul, (a, b)) == found


def test_long_sums_are_looked_at_in_blocks():
    x = np.ones((100_000, 2), np.float32)
    expected = np.cumsum(x, axis=0)
    actual = expected * np.float32(1 + 1e-5)
    check = Accumulated(2, terms=lambda args, kwargs, expected: 100_000.0)
    assert wrong(check, expected, actual, np.cumsum, (x,), {"axis": 0}) is None
    actual[70_001, 1] *= 1.1
    assert wrong(check, expected, actual, np.cumsum, (x,), {"axis": 0}) == (70_001, 1)


def test_accumulated_knows_other_values():
    x = np.array([INF, 1.0])
    assert wrong(Accumulated(2), INF, 5.0, np.sum, (x,)) == ()
    assert wrong(Accumulated(2), NAN, INF, np.sum, (np.array([INF, -INF]),)) == ()
    huge = np.array([1e308, 1e308, -1e308])  # one order of summation overflows, another does not
    assert wrong(Accumulated(2), INF, 1e308, np.sum, (huge,)) is None
    assert wrong(Accumulated(2), [3], [4], np.sum, (np.array([1, 2]),)) == (0,)


def test_accumulated_of_calls_that_write():
    x, index, more = np.zeros(3), np.array([0, 0, -1]), np.array([1.0, 2.0, 3.0])
    expected = x.copy()
    np.add.at(expected, index, more)
    assert wrong(Accumulated(2), expected, expected + np.array([0, 0, 1e-15]), np.add.at, (x, index, more)) is None
    assert wrong(Accumulated(2), expected, expected + np.array([0, 0, 1e-13]), np.add.at, (x, index, more)) == (2,)


def test_terms_are_never_too_few():
    a, b = np.ones((3, 4)), np.ones((4, 5))
    assert terms_of((a,), {}, a.sum(axis=0)) == 3
    assert terms_of((a,), {}, a.sum()) == 12
    assert terms_of((a, b), {}, a @ b) >= 4
    assert terms_of((a, np.ones((3, 4))), {}, np.tensordot(a, a)) >= 12
    assert terms_of((np.ones(9), np.ones(3)), {}, np.convolve(np.ones(9), np.ones(3))) >= 3


def test_scaled_bounds_by_the_largest_element():
    eps = np.finfo(np.float64).eps
    expected = np.array([1e6, 1e-6, 0.0])
    assert wrong(Scaled(2), expected, expected + np.array([0, 1e6 * eps, 1e6 * eps])) is None
    assert wrong(Scaled(2), expected, expected + np.array([0, 3e6 * eps, 0])) == (1,)
    assert (
        wrong(
            Scaled(2, lambda args, kwargs: len(args[0])),
            expected,
            expected + np.array([0, 3e6 * eps, 0]),
            None,
            ([1, 2],),
        )
        is None
    )
    assert wrong(Scaled(2), [1.0, INF], [1.0, 5.0]) == (1,)
    assert wrong(Scaled(2), [1.0, NAN], [NAN, NAN]) == (0,)
    assert wrong(Scaled(2), [1, 2], [1, 3]) == (1,)


def test_residual_asks_for_the_identity_alone():
    def of_square_root(args, kwargs, results):
        return float(np.max(np.abs(results[0] ** 2 - args[0])) / np.finfo(np.float64).eps)

    check, x = Residual(of_square_root, 100), np.array([1.0, 4.0])
    assert check.whole
    assert wrong(check, [1.0, 2.0], [-1.0, 2.0], np.sqrt, (x,)) is None
    assert wrong(check, [1.0, 2.0], [1.0, 2.1], np.sqrt, (x,)) == ()
    assert wrong(check, [1.0, 2.1], [1.0, 2.1 + 1e-15], np.sqrt, (x,)) is None  # as bad as NumPy's own
    assert check.wrong((x, x), (x, x.copy()), None, (x,), {}) is None
    assert wrong(check, [1.0, 2.0], [NAN, 2.0], np.sqrt, (x,)) == ()
