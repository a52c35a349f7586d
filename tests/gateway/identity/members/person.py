"""Somebody whom an operator has invited, in a browser with an authenticator in software; and the operator."""

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import trio
from ulid import ULID

from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.clock import now
from gateway.main.server import Running
from tests.gateway.identity.oauth.site import CHALLENGE, REDIRECT, VERIFIER
from tests.gateway.identity.passkeys.authenticator import HONEST, SoftwareAuthenticator
from tests.gateway.identity.passkeys.authenticator import Answer as Signed
from tests.gateway.markup import Markup

READ, CHANGE = "tools:call:read_only", "tools:call:reversible"


def base_of(gateway: Running) -> str:
    """As it is without a public URL."""
    return f"http://localhost:{gateway.http.rpartition(':')[2]}"


async def operate(
    gateway: Running, method: str, path: str, body: Any = None, *scopes: OperatorScope
) -> httpx2.Response:
    asked = list(scopes or (OperatorScope.TOKENS_MINT,))
    token = gateway.folder.mint(TokenClass.OPERATOR, "ops", "operators", asked, 60, str(ULID()), now().wall_ms)
    async with httpx2.AsyncClient(timeout=20) as http:
        headers = {"authorization": f"Bearer {token}"}
        return await http.request(method, f"http://{gateway.http}{path}", json=body, headers=headers)


async def invite(gateway: Running, tenant: str = "acme", *scopes: str, **more: Any) -> Any:
    """The answer of the operators' route."""
    body = {"tenant": tenant, "scopes": list(scopes or (READ,)), **more}
    answer = await operate(gateway, "POST", "/admin/members/invite", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


class Person:
    def __init__(self, gateway: Running) -> None:
        self.authenticator = SoftwareAuthenticator("")
        self.cookies: dict[str, str] = {}
        self.tokens: Any = None
        self.comes_to(gateway)

    def comes_to(self, gateway: Running) -> None:
        self.gateway = gateway
        self.origin = self.authenticator.origin = base_of(gateway)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self._ask("GET", path, None, headers)

    async def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        """From a page: with its origin and its cookies."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._ask("POST", path, data, {"origin": self.origin, **headers})

    async def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> httpx2.Response:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        fields = {"content-type": "application/json", **({"cookie": cookie} if cookie else {}), **headers}
        async with httpx2.AsyncClient(timeout=20) as http:
            answer = await http.request(method, f"http://{self.gateway.http}{path}", content=body, headers=fields)
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def join(self, invite_secret: str, answer: Signed = HONEST) -> httpx2.Response:
        begun = await self.post("/join/options", {"invite": invite_secret})
        if begun.status_code != 200:
            return begun
        credential = self.authenticator.register(begun.json()["publicKey"], answer)
        return await self.post("/join", {"ceremony": begun.json()["ceremony"], "credential": credential})

    async def consent(self, **asked: str) -> dict[str, str]:
        """What the client is told by the redirect."""
        query = {
            "response_type": "code",
            "redirect_uri": REDIRECT,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "scope": READ,
            **asked,
        }
        shown = await self.get(f"/oauth/authorize?{urlencode(query)}", host=urlsplit(self.origin).netloc)
        assert shown.status_code == 200, shown.text
        form = Markup(shown.content).by_id("authorize").attributes
        credential = self.authenticator.sign_in(json.loads(form["data-options"]))
        body = {"ceremony": form["data-ceremony"], "credential": credential}
        answer = await self.post("/oauth/authorize", body)
        if answer.status_code != 200:
            return {"status": str(answer.status_code)}
        return dict(parse_qsl(urlsplit(answer.json()["redirect"]).query))

    async def sign_in(self, **asked: str) -> Any:
        """Tokens, as a client gets them."""
        told = await self.consent(**asked)
        given = await self.exchange(told["code"], asked.get("redirect_uri", REDIRECT))
        assert given.status_code == 200, given.text
        self.tokens = given.json()
        return self.tokens

    async def exchange(self, code: str, redirect_uri: str = REDIRECT) -> httpx2.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": VERIFIER,
        }
        return await self.form("/oauth/token", form)

    async def refresh(self, refresh_token: str | None = None, **more: str) -> httpx2.Response:
        token = refresh_token or self.tokens["refresh_token"]
        given = await self.form("/oauth/token", {"grant_type": "refresh_token", "refresh_token": token, **more})
        if given.status_code == 200 and refresh_token is None:
            self.tokens = given.json()
        return given

    async def form(self, path: str, fields: dict[str, str]) -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=20) as http:
            return await http.post(f"http://{self.gateway.http}{path}", data=fields)


async def member_of(gateway: Running, *scopes: str, tenant: str = "acme") -> tuple[Any, Person]:
    """An invited person who has joined."""
    invited, person = await invite(gateway, tenant, *scopes), Person(gateway)
    joined = await person.join(invited["invite"])
    assert joined.status_code == 201, joined.text
    await trio.lowlevel.checkpoint()
    return invited, person
