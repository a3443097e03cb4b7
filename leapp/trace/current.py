"""The process-wide session, found without importing torch: an annotation outside a session costs one look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leapp.errors import NoSessionError

if TYPE_CHECKING:
    from leapp.trace.session import Session

_CURRENT: list[Session] = []
"""At most one; callbacks in other threads must find it too."""


def current() -> Session | None:
    """The open session of this process."""
    return _CURRENT[0] if _CURRENT else None


def begin(session: Session) -> None:
    """Make a session the current one."""
    _CURRENT[:] = [session]


def end(call: str) -> Session:
    """Stop the current session and give it back. Raises NoSessionError when there is none."""
    if not _CURRENT:
        raise NoSessionError(call=call)
    session = _CURRENT.pop()
    session.stop()
    return session
