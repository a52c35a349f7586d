"""Members of tenants on a whole gateway: invited, joined, signed in, refreshed, revoked; and what is open meanwhile."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
import trio
from structlog.testing import capture_logs

from gateway.commands.cli import main
from gateway.identity.tokens import Issuer, OperatorScope, Principal, Scope, TokenClass
from gateway.main.clock import now
from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.main.sign_in import FleetSignInOff
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import live_gateway
from tests.gateway.identity.members.person import CHANGE, READ, Person, base_of, invite, member_of, operate
from tests.gateway.identity.passkeys.authenticator import Answer as Signed
from tests.gateway.identity.test_token_keys import AUDIENCE, ISSUER, OLD, device, settings, token, written
from tests.gateway.mcp.site import TENANT, Site, site, until
from tests.gateway.spaces.test_iam_live import Person as SpacePerson
from tests.gateway.spaces.test_live import make

PLENTY: Any = {"oauth__ceremonies_burst": 1_000, "oauth__requests_burst": 10_000}


def claims(token: str) -> Any:
    return jwt.decode(token, options={"verify_signature": False})


async def call(one: Site, token: str) -> httpx2.Response:
    async with one.client(token) as client:
        body = json.dumps({"tool": one.echo, "arguments": {"message": "ping"}}).encode()
        return await client.http.post(f"http://{one.gateway.http}/mcp/tools/call", content=body)


async def test_invited_person_joins_signs_in_and_its_agent_calls_tools_at_every_door(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        gateway = one.gateway
        invited = await invite(gateway, TENANT, READ, CHANGE, label="Ada's laptop")
        assert invited["url"] == f"{base_of(gateway)}/join#{invited['invite']}"
        person = Person(gateway)
        begun = await person.post("/join/options", {"invite": invited["invite"]})
        told = begun.json()
        assert (told["tenant"], told["label"], told["scopes"]) == (TENANT, "Ada's laptop", [READ, CHANGE])
        assert told["publicKey"]["user"]["name"] == f"Ada's laptop, tenant {TENANT}"
        joined = await person.join(invited["invite"])
        assert joined.json() == {
            "tenant": TENANT,
            "label": "Ada's laptop",
            "scopes": [READ, CHANGE],
            "mcp_url": f"{base_of(gateway)}/mcp",
        }
        assert (await person.join(invited["invite"])).status_code == 401, "once"

        tokens = await person.sign_in(scope=READ, resource=f"{base_of(gateway)}/mcp/fleet", client_id="inspector")
        assert (tokens["scope"], tokens["expires_in"], tokens["token_type"]) == (READ, 600, "Bearer")
        assert tokens["refresh_token"].startswith("er_")
        said = claims(tokens["access_token"])
        assert said["aud"] == [f"{base_of(gateway)}/mcp/fleet", "heliograph"]
        assert (said["sub"], said["tenant"], said["scope"]) == (invited["sub"], TENANT, READ)
        assert (said["token_class"], said["exp"] - said["iat"]) == ("agent_runtime", 600)

        assert (await call(one, tokens["access_token"])).status_code == 200
        async with one.client(tokens["access_token"]) as modern:
            answer = (await modern.modern("tools/call", name=one.echo, arguments={"message": "m"})).json()
            assert answer["result"]["structuredContent"]["message"] == "m"
        async with one.client(tokens["access_token"]) as legacy:
            await legacy.initialize()
            answer = await legacy.legacy("tools/call", name=one.echo, arguments={"message": "l"})
            assert answer["result"]["structuredContent"]["message"] == "l"

        (shown,) = (await operate(gateway, "GET", "/admin/members")).json()["members"]
        assert (shown["sub"], shown["passkeys"], shown["invite_ends_ms"]) == (invited["sub"], 1, None)
        (grant,) = shown["grants"]
        assert (grant["gid"], grant["client"], grant["scopes"]) == (said["gid"], "inspector", [READ])


async def test_refreshed_token_keeps_session_and_stream_and_revoking_the_member_ends_both(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        gateway = one.gateway
        invited, person = await member_of(gateway, tenant=TENANT)
        first = (await person.sign_in())["access_token"]
        record = gateway.devices.directory.find(one.node_id)
        assert record is not None
        tool = next(tool.name for tool in record.tools if tool.target.verb == "subscribe")
        opened, ended = trio.Event(), trio.Event()

        async def stream() -> None:
            body = json.dumps({"tool": tool, "arguments": {"interval_ms": 1000}}).encode()
            headers = {"authorization": f"Bearer {first}", "accept": "text/event-stream"}
            url = f"http://{gateway.http}/mcp/tools/call"
            async with (
                httpx2.AsyncClient(timeout=30) as http,
                http.stream("POST", url, content=body, headers=headers) as response,
            ):
                assert response.status_code == 200
                opened.set()
                async for _ in response.aiter_raw():
                    pass
            ended.set()

        async with one.client(first) as client, trio.open_nursery() as nursery:
            nursery.start_soon(stream)
            await opened.wait()
            await client.initialize()
            again = await person.refresh()
            assert again.status_code == 200
            second = again.json()["access_token"]
            assert claims(second)["gid"] == claims(first)["gid"]
            assert claims(second)["jti"] != claims(first)["jti"]
            client.http.headers["authorization"] = f"Bearer {second}"
            await client.legacy("tools/list")
            uri = (await client.legacy("resources/list"))["result"]["resources"][0]["uri"]
            await client.legacy("resources/subscribe", uri=uri)
            assert not ended.is_set()

            gone = await operate(gateway, "POST", "/admin/members/revoke", {"member": invited["member_id"]})
            assert gone.status_code == 200
            await ended.wait()
            await until(lambda: len(gateway.mcp.sessions) == 0)
            assert (await client.post(client.request("tools/list", {}))).status_code == 401
        assert (await call(one, second)).status_code == 401
        assert (await person.refresh()).json()["error"] == "invalid_grant"
        assert (await person.consent()) == {"status": "404"}, "its passkey is nobody's"


async def test_session_and_its_stream_outlive_the_token_that_opened_them(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY, members__access_s=2) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        first = (await person.sign_in())["access_token"]
        async with one.client(first) as client:
            await client.initialize()
            async with client.news() as news:
                while (await call(one, first)).status_code == 200:  # noqa: ASYNC110  # nothing tells the end of a token
                    await trio.sleep(0.05)
                status = 401
                while status == 401:  # a slow machine may take longer than a token lives
                    client.http.headers["authorization"] = f"Bearer {(await person.refresh()).json()['access_token']}"
                    status = (await client.post(client.request("tools/list", {}))).status_code
                assert status == 200
                await one.start_node()
                with trio.fail_after(20):
                    assert (await news.receive())["method"].endswith("list_changed")


async def test_grant_is_revoked_by_its_id_as_a_token_is(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        token = (await person.sign_in())["access_token"]
        async with one.client(token) as client:
            await client.initialize()
            gid = claims(token)["gid"]
            assert (await operate(one.gateway, "POST", "/admin/revoke", {"jti": gid})).status_code == 200
            await until(lambda: len(one.gateway.mcp.sessions) == 0)
        assert (await call(one, token)).status_code == 401
        assert (await person.refresh()).json()["error"] == "invalid_grant"
        members = one.gateway.members
        assert members is not None
        await until(lambda: not members.standing)
        assert (await person.sign_in())["scope"] == READ, "the member is there"


async def test_grant_that_was_revoked_while_no_gateway_ran_is_over_at_the_next_start(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        gid = claims((await person.sign_in())["access_token"])["gid"]
    assert await trio.to_thread.run_sync(main, ["token", "revoke", gid, "--data", str(tmp_path / "data")]) == 0
    async with site(tmp_path, **PLENTY) as one:
        person.comes_to(one.gateway)
        assert (await person.refresh()).json()["error"] == "invalid_grant"
        (shown,) = (await operate(one.gateway, "GET", "/admin/members")).json()["members"]
        assert shown["passkeys"] == 1


async def test_code_that_is_used_twice_and_a_spent_refresh_token_end_the_grant(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        code = (await person.consent())["code"]
        given = (await person.exchange(code)).json()
        assert (await call(one, given["access_token"])).status_code == 200
        assert (await person.exchange(code)).json()["error"] == "invalid_grant"
        assert (await call(one, given["access_token"])).status_code == 401

        spent = (await person.sign_in())["refresh_token"]
        await person.refresh()
        live = (await person.refresh()).json()
        assert (await person.refresh(spent)).json()["error"] == "invalid_grant"
        assert (await call(one, live["access_token"])).status_code == 401
        assert (await person.refresh()).json()["error"] == "invalid_grant"


async def test_client_revokes_by_either_token(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        for kind in ("access_token", "refresh_token"):
            tokens = await person.sign_in()
            assert (await person.form("/oauth/revoke", {"token": tokens[kind]})).status_code == 200
            assert (await call(one, tokens["access_token"])).status_code == 401
            assert (await person.refresh()).json()["error"] == "invalid_grant"


async def test_tokens_grants_and_members_outlive_a_restart_and_so_does_their_end(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        lost, other = await member_of(one.gateway, tenant="globex")
        kept, gone = await person.sign_in(), await person.sign_in()
        foreign = await call(one, (await other.sign_in())["access_token"])
        assert foreign.status_code == 403, "a node of another tenant"
        await person.form("/oauth/revoke", {"token": gone["refresh_token"]})
        await operate(one.gateway, "POST", "/admin/members/revoke", {"member": lost["member_id"]})
        port = one.gateway.http.rpartition(":")[2]
    async with site(tmp_path, **PLENTY, http__listen=f"127.0.0.1:{port}") as one:
        assert (await call(one, kept["access_token"])).status_code == 200
        assert (await call(one, gone["access_token"])).status_code == 401
        person.comes_to(one.gateway)
        other.comes_to(one.gateway)
        assert (await person.refresh(kept["refresh_token"])).status_code == 200
        assert (await person.refresh(gone["refresh_token"])).status_code == 400
        assert (await other.refresh()).status_code == 400
        assert (await person.sign_in())["scope"] == READ
        assert len((await operate(one.gateway, "GET", "/admin/members")).json()["members"]) == 1


async def test_token_for_another_gateways_endpoint_is_refused_though_it_is_ours(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        said = claims((await person.sign_in())["access_token"])
        issuer: Issuer = one.gateway.folder.issuer

        def minted(resource: str, gid: str) -> str:
            return issuer.mint(
                sub=said["sub"], tenant=TENANT, token_class=TokenClass.AGENT_RUNTIME, scopes=[Scope.READ_ONLY],
                jti=said["jti"], now_ms=now().wall_ms, life_s=60, gid=gid, resource=resource,
            )  # fmt: skip

        ours = base_of(one.gateway)
        assert (await call(one, minted(f"{ours}/mcp", said["gid"]))).status_code == 200
        assert (
            await call(one, minted(f"{ours.replace('localhost', '127.0.0.1')}/mcp", said["gid"]))
        ).status_code == 200
        for resource in ("https://other.example/mcp", f"{ours}/mcp/other", f"{ours}x/mcp"):
            assert (await call(one, minted(resource, said["gid"]))).status_code == 401
        assert (await call(one, minted(f"{ours}/mcp", "01ARZ3NDEKTSV4RRFFQ69G5FAV"))).status_code == 401, "no grant"


async def test_fleet_members_are_sent_back_to_this_device_or_to_hosts_that_the_operator_names(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY, oauth__redirect_hosts=["claude.ai"]) as one:
        _, person = await member_of(one.gateway, tenant=TENANT)
        assert (await person.consent(redirect_uri="https://evil.example/cb"))["error"] == "access_denied"
        assert (await person.consent(redirect_uri="https://x.claude.ai/cb"))["error"] == "access_denied"
        assert (await person.sign_in(redirect_uri="https://claude.ai/cb"))["scope"] == READ
        assert (await person.sign_in(redirect_uri="http://localhost:5/cb"))["scope"] == READ


async def test_lost_passkey_is_replaced_and_the_agent_stays_the_same(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        invited, person = await member_of(one.gateway, tenant=TENANT)
        token = (await person.sign_in())["access_token"]
        body = {"member": invited["member_id"]}
        again = (await operate(one.gateway, "POST", "/admin/members/invite", body)).json()
        assert (again["member_id"], again["sub"]) == (invited["member_id"], invited["sub"])
        assert (await call(one, token)).status_code == 401, "whoever has the lost one is out at once"
        assert await person.consent() == {"status": "404"}
        assert (await person.join(again["invite"])).status_code == 201
        assert claims((await person.sign_in())["access_token"])["sub"] == invited["sub"]

        further = (await operate(one.gateway, "POST", "/admin/members/invite", {**body, "keep": True})).json()
        second = Person(one.gateway)
        assert (await second.join(further["invite"])).status_code == 201
        assert (await person.refresh()).status_code == 200
        assert (await person.sign_in())["scope"] == (await second.sign_in())["scope"] == READ


async def test_passkeys_of_spaces_and_of_fleets_are_of_two_worlds(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY, echo__enabled=True, echo__disk_free_min=0.0) as one:
        gateway = one.gateway
        _, person = await member_of(gateway, tenant=TENANT)
        made = await make(gateway)
        owner = SpacePerson(gateway, made)
        assert (await owner.join(made["claim"], "Ann")).status == 201

        owner.authenticator, person.authenticator = person.authenticator, owner.authenticator
        assert (await owner.login()).status == 401, "a fleet's credential at the door of a space"
        told = await person.consent(scope="kv_read")
        given = (await person.exchange(told["code"])).json()
        assert given["access_token"].startswith("ea_"), "the passkey decides the world"
        owner.authenticator, person.authenticator = person.authenticator, owner.authenticator

        assert (await owner.login()).status == 200
        hers, link = person.authenticator.passkeys[-1].id, await owner.ask("POST", "/iam/invites", {"scope": "kv_read"})
        thief = SpacePerson(gateway, made)
        assert (await thief.join(link.json["invite"], "", Signed(credential_id=hers))).status == 401
        taken = owner.authenticator.passkeys[-1].id
        invited = await invite(gateway, TENANT)
        assert (await Person(gateway).join(invited["invite"], Signed(credential_id=taken))).status_code == 401


async def test_scopes_of_the_other_world_are_offered_instead_and_views_are_for_fleets(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        _, person = await member_of(one.gateway, READ, CHANGE, tenant=TENANT)
        both = await person.sign_in(scope=f"echo.full {READ} {CHANGE}", resource=f"{base_of(one.gateway)}/mcp/flat")
        assert both["scope"] == f"{READ} {CHANGE}"
        narrow = (await person.refresh(scope=READ)).json()
        assert claims(narrow["access_token"])["scope"] == READ
        assert (await person.refresh(scope="kv_read")).json()["error"] == "invalid_scope"


async def test_page_of_an_invitation_has_the_headers_of_every_page_and_a_name_for_passkeys(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        person = Person(one.gateway)
        moved = await person.get("/join")
        assert (moved.status_code, moved.headers["location"]) == (302, f"{base_of(one.gateway)}/join")
        page = await person.get("/join", host="localhost")
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-robots-tag"] == "noindex"
        assert page.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in page.headers
        for asset in ("join.js", "passkey.js", "echo.css"):
            assert (await person.get(f"/join/assets/{asset}")).status_code == 200


async def test_invitation_is_used_by_our_own_page_in_the_browser_that_began(tmp_path: Path) -> None:
    async with site(tmp_path, **PLENTY) as one:
        invited, person = await invite(one.gateway, TENANT), Person(one.gateway)
        secret = {"invite": invited["invite"]}
        for origin in (
            "null",
            "https://evil.example",
            f"{person.origin}.evil",
            person.origin.replace("localhost", "a.localhost"),
        ):
            refused = await person.post("/join/options", secret, origin=origin)
            assert (refused.status_code, refused.json()["error"]) == (403, "csrf_failed")
        begun = await person.post("/join/options", secret)
        credential = person.authenticator.register(begun.json()["publicKey"])
        body = {"ceremony": begun.json()["ceremony"], "credential": credential}
        stranger = Person(one.gateway)
        assert (await stranger.post("/join", body)).status_code == 401
        assert (await person.post("/join", body, origin="https://evil.example")).status_code == 403
        assert (await person.post("/join", {**body, "more": 1})).status_code == 400
        assert (await person.post("/join/options", {"invite": "ei_" + "A" * 43})).status_code == 401
        assert (await person.post("/join", body)).status_code == 201
        assert (await person.post("/join", body)).status_code == 401
        assert (await person.get("/join/options")).status_code == 405
        for data in (b'{"invite": "\xff"}', b'{"invite": 1}', b"[" * 10_000):
            assert (await person.post("/join/options", data)).status_code == 400


async def test_invitations_cannot_be_guessed_without_end_nor_pages_asked_for(tmp_path: Path) -> None:
    async with site(tmp_path, oauth__ceremonies_burst=2, oauth__requests_burst=5, oauth__requests_per_s=0.001) as one:
        person, wrong = Person(one.gateway), {"invite": "ei_" + "A" * 43}
        answers = [(await person.post("/join/options", wrong)) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [401, 401, 429]
        assert int(answers[-1].headers["retry-after"]) > 0
        assert [(await person.get("/join", host="localhost")).status_code for _ in range(3)] == [200, 200, 429]


async def test_operators_need_the_scope_and_say_what_fits(tmp_path: Path) -> None:
    async with site(tmp_path) as one:
        gateway, path = one.gateway, "/admin/members/invite"
        good = {"tenant": TENANT, "scopes": [READ]}
        assert (await operate(gateway, "POST", path, good, OperatorScope.FLEET_WRITE)).status_code == 403
        assert (await operate(gateway, "GET", "/admin/members", None, OperatorScope.FLEET_READ)).status_code == 403
        for bad in (
            {**good, "scopes": []},
            {**good, "scopes": ["tools:call:physical_actuation"]},
            {**good, "scopes": ["echo.full"]},
            {**good, "tenant": ""},
            {**good, "label": "x" * 65},
            {**good, "label": "a\u202eb"},
            {**good, "member": "01jd" + "a" * 22},
            {**good, "more": 1},
            {},
        ):
            assert (await operate(gateway, "POST", path, bad)).status_code == 400, bad
        unknown = {"member": "01jd" + "a" * 22}
        assert (await operate(gateway, "POST", path, unknown)).status_code == 404
        assert (await operate(gateway, "POST", "/admin/members/revoke", unknown)).status_code == 404
        assert (await operate(gateway, "GET", "/admin/members?limit=x")).status_code == 400
        for _ in range(3):
            await invite(gateway, TENANT)
        page = (await operate(gateway, "GET", "/admin/members?limit=2")).json()
        rest = (await operate(gateway, "GET", f"/admin/members?cursor={page['nextCursor']}")).json()
        assert (len(page["members"]), len(rest["members"]), "nextCursor" in rest) == (2, 1, False)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"http.listen": "0.0.0.0:0"}, "public_url"),
        ({"http.public_url": "http://10.0.0.1"}, "cannot have passkeys"),
        ({"mcp.enabled": False}, "switched off"),
    ],
)
async def test_where_nobody_can_sign_in_the_gateway_starts_and_says_why_nobody_is_invited(
    tmp_path: Path, flags: dict[str, Any], reason: str
) -> None:
    given = {"data": str(tmp_path), "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", **flags}
    with trio.fail_after(30):
        async with running(load(None, {}, given)) as gateway:
            gateway = _on_loopback(gateway)
            refused = await operate(gateway, "POST", "/admin/members/invite", {"tenant": "t", "scopes": [READ]})
            assert refused.status_code == 400
            assert reason in refused.json()["message"]
            assert (await operate(gateway, "GET", "/admin/members")).json() == {"members": []}
            document = await Person(gateway).get("/.well-known/oauth-authorization-server/oauth")
            assert document.status_code == (503 if "mcp.enabled" in flags else 404)
            token = await Person(gateway).form("/oauth/token", {})
            assert token.status_code == (503 if "mcp.enabled" in flags else 404)


def _on_loopback(gateway: Running) -> Running:
    return replace(gateway, http=gateway.http.replace("0.0.0.0", "127.0.0.1"))


async def test_with_keys_from_elsewhere_there_are_no_members_and_routes_and_commands_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "keys.json", OLD)
    with trio.fail_after(60), capture_logs() as lines:
        async with live_gateway(tmp_path, device, **settings(file)) as one:
            bearer = token(OLD, TokenClass.OPERATOR, "ops", OperatorScope.TOKENS_MINT)
            async with httpx2.AsyncClient(headers={"authorization": f"Bearer {bearer}"}, timeout=20) as http:
                url = f"http://{one.gateway.http}/admin/members"
                answers = [
                    await http.get(url),
                    await http.post(f"{url}/invite", json={"tenant": "t", "scopes": [READ]}),
                    await http.post(f"{url}/revoke", json={"member": "01jd" + "a" * 22}),
                ]
            assert {(one.status_code, one.json()["message"]) for one in answers} == {
                (400, FleetSignInOff.OWN_JWKS.value)
            }
            assert (await Person(one.gateway).get("/join")).status_code == 404
            assert (await Person(one.gateway).get("/oauth/authorize")).status_code == 404
            data = str(tmp_path / "data")
            words = ["member", "invite", "--tenant", "t", "--scope", READ, "--data", data]
            assert await trio.to_thread.run_sync(main, words) == 2
            assert "cannot sign in here" in capsys.readouterr().err
            # A claim of that issuer's own is none of ours: what such a token opens ends with it, as all of its tokens.
            theirs = Issuer(OLD, issuer=ISSUER, audience=AUDIENCE).mint(
                sub=AGENT, tenant=TENANT, token_class=TokenClass.AGENT_RUNTIME, scopes=[Scope.READ_ONLY],
                jti="01ARZ3NDEKTSV4RRFFQ69G5FAV", gid="01ARZ3NDEKTSV4RRFFQ69G5FAW", now_ms=now().wall_ms, life_s=60,
                resource="https://theirs.example/mcp",
            )  # fmt: skip
            principal = one.gateway.folder.verifier.verify(theirs, TokenClass.AGENT_RUNTIME, now().wall_ms)
            assert isinstance(principal, Principal)
            assert (principal.credential_id, principal.gid) == ("01ARZ3NDEKTSV4RRFFQ69G5FAV", None)
            assert principal.expires_at_ms < now().wall_ms + 61_000
    assert [line["reason"] for line in lines if line["event"] == "fleet_sign_in_off"] == ["own_jwks"]


async def test_documents_and_oauth_serve_without_spaces(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as one:
        person = Person(one.gateway)
        document = (await person.get("/.well-known/oauth-authorization-server/oauth")).json()
        assert document["issuer"] == f"{base_of(one.gateway)}/oauth"
        assert (await person.get("/s/x")).status_code == 404
