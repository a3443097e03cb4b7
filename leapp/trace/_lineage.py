"""Which graph value stands for which Python object.

A traced object carries one ``Value`` in the attribute ``ATTRIBUTE``. Tensor and array wrappers fill the registry of
wrapper types, so that the stages that only ask "is this traced?" need to know neither.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leapp.errors import WrongThreadError
from leapp.trace.source import caller

if TYPE_CHECKING:
    import torch
    from torch import fx

    from leapp.trace.recording import Recording

ATTRIBUTE: Final = "_leapp"


class PortId(NamedTuple):
    """A port of a node; as text ``node/port``, the key of every wire."""

    node: str
    port: str

    def __str__(self) -> str:
        return f"{self.node}/{self.port}"


class Value:
    """What the recorder knows of one traced object.

    ``recording`` and ``fx`` say where it was computed last; ``memory`` names the memory it sees, equal for values
    that alias each other; ``storage`` is the address of its storage object, valid while the object lives. ``origin``
    is the output port it left a node by, kept when the object enters another node. ``buffer`` marks a plain tensor of
    the user's that became traced because a recorded call wrote it; ``dynamic`` a value whose shape follows the data.
    ``stale_since`` is the number of recorded operations at which a copy was taken that stands in the graph for a view;
    None for all others. ``given`` is a copy of what the node gave at ``origin``, where that was kept.
    """

    __slots__ = ("buffer", "dynamic", "fx", "given", "memory", "origin", "recording", "stale_since", "storage")

    def __init__(
        self, recording: Recording | None, fx: fx.Node | None, memory: int, storage: int, origin: PortId | None = None
    ) -> None:
        self.recording = recording
        self.fx = fx
        self.memory = memory
        self.storage = storage
        self.origin = origin
        self.buffer = False
        self.dynamic = False
        self.stale_since: int | None = None
        self.given: torch.Tensor | None = None

    def copied(self) -> Value:
        """What stands for a copy of an output that was made outside every node."""
        new = Value(self.recording, self.fx, 0, 0, self.origin)
        new.given = self.given
        return new


WRAPPERS: dict[type, type] = {}
"""Traced class -> the class an object gets back when its session ends."""


_UNWRAP: dict[type, Callable[[Any], Any]] = {}
"""Traced class of NumPy's -> what gives an object of it as NumPy made it."""


def listed(thing: Any) -> Any:
    """Named tuples, deques and other lists and tuples as plain ones, at any depth: NumPy takes them as such."""
    kind = type(thing)
    if kind is list:
        return [listed(each) for each in thing] if any(map(_holds, thing)) else thing
    if kind is tuple:
        return tuple([listed(each) for each in thing]) if any(map(_holds, thing)) else thing
    if isinstance(thing, tuple):
        return tuple([listed(each) for each in thing])
    return [listed(each) for each in thing] if isinstance(thing, (list, deque)) else thing


def _holds(thing: Any) -> bool:
    return isinstance(thing, (list, tuple, deque))


def register_wrapper(traced: type, plain: type, unwrap: Callable[[Any], Any] | None = None) -> None:
    """Announce a traced class, the class it stands in for, and what turns an object of it into one of that."""
    WRAPPERS[traced] = plain
    if unwrap is not None:
        _UNWRAP[traced] = unwrap


def plain(thing: Any) -> Any:
    """An argument as NumPy would have got it without us, at any depth; tensors as they are."""
    kind = type(thing)
    unwrap = _UNWRAP.get(kind)
    if unwrap is not None:
        return unwrap(thing)
    if kind is list:
        return [plain(each) for each in thing]
    if kind is tuple:
        return tuple([plain(each) for each in thing])
    if kind is dict:
        return {key: plain(each) for key, each in thing.items()}
    if kind is slice:
        return slice(plain(thing.start), plain(thing.stop), plain(thing.step))
    return thing


def recording_of(value: Value | None, op: str = "") -> Recording | None:
    """The open recording that must hear of a use of a value; None where it is a plain value to everybody.

    ``op`` is what reads it, if something does: a value of a closed node may be shown anywhere. Raises
    ForeignValueError inside another node, WrongThreadError in another thread.
    """
    recording = value.recording if value is not None else None
    if recording is None or value is None:
        return None
    session = recording.session
    if not recording.open:
        user = session.open_in_this_thread() if session.active and op not in _DISPLAY else None
        if user is None:
            return None
        if value.buffer and user.name == recording.name:
            return user  # a buffer that an earlier entry of the same node wrote is plain memory again
        raise user.foreign(value, caller())
    if recording.thread != session.thread():
        # A thread's error is printed and gone: the node raises it again when it closes.
        recording.broken = WrongThreadError(
            node=recording.name, thread=session.thread_name(), owner=recording.thread_name,
            where=recording.where(caller()),
        )  # fmt: skip
        raise recording.broken
    return recording


_DISPLAY: Final = frozenset(("__repr__", "__str__", "__format__"))


ArrayMaker = Callable[[Any, "Value | None"], Any]
_array_makers: list[ArrayMaker] = []


def register_array_maker(maker: ArrayMaker) -> None:
    """Announce what puts an array of NumPy's under its traced class."""
    _array_makers[:] = [maker]


def traced_array(array: Any, value: Value) -> Any:
    """An array of NumPy's under its traced class, with its lineage."""
    return _array_makers[0](array, value)


def plain_class(traced: type) -> type | None:
    """The class that ``traced`` stands in for; None when it is no traced class."""
    return WRAPPERS.get(traced)


def value_of(thing: Any) -> Value | None:
    """The lineage of a traced object; None for anything else."""
    if type(thing) in WRAPPERS:
        value: Value | None = getattr(thing, ATTRIBUTE, None)
        return value
    return None
