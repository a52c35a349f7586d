"""What a path and a method lead to, and what is told where they lead nowhere."""

from typing import Any

import pytest
import structlog
import trio

from gateway.net.exchange import BadQuery, BodyTooLarge, ClientGone, Exchange
from gateway.net.router import ANY, WHOLE, Handler, Router


def shows(word: str) -> Handler:
    async def handle(exchange: Exchange) -> None:
        await exchange.json({"by": word, "name": exchange.name})

    return handle


def raises(error: Exception) -> Handler:
    async def handle(_: Exchange) -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return handle


ROUTES = {
    "/things": ("GET", shows("list")),
    "/things/": ("GET", shows("slash")),
    "/things/{}": ("GET", shows("thing")),
    "/things/{}/part": ("POST", shows("part")),
    "/things/known": ("GET", shows("known")),
    "/all/*": (ANY, shows("all")),
    "/all/but/*": (ANY, shows("all but")),
    "/whole/*": (WHOLE, shows("whole")),
    "/large": ("POST", raises(BodyTooLarge())),
    "/query": ("GET", raises(BadQuery())),
    "/gone": ("GET", raises(ClientGone())),
}


async def ask(method: str, path: str, kind: str = "http", **more: Any) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> Any:
        await trio.sleep_forever()

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    scope = {"type": kind, "method": method, "path": path, "query_string": b"", "headers": [], **more}
    await Router(lambda: "01HZXC0000000000000000J000", ROUTES)(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/things", b'{"by":"list","name":""}'),
        ("GET", "/things/", b'{"by":"slash","name":""}'),
        ("GET", "/things/known", b'{"by":"known","name":""}'),
        ("GET", "/things/a%2Fb", b'{"by":"thing","name":"a%2Fb"}'),
        ("POST", "/things/x/part", b'{"by":"part","name":"x"}'),
        ("BREW", "/whole/of/it", b'{"by":"whole","name":""}'),
        ("BREW", "/all/of/it", b'{"by":"all","name":""}'),
        ("BREW", "/all/but/it", b'{"by":"all but","name":""}'),
        ("HEAD", "/things", b""),
    ],
)
async def test_path_leads_to_its_route_and_a_head_to_its_get(method: str, path: str, expected: bytes) -> None:
    start, body = await ask(method, path)
    assert (start["status"], body["body"]) == (200, expected)


@pytest.mark.parametrize(
    ("path", "raw_path", "status"),
    [
        ("/things/known", b"/things%2Fknown", 404),
        ("/things/known", b"/things%2fknown", 404),
        ("/all/of/it", b"/all/of%2Fit", 404),
        ("/whole/of/it", b"/whole/of%2Fit", 200),
        ("/things/known", b"/things/know%6E", 200),
        ("/things/known", b"/things/known", 200),
    ],
)
async def test_encoded_slash_separates_nothing(path: str, raw_path: bytes, status: int) -> None:
    start, _ = await ask("GET", path, raw_path=raw_path)
    assert start["status"] == status


@pytest.mark.parametrize(
    "path", ["", "/", "/thing", "/things//part", "/things/part/", "/things/a/b/part", "/things/a/b"]
)
async def test_path_that_leads_nowhere_is_404(path: str) -> None:
    start, body = await ask("GET", path)
    assert start["status"] == 404
    assert b"E_MANIFEST_NOT_FOUND" in body["body"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [("POST", "/things", b"GET, HEAD"), ("HEAD", "/things/x/part", b"POST"), ("", "/things/x", b"GET, HEAD")],
)
async def test_other_method_is_405_that_says_which(method: str, path: str, allow: bytes) -> None:
    start, _ = await ask(method, path)
    assert (start["status"], dict(start["headers"])[b"allow"]) == (405, allow)


async def test_what_a_handler_cannot_go_on_with_is_told() -> None:
    assert (await ask("POST", "/large"))[0]["status"] == 413
    assert (await ask("GET", "/query"))[0]["status"] == 400
    assert await ask("GET", "/gone") == []


async def test_websocket_is_refused_before_its_upgrade() -> None:
    with structlog.testing.capture_logs() as lines:
        start, body = await ask("GET", "/things", "websocket")
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 404)
    assert lines[0]["correlation_id"].encode() in body["body"]


def test_route_that_two_features_bring_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="/things"):
        Router(lambda: "", ROUTES, {"/things": ("POST", shows("other"))})


@pytest.mark.parametrize(("path", "status"), [("/things", 503), ("/nowhere", 503), ("/healthz", 200)])
async def test_while_nobody_knows_which_tokens_count_only_what_takes_none_is_answered(path: str, status: int) -> None:
    routes = {**ROUTES, "/healthz": ("GET", shows("health"))}
    sent: list[Any] = []

    async def receive() -> Any:
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }
    await Router(lambda: "01HZXC0000000000000000J000", routes, serves=lambda: False)(scope, receive, send)
    assert sent[0]["status"] == status
    assert (b"retry-after" in dict(sent[0]["headers"])) == (status == 503)
