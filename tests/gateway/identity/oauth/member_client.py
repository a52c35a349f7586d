"""The OAuth client of the `mcp` SDK against a whole gateway, and the person with a passkey who agrees on its page."""

import json
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl

from gateway.main.server import Running
from tests.gateway.identity.oauth.site import REDIRECT
from tests.gateway.identity.oauth.test_sdk_client import Storage
from tests.gateway.identity.passkeys.authenticator import SoftwareAuthenticator
from tests.gateway.markup import Markup
from tests.gateway.spaces.test_live import ask, request

PATIENCE_S = 30


class HasPasskey(Protocol):
    """A member, of a space or of a tenant."""

    gateway: Running
    origin: str
    authenticator: SoftwareAuthenticator


P = TypeVar("P", bound=HasPasskey)


@dataclass
class Consenting(Generic[P]):
    """A browser that opens whatever page a client sends it to, and a person in front of it with a passkey."""

    person: P
    storage: Storage = field(default_factory=Storage)
    pages: list[str] = field(default_factory=list)
    answer: dict[str, str] = field(default_factory=dict)

    async def open(self, url: str) -> None:
        self.pages.append(url)
        parts, gateway = urlsplit(url), self.person.gateway
        shown = await ask(gateway, request("GET", f"{parts.path}?{parts.query}"))
        assert shown.status == 200, shown
        form = Markup(shown.body).by_id("authorize").attributes
        cookie = shown.headers["set-cookie"].partition(";")[0]
        credential = self.person.authenticator.sign_in(json.loads(form["data-options"]))
        said = await self._post({"ceremony": form["data-ceremony"], "credential": credential}, cookie)
        if "offer" in said:
            said = await self._post({"ceremony": said["offer"]["ceremony"]}, cookie)
        redirect = urlsplit(said["redirect"])
        assert f"{redirect.scheme}://{redirect.netloc}{redirect.path}" == REDIRECT
        self.answer = dict(parse_qsl(redirect.query))

    async def _post(self, body: Any, cookie: str) -> Any:
        headers = f"Origin: {self.person.origin}", f"Cookie: {cookie}", "Content-Type: application/json"
        said = await ask(self.person.gateway, request("POST", "/oauth/authorize", json.dumps(body).encode(), *headers))
        assert said.status == 200, said
        return said.json

    async def wait(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self.answer["code"], state=self.answer["state"], iss=self.answer["iss"])

    def provider(self, url: str) -> OAuthClientProvider:
        about = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], client_name="SDK")
        return OAuthClientProvider(url, about, self.storage, self.open, self.wait)

    def http(self, provider: OAuthClientProvider) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(auth=provider, timeout=PATIENCE_S)
