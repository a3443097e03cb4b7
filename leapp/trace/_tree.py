"""Nestings of dicts, lists, tuples and dataclasses of tensors as flat, named ports."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leapp.errors import InvalidNameError, NotATensorError, PortCollisionError, SemanticsError, SemanticsFormError
from leapp.semantics import TensorSemantics

if TYPE_CHECKING:
    from leapp._spec import JSON


class Leaf(NamedTuple):
    """One tensor of a nesting: its port name, the path as the user wrote it, and the tensor."""

    port: str
    path: str
    tensor: Any
    """A torch tensor, or an array or scalar of NumPy."""
    semantics: Mapping[str, JSON] = {}
    """What the port means, as the runtime file says it."""


def flatten(node: str, direction: str, tensors: Any, is_tensor: Callable[[Any], bool]) -> list[Leaf]:
    """Name every tensor in a nesting, in order; nested keys are joined with ``_``.

    ``tensors`` maps port names to tensors or nestings of them, or is a TensorSemantics or a list of them. Raises
    NotATensorError, InvalidNameError for a name that no file can have, PortCollisionError when two paths give one name,
    SemanticsFormError for a TensorSemantics anywhere else, and SemanticsError or ElementNamesError for facts that do
    not fit their tensor.
    """
    leaves = list(_each(node, direction, tensors, is_tensor))
    for leaf in leaves:
        check_name(f"{direction} port", leaf.port)
    check_distinct(node, direction, leaves)
    return leaves


def check_distinct(node: str, direction: str, leaves: Iterable[Leaf]) -> None:
    """Raise PortCollisionError when two paths give one port name."""
    known: dict[str, Leaf] = {}
    for leaf in leaves:
        other = known.setdefault(leaf.port, leaf)
        if other is not leaf:
            raise PortCollisionError(node=node, first=other.path, second=leaf.path, direction=direction, port=leaf.port)


def _described(node: str, direction: str, tensors: Any) -> Sequence[TensorSemantics] | None:
    """The TensorSemantics that were given in place of a dict; None where there are none."""
    if isinstance(tensors, TensorSemantics):
        return (tensors,)
    if not isinstance(tensors, list | tuple) or not any(isinstance(each, TensorSemantics) for each in tensors):
        return None
    for index, each in enumerate(tensors):
        if not isinstance(each, TensorSemantics):
            why = f"item {index} of the {direction}s is a {_kind(each)} among TensorSemantics"
            raise SemanticsFormError(node=node, direction=direction, why=why)
    return tensors


def _each(node: str, direction: str, tensors: Any, is_tensor: Callable[[Any], bool]) -> Iterator[Leaf]:
    if isinstance(tensors, Mapping):
        for name, thing in tensors.items():
            yield from _walk(node, direction, str(name), f"[{name!r}]", thing, is_tensor)
        return
    every = _described(node, direction, tensors)
    if every is None:
        raise NotATensorError(node=node, direction=direction, port="?", kind=_kind(tensors))
    for index, described in enumerate(every):
        path = f"TensorSemantics {index} ({described.name!r})"
        leaves = list(_walk(node, direction, described.name, path, described.ref, is_tensor))
        if len(leaves) != 1 and described.says_something:
            names = ", ".join(repr(leaf.port) for leaf in leaves[:4])
            raise SemanticsError(
                where=f"Node {node!r}: {direction} {described.name!r}",
                why=f"its facts are about one tensor, and ref is a {_kind(described.ref)} of {len(leaves)}",
                advice=f"Give each tensor a TensorSemantics of its own, {names}, ...; or none, and say the facts in "
                "the manifest, under the names of these ports.",
            )
        for leaf in leaves:
            where = f"Port {f'{node}/{leaf.port}'!r}"
            yield leaf._replace(semantics=described.facts(where, tuple(int(size) for size in leaf.tensor.shape)))


def _walk(
    node: str, direction: str, name: str, path: str, thing: Any, is_tensor: Callable[[Any], bool]
) -> Iterator[Leaf]:
    if is_tensor(thing):
        yield Leaf(name, path, thing)
        return
    items: Iterator[tuple[Any, str, Any]]
    if isinstance(thing, TensorSemantics):
        why = f"{direction} {name!r} is a TensorSemantics inside a dict or nesting"
        raise SemanticsFormError(node=node, direction=direction, why=why)
    if isinstance(thing, Mapping):
        items = ((key, f"{path}[{key!r}]", item) for key, item in thing.items())
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        items = ((key, f"{path}.{key}", item) for key, item in zip(thing._fields, thing, strict=True))
    elif isinstance(thing, (list, tuple)):
        items = ((index, f"{path}[{index}]", item) for index, item in enumerate(thing))
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        items = (
            (field.name, f"{path}.{field.name}", getattr(thing, field.name)) for field in dataclasses.fields(thing)
        )
    else:
        raise NotATensorError(node=node, direction=direction, port=name, kind=_kind(thing))
    for key, where, item in items:
        yield from _walk(node, direction, f"{name}_{key}", where, item, is_tensor)


def _kind(thing: Any) -> str:
    kind = type(thing)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


_FORBIDDEN = {"/": "it holds '/'", "\\": "it holds a backslash", "\0": "it holds NUL", "\n": "it holds a line break"}


def check_name(kind: str, name: str) -> None:
    """Raise InvalidNameError when a node or port name cannot stand in a bundle."""
    why = next((reason for sign, reason in _FORBIDDEN.items() if sign in name), "")
    if not name:
        why = "it is empty"
    elif name in (".", ".."):
        why = "it names a folder"
    if why:
        raise InvalidNameError(kind=kind.capitalize(), name=name, why=why)


def replaced(thing: Any, made: Mapping[int, Any]) -> Any:
    """A nesting with the things in it replaced by id; containers that hold none of them stay the same objects."""
    found = made.get(id(thing))
    if found is not None:
        return found
    if isinstance(thing, Mapping):
        items = {key: replaced(item, made) for key, item in thing.items()}
        if all(items[key] is thing[key] for key in items):
            return thing
        other = copy.copy(thing)
        for key, item in items.items():
            other[key] = item  # type: ignore[index]
        return other
    if isinstance(thing, (list, tuple)):
        parts = [replaced(item, made) for item in thing]
        if all(new is old for new, old in zip(parts, thing, strict=True)):
            return thing
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing)}
        others = {name: replaced(item, made) for name, item in fields.items()}
        if all(others[name] is fields[name] for name in fields):
            return thing
        twin: Any = copy.copy(thing)
        for name, item in others.items():
            object.__setattr__(twin, name, item)
        return twin
    return thing


def handed_back(tensors: Any, made: Mapping[int, Any] | None = None) -> Any:
    """What an annotation returns: the one value, or a tuple of the values in order, in the user's own nesting.

    ``made`` has what stands for a value, by its id.
    """
    values: Iterable[Any]
    if isinstance(tensors, Mapping):
        values = tensors.values()
    elif isinstance(tensors, TensorSemantics):
        values = (tensors.ref,)
    elif isinstance(tensors, list | tuple) and any(isinstance(each, TensorSemantics) for each in tensors):
        values = (each.ref if isinstance(each, TensorSemantics) else each for each in tensors)
    else:
        return replaced(tensors, made) if made else tensors
    found = tuple(replaced(each, made) if made else each for each in values)
    return found[0] if len(found) == 1 else found
