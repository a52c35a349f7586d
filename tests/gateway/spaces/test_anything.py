"""Whatever is sent to the routes of spaces: never a crash, but a documented success or an error of the closed set.

In memory for what routes do with a request, and over a gateway's own door for what is not even one.
"""

import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import structlog
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.space.iam import SpaceIam
from actors.space.rooms import Rooms
from actors.supervision.supervisor import Supervisor
from gateway.api.health import HealthRoutes
from gateway.calls.audit import Audit
from gateway.main.server import running
from gateway.main.settings import load
from gateway.net.http1.heads import claimed
from gateway.net.pump import Pump
from gateway.net.router import Router
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.feature import spaces_feature
from gateway.spaces.refusals import form_at
from gateway.spaces.room_entrance import RoomEntrance
from schemas.echo import echo_pb2 as pb
from schemas.echo.errors import EchoError
from schemas.ulids import Mint
from tests.actors.space.driver import World
from tests.gateway.spaces.site import BASE, PLENTY, Answer, Site
from tests.gateway.spaces.test_live import ON, make

MANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STATUS_OF = {error.word: error.status for error in EchoError}
TOKEN, CLAIM, FILE = "TOKEN", "CLAIM", "FILE"  # stand for what is not known until there is a space

PRINTABLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="?#"), max_size=12)
ESCAPED = st.sampled_from(["%2F", "%2f", "%00", "%0d%0a", "%C3%A9", "..", ".", "~", "%25", "//", "%E2%80%AE"])
PATHS = st.sampled_from(
    ["/spaces", f"/api/s/{TOKEN}", f"/api/s/{TOKEN}/kv", f"/api/s/{TOKEN}/kv/k", f"/api/s/{TOKEN}/files",
     f"/api/s/{TOKEN}/files/{FILE}", f"/s/{TOKEN}/prompt", "/service/description", "/api/s/", "/api/nope", "/healthz",
     f"/ws/s/{TOKEN}", f"/ws/s/{TOKEN}/x", f"/s/{TOKEN}", "/", "/assets/room.js"]
)  # fmt: skip
FIELDS = st.sampled_from(["limit", "prefix", "cursor", "x", "uid", "subs", "since", "epoch", "self", "tz", "loc"])
QUERIES = st.lists(st.tuples(FIELDS, PRINTABLE | ESCAPED | st.sampled_from(["%ff", "%", "1", "k"])), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WRITES = st.fixed_dictionaries(
    {}, optional={"value": st.text(max_size=20) | JSON, "ttl_seconds": JSON, "expires_at": JSON, "encrypt": JSON}
)
FORMS = st.dictionaries(
    st.sampled_from(["password", "encryption", "protocol", "ttl_seconds", "csrf", "x"]), PRINTABLE, max_size=3
).map(lambda fields: "&".join(f"{name}={value}" for name, value in fields.items()).encode())
PARTS = st.tuples(PRINTABLE, st.binary(max_size=60)).map(
    lambda part: (
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\n%b\r\n--B--\r\n'
        % (part[0].encode(), part[1])
    )
)


def part(name: str = "file", content: bytes = b"x", more: bytes = b"") -> bytes:
    return b'--B\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (name.encode(), more, content)


END = b"--B--\r\n"
NESTED = b'--B\r\nContent-Disposition: form-data; name="file"\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\n'
HOSTILE = (
    b"[" * 100_000, b'{"value":' * 20_000, b'{"value":"' + b"x" * 250_000, b'{"value":"\\ud800"}',
    b'{"ttl_seconds":1e999}', b'{"value":"a","value":"b"}', b"\x0b" * 20_000,
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x0a\xff\xff\xff\x7f",
    b"\x10" + b"\xff" * 9 + b"\x01", b"\x0a\x01x" * 20_000, b"\x18" + b"\xff" * 20, b"\xfa\xff\xff\xff\x0f\x00",
    part() + part() + END, part("other") + part() + END, part() + part("other") + END, part("other") * 10_000 + END,
    part() * 10_000 + END, part(), part()[:-2], part()[:40], END, part() + b"--B", part() + END + part(),
    b"--C\r\n" + END,
    NESTED + b'--C\r\nContent-Disposition: file; filename="a"\r\n\r\nx\r\n--C--\r\n' + END,
    b"--B\r\n" + b"x: y\r\n" * 5_000, b"--B\r\nx: " + b"y" * 70_000, b"--B\r\n" + b"x" * 70_000, b"--B\r\n\r\n" + END,
    b"--B\r\nContent-Disposition: form-data; name=file\r\nContent-Disposition: form-data; name=file\r\n\r\nx\r\n" + END,
    part(more=b'; filename="' + b"x" * 5_000 + b'"') + END, part(more=b"; filename*=UTF-8''%ff%00%2f..") + END,
    b"a=b&" * 4_000, b"%" * 10_000, b"ttl_seconds=" + b"9" * 10_000,
)  # fmt: skip
WHICH = st.sampled_from(range(len(HOSTILE)))  # by number: Hypothesis complains of strategies that are long to print
BODIES = st.one_of(
    WHICH.map(lambda which: HOSTILE[which]),
    st.tuples(WHICH, st.integers(0, 300)).map(lambda cut: HOSTILE[cut[0]][: -cut[1] or None]),
    WRITES.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=100).map(lambda value: bytes(pb.KvWrite(value=value, ttl_seconds=5).SerializeToString())),
    FORMS,
    PARTS,
    st.binary(max_size=200),
)
TYPES = st.sampled_from(
    ["application/json", "application/x-protobuf", "multipart/form-data; boundary=B", "multipart/form-data",
     "application/x-www-form-urlencoded", "text/plain", ""]
)  # fmt: skip
LATIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=30)
OTHERS = st.dictionaries(
    st.sampled_from(["accept", "if_match", "if_none_match", "range", "if_range", "origin", "sec_fetch_site", "cookie"]),
    LATIN
    | st.sampled_from(["*", '"1"', "*/*", "application/json", "bytes=0-0", "bytes=-5", "same-origin", "text/html"]),
    max_size=3,
)
BEARERS = st.sampled_from([None, f"Bearer {CLAIM}", f"Bearer {TOKEN}", "Bearer", "Basic x"])
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])


@st.composite
def targets(draw: st.DrawFn) -> str:
    path = draw(PATHS)
    if draw(st.booleans()):
        at = draw(st.integers(1, len(path)))
        path = path[:at] + draw(PRINTABLE | ESCAPED) + path[at + draw(st.integers(0, 3)) :]
    query = "&".join(f"{name}={value}" for name, value in draw(QUERIES))
    return f"{path}?{query}" if query else path


def flaw(answer: Answer, method: str, path: str) -> str | None:
    """What is not as documented; None when all is."""
    if path.startswith("/api/") and answer.headers.get("access-control-allow-origin") != "*":
        return "no CORS"
    if answer.status in (200, 201, 204, 206, 303, 304):
        return None if "x-correlation-id" not in answer.headers else "a success with the id of a failure"
    if method == "HEAD":
        return None if answer.status < 500 else f"status {answer.status}"
    if answer.headers["content-type"].startswith("text/html"):  # for a client that accepts it
        return None if answer.status < 500 and "x-correlation-id" in answer.headers else f"page with {answer.status}"
    error = answer.json
    if form_at(path) is None:  # a path of the device API's: its envelope
        return None if answer.status in (404, 405) and "code" in error else f"another envelope with {answer.status}"
    if set(error) - {"retry_after_ms"} != {"error", "message", "correlation_id"}:
        return f"not the object: {error}"
    if not re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", error["correlation_id"]):
        return "no correlation id"
    if answer.status == 416:
        return None
    if STATUS_OF[error["error"]] != answer.status or answer.status == 500:
        return f"{error['error']} with {answer.status}"
    needed = {401: "www-authenticate", 405: "allow", 429: "retry-after"}.get(answer.status)
    return None if needed is None or needed in answer.headers else f"no {needed}"


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    """All that a gateway with spaces has for those who use them; rooms can be asked for, but not entered."""
    world, pump = World(PLENTY), Pump()
    mint = Mint(world.random)

    def new_id() -> str:
        return mint.mint(world.now_ms)

    async def ready() -> bool:
        return True

    iams: list[SpaceIam] = []
    world.before_load = lambda spaces: iams.append(SpaceIam(spaces, new_id))
    async with world.process() as spaces:
        supervisor = Supervisor()
        admission = SpaceAdmission(spaces.find, world.now, PLENTY)
        rooms = RoomEntrance(admission, Rooms(supervisor, PLENTY, world.now), supervisor, pump, PLENTY)
        feature = spaces_feature(spaces, iams[0], admission, PLENTY, lambda: BASE, new_id, Audit(spaces.now))
        routes = (feature.routes, rooms.feature.routes, HealthRoutes(ready, "kisko-echo").routes)
        yield Site(world, iams[0], Router(new_id, *routes, form_of=feature.refusal_form))
    pump.close()


async def throw(
    here: Site, known: dict[str, str], method: str, target: str, body: bytes, fields: dict[str, str]
) -> None:
    def filled(text: str) -> str:
        for name, value in known.items():
            text = text.replace(name, value)
        return text

    with structlog.testing.capture_logs() as logged:
        answer = await here.ask(method, filled(target), body, **{name: filled(value) for name, value in fields.items()})
    assert flaw(answer, method, unquote(filled(target).partition("?")[0])) is None
    assert not [line for line in logged if line["log_level"] == "error"]
    assert not any(secret in repr(logged) for secret in known.values())


async def one_space(here: Site) -> dict[str, str]:
    made: Any = await here.make()
    form = b'--B\r\nContent-Disposition: form-data; name="file"\r\n\r\ncontent\r\n--B--\r\n'
    path = f"/api/s/{made['token']}/files"
    stored = await here.ask("POST", path, form, content_type="multipart/form-data; boundary=B")
    return {TOKEN: made["token"], CLAIM: made["claim"], FILE: stored.json["file_id"]}


@MANY
@given(METHODS, targets(), TYPES, BODIES, OTHERS, BEARERS)
def test_every_request_to_a_space_has_a_documented_answer(
    method: str, target: str, content_type: str, body: bytes, others: dict[str, str], bearer: str | None
) -> None:
    async def run() -> None:
        async with site() as here:
            fields = {**others, **({"content_type": content_type} if content_type else {})}
            if bearer is not None:
                fields["authorization"] = bearer
            await throw(here, await one_space(here), method, target, body, fields)

    trio.run(run)


@MANY
@given(st.lists(st.tuples(st.sampled_from(["kv/k", "kv/j", "files"]), TYPES, BODIES), max_size=6))
def test_writes_one_after_another_have_documented_answers_and_reads_go_on(
    writes: list[tuple[str, str, bytes]],
) -> None:
    async def run() -> None:
        async with site() as here:
            known = await one_space(here)
            for what, content_type, body in writes:
                fields = {"content_type": content_type} if content_type else {}
                await throw(here, known, "POST", f"/api/s/{TOKEN}/{what}", body, fields)
            for what in ("kv", "files"):
                assert (await here.ask("GET", f"/api/s/{known[TOKEN]}/{what}")).status == 200

    trio.run(run)


# ---- over the door ---------------------------------------------------------------------------------------------------

LINES = st.sampled_from(
    ["Content-Length: 5", "Content-Length: 0", "Content-Length: 99999999999999999999", "Content-Length: -1",
     "Content-Length: x", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Expect: 100-continue",
     "Connection: close", "Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c", "Host: other", "Host: a b", "x",
     "X: " + "x" * 17_000, "Range: bytes=0-1", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
     "Sec-WebSocket-Version: 13", "Authorization: Bearer x", ": x", "X\t: y", "X: \x00",
     "Content-Type: application/json", "Content-Type: multipart/form-data; boundary=B"]
)  # fmt: skip
VERSIONS = st.sampled_from(["HTTP/1.1"] * 6 + ["HTTP/1.0", "HTTP/2.0", "HTTP/1.1 x", ""])
SENT = st.sampled_from([b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"\x00" * 30, part() + END])
ODD_TARGETS = targets() | st.sampled_from(
    [
        "/api/s/%FF",
        "/ws/s/%FF",
        "/spaces?%",
        "/api/s/" + "x" * 17_000,
        "*",
        "http://h/api/nope",
        "/api/s/x#y",
        "/s/\x7f",
    ]
)


def exchanged(port: int, data: bytes) -> bytes:
    """All that comes back, after nothing more is sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        got = b""
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65_536):
                got += piece
        except (ConnectionResetError, BrokenPipeError):
            pass  # refused before all was sent
    return got


def first_answer(got: bytes) -> Answer:
    while got.startswith(b"HTTP/1.1 100"):
        got = got.partition(b"\r\n\r\n")[2]
    head, _, body = got.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), headers, body[: int(headers.get("content-length", 0))])


async def test_whatever_comes_to_the_door_for_a_space_has_a_documented_answer(tmp_path: Path) -> None:
    rates = {f"echo.{name}": 10**6 for name in ("rest_burst", "room_rest_burst", "creations_burst")}
    with trio.fail_after(120), structlog.testing.capture_logs() as logged:
        async with running(load(None, {}, {"data": str(tmp_path), **ON, **rates})) as gateway:
            made = await make(gateway)
            port = int(gateway.http.rpartition(":")[2])

            @settings(MANY, max_examples=500)
            @given(
                METHODS.filter(lambda method: method != "HEAD"),
                ODD_TARGETS,
                VERSIONS,
                st.lists(LINES, max_size=4),
                st.booleans(),
                SENT,
            )
            def throw_bytes(
                method: str, target: str, version: str, lines: list[str], has_host: bool, body: bytes
            ) -> None:
                filled = target.replace(TOKEN, made["token"])
                head = "\r\n".join([f"{method} {filled} {version}", *(["Host: h"] if has_host else []), *lines, "", ""])
                got = exchanged(port, head.encode("latin-1") + body)
                if not got.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"):
                    return  # nobody was there any more to be answered: the body is not whole
                answer = first_answer(got)
                path = claimed(head.encode("latin-1")).path
                if answer.status == 101:
                    assert path.startswith("/ws/s/")
                elif form_at(path) is not None:
                    assert flaw(answer, method, path) is None, answer

            await trio.to_thread.run_sync(throw_bytes)
        assert not [line for line in logged if line["log_level"] == "error"]
        assert made["token"] not in repr(logged)
