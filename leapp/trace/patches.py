"""Functions that the user gave an equivalent for, replaced while a session is open."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from leapp.trace._lineage import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leapp._patch import FunctionPatch
    from leapp.trace.session import Session

_missing: Any = object()


class Patches:
    """What one session has replaced, and what stood there before."""

    def __init__(self, session: Session, patches: Iterable[FunctionPatch]) -> None:
        self._session = session
        self._patches = tuple(patches)
        self._before: list[tuple[Any, str, Any, Any]] = []
        """(owner, name, what stood there itself, what was put there)"""

    def put(self) -> None:
        """Replace the functions."""
        for patch in self._patches:
            owner, name = patch.owner(), patch.function_name
            there = vars(owner).get(name, _missing)
            made: Any = self._calling(getattr(owner, name), patch.replacement)
            if inspect.isclass(owner) and isinstance(there, (staticmethod, classmethod)):
                made = staticmethod(made)
            self._before.append((owner, name, there, made))
            setattr(owner, name, made)

    def take_out(self) -> None:
        """Put back what was there, the last one first; what somebody else put there meanwhile stays."""
        while self._before:
            owner, name, there, made = self._before.pop()
            if vars(owner).get(name) is not made:
                continue
            if there is _missing:
                delattr(owner, name)
            else:
                setattr(owner, name, there)

    def _calling(self, original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
        running: list[None] = []

        @functools.wraps(original, updated=())
        def called(*args: Any, **kwargs: Any) -> Any:
            if running or self._session.open_in_this_thread() is None or not _traced((*args, *kwargs.values())):
                return original(*args, **kwargs)
            running.append(None)
            try:
                return replacement(*args, **kwargs)
            finally:
                running.pop()

        return called


def _traced(things: Iterable[Any]) -> bool:
    """Whether one of the things is traced, at any depth."""
    for thing in things:
        if value_of(thing) is not None:
            return True
        if isinstance(thing, dict):
            if _traced(thing.values()):
                return True
        elif isinstance(thing, (list, tuple)) and _traced(thing):
            return True
    return False
