"""Whether the generators that everybody shares moved."""

import random

import numpy as np
import pytest

from leapp.trace import generators


@pytest.fixture(autouse=True)
def as_before():
    bits, numpys, pythons = np.random.get_bit_generator(), np.random.get_state(), random.getstate()  # noqa: NPY002
    yield
    np.random.set_bit_generator(bits)
    np.random.set_state(numpys)  # noqa: NPY002
    random.setstate(pythons)


DRAWS = {
    "one word": lambda: np.random.bytes(4),  # noqa: NPY002
    "more than it keeps": lambda: np.random.rand(1000),  # noqa: NPY002
    "the first normal number of two": lambda: np.random.randn(),  # noqa: NPY002
    "a shuffle": lambda: np.random.shuffle(np.arange(5)),  # noqa: NPY002
    "another start": lambda: np.random.seed(11),  # noqa: NPY002
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_each_draw_is_seen_and_nothing_else(draw):
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002
        first = generators.states()
        assert generators.states() == first == generators.states()
        draw()
        now = generators.states()
        assert now["numpy.random"] != first["numpy.random"]
        assert now["random"] == first["random"]


def test_a_normal_number_that_waited_is_a_draw():
    np.random.seed(7)  # noqa: NPY002
    np.random.randn()  # noqa: NPY002
    waiting = generators.states()
    np.random.randn()  # noqa: NPY002
    handed_out = generators.states()
    assert waiting != handed_out == generators.states()
    np.random.randn()  # noqa: NPY002
    assert generators.states() != handed_out


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_any_generator_may_be_the_one_that_is_shared(kind):
    np.random.set_bit_generator(kind(3))
    first = generators.states()
    assert generators.states() == first
    np.random.rand()  # noqa: NPY002
    assert generators.states()["numpy.random"] != first["numpy.random"]


def test_pythons_own():
    first = generators.states()
    random.random()  # noqa: S311
    assert generators.states()["random"] != first["random"]
