"""How commands reach a gateway: over HTTP while one runs on the folder, in the folder itself while none does.

Every request carries a token, which is the gateway's alone. `http.client` knows neither proxies nor redirects, whatever
the environment or the answer says.
"""

import argparse
import http.client
import json
import os
import re
import socket
import sqlite3
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import trio
from ulid import ULID

from actors.log.sqlite_store import SqliteStore
from actors.log.store import StoreFailedError, UnreadableError
from gateway.commands.parsing import CommandError
from gateway.commands.unix_http import UnixConnection
from gateway.identity.tokens import AGENT_ID, OperatorScope, TokenClass
from gateway.main.command_variables import OPERATOR_TOKEN
from gateway.main.data_folder import (
    NO_TOKENS,
    RUNNING_FILE,
    DataFolder,
    FolderError,
    FolderInUseError,
    is_held,
    issuer_of,
    makes_tokens,
)
from gateway.main.settings import UNIX, SettingsError, data_from_environment
from gateway.net.tls import client_context
from schemas.certificates import TENANT_CHARS_MAX
from schemas.ecma import compile_ecma
from schemas.registry import REGISTRY

ANSWER_S_MAX = 10.0
OPERATOR_TOKEN_LIFE_S = 60
PIECE_BYTES = 256 * 1024  # of a long answer, read at once

_NODE_ID = compile_ecma(REGISTRY["manifest@1.0.0"].document["properties"]["node_id"]["pattern"])

T = TypeVar("T")


def add_data(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--data", metavar="DIR", help="the gateway's data folder (default: HELIOGRAPH_DATA, or heliograph-data)"
    )


def data_path(arguments: argparse.Namespace) -> Path:
    """The flag, then the environment, then the default."""
    try:
        return data_from_environment(arguments.data)
    except SettingsError as error:
        raise CommandError(str(error)) from None


def checked_agent(text: str) -> str:
    if not AGENT_ID.match(text):
        raise CommandError("an agent is agent_<uuid> in lower case: the `sub` of its token")
    return text


def checked_node_id(text: str) -> str:
    if not _NODE_ID.search(text):
        raise CommandError("a node id is a lower-case ULID; `heliograph nodes` lists them")
    return text


def checked_tenant(text: str) -> str:
    if not re.fullmatch(f"[ -~]{{1,{TENANT_CHARS_MAX}}}", text):
        raise CommandError(f"a tenant is a name of 1 to {TENANT_CHARS_MAX} printable characters")
    return text


def person() -> str:
    """Who does it, as a token and the register take it."""
    return re.sub("[^ -~]", "?", os.environ.get("USER", ""))[:128] or "operator"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---- a gateway ------------------------------------------------------------------------------------------------------


class RefusedError(CommandError):
    """The gateway answered with an error; `envelope` is what it said."""

    def __init__(self, envelope: dict[str, Any]) -> None:
        super().__init__(" ".join(str(envelope[key]) for key in ("message", "suggested_fix") if key in envelope))
        self.envelope = envelope


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where a gateway listens; over TLS, with what it is known by (None: what the system trusts)."""

    url: str  # http://…, https://… or unix:/path/to/socket
    tls: ssl.SSLContext | None = None

    @classmethod
    def at(cls, url: str) -> "Gateway":
        """Where a person says it is."""
        try:
            parts = urlsplit(url)
            _, is_whole = parts.port, bool(parts.hostname) and parts.username is None
        except ValueError:  # a port that is none
            is_whole = False
        if not is_whole or parts.scheme not in ("http", "https") or not re.fullmatch("[!-~]+", url):
            raise CommandError("--url is http://HOST:PORT or https://HOST:PORT, as `heliograph serve` prints it")
        return cls(url.rstrip("/"))

    @classmethod
    def on(cls, path: Path, *, for_operators: bool = False) -> "Gateway":
        """The one that runs on this folder. By now another program may listen where a killed one did."""
        if not is_held(path):
            raise _not_running(path)
        address, admin, certificate = running_note(path, "http", "admin", "http_certificate")
        if for_operators and admin is not None:
            address = admin
        if address.startswith(UNIX):
            return cls(address)
        host, _, port = address.rpartition(":")
        at = f"[{host}]:{port}" if ":" in host.strip("[]") else address
        return cls(f"http://{at}") if certificate is None else cls(f"https://{at}", client_context(certificate))

    def ask(
        self, method: str, route: str, token: str, body: Any = None, *, wants: str | None, wait_s: float = ANSWER_S_MAX
    ) -> Any:
        """The answer, an object that has the key that is wanted (None: anything). Raises CommandError."""
        with self.open(method, route, token, body, "application/json", wait_s) as response, self._answering():
            answer = _json(response.read())
            if answer is None or (wants is not None and not (isinstance(answer, dict) and wants in answer)):
                raise self._is_no_gateway(response.status)
            return answer

    def order(self, method: str, route: str, token: str) -> None:
        """What is answered with 204 once it is done. Raises CommandError."""
        with self.open(method, route, token, None, None, ANSWER_S_MAX):
            pass

    @contextmanager
    def open(
        self, method: str, route: str, token: str, body: Any, accept: str | None, wait_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        """The response, to be read within the block; without `accept`, one that has nothing to read. Raises
        CommandError; RefusedError if the gateway said no."""
        if not re.fullmatch("[!-~]+", token):
            raise CommandError("the token is empty, or has characters that no token has: copy it again")
        content = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        headers["accept"] = accept or "application/json"
        wanted = 204 if accept is None else 200
        with closing(self._connection(wait_s)) as connection:
            with self._answering():
                prefix = "" if self.url.startswith(UNIX) else urlsplit(self.url).path
                connection.request(method, prefix + route, content, headers)
                sock = connection.sock
                response = connection.getresponse()
                if response.status != wanted:
                    envelope = _json(response.read())
                    if isinstance(envelope, dict) and "code" in envelope:
                        raise RefusedError(envelope)
                is_typed = accept is None or response.headers.get_content_type() == accept
                if response.status != wanted or not is_typed:
                    raise self._is_no_gateway(response.status)
            try:
                yield response
            finally:
                with suppress(OSError):  # a thread that still reads would make us wait for its next byte
                    sock.shutdown(socket.SHUT_RDWR)
                response.close()

    def pieces(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        """The body of what `open` gave, within its block. Raises CommandError, also if it is not whole."""
        while True:
            try:
                with self._answering():
                    piece = response.read(PIECE_BYTES)
            except CommandError:
                raise CommandError(
                    f"the gateway at {self.url} broke off in the middle of its answer: see its log, then try again"
                ) from None
            if not piece:
                return
            yield piece

    def _connection(self, wait_s: float) -> http.client.HTTPConnection:
        if self.url.startswith(UNIX):
            return UnixConnection(self.url.removeprefix(UNIX), wait_s)
        where = urlsplit(self.url)
        host, port = where.hostname or "", where.port
        if where.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=wait_s)
        return http.client.HTTPSConnection(host, port, timeout=wait_s, context=self.tls)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(f"the gateway at {self.url} does not answer ({error}): see that it runs") from None

    def _is_no_gateway(self, status: int) -> CommandError:
        return CommandError(
            f"what answers at {self.url} is not a gateway, or not it alone (HTTP {status}, and not the JSON that it "
            "would send): give the gateway's own address, not that of something in front of it"
        )


def _json(body: bytes) -> Any:
    """None: it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def running_note(path: Path, *keys: str) -> tuple[Any, ...]:
    """What the gateway that runs on this folder has written down: where it is reached, and which policy it reads."""
    try:
        # A gateway of an earlier version says nothing of a listener for operators.
        note = {"admin": None, **json.loads((path / RUNNING_FILE).read_text())}
        return tuple(note[key] for key in keys)
    except (OSError, ValueError, KeyError, TypeError):
        raise _not_running(path) from None


def _not_running(path: Path) -> CommandError:
    return CommandError(f"no gateway runs on {path}: start one with `heliograph serve --data {path}`")


# ---- what operators do ----------------------------------------------------------------------------------------------


def need_tokens(path: Path, instead: str) -> None:
    """Raises CommandError where the gateway makes no tokens."""
    if not makes_tokens(path):
        raise CommandError(f"{NO_TOKENS} So {instead}.")


class Operator:
    """The operator's routes of the gateway that runs on a folder, with the operator's own token or one that is made."""

    def __init__(self, path: Path, scopes: Collection[OperatorScope], life_s: int = OPERATOR_TOKEN_LIFE_S) -> None:
        """`scopes`: what the command needs, and all that a token which is made for it gets."""
        self._path = path
        self._scopes = scopes
        self._life_s = life_s
        self.gateway = Gateway.on(path, for_operators=True)

    def get(self, route: str, wants: str) -> Any:
        return self.gateway.ask("GET", route, self._token(), wants=wants)

    def post(self, route: str, body: Any, wants: str, wait_s: float = ANSWER_S_MAX) -> Any:
        return self.gateway.ask("POST", route, self._token(), body, wants=wants, wait_s=wait_s)

    def delete(self, route: str) -> None:
        self.gateway.order("DELETE", route, self._token())

    def fetch(self, route: str, body: Any, media_type: str, wait_s: float) -> Iterator[bytes]:
        """An answer of this type, piece by piece, with so long a wait for the next one. Raises CommandError."""
        with self.gateway.open("POST", route, self._token(), body, media_type, wait_s) as response:
            yield from self.gateway.pieces(response)

    def each(self, route: str, key: str) -> Iterator[Any]:
        """All of a list that comes in pages."""
        page = self.get(route, key)
        yield from page[key]
        more = "&" if "?" in route else "?"
        while (cursor := page.get("nextCursor")) is not None:
            page = self.get(f"{route}{more}cursor={quote(cursor, safe='')}", key)
            yield from page[key]

    def _token(self) -> str:
        token = os.environ.get(OPERATOR_TOKEN, "").strip()
        if token:
            return token
        need_tokens(self._path, f"put an operator's token of its making into {OPERATOR_TOKEN}")
        try:
            issuer = issuer_of(self._path)
        except FolderError as error:
            raise CommandError(str(error)) from None
        return issuer.mint(
            sub=person(),
            tenant="operators",
            token_class=TokenClass.OPERATOR,
            scopes=self._scopes,
            jti=str(ULID()),
            now_ms=now_ms(),
            life_s=self._life_s,
        )


def ask(
    path: Path,
    direct: Callable[[DataFolder], T],
    remote: Callable[[Operator], T],
    *scopes: OperatorScope,
    life_s: int = OPERATOR_TOKEN_LIFE_S,
) -> T:
    """Do it in the folder if nobody holds it; else ask the gateway that does, which takes these scopes. Raises
    CommandError."""
    try:
        with DataFolder.hold(path, now_ms(), make=False) as folder:
            return direct(folder)
    except FolderError as error:
        # Without the note it is starting or stopping, or another command was quicker.
        if isinstance(error, FolderInUseError) and (path / RUNNING_FILE).exists():
            return remote(Operator(path, scopes, life_s))
        raise CommandError(str(error)) from None


def read_log(folder: DataFolder, read: Callable[[SqliteStore], Awaitable[T]], nothing: T) -> T:
    """What the log of a stopped gateway says. One that never ran has none, and whoever reads makes none."""

    async def run() -> T:
        async with await SqliteStore.open(folder.log_path) as store:
            return await read(store)

    if not folder.log_path.exists():
        return nothing
    try:
        return trio.run(run)
    except (sqlite3.Error, StoreFailedError, UnreadableError) as error:
        raise CommandError(f"cannot read {folder.log_path}: {error}") from error
