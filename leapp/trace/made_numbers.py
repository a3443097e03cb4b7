"""Where a plain number came from that meets a traced value: ``np.float32(x.sum()) * x``.

C code takes the number out of a traced scalar and asks nobody: NumPy's scalar types, functions of compiled libraries,
methods of what a plain table gave for a traced index. Such a number has no memory to be known by, as an array has
(``made``). So the source is asked: what does the expression say that gave the operand, and did it hold a traced value?
Nothing of the user's runs for it. Only the function that is running is looked at, and in it an operand and the
assignments to a name that is one; what is returned by another function is left to the probe of a build.
"""

from __future__ import annotations

import ast
import sys
from types import BuiltinFunctionType, FunctionType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from leapp.trace._syntax import innermost_around, names_assigned_in
from leapp.trace.made import Made, first_traced, mentions_of, package_of, path_of, public_name, values_of
from leapp.trace.source import Place, is_nobodys

if TYPE_CHECKING:
    from types import CodeType, FrameType

_Path = tuple[str, ...]


class _Reading(NamedTuple):
    """An expression whose value C may have taken out of the trace."""

    mentions: tuple[_Path, ...]
    """What it is given."""
    called: _Path | None
    """The function that it calls; None for an element of a table."""
    table: _Path | None
    whole: _Path | None
    """Its one argument, where that is a name: an array that is handed to a scalar type is cast, and recorded."""
    line: int
    text: str


_readings: Final[dict[tuple[int, int], tuple[CodeType, tuple[_Reading, ...]]]] = {}
"""By id of a code object, which is kept, and instruction."""
_LIMIT: Final = 1 << 13


def may_read(frame: FrameType) -> bool:
    """Whether ``where_read`` has anything to look at where ``frame`` calls: mostly not, and this is quick."""
    known = _readings.get((id(frame.f_code), frame.f_lasti))
    return known is None or bool(known[1])


def where_read(depth: int = 1) -> Made | None:
    """The expression that made a plain number, an operand of the running call, of traced data; None where none did."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and is_nobodys(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    key = id(frame.f_code), frame.f_lasti
    known = _readings.get(key)
    if known is None:
        if len(_readings) > _LIMIT:
            _readings.clear()
        found = _readings_at(frame.f_code, frame.f_lasti)
        known = _readings[key] = frame.f_code, tuple([each for each in found if _may_take(frame, each)])
    return next(filter(None, (_taken_by(frame, reading) for reading in known[1])), None) if known[1] else None


def _readings_at(code: CodeType, instruction: int) -> list[_Reading]:
    node = innermost_around(code, instruction)
    if isinstance(node, ast.BinOp):
        operands: list[ast.expr] = [node.left, node.right]
    elif isinstance(node, ast.AugAssign | ast.Assign):
        operands = [node.value]
    elif isinstance(node, ast.Subscript) and isinstance(getattr(node, "parent", None), ast.AugAssign | ast.Assign):
        operands = [node.parent.value]  # type: ignore[attr-defined]
    elif isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.Call):
        operands = [*node.args, *(each.value for each in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            operands.append(node.func.value)
    else:
        return []
    found = []
    for operand in operands:
        if isinstance(operand, ast.Name):
            for value in names_assigned_in(code).get(operand.id, ()):
                found += _reading(value)
        else:
            found += _reading(operand)
    return found


def _reading(node: ast.expr) -> list[_Reading]:
    """What an expression says that gives a number: a call of a function by its name, or of a method of a table."""
    if isinstance(node, ast.UnaryOp):
        return _reading(node.operand)
    if any(isinstance(each, ast.Call) and (path_of(each.func) or ("",))[-1] == "constant" for each in ast.walk(node)):
        return []  # annotate.constant: it is meant
    called = path_of(node.func) if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and called is not None:
        given = (*node.args, *(each.value for each in node.keywords))
        mentions = tuple(dict.fromkeys(path for each in given for path in mentions_of(each)))
        whole = path_of(given[0]) if len(given) == 1 else None
        return [_Reading(mentions, called, None, whole, node.lineno, ast.unparse(node))] if mentions else []
    if isinstance(node, ast.BinOp):
        return [*_reading(node.left), *_reading(node.right)]
    if isinstance(node, ast.Call):
        return _reading(node.func)
    if isinstance(node, ast.Attribute):  # TABLE[index].sum()
        return _reading(node.value)
    if not isinstance(node, ast.Subscript):
        return []
    table, mentions = path_of(node.value), tuple(dict.fromkeys(mentions_of(node.slice)))
    return [_Reading(mentions, None, table, None, node.lineno, ast.unparse(node))] if table and mentions else []


def _may_take(frame: FrameType, reading: _Reading) -> bool:
    """Whether it is worth a look each time: what a global name means is known the first time."""
    path = reading.called or reading.table
    assert path is not None
    if path[0] in frame.f_code.co_varnames:
        return reading.table is not None or len(path) == 1  # methods of objects: traced ones are heard
    (thing,) = values_of(frame, (path,)) or (None,)
    if reading.table is not None:
        return type(thing) is np.ndarray
    return _is_method_of_ufunc(frame, path) if thing is None else _asks_nobody(thing, frame)


def _is_method_of_ufunc(frame: FrameType, path: _Path) -> bool:
    (thing,) = (values_of(frame, (path[:-1],)) if path[1:] else ()) or (None,)
    return isinstance(thing, np.ufunc)


def _taken_by(frame: FrameType, reading: _Reading) -> Made | None:
    """The same, if it was given a traced value."""
    place = Place(frame.f_code, reading.line, frame.f_globals.get("__name__", ""))
    if reading.table is not None:
        (table,) = values_of(frame, (reading.table,)) or (None,)
        if type(table) is not np.ndarray or first_traced(frame, reading.mentions) is None:
            return None
        return Made(place, reads_trace=True, function=reading.text)
    assert reading.called is not None
    (function,) = values_of(frame, (reading.called,)) or (None,)
    if function is None:
        takes = of_list = _is_method_of_ufunc(frame, reading.called)  # np.add.reduce([x, y]): of an array, it is heard
    else:
        takes, of_list = _asks_nobody(function, frame), False
    if not takes or first_traced(frame, reading.mentions) is None:
        return None
    if isinstance(function, type) and reading.whole is not None:
        (given,) = values_of(frame, (reading.whole,)) or (None,)
        if isinstance(given, np.ndarray) and given.ndim:
            return None
    return Made(place, True, reading.text if of_list else public_name(function) or reading.text, of_list)


def _asks_nobody(function: Any, frame: FrameType) -> bool:
    """Whether a function takes numbers out of what it is given: NumPy's types, compiled code, libraries."""
    if isinstance(function, type):
        return issubclass(function, np.generic)
    if isinstance(function, FunctionType):
        # What Python code computes is traced or told of: a plain number is what a library has computed otherwise.
        file = function.__code__.co_filename
        return (
            "/site-packages/" in file
            and not is_nobodys(file)
            and package_of(file) != package_of(frame.f_code.co_filename)
        )
    if type(function) is BuiltinFunctionType:
        return (function.__module__ or "builtins").partition(".")[0] not in _TELL
    kind = type(function)
    compiled = type(kind.__dict__.get("__call__")) is WrapperDescriptorType
    return compiled and kind.__module__ not in _TELLING_KINDS


_TELL: Final = frozenset(("builtins", "math", "cmath", "numpy", "torch", "_operator", "_functools"))
"""Modules whose compiled functions ask the objects that they are given."""
_TELLING_KINDS: Final = frozenset(("numpy", "functools"))
