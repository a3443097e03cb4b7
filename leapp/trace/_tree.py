"""Nestings of dicts, lists, tuples and dataclasses of tensors as flat, named ports."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from leapp.errors import (
    InvalidNameError,
    NestingError,
    NotATensorError,
    PortCollisionError,
    SemanticsError,
    SemanticsFormError,
)
from leapp.semantics import TensorSemantics
from leapp.trace._lineage import plain_class

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


def flatten(
    node: str,
    direction: str,
    tensors: Any,
    is_tensor: Callable[[Any], bool],
    *,
    stays: Callable[[Any], bool] | None = None,
) -> list[Leaf]:
    """Name every tensor in a nesting, in order; nested keys are joined with ``_``.

    ``tensors`` maps port names to tensors or nestings of them, or is a TensorSemantics or a list of them. None inside a
    nesting has no port and stays what it is. So does what ``stays`` says, of things that are neither tensors nor
    nestings, wherever it stands.

    Raises NotATensorError, NestingError, InvalidNameError for a name that no file can have, PortCollisionError when two
    paths give one name, SemanticsFormError for a TensorSemantics anywhere else, and SemanticsError or ElementNamesError
    for facts that do not fit their tensor.
    """
    leaves = list(_each(_Walk(node, direction, is_tensor, stays), tensors))
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


def described_ports(node: str, direction: str, tensors: Any) -> Sequence[TensorSemantics] | None:
    """The TensorSemantics that were given in place of a dict; None where there are none."""
    if isinstance(tensors, TensorSemantics):
        return (tensors,)
    if not isinstance(tensors, list | tuple) or not any(isinstance(each, TensorSemantics) for each in tensors):
        return None
    for index, each in enumerate(tensors):
        if not isinstance(each, TensorSemantics):
            why = f"item {index} of the {direction}s is a {kind_of(each)} among TensorSemantics"
            raise SemanticsFormError(node=node, direction=direction, why=why)
    return tensors


def _each(walk: _Walk, tensors: Any) -> Iterator[Leaf]:
    node, direction = walk.node, walk.direction
    if isinstance(tensors, Mapping):
        for name, thing in tensors.items():
            yield from walk.port(str(name), f"[{name!r}]", thing)
        return
    every = described_ports(node, direction, tensors)
    if every is None and isinstance(tensors, list | tuple) and tensors:
        why = f"the {direction}s are a {kind_of(tensors)} of a {kind_of(tensors[0])}, and nothing names them"
        raise SemanticsFormError(node=node, direction=direction, why=why)
    if every is None:
        why = f"the {direction}s are a {kind_of(tensors)}, and nothing names them"
        raise SemanticsFormError(node=node, direction=direction, why=why)
    for index, described in enumerate(every):
        path = f"TensorSemantics {index} ({described.name!r})"
        leaves = list(walk.port(described.name, path, described.ref))
        if len(leaves) != 1 and described.says_something:
            names = ", ".join(repr(leaf.port) for leaf in leaves[:4])
            raise SemanticsError(
                where=f"Node {node!r}: {direction} {described.name!r}",
                why=f"its facts are about one tensor, and ref is a {kind_of(described.ref)} of {len(leaves)}",
                advice=f"Give each tensor a TensorSemantics of its own, {names}, ...; or none, and say the facts in "
                "the manifest, under the names of these ports.",
            )
        for leaf in leaves:
            yield leaf._replace(semantics=facts_of(node, described, leaf))


def facts_of(node: str, described: TensorSemantics, leaf: Leaf) -> dict[str, JSON]:
    """What is said of a port, checked against its tensor. Raises SemanticsError or ElementNamesError."""
    return described.facts(f"Port {f'{node}/{leaf.port}'!r}", tuple(int(size) for size in leaf.tensor.shape))


class _Walk:
    """One way through nestings; knows what it is inside of."""

    def __init__(
        self, node: str, direction: str, is_tensor: Callable[[Any], bool], stays: Callable[[Any], bool] | None
    ) -> None:
        self.node = node
        self.direction = direction
        self.is_tensor = is_tensor
        self.stays = stays
        self.above: list[int] = []
        """ids of the nestings around."""

    def port(self, name: str, path: str, thing: Any) -> Iterator[Leaf]:
        if self.is_tensor(thing):
            yield Leaf(name, path, thing)
            return
        if isinstance(thing, TensorSemantics):
            why = f"{self.direction} {name!r} is a TensorSemantics inside a dict or nesting"
            raise SemanticsFormError(node=self.node, direction=self.direction, why=why)
        items = parts(thing)
        if items is None:
            if (thing is None and self.above) or (self.stays is not None and self.stays(thing)):
                return
            raise NotATensorError(node=self.node, direction=self.direction, port=name, kind=kind_of(thing))
        if id(thing) in self.above:
            if self.stays is not None:
                return
            raise self._refused(name, thing, "it holds itself")
        self.above.append(id(thing))
        for key, step, item in items:
            if self.is_tensor(item) and isinstance(thing, Mapping) and thing[key] is not item:
                raise self._refused(name, thing, "it gives another object each time one of its values is asked for")
            yield from self.port(f"{name}_{key}", f"{path}{step}", item)
        self.above.pop()

    def _refused(self, name: str, thing: Any, why: str) -> NestingError:
        return NestingError(where=f"{self.direction} {name!r} of node {self.node!r}", kind=kind_of(thing), why=why)


def parts(thing: Any) -> Iterator[tuple[Any, str, Any]] | None:
    """What a nesting holds: key, how the user writes the step to it, and the thing there; None for what is no nesting.

    Fields of a dataclass that were never set are left out.
    """
    if isinstance(thing, Mapping):
        return ((key, f"[{key!r}]", item) for key, item in thing.items())
    if isinstance(thing, tuple) and hasattr(thing, "_fields"):
        return ((key, f".{key}", item) for key, item in zip(thing._fields, thing, strict=True))
    if isinstance(thing, (list, tuple)):
        return ((index, f"[{index}]", item) for index, item in enumerate(thing))
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type) and not _is_module(thing):
        return ((name, f".{name}", item) for name, item in _fields(thing).items())
    return None


def _fields(thing: Any) -> dict[str, Any]:
    return {each.name: getattr(thing, each.name) for each in dataclasses.fields(thing) if hasattr(thing, each.name)}


def _is_module(thing: Any) -> bool:
    """Whether it is a module of torch's, which may be a dataclass too: its tensors are weights."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.nn.Module)


def kind_of(thing: Any) -> str:
    """A thing's class as messages show it; a traced one under the name of what it stands in for."""
    kind = plain_class(type(thing)) or type(thing)
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
    """A nesting with the things in it replaced by id; containers that hold none of them stay the same objects.

    Raises NestingError for a mapping that can be neither copied nor built anew.
    """
    return Twins(made).of(thing) if made else thing


class Twins:
    """Copies of containers that hold other things than the containers themselves do: what ``made`` has by their ids."""

    def __init__(self, made: Mapping[int, Any]) -> None:
        self._made = made
        self._known: dict[int, tuple[Any, Any, dict[int, Any]]] = {}
        """id of a container -> it, its copy, and what things in the copy stand for, by id."""
        self._above: list[int] = []

    def of(self, thing: Any) -> Any:
        """What stands for a thing; itself where nothing in it is replaced. Raises NestingError, as ``replaced``."""
        found = self._made.get(id(thing))
        if found is not None:
            return found
        if id(thing) in self._known:
            return self._known[id(thing)][1]
        items = None if id(thing) in self._above else parts(thing)
        if items is None:
            return thing
        self._above.append(id(thing))
        before = {key: item for key, _, item in items}
        after = {key: self.of(item) for key, item in before.items()}
        self._above.pop()
        if all(after[key] is item for key, item in before.items()):
            return thing
        twin = _twin(thing, before, after)
        self._known[id(thing)] = thing, twin, {id(after[key]): item for key, item in before.items()}
        return twin

    def write_back(self) -> None:
        """Do to the containers what was done to their copies since: things added, exchanged and taken out."""
        for thing, twin, meant in self._known.values():
            now = {key: meant.get(id(item), item) for key, _, item in parts(twin) or ()}
            if isinstance(thing, MutableMapping):
                for key in [key for key in thing if key not in now]:
                    del thing[key]
                for key, item in now.items():
                    if key not in thing or thing[key] is not item:
                        thing[key] = item
            elif isinstance(thing, list):
                items = list(now.values())
                if len(items) != len(thing) or any(a is not b for a, b in zip(items, thing, strict=True)):
                    thing[:] = items
            elif dataclasses.is_dataclass(thing):
                others = {name: meant.get(id(item), item) for name, item in getattr(twin, "__dict__", {}).items()}
                for name, item in {**now, **others}.items():
                    if getattr(thing, name, thing) is not item:
                        object.__setattr__(thing, name, item)


def _twin(thing: Any, before: Mapping[Any, Any], after: dict[Any, Any]) -> Any:
    """A container of the same class with other things in it."""
    changed = {key: item for key, item in after.items() if item is not before[key]}
    if isinstance(thing, Mapping):
        return _mapping(thing, after, changed)
    if isinstance(thing, tuple):
        values = tuple(after.values())
        # Classes of named tuples may have a constructor of their own.
        return thing._make(values) if hasattr(thing, "_make") else type(thing)(values)
    twin: Any = copy.copy(thing)
    for key, item in changed.items():
        if isinstance(thing, list):
            twin[key] = item
        else:
            object.__setattr__(twin, key, item)  # a dataclass, which may be frozen
    return twin


def _mapping(thing: Mapping[Any, Any], after: dict[Any, Any], changed: dict[Any, Any]) -> Any:
    """A mapping of the same class with other values."""
    kind: Any = type(thing)
    try:
        twin: Any = copy.copy(thing)
        if twin is not thing:
            for key, item in changed.items():
                twin[key] = item
            return twin
    except Exception:  # noqa: BLE001, S110 - any class may refuse in its own way; it may still be built from a dict
        pass
    try:
        return kind(after)
    except Exception as error:
        why = f"it can be neither copied nor made of a dict ({error})"
        raise NestingError(where="A value with arrays in it", kind=kind_of(thing), why=why) from error


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
