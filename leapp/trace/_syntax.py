"""Which piece of source a running instruction belongs to.

The instruction's own position finds it: libraries that find the running expression know calls and operators, not jumps.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

_Position = tuple[int, int, int, int]


def node_at(code: CodeType, instruction: int) -> ast.AST | None:
    """The expression or statement that an instruction evaluates, exactly; None when it cannot be told."""
    nodes = _parsed(code.co_filename)
    position = _position(code, instruction)
    return None if nodes is None or position is None else nodes.get(position)  # type: ignore[arg-type]


def innermost_around(code: CodeType, instruction: int) -> ast.AST | None:
    """The same, or else the smallest piece around it: the position of a method call leaves out what stands before."""
    found = node_at(code, instruction)
    nodes = _parsed(code.co_filename)
    position = _position(code, instruction)
    if found is not None or nodes is None or position is None:
        return found
    first, last, start, stop = position
    if first is None or last is None or start is None or stop is None:
        return None
    smallest, size = None, None
    for (top, bottom, left, right), node in nodes.items():
        if (top, left) <= (first, start) and (bottom, right) >= (last, stop):
            # Pieces around one place lie in each other: the smallest begins last, and of those ends first.
            inner = top, left, -bottom, -right
            if size is None or inner > size:
                smallest, size = node, inner
    return smallest


def function_of(code: CodeType) -> ast.FunctionDef | ast.Lambda | None:
    """The definition that a code object was compiled from; None where the source is missing or does not tell."""
    found: list[ast.FunctionDef | ast.Lambda] = []
    for node in (_parsed(code.co_filename) or {}).values():
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            first = node.lineno
        else:
            continue
        if first == code.co_firstlineno:
            found.append(node)
    return found[0] if len(found) == 1 else None


def _position(code: CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None] | None:
    return next(itertools.islice(code.co_positions(), instruction // 2, None), None)


def assignments_in(code: CodeType) -> list[ast.Assign]:
    """The statements of a code object, and of functions inside it, that assign to elements: ``x[i] = value``."""
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    return [
        node
        for node in (_parsed(code.co_filename) or {}).values()
        if isinstance(node, ast.Assign)
        and code.co_firstlineno <= node.lineno <= last
        and any(isinstance(each, ast.Subscript) for each in node.targets)
    ]


@lru_cache(maxsize=1024)
def names_assigned_in(code: CodeType) -> dict[str, list[ast.expr]]:
    """What the statements of a code object assign to each name: ``x = value``."""
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    found: dict[str, list[ast.expr]] = {}
    for node in (_parsed(code.co_filename) or {}).values():
        if isinstance(node, ast.Assign) and code.co_firstlineno <= node.lineno <= last:
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for each, value in zip(target.elts, node.value.elts, strict=False):
                        if isinstance(each, ast.Name):
                            found.setdefault(each.id, []).append(value)
    return found


@lru_cache(maxsize=256)
def _parsed(filename: str) -> dict[_Position, ast.AST] | None:
    """Every node of a source file by its position, the outermost of equal ones; each knows its ``parent``."""
    source = "".join(linecache.getlines(filename))
    if not source:
        return None
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    nodes: dict[_Position, ast.AST] = {}
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
        if isinstance(node, ast.stmt | ast.expr):
            last, stop = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
            nodes.setdefault((node.lineno, last, node.col_offset, stop), node)
    return nodes
