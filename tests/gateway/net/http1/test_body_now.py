"""`heliograph.body_now`: a body that came with its head is given at once; any other is for `receive`."""

import pytest
import trio

from gateway.net import exchange as web
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.connection import BODY_NOW, WHEN_GONE
from tests.gateway.net.http1.site import HOST, answer, read_body, site, until

pytestmark = pytest.mark.usefixtures("transport")

POST = b"POST / HTTP/1.1\r\n" + HOST
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    ("request_", "body"),
    [
        (POST + b"Content-Length: 3\r\n\r\nabc", b"abc"),
        (POST + b"Content-Length: 3\r\n\r\nabc" + GET, b"abc"),
        (GET, b""),
        (POST + b"Content-Length: 3\r\n\r\nab", None),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", None),
    ],
)
@pytest.mark.parametrize("known", [False, True])
async def test_body_is_given_if_nobody_must_wait_for_it(request_: bytes, body: bytes | None, known: bool) -> None:
    given: list[bytes | None] = []

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        taken = scope["extensions"][BODY_NOW]()
        given.append(taken)
        if taken is None:
            taken = await read_body(receive)
        await answer(send, taken or b"none")

    async with site(app) as here:
        for _ in range(1 + known):
            given.clear()
            async with here.client() as client:
                await client.send(request_)
                await until(lambda: bool(given))
                if request_.endswith(b"\r\nab"):
                    await client.send(b"c")
                assert (await client.response()).body == (b"none" if request_ == GET else b"abc")
            assert given[0] == body


async def test_what_receive_gave_is_not_given_again_and_a_disconnect_is_still_told() -> None:
    heard: list[object] = []
    told = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        take = scope["extensions"][BODY_NOW]
        heard.append((await receive())["body"])
        heard.append((await receive())["body"])
        heard.append(take())
        scope["extensions"][WHEN_GONE](told.set)
        await told.wait()

    async with site(app) as here:
        async with here.client() as client:
            await client.send(POST + b"Content-Length: 4\r\n\r\nab")
            await until(lambda: len(heard) == 1)
            await client.send(b"cd")
            await until(lambda: len(heard) == 3)
        await told.wait()
        await here.idle()
    assert heard == [b"ab", b"cd", None]


async def test_the_application_names_it_as_the_door_does() -> None:
    assert web.BODY_NOW == BODY_NOW
