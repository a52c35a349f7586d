"""Spaces with IAM over HTTP: the token in the path and an access token of this space, by the scope of each route."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
import trio
import trio.testing

from actors.space.iam_events import Passkey
from actors.space.iam_tokens import Invited, Tokens
from gateway.spaces.file_routes import READ_BYTES
from gateway.spaces.settings import EchoSettings
from schemas.echo.scopes import FULL, SCOPES
from tests.gateway.spaces.site import PLENTY, Answer, Site, site

FORM = "multipart/form-data; boundary=b"
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\ncontent\r\n--b--\r\n'
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

    def __init__(self, site: Site) -> None:
        self.site = site
        self.iam = site.iam
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

    async def ask(
        self,
        method: str,
        path: str = "",
        body: bytes | Sequence[bytes | trio.Event] = b"",
        bearer: str | None = None,
        **headers: str,
    ) -> Answer:
        headers |= {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        return await self.site.ask(method, f"/api/s/{self.made['token']}{path}", body, **headers)


@asynccontextmanager
async def members(settings: EchoSettings = PLENTY, **fields: str) -> AsyncIterator[Members]:
    async with site(settings) as here:
        some = Members(here)
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
        for wrong in (None, some.made["token"]):
            assert (await some.ask("PATCH", "", b'{"ttl_seconds":60}', wrong)).error == (401, "unauthorized")
            assert (await some.ask("DELETE", bearer=wrong)).error == (401, "unauthorized")
        moved = await some.ask("PATCH", "", b'{"ttl_seconds":60}', bearer)
        assert moved.status == 200
        assert moved.json["expires_at"] != some.made["expires_at"]
        assert (await some.ask("DELETE", bearer=bearer)).status == 204
        assert (await some.ask("GET", bearer=bearer)).error == (404, "space_not_found")


@pytest.mark.parametrize(("method", "body"), [("PATCH", b'{"ttl_seconds":60}'), ("DELETE", b"")])
async def test_member_who_is_no_owner_lacks_a_scope_to_move_the_end_or_delete(method: str, body: bytes) -> None:
    async with members() as some:
        guest = await some.member(*(SCOPES - {FULL}))
        assert (await some.ask(method, "", body, guest)).error == (403, "insufficient_scope")


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
        assert page.status == 200
        assert "for its members" in page.body.decode()
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


# ---- members and invites ---------------------------------------------------------------------------------------------


async def test_everybody_learns_that_iam_is_on_and_owners_who_is_a_member() -> None:
    async with members() as some:
        guest = await some.member("kv_read", "ws_read")
        for bearer in (None, guest, "ea_" + "A" * 43):
            assert (await some.ask("GET", "/iam", bearer=bearer)).json == {"enabled": True}
        answer = await some.ask("GET", "/iam", bearer=some.owner.access_token)
        assert answer.headers["cache-control"] == "no-store"
        owner, member = answer.json["members"]
        assert set(owner) == {"member_id", "label", "scope", "added_at", "passkeys"}
        assert (owner["member_id"], owner["scope"], owner["passkeys"]) == (some.owner.member_id, FULL, 1)
        assert member["scope"] == "kv_read ws_read"
        plain = await some.site.make()
        assert (await some.site.ask("GET", f"/api/s/{plain['token']}/iam")).json == {"enabled": False}


async def test_owner_invites_with_scopes_and_an_end() -> None:
    async with members() as some:
        body = b'{"scope":"kv_read ws_read","ttl_seconds":60}'
        answer = await some.ask("POST", "/iam/invites", body, some.owner.access_token)
        assert answer.status == 201
        invite = answer.json["invite"]
        assert answer.json["url"].endswith(f"/s/{some.made['token']}#invite={invite}")
        passkey = Passkey(b"new", b"", 0)
        joined = await some.iam.add_member(some.made["space_id"], invite, b"h", "", passkey)
        assert isinstance(joined, Tokens)
        assert joined.scopes == {"kv_read", "ws_read"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"scope":""}',
        b'{"scope":"all"}',
        b'{"scope":"kv_read","x":1}',
        b'{"scope":"kv_read","ttl_seconds":1}',
    ],
)
async def test_malformed_invite_is_refused(body: bytes) -> None:
    async with members() as some:
        answer = await some.ask("POST", "/iam/invites", body, some.owner.access_token)
        assert answer.error == (400, "invalid_payload")


async def test_owner_removes_members_but_not_the_last_owner() -> None:
    async with members() as some:
        guest = await some.member("kv_read")
        found = some.iam.find(guest)
        assert found is not None
        bearer = some.owner.access_token
        assert (await some.ask("DELETE", f"/iam/members/{some.owner.member_id}", bearer=bearer)).error == (
            409,
            "last_owner",
        )
        assert (await some.ask("DELETE", "/iam/members/nobody", bearer=bearer)).error == (404, "not_found")
        assert (await some.ask("DELETE", f"/iam/members/{found.member_id}", bearer=bearer)).status == 204
        assert (await some.ask("GET", "/kv", bearer=guest)).status == 401


async def test_owner_switches_iam_off() -> None:
    async with members() as some:
        assert (await some.ask("DELETE", "/iam", bearer=some.owner.access_token)).status == 204
        assert (await some.ask("GET", "/kv")).status == 200
        assert (await some.ask("DELETE", "/iam", bearer=some.owner.access_token)).error == (401, "unauthorized")


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/iam"), ("POST", "/iam/invites"), ("DELETE", "/iam/members/m")]
)
async def test_only_owners_administer(method: str, path: str) -> None:
    async with members() as some:
        assert (await some.ask(method, path)).error == (401, "unauthorized")
        other = await some.claim(await some.site.make())
        assert (await some.ask(method, path, bearer=other.access_token)).error == (401, "unauthorized")
        guest = await some.member(*(SCOPES - {FULL}))
        assert (await some.ask(method, path, bearer=guest)).error == (403, "insufficient_scope")
        plain = await some.site.make()
        for bearer in ("", some.owner.access_token, plain["claim"]):
            answer = await some.site.ask(method, f"/api/s/{plain['token']}{path}", authorization=f"Bearer {bearer}")
            assert answer.error == (401, "unauthorized"), "there is nobody who could"


@pytest.mark.parametrize("path", ["/iam/", "/iam/members", "/iam/members/a/b", "/iam/invites/x", "/iam/x", "/iamx"])
async def test_other_paths_below_iam_are_not_there(path: str) -> None:
    async with members() as some:
        assert (await some.ask("GET", path, bearer=some.owner.access_token)).status in (404, 405)
        assert (await some.ask("PATCH", path, bearer=some.owner.access_token)).status in (404, 405)


Slow: TypeAlias = tuple[str, str, tuple[bytes, bytes], str]

SLOW: list[Slow] = [  # what waits in the middle of its body
    ("POST", "/kv/late", (b'{"value":', b'"v"}'), "application/json"),
    ("POST", "/files", (FILE[:-20], FILE[-20:]), FORM),
    ("PATCH", "", (b'{"ttl_seconds"', b": 60}"), "application/json"),
]


async def ask_slowly(
    here: Members, slow: Slow, bearer: str | None, meanwhile: Callable[[], Awaitable[object]]
) -> Answer:
    method, path, (begin, rest), kind = slow
    go_on, answers = trio.Event(), list[Answer]()

    async def ask() -> None:
        answers.append(await here.ask(method, path, [begin, go_on, rest], bearer, content_type=kind))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            await meanwhile()
            go_on.set()
    return answers[0]


async def state_of(here: Members, bearer: str) -> list[Any]:
    paths = "", "/kv", "/files"
    return [(await here.ask("GET", path, bearer=bearer)).json for path in paths]


@pytest.mark.parametrize("slow", SLOW)
@pytest.mark.parametrize("end", ["removed", "revoked"])
async def test_request_whose_grant_ends_while_its_body_comes_does_nothing(slow: Slow, end: str) -> None:
    async with members() as here:
        iam, mate, own = here.iam, await here.member(FULL), here.owner.access_token
        access, by = iam.find(mate), iam.find(own)
        assert access is not None
        assert by is not None
        before = await state_of(here, own)

        async def meanwhile() -> None:
            assert (
                await iam.remove_member(by, access.member_id) if end == "removed" else await iam.revoke(mate)
            ) is None

        answer = await ask_slowly(here, slow, mate, meanwhile)
        assert (answer.status, answer.json["error"]) == (401, "unauthorized")
        assert await state_of(here, own) == before


async def test_who_was_an_owner_does_not_move_the_end_of_a_room_whose_iam_was_switched_off_meanwhile() -> None:
    async with members() as here:
        own = here.owner.access_token
        by = here.iam.find(own)
        assert by is not None
        answer = await ask_slowly(here, SLOW[2], own, lambda: here.iam.disable(by))
        assert (answer.status, answer.json["error"]) == (401, "unauthorized")


@pytest.mark.parametrize("slow", SLOW[:2])
async def test_request_of_the_bare_token_that_is_under_way_when_iam_is_switched_on_does_nothing(slow: Slow) -> None:
    async with site() as one:
        here, owners = Members(one), list[Tokens]()
        here.made = await one.make()

        async def meanwhile() -> None:
            owners.append(await here.claim(here.made))

        answer = await ask_slowly(here, slow, None, meanwhile)
        assert (answer.status, answer.json["error"]) == (401, "unauthorized")
        _, values, files = await state_of(here, owners[0].access_token)
        assert (values["keys"], files["files"]) == ([], [])


@pytest.mark.parametrize("slow", SLOW[:2])
async def test_new_access_token_of_the_same_grant_ends_no_request_that_is_under_way(slow: Slow) -> None:
    async with members() as here:
        old = here.owner

        async def meanwhile() -> None:
            assert isinstance(await here.iam.refresh(old.refresh_token), Tokens)
            here.site.world.now_ms += 31_000
            assert here.iam.find(old.access_token) is None

        assert (await ask_slowly(here, slow, old.access_token, meanwhile)).status == 201


async def test_download_breaks_off_when_the_grant_of_its_reader_ends() -> None:
    async with members() as here:
        mate, own = await here.member("file_read"), here.owner.access_token
        body = FILE.replace(b"content", bytes(READ_BYTES * 3))
        file_id = (await here.ask("POST", "/files", body, own, content_type=FORM)).json["file_id"]
        pieces = 0

        def pass_time() -> None:
            nonlocal pieces
            pieces += 1
            if pieces == 2:  # its head, and the first of the content
                here.site.world.now_ms += 4_501_000  # the life of an access token, and 900 s without one

        here.site.on_piece = pass_time
        answer = await here.ask("GET", f"/files/{file_id}", bearer=mate)
        assert (answer.status, len(answer.body)) == (200, READ_BYTES)
