"""Whatever is sent to a live gateway: never a 500, never a hang; a documented success or the error envelope."""

import base64
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any
from urllib.parse import quote

import pytest
import structlog
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from schemas.contract import contract
from schemas.errors import CODE_OF_STATUS, Code, http_status
from tests.gateway.api.live import Answer, Live, live_gateway, request

PATIENCE_S = 20.0  # for one answer; a call has 5 s
MANY = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STATUSES = {
    code: {http_status(code), http_status(code, authenticated=False)}
    | {status for status, borrowed in CODE_OF_STATUS.items() if borrowed is code}
    for code in Code
}


class Here:
    """The gateway's address and what to show at its door; it runs in a thread of its own."""

    def __init__(self, live: Live) -> None:
        self.port = live.port
        self.node_id = live.node_id
        self.good_call = live.good_call()
        revoked = live.token(jti="01HZXC0000000000000000J000")
        live.gateway.folder.revoke("01HZXC0000000000000000J000")
        good = live.token()
        head, claims, signature = good.split(".")
        unsigned = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').decode().rstrip("=")
        self.tokens = [
            good,
            live.token(scopes=[]),
            live.token(scopes=[Scope.PHYSICAL_ACTUATION]),
            live.token(scopes=list(Scope)),
            live.token(tenant="globex"),
            live.token(token_class=TokenClass.OPERATOR, sub="ada", scopes=list(OperatorScope)),
            live.token(token_class=TokenClass.DEVICE_RUNTIME, sub=live.node_id, scopes=[Scope.DEVICE_CONNECT]),
            live.token(now_ms=1_000_000_000_000),
            revoked,
            f"{unsigned}.{claims}.",
            f"{head}.{claims}.{signature[::-1]}",
            "",
            "a.b.c",
        ]
        self.logged: list[Any] = []

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as sock:
            yield sock

    def ask(self, data: bytes, method: str = "GET") -> Answer:
        """The answer to one request, as a client that is not ours reads it."""
        with self.connected() as sock:
            sock.sendall(data)
            response = HTTPResponse(sock, method=method)
            response.begin()
            return Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, response.read())

    def call_succeeds(self) -> bool:
        """A good call, as soon as the capability's limits let it through."""
        deadline = time.monotonic() + PATIENCE_S
        while (answer := self.ask(self.good_call, "POST")).status == 429 and time.monotonic() < deadline:
            time.sleep(answer.json["retry_after_ms"] / 1000)
        return (answer.status, answer.json.get("message")) == (200, "ping")

    def is_unharmed(self) -> bool:
        return self.call_succeeds() and not [line for line in self.logged if line["log_level"] == "error"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    began = threading.Event()
    made: list[tuple[Here, trio.Event, trio.lowlevel.TrioToken]] = []

    async def live() -> None:
        stop = trio.Event()
        async with live_gateway(tmp_path_factory.mktemp("gateway")) as gateway:
            made.append((Here(gateway), stop, trio.lowlevel.current_trio_token()))
            began.set()
            await stop.wait()

    with structlog.testing.capture_logs() as logged:
        thread = threading.Thread(target=trio.run, args=(live,))
        thread.start()
        assert began.wait(PATIENCE_S)
        one, stop, token = made[0]
        one.logged = logged
        yield one
        token.run_sync_soon(stop.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def flaw(answer: Answer, *, to_head: bool = False) -> str | None:
    """What is not as documented; None when all is."""
    if answer.status in (204, 304) or (answer.status == 200 and to_head):  # 204: OPTIONS /healthz
        return None if answer.body == b"" else "a body where none may be"
    if answer.status == 200:
        return None if isinstance(answer.json, dict) else "not an object"
    if to_head:
        return None if answer.status in set().union(*STATUSES.values()) - {500} else f"status {answer.status}"
    error = answer.json
    if not contract("error@1.2.0").is_valid(error):
        return f"not the envelope: {error}"
    code = Code(error["code"])
    if answer.headers.get("x-correlation-id") != error.get("correlation_id"):
        return "another correlation id in the header"
    error.pop("details", None)  # new in 1.2.0
    if contract("error@1.0.0").is_valid(error) is (code is Code.BAD_REQUEST):
        return "E_BAD_REQUEST, and nothing else, is new in 1.1.0"
    if code in (Code.INTERNAL, Code.ATTESTATION_FAILED) or answer.status not in STATUSES[code]:
        return f"{code} with {answer.status}"
    if not re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", error.get("correlation_id", "")):
        return "no correlation id"
    needed = {401: "www-authenticate", 405: "allow", 429: "retry-after"}.get(answer.status)
    return None if needed is None or needed in answer.headers else f"no {needed}"


# ---- requests, near the right ones ---------------------------------------------------------------------------------

NODE = "NODE"  # stands for the id of the node, which is not known until the gateway runs
TOOLS = [f"sysecho.{NODE}.echo.invoke", f"sys.{NODE}.metrics.snapshot", f"sys.{NODE}.metrics.subscribe"]
ROUTES = [
    "/mcp/tools/call", "/mcp/tools", "/mcp/budget", "/schemas/", "/schemas/error@1.1.0", "/devices",
    f"/devices/{NODE}/manifest", "/.well-known/jwks.json", "/healthz", "/readyz", "/admin/nodes", f"/admin/log/{NODE}",
    "/admin/mint", "/admin/enroll", "/admin/revoke",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
PRINTABLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30)
LATIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40)


@st.composite
def bent(draw: st.DrawFn, texts: list[str]) -> str:
    """One of them, as it is or with a piece replaced."""
    text = draw(st.sampled_from(texts))
    if draw(st.booleans()):
        return text
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(PRINTABLE) + text[at + draw(st.integers(0, 3)) :]


@st.composite
def targets(draw: st.DrawFn) -> str:
    path = draw(bent(ROUTES))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(path)))
        path = path[:at] + quote(draw(st.text(max_size=4)).encode(errors="surrogatepass"), safe="") + path[at:]
    path = draw(st.sampled_from([path, path + "/", "/" + path, path.upper(), path.replace("/", "/./"), path + "%00"]))
    query = draw(st.dictionaries(st.sampled_from(["limit", "cursor", "after", "x"]), PRINTABLE | st.text(), max_size=3))
    pairs = [f"{name}={quote(value.encode(errors='surrogatepass'))}" for name, value in query.items()]
    target = path + ("?" + "&".join(pairs) if pairs else "")
    return re.sub(r"[^!-~]|#", "_", target if target.startswith("/") else "/" + target)


BODIES = st.one_of(
    st.fixed_dictionaries(
        {"tool": bent(TOOLS), "arguments": st.fixed_dictionaries({}, optional={"message": JSON, "include": JSON})}
    ),
    st.fixed_dictionaries({"tool": st.sampled_from(TOOLS) | JSON, "arguments": JSON}),
    st.fixed_dictionaries({}, optional={"tenant": JSON, "node_id": JSON, "jti": JSON, "sub": JSON, "life_s": JSON}),
    JSON,
).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=200)  # fmt: skip
SCHEMES = st.sampled_from(["Bearer {}", "bearer {}", "Bearer  {} ", "Basic {}", "{}", "Bearer", "Bearer {} {}"])
OTHER_HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Accept", "If-None-Match", "X-Forwarded-For", "Content-Type", "Cookie", "Upgrade"]), LATIN
    ),
    max_size=3,
)
METHODS = st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])


def framed(body: bytes, *, chunked: bool) -> tuple[str, bytes]:
    if not chunked:
        return f"Content-Length: {len(body)}", body
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return "Transfer-Encoding: chunked", chunk + b"0\r\n\r\n"


def test_every_well_formed_request_has_a_documented_answer(here: Here) -> None:
    @MANY
    @given(METHODS, targets(), SCHEMES, st.sampled_from(here.tokens), OTHER_HEADERS, BODIES, st.booleans())
    def throw(
        method: str, target: str, scheme: str, token: str, others: list[tuple[str, str]], body: bytes, chunked: bool
    ) -> None:
        framing, payload = framed(body.replace(NODE.encode(), here.node_id.encode()), chunked=chunked)
        lines = [f"{method} {target.replace(NODE, here.node_id)} HTTP/1.1", "Host: test", framing]
        lines += [f"Authorization: {scheme.replace('{}', token)}", *(f"{name}: {value}" for name, value in others)]
        data = "\r\n".join([*lines, "", ""]).encode("latin-1") + payload
        answer = here.ask(data, method)
        if target.partition("?")[0] == "/mcp":  # a wrong Host is told there by the SDK, in a line of text
            assert answer.status < 500
        else:
            assert flaw(answer, to_head=method == "HEAD") is None

    throw()
    assert here.is_unharmed()


def test_every_call_near_a_good_one_has_a_documented_answer(here: Here) -> None:
    """With good tokens, so that it gets as far as the node."""

    @MANY
    @given(st.sampled_from(here.tokens[:4]), BODIES)
    def throw(token: str, body: bytes) -> None:
        payload = body.replace(NODE.encode(), here.node_id.encode())
        assert flaw(here.ask(request("POST", "/mcp/tools/call", token, payload), "POST")) is None

    throw()
    assert here.is_unharmed()


# ---- bytes ----------------------------------------------------------------------------------------------------------


@st.composite
def broken(draw: st.DrawFn, good: bytes) -> bytes:
    """A good request, cut, with some bytes changed, or followed by more."""
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=6))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def test_any_bytes_get_documented_answers_or_none(here: Here) -> None:
    @MANY
    @given(st.binary(max_size=300) | broken(here.good_call))
    def throw(data: bytes) -> None:
        received = b""
        with here.connected() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)  # there is no more: whoever waits for the rest learns it now
            with contextlib.suppress(ConnectionResetError):  # a call's caller that sends no more is taken for gone
                while piece := sock.recv(65536):
                    received += piece
        for status, head, answer in re.findall(
            rb"HTTP/1\.1 (\d\d\d) .*?\r\n(.*?)\r\n\r\n(\{.*?\})(?=HTTP/1\.1|\Z)", received, re.DOTALL
        ):
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            assert flaw(Answer(int(status), headers, answer)) is None
        assert b"HTTP/1.1 500" not in received

    throw()
    assert here.is_unharmed()
