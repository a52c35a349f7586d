"""IAM of a project's rooms by the operator: switched, tokens for programs, invites for people."""

from typing import Any

import pytest

from schemas.echo.times import rfc3339
from tests.gateway.projects.bureau import Bureau, bureau
from tests.gateway.spaces.site import Answer


async def given(site: Bureau, made: Any, scope: str = "kv_write", **more: object) -> Any:
    answer = await site.call("POST", f"/{made['project_id']}/iam/tokens", {"scope": scope, **more})
    assert answer.status == 201, answer
    return answer.json


async def put(site: Bureau, token: str, access_token: str | None) -> Answer:
    headers = {} if access_token is None else {"authorization": f"Bearer {access_token}"}
    return await site.put(token, "k", "v", **headers)


async def test_operator_switches_iam_on_and_off() -> None:
    async with bureau() as site:
        made = await site.create()
        path, token = f"/{made['project_id']}", made["app_token"]
        assert (await put(site, token, None)).status == 201
        answer = await site.call("POST", f"{path}/iam", {"enabled": True})
        assert (answer.status, answer.json) == (200, {"enabled": True, "space_id": made["space_id"]})
        assert (await put(site, token, None)).error == (401, "unauthorized")
        assert (await site.call("GET", path)).json["iam_enabled"] is True
        access = (await given(site, made))["access_token"]
        assert (await put(site, token, access)).status == 200
        assert (await site.call("POST", f"{path}/iam", {"enabled": True})).json["enabled"] is True  # nothing changes
        assert (await put(site, token, access)).status == 200
        await site.call("POST", f"{path}/iam", {"enabled": False})
        assert (await put(site, token, None)).status == 200
        assert (await site.call("GET", f"{path}/iam/tokens")).json == {"tokens": []}
        await site.call("POST", f"{path}/iam", {"enabled": True})
        assert (await put(site, token, access)).error == (401, "unauthorized")


async def test_token_is_told_once_listed_and_ended() -> None:
    async with bureau() as site:
        made = await site.create(iam_enabled=True)
        path = f"/{made['project_id']}/iam/tokens"
        token = await given(site, made, "ws_read kv_read", label="the bot", ttl_seconds=120)
        access = token.pop("access_token")
        assert access.startswith("ea_")
        ends = rfc3339(site.world.now_ms + 120_000)
        assert token == {
            "token_id": token["token_id"],
            "token_type": "Bearer",
            "expires_in": 120,
            "expires_at": ends,
            "scope": "kv_read ws_read",
            "label": "the bot",
            "space_id": made["space_id"],
        }
        listed = (await site.call("GET", path)).json["tokens"]
        assert listed == [
            {
                "token_id": token["token_id"],
                "label": "the bot",
                "scope": "kv_read ws_read",
                "space_id": made["space_id"],
                "created_at": rfc3339(site.world.now_ms),
                "expires_at": ends,
            }
        ]
        api = f"/api/s/{made['app_token']}/kv"
        assert (await site.ask("GET", api, authorization=f"Bearer {access}")).status == 200
        assert (await put(site, made["app_token"], access)).error == (403, "insufficient_scope")
        assert (await site.call("DELETE", f"{path}/{token['token_id']}")).status == 204
        assert (await site.ask("GET", api, authorization=f"Bearer {access}")).error == (401, "unauthorized")
        assert (await site.call("DELETE", f"{path}/{token['token_id']}")).error == (404, "not_found")


async def test_token_ends_on_time() -> None:
    async with bureau() as site:
        made = await site.create(iam_enabled=True)
        access = (await given(site, made, ttl_seconds=60))["access_token"]
        site.world.now_ms += 59_999
        assert (await put(site, made["app_token"], access)).status == 201
        site.world.now_ms += 1
        assert (await put(site, made["app_token"], access)).error == (401, "unauthorized")
        assert (await site.call("GET", f"/{made['project_id']}/iam/tokens")).json == {"tokens": []}


async def test_token_with_all_scopes_administers_but_is_nobody_who_has_passkeys() -> None:
    async with bureau() as site:
        made = await site.create(iam_enabled=True)
        access = (await given(site, made, "echo.full"))["access_token"]
        api, bearer = f"/api/s/{made['app_token']}", f"Bearer {access}"
        invited = await site.ask("POST", f"{api}/iam/invites", b'{"scope":"kv_read"}', authorization=bearer)
        assert invited.status == 201
        assert (await site.ask("GET", f"{api}/iam", authorization=bearer)).json == {"enabled": True, "members": []}
        assert (await site.ask("DELETE", api, authorization=bearer)).status == 204
        assert (await site.call("GET", f"/{made['project_id']}")).json["app_token"] is None


async def test_further_room_is_named_by_its_token_and_tokens_of_all_rooms_are_listed() -> None:
    async with bureau() as site:
        made = await site.create(multi_space=True)
        path = f"/{made['project_id']}"
        second = (await site.call("POST", f"{path}/spaces", {})).json["spaces"][1]
        wish = {"enabled": True, "space_token": second["space_token"]}
        assert (await site.call("POST", f"{path}/iam", wish)).json["space_id"] == second["space_id"]
        assert (await put(site, made["app_token"], None)).status == 201
        assert (await put(site, second["space_token"], None)).status == 401
        token = await given(site, made, space_token=second["space_token"])
        assert (await put(site, second["space_token"], token["access_token"])).status == 201
        listed = (await site.call("GET", f"{path}/iam/tokens")).json["tokens"]
        assert [one["space_id"] for one in listed] == [second["space_id"]]
        assert (await site.call("DELETE", f"{path}/iam/tokens/{token['token_id']}")).status == 204


async def test_invite_is_a_link_to_the_room() -> None:
    async with bureau() as site:
        made = await site.create(iam_enabled=True)
        answer = await site.call(
            "POST", f"/{made['project_id']}/iam/invites", {"scope": "echo.full", "ttl_seconds": 60}
        )
        assert answer.status == 201
        invite = answer.json["invite"]
        assert answer.json == {
            "invite": invite,
            "url": f"http://localhost:8420/s/{made['app_token']}#invite={invite}",
            "expires_at": rfc3339(site.world.now_ms + 60_000),
        }


@pytest.mark.parametrize("what", ["iam/tokens", "iam/invites"])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scope": ""},
        {"scope": "kv_read tools:call:read_only"},
        {"scope": "x" * 257},
        {"scope": ["kv_read"]},
        {"scope": "kv_read", "ttl_seconds": 59},
        {"scope": "kv_read", "ttl_seconds": 604_801},
        {"scope": "kv_read", "more": 1},
        {"scope": "kv_read", "space_token": 1},
    ],
)
async def test_other_bodies_are_refused(what: str, body: object) -> None:
    async with bureau() as site:
        made = await site.create(iam_enabled=True)
        answer = await site.call("POST", f"/{made['project_id']}/{what}", body)
        assert answer.error == (400, "invalid_payload")


@pytest.mark.parametrize("body", [{}, {"enabled": 1}, {"enabled": None}, {"enabled": True, "more": 1}])
async def test_iam_is_switched_by_a_boolean(body: object) -> None:
    async with bureau() as site:
        made = await site.create()
        assert (await site.call("POST", f"/{made['project_id']}/iam", body)).error == (400, "invalid_payload")


@pytest.mark.parametrize("what", ["iam/tokens", "iam/invites"])
async def test_nothing_is_given_in_a_room_without_iam_or_of_others(what: str) -> None:
    async with bureau() as site:
        made, other = await site.create(), await site.create(iam_enabled=True)
        path = f"/{made['project_id']}/{what}"
        assert (await site.call("POST", path, {"scope": "kv_read"})).error == (404, "not_found")
        wish = {"scope": "kv_read", "space_token": other["app_token"]}
        assert (await site.call("POST", path, wish)).error == (404, "space_not_found")


async def test_token_of_another_project_is_not_ended() -> None:
    async with bureau() as site:
        made, other = await site.create(iam_enabled=True), await site.create(iam_enabled=True)
        token = await given(site, other)
        answer = await site.call("DELETE", f"/{made['project_id']}/iam/tokens/{token['token_id']}")
        assert answer.error == (404, "not_found")
        assert (await put(site, other["app_token"], token["access_token"])).status == 201
