"""Attacks on members' sessions and sign-in, on a whole gateway. Those on the authorization server alone are with it
(`tests/gateway/identity/oauth/test_attacks.py`)."""

import json
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
import structlog
from mcp import Client
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult

from tests.gateway.api.live import Answer
from tests.gateway.identity.oauth.member_client import Consenting
from tests.gateway.identity.oauth.site import CHALLENGE, REDIRECT
from tests.gateway.mcp.site import until
from tests.gateway.mcp.space_site import call, failure, space_site
from tests.gateway.mcp.test_member_sessions import PLENTY, guest, owner, refused, token_of
from tests.gateway.spaces.test_iam_live import Person
from tests.gateway.spaces.test_live import ask, make, request
from tests.gateway.spaces.test_oauth_live import consent, exchange, post_form

ASKED = 'scope="echo.full"'


def outcome(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


def files_in(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


async def test_token_in_a_query_opens_nothing_anywhere(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one, httpx2.AsyncClient() as http:
        ann = await owner(one)
        gateway, token = one.site.gateway, token_of(ann)
        for name in ("access_token", "token", "bearer"):
            query = urlencode({name: token})
            assert refused(await http.post(f"{one.url}?{query}", content=b"{}")) == (401, ASKED)
            answer = await ask(gateway, request("GET", f"{ann.api}/kv?{query}"))
            assert answer.status == 401
            assert token not in answer.body.decode()
        fields = {"grant_type": "refresh_token", "refresh_token": ann.tokens["refresh_token"]}
        assert (await ask(gateway, request("POST", f"/oauth/token?{urlencode(fields)}"))).status == 400
        assert (await ask(gateway, request("POST", f"/oauth/revoke?{urlencode({'token': token})}"))).status == 400
        async with one.site.client(token) as client:
            assert not (await call(client, "echo_space_info"))["isError"], "and it was not used up by that"


async def test_second_use_of_a_code_ends_the_session_that_the_first_opened(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        code = await consent(ann)
        given = (await exchange(one.site.gateway, code)).json
        async with one.site.client(given["access_token"]) as client:
            await client.initialize()
            assert outcome(await exchange(one.site.gateway, code)) == (400, "invalid_grant")
            assert refused(await client.post(client.request("ping", {}))) == (401, ASKED)
            await until(lambda: one.sessions == 0)
        async with one.site.client(token_of(ann)) as client:
            assert not (await call(client, "echo_space_info"))["isError"], "her own sign-in is another grant"


async def test_reuse_of_a_refresh_token_ends_the_thiefs_session_too(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        ann = await owner(one)
        stolen, gateway = ann.tokens["refresh_token"], one.site.gateway
        thief = (await post_form(gateway, "/oauth/token", grant_type="refresh_token", refresh_token=stolen)).json
        async with one.site.client(thief["access_token"]) as client:
            await client.initialize()
            next_one = {"grant_type": "refresh_token", "refresh_token": thief["refresh_token"]}
            assert (await post_form(gateway, "/oauth/token", **next_one)).status == 200
            reused = await post_form(gateway, "/oauth/token", grant_type="refresh_token", refresh_token=stolen)
            assert outcome(reused) == (400, "invalid_grant")
            assert refused(await client.post(client.request("ping", {}))) == (401, ASKED)
            await until(lambda: one.sessions == 0)


@pytest.mark.parametrize("other", [{"iss": "https://evil.example"}, {"state": "another"}])
@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
async def test_answer_of_another_server_or_request_is_no_answer_to_the_client(
    tmp_path: Path, other: dict[str, str]
) -> None:
    """Mix-up: we name ourselves and the request in every answer, so that a client can tell."""

    class Mixed(Consenting[Person]):
        async def wait(self) -> AuthorizationCodeResult:
            return (await super().wait()).model_copy(update=other)

    async with space_site(tmp_path, **PLENTY) as one:
        person = Mixed(await owner(one))
        async with person.http(person.provider(one.url)) as http:
            with pytest.raises(OAuthFlowError):
                await http.post(one.url, content=b"{}")
        assert person.storage.tokens is None
        answered = dict(parse_qsl(urlsplit(person.pages[0]).query))
        assert person.answer["state"] == answered["state"]
        assert one.site.gateway.base is not None
        assert person.answer["iss"] == f"{one.site.gateway.base()}/oauth"


async def test_consent_page_of_a_whole_gateway_cannot_be_framed_and_sends_no_referrer(tmp_path: Path) -> None:
    async with space_site(tmp_path, **PLENTY) as one:
        await owner(one)
        asked = {"response_type": "code", "redirect_uri": REDIRECT, "code_challenge": CHALLENGE}
        query = urlencode({**asked, "code_challenge_method": "S256"})
        shown = await ask(one.site.gateway, request("GET", f"/oauth/authorize?{query}"))
        assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
        assert shown.headers["referrer-policy"] == "no-referrer"
        assert shown.headers["cache-control"] == "no-store"
        assert shown.headers["set-cookie"].startswith("__Host-")
        plain = urlencode({**asked, "code_challenge_method": "plain"})
        downgraded = await ask(one.site.gateway, request("GET", f"/oauth/authorize?{plain}"))
        assert "error=invalid_request" in downgraded.headers["location"]


@pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")
async def test_no_secret_of_a_whole_flow_is_in_a_log_line_a_metric_an_error_or_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    marked, said = ["MARKED-VALUE", "MARKED-KEY", "QUJDTUFSS0VE"], list[str]()
    with structlog.testing.capture_logs() as logs:
        async with space_site(tmp_path, **PLENTY, log__mcp=True, http__metrics_open=True) as one:
            gateway = one.site.gateway
            made = await make(gateway)
            ann = await owner(one)
            bob = await guest(ann, "kv_read")
            person = Consenting(ann)
            provider = person.provider(one.url)
            async with (
                person.http(provider) as http,
                Client(streamable_http_client(one.url, http_client=http), mode="legacy") as client,
            ):
                assert person.storage.tokens is not None
                tokens = [person.storage.tokens]
                await client.call_tool("echo_kv_set", {"key": "MARKED-KEY", "value": "MARKED-VALUE"})
                await client.call_tool("echo_file_upload", {"data_base64": "QUJDTUFSS0VE"})
                provider.context.token_expiry_time = 1.0
                await client.call_tool("echo_space_info", {})
                tokens.append(person.storage.tokens)
            async with one.site.client(token_of(bob)) as other:
                said.append(json.dumps(await failure(other, "echo_kv_set", key="MARKED-KEY", value="MARKED-VALUE")))
            room = ann.api.removeprefix("/api/s/")
            marked += [room, made["token"], made["claim"], ann.cookie.partition("=")[2], person.answer["code"]]
            for given in (ann.tokens, bob.tokens):
                marked += [given["access_token"], given["refresh_token"]]
            for pair in tokens:
                marked += [pair.access_token, pair.refresh_token or ""]
            for secret in marked[3:]:  # each as a credential in the wrong place
                async with one.site.client(secret) as wrong:
                    said.append((await wrong.modern("tools/list")).text if secret != room else "")
                refusal = await post_form(gateway, "/oauth/token", grant_type="refresh_token", refresh_token=secret)
                said.append(refusal.body.decode() if refusal.status != 200 else "")
                if refusal.status == 200:
                    marked += [refusal.json["access_token"], refusal.json["refresh_token"]]
            metrics = await ask(gateway, request("GET", "/metrics"))
            assert metrics.status == 200
            said += [metrics.body.decode(), *person.pages]
            kept = files_in(tmp_path)
    out = capsys.readouterr()
    everywhere = "\n".join([json.dumps(logs, default=str), caplog.text, out.out, out.err, *said])
    assert any(line["event"] == "mcp" for line in logs)
    assert any(line["event"] == "space_call" for line in logs)
    of_sign_in = [(line["http_method"], line["route"], line["outcome"]) for line in logs if line["event"] == "oauth"]
    assert ("GET", "/oauth/authorize", "answered") in of_sign_in
    assert ("POST", "/oauth/token", "refused") in of_sign_in
    assert [secret for secret in marked if secret and secret in everywhere] == []
    kept |= files_in(tmp_path)
    assert [
        (secret, file.name) for secret in marked for file, data in kept.items() if secret and secret.encode() in data
    ] == []
