"""The page of a space with IAM as a browser gets it: a sign-in, the room's empty parts, and nothing of the space."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.spaces.iam_ceremonies import PasskeyCeremonies
from schemas.echo.scopes import SCOPES
from tests.gateway.markup import Markup
from tests.gateway.spaces.pages.test_page_routes import HEADERS, _assert_own, page, without_length
from tests.gateway.spaces.site import BASE, site
from tests.gateway.spaces.test_iam import Members
from tests.gateway.spaces.test_iam_ceremonies import TrustingPasskeys

PLACEHOLDER = "ea_YOUR_ACCESS_TOKEN"


@asynccontextmanager
async def protected(*, has_passkeys: bool = True, **fields: str) -> AsyncIterator[Members]:
    def passkeys(iam: Any) -> PasskeyCeremonies | None:
        return TrustingPasskeys(iam) if has_passkeys else None

    async with site(passkeys=passkeys) as here:
        some = Members(here)
        some.made = await here.make(**fields)
        if not fields:
            await here.put(some.made["token"], "canary-key", "canary-value")
        some.owner = await some.claim(some.made)
        yield some


async def test_with_the_link_alone_there_is_a_sign_in_and_nothing_of_the_space() -> None:
    async with protected(encryption="on") as some:
        known = await some.ask("GET", bearer=some.owner.access_token)
        answer = await page(some.site, f"/s/{some.made['token']}")
        assert (answer.status, without_length(answer)) == (200, HEADERS)
        markup = Markup(answer.body)
        root = markup.of("html")[0].attributes
        assert (root["data-iam"], root["data-space"], root["data-base"]) == ("on", some.made["space_id"], BASE)
        assert {"data-ends", "data-link"}.isdisjoint(root)
        assert len(markup.ids) == len(set(markup.ids))
        before, _, _ = answer.body.decode().partition('<template id="room-template">')
        assert 'id="use-passkey"' in before
        for part in ("messages", "keys", "files", "prompt", "members", "invite", "end-space"):
            assert f'id="{part}"' not in before
        for empty in (
            "encryption-key",
            "ends",
            "protocol",
            "encryption",
            "keys",
            "files",
            "members",
            "own-scopes",
            "prompt",
        ):
            assert markup.by_id(empty).text == ""
        for secret in (
            known.json["encryption_key"],
            some.made["claim"],
            some.owner.access_token,
            some.made["expires_at"],
        ):
            assert secret not in answer.body.decode()
        _assert_own(markup)


async def test_it_holds_no_value_and_no_member() -> None:
    async with protected() as some:
        body = (await page(some.site, f"/s/{some.made['token']}")).body.decode()
        for canary in ("canary-key", "canary-value", some.owner.member_id, some.owner.refresh_token):
            assert canary not in body


async def test_head_of_it_has_no_body() -> None:
    async with protected() as some:
        target = f"/s/{some.made['token']}"
        whole, head = await page(some.site, target), await page(some.site, target, "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert without_length(head) == without_length(whole)


@pytest.mark.parametrize("encryption", ["", "on"])
async def test_its_lines_show_where_the_access_token_goes(encryption: str) -> None:
    async with protected(encryption=encryption) as some:
        room = Markup((await page(some.site, f"/s/{some.made['token']}")).body)
        lines = {one.attributes["data-lang"]: one.text for one in room.of("pre") if "data-lang" in one.attributes}
        assert lines["curl"].count(f"-H 'Authorization: Bearer {PLACEHOLDER}'") == 3
        for language in ("javascript", "python"):
            assert lines[language].count(PLACEHOLDER) == 1
        assert 'type: "auth", access_token' in lines["javascript"]
        assert lines["python"].count("authorization") == 3
        compile(lines["python"], "lines", "exec")


async def test_an_owner_is_offered_every_scope_to_give() -> None:
    async with protected() as some:
        room = Markup((await page(some.site, f"/s/{some.made['token']}")).body)
        assert {one.attributes["value"] for one in room.of("input", name="scope")} == SCOPES
        lives = [int(one.attributes["value"]) for one in room.of("option") if one.attributes["value"].isdigit()]
        for life in set(lives):
            body = json.dumps({"scope": "kv_read", "ttl_seconds": life}).encode()
            made = await some.ask("POST", "/iam/invites", body, some.owner.access_token)
            assert made.status == 201, life


# ---- protecting ------------------------------------------------------------------------------------------------------


async def test_a_space_is_protected_once_and_only_where_passkeys_are_possible() -> None:
    async with protected() as some:
        plain = await some.site.make()
        assert "protect" in Markup((await page(some.site, f"/s/{plain['token']}")).body).ids
        assert (await some.ask("DELETE", "/iam", bearer=some.owner.access_token)).status == 204
        again = Markup((await page(some.site, f"/s/{some.made['token']}")).body)
        assert "protect" not in again.ids
        assert "It was protected before" in again.by_id("protection").text
    async with protected(has_passkeys=False) as some:
        plain = await some.site.make()
        without = Markup((await page(some.site, f"/s/{plain['token']}")).body)
        assert "protect" not in without.ids
        assert "passkeys need a domain name" in without.by_id("protection").text


async def test_where_passkeys_are_impossible_nobody_is_offered_a_sign_in() -> None:
    async with protected(has_passkeys=False) as some:
        body = (await page(some.site, f"/s/{some.made['token']}")).body
        markup = Markup(body)
        assert {"use-passkey", "enter", "room-template", "members-template"}.isdisjoint(markup.ids)
        assert "Nobody can sign in here" in markup.of("main")[0].text
        _assert_own(markup)


# ---- the number of this machine --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8420", "127.0.0.1", "[::1]:8420"])
async def test_browser_at_the_number_of_this_machine_is_sent_to_its_name(host: str) -> None:
    async with protected() as some:
        for target in ("/", f"/s/{some.made['token']}"):
            answer = await page(some.site, target, host=host)
            assert (answer.status, answer.headers["location"]) == (302, f"{BASE}{target}")
            assert answer.headers["cache-control"] == "no-store"
            assert answer.body == b""


@pytest.mark.parametrize("host", ["localhost:8420", "127.0.0.1.evil.example", "gw.example", "", "["])
async def test_nobody_else_is_sent_anywhere(host: str) -> None:
    async with protected() as some:
        assert (await page(some.site, f"/s/{some.made['token']}", host=host)).status == 200


async def test_scripts_and_gateways_without_passkeys_stay_where_they_are() -> None:
    async with protected() as some:
        target = f"/s/{some.made['token']}"
        assert (await some.site.ask("GET", target, host="127.0.0.1:8420")).status == 200
        assert (await page(some.site, "/s/unknown", host="127.0.0.1:8420")).status == 404, (
            "the token is asked for first"
        )
    async with protected(has_passkeys=False) as some:
        assert (await page(some.site, f"/s/{some.made['token']}", host="127.0.0.1:8420")).status == 200
