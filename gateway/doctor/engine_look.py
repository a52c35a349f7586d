"""Looking at the NATS servers that the settings name: what each says of itself to whoever connects. Nothing is sent.

A server greets with one line, `INFO {…}`, before any TLS and before it knows who asks; one that is set to begin with
TLS says nothing. Everything here blocks, all servers at once, for as long as one may take.
"""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from gateway.doctor.facts import EngineServer
from gateway.main.settings import Settings

ANSWER_S_MAX = 3.0  # to connect, and again to greet
GREETING_BYTES_MAX = 16 * 1024
PORT = 4222  # of NATS, where none is named


def look_at_engine(settings: Settings) -> tuple[EngineServer, ...]:
    servers = settings.engine.servers
    if not servers:
        return ()
    with ThreadPoolExecutor(len(servers)) as threads:
        return tuple(threads.map(_look, servers))


def _look(url: str) -> EngineServer:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORT
    except ValueError:  # which whoever looks whether a gateway could start tells of
        return EngineServer("")
    name = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), ANSWER_S_MAX) as connection:
            return EngineServer(name, answers=True, has_jetstream=_has_jetstream(connection))
    except (OSError, UnicodeError) as error:  # the second: no host has such a name
        return EngineServer(name, answers=False, why=str(getattr(error, "strerror", None) or error))


def _has_jetstream(connection: socket.socket) -> bool | None:
    connection.settimeout(ANSWER_S_MAX)
    said = b""
    try:
        while b"\n" not in said and len(said) < GREETING_BYTES_MAX:
            piece = connection.recv(GREETING_BYTES_MAX)
            if not piece:
                break
            said += piece
        word, _, rest = said.partition(b"\n")[0].partition(b" ")
        greeting = json.loads(rest) if word == b"INFO" else None
    except (OSError, ValueError, RecursionError):
        return None
    return isinstance(greeting, dict) and greeting.get("jetstream") is True if greeting is not None else None
