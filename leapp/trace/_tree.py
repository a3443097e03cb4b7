"""Nestings of dicts, lists, tuples and dataclasses of tensors as flat, named ports."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from leapp.errors import InvalidNameError, NotATensorError, PortCollisionError


class Leaf(NamedTuple):
    """One tensor of a nesting: its port name, the path as the user wrote it, and the tensor."""

    port: str
    path: str
    tensor: Any
    """A torch tensor, or an array or scalar of NumPy."""


def flatten(node: str, direction: str, tensors: Any, is_tensor: Callable[[Any], bool]) -> list[Leaf]:
    """Name every tensor in a nesting, in order; nested keys are joined with ``_``.

    ``tensors`` maps port names to tensors or nestings of them. Raises NotATensorError, InvalidNameError for a name that
    no file can have, and PortCollisionError when two paths give one name.
    """
    if not isinstance(tensors, Mapping):
        raise NotATensorError(node=node, direction=direction, port="?", kind=_kind(tensors))
    leaves: dict[str, Leaf] = {}
    for name, thing in tensors.items():
        for leaf in _walk(node, direction, str(name), f"[{name!r}]", thing, is_tensor):
            check_name(f"{direction} port", leaf.port)
            other = leaves.get(leaf.port)
            if other is not None:
                raise PortCollisionError(
                    node=node, first=other.path, second=leaf.path, direction=direction, port=leaf.port
                )
            leaves[leaf.port] = leaf
    return list(leaves.values())


def _walk(
    node: str, direction: str, name: str, path: str, thing: Any, is_tensor: Callable[[Any], bool]
) -> Iterator[Leaf]:
    if is_tensor(thing):
        yield Leaf(name, path, thing)
        return
    items: Iterator[tuple[Any, str, Any]]
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
    if made:
        tensors = replaced(tensors, made)
    if isinstance(tensors, Mapping):
        values = tuple(tensors.values())
        return values[0] if len(values) == 1 else values
    return tensors
