"""What a session may reach: connections other than loopback and Unix sockets are refused where the manifest says so."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any, Final

from leapp.errors import NetworkRefusedError

_CONNECTING: Final = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_LOCAL_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", ""})


def refuse_connections() -> None:
    """From now on, and for good, this process makes no connection beyond its own machine.

    Seen are Python's own sockets, which is what downloads go through; a native library that opens sockets by itself
    is not seen.
    """

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event in _CONNECTING and len(args) > 1:
            address = args[1]
            if isinstance(address, tuple) and not is_local(str(address[0])):
                raise NetworkRefusedError(host=f"{address[0]}:{address[1]}")
        elif event == "socket.getaddrinfo" and args and not is_local(_text(args[0])):
            raise NetworkRefusedError(host=_text(args[0]))

    sys.addaudithook(watch)


def is_local(host: str) -> bool:
    """Whether a host name or address stays on this machine."""
    if host.lower() in _LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _text(host: str | bytes | None) -> str:
    if host is None:
        return ""
    return host.decode("utf-8", "replace") if isinstance(host, bytes) else host
