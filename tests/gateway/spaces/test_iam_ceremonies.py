"""Joining a space and signing in over HTTP, with passkeys that are taken on their word."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from actors.space.iam import SpaceIam
from actors.space.iam_events import Passkey
from gateway.spaces.iam_ceremonies import COOKIE, Asker, Begun, PasskeyUser, Registered, SignedIn
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError
from schemas.echo.scopes import FULL
from tests.gateway.spaces.site import BASE, PLENTY, Answer, Site, site


class TrustingPasskeys:
    """Implements `PasskeyCeremonies`: a credential is good if it says so."""

    def __init__(self, iam: SpaceIam) -> None:
        self.iam = iam
        self.begun: dict[str, tuple[str, str, object]] = {}  # browser, realm, context
        self.users: list[PasskeyUser] = []
        self.known: Sequence[bytes] = ()

    def _begin(self, asker: Asker, realm: str, context: object) -> Begun:
        ceremony = f"c{len(self.begun)}"
        self.begun[ceremony] = asker.browser, realm, context
        return Begun(ceremony, {"challenge": "x"})

    def begin_registration(
        self, asker: Asker, realm: str, user: PasskeyUser, known: Sequence[bytes], context: object
    ) -> Begun:
        self.users.append(user)
        self.known = known
        return self._begin(asker, realm, context)

    def begin_login(self, asker: Asker, realm: str) -> Begun:
        return self._begin(asker, realm, None)

    def _take(self, asker: Asker, realm: str, ceremony: str) -> tuple[object] | None:
        browser, begun_realm, context = self.begun.get(ceremony, ("", "", None))
        if (browser, begun_realm) != (asker.browser, realm):
            return None
        del self.begun[ceremony]
        return (context,)

    def finish_registration(self, asker: Asker, realm: str, ceremony: str, credential: object) -> Registered | None:
        taken = self._take(asker, realm, ceremony)
        assert isinstance(credential, dict)
        if taken is None or "id" not in credential:
            return None
        return Registered(Passkey(credential["id"].encode(), b"k", credential.get("count", 0)), taken[0])

    def finish_login(self, asker: Asker, realm: str, ceremony: str, credential: object) -> SignedIn | EchoError:
        assert isinstance(credential, dict)
        if self._take(asker, realm, ceremony) is None:
            return EchoError.UNAUTHORIZED
        known = self.iam.find_passkey(credential["id"].encode())
        if known is None:
            return EchoError.NOT_FOUND
        return (
            SignedIn(known, credential.get("count", 0))
            if f"space:{known.space_id}" == realm
            else EchoError.UNAUTHORIZED
        )


class Browser:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.cookie = ""
        self.origin: str | None = BASE
        self.bearer: str | None = None

    async def post(self, made: Any, path: str, body: Any = None) -> Answer:
        headers = {"cookie": self.cookie}
        if self.origin is not None:
            headers["origin"] = self.origin
        if self.bearer is not None:
            headers["authorization"] = f"Bearer {self.bearer}"
        raw = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        answer = await self.site.ask("POST", f"/api/s/{made['token']}/iam/{path}", raw, **headers)
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        assert "access-control-allow-origin" not in answer.headers
        return answer

    async def join(self, made: Any, name: str, invite: str | None = None, **more: Any) -> Answer:
        begun = await self.post(made, "options", {} if invite is None else {"invite": invite})
        if begun.status != 200:
            return begun
        body = {"ceremony": begun.json["ceremony"], "credential": {"id": name, **more}, "label": name}
        return await self.post(made, "members", body)

    async def login(self, made: Any, name: str, **more: Any) -> Answer:
        begun = await self.post(made, "login/options")
        if begun.status != 200:
            return begun
        body = {"ceremony": begun.json["ceremony"], "credential": {"id": name, **more}}
        return await self.post(made, "login", body)


@asynccontextmanager
async def browser(settings: EchoSettings | None = None) -> AsyncIterator[tuple[Browser, TrustingPasskeys]]:
    made: list[TrustingPasskeys] = []

    def passkeys(iam: SpaceIam) -> TrustingPasskeys:
        made.append(TrustingPasskeys(iam))
        return made[0]

    async with site(settings or replace(PLENTY, ceremonies_burst=1_000), passkeys=passkeys) as here:
        yield Browser(here), made[0]


async def test_creator_switches_iam_on_invites_and_the_member_signs_in() -> None:
    async with browser() as (ann, passkeys):
        made = await ann.site.make()
        first = await ann.join(made, "ann", made["claim"])
        assert first.status == 201
        tokens = first.json
        assert set(tokens) == {"access_token", "token_type", "expires_in", "refresh_token", "scope", "member_id"}
        assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == ("Bearer", 3_600, FULL)
        assert first.headers["cache-control"] == "no-store"
        invited = await ann.site.ask(
            "POST",
            f"/api/s/{made['token']}/iam/invites",
            b'{"scope":"kv_read"}',
            authorization=f"Bearer {tokens['access_token']}",
        )
        bob = Browser(ann.site)
        joined = await bob.join(made, "bob", invited.json["invite"])
        assert (joined.status, joined.json["scope"]) == (201, "kv_read")
        again = await bob.login(made, "bob")
        assert (again.status, again.json["member_id"]) == (200, joined.json["member_id"])
        handles = [user.handle for user in passkeys.users]
        assert len(set(handles)) == 2
        assert all(len(handle) == 32 for handle in handles)
        assert made["space_id"][-6:] in passkeys.users[0].name


async def test_cookie_is_one_that_no_other_site_can_set_or_send() -> None:
    async with browser() as (ann, _):
        made = await ann.site.make()
        answer = await ann.post(made, "options", {"invite": made["claim"]})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert cookie.endswith("; Secure; Path=/; HttpOnly; SameSite=Strict")
        assert (await ann.post(made, "options", {"invite": made["claim"]})).headers["set-cookie"] == cookie


@pytest.mark.parametrize("origin", [None, "null", "http://x.localhost:8420", BASE.upper(), BASE + "/"])
@pytest.mark.parametrize("path", ["options", "members", "login/options", "login"])
async def test_other_origins_begin_and_finish_nothing(path: str, origin: str | None) -> None:
    async with browser() as (ann, passkeys):
        made = await ann.site.make()
        ann.origin = origin
        assert (await ann.post(made, path)).error == (403, "csrf_failed")
        assert passkeys.begun == {}
        answer = await ann.site.ask("OPTIONS", f"/api/s/{made['token']}/iam/{path}")
        assert answer.status == 405
        assert "access-control-allow-origin" not in answer.headers


async def test_ceremony_is_its_own_browsers_and_its_own_spaces() -> None:
    async with browser() as (ann, _):
        made, other = await ann.site.make(), await ann.site.make()
        begun = (await ann.post(made, "options", {"invite": made["claim"]})).json["ceremony"]
        body = {"ceremony": begun, "credential": {"id": "x"}}
        thief = Browser(ann.site)
        assert (await thief.post(made, "members", body)).error == (401, "unauthorized")
        thief.cookie = f"{COOKIE}=other"
        assert (await thief.post(made, "members", body)).error == (401, "unauthorized")
        thief.cookie = f"{ann.cookie}; {ann.cookie}"
        assert (await thief.post(made, "members", body)).error == (401, "unauthorized")
        assert (await ann.post(other, "members", body)).error == (401, "unauthorized")


@pytest.mark.parametrize("which", ["token", "nothing", "other claim"])
async def test_nobody_but_the_creator_switches_iam_on(which: str) -> None:
    async with browser() as (ann, passkeys):
        made, other = await ann.site.make(), await ann.site.make()
        invite = {"token": made["token"], "nothing": None, "other claim": other["claim"]}[which]
        assert (await ann.join(made, "ann", invite)).error == (401, "unauthorized")
        assert passkeys.begun == {}


async def test_claim_that_was_used_while_a_passkey_was_made_is_no_good() -> None:
    async with browser() as (ann, _):
        made = await ann.site.make()
        begun = (await ann.post(made, "options", {"invite": made["claim"]})).json["ceremony"]
        assert (await ann.join(made, "first", made["claim"])).status == 201
        late = await ann.post(made, "members", {"ceremony": begun, "credential": {"id": "second"}})
        assert late.error == (401, "unauthorized")


async def test_owner_adds_a_passkey_of_their_own_and_others_do_not() -> None:
    async with browser() as (ann, passkeys):
        made = await ann.site.make()
        tokens = (await ann.join(made, "ann", made["claim"])).json
        ann.bearer = tokens["access_token"]
        second = await ann.join(made, "ann's key")
        assert (second.status, second.json["member_id"]) == (201, tokens["member_id"])
        assert list(passkeys.known) == [b"ann"]
        assert passkeys.users[0].handle == passkeys.users[1].handle
        assert (await ann.join(made, "ann's key")).error == (400, "invalid_payload")
        found = ann.site.iam.find(tokens["access_token"])
        assert found is not None
        narrow = await ann.site.iam.issue(found.giver, found.member_id, frozenset({"kv_read"}))
        assert not isinstance(narrow, EchoError)
        ann.bearer = narrow.access_token
        assert (await ann.post(made, "options")).error == (403, "insufficient_scope"), "no ceremony is begun"


async def test_login_takes_a_passkey_of_this_space_that_has_counted_on() -> None:
    async with browser() as (ann, _):
        made, other = await ann.site.make(), await ann.site.make()
        assert (await ann.login(made, "ann")).error == (401, "unauthorized"), "IAM is off"
        assert (await ann.join(made, "ann", made["claim"], count=4)).status == 201
        assert (await ann.join(other, "eve", other["claim"])).status == 201
        assert (await ann.login(made, "ann", count=5)).status == 200
        assert (await ann.login(made, "ann", count=5)).error == (401, "unauthorized")
        assert (await ann.login(made, "eve")).error == (401, "unauthorized")
        assert (await ann.login(made, "nobody")).error == (404, "not_found")
        assert (await ann.post(made, "login/other")).error == (404, "not_found")


@pytest.mark.parametrize("path", ["options", "members", "login/options", "login"])
@pytest.mark.parametrize("body", [b"[", b"[]", b'{"x":1}', b'{"ceremony":1,"credential":{}}', b"[" * 10_000])
async def test_malformed_bodies_are_refused(path: str, body: bytes) -> None:
    async with browser() as (ann, _):
        assert (await ann.post(await ann.site.make(), path, body)).error == (400, "invalid_payload")


async def test_address_begins_only_so_many() -> None:
    async with browser(PLENTY) as (ann, _):
        made = await ann.site.make()
        answers = [await ann.post(made, "options", {"invite": made["claim"]}) for _ in range(11)]
        assert [answer.status for answer in answers] == [200] * 10 + [429]
        assert "retry_after_ms" in answers[-1].json


async def test_label_of_a_member_is_printable() -> None:
    async with browser() as (ann, _):
        made = await ann.site.make()
        assert (await ann.join(made, "a\nb", made["claim"])).error == (400, "invalid_payload")


async def test_without_passkeys_there_are_no_ceremonies() -> None:
    async with site() as here:
        made = await here.make()
        answer = await here.ask("POST", f"/api/s/{made['token']}/iam/options", origin=BASE)
        assert answer.error == (404, "not_found")
