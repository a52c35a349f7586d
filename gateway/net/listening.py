"""Listening on a TCP address, alone or with other processes of this machine that listen there too.

Processes share a port by `SO_REUSEPORT`: the kernel gives each of them its part of new connections. Those that a
process had not accepted when it ends are lost; their clients dial again.
"""

import socket
from contextlib import suppress

import trio


async def open_listeners(host: str, port: int, backlog: int, *, shares: bool) -> list[trio.SocketListener]:
    """Raises OSError."""
    if not shares:
        return await trio.open_tcp_listeners(port, host=host, backlog=backlog)
    sockets = await shared_sockets(host, port)
    try:
        for sock in sockets:
            sock.listen(backlog)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets]
    except OSError:
        for sock in sockets:
            sock.close()
        raise


async def shared_sockets(host: str, port: int) -> list[socket.socket]:
    """Bound, and not listening: so the kernel gives them no connection. Port 0 is one port for all. Raises OSError."""
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    trouble: OSError | None = None
    for family, kind, protocol, _, place in found:
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:  # the machine has no IPv6, say
            trouble = error
            continue
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((place[0], sockets[0].getsockname()[1] if sockets and port == 0 else place[1], *place[2:]))
        except OSError:
            for each in [sock, *sockets]:
                with suppress(OSError):
                    each.close()
            raise
        sockets.append(sock)
    if not sockets:
        raise trouble or OSError("there is no such address")
    return sockets
