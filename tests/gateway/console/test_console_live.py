"""The console of a whole gateway, over its own door and on a disk: signed in, acting, trying, restarted, revoked."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from structlog.testing import capture_logs

from gateway.commands.cli import main
from gateway.console.agent_rules import agent_of
from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.server import running
from gateway.main.settings import load
from tests.certificates import write_certificate
from tests.gateway.api.live import live_gateway
from tests.gateway.console.person import Operator, admin, made_link, operator_token
from tests.gateway.identity.members.person import Person, invite, member_of
from tests.gateway.identity.passkeys.authenticator import Answer as Signed
from tests.gateway.identity.test_token_keys import OLD, device, settings, token, written
from tests.gateway.markup import Markup
from tests.gateway.spaces.test_iam_live import Person as SpacePerson
from tests.gateway.spaces.test_live import make

HERE: dict[str, Any] = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
PLENTY: dict[str, Any] = {"console.sign_ins_burst": 1_000, "oauth.ceremonies_burst": 1_000}


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOGRAPH_OPERATOR_TOKEN", raising=False)
    monkeypatch.setenv("USER", "ada")
    monkeypatch.chdir(tmp_path)


async def kept_lines(one: Operator, count: int, **filters: str) -> list[dict[str, Any]]:
    """Of the kept audit, once so many are there."""
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    token = operator_token(one.gateway)
    with trio.fail_after(20):
        while True:
            answer = await admin(one.gateway, "GET", f"/admin/audit?{query}", token)
            lines: list[dict[str, Any]] = answer.json()["lines"]
            if len(lines) >= count:
                return lines


async def test_operator_signs_in_by_a_link_of_its_token_acts_and_is_out_when_that_is_revoked(tmp_path: Path) -> None:
    jti = "01HZXC0000000000000000J0AA"
    async with live_gateway(tmp_path, **{"audit.write_s": 0.0}) as live:
        gateway = live.gateway
        made = await made_link(gateway, operator_token(gateway, jti=jti))
        assert made["url"].startswith(f"http://localhost:{live.port}/console#k=")
        one = await Operator.by_link(gateway, made["url"])
        renamed = await one.act("/admin/node/rename", {"node": live.node_id, "name": "pump-7"})
        assert (renamed.status_code, renamed.json()["name"]) == (200, "pump-7")
        assert gateway.devices.directory.labels_of(live.node_id).name == "pump-7"
        lines = await kept_lines(one, 3, event="operator_action", agent="ada")
        assert [(line["action"], line["via"], line["token_id"]) for line in reversed(lines)] == [
            ("console_link", "http", jti),
            ("console_sign_in", "console", jti),
            ("node_rename", "console", jti),
        ]
        assert await trio.to_thread.run_sync(main, ["token", "revoke", jti, "--data", str(tmp_path / "data")]) == 0
        assert (await one.post("whoami")).status_code == 401
        assert (await one.act("/admin/node/rename", {"node": live.node_id, "name": "x"})).status_code == 401


async def test_operator_revokes_a_node_over_the_console_and_its_own_token_too(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as live:
        jti = "01HZXC0000000000000000J0AB"
        made = await made_link(live.gateway, operator_token(live.gateway, jti=jti))
        one = await Operator.by_link(live.gateway, made["url"])
        assert (await one.act("/admin/node/revoke", {"node": live.node_id})).json() == {"revoked": live.node_id}
        ended = await one.act("/admin/revoke", {"jti": jti})
        assert ended.status_code == 200, "what ends the session is answered still"
        assert (await one.post("whoami")).status_code == 401


async def test_token_that_is_minted_in_a_session_does_not_outlive_it(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": "data", **HERE})) as gateway:
        one = await Operator.by_link(gateway, (await made_link(gateway))["url"])
        wish = {"token_class": "operator", "sub": "bob", "tenant": "operators", "scopes": ["fleet:read"]}
        minted = await one.act("/admin/mint", {**wish, "life_s": 7 * 3600})
        assert minted.status_code == 200
        refused = await one.act("/admin/mint", {**wish, "life_s": 9 * 3600})
        assert (refused.status_code, refused.json()["code"]) == (403, "E_SAFETY_DENIED")
        assert "outlive" in refused.json()["message"]


# ---- trying a tool ---------------------------------------------------------------------------------------------------


async def test_tried_tool_is_called_by_the_operators_agent_under_policy_priced_and_audited(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'[[agents]]\nagent = "{agent_of("ada")}"\ntools = ["sysecho.**"]\nprice = 0.5\nbudget = 1\n')
    async with live_gateway(tmp_path, **{"governance.policy": str(policy), "audit.write_s": 0.0}) as live:
        jti = "01HZXC0000000000000000J0AC"
        made = await made_link(live.gateway, operator_token(live.gateway, jti=jti))
        one = await Operator.by_link(live.gateway, made["url"])
        who = (await one.post("whoami")).json()["operator"]
        tried = {"node_id": live.node_id, "tool": live.tool(), "arguments": {"message": "<b>hi"}}
        answer = await one.post("try", tried)
        assert answer.status_code == 200
        told = answer.json()
        assert told["answer"]["message"] == "<b>hi"
        assert (told["price_micros"], told["took_ms"] >= 0) == (500_000, True)
        line = told["audit"]
        assert (line["event"], line["via"], line["sub"], line["tenant"]) == (
            "tool_call", "console", who["agent"], "acme",
        )  # fmt: skip
        assert line["token_id"] == jti, "what its revocation ends"
        assert (line["decision"], line["correlation_id"]) == ("answered", told["correlation_id"])
        assert "<b>hi" not in json.dumps(line)
        (kept,) = await kept_lines(one, 1, event="tool_call")
        assert {name: kept[name] for name in line} == line

        assert (await one.post("try", tried)).json()["price_micros"] == 500_000
        over = (await one.post("try", tried)).json()
        assert (over["error"]["code"], over["audit"]["reason"]) == ("E_RATE_LIMITED", "budget")
        assert "answer" not in over
        metrics = f"sys.{live.node_id}.metrics.snapshot"
        denied = (await one.post("try", {**tried, "tool": metrics, "arguments": {}})).json()
        assert (denied["error"]["code"], denied["audit"]["reason"]) == ("E_SAFETY_DENIED", "policy")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"node_id": "01jv0000000000000000000000"}, 404),
        ({"tool": "sysecho.01jv0000000000000000000000.echo.invoke"}, 404),
        ({"tool": "fleet_find"}, 404),
        ({"tool": "x"}, 404),
        ({"tool": 1}, 400),
        ({"arguments": None}, 200),
        ({"arguments": {"message": 1}}, 200),
        ({"more": 1}, 400),
    ],
)
async def test_what_is_no_tool_of_the_node_is_not_tried(tmp_path: Path, changes: Any, status: int) -> None:
    async with live_gateway(tmp_path) as live:
        one = await Operator.by_link(live.gateway, (await made_link(live.gateway))["url"])
        tried = {"node_id": live.node_id, "tool": live.tool(), "arguments": {"message": "x"}}
        answer = await one.post("try", tried | changes)
        assert answer.status_code == status
        if status == 200:
            assert (answer.json()["error"]["code"], answer.json()["audit"]["reason"]) == (
                "E_MANIFEST_INVALID", "arguments",
            )  # fmt: skip


async def test_trying_takes_tokens_mint_and_arguments_that_mean_one_thing(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as live:
        look = await made_link(live.gateway, scopes=["fleet:read", "fleet:write", "spend:read", "policy:write"])
        guest = await Operator.by_link(live.gateway, look["url"])
        tried = {"node_id": live.node_id, "tool": live.tool(), "arguments": {"message": "x"}}
        refused = await guest.post("try", tried)
        assert (refused.status_code, refused.json()["message"]) == (403, "This needs the scope tokens:mint.")
        one = await Operator.by_link(live.gateway, (await made_link(live.gateway))["url"])
        body = json.dumps(tried).replace('{"message": "x"}', '{"message": "x", "message": "y"}').encode()
        assert (await one.ask("POST", "/console/api/try", body)).status_code == 400
        deep = json.dumps(tried).replace('{"message": "x"}', '{"message": ' + "[" * 5_000 + "]" * 5_000 + "}").encode()
        assert (await one.ask("POST", "/console/api/try", deep)).status_code in (200, 400)
        subscribed = await one.post("try", {**tried, "tool": f"sys.{live.node_id}.metrics.subscribe", "arguments": {}})
        assert subscribed.json()["error"]["code"] == "E_BAD_REQUEST"


# ---- where it is -----------------------------------------------------------------------------------------------------


async def statuses(base: str) -> list[int]:
    async with httpx2.AsyncClient(timeout=20, verify=False) as http:
        page = await http.get(f"{base}/console", headers={"host": "localhost"})
        api = await http.post(f"{base}/console/api/whoami", json={})
        asset = await http.get(f"{base}/console/assets/passkey.js")
    return [page.status_code, api.status_code, asset.status_code]


async def test_console_is_where_admin_is_and_nowhere_else(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": "data", **HERE, "admin.listen": "127.0.0.1:0"})) as gateway:
        assert await statuses(gateway.http_url) == [404, 404, 404]
        assert await statuses(gateway.admin_url) == [200, 403, 200]
        made = await made_link(gateway)
        assert gateway.admin is not None
        assert made["url"].startswith(f"http://localhost:{gateway.admin.rpartition(':')[2]}/console#k=")
        one = await Operator.by_link(gateway, made["url"])
        assert (await one.post("whoami")).status_code == 200
        assert (await one.post("whoami", origin=gateway.http_url)).status_code == 403


async def test_console_over_tls_has_a_session_too(tmp_path: Path) -> None:
    pem = str(write_certificate(tmp_path))
    given = {"http.tls_certificate": pem, "http.tls_key": pem, "admin.listen": "127.0.0.1:0"}
    async with running(load(None, {}, {"data": "data", **HERE, **given})) as gateway:
        made = await made_link(gateway)
        assert made["url"].startswith("https://localhost:")
        one = await Operator.by_link(gateway, made["url"])
        assert (await one.post("whoami")).json()["operator"]["sub"] == "ada"
        assert (await one.register()).status_code == 200
        assert (await one.sign_in()).status_code == 200


async def test_public_url_of_admin_is_the_one_origin(tmp_path: Path) -> None:
    given = {"admin.public_url": "https://OPS.example:443"}
    async with running(load(None, {}, {"data": "data", **HERE, **given})) as gateway:
        made = await made_link(gateway)
        assert made["url"].startswith("https://ops.example/console#k=")
        one = await Operator.by_link(gateway, made["url"])
        for origin in (f"http://localhost:{gateway.http.rpartition(':')[2]}", gateway.http_url, "null"):
            answer = await one.post("whoami", origin=origin)
            assert (answer.status_code, answer.json()["code"]) == (403, "csrf_failed")
        assert (await one.post("whoami")).status_code == 200


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"admin.listen": "unix:admin.sock"}, "unix_socket"),
        ({"http.listen": "0.0.0.0:0"}, "no_origin"),
        ({"http.public_url": "http://gw.example"}, "not_secure"),
    ],
)
async def test_gateway_without_a_console_says_so_once_and_makes_no_links(
    tmp_path: Path, given: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with capture_logs() as lines:
        async with running(load(None, {}, {"data": "data", **HERE, **given})) as gateway:
            assert [line["reason"] for line in lines if line["event"] == "console_off"] == [reason]
            assert await trio.to_thread.run_sync(main, ["console", "--data", "data"]) == 2
            assert "page console" in capsys.readouterr().err
            assert gateway.console is not None
            assert gateway.console.link_of_owner("ada") is None
            port = gateway.http.rpartition(":")[2]
            assert await statuses(f"http://127.0.0.1:{port}") == [404, 404, 404]


async def test_shell_has_the_headers_of_every_page_no_data_and_one_name(tmp_path: Path) -> None:
    async with running(load(None, {}, {"data": "data", **HERE})) as gateway:
        base, host = gateway.http_url, f"localhost:{gateway.http.rpartition(':')[2]}"
        async with httpx2.AsyncClient(timeout=20) as http:
            moved = await http.get(f"{base}/console/nodes/x%0d%0aSet-Cookie:a=b")
            assert (moved.status_code, moved.headers["location"]) == (302, f"http://{host}/console")
            pages = [
                await http.get(f"{base}{path}", headers={"host": host})
                for path in ("/console", "/console/", "/console/nodes/%3Cscript%3E", "/console?k=%3Cb%3E")
            ]
            posted = await http.post(f"{base}/console", headers={"host": host})
        assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
        assert {page.status_code for page in pages} == {200}
        assert len({page.content for page in pages}) == 1, "nothing of the request is in it"
        page = pages[0]
        assert Markup(page.content).elements
        assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in page.headers
        assert "set-cookie" not in page.headers


# ---- passkeys on a disk, and of other realms -------------------------------------------------------------------------


async def test_passkey_and_its_removal_outlive_a_restart_and_sessions_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = load(None, {}, {"data": "data", **HERE, **PLENTY, "admin.public_url": "https://ops.example"})
    run = trio.to_thread.run_sync
    async with running(given) as gateway:
        one = await Operator.by_link(gateway, (await made_link(gateway))["url"])
        passkey_id = (await one.register()).json()["passkey"]["id"]
    async with running(given) as gateway:
        one.gateway = gateway
        assert (await one.post("whoami")).status_code == 401
        assert (await one.sign_in()).status_code == 200
        capsys.readouterr()
        assert await run(main, ["console", "passkeys", "--data", "data"]) == 0
        assert passkey_id in capsys.readouterr().out
    capsys.readouterr()
    assert await run(main, ["console", "passkeys", "--json", "--data", "data"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["sub"], row["revoked"]) for row in shown] == [(passkey_id, "ada", False)]
    assert await run(main, ["console", "passkeys", "rm", passkey_id, "--data", "data"]) == 0
    assert await run(main, ["console", "passkeys", "rm", passkey_id, "--data", "data"]) == 2
    assert await run(main, ["console", "passkeys", "rm", "x", "--data", "data"]) == 2
    async with running(given) as gateway:
        one.gateway = gateway
        assert (await one.sign_in()).status_code == 404


async def test_token_that_is_revoked_while_no_gateway_runs_takes_its_passkeys_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = load(None, {}, {"data": "data", **HERE, **PLENTY, "admin.public_url": "https://ops.example"})
    run, jti = trio.to_thread.run_sync, "01HZXC0000000000000000J0AA"
    async with running(given) as gateway:
        link = await made_link(gateway, operator_token(gateway, jti=jti))
        one = await Operator.by_link(gateway, link["url"])
        await one.register()
    assert await run(main, ["token", "revoke", jti, "--data", "data"]) == 0
    capsys.readouterr()
    assert await run(main, ["console", "passkeys", "--data", "data"]) == 0
    assert "revoked" in capsys.readouterr().out
    async with running(given) as gateway:
        one.gateway = gateway
        assert (await one.sign_in()).status_code == 404


async def test_passkeys_of_operators_members_and_spaces_are_of_three_realms(tmp_path: Path) -> None:
    given = {**PLENTY, "echo.enabled": True, "echo.disk_free_min": 0.0}
    async with live_gateway(tmp_path, **given) as live:
        gateway = live.gateway
        one = await Operator.by_link(gateway, (await made_link(gateway))["url"])
        assert (await one.register()).status_code == 200
        _, member = await member_of(gateway)
        space = await make(gateway)
        owner = SpacePerson(gateway, space)
        assert (await owner.join(space["claim"], "Ann")).status == 201
        mine = one.authenticator

        for other in (member.authenticator, owner.authenticator):
            one.authenticator = other
            answer = await one.sign_in()
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), "known, and not here"
            taken = Signed(credential_id=other.passkeys[-1].id)
            one.authenticator = mine
            assert (await one.register(taken)).status_code == 400
            mine.passkeys.pop()
        hers, owner.authenticator = owner.authenticator, mine
        assert (await owner.login()).status == 401, "an operator's credential at the door of a space"
        owner.authenticator, member.authenticator = hers, mine
        assert (await member.consent())["status"] == "401", "and on the consent page, where it must not be forgotten"
        taken = Signed(credential_id=mine.passkeys[-1].id)
        assert (await Person(gateway).join((await invite(gateway))["invite"], taken)).status_code == 401
        assert (await owner.login()).status == 200
        link = await owner.ask("POST", "/iam/invites", {"scope": "kv_read"})
        assert (await SpacePerson(gateway, space).join(link.json["invite"], "", taken)).status == 401
        assert (await one.sign_in()).status_code == 200


# ---- tokens of another issuer ----------------------------------------------------------------------------------------


async def test_operator_of_an_own_issuer_signs_in_by_a_link_of_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = settings(written(tmp_path / "keys.json", OLD))
    async with live_gateway(tmp_path, device, **keys) as live:
        run, data = trio.to_thread.run_sync, str(tmp_path / "data")
        assert await run(main, ["console", "--data", data]) == 2
        assert "HELIOGRAPH_OPERATOR_TOKEN" in capsys.readouterr().err
        theirs = token(OLD, TokenClass.OPERATOR, "eve", OperatorScope.FLEET_READ)
        monkeypatch.setenv("HELIOGRAPH_OPERATOR_TOKEN", theirs)
        assert await run(main, ["console", "--json", "--data", data]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        one = await Operator.by_link(live.gateway, json.loads(line)["url"])
        who = (await one.post("whoami")).json()
        assert (who["operator"]["sub"], who["operator"]["scopes"]) == ("eve", ["fleet:read"])
        assert who["passkey_offered"] is False, "the token is over before the session would be"


# ---- the command -----------------------------------------------------------------------------------------------------


async def test_command_prints_a_link_and_says_how_long_it_is_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trio.to_thread.run_sync
    async with running(load(None, {}, {"data": "data", **HERE})) as gateway:
        capsys.readouterr()
        assert await run(main, ["console", "--data", "data"]) == 0
        said, link = [line for line in capsys.readouterr().out.splitlines() if "operator_action" not in line]
        assert said.startswith("open this link; it is good once, until 2")
        one = await Operator.by_link(gateway, link.strip())
        who = (await one.post("whoami")).json()
        assert (who["operator"]["sub"], len(who["operator"]["scopes"])) == ("ada", len(OperatorScope))
        assert who["passkey_offered"] is True

        assert await run(main, ["console", "--scope", "fleet:read", "--data", "data"]) == 0
        link = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  http"))
        guest = (await (await Operator.by_link(gateway, link.strip())).post("whoami")).json()
        assert (guest["operator"]["scopes"], guest["passkey_offered"]) == (["fleet:read"], False)

        assert await run(main, ["console", "--scope", "fleet:read", "--passkey", "--json", "--data", "data"]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
        assert json.loads(line)["passkey"] is True
    assert await run(main, ["console", "--data", "data"]) == 2
    assert "no gateway runs" in capsys.readouterr().err


async def test_no_secret_of_the_console_is_written_anywhere(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with live_gateway(tmp_path, **{"audit.write_s": 0.0}) as live:
            made = await made_link(live.gateway)
            one = await Operator.by_link(live.gateway, made["url"])
            await one.register()
            await kept_lines(one, 3, event="operator_action")
            secrets = [made["url"].partition("#k=")[2], *one.cookies.values()]
    files = [path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    for secret in secrets:
        assert secret not in str(lines)
        assert not any(secret.encode() in content for content in files)
