"""A thread that keeps a connection to NATS: nats-py on an event loop of its own, uvloop's where it is installed.

Everything is handed over in two queues, so that hundreds of messages cost one wake-up of the other side. The thread
answers for each thing asked exactly once, and never tries anything twice.

nats-py's own reconnecting is off. It keeps what could not be sent and sends it after the next connect, when whoever
asked has long been told something else; and some errors of a server end its reconnecting for good. Here a connection
lives once: when it ends, everything unanswered is LOST, what comes until the next one is NOT_SENT, and each life begins
with the same subscriptions.

The trio side is `connection`.
"""

import asyncio
import contextlib
import random
import secrets
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from gateway.engine.credentials import Nkey
from gateway.engine.link import INTERIM, NO_HEADERS, LinkState, Message, NoAnswer
from gateway.engine.outgoing import Ask, Disinterest, Interest, Outgoing, Published, Unsubscribe

_new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    from uvloop import new_event_loop as _new_event_loop
except ImportError:  # slower, and all else the same
    _new_event_loop = asyncio.new_event_loop

_NO_RESPONDERS = "503"
_CANCEL_AGAIN_S = 0.05  # until a task that was cancelled and goes on is cancelled again
_HEADERS_BYTES_MAX = 4_096  # of messages this much smaller than the bound, headers are not counted
_NOT_HANDED_OVER = (
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionDrainingError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.MaxPayloadError,
    nats.errors.BadSubjectError,
    nats.errors.BadHeaderError,
)
"""What nats-py raises before it takes anything."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Where NATS is, who we are there, and every bound of a connection."""

    servers: tuple[str, ...]  # nats://HOST:PORT or tls://HOST:PORT; each is tried in turn, from any one on
    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    nkey: Nkey | None = None  # signs what the server asks to be signed
    jwt: str | None = field(default=None, repr=False)  # whose key that is, where accounts are decentralized
    tls_ca: Path | None = None  # None: the system's authorities, where a server wants TLS
    name: str = "heliograph"  # as it is shown to the servers' operators
    open_s_max: float = 10.0  # for the first connect; then `Connection.open` raises
    connect_s_max: float = 2.0  # for one server to answer; then the next is tried
    redial_s: float = 0.25  # between two rounds of all servers, half to one and a half of it
    ping_s: float = 2.0  # between two pings; a server that leaves two unanswered is given up at the third
    close_s_max: float = 2.0  # for the last messages to leave; then the socket is dropped
    asks_max: int = 16_384  # unanswered; the next one is NOT_SENT
    unsent_bytes_max: int = 16 * 1024 * 1024  # that the server has not taken yet; beyond it everything is NOT_SENT
    undelivered_max: int = 65_536  # messages of subscriptions that trio has not heard of; further ones are dropped


class NatsThread:
    """`wake` and `finish` are for the trio side; so is `incoming`: what is to be called there, and with what.

    `deliver` is called in this thread when there is something in `incoming`, once until `incoming` was looked at.
    """

    def __init__(self, settings: ConnectionSettings, deliver: Callable[[], None]) -> None:
        self.incoming: deque[tuple[Callable[[Any], None], Any]] = deque()
        self.outgoing: deque[Outgoing] = deque()
        self.is_delivering = False  # the trio side has been told, and has not looked yet
        self.state = LinkState.DOWN
        self.payload_bytes_max = 0
        self.server_version = (0, 0, 0)
        self.dropped = 0  # messages of subscriptions that nobody had the time for
        self.changed: Callable[[LinkState], None] = lambda _: None  # called in trio, as is
        self.crashed: Callable[[Exception], None] = lambda _: None
        self._settings = settings
        self._deliver = deliver
        self._inbox = f"_INBOX.{secrets.token_hex(11)}"
        self._asked: dict[str, Ask] = {}
        self._asked_ever = 0
        self._interests: list[Interest] = []
        self._client: Client | None = None
        self._is_refused = False  # by the server that was reached last
        self._living: tuple[str, asyncio.Event] | None = None  # at which server, and what ends that
        self._left: str | None = None  # the server that was left last
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_work = asyncio.Event()
        self._ending = asyncio.Event()
        self._started = threading.Event()
        self.thread = threading.Thread(target=self._run, name="heliograph-nats", daemon=True)

    # ── called from the trio thread ─────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self.thread.start()
        self._started.wait()

    def wake(self) -> None:
        """Have sent what is in `outgoing`."""
        if self.outgoing:
            self._call(self._has_work.set)

    def finish(self) -> None:
        """Send what is there, if that is possible soon, and end."""
        self._call(self._ending.set)

    def leave(self) -> None:
        """End this life of the connection, and try the other servers before this one."""
        self._call(self._leave)

    def refuse(self, unsent: Outgoing) -> None:
        """It will not be sent: there is no thread any more, or will not be soon."""
        if isinstance(unsent, Ask):
            self.incoming.append((unsent.then, NoAnswer.NOT_SENT))

    def _call(self, what: Callable[[], None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: the thread has ended, and told everybody
            self._loop.call_soon_threadsafe(what)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._started.set()
        asked_to_end = self._loop.create_task(self._ending.wait())
        tasks = [asked_to_end, *(self._loop.create_task(work()) for work in (self._keep_connected, self._send_forever))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.close_s_max):
                while self.outgoing and self._client is not None and not any(task.done() for task in tasks[1:]):
                    self._has_work.set()
                    await asyncio.sleep(0)
        self._ending.set()
        await self._end(tasks)
        if self._client is not None:
            await self._close(self._client)
        self._lose_all()
        while self.outgoing:
            self.refuse(self.outgoing.popleft())
        self._say(LinkState.DOWN)
        self._deliver()

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Cancel them until they are: nats-py swallows a cancellation here and there."""
        end_s = asyncio.get_running_loop().time() + self._settings.close_s_max
        pending = set(tasks)
        while pending and asyncio.get_running_loop().time() < end_s:
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)
        for task in tasks:
            if task.done() and not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._hand_over(self.crashed, error)

    # ── connecting ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep_connected(self) -> None:
        while not self._ending.is_set():
            servers = list(self._settings.servers)
            random.shuffle(servers)
            servers.sort(key=lambda server: server == self._left)
            for server in servers:
                ended = asyncio.Event()
                client = await self._dial(server, ended)
                if client is not None:
                    self._living = server, ended
                    await self._live(client, ended)
                    self._living = None
                if self._ending.is_set():
                    return
            self._say(LinkState.REFUSED if self._is_refused else LinkState.DOWN)
            await asyncio.sleep(self._settings.redial_s * random.uniform(0.5, 1.5))

    async def _dial(self, server: str, ended: asyncio.Event) -> Client | None:
        async def closed() -> None:
            ended.set()

        async def heard(_: Exception) -> None:
            """What matters of an error is that the connection ends, or that a message is missing."""

        client, settings = Client(), self._settings
        if settings.nkey is not None:
            # nats-py signs with a package of its own, which nothing else here needs; this is where it keeps the key.
            client._public_nkey, client._auth_configured = settings.nkey.public, True  # noqa: SLF001
        try:
            async with asyncio.timeout(settings.connect_s_max):
                await client.connect(
                    server,
                    closed_cb=closed,
                    error_cb=heard,
                    name=settings.name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=settings.connect_s_max,  # type: ignore[arg-type]  # it takes any number
                    ping_interval=settings.ping_s,  # type: ignore[arg-type]  # as above
                    pending_size=2 * settings.unsent_bytes_max,  # never reached: `_send` looks first
                    token=settings.token,
                    user=settings.user,
                    password=settings.password,
                    signature_cb=None if settings.nkey is None else settings.nkey.sign,
                    user_jwt_cb=None if settings.jwt is None else _encoded(settings.jwt),
                    tls=_tls(settings, server),
                )
                await client.subscribe(f"{self._inbox}.*", cb=self._answered)
                # Nothing may wait between this and `_live`: what is subscribed then would not be begun.
                await begin_all(self._interests, partial(self._begin, client), client.flush)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            self._is_refused = "authorization" in str(error).lower()
            await self._close(client)
            return None
        except asyncio.CancelledError:
            await self._close(client)
            raise
        self._is_refused = False
        return client

    async def _live(self, client: Client, ended: asyncio.Event) -> None:
        self.payload_bytes_max = client.max_payload
        version = client.connected_server_version
        self.server_version = (version.major, version.minor, version.patch)
        self._client = client
        self._say(LinkState.UP)
        try:
            await ended.wait()
        finally:
            self._client = None if ended.is_set() else client  # cancelled: there is a last word to be sent
        self._lose_all()
        self._say(LinkState.DOWN)
        await self._close(client)

    def _leave(self) -> None:
        if self._living is not None:
            self._left, ended = self._living
            ended.set()

    async def _close(self, client: Client) -> None:
        """In any case its socket is let go of: with one that is left open, uvloop's loop does not close, for ever."""
        with contextlib.suppress(OSError, nats.errors.Error, TimeoutError):
            async with asyncio.timeout(self._settings.close_s_max):
                await client.close()
        # nats-py has no word for that: it closes a socket politely, when all is sent, to a server that takes nothing.
        writer: asyncio.StreamWriter | None = getattr(client._transport, "_io_writer", None)  # noqa: SLF001
        if writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)

    # ── sending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _send_forever(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self.outgoing:
                match self.outgoing.popleft():
                    case Ask() as ask:
                        await self._ask(ask)
                    case Published() as published:
                        if self._is_able():
                            await self._send(published.subject, published.data, published.headers)
                    case Interest() as interest:
                        self._interests.append(interest)
                        if self._client is not None:
                            await self._begin(self._client, interest)
                    case Disinterest(interest):
                        self._interests.remove(interest)
                        if interest.live is not None:
                            await self._unsubscribe(interest.live)
                    case Unsubscribe(live):
                        await self._unsubscribe(live)

    def _is_able(self) -> bool:
        return self._client is not None and self._client.pending_data_size < self._settings.unsent_bytes_max

    async def _ask(self, ask: Ask) -> None:
        if not self._is_able() or len(self._asked) >= self._settings.asks_max:
            self._hand_over(ask.then, NoAnswer.NOT_SENT)
            return
        self._asked_ever += 1
        token = f"{self._asked_ever:x}"
        self._asked[token] = ask
        ask.timer = asyncio.get_running_loop().call_later(ask.timeout_s, self._give_up, token, NoAnswer.TIMED_OUT)
        reply = f"{self._inbox}.{token}"
        problem = None
        if ask.count_max is not None:
            # What a consumer sends has its own subject, not that of the inbox: only the subscription tells whose it is.
            reply = f"{self._inbox}.all.{token}"
            problem = await self._listen(ask, token, reply)
        problem = problem or await self._send(ask.subject, ask.data, ask.headers, reply)
        if problem is not None:
            self._give_up(token, problem)

    async def _listen(self, ask: Ask, token: str, reply: str) -> NoAnswer | None:
        assert self._client is not None

        async def arrived(msg: Msg) -> None:
            self._take_answer(token, msg)

        try:
            ask.live = await self._client.subscribe(reply, cb=arrived)
        except nats.errors.Error:
            return NoAnswer.NOT_SENT
        return None

    async def _send(self, subject: str, data: bytes, headers: Mapping[str, str], reply: str = "") -> NoAnswer | None:
        assert self._client is not None
        if len(data) + _HEADERS_BYTES_MAX > self.payload_bytes_max:
            lines = sum(len(name) + len(value) + 4 for name, value in headers.items())
            if len(data) + lines + len("NATS/1.0\r\n\r\n") > self.payload_bytes_max:
                return NoAnswer.NOT_SENT  # nats-py looks at the data alone, and the server would end the connection
        try:
            await self._client.publish(subject, data, reply, dict(headers) if headers else None)
        except _NOT_HANDED_OVER:
            return NoAnswer.NOT_SENT
        except (OSError, nats.errors.Error):
            return NoAnswer.LOST
        return None

    async def _begin(self, client: Client, interest: Interest) -> None:
        async def arrived(msg: Msg) -> None:
            if len(self.incoming) >= self._settings.undelivered_max:
                self.dropped += 1
            elif not interest.is_over:
                self._hand_over(interest.deliver, _message(msg))

        with contextlib.suppress(nats.errors.ConnectionClosedError):  # the next life begins with it
            interest.live = live = await client.subscribe(interest.subject, interest.queue, arrived)
            if interest.is_over:  # meanwhile, when its end was told to the life before
                await self._unsubscribe(live)

    async def _unsubscribe(self, live: Subscription) -> None:
        with contextlib.suppress(nats.errors.Error):  # it ended with its connection
            await live.unsubscribe()

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answered(self, msg: Msg) -> None:
        self._take_answer(msg.subject[len(self._inbox) + 1 :], msg)

    def _take_answer(self, token: str, msg: Msg) -> None:
        ask = self._asked.get(token)
        if ask is None:  # too late
            return
        message = _message(msg)
        if message.status == _NO_RESPONDERS and not message.data and not ask.messages:
            self._give_up(token, NoAnswer.NO_RESPONDERS)
        elif ask.meanwhile is not None and INTERIM in message.headers:
            self._hand_over(ask.meanwhile, message)
        elif ask.count_max is None:
            self._give_up(token, message)
        else:
            ask.messages.append(message)
            if message.status is not None or len(ask.messages) >= ask.count_max:
                self._give_up(token, tuple(ask.messages))

    def _give_up(self, token: str, answer: Message | tuple[Message, ...] | NoAnswer) -> None:
        """Wait no longer: this is the answer."""
        ask = self._asked.pop(token, None)
        if ask is not None:
            if ask.timer is not None:
                ask.timer.cancel()
            if ask.live is not None:
                self.outgoing.append(Unsubscribe(ask.live))
                self._has_work.set()
            self._hand_over(ask.then, answer)

    def _lose_all(self) -> None:
        for token in list(self._asked):
            self._give_up(token, NoAnswer.LOST)

    def _say(self, state: LinkState) -> None:
        if state is not self.state:
            self.state = state
            self._hand_over(self.changed, state)

    def _hand_over(self, call: Callable[[Any], None], argument: Any) -> None:
        self.incoming.append((call, argument))
        if not self.is_delivering:
            self.is_delivering = True
            asyncio.get_running_loop().call_soon(self._deliver)  # in the next turn: there may be more in this one


async def begin_all(
    interests: Sequence[Interest], begin: Callable[[Interest], Awaitable[None]], flush: Callable[[], Awaitable[None]]
) -> None:
    """Begin those that are not over. While this waits some end, which shifts them, and others are added."""
    begun: set[Interest] = set()
    await flush()
    while missing := [each for each in interests if not each.is_over and each not in begun]:
        for interest in missing:
            if not interest.is_over:
                await begin(interest)
                begun.add(interest)
        await flush()


def _message(msg: Msg) -> Message:
    return Message(msg.subject, msg.data, msg.headers or NO_HEADERS, msg.reply)


def _encoded(jwt: str) -> Callable[[], bytearray]:
    return lambda: bytearray(jwt.encode())


def _tls(settings: ConnectionSettings, server: str) -> ssl.SSLContext | None:
    if settings.tls_ca is None and not server.startswith("tls://"):
        return None
    return ssl.create_default_context(cafile=settings.tls_ca)
