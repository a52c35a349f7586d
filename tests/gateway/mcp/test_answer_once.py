from collections.abc import MutableMapping
from typing import Any, TypeAlias

import anyio
import pytest

from gateway.mcp.answer_once import answer_once
from gateway.net.exchange import Receive, Send

Messages: TypeAlias = list[dict[str, Any]]


def answer(status: int) -> Messages:
    return [{"type": "http.response.start", "status": status, "headers": []}, {"type": "http.response.body"}]


ACCEPTED, FAILED = answer(202), answer(500)


class Client:
    def __init__(self) -> None:
        self.heard: list[MutableMapping[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.heard.append(message)


async def test_notification_whose_session_ends_after_its_answer_is_answered_once() -> None:
    async def serve(_: Receive, send: Send) -> None:
        for message in (*ACCEPTED, *FAILED):
            await send(message)
        raise anyio.ClosedResourceError

    client = Client()
    await answer_once(serve, client.receive, client.send)
    assert client.heard == ACCEPTED


async def test_answer_in_parts_comes_whole() -> None:
    parts: Messages = [ACCEPTED[0], {"type": "http.response.body", "body": b"a", "more_body": True}, ACCEPTED[1]]

    async def serve(_: Receive, send: Send) -> None:
        for message in parts:
            await send(message)

    client = Client()
    await answer_once(serve, client.receive, client.send)
    assert client.heard == parts


@pytest.mark.parametrize("said", [[], ACCEPTED[:1]])
async def test_session_that_ends_before_the_answer_is_complete_is_not_passed_over(said: Messages) -> None:
    async def serve(_: Receive, send: Send) -> None:
        for message in said:
            await send(message)
        raise anyio.ClosedResourceError

    client = Client()
    with pytest.raises(anyio.ClosedResourceError):
        await answer_once(serve, client.receive, client.send)


async def test_any_other_failure_is_told_even_after_the_answer() -> None:
    async def serve(_: Receive, send: Send) -> None:
        for message in ACCEPTED:
            await send(message)
        raise ValueError

    client = Client()
    with pytest.raises(ValueError):  # noqa: PT011  # it has no words
        await answer_once(serve, client.receive, client.send)
