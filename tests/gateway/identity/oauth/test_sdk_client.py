"""The OAuth client of the `mcp` SDK, from a 401 to an answer: it finds, registers, signs in, refreshes by itself."""

from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from gateway.identity.oauth.documents import resource_base, resource_document
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes
from tests.gateway.identity.oauth.site import BASE, REDIRECT, OAuthSite, split
from tests.gateway.markup import Markup

METADATA = "/.well-known/oauth-protected-resource/mcp"


class Storage:
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Opens the page that a client asks for, and touches a passkey."""

    def __init__(self, who: str = "ada", base: str = BASE) -> None:
        self.here = OAuthSite(base=base, more=self._resource())
        self.who = who
        self.pages = 0
        self.storage = Storage()
        self.answer: dict[str, str] = {}

    def _resource(self) -> Routes:
        async def serve(exchange: Exchange) -> None:
            if exchange.bearer() in self.here.worlds.live:
                await exchange.json({"ok": True})
                return
            base = resource_base(self.here.base, exchange.header(b"host"), exchange.scope["scheme"])
            challenge = f'Bearer resource_metadata="{base}{METADATA}", scope="echo.full"'
            await exchange.answer(401, b"", headers={b"www-authenticate": challenge.encode()})

        async def metadata(exchange: Exchange) -> None:
            await exchange.json(resource_document(self.here.base, exchange.header(b"host"), exchange.scope["scheme"]))

        return {"/mcp": (ANY, serve), METADATA: ("GET", metadata)}

    async def open(self, url: str) -> None:
        self.pages += 1
        parts = urlsplit(url)
        shown = await self.here.ask("GET", f"{parts.path}?{parts.query}")
        cookie = shown.headers["set-cookie"].partition(";")[0]
        ceremony = Markup(shown.body).by_id("authorize").attributes["data-ceremony"]
        said = await self.here.post("", {"ceremony": ceremony, "credential": {"id": self.who}}, cookie=cookie)
        if "offer" in said.json:
            said = await self.here.post("", {"ceremony": said.json["offer"]["ceremony"]}, cookie=cookie)
        address, self.answer = split(said.json["redirect"])
        assert address == REDIRECT

    async def wait(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self.answer["code"], state=self.answer["state"], iss=self.answer["iss"])

    def client(self, server: str) -> tuple[httpx2.AsyncClient, OAuthClientProvider]:
        about = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], client_name="SDK")
        provider = OAuthClientProvider(server, about, self.storage, self.open, self.wait)
        transport = httpx2.ASGITransport(app=self.here.app)
        return httpx2.AsyncClient(transport=transport, auth=provider), provider


async def test_a_client_that_never_saw_us_ends_with_an_answer() -> None:
    person = Person("owner")
    client, _ = person.client(f"{BASE}/mcp")
    async with client:
        answer = await client.post(f"{BASE}/mcp")
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert person.pages == 1
    assert person.storage.client is not None
    assert (person.storage.client.client_id or "").startswith("dcr_")
    assert [one[1:] for one in person.here.worlds.issued] == [(frozenset({"echo.full"}), "SDK", f"{BASE}/mcp")]


async def test_it_goes_on_with_the_scopes_that_were_granted_instead() -> None:
    person = Person("ada")
    client, _ = person.client(f"{BASE}/mcp")
    async with client:
        assert (await client.post(f"{BASE}/mcp")).status_code == 200
    assert person.storage.tokens is not None
    assert person.storage.tokens.scope == "kv_read ws_read"


async def test_on_this_machine_it_signs_in_under_either_name() -> None:
    base = "http://localhost:8420"
    for server in (f"{base}/mcp", "http://127.0.0.1:8420/mcp"):
        person = Person("owner", base)
        client, _ = person.client(server)
        async with client:
            assert (await client.post(server)).status_code == 200
        assert person.here.worlds.issued[0][3] == f"{base}/mcp"


async def test_it_refreshes_by_itself_and_asks_again_when_the_family_was_revoked() -> None:
    person = Person("owner")
    client, provider = person.client(f"{BASE}/mcp")
    async with client:
        await client.post(f"{BASE}/mcp")
        first = person.storage.tokens
        assert first is not None
        provider.context.token_expiry_time = 1.0
        assert (await client.post(f"{BASE}/mcp")).status_code == 200
        second = person.storage.tokens
        assert second is not None
        assert second.refresh_token != first.refresh_token
        assert person.pages == 1
        await person.here.form("/oauth/revoke", {"token": second.refresh_token or ""})
        provider.context.token_expiry_time = 1.0
        assert (await client.post(f"{BASE}/mcp")).status_code == 200
        assert person.pages == 2
