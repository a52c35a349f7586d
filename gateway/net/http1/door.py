"""The door: HTTP for one ASGI application, as children of the supervisor.

Here connections are accepted, counted and refused; what happens on one is in `connection.py`, what its bytes mean in
`requests.py` and `responses.py`. HTTP/2, and WebSockets that the application does not adopt, are hypercorn's. The
lifespan protocol is not spoken: whoever starts the door starts the application.
"""

import errno
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import structlog
import trio

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.net.addresses import Addresses
from gateway.net.applications import Application, Applications, SitesAt
from gateway.net.http1.app_call import App
from gateway.net.http1.connection import Connection
from gateway.net.http1.handshakes import Handshakes
from gateway.net.http1.responses import refusal
from gateway.net.http1.service import Service
from gateway.net.http1.settings import DoorSettings
from gateway.net.http1.tls_connection import TlsConnection, shaken
from gateway.net.http1.turns import Turns
from gateway.net.http1.wire import Wire
from gateway.net.hypercorn.bridge import HypercornBridge
from gateway.net.listening import open_listeners
from gateway.net.pump import Pump
from gateway.net.refusal_form import FormOf, device_form_only
from gateway.net.tls_socket import AnySocket, TlsSocket
from gateway.net.unix_socket import bound_unix

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOCAL_PEER = ("unix", 0)
"""Who comes over a unix socket: one neighbour, whose connections only the limit on all of them bounds."""
ACCEPT_BATCH_MAX = 16
"""Connections accepted before other tasks get their turn."""
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Door:
    def __init__(
        self,
        supervisor: Supervisor,
        app: App,
        *,
        body_bytes_max: Callable[[str], int],
        settings: DoorSettings | None = None,
        tls: ssl.SSLContext | None = None,
        takes_upgrade: Callable[[str], bool] = lambda _: False,
        form_of: FormOf = device_form_only,
        sites: SitesAt | None = None,
    ) -> None:
        """`app` is the main application, and what follows is said of its paths; `sites`: what other hosts have."""
        self._supervisor = supervisor
        self._settings = settings or DoorSettings()
        self._addresses = Addresses(self._settings.trusted_proxies, self._settings.connections_per_address_max)
        self._pump = Pump()
        self._service = Service(
            applications=Applications(Application(app, body_bytes_max, takes_upgrade, form_of), sites),
            settings=self._settings,
            addresses=self._addresses,
            turns=Turns(self._addresses, self._settings.turns_per_address_max),
            calls=supervisor.calls,
            pump=self._pump,
            handshakes=Handshakes(self._settings.handshakes_max),
        )
        self._bridge = HypercornBridge(self._service)
        self._tls = tls
        self._refusals = 0
        self._open: set[Connection | TlsConnection] = set()
        self._is_kept = False

    @property
    def connections(self) -> int:
        """Open ones; an adopted socket is no longer a connection of the door's."""
        return len(self._open)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """For connections that come from now on; of a door that speaks TLS."""
        assert self._tls is not None
        self._tls = context

    async def listen(self, host: str, port: int, *, shares: bool = False) -> int:
        """Bind, start accepting, and say on which port. It `shares` that port with other processes of this machine."""
        listeners = await open_listeners(host, port, self._settings.backlog, shares=shares)
        self._keep()
        for listener in listeners:
            sock = socket.socket(fileno=listener.socket.detach())
            sock.setblocking(False)
            # Those accepted inherit both.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._settings.unreachable_s_max * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            port = sock.getsockname()[1]
            self._start_accepting(sock, sock.close)
        return port

    async def listen_unix(self, path: Path) -> None:
        """The same on a unix socket, which is removed at the end. Who may connect, its file's mode says: 0600."""
        sock, remove = await bound_unix(path, self._settings.backlog)

        def end() -> None:
            remove()
            sock.close()

        self._keep()
        self._start_accepting(sock, end)

    def _start_accepting(self, sock: socket.socket, end: Callable[[], None]) -> None:
        self._supervisor.start(
            ChildSpec(
                name="door",
                run=lambda: self._accept(sock),
                kind=Kind.PERMANENT,
                stage=Stage.ACCEPTING,
                on_end=lambda _: end(),
            )
        )

    def _keep(self) -> None:
        """Start what all connections share, once."""
        if self._is_kept:
            return
        self._is_kept = True
        self._supervisor.start(
            ChildSpec(name="door_sweeper", run=self._sweep, kind=Kind.PERMANENT, stage=Stage.ACCEPTING)
        )
        # It serves requests that a stop lets finish, so it goes after them.
        self._supervisor.start(
            ChildSpec(name="door_turns", run=self._service.turns.run, kind=Kind.PERMANENT, stage=Stage.CORE)
        )
        self._supervisor.start(
            ChildSpec(
                name="door_pump",
                run=self._pump.run,
                kind=Kind.PERMANENT,
                stage=Stage.CORE,
                on_end=lambda _: self._pump.close(),
            )
        )

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(self._settings.sweep_s)
            now_s = trio.current_time()
            for connection in self._open:
                connection.expire(now_s)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            for _ in range(ACCEPT_BATCH_MAX):
                try:
                    sock, peer = listener.accept()
                except BlockingIOError:
                    break
                except OSError as exc:
                    if exc.errno not in _EXHAUSTED:
                        continue  # that one was gone before we came
                    log.warning("door_exhausted", errno=exc.errno)
                    await trio.sleep(self._settings.accept_again_s)
                    break
                sock.setblocking(False)
                self._admit(sock, peer[:2] if sock.family != socket.AF_UNIX else LOCAL_PEER)

    def _admit(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        """Start its task, or turn it away. Synchronous: the socket has an owner at every moment."""
        address = peer[0]
        if self.connections >= self._settings.connections_max:
            self._turn_away(sock, address)
            return
        # A proxy's connections carry many clients' requests, which are counted one by one.
        counted = peer is not LOCAL_PEER and not self._addresses.is_proxy(address)
        if counted and not self._addresses.enter(address):
            self._turn_away(sock, address)
            return
        connection: Connection | TlsConnection
        if self._tls is None:
            connection = Connection(self._service, self._bridge, sock, peer)
        else:
            connection = TlsConnection(self._service, self._bridge, sock, peer, self._tls)
        self._open.add(connection)

        def end(crash: Exception | None) -> None:
            self._open.discard(connection)
            if counted:
                self._addresses.leave(address)
            connection.end(crash)

        spec = ChildSpec(
            name="http_connection",
            run=connection.run,
            kind=Kind.TEMPORARY,
            stage=Stage.ACCEPTING,
            ask_stop=connection.ask_stop,
            on_end=end,
        )
        try:
            self._supervisor.start(spec)
        except SupervisorStoppingError:
            end(None)

    def _turn_away(self, sock: socket.socket, address: str) -> None:
        if self._refusals >= self._settings.refusals_max:
            sock.close()
            return
        self._refusals += 1
        context = self._tls

        async def tell() -> None:
            said_over: AnySocket | None = sock
            if context is not None:
                said_over = None
                with trio.move_on_after(self._settings.linger_s_max):
                    await self._service.turns.of(address).let_others()
                    said_over = await shaken(sock, context)
            if said_over is None or (isinstance(said_over, TlsSocket) and said_over.protocol == "h2"):
                return  # over HTTP/2 the end of the connection says as much
            wire = Wire(said_over, self._settings, self._pump)
            correlation_id = self._service.correlation_id()
            log.info("connection_refused", status=503, correlation_id=correlation_id)
            try:
                await wire.write(refusal(HTTPStatus.SERVICE_UNAVAILABLE, correlation_id))
                await wire.linger()
            except OSError:
                pass
            finally:
                wire.close()

        def end(_: Exception | None) -> None:
            self._refusals -= 1
            sock.close()

        spec = ChildSpec(name="http_refusal", run=tell, kind=Kind.TEMPORARY, stage=Stage.ACCEPTING, on_end=end)
        try:
            self._supervisor.start(spec)
        except SupervisorStoppingError:
            end(None)
