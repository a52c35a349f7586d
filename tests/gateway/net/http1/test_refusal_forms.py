"""What the door refuses is said in the form of the path that was asked for, as far as that is known."""

from collections.abc import Awaitable, Callable

import pytest

from gateway.net.body_pace_rules import BODY_PACE, BodyPace
from gateway.net.http1.app_call import AsgiScope, Receive, Send
from gateway.net.http1.heads import claimed
from gateway.net.http1.settings import DoorSettings
from gateway.net.refusal_form import RefusalForm, Refused
from tests.gateway.net.http1.site import HOST, Response, answer, echo, read_body, site

pytestmark = pytest.mark.usefixtures("transport")


def other_form(status: int, correlation_id: str) -> Refused:
    assert len(correlation_id) == 26
    return Refused(418, ((b"content-type", b"text/plain"), (b"x-form", b"other")), b"%d" % status)


def form_of(path: str) -> RefusalForm | None:
    return other_form if path.startswith("/other/") else None


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"GET /a/b?c HTTP/1.1\r\n", "/a/b"),
        (b"GET /a", "/a"),
        (b"BREW /a%20b HTTP/1.1\r\n", "/a b"),
        (b"GET http://h/a?b HTTP/1.1\r\n", "/a"),
        (b"GET /%ff HTTP/1.1\r\n", "/\ufffd"),
        (b"GET /" + b"x" * 9999, "/" + "x" * 2043),
        (b"GET * HTTP/1.1\r\n", ""),
        (b"GET\r\n /a", ""),
        (b"\x00\xff", ""),
        (b"", ""),
    ],
)
def test_path_of_a_head_that_is_no_good_is_what_its_first_line_claims(data: bytes, path: str) -> None:
    assert claimed(data).path == path


REFUSED: dict[bytes, int] = {
    b"GET %b/%%ff HTTP/1.1\r\n" + HOST + b"\r\n": 400,
    b"BREW! %b/ HTTP/1.1\r\n" + HOST + b"\r\n": 400,
    b"GET %b/ HTTP/1.1\r\n\r\n": 400,
    b"POST %b/ HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n": 400,
    b"POST %b/ HTTP/1.1\r\n" + HOST + b"Content-Length: 1001\r\n\r\n": 413,
    b"GET %b/" + b"x" * 17_000 + b" HTTP/1.1\r\n": 431,
    b"GET %b/ HTTP/1.1\r\n" + HOST + b"x: " + b"x" * 17_000: 431,
}


@pytest.mark.parametrize(("request_line", "status"), REFUSED.items(), ids=range(len(REFUSED)))
async def test_refusal_before_any_route_has_the_form_of_its_path(request_line: bytes, status: int) -> None:
    async with site(form_of=form_of) as here:
        async with here.client() as client:
            told = await client.ask(request_line % b"/other")
            assert (told.status, told.body, told.headers[b"x-form"]) == (418, b"%d" % status, b"other")
            assert told.headers[b"connection"] == b"close"
        async with here.client() as client:
            told = await client.ask(request_line % b"/one")
            assert told.status == status
            assert told.code


@pytest.mark.parametrize(("request_line", "status"), REFUSED.items(), ids=range(len(REFUSED)))
async def test_refusal_of_a_head_has_no_body(request_line: bytes, status: int) -> None:
    asked = request_line.replace(b"GET ", b"HEAD ").replace(b"POST ", b"HEAD ") % b"/one"
    async with site(form_of=form_of) as here, here.client() as client:
        await client.send(asked)
        told = await client.response(to_head=asked.startswith(b"HEAD "))
        assert told.status == status
        assert int(told.headers[b"content-length"]) > 0, "that of the body which another method would get"
        assert await client.rest() == b""


async def crash(_: AsgiScope, _receive: Receive, _send: Send) -> None:
    raise ValueError("no")


async def late(here_ask: Callable[[bytes], Awaitable[Response]], path: bytes) -> Response:
    return await here_ask(b"POST %b HTTP/1.1\r\n" % path + HOST + b"Content-Length: 5\r\n\r\n")


async def test_body_that_does_not_come_and_application_that_fails_have_the_form_of_their_path() -> None:
    async with site(settings=DoorSettings(body_s_max=0.0), form_of=form_of) as here:
        async with here.client() as client:
            assert (await late(client.ask, b"/other/")).body == b"408"
        async with here.client() as client:
            assert (await late(client.ask, b"/one")).status == 408
    async with site(crash, form_of=form_of) as here, here.client() as client:
        assert (await client.get("/other/")).body == b"500"


async def paced(scope: AsgiScope, receive: Receive, send: Send) -> None:
    scope["extensions"][BODY_PACE](BodyPace(20.0, 1, 20.0))
    await answer(send, await read_body(receive) or b"gone")


async def test_route_that_sets_a_pace_waits_for_its_body_longer_than_for_others() -> None:
    for app, status in ((paced, 200), (echo, 408)):
        async with site(app, DoorSettings(body_s_max=0.0)) as here, here.client() as client:
            head = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n"
            assert (await client.ask(head)).status == 100  # so it is waited for
            assert (await client.ask(b"hello")).status == status


@pytest.mark.parametrize("pace", [BodyPace(0.05, 1_000_000_000, 20.0), BodyPace(20.0, 1, 0.05)])
async def test_body_slower_than_its_pace_is_408(pace: BodyPace) -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        scope["extensions"][BODY_PACE](pace)
        await answer(send, await read_body(receive) or b"gone")

    async with site(app) as here, here.client() as client:
        assert (await late(client.ask, b"/")).code == "E_DEADLINE_EXCEEDED"


async def test_route_that_sets_a_pace_may_say_the_form_whatever_its_path() -> None:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        scope["extensions"][BODY_PACE](BodyPace(20.0, 1, 0.05), other_form)
        await answer(send, await read_body(receive) or b"gone")

    async with site(app, form_of=form_of) as here, here.client() as client:
        told = await late(client.ask, b"/one")
        assert (told.status, told.body) == (418, b"408")
