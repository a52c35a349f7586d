"""IAM of a space on a whole gateway: passkeys are made and verified, tokens given, and all of it outlives a restart."""

import json
from pathlib import Path
from typing import Any

import trio
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed
from websockets.trio.client import connect
from websockets.trio.connection import Connection

from gateway.main.server import Running, running
from gateway.main.settings import load
from schemas.echo.scopes import FULL
from tests.gateway.api.live import Answer
from tests.gateway.identity.passkeys.authenticator import HONEST, SoftwareAuthenticator
from tests.gateway.identity.passkeys.authenticator import Answer as Signed
from tests.gateway.spaces.test_live import ON, ask, make, request

PATIENCE_S = 30.0


class Person:
    """A browser on a page of the gateway, with an authenticator."""

    def __init__(self, gateway: Running, made: Any) -> None:
        self.cookie = ""
        self.tokens: Any = None
        self.api = f"/api/s/{made['token']}"
        self.authenticator = SoftwareAuthenticator("")
        self.comes_to(gateway)

    def comes_to(self, gateway: Running) -> None:
        assert gateway.base is not None
        self.gateway = gateway
        self.origin = self.authenticator.origin = gateway.base()

    async def ask(self, method: str, path: str, body: Any = None, *headers: str) -> Answer:
        """With its access token, if it has one."""
        if self.tokens is not None:
            headers = (*headers, f"Authorization: Bearer {self.tokens['access_token']}")
        raw = b"" if body is None else json.dumps(body).encode()
        return await ask(self.gateway, request(method, self.api + path, raw, *headers))

    async def post(self, path: str, body: Any) -> Answer:
        """From a page: with its origin and its cookie."""
        answer = await self.ask("POST", f"/iam/{path}", body, f"Origin: {self.origin}", f"Cookie: {self.cookie}")
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    async def join(self, invite: str | None, label: str = "", answer: Signed = HONEST) -> Answer:
        begun = (await self.post("options", {} if invite is None else {"invite": invite})).json
        credential = self.authenticator.register(begun["publicKey"], answer)
        joined = await self.post("members", {"ceremony": begun["ceremony"], "credential": credential, "label": label})
        return self._keep(joined)

    async def login(self, answer: Signed = HONEST) -> Answer:
        self.tokens = None
        begun = (await self.post("login/options", {})).json
        credential = self.authenticator.sign_in(begun["publicKey"], answer)
        return self._keep(await self.post("login", {"ceremony": begun["ceremony"], "credential": credential}))

    def _keep(self, answer: Answer) -> Answer:
        if answer.status in (200, 201):
            self.tokens = answer.json
        return answer


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


async def close_code(socket: Connection) -> int | None:
    try:
        while True:
            await socket.recv()
    except ConnectionClosed:
        return socket.close_code


async def test_creator_switches_iam_on_and_members_come_with_passkeys_and_scopes(tmp_path: Path) -> None:
    settings = load(None, {}, {"data": str(tmp_path), **ON, "echo.ceremonies_burst": 1_000})
    with trio.fail_after(PATIENCE_S):
        async with running(settings) as gateway:
            made = await make(gateway)
            room = f"ws://{gateway.http}/ws/s/{made['token']}"
            ann = Person(gateway, made)
            assert (await ann.ask("POST", "/kv/k", {"value": "v"})).status == 201
            async with connect(room) as bare:
                assert json.loads(await bare.recv())["type"] == "welcome"
                joined = await ann.join(made["claim"], "Ann")
                assert (joined.status, joined.json["scope"]) == (201, FULL)
                assert await close_code(bare) == 4401
            async with connect(room) as bare:
                await bare.send('{"type":"msg","data":1}')
                assert await close_code(bare) == 4401
            stranger = Person(gateway, made)
            assert refusal(await stranger.ask("GET", "/kv/k")) == (401, "unauthorized")
            assert (await stranger.ask("GET", "/iam")).json == {"enabled": True}

            logged_in = await ann.login()
            assert (logged_in.status, logged_in.json["member_id"]) == (200, joined.json["member_id"])
            assert logged_in.json["access_token"] != joined.json["access_token"]
            assert (await ann.ask("GET", "/kv/k")).json["value"] == "v"
            async with connect(room) as socket:
                await socket.send(json.dumps({"type": "auth", "access_token": ann.tokens["access_token"]}))
                assert json.loads(await socket.recv())["type"] == "welcome"

            invited = await ann.ask("POST", "/iam/invites", {"scope": "kv_read"})
            bob = Person(gateway, made)
            assert (await bob.join(invited.json["invite"], "Bob")).json["scope"] == "kv_read"
            assert (await bob.ask("GET", "/kv/k")).status == 200
            assert refusal(await bob.ask("POST", "/kv/k", {"value": "w"})) == (403, "insufficient_scope")
            assert refusal(await bob.ask("POST", "/iam/invites", {"scope": "kv_read"})) == (403, "insufficient_scope")
            assert refusal(await stranger.post("options", {"invite": invited.json["invite"]})) == (401, "unauthorized")
            members = (await ann.ask("GET", "/iam")).json["members"]
            assert [(one["label"], one["scope"], one["passkeys"]) for one in members] == [
                ("Ann", FULL, 1),
                ("Bob", "kv_read", 1),
            ]

        async with running(settings) as gateway:
            ann.comes_to(gateway)
            bob.comes_to(gateway)
            assert (await bob.ask("GET", "/kv/k")).status == 200, "with the token from before"
            last = f"/iam/members/{ann.tokens['member_id']}"
            assert refusal(await ann.ask("DELETE", last)) == (409, "last_owner")
            assert (await ann.ask("DELETE", f"/iam/members/{bob.tokens['member_id']}")).status == 204
            assert refusal(await bob.ask("GET", "/kv/k")) == (401, "unauthorized")
            assert refusal(await bob.login()) == (404, "not_found")


async def test_passkey_that_proves_nothing_neither_joins_nor_signs_in(tmp_path: Path) -> None:
    settings = load(None, {}, {"data": str(tmp_path), **ON, "echo.ceremonies_burst": 1_000})
    refused = (401, "unauthorized")
    with trio.fail_after(PATIENCE_S):
        async with running(settings) as gateway:
            made, other = await make(gateway), await make(gateway)
            ann, eve = Person(gateway, made), Person(gateway, other)
            evil = Signed(client={"origin": "https://evil.example"})
            subdomain = Signed(client={"origin": ann.origin.replace("//", "//x.")})  # may name our relying party
            assert refusal(await ann.join(made["claim"], answer=subdomain)) == refused
            assert refusal(await ann.join(made["claim"], answer=evil)) == refused
            assert (await ann.ask("GET", "/iam")).json == {"enabled": False}, "and the claim is not used up"
            assert (await ann.join(made["claim"])).status == 201
            assert (await eve.join(other["claim"])).status == 201

            assert refusal(await ann.login(evil)) == refused
            assert refusal(await ann.login(subdomain)) == refused
            assert refusal(await ann.login(Signed(user_handle=bytes(32)))) == refused
            assert refusal(await ann.login(Signed(flags=1))) == refused, "the user was not verified"
            assert (await ann.login()).status == 200
            count = ann.authenticator.passkeys[-1].sign_count
            assert refusal(await ann.login(Signed(sign_count=count))) == refused, "a copy of it has signed before"
            eve.api = ann.api
            assert refusal(await eve.login()) == refused, "her passkey is another room's"

            ann.tokens = None
            begun = (await ann.post("login/options", {})).json
            body = {"ceremony": begun["ceremony"], "credential": ann.authenticator.sign_in(begun["publicKey"])}
            cookie, ann.cookie = ann.cookie, eve.cookie
            assert refusal(await ann.post("login", body)) == refused, "another browser began it"
            ann.cookie = cookie
            assert (await ann.post("login", body)).status == 200
            assert refusal(await ann.post("login", body)) == refused, "it was used"
        async with running(settings) as gateway:
            ann.comes_to(gateway)
            assert refusal(await ann.login(Signed(sign_count=count))) == refused, "counts outlive a restart"
            assert (await ann.login()).status == 200


async def test_owner_adds_a_passkey_and_signs_in_with_either(tmp_path: Path) -> None:
    settings = load(None, {}, {"data": str(tmp_path), **ON})
    with trio.fail_after(PATIENCE_S):
        async with running(settings) as gateway:
            made = await make(gateway)
            ann = Person(gateway, made)
            member_id = (await ann.join(made["claim"])).json["member_id"]
            assert (await ann.join(None)).json["member_id"] == member_id
            first, second = ann.authenticator.passkeys
            assert first.user_handle == second.user_handle
            for passkey in (first, second):
                ann.authenticator.passkeys = [passkey]
                assert (await ann.login()).json["member_id"] == member_id


async def test_base_that_is_an_ip_address_has_spaces_without_passkeys(tmp_path: Path) -> None:
    settings = load(None, {}, {"data": str(tmp_path), **ON, "http.public_url": "https://192.0.2.1"})
    with trio.fail_after(PATIENCE_S), capture_logs() as logged:
        async with running(settings) as gateway:
            made = await make(gateway)
            ann = Person(gateway, made)
            assert (await ann.ask("POST", "/kv/k", {"value": "v"})).status == 201
            for path in ("options", "members", "login/options", "login"):
                assert refusal(await ann.post(path, {})) == (404, "not_found")
            assert (await ann.ask("GET", "/iam")).json == {"enabled": False}
    assert [(line["log_level"], line["reason"]) for line in logged if line["event"] == "passkeys_unavailable"] == [
        ("warning", "passkeys need a domain in http.public_url, not an IP address; on this machine, localhost")
    ]
