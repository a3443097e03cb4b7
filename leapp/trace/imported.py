"""Functions that modules took from NumPy, torch and ``math`` under names of their own: ``from math import sqrt``.

Such a name means what stood there when it was imported. While the functions are wrapped it has to mean the wrapper, and
afterwards the function again, also where a module was imported in between.
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final = frozenset((BuiltinFunctionType, FunctionType, type(np.mean)))
_OTHERS: Final = sys.stdlib_module_names | {"numpy", "torch", "leapp"}
"""Packages whose own names stay as they are: what they compute for themselves is no concern of a trace."""

_known: Final[dict[str, tuple[int, int]]] = {}
"""Modules that hold no such name: their ids, and how many names they had when they were looked through."""


def replace(table: Mapping[Any, Any]) -> None:
    """Let every name that stands for a key of ``table`` in a module stand for its value.

    Names in classes, defaults and closures are not looked for.
    """
    for name, module in sys.modules.copy().items():
        if name.partition(".")[0] in _OTHERS or not isinstance(module, ModuleType):
            continue
        names: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")  # loads nothing that loads late
        form = id(module), len(names)
        if _known.get(name) == form:
            continue
        found = False
        for key, thing in names.copy().items():
            if type(thing) in _KINDS and thing in table:
                names[key] = table[thing]
                found = True
        if found:
            _known.pop(name, None)
        else:
            _known[name] = form
