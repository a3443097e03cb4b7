"""Refused connections leave everything that stays on the machine alone."""

import subprocess
import sys
import textwrap

SCRIPT = """
import asyncio, multiprocessing, socket, sys, threading
from leapp.build.observe import refuse_connections
from leapp.errors import NetworkRefusedError

refuse_connections()

left, right = socket.socketpair()
left.send(b"pair")
assert right.recv(4) == b"pair"


async def echo():
    async def serve(reader, writer):
        writer.write(await reader.read(4))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(b"loop")
    assert await reader.read(4) == b"loop"
    writer.close()
    server.close()


asyncio.run(echo())

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
    for attempt in (
        lambda: socket.create_connection(("192.0.2.1", 80), timeout=1),
        lambda: socket.getaddrinfo("example.invalid", 80),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9)),
    ):
        try:
            attempt()
        except NetworkRefusedError:
            continue
        sys.exit("a connection was not refused")
"""


def test_local_communication_works_and_the_rest_is_refused(tmp_path):
    script = tmp_path / "local.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
