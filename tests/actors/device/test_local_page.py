"""The manifest for whoever debugs on the device: on the loopback address, to requests that name it, and no others."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h11
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import actors.device.local_page as page_module
from actors.device.local_page import PATH, Answer, LocalPage, answer_to
from actors.device.manifest_life import SignedManifest
from schemas.contract import contract
from tests.schemas.examples import MANIFEST

SIGNED = SignedManifest(MANIFEST, "ab" * 32)
PORT = 8422


def request(method: str = "GET", target: str = PATH, host: str = f"127.0.0.1:{PORT}", **headers: str) -> h11.Request:
    named = [("host", host), *((name.replace("_", "-"), value) for name, value in headers.items())]
    return h11.Request(method=method, target=target, headers=named)


def _is_error(answer: Answer, status: int, code: str) -> None:
    body = json.loads(answer.body)
    assert (answer.status, body["code"]) == (status, code)
    assert contract("error@1.0.0").is_valid(body)


# ---- what a request gets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_manifest_with_its_etag(host: str) -> None:
    answer = answer_to(request(host=f"{host}:{PORT}"), PORT, SIGNED)
    assert (answer.status, json.loads(answer.body)) == (200, MANIFEST)
    assert answer.headers["etag"] == f'"{SIGNED.etag}"'


def test_who_has_it_already_gets_304() -> None:
    answer = answer_to(request(if_none_match=f'"{SIGNED.etag}"'), PORT, SIGNED)
    assert (answer.status, answer.body) == (304, b"")
    assert answer_to(request(if_none_match='"other"'), PORT, SIGNED).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"127.0.0.1.evil:{PORT}", ""]
)
def test_a_request_that_names_another_server_is_421(host: str) -> None:
    _is_error(answer_to(request(host=host), PORT, SIGNED), 421, "E_MANIFEST_INVALID")


def test_a_request_that_names_none_is_421() -> None:
    old = h11.Request(method="GET", target=PATH, headers=[], http_version="1.0")
    _is_error(answer_to(old, PORT, SIGNED), 421, "E_MANIFEST_INVALID")


@pytest.mark.parametrize(
    "target", ["/", "/.well-known/mcp.json/", "/.well-known/other", f"http://127.0.0.1:{PORT}{PATH}"]
)
def test_any_other_page_is_404(target: str) -> None:
    _is_error(answer_to(request(target=target), PORT, SIGNED), 404, "E_MANIFEST_NOT_FOUND")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_any_other_method_is_405(method: str) -> None:
    answer = answer_to(request(method), PORT, SIGNED)
    _is_error(answer, 405, "E_VERB_UNSUPPORTED")
    assert answer.headers["allow"] == "GET"


def test_before_there_is_a_manifest_it_is_503() -> None:
    _is_error(answer_to(request(), PORT, None), 503, "E_NODE_OFFLINE")


def test_what_is_no_http_is_400() -> None:
    _is_error(answer_to(None, PORT, SIGNED), 400, "E_MANIFEST_INVALID")


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.integers(1, 65535))
def test_no_host_but_our_own_names_gets_the_manifest(host: str, port: int) -> None:
    answer = answer_to(request(host=host), port, SIGNED)
    assert (answer.status == 200) == (
        host.lower() in {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    )


# ---- on the wire -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(signed: SignedManifest | None = SIGNED) -> AsyncIterator[LocalPage]:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            page = await LocalPage.open(0, lambda: signed)
            nursery.start_soon(page.run)
            yield page
            nursery.cancel_scope.cancel()


async def asked(page: LocalPage, data: bytes) -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", page.port)
    answer = b""
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data)
            async for chunk in stream:
                answer += chunk
    return answer


def get(page: LocalPage, **headers: str) -> bytes:
    lines = [f"GET {PATH} HTTP/1.1", f"Host: 127.0.0.1:{page.port}", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def test_it_is_served_over_http() -> None:
    async with served() as page:
        head, _, body = (await asked(page, get(page))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nconnection: close" in head
        assert json.loads(body) == MANIFEST


async def test_answer_to_a_head_has_no_body() -> None:
    async with served() as page:
        head, _, body = (await asked(page, get(page).replace(b"GET", b"HEAD", 1))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 405 ")
        assert body == b""


async def test_it_listens_on_the_loopback_address_alone() -> None:
    async with served() as page:
        assert page._listener.socket.getsockname()[0] == "127.0.0.1"  # noqa: SLF001


@pytest.mark.parametrize("data", [b"\x16\x03\x01rubbish\r\n\r\n", b"GET\r\n\r\n", b"x" * 20_000])
async def test_rubbish_is_400(data: bytes) -> None:
    async with served() as page:
        assert (await asked(page, data)).startswith(b"HTTP/1.1 400 ")
        assert (await asked(page, get(page))).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_hangs_up_or_resets_costs_nothing() -> None:
    async with served() as page:
        for _ in range(2 * page_module.CONNECTIONS_MAX):
            stream = await trio.open_tcp_stream("127.0.0.1", page.port)
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            stream.socket.close()
        while page._open:  # noqa: SLF001
            await trio.lowlevel.checkpoint()
        assert (await asked(page, get(page))).startswith(b"HTTP/1.1 200 ")


async def test_connections_are_bounded_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(page_module, "CONNECTION_S_MAX", 0.3)
    async with served() as page:
        idle = [await trio.open_tcp_stream("127.0.0.1", page.port) for _ in range(2)]
        while page._open < 2:  # noqa: SLF001
            await trio.lowlevel.checkpoint()
        assert await asked(page, get(page)) == b"", "closed without a response"
        for stream in idle:
            assert await stream.receive_some() == b"", "its time is up"
            await stream.aclose()
        while page._open:  # noqa: SLF001
            await trio.lowlevel.checkpoint()
        assert (await asked(page, get(page))).startswith(b"HTTP/1.1 200 ")


async def test_a_port_that_is_taken_is_found_out_at_once() -> None:
    async with served() as page:
        with pytest.raises(OSError, match="in use"):
            await LocalPage.open(page.port, lambda: None)
