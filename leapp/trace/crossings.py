"""Entry points that no hook sees, wrapped while a session is open: scripted code and compiled callables.

The wrappers, and those of ``constructors`` and ``transforms``, are one per process, however many sessions there are.
They are taken out with the last of them.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from leapp.errors import UnrecordableOpError
from leapp.trace import constructors, entry_points, scripted, transforms
from leapp.trace.source import caller
from leapp.trace.tensor import open_recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from leapp.trace.recording import Recording
    from leapp.trace.session import Session

_SCRIPTED: tuple[Any, ...] = (torch._C.ScriptFunction, torch._C.ScriptMethod)
"""Everything scripted or traced is called through one of these: modules call their ``forward``, a method."""

_sessions: list[Session] = []
_originals: dict[Any, Any] = {}
_programs: dict[Any, scripted.Program] = {}


def begin(session: Session) -> None:
    """Wrap the entry points, unless another session did."""
    if not _sessions:
        constructors.put()
        transforms.put()
        _wrap_compile()
        for each in _SCRIPTED:
            _originals[each] = each.__call__
            each.__call__ = functools.wraps(each.__call__)(_calling(each.__call__))
    entry_points.begin(session)
    _sessions.append(session)


def end(session: Session) -> None:
    """Put the entry points back when the last session ends."""
    _sessions.remove(session)
    entry_points.end(session)
    if not _sessions:
        for each, original in _originals.items():
            each.__call__ = original
        _programs.clear()
        torch.compile = _compile
        _run_compiled()
        transforms.take_out()
        constructors.take_out()


# --- compiled code -------------------------------------------------------------------------------------------------

_compile: Any = torch.compile
_nodes_open = 0
_stance: list[Any] = []
"""What torch.compile was told before a node opened; empty while nothing was changed."""


def node_opened() -> bool:
    """Compiled callables run as the original while a node is open: a compiler would see our tensors, not the user's.

    False where a compiled callable is what opens the node: then it is too late, and nothing was changed.
    """
    global _nodes_open  # noqa: PLW0603 - as global as what it counts
    _nodes_open += 1
    try:
        _run_as_original()
    except RuntimeError:
        _nodes_open -= 1
        return False
    return True


def node_closed() -> None:
    """Compiled callables run as they did before."""
    global _nodes_open  # noqa: PLW0603 - as above
    _nodes_open -= 1
    if not _nodes_open:
        _run_compiled()


def _run_compiled() -> None:
    if _stance:
        sys.modules["torch._dynamo.eval_frame"]._set_stance(_stance.pop())


def _run_as_original() -> None:
    # Loaded by the first torch.compile of a process, and slow to load.
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    if frames is not None and _nodes_open and not _stance:
        _stance.append(frames._set_stance(frames.DynamoStance("force_eager")))


def _wrap_compile() -> None:
    global _compile  # noqa: PLW0603 - as above
    _compile = torch.compile
    torch.compile = functools.wraps(_compile)(_compiled)


def _compiled(*args: Any, **kwargs: Any) -> Any:
    """``torch.compile``, of which a node that is already open must hear."""
    result = _compile(*args, **kwargs)
    _run_as_original()
    return result


def _recording_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording | None:
    """The recording that must see a call: that of a traced argument, or the open one of this thread."""
    recording = open_recording(args, kwargs)
    if recording is not None:
        return recording
    return next((found for each in _sessions if (found := each.open_in_this_thread()) is not None), None)


def _calling(original: Any) -> Callable[..., Any]:
    """Scripted code runs outside Python, where no hook sees it: inside a node it is walked instead."""

    def called(callee: Any, *args: Any, **kwargs: Any) -> Any:
        recording = _recording_for(args, kwargs)
        if recording is None or torch._C._is_tracing():
            return original(callee, *args, **kwargs)
        if torch.is_autocast_enabled("cpu"):
            raise UnrecordableOpError(
                node=recording.name,
                op=f"the scripted function {callee.name!r} under autocast",
                where=recording.where(caller()),
                why="TorchScript casts by rules of its own",
                advice='Call it in `with torch.autocast("cpu", enabled=False)`, or call the code it was made from.',
            )
        try:
            return scripted.called(recording, _programs, callee, args, kwargs)
        except scripted.NoMatchError:
            # TorchScript refuses the same arguments, in its own words.
            with torch._C.DisableTorchFunctionSubclass():
                original(callee, *args, **kwargs)
            raise UnrecordableOpError(
                node=recording.name,
                op=f"the scripted function {callee.name!r}",
                where=recording.where(caller()),
                why="its arguments have no form that LEAPP knows",
                advice="Pass tensors, numbers, strings and plain containers of them.",
            ) from None

    return called
