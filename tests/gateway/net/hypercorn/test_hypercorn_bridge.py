"""HTTP/2 and WebSockets through the door reach the same application, from their first byte."""

import json

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trio.testing
import trio_websocket

from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.settings import DoorSettings
from tests.gateway.net.http1.site import HOST, Client, site

WEBSOCKET = (
    b"GET / HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def h2_post(client: Client, *, bytewise: bool) -> tuple[dict[bytes, bytes], bytes]:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=False))
    connection.initiate_connection()
    headers = {":method": "POST", ":path": "/two?q", ":scheme": "http", ":authority": "test"}
    connection.send_headers(1, list(headers.items()))
    connection.send_data(1, b"body", end_stream=True)
    data = connection.data_to_send()
    if bytewise:
        for index in range(len(data)):
            await client.send(data[index : index + 1])
            await trio.lowlevel.checkpoint()
    else:
        await client.send(data)
    answered: dict[bytes, bytes] = {}
    body = b""
    while True:
        for event in connection.receive_data(await client.stream.receive_some()):
            match event:
                case h2.events.ResponseReceived():
                    answered = dict(event.headers or [])
                case h2.events.DataReceived():
                    body += event.data or b""
                case h2.events.StreamEnded():
                    return answered, body


async def test_http_2_with_prior_knowledge_reaches_the_application() -> None:
    async with site() as here:
        for bytewise in (False, True):
            async with here.client() as client:
                headers, body = await h2_post(client, bytewise=bytewise)
                assert headers[b":status"] == b"200"
                said = json.loads(body)
                assert (said["version"], said["path"], said["query"], said["body"]) == ("2", "/two", "q", "body")
        await here.idle()


async def test_websocket_reaches_the_application() -> None:
    async with site() as here:
        async with trio_websocket.open_websocket("127.0.0.1", here.port, "/", use_ssl=False) as websocket:
            await websocket.send_message("hello")
            assert await websocket.get_message() == "hello"
        await here.idle()


async def test_websocket_after_a_request_on_the_same_connection_reaches_the_application() -> None:
    async with site() as here, here.client() as client:
        await client.send(b"GET /first HTTP/1.1\r\n" + HOST + b"\r\n" + WEBSOCKET)
        assert (await client.response()).said["path"] == "/first"
        await until_received(client, b"101 ")
        await client.send(b"\x81\x82\x00\x00\x00\x00hi")
        await until_received(client, b"\x81\x02hi")
        assert client.buffer.startswith(b"HTTP/1.1 101 ")


async def until_received(client: Client, expected: bytes) -> None:
    while expected not in client.buffer:
        data = await client.stream.receive_some()
        assert data
        client.buffer += data


async def refuse_websockets(scope: AsgiScope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "websocket"
    await receive()
    await send({"type": "websocket.close"})


async def test_refused_websocket_ends_its_connection() -> None:
    async with site(refuse_websockets) as here, here.client() as client:
        await client.send(WEBSOCKET)
        assert (await client.rest()).startswith(b"HTTP/1.1 403 ")


async def test_nothing_sent_ahead_of_the_answer_to_an_upgrade_becomes_a_request() -> None:
    async with site(refuse_websockets) as here, here.client() as client:
        await client.send(WEBSOCKET + b"GET / HTTP/1.1\nHost: smuggled\n\n")
        answered = await client.rest()
        # hypercorn takes no bytes before it has answered.
        assert answered.startswith(b"HTTP/1.1 400 ")
        assert answered.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("settings", "stop"), [(DoorSettings(write_s_max=0.05), False), (DoorSettings(stopping_write_s_max=0.05), True)]
)
async def test_client_of_hypercorn_that_does_not_read_is_ended_too(settings: DoorSettings, stop: bool) -> None:
    accepted = trio.Event()

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        accepted.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood, send)
            assert (await receive())["type"] == "websocket.disconnect"
            nursery.cancel_scope.cancel()

    async def flood(send: Send) -> None:
        while True:
            await send({"type": "websocket.send", "bytes": b"x" * 100_000})
            await trio.lowlevel.checkpoint()

    async with site(app, settings) as here, here.client() as client:
        await client.send(WEBSOCKET)
        await accepted.wait()
        if stop:
            await trio.testing.wait_all_tasks_blocked()
            here.supervisor.request_stop()
        await here.idle()


async def test_application_that_fails_over_http_2_is_500_and_its_words_are_not_logged() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        raise ValueError("a secret")

    async with site(app) as here, here.client() as client:
        headers, _ = await h2_post(client, bytewise=False)
        assert headers[b":status"] == b"500"
