"""Where the generators of random numbers stand that everybody shares: NumPy's and Python's own."""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any, Final

import numpy as np

from leapp.trace import made


def states() -> dict[str, Any]:
    """Something for each generator, by its name, that is another thing once numbers were drawn from it."""
    return {"numpy.random": _of_numpy(), "random": random.getstate()}


_numpy: Any = np.random  # its stubs do not know the function that gives the generator
_WORDS: Final = 624
_BYTES: Final = 4 * _WORDS + 4
"""What a Mersenne twister keeps: its words, and which of them comes next."""

_known: list[tuple[Any, bytes, Any]] = []
"""The generator of NumPy's that was asked last, its memory at that time, and what it told."""


def _of_numpy() -> Any:
    """NumPy takes long to tell the state, so it is asked again only if the memory of the generator changed.

    A normal number that waits to be handed out is no part of that memory: then it is asked every time.
    """
    generator = _numpy.get_bit_generator()
    memory = _memory_of(generator)
    if memory is not None and _known and _known[0][0] is generator and _known[0][1] == memory:
        return _known[0][2]
    before = made.pause()  # no array of the user's is made here
    try:
        told = _comparable(_numpy.get_state(legacy=False))
    finally:
        made.resume(before)
    if memory is not None and not told["has_gauss"]:
        # Held against what NumPy tells: how it lays out that memory is nothing that it promises.
        laid_out: bytes = told["state"]["key"] + told["state"]["pos"].to_bytes(4, sys.byteorder)
        _known[:] = [(generator, memory, told)] if laid_out == memory else []
    else:
        _known.clear()
    return told


def _comparable(state: Any) -> Any:
    """The state of any generator, with bytes in the place of arrays."""
    if isinstance(state, dict):
        return {name: _comparable(each) for name, each in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def _memory_of(generator: Any) -> bytes | None:
    if type(generator) is not np.random.MT19937:
        return None
    return ctypes.string_at(generator.ctypes.state_address, _BYTES)
