"""`POST /devices/renew` over real sockets, with a fake register behind it: rubbish, every refusal, and the answer."""

import contextlib
import json
import ssl
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from actors.bus.renewal import NotRenewed, Renewed
from gateway.devices import renewals
from gateway.devices.listener import ListenerSettings
from gateway.devices.renewal_rules import BODY_BYTES_MAX, Head, Refusal, read_head
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from gateway.main.clock import now
from schemas.contract import contract
from schemas.manifest import NodeIdentity
from schemas.renewal import request_of
from tests.certificates import tls_contexts
from tests.gateway.devices.site import Site, dial, open_site, token
from tests.gateway.devices.test_device_listener import until
from tests.schemas.attested import NODE_KEY, TENANT
from tests.schemas.examples import NODE_ID

NEXT_KEY = SigningKey(bytes([9]) * 32)
OTHER_NODE = "01hzxc000000000000000000zz"
TOKEN_ID = "01HZXC0000000000000000TKN0"


class Register:
    """Answers as it is told to, and knows what it was asked."""

    def __init__(self, *answers: Renewed | NotRenewed) -> None:
        self.asked: list[tuple[NodeIdentity, str, str, bytes]] = []
        self._answers = list(answers)

    async def __call__(self, node: NodeIdentity, token_id: str, kid: str, public_key: bytes) -> Renewed | NotRenewed:
        await trio.lowlevel.checkpoint()
        self.asked.append((node, token_id, kid, public_key))
        return self._answers.pop(0) if self._answers else Renewed("a.b.c", b"0\x82")


def body_of(site: Site, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "node_id": NODE_ID,
        "kid": site.leaf.kid,
        "public_key": NEXT_KEY.verify_key.encode(),
        "iat": now().wall_ms // 1000,
        "nonce": bytes(16),
    }
    return request_of(NODE_KEY, **fields | changes)


def post(body: bytes, bearer: str | None = None, **headers: str) -> bytes:
    lines = [
        "POST /devices/renew HTTP/1.1",
        "Host: gateway",
        *([f"Content-Length: {len(body)}"] if "Content_Length" not in headers else []),
        *([f"Authorization: Bearer {bearer}"] if bearer is not None else []),
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def answered(site: Site, request: bytes, tls: ssl.SSLContext | None = None) -> tuple[int, dict[str, str], Any]:
    stream: Any
    if tls is None:
        stream = await trio.open_tcp_stream("127.0.0.1", site.port)
    else:
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", site.port, ssl_context=tls, https_compatible=True)
    answer = b""
    async with stream:
        await stream.send_all(request)
        while b"\r\n\r\n" not in answer or len(answer) < _whole(answer):
            answer += await stream.receive_some()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, json.loads(body)


def _whole(answer: bytes) -> int:
    head, end, _ = answer.partition(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length: "))
    return len(head + end) + int(length.removeprefix(b"content-length: "))


async def ask(site: Site, bearer: str | None = None, **changes: Any) -> tuple[int, dict[str, str], Any]:
    bearer = token() if bearer is None else bearer
    return await answered(site, post(json.dumps(body_of(site, **changes)).encode(), bearer))


# ---- the answer ------------------------------------------------------------------------------------------------------


async def test_proved_request_is_answered_with_the_new_token_and_certificate() -> None:
    register = Register()
    async with open_site(renew=register) as site:
        status, headers, body = await ask(site, token(jti=TOKEN_ID))
        assert (status, body) == (200, {"token": "a.b.c", "certificate": "3082"})
        assert contract("node.renew.answer@1.0.0").is_valid(body)
        assert headers["connection"] == "close"
        assert headers["cache-control"] == "no-store"
        assert register.asked == [
            (NodeIdentity(NODE_ID, TENANT), TOKEN_ID, site.leaf.kid, NEXT_KEY.verify_key.encode())
        ]
        await until(lambda: site.listener.strangers == 0)


async def test_gateway_that_makes_no_tokens_answers_null() -> None:
    async with open_site(renew=Register(Renewed(None, b"0\x82"))) as site:
        assert (await ask(site))[2] == {"token": None, "certificate": "3082"}


async def test_renewal_over_tls(tmp_path: Path) -> None:
    server, client = tls_contexts(tmp_path)
    async with open_site(tls=server, renew=Register()) as site:
        request = post(json.dumps(body_of(site)).encode(), token())
        assert (await answered(site, request, client))[0] == 200
        assert (await answered(site, post(b"{}", None), client))[0] == 401


async def test_request_that_comes_byte_by_byte_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_site(renew=Register()) as site:
        request = post(json.dumps(body_of(site)).encode(), token())
        stream = await trio.open_tcp_stream("127.0.0.1", site.port)
        stream.setsockopt(6, 1, 1)  # TCP_NODELAY
        async with stream:
            for at in range(len(request)):
                await stream.send_all(request[at : at + 1])
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_one_connection_carries_one_request() -> None:
    register = Register()
    async with open_site(ListenerSettings(), renew=register) as site:
        request = post(json.dumps(body_of(site)).encode(), token())
        assert (await answered(site, request + request))[0] == 200
        await until(lambda: site.listener.strangers == 0)
        assert len(register.asked) == 1


async def test_nodes_still_connect_beside_renewals() -> None:
    async with open_site(renew=Register()) as site, dial(site) as node:
        await node.go_live(site)
        assert (await ask(site))[0] == 200


# ---- refusals --------------------------------------------------------------------------------------------------------


def _refused(answer: tuple[int, dict[str, str], Any], status: int, code: str) -> None:
    assert (answer[0], answer[2]["code"]) == (status, code)
    assert contract("error@1.0.0").is_valid(answer[2])
    assert len(answer[2]["correlation_id"]) == 26
    assert answer[1]["connection"] == "close"


@pytest.mark.parametrize(
    "bearer",
    [
        lambda: "",
        lambda: "rubbish",
        lambda: token(now_ms=1_000_000),
        lambda: token(jti=TOKEN_ID),
        lambda: token(token_class=TokenClass.OPERATOR, scopes=[OperatorScope.FLEET_WRITE]),
    ],
    ids=["none", "bad", "expired", "revoked", "of another class"],
)
async def test_token_that_is_no_good_is_401(bearer: Callable[[], str]) -> None:
    register = Register()
    async with open_site(renew=register) as site:
        site.verifier.revoke(TOKEN_ID)
        answer = await ask(site, bearer())
        _refused(answer, 401, "E_SAFETY_DENIED")
        assert answer[1]["www-authenticate"] == 'Bearer realm="heliograph"'
        assert register.asked == []


async def test_authorization_that_comes_twice_is_none() -> None:
    async with open_site(renew=Register()) as site:
        request = post(json.dumps(body_of(site)).encode(), token(), authorization="Bearer x")
        _refused(await answered(site, request), 401, "E_SAFETY_DENIED")


@pytest.mark.parametrize(
    ("changes", "claims"),
    [
        ({"node_id": OTHER_NODE}, {}),
        ({}, {"sub": OTHER_NODE}),
        ({}, {"scopes": [Scope.READ_ONLY]}),
    ],
    ids=["another node asked for", "token of another node", "no device:connect"],
)
async def test_token_of_another_node_is_403(changes: dict[str, Any], claims: dict[str, Any]) -> None:
    register = Register()
    async with open_site(renew=register) as site:
        _refused(await ask(site, token(**claims), **changes), 403, "E_SAFETY_DENIED")
        assert register.asked == []


async def test_certificate_of_another_node_or_tenant_or_of_nobody_is_403() -> None:
    register = Register()
    async with open_site(renew=register) as site:
        site.enroll(NODE_ID, "umbra")
        kids = [site.enroll(OTHER_NODE, TENANT).kid, site.enroll(NODE_ID, "umbra").kid, "00" * 32]
        for kid in kids:
            _refused(await ask(site, kid=kid), 403, "E_ATTESTATION_FAILED")
        assert register.asked == []


async def test_certificate_that_has_ended_is_403() -> None:
    async with open_site(renew=Register()) as site:
        public_key = site.leaf.certificate.public_key()
        ended = site.ca.issue(NODE_ID, TENANT, public_key, now().wall_ms - 10 * 86_400_000, days=5)
        site.certificates.learn(ended)
        _refused(await ask(site, kid=ended.kid), 403, "E_ATTESTATION_FAILED")


@pytest.mark.parametrize("off_s", [-302, 302, -(10**6)])
async def test_stale_iat_is_403(off_s: int) -> None:
    async with open_site(renew=Register()) as site:
        _refused(await ask(site, iat=max(0, now().wall_ms // 1000 + off_s)), 403, "E_ATTESTATION_FAILED")


@pytest.mark.parametrize("off_s", [-290, 290])
async def test_iat_of_a_clock_that_is_a_little_off_is_taken(off_s: int) -> None:
    async with open_site(renew=Register()) as site:
        assert (await ask(site, iat=now().wall_ms // 1000 + off_s))[0] == 200


@pytest.mark.parametrize("field", ["nonce", "public_key", "signature"])
async def test_signature_of_something_else_is_403(field: str) -> None:
    register = Register()
    async with open_site(renew=register) as site:
        body = body_of(site)
        body[field] = body[field][:-1] + ("0" if body[field][-1] != "0" else "1")
        request = post(json.dumps(body).encode(), token())
        _refused(await answered(site, request), 403, "E_ATTESTATION_FAILED")
        assert register.asked == []


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (NotRenewed.NODE_REVOKED, 403, "E_SAFETY_DENIED"),
        (NotRenewed.SECOND_KEY, 403, "E_ATTESTATION_FAILED"),
        (NotRenewed.NOT_RECORDED, 500, "E_INTERNAL"),
    ],
)
async def test_each_refusal_of_the_register_has_its_code(outcome: NotRenewed, status: int, code: str) -> None:
    async with open_site(renew=Register(outcome)) as site:
        _refused(await ask(site), status, code)
        assert (await ask(site))[0] == 200


async def test_register_that_does_not_answer_is_504(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(node: NodeIdentity, token_id: str, kid: str, public_key: bytes) -> Renewed:
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(renewals, "ANSWER_S_MAX", 0.05)
    async with open_site(renew=silent) as site:
        _refused(await ask(site), 504, "E_DEADLINE_EXCEEDED")


async def test_fifth_renewal_of_a_node_in_a_row_is_429() -> None:
    register = Register()
    async with open_site(renew=register) as site:
        for _ in range(renewals.RENEWALS_BURST):
            assert (await ask(site))[0] == 200
        answer = await ask(site)
        _refused(answer, 429, "E_RATE_LIMITED")
        assert 0 < answer[2]["retry_after_ms"] <= renewals.RENEWAL_EVERY_S * 1000
        assert 1 <= int(answer[1]["retry-after"]) <= renewals.RENEWAL_EVERY_S
        assert len(register.asked) == renewals.RENEWALS_BURST
        _refused(await ask(site, token(sub=OTHER_NODE), node_id=OTHER_NODE), 403, "E_ATTESTATION_FAILED")


async def test_whoever_has_the_token_alone_cannot_use_up_the_nodes_renewals() -> None:
    bearer, register = token(jti=TOKEN_ID), Register()
    async with open_site(renew=register) as site:
        body = body_of(site) | {"signature": "00" * 64}
        forged = post(json.dumps(body).encode(), bearer)
        for _ in range(renewals.RENEWALS_BURST):
            _refused(await answered(site, forged), 403, "E_ATTESTATION_FAILED")
        _refused(await answered(site, forged), 429, "E_RATE_LIMITED")
        assert register.asked == []
        assert (await ask(site, bearer))[0] == 200


async def test_failed_proofs_are_counted_for_so_many_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "FAILED_TOKENS_MAX", 1)
    async with open_site(renew=Register()) as site:
        body = body_of(site) | {"signature": "00" * 64}
        one, other = (post(json.dumps(body).encode(), token(jti=TOKEN_ID[:-1] + end)) for end in "12")
        for _ in range(renewals.RENEWALS_BURST):
            assert (await answered(site, one))[0] == 403
        assert [(await answered(site, request))[0] for request in (one, other, one)] == [429, 403, 403]


# ---- what is no request ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 5000, b'{"a":1,"a":1}', b'{"iat": NaN}'],
    ids=["empty", "cut", "list", "null", "bytes", "nested", "twice", "nan"],
)
async def test_body_that_is_rubbish_is_400(body: bytes) -> None:
    async with open_site(renew=Register()) as site:
        _refused(await answered(site, post(body, token())), 400, "E_MANIFEST_INVALID")


@pytest.mark.parametrize(
    "change",
    [{"iat": "1"}, {"iat": 1.5}, {"iat": 10**400}, {"kid": "A" * 64}, {"nonce": "00" * 15}, {"more": "secret"}],
)
async def test_body_of_another_shape_is_400_and_nothing_of_it_is_said(change: dict[str, Any]) -> None:
    async with open_site(renew=Register()) as site:
        request = post(json.dumps(body_of(site) | change).encode(), token())
        answer = await answered(site, request)
        _refused(answer, 400, "E_MANIFEST_INVALID")
        assert "secret" not in json.dumps(answer[2])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Length": ""}, 411),
        ({"Content_Length": "", "Transfer_Encoding": "chunked"}, 411),
        ({"Transfer_Encoding": "chunked"}, 411),
        ({"Content_Length": "-1"}, 400),
        ({"Content_Length": "9" * 30}, 400),
        ({"Content_Length": "2, 3"}, 400),
        ({"Content_Length": str(BODY_BYTES_MAX + 1)}, 413),
        ({"Transfer_Encoding": "gzip"}, 400),
    ],
)
async def test_body_without_one_plain_length_is_not_read(headers: dict[str, str], status: int) -> None:
    async with open_site(renew=Register()) as site:
        _refused(await answered(site, post(b"{}", token(), **headers)), status, "E_MANIFEST_INVALID")


async def test_largest_body_is_read_whole() -> None:
    async with open_site(renew=Register()) as site:
        body = json.dumps(body_of(site)).encode()
        assert (await answered(site, post(body.ljust(BODY_BYTES_MAX), token())))[0] == 200


async def test_body_that_does_not_come_costs_the_connection_in_time() -> None:
    async with open_site(ListenerSettings(handshake_s_max=0.05), renew=Register()) as site:
        stream = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with stream:
            await stream.send_all(post(b"{", token(), Content_Length="100"))
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""
        await until(lambda: site.listener.strangers == 0)


async def test_head_over_the_limit_is_400() -> None:
    async with open_site(ListenerSettings(head_bytes_max=600), renew=Register()) as site:
        request = post(b"{}", "x" * 700)
        assert (await answered(site, request))[0] == 400


@pytest.mark.parametrize("version", ["1.0", "2.0", "0.9"])
async def test_other_version_of_http_is_400(version: str) -> None:
    register = Register()
    async with open_site(renew=register) as site:
        request = post(json.dumps(body_of(site)).encode(), token()).replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)
        answer = await answered(site, request)
        _refused(answer, 400, "E_MANIFEST_INVALID")
        assert answer[2]["message"] == "The request is not HTTP/1.1."
        assert register.asked == []


@pytest.mark.parametrize("change", [(b"Host: gateway", b"X: y"), (b"Content-Length: 2", b"Content-Length: -2")])
async def test_malformed_head_is_not_called_another_version(change: tuple[bytes, bytes]) -> None:
    async with open_site(renew=Register()) as site:
        answer = await answered(site, post(b"{}", token()).replace(*change))
        _refused(answer, 400, "E_MANIFEST_INVALID")
        assert "Host or Content-Length" in answer[2]["message"]


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"DELETE"])
async def test_other_method_is_405_and_told_which_to_use(method: bytes) -> None:
    async with open_site(renew=Register()) as site:
        answer = await answered(site, method + b" /devices/renew HTTP/1.1\r\nHost: x\r\n\r\n")
        _refused(answer, 405, "E_VERB_UNSUPPORTED")
        assert answer[1]["allow"] == "POST"
        assert "POST /devices/renew" in answer[2]["suggested_fix"]


async def test_query_is_ignored() -> None:
    async with open_site(renew=Register()) as site:
        request = post(json.dumps(body_of(site)).encode(), token()).replace(b"renew ", b"renew?x=1 ", 1)
        assert (await answered(site, request))[0] == 200


async def test_revoked_node_is_not_advised_to_renew() -> None:
    async with open_site(renew=Register(NotRenewed.NODE_REVOKED)) as site:
        fix = (await ask(site))[2]["suggested_fix"]
        assert "under a new id" in fix


@pytest.mark.parametrize("line", [b"GET /devices/other", b"POST /devices/renewal", b"GET /devices/renew/x"])
async def test_other_requests_are_as_before(line: bytes) -> None:
    async with open_site(renew=Register()) as site:
        status, _, body = await answered(site, line + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status in (400, 404)
        assert contract("error@1.0.0").is_valid(body)


async def test_without_a_register_there_is_no_such_route() -> None:
    async with open_site() as site:
        status, _, _ = await answered(site, post(b"{}", token()))
        assert status == 400


async def test_stranger_over_the_limit_of_its_address_gets_503() -> None:
    async with open_site(ListenerSettings(strangers_per_address_max=1), renew=Register()) as site:
        idle = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with idle:
            await until(lambda: site.listener.strangers == 1)
            _refused(await ask(site), 503, "E_RATE_LIMITED")
        await until(lambda: site.listener.strangers == 0)
        assert (await ask(site))[0] == 200


async def test_behind_a_proxy_renewals_count_for_the_address_it_vouches_for() -> None:
    settings = ListenerSettings(strangers_per_address_max=1, turned_away_max=0, handshake_s_max=20)
    proxies = (ip_network("127.0.0.1"),)
    async with open_site(settings, trusted_proxies=proxies, renew=Register()) as site:
        waiting = await trio.open_tcp_stream("127.0.0.1", site.port)
        async with waiting:
            await waiting.send_all(post(b"{", token(), Content_Length="100", X_Forwarded_For="192.0.2.1"))
            await until(lambda: site.listener._addresses.open_of("192.0.2.1") == 1)  # noqa: SLF001
            request = post(json.dumps(body_of(site)).encode(), token(), X_Forwarded_For="192.0.2.2")
            assert (await answered(site, request))[0] == 200
            same = await trio.open_tcp_stream("127.0.0.1", site.port)
            async with same:
                await same.send_all(post(b"{}", token(), X_Forwarded_For="192.0.2.1"))
                with contextlib.suppress(trio.BrokenResourceError):
                    assert await same.receive_some() == b"", "closed without a response"


@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=300))
def test_whatever_follows_the_request_line_is_read_or_refused(rest: bytes) -> None:
    read = read_head(b"POST /devices/renew " + rest + b"\r\n\r\n")
    assert isinstance(read, Head | Refusal)


# ---- the version of the agent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (["heliograph/0.1.0"], "heliograph/0.1.0"),
        (["other-agent/2.0+build.7"], "other-agent/2.0+build.7"),
        ([], None),
        (["heliograph"], None),
        (["heliograph/0.1.0 (Linux)"], None),
        (["<b>/1"], None),
        (["a" * 33 + "/1"], None),
        (["a/1", "b/2"], None),
    ],
)
async def test_agent_says_what_it_is_in_its_user_agent(said: list[str], kept: str | None) -> None:
    headers = [("user-agent", value) for value in said]
    async with open_site() as site, dial(site, headers=headers) as node:
        await node.go_live(site)
        record = site.devices.directory.find(NODE_ID)
        assert record is not None
        assert record.agent == kept
