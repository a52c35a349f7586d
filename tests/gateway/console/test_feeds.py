"""Live feeds and exports of the console: bit by bit, bounded, and cut off with whatever they belong to."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from actors.supervision.supervisor import Supervisor
from gateway.console.api import Answer, ConsoleCall, Streamed, Write
from gateway.console.settings import ConsoleSettings
from gateway.identity.tokens import OperatorScope, Principal
from gateway.net.http1.tls_connection import ALPN
from gateway.net.tls import server_context
from tests.certificates import write_certificate
from tests.gateway.console.site import ORIGIN, PLENTY, SESSION, Browser, Site, operator
from tests.gateway.net.http1.site import HOST, Client, until
from tests.gateway.net.http1.site import Site as DoorSite
from tests.gateway.net.http1.site import site as door_site

PIECE = b"x" * 60_000


class Feed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pieces: int = 1
    goes_on: bool = True
    size: int = 1
    is_file: bool = False


@dataclass
class Source:
    """Gives what it is asked for, then waits, unless it is asked to end."""

    running: int = 0
    ended: list[str] = field(default_factory=list)

    @property
    def call(self) -> ConsoleCall:
        return ConsoleCall("feed", OperatorScope.FLEET_READ, Feed, self._answer)

    async def _answer(self, request: Feed, _: Principal) -> Answer:
        await trio.lowlevel.checkpoint()

        async def run(write: Write) -> None:
            self.running += 1
            how = "cancelled"
            try:
                for _ in range(request.pieces):
                    await write(b"x" * request.size)
                if request.goes_on:
                    await trio.sleep_forever()
                how = "over"
            finally:
                self.running -= 1
                self.ended.append(how)

        headers = {b"content-disposition": b"attachment"}
        return Streamed(b"text/event-stream", run, headers, is_file=request.is_file)


@dataclass
class Place:
    site: Site
    source: Source
    door: DoorSite
    trusts: ssl.SSLContext | None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        if self.trusts is None:
            async with self.door.client() as client:
                yield client
        else:
            async with self.door.tls_client(self.trusts) as client:
                yield client

    async def begin(self, client: Client, browser: Browser, **body: object) -> None:
        """Ask for a feed, and take its head."""
        data = msgspec.json.encode(body)
        lines = (
            b"POST /console/api/feed HTTP/1.1\r\n" + HOST,
            b"Origin: %b\r\nContent-Type: application/json\r\n" % ORIGIN.encode(),
            b"Cookie: %b=%b\r\n" % (SESSION.encode(), browser.cookies[SESSION].encode()),
            b"Content-Length: %d\r\n\r\n" % len(data),
        )
        await client.send(b"".join(lines) + data)
        await until(lambda: self.source.running > 0)

    @property
    def open_feeds(self) -> int:
        return len(self.site.console.feeds)


@asynccontextmanager
async def place(settings: ConsoleSettings = PLENTY, folder: Path | None = None) -> AsyncIterator[Place]:
    """With a folder: over TLS."""
    source = Source()
    site = await Site([source.call], settings).open()
    tls = trusts = None
    if folder is not None:
        pem = str(write_certificate(folder))
        tls, trusts = server_context("http", pem, pem, ALPN), ssl.create_default_context(cafile=pem)
    async with door_site(site.app, tls=tls) as door:
        yield Place(site, source, door, trusts)


async def whole(client: Client) -> tuple[bytes, bytes]:
    """Head and body of an answer that has come to its end. Servers spell the headers of chunks differently."""
    got = b""
    while not got.endswith(b"\r\n0\r\n\r\n"):
        data = await client.stream.receive_some()
        assert data, got
        got += data
    head, _, chunks = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    return head, b"".join(chunks.split(b"\r\n")[1::2])


BOTH = pytest.mark.parametrize("is_tls", [False, True], ids=["door", "tls"])


@BOTH
async def test_feed_that_is_over_ends_in_order(tmp_path: Path, is_tls: bool) -> None:
    async with place(folder=tmp_path if is_tls else None) as here:
        browser = await here.site.signed_in()
        async with here.client() as client:
            data = b'{"pieces": 3, "goes_on": false}'
            await client.send(
                b"POST /console/api/feed HTTP/1.1\r\n%bOrigin: %b\r\nContent-Type: application/json\r\n"
                b"Cookie: %b=%b\r\nContent-Length: %d\r\n\r\n%b"
                % (HOST, ORIGIN.encode(), SESSION.encode(), browser.cookies[SESSION].encode(), len(data), data)
            )
            head, body = await whole(client)
        assert body == b"xxx"
        for line in (
            b"content-type: text/event-stream",
            b"cache-control: no-store",
            b"content-disposition: attachment",
        ):
            assert line in head.split(b"\r\n")
        await until(lambda: here.open_feeds == 0)
        assert here.source.ended == ["over"]


@BOTH
@pytest.mark.parametrize("how", ["revoked", "signed out", "stopped"])
async def test_feed_ends_in_order_with_its_session(tmp_path: Path, how: str, is_tls: bool) -> None:
    async with place(folder=tmp_path if is_tls else None) as here:
        by = operator()
        browser = await here.site.signed_in(by)
        async with here.client() as client:
            await here.begin(client, browser)
            if how == "revoked":
                here.site.revoke(by.jti)
            elif how == "signed out":
                await browser.post("session/end")
            else:
                here.site.console.feeds.stop()
            assert (await whole(client))[1] == b"x", "and not broken off"
        await until(lambda: here.open_feeds == 0)


@BOTH
async def test_file_that_is_cut_short_does_not_end_like_a_whole_one(tmp_path: Path, is_tls: bool) -> None:
    async with place(folder=tmp_path if is_tls else None) as here:
        browser = await here.site.signed_in()
        async with here.client() as client:
            await here.begin(client, browser, is_file=True)
            await browser.post("session/end")
            got = b""
            with suppress(trio.BrokenResourceError):
                while data := await client.stream.receive_some():
                    got += data
            assert got.startswith(b"HTTP/1.1 200")
            assert not got.endswith(b"\r\n0\r\n\r\n")
        await until(lambda: here.open_feeds == 0)
        assert here.source.ended == ["cancelled"]


@BOTH
async def test_file_that_is_whole_ends_in_order(tmp_path: Path, is_tls: bool) -> None:
    async with place(folder=tmp_path if is_tls else None) as here:
        browser = await here.site.signed_in()
        answer = await browser.post("feed", {"pieces": 3, "goes_on": False, "is_file": True})
        assert (answer.status, answer.body) == (200, b"xxx")


@BOTH
async def test_client_that_hangs_up_ends_its_feed(tmp_path: Path, is_tls: bool) -> None:
    async with place(folder=tmp_path if is_tls else None) as here:
        browser = await here.site.signed_in()
        async with here.client() as client:
            await here.begin(client, browser)
            assert here.open_feeds == 1
        await until(lambda: here.open_feeds == 0)
        assert here.source.ended == ["cancelled"]


async def test_client_that_does_not_read_is_cut_off() -> None:
    async with place(replace(PLENTY, write_s_max=0.2)) as here:
        browser = await here.site.signed_in()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", here.door.port))
            sock.setblocking(False)
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
            await here.begin(Client(stream), browser, pieces=1_000, size=len(PIECE))
            await until(lambda: here.open_feeds == 0)
        assert here.source.ended == ["cancelled"]


async def test_so_many_feeds_are_open_at_once_and_no_more() -> None:
    async with place(replace(PLENTY, live_max=3, live_per_session_max=2)) as here:
        ada, bob = await here.site.signed_in(), await here.site.signed_in(operator(sub="bob"))
        async with here.client() as one, here.client() as two, here.client() as three:
            await here.begin(one, ada)
            await here.begin(two, ada)
            await until(lambda: here.open_feeds == 2)
            refused = await ada.post("feed")
            assert (refused.status, refused.json["code"]) == (429, "E_RATE_LIMITED")
            assert refused.json["retry_after_ms"] > 0
            await here.begin(three, bob)
            await until(lambda: here.open_feeds == 3)
            assert (await bob.post("feed")).status == 429, "of all sessions"
        await until(lambda: here.open_feeds == 0)
        assert (await ada.post("feed", {"goes_on": False})).status == 200


async def test_sessions_of_one_token_leave_feeds_to_others() -> None:
    async with place(replace(PLENTY, live_max=4, live_per_token_max=2)) as here:
        by = operator()
        one, two = await here.site.signed_in(by), await here.site.signed_in(by)
        async with here.client() as first, here.client() as second, here.client() as third:
            await here.begin(first, one)
            await here.begin(second, two)
            await until(lambda: here.open_feeds == 2)
            assert (await two.post("feed")).status == 429
            await here.begin(third, await here.site.signed_in(operator(sub="bob")))
            await until(lambda: here.open_feeds == 3)


async def test_feed_ends_when_the_time_of_its_session_is_up(autojump_clock: MockClock) -> None:
    source = Source()
    site = await Site([source.call]).open()
    browser = await site.signed_in()
    await trio.sleep(60)
    began_s = trio.current_time()
    answer = await browser.post("feed")
    assert (answer.status, answer.body) == (200, b"x")
    assert trio.current_time() - began_s == PLENTY.session_s - 60
    assert source.ended == ["cancelled"]


async def test_feed_takes_its_scope(autojump_clock: MockClock) -> None:
    source = Source()
    site = await Site([source.call]).open()
    browser = await site.signed_in(operator(OperatorScope.SPEND_READ))
    assert (await browser.post("feed")).status == 403
    assert source.ended == []


async def test_stop_leaves_no_feed_and_nobody_signed_in(autojump_clock: MockClock) -> None:
    source = Source()
    site = await Site([source.call]).open()
    browser = await site.signed_in()
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor()
        await nursery.start(supervisor.run)
        site.console.start(supervisor)
        nursery.start_soon(browser.post, "feed")
        await until(lambda: source.running == 1)
        supervisor.request_stop()
    assert source.ended == ["cancelled"]
    assert (await browser.post("whoami")).status == 401
    assert (await (await site.signed_in()).post("feed")).status == 429
