"""An operator in a browser with an authenticator in software, at a whole gateway; and operators without one."""

import json
from typing import Any
from urllib.parse import urlsplit

import httpx2
from ulid import ULID

from gateway.identity.tokens import OperatorScope, TokenClass
from gateway.main.clock import now
from gateway.main.server import Running
from tests.gateway.identity.passkeys.authenticator import HONEST, SoftwareAuthenticator
from tests.gateway.identity.passkeys.authenticator import Answer as Signed


def operator_token(
    gateway: Running, *scopes: OperatorScope, sub: str = "ada", life_s: int = 400 * 86_400, jti: str | None = None
) -> str:
    asked = list(scopes or tuple(OperatorScope))
    return gateway.folder.mint(TokenClass.OPERATOR, sub, "operators", asked, life_s, jti or str(ULID()), now().wall_ms)


async def admin(gateway: Running, method: str, path: str, token: str, body: Any = None) -> httpx2.Response:
    """As a program: with a bearer."""
    async with httpx2.AsyncClient(timeout=20, verify=False) as http:
        headers = {"authorization": f"Bearer {token}"}
        return await http.request(method, f"{gateway.admin_url}{path}", json=body, headers=headers)


async def made_link(gateway: Running, token: str | None = None, **body: Any) -> Any:
    answer = await admin(gateway, "POST", "/admin/console/link", token or operator_token(gateway), body)
    assert answer.status_code == 200, answer.text
    return answer.json()


class Operator:
    """Comes by the console's page: with its origin and its cookies."""

    def __init__(self, gateway: Running, origin: str) -> None:
        self.gateway = gateway
        self.origin = origin
        self.cookies: dict[str, str] = {}
        self.authenticator = SoftwareAuthenticator(origin)

    @classmethod
    async def by_link(cls, gateway: Running, url: str) -> "Operator":
        origin, _, secret = url.partition("/console#k=")
        one = cls(gateway, origin)
        answer = await one.post("session", {"link": secret})
        assert answer.status_code == 200, answer.text
        return one

    async def post(self, name: str, body: Any = None, **headers: str) -> httpx2.Response:
        data = json.dumps({} if body is None else body).encode()
        return await self.ask("POST", f"/console/api/{name}", data, **headers)

    async def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> httpx2.Response:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        fields = {"content-type": "application/json", "origin": self.origin, "host": urlsplit(self.origin).netloc}
        fields |= {**({"cookie": cookie} if cookie else {}), **headers}
        async with httpx2.AsyncClient(timeout=20, verify=False) as http:
            answer = await http.request(method, f"{self.gateway.admin_url}{path}", content=body, headers=fields)
        if "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def act(self, path: str, body: Any = None, method: str = "POST") -> httpx2.Response:
        return await self.post("act", {"path": path, "method": method, "body": {} if body is None else body})

    async def register(self, answer: Signed = HONEST) -> httpx2.Response:
        begun = (await self.post("passkey/options")).json()
        credential = self.authenticator.register(begun["publicKey"], answer)
        return await self.post("passkey", {"ceremony": begun["ceremony"], "credential": credential})

    async def sign_in(self) -> httpx2.Response:
        begun = (await self.post("sign-in/options")).json()
        credential = self.authenticator.sign_in(begun["publicKey"])
        return await self.post("sign-in", {"ceremony": begun["ceremony"], "credential": credential})
