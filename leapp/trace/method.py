"""``annotate.method``: a function as a node, its parameters as inputs, what it returns as outputs.

Names come from the signature and from the source of the ``return`` statements. Nothing here needs torch.
"""

from __future__ import annotations

import ast
import functools
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from leapp.errors import MethodKindError, NotATensorError
from leapp.trace._syntax import function_of
from leapp.trace._tree import Twins, flatten, kind_of, parts, replaced
from leapp.trace.current import current
from leapp.trace.source import Place

if TYPE_CHECKING:
    from leapp.trace.session import Session

P = ParamSpec("P")
R = TypeVar("R")

_running: ContextVar[tuple[tuple[int, str], ...]] = ContextVar("leapp_running_methods", default=())
"""Session and node of the annotated functions that are running in this thread: what they call again is part of them."""

_RECEIVERS: Final = ("self", "cls")


def method(function: Any, node_name: str | None, export_with: Any, backend_params: Mapping[str, Any] | None) -> Any:
    """``function`` as a node; a static or class method stays one.

    Raises MethodKindError for what is neither, or does not compute when it is called.
    """
    if isinstance(function, (staticmethod, classmethod)):
        inner: Any = method(function.__func__, node_name, export_with, backend_params)
        return type(function)(inner)
    _check(function, node_name)
    return _decorated(function, _Method(function, node_name or function.__name__, export_with, backend_params))


def _decorated(function: Callable[P, R], node: _Method) -> Callable[P, R]:
    @functools.wraps(function)
    def annotated(*args: P.args, **kwargs: P.kwargs) -> R:
        session = current()
        if session is None:
            return function(*args, **kwargs)
        result: R = node.call(session, args, kwargs)
        return result

    return annotated


def _check(function: Any, node_name: str | None) -> None:
    name = getattr(function, "__qualname__", None) or kind_of(function)
    advice = "Decorate a function or method that computes when it is called and returns tensors"
    why = None
    inner = _innermost(function) if callable(function) else function
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        why = "it is asynchronous: other code may run while its node is open"
        advice = "Decorate the plain function that it awaits for its numbers, or the one that computes them"
    elif inspect.isgeneratorfunction(inner):
        why = "it is a generator: other code runs while its node is open"
    elif isinstance(function, type):
        why = "it is a class"
    elif not (inspect.isroutine(function) or isinstance(function, functools.partial)):
        why = f"it is a {kind_of(function)}"
        advice = "Decorate its method, as in annotate.method(name)(model.forward)"
    elif node_name is None and getattr(function, "__name__", "<lambda>") == "<lambda>":
        why = "it has no name that a node could bear"
        advice = 'Give the node a name: annotate.method("name")'
    elif not hasattr(_innermost(function), "__code__"):
        why = "it is compiled, so it has no signature of ours to read"
        advice = "Wrap it in a function of your own"
    if why is not None:
        raise MethodKindError(name=name, why=why, advice=advice)


def _innermost(function: Any) -> Any:
    """What is below other decorators, ``functools.partial`` and a bound object."""
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    return inspect.unwrap(getattr(inner, "__func__", inner))


@dataclass(frozen=True)
class _Method:
    """What is known of a decorated function, and one call of it as a node."""

    function: Callable[..., Any]
    node: str
    export_with: Any
    backend_params: Mapping[str, Any] | None

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @functools.cached_property
    def inner(self) -> Any:
        """The function as written, below other decorators."""
        return _innermost(self.function)

    @functools.cached_property
    def place(self) -> Place:
        """Its first line: the node's origin, wherever it is called."""
        code = self.inner.__code__
        return Place(code, code.co_firstlineno, self.inner.__module__ or "")

    @functools.cached_property
    def returns(self) -> Returns:
        return Returns.of(self.inner)

    def call(self, session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function as an entry of its node; one that it calls again inside is part of that entry."""
        key = id(session), self.node
        running = _running.get()
        if key in running:
            return self.function(*args, **kwargs)
        try:
            given = list(self._given(args, kwargs))
        except TypeError:  # it cannot be called so, and says it best itself
            return self.function(*args, **kwargs)
        from leapp._api import parse_export
        from leapp.trace.session import is_port

        words = parse_export(self.node, self.export_with, self.backend_params)
        leaves = flatten(self.node, "input", _Pairs(given), is_port, stays=lambda _: True)
        inputs = {leaf.port: leaf.tensor for leaf in leaves}
        made = session.input_tensors(self.node, inputs, place=self.place, traced=words.brought is None)
        token = _running.set((*running, key))
        try:
            result = self._run(args, kwargs, made) if made else self.function(*args, **kwargs)
            outputs = self._outputs(result)
            made = session.output_tensors(self.node, outputs, None, *words, place=self.place)
        except BaseException:
            session.abandon(self.node)
            raise
        finally:
            _running.reset(token)
        return replaced(result, made)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """The arguments that were passed, under the names that the signature gives them; the receiver is none."""
        bound = self.signature.bind(*args, **kwargs).arguments
        parameters = self.signature.parameters
        for index, (name, value) in enumerate(bound.items()):
            kind = parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                yield from value.items()
            elif kind is inspect.Parameter.VAR_POSITIONAL:
                skipped = index == 0 and bool(value) and self._is_receiver(value[0])
                yield name, value[1:] if skipped else value
            elif index or not args or not self._is_receiver(args[0]):
                yield name, value

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], made: Mapping[int, Any]) -> Any:
        """Run the function on traced arrays; what it does to a dict, list or dataclass of the caller's is done to it.

        It is handed copies of those that hold arrays.
        """
        twins = Twins(made)
        first = 1 if args and self._is_receiver(args[0]) else 0
        args = (*args[:first], *(twins.of(each) for each in args[first:]))
        kwargs = {name: twins.of(each) for name, each in kwargs.items()}
        try:
            return self.function(*args, **kwargs)
        finally:
            twins.write_back()

    def _outputs(self, result: Any) -> dict[str, Any]:
        from leapp.trace.session import is_port

        leaves = flatten(self.node, "output", self.returns.named(result), is_port, stays=_is_no_number)
        if not leaves:
            raise NotATensorError(node=self.node, direction="output", port="out0", kind=kind_of(result))
        return {leaf.port: leaf.tensor for leaf in leaves}

    def _is_receiver(self, first: Any) -> bool:
        """Whether the first argument is the object, or the class, that the method belongs to."""
        function = self.inner
        if inspect.ismethod(inspect.unwrap(self.function)):
            return False  # it is bound: its object is not among the arguments
        owner = function.__qualname__.rpartition(".")[0]
        for each in (first if isinstance(first, type) else type(first)).__mro__:
            if owner and each.__qualname__ == owner and each.__module__ == function.__module__:
                return not isinstance(vars(each).get(function.__name__), staticmethod)
        from leapp.trace.session import is_port

        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        # A function that was put on a class later; a tensor may be called `cls` too.
        named = bool(names) and names[0] in _RECEIVERS and names[0] in self.signature.parameters
        return named and not is_port(first)


class _Pairs(Mapping[str, Any]):
    """Names and values in order, one name perhaps twice.

    ``f(x, /, **others)`` may be given another ``x``, and a result may have the keys 1 and "1".
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs

    def __getitem__(self, key: str) -> Any:
        return dict(self.pairs)[key]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def items(self) -> Any:
        """All pairs."""
        return self.pairs


@dataclass(frozen=True)
class Returns:
    """The ``return`` statements of a function; None where its source is not known."""

    values: tuple[ast.expr, ...] | None

    @classmethod
    def of(cls, function: Any) -> Returns:
        """Read from the source of a function as written."""
        found = function_of(function.__code__) if isinstance(function, FunctionType) else None
        if found is None:
            return cls(None)
        if isinstance(found, ast.Lambda):
            return cls((found.body,))
        return cls(tuple(_returned(found.body)))

    def named(self, result: Any) -> Mapping[str, Any]:
        """The outputs in a result by name.

        A dict, named tuple or dataclass names them itself. Else they are named as the statements return them, where
        all statements that can have given such a result agree, and ``out0``, ``out1``, ... otherwise.
        """
        items = parts(result)
        if items is None:
            return {self._single() or "out0": result}
        if not _numbered(result):
            return _Pairs([(str(key), each) for key, _, each in items])
        name = self._single()
        if name is not None:
            return {name: result}
        names = self._names(len(result)) or [f"out{index}" for index in range(len(result))]
        return dict(zip(names, result, strict=True))

    def _single(self) -> str | None:
        """The one name that is returned wherever it is no display and no plain constant."""
        others = [each for each in self.values or () if not isinstance(each, (ast.Constant, *_DISPLAYS))]
        names = {each.id if isinstance(each, ast.Name) else None for each in others}
        return names.pop() if len(names) == 1 else None

    def _names(self, count: int) -> list[str] | None:
        """The names in all displays of that length, where nothing else can have given them."""
        found: list[list[str]] = []
        for each in self.values or ():
            if isinstance(each, (ast.Tuple, ast.List)):
                if any(isinstance(item, ast.Starred) for item in each.elts):
                    return None
                if len(each.elts) != count:
                    continue
                names = [item.id for item in each.elts if isinstance(item, ast.Name)]
                if len(names) != count or len(set(names)) != count:
                    return None
                found.append(names)
            elif not isinstance(each, (ast.Constant, ast.Dict)):
                return None
        return found[0] if found and all(each == found[0] for each in found) else None


_DISPLAYS: Final = (ast.Tuple, ast.List, ast.Dict)


def _is_no_number(thing: Any) -> bool:
    """Whether a result that is no tensor may stay beside the outputs; a number would be missing in the export."""
    return not isinstance(thing, numbers.Number)


def _numbered(result: Any) -> bool:
    """Whether a nesting has places instead of names."""
    return isinstance(result, (list, tuple)) and not hasattr(result, "_fields")


def _returned(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """What a function returns, in order; functions and classes defined inside it return for themselves."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        each = pending.pop()
        if isinstance(each, ast.Return) and each.value is not None:
            yield each.value
        elif not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            pending.extend(reversed(list(ast.iter_child_nodes(each))))


__all__ = ["Returns", "method"]
