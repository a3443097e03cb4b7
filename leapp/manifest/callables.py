"""Whether a Python file can have a callable, told from its text alone: nothing is imported, and nothing is guessed."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from leapp.manifest.problems import hint, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BEHIND_THE_TEXT: Final = frozenset(
    {"globals", "locals", "vars", "exec", "eval", "setattr", "__dict__", "__getattr__", "modules", "import_module"}
)
"""Where one of these stands in a file, it may have names that nobody can read there."""


def missing_callable(source: bytes, name: str) -> str:
    """Why a file has no callable of that name, as words that follow the file's; empty where it has, or may have.

    Certain is only what the text says: a file that does not parse, makes names as it runs, takes all names of another
    module, or binds nothing at all, may have any. The same goes for a class with bases or decorators.

    Args:
        source: of the file.
        name: dotted, as the entry of a manifest has it.
    """
    if "." not in name and re.search(rb"^(?:async +)?(?:def|class) +%b\b" % name.encode(), source, re.MULTILINE):
        return ""  # as nearly always: to parse a file takes a while
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""  # perhaps of another Python, which the manifest names
    if any(_is_behind_the_text(node) for node in ast.walk(tree)):
        return ""
    everywhere = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    body: Sequence[ast.stmt] = tree.body
    for part in name.split("."):
        bound = set(_bound(body)) | everywhere
        if part not in bound:
            return _said(body, part) if bound else ""
        found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == part]
        if len(found) != 1 or found[0].bases or found[0].keywords or found[0].decorator_list:
            return ""
        body = found[0].body
        # What is put into a class from outside it.
        everywhere = {
            node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        } | set(dir(type))
    return ""


def _said(body: Sequence[ast.stmt], part: str) -> str:
    named = (node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    names = sorted({node.name for node in named if not node.name.startswith("_")})
    there = f"Callables there: {', '.join(names) or 'none'}."
    return f"has no {part!r}.{hint(nearest(part, names), there)}"


def _is_behind_the_text(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name):
            return name in _BEHIND_THE_TEXT
        case ast.ImportFrom(names=names):
            return any(each.name == "*" for each in names)
    return False


def _bound(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that the statements of a module or class bind, under whatever condition; not those of functions in it."""
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
                inner = {id(each) for each in node.body}  # what stands around it may hold a `:=`
                pending += [each for each in ast.iter_child_nodes(node) if id(each) not in inner]
                continue
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name.partition(".")[0] for each in names)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
        pending += ast.iter_child_nodes(node)
