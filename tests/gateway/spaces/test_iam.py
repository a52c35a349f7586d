"""Spaces with IAM over HTTP: the token in the path and an access token of this space, by the scope of each route."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from actors.space.iam import Invited, SpaceIam, Tokens
from actors.space.iam_events import Passkey
from actors.space.spaces import EchoSpaces
from gateway.spaces.settings import EchoSettings
from schemas.echo.scopes import FULL, SCOPES
from schemas.ulids import Mint
from tests.actors.space.driver import World
from tests.gateway.spaces.site import PLENTY, Answer, Site, site

ROUTES = [  # method, what follows the token, body, the scope, the answer with it
    ("GET", "/kv", b"", "kv_read", 200),
    ("GET", "/kv/k", b"", "kv_read", 404),
    ("HEAD", "/kv/k", b"", "kv_read", 404),
    ("POST", "/kv/k", b'{"value":"v"}', "kv_write", 201),
    ("DELETE", "/kv/k", b"", "kv_write", 404),
    ("GET", "/files", b"", "file_read", 200),
    ("GET", "/files/01jd0000000000000000000000", b"", "file_read", 404),
    ("POST", "/files", b"", "file_write", 415),
    ("DELETE", "/files/01jd0000000000000000000000", b"", "file_write", 404),
]


class Members:
    """A site with a space whose creator has switched IAM on, and another one."""

    def __init__(self, site: Site, iam: SpaceIam) -> None:
        self.site = site
        self.iam = iam
        self.tokens = ""
        self.made: Any = None
        self.owner: Tokens

    async def begin(self, **fields: str) -> None:
        self.made = await self.site.make(**fields)
        self.owner = await self.claim(self.made)

    async def claim(self, made: Any) -> Tokens:
        passkey = Passkey(made["space_id"].encode(), b"", 0)
        tokens = await self.iam.add_member(made["space_id"], made["claim"], b"h", "", passkey)
        assert isinstance(tokens, Tokens), tokens
        return tokens

    async def member(self, *scopes: str) -> str:
        """The access token of a new one."""
        by = self.iam.find(self.owner.access_token)
        assert by is not None
        invited = await self.iam.invite(by, frozenset(scopes), None)
        assert isinstance(invited, Invited), invited
        passkey = Passkey(invited.invite.encode(), b"", 0)
        tokens = await self.iam.add_member(self.made["space_id"], invited.invite, b"h", "", passkey)
        assert isinstance(tokens, Tokens), tokens
        return tokens.access_token

    async def ask(self, method: str, path: str = "", body: bytes = b"", bearer: str | None = None) -> Answer:
        headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        return await self.site.ask(method, f"/api/s/{self.made['token']}{path}", body, **headers)


@asynccontextmanager
async def members(settings: EchoSettings = PLENTY, **fields: str) -> AsyncIterator[Members]:
    world, made = World(settings), list[SpaceIam]()
    mint = Mint(world.random)

    def attach(spaces: EchoSpaces) -> None:
        made.append(SpaceIam(spaces, lambda: mint.mint(world.now_ms)))

    world.before_load = attach
    async with site(settings, world, lambda token: made[0].find(token)) as here:
        some = Members(here, made[0])
        await some.begin(**fields)
        yield some


@pytest.mark.parametrize(("method", "path", "body", "scope", "status"), ROUTES)
async def test_route_takes_its_scope_and_nothing_less(
    method: str, path: str, body: bytes, scope: str, status: int
) -> None:
    async with members() as some:
        for bearer in (None, "", some.made["token"], some.made["claim"], some.owner.refresh_token, "ea_" + "A" * 43):
            answer = await some.ask(method, path, body, bearer)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["access-control-allow-origin"] == "*"
        others = await some.ask(method, path, body, await some.member(*(SCOPES - {scope, FULL})))
        assert others.status == 403
        assert method == "HEAD" or others.json["error"] == "insufficient_scope"
        assert (await some.ask(method, path, body, await some.member(scope))).status == status
        assert (await some.ask(method, path, body, some.owner.access_token)).status in (status, 200)


async def test_token_of_one_space_is_none_on_another() -> None:
    async with members() as some:
        other = await some.claim(await some.site.make())
        assert (await some.ask("GET", "/kv", bearer=other.access_token)).error == (401, "unauthorized")
        plain = await some.site.make()
        answer = await some.site.ask("GET", f"/api/s/{some.owner.access_token}/kv")
        assert answer.error == (404, "space_not_found")
        assert (await some.site.put(plain["token"], "k")).status == 201, "a space without IAM is as it was"


async def test_token_ends_by_the_clock_and_with_its_grant() -> None:
    async with members() as some:
        bearer = await some.member("kv_read")
        assert (await some.ask("GET", "/kv", bearer=bearer)).status == 200
        assert await some.iam.revoke(bearer) is None
        assert (await some.ask("GET", "/kv", bearer=bearer)).status == 401
        some.site.world.now_ms += 3_600_000
        assert (await some.ask("GET", "/kv", bearer=some.owner.access_token)).status == 401


async def test_document_is_for_every_member_and_says_that_iam_is_on() -> None:
    async with members(encryption="on") as some:
        assert (await some.ask("GET")).error == (401, "unauthorized")
        document = (await some.ask("GET", bearer=await some.member("ws_read"))).json
        assert document["iam_enabled"] is True
        assert "encryption_key" in document


@pytest.mark.parametrize("with_claim", [False, True])
async def test_owner_and_creator_move_the_end_and_delete(with_claim: bool) -> None:
    async with members() as some:
        bearer = some.made["claim"] if with_claim else some.owner.access_token
        for wrong in (None, some.made["token"], await some.member(*(SCOPES - {FULL}))):
            assert (await some.ask("PATCH", "", b'{"ttl_seconds":60}', wrong)).error == (401, "unauthorized")
            assert (await some.ask("DELETE", bearer=wrong)).error == (401, "unauthorized")
        moved = await some.ask("PATCH", "", b'{"ttl_seconds":60}', bearer)
        assert moved.status == 200
        assert moved.json["expires_at"] != some.made["expires_at"]
        assert (await some.ask("DELETE", bearer=bearer)).status == 204
        assert (await some.ask("GET", bearer=bearer)).error == (404, "space_not_found")


async def test_owner_of_another_space_neither_moves_nor_deletes() -> None:
    async with members() as some:
        other = await some.claim(await some.site.make())
        assert (await some.ask("DELETE", bearer=other.access_token)).error == (401, "unauthorized")
        plain = await some.site.make()
        answer = await some.site.ask(
            "DELETE", f"/api/s/{plain['token']}", authorization=f"Bearer {some.owner.access_token}"
        )
        assert answer.error == (401, "unauthorized")


async def test_page_and_prompt_tell_no_key_to_those_who_have_the_token_alone() -> None:
    async with members(encryption="on") as some:
        key = (await some.ask("GET", bearer=some.owner.access_token)).json["encryption_key"]
        prompt = await some.site.ask("GET", f"/s/{some.made['token']}/prompt")
        assert prompt.status == 200
        assert "IAM is on" in prompt.body.decode()
        page = await some.site.ask("GET", f"/s/{some.made['token']}", accept="text/html")
        assert page.status == 403
        assert "For members" in page.body.decode()
        for answer in (prompt, page):
            assert key.encode() not in answer.body
        plain = await some.site.make(encryption="on")
        prompt = await some.site.ask("GET", f"/s/{plain['token']}/prompt")
        assert plain["encryption_key"] in prompt.body.decode()
        assert "IAM is off" in prompt.body.decode()


async def test_space_whose_iam_was_switched_off_takes_its_token_again() -> None:
    async with members() as some:
        by = some.iam.find(some.owner.access_token)
        assert by is not None
        assert await some.iam.disable(by) is None
        assert (await some.ask("GET", "/kv")).status == 200
        assert (await some.ask("GET")).json["iam_enabled"] is False
