"""Three servers that keep everything three times, on loopback."""

import socket
from pathlib import Path

from gateway.engine.server_run import Place, ServerRun


def three_servers(folder: Path) -> list[ServerRun]:
    """Not started yet."""
    ports = _free_ports(3)
    servers: list[ServerRun] = []
    for number in range(3):
        (folder / str(number)).mkdir(exist_ok=True)
        server = ServerRun(folder / str(number), 2**36, Place(number, ports))
        if servers:
            server.token = servers[0].token
        servers.append(server)
    return servers


def _free_ports(number: int) -> tuple[int, ...]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = tuple(each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    return ports
