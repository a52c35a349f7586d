"""One connection's life: request after request, until either side has had enough.

Its sequence is visible in `run`: wait for a head, then answer it, refuse it, or hand the connection over. Accepting,
counting connections and stopping all of them are the door's.
"""

import math
from http import HTTPStatus

import structlog
import trio

from actors.supervision.crash_report import report
from gateway.net.body_pace_rules import BODY_PACE
from gateway.net.file_sending import SEND_FILE
from gateway.net.http1.app_call import AppCall, AsgiScope
from gateway.net.http1.heads import Head
from gateway.net.http1.requests import Outside, Refusal, RequestReader
from gateway.net.http1.responses import refusal
from gateway.net.http1.service import Service
from gateway.net.http1.wire import ReplayedStream, TlsStream, Wire
from gateway.net.hypercorn.bridge import HypercornBridge
from gateway.net.hypercorn.life import ConnectionLife
from gateway.net.refusal_form import RefusalForm
from gateway.net.tls_socket import AnySocket, TlsSocket

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

ADOPT = "heliograph.adopt"
BODY_NOW = "heliograph.body_now"
WHEN_GONE = "heliograph.when_gone"
UPGRADE = "heliograph.upgrade"  # as ADOPT, for a WebSocket: its first frames may have come with the request


class Connection:
    def __init__(self, service: Service, bridge: HypercornBridge, sock: AnySocket, peer: tuple[str, int]) -> None:
        self._service = service
        self._bridge = bridge
        self._settings = service.settings
        self._share = service.turns.of(peer[0])
        self._wire = Wire(sock, service.settings, service.pump, self._share)
        self._reader = RequestReader(service.settings.head_bytes_max, service.applications, service.known_heads)
        self._peer = peer
        local = sock.getsockname()
        self._local: tuple[str, int | None] = (local, None) if isinstance(local, str) else local[:2]
        self._is_tls = isinstance(sock, TlsSocket)
        self._by_proxy = service.addresses.is_proxy(peer[0])
        self._stopping = False
        self._is_to_head = False  # what is being answered
        self._waits_until_s = math.inf
        self._busy = False
        self._counted = False
        self._unless_gone = trio.CancelScope()  # one a connection: one a request would cost each its share
        self._passed_on: ReplayedStream | None = None
        self._life = ConnectionLife(service.settings.linger_s_max, service.calls)
        self._now_s = trio.lowlevel.current_clock().current_time  # found once: every head asks

    def ask_stop(self) -> None:
        """No more requests: the one under way is answered with `Connection: close`, an idle connection is closed."""
        self._stopping = True
        if self._busy:
            self._count()
        elif self._waits_until_s < math.inf and not self._reader.pending_bytes:
            self._wire.on_readable()  # a request that the pump has not come to yet is not an idle connection
            self._wire.interrupt()
        if self._passed_on is not None:
            self._life.ask_stop()
            self._passed_on.hurry(self._settings.stopping_write_s_max)

    def expire(self, now_s: float) -> None:
        """End the wait for a head that has lasted too long. One sweep for all costs less than a deadline for each."""
        if now_s >= self._waits_until_s:
            self._wire.interrupt()

    def end(self, crash: Exception | None) -> None:
        """Close whatever is left of it; in the middle of a response, with a reset."""
        del crash
        self._wire.abort()

    async def run(self) -> None:
        try:
            with self._unless_gone:
                goes_on = True
                while goes_on:
                    outcome = await self._next_head()
                    match outcome:
                        case Head():
                            self._is_to_head = outcome.method == "HEAD"
                            goes_on = await self._answer(outcome)
                        case Refusal(status):
                            self._is_to_head = self._reader.claims_to_be_head
                            await self._refuse(status, self._service.applications.form_at(*self._reader.claimed()))
                            goes_on = False
                        case Outside():
                            await self._hand_over()
                            goes_on = False
                        case None:
                            self._wire.close()
                            goes_on = False
            if self._unless_gone.cancelled_caught:
                self._wire.abort()
        except OSError:
            self._wire.abort()  # the peer is gone

    # ---- heads ------------------------------------------------------------------------------------------------------

    async def _next_head(self) -> Head | Refusal | Outside | None:
        """None: the peer has nothing more to ask, or we were asked to stop."""
        if self._stopping:
            return None
        reader, settings = self._reader, self._settings
        outcome = reader.next_head() if reader.pending_bytes else None
        if outcome is not None:
            await self._share.let_others()  # pipelined: no wait has let them run
            return outcome
        begun = bool(reader.pending_bytes)
        self._waits_until_s = self._now_s() + (settings.head_s_max if begun else settings.idle_s_max)
        try:
            while outcome is None:
                data = await self._wire.read()
                if not data:
                    return None
                reader.receive_data(data)
                outcome = reader.next_head()
                if outcome is None and not begun:
                    begun = True
                    self._waits_until_s = self._now_s() + settings.head_s_max
        except trio.ClosedResourceError:  # interrupted
            return Refusal(HTTPStatus.REQUEST_TIMEOUT) if reader.pending_bytes else None
        finally:
            self._waits_until_s = math.inf
        return outcome

    async def _refuse(self, status: HTTPStatus, form: RefusalForm | None) -> None:
        await self._tell(status, form)
        await self._wire.linger()

    async def _tell(self, status: HTTPStatus, form: RefusalForm | None) -> None:
        correlation_id = self._service.correlation_id()
        log.info("request_refused", status=status.value, correlation_id=correlation_id)
        await self._wire.write(refusal(status, correlation_id, form, with_body=not self._is_to_head))

    async def _hand_over(self) -> None:
        rest = self._reader.take_pending(), self._settings, self._share
        sock = self._wire.detach()
        stream = TlsStream(sock, *rest) if isinstance(sock, TlsSocket) else ReplayedStream(sock, *rest)
        async with stream as self._passed_on:
            await self._bridge.serve(stream, self._life)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def _answer(self, head: Head) -> bool:
        """Whether another request may follow."""
        self._busy = True
        if self._stopping:
            self._count()
        try:
            if self._by_proxy:
                return await self._call_app_for_proxy(head)
            return await self._call_app(head, self._peer)
        finally:
            self._busy = False
            if self._counted:
                self._counted = False
                self._service.calls.leave()

    def _count(self) -> None:
        """Let a stop wait for this request. Only once there is a stop: it would cost every request its share."""
        self._counted = True
        self._service.calls.enter()

    async def _call_app_for_proxy(self, head: Head) -> bool:
        addresses = self._service.addresses
        client = addresses.vouched_for(self._peer[0], head.headers)
        if not addresses.enter(client):
            await self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, head.refusal_form)
            return False
        try:
            await self._service.turns.of(client).wait_if_crowding()
            return await self._call_app(head, (client, 0))
        finally:
            addresses.leave(client)

    async def _call_app(self, head: Head, client: tuple[str, int]) -> bool:
        exchange = AppCall(
            head, self._reader, self._wire, self._settings, self._is_stopping, self._tell, self._unless_gone.cancel
        )
        scope: AsgiScope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "method": head.method,
            "scheme": "https" if self._is_tls else "http",
            "path": head.path,
            "raw_path": head.raw_path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers.copy(),  # the head may be remembered, and its headers are not the application's
            "client": client,
            "server": self._local,
            "extensions": {
                ADOPT: exchange.adopt,
                BODY_NOW: exchange.body_now,
                BODY_PACE: exchange.pace_body,
                WHEN_GONE: exchange.when_gone,
            },
        }
        if not self._is_tls:
            scope["extensions"][SEND_FILE] = exchange.send_file
        if head.is_websocket:
            scope["extensions"][UPGRADE] = exchange.adopt_with_input
        crash: Exception | None = None
        try:
            await head.application.app(scope, exchange.receive, exchange.send)
        except Exception as exc:
            crash = exc
        finally:
            exchange.end()
        return await self._conclude(head, exchange, crash or exchange.watch_crash)

    async def _conclude(self, head: Head, exchange: AppCall, crash: Exception | None) -> bool:
        """What follows from how the application ended."""
        response = exchange.response
        if not exchange.adopted and not self._wire.is_open:
            return False  # the peer is gone; if that was an error to the application, it is none to us
        unanswered = not (exchange.adopted or response.started or exchange.ended_early or exchange.hung_up)
        if crash is not None or unanswered:
            correlation_id = self._service.correlation_id()
            causes = report(crash) if crash is not None else []
            log.error("request_failed", correlation_id=correlation_id, answered=not unanswered, causes=causes)
            if unanswered:
                status, with_body = HTTPStatus.INTERNAL_SERVER_ERROR, head.method != "HEAD"
                await self._wire.write(refusal(status, correlation_id, head.refusal_form, with_body=with_body))
                await self._wire.linger()
                return False
        if exchange.adopted:
            return False
        if exchange.refused:
            await self._wire.linger()
            return False
        if not response.complete:
            self._wire.abort()
            return False
        passed_over = self._reader.body_complete or isinstance(self._reader.next_body(), bytes)
        if response.keep_alive and passed_over and self._reader.body_complete and crash is None:
            return True
        if self._reader.body_complete and not self._reader.pending_bytes:
            self._wire.close()
        else:
            await self._wire.linger()
        return False

    def _is_stopping(self) -> bool:
        return self._stopping
