"""One address does its worst to a whole gateway; another still gets its answers."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from tests.gateway.api.live import Client, Live, live_gateway, request

FLOODER, OTHER = "127.0.0.2", "127.0.0.3"
CONNECTIONS_MAX = 24
PATIENCE_S = 60.0
CALLS = 5


async def test_address_at_its_limit_is_told_503_and_another_is_let_in(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_S):
        one = {"door.connections_per_address_max": 1}
        async with live_gateway(tmp_path, **one) as here, here.client(FLOODER) as half_open:
            await half_open.send(b"GET /healthz HT")
            async with here.client(FLOODER) as second, here.client(OTHER) as other:
                refused = await second.answer()
                assert refused is not None
                assert (refused.status, refused.json["code"]) == (503, "E_RATE_LIMITED")
                answered = await other.ask(here.good_call())
                assert answered is not None
                assert (answered.status, answered.json["message"]) == (200, "ping")


# ---- floods ---------------------------------------------------------------------------------------------------------


async def half_heads(here: Live, client: Client) -> None:
    await client.send(b"GET /healthz HTTP/1.1\r\nHo")
    await trio.sleep_forever()


async def pipelined(here: Live, client: Client) -> None:
    await pour(client, request("GET", "/mcp/tools", here.token()) * 20)


async def forged_tokens(here: Live, client: Client) -> None:
    await pour(client, request("GET", "/mcp/tools", here.token()[:-6] + "AAAAAA") * 20)


async def tiny_chunks(here: Live, client: Client) -> None:
    head = request("POST", "/mcp/tools/call", here.token())[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    await pour(client, head + b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n")


async def unread_answers(here: Live, client: Client) -> None:
    while True:
        await client.send(request("GET", "/schemas/") * 20)


async def http2_pings(here: Live, client: Client) -> None:
    await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    await pour(client, (bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"12345678") * 200)


async def nothing_at_all(here: Live, client: Client) -> None:
    """Connects, hangs up and comes again."""


async def pour(client: Client, data: bytes) -> None:
    """As fast as it goes, reading whatever comes back."""

    async def write() -> None:
        while True:
            await client.send(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        while await client.stream.receive_some(65536):
            pass
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "flood", [half_heads, pipelined, forged_tokens, tiny_chunks, unread_answers, http2_pings, nothing_at_all]
)
async def test_other_address_gets_its_answers_during_a_flood(
    tmp_path: Path, flood: Callable[[Live, Client], Awaitable[None]]
) -> None:
    floods = 0

    async def keep_flooding() -> None:
        nonlocal floods
        while True:
            try:
                async with here.client(FLOODER) as client:
                    floods += 1
                    await flood(here, client)
            except* (OSError, trio.BrokenResourceError):
                pass  # turned away: it comes again

    settings = {"door.connections_per_address_max": CONNECTIONS_MAX, "door.turns_per_address_max": 4}
    with trio.fail_after(PATIENCE_S):
        async with live_gateway(tmp_path, **settings) as here, trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS_MAX + 2):
                nursery.start_soon(keep_flooding)
            while floods < CONNECTIONS_MAX:
                await trio.lowlevel.checkpoint()
            for _ in range(CALLS):
                async with here.client(OTHER) as other:
                    answered = await other.ask(here.good_call())
                    assert answered is not None
                    assert (answered.status, answered.json["message"]) == (200, "ping")
            nursery.cancel_scope.cancel()
