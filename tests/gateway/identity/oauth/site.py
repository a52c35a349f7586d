"""The authorization server over a world and passkeys of the test's own, with a client that speaks ASGI."""

import base64
import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode

import trio

from actors.node.moment import Moment
from gateway.identity.oauth.feature import oauth_feature
from gateway.identity.oauth.oauth_errors import OAuthError
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.oauth.worlds import BegunSignIn, SignedInMember, SignIn, SignInFault, TokenAnswer
from gateway.net.router import Router, Routes
from schemas.echo.names import IAM_ACCESS, IAM_REFRESH, credential
from schemas.ulids import Mint
from tests.gateway.markup import Markup


def challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


BASE, LOCAL, ISSUER = "https://gw.example", "http://localhost:8420", "https://gw.example/oauth"
REDIRECT = "http://127.0.0.1:51000/callback"
KEY = bytes(range(32))
FORM = "application/x-www-form-urlencoded"
VERIFIER = "v" * 43
CHALLENGE = challenge_of(VERIFIER)
PLENTY = OAuthSettings(requests_burst=10_000, ceremonies_burst=10_000, registrations_burst=10_000)
ASKED = {
    "response_type": "code", "redirect_uri": REDIRECT, "code_challenge": CHALLENGE, "code_challenge_method": "S256",
    "client_id": "inspector", "state": "st 4/te", "scope": "kv_read kv_write tools:call:read_only",
    "resource": f"{BASE}/mcp",
}  # fmt: skip

ADA = SignedInMember("space:01j", "m-ada", "Ada", b"ada", b"h", b"k", 0, frozenset({"kv_read", "ws_read"}))
OWNER = replace(ADA, member_id="m-owner", label="Owner", credential_id=b"owner", scopes=frozenset({"echo.full"}))
GRACE = SignedInMember(
    "fleet:acme", "agent_grace", "Grace", b"grace", b"h", b"k", 0, frozenset({"tools:call:read_only"})
)


@dataclass
class FakeWorlds:
    """Grants in plain sight. Refresh tokens rotate; a used one ends its family."""

    members: dict[bytes, SignedInMember] = field(
        default_factory=lambda: {one.credential_id: one for one in (ADA, OWNER, GRACE)}
    )
    issued: list[tuple[SignedInMember, frozenset[str], str, str]] = field(default_factory=list)
    live: dict[str, str] = field(default_factory=dict)  # tokens, with their grants
    used: dict[str, str] = field(default_factory=dict)
    ended: list[tuple[str, str]] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)
    slow: trio.Event | None = None
    """`issue` waits for it."""
    fault: OAuthError | None = None
    """What is said instead of writing."""
    numbers: Any = field(default_factory=itertools.count)

    def find(self, credential_id: bytes) -> SignedInMember | None:
        return self.members.get(credential_id)

    async def use_passkey(self, member: SignedInMember, sign_count: int) -> OAuthError | None:
        await trio.lowlevel.checkpoint()
        self.members[member.credential_id] = replace(member, sign_count=sign_count)
        return self.fault

    async def issue(
        self, member: SignedInMember, scopes: frozenset[str], client_name: str, resource: str
    ) -> TokenAnswer | OAuthError:
        await trio.lowlevel.checkpoint()
        if self.slow is not None:
            await self.slow.wait()
        if self.fault is not None:
            return self.fault
        if member.credential_id not in self.members:
            return OAuthError.INVALID_GRANT
        self.issued.append((member, scopes, client_name, resource))
        return self._pair(member.realm, f"grant-{len(self.issued)}", scopes)

    def _pair(self, realm: str, grant_id: str, scopes: frozenset[str]) -> TokenAnswer:
        secret = next(self.numbers).to_bytes(32)
        access, refresh = credential(IAM_ACCESS, secret), credential(IAM_REFRESH, secret)
        self.live |= {access: grant_id, refresh: grant_id}
        return TokenAnswer(access, refresh, 3600, scopes, realm, grant_id)

    async def refresh(self, refresh_token: str, scopes: frozenset[str] | None) -> TokenAnswer | OAuthError:
        await trio.lowlevel.checkpoint()
        if refresh_token in self.used:
            await self.end_grant("space:01j", self.used[refresh_token])
            return OAuthError.INVALID_GRANT
        grant_id = self.live.get(refresh_token)
        if grant_id is None:
            return OAuthError.INVALID_GRANT
        granted = self.issued[int(grant_id.removeprefix("grant-")) - 1][1]
        if scopes is not None and not scopes <= granted:
            return OAuthError.INVALID_SCOPE
        self.used[refresh_token] = self.live.pop(refresh_token)
        return self._pair("space:01j", grant_id, scopes or granted)

    async def revoke(self, token: str) -> OAuthError | None:
        await trio.lowlevel.checkpoint()
        if self.fault is not None:
            return self.fault
        self.revoked.append(token)
        if token in self.live:
            await self.end_grant("space:01j", self.live[token])
        return None

    async def end_grant(self, realm: str, grant_id: str) -> OAuthError | None:
        await trio.lowlevel.checkpoint()
        if self.fault is not None:
            return self.fault
        self.ended.append((realm, grant_id))
        self.live = {token: grant for token, grant in self.live.items() if grant != grant_id}
        return None


class FakePasskeys:
    """A credential is `{"id": …}` of a member of the world, and proves itself unless it says `bad` or `unwritten`."""

    def __init__(self, worlds: FakeWorlds) -> None:
        self._worlds = worlds
        self.under_way: dict[str, tuple[str, object]] = {}
        self.addresses: list[str] = []

    def begin(self, browser: str, address: str, context: object) -> BegunSignIn:
        self.addresses.append(address)
        ceremony = f"ceremony-{len(self.under_way)}"
        self.under_way[ceremony] = browser, context
        return BegunSignIn(ceremony, {"challenge": "Y2g", "rpId": "gw.example"})

    async def finish(self, ceremony: str, browser: str, credential: Mapping[str, Any]) -> SignIn | SignInFault:
        await trio.lowlevel.checkpoint()
        owner, context = self.under_way.get(ceremony, (None, None))
        if owner != browser:
            return SignInFault.REFUSED
        self.under_way[ceremony] = "", None
        member = self._worlds.find(str(credential.get("id")).encode())
        if member is None:
            return SignInFault.CREDENTIAL_UNKNOWN
        if "unwritten" in credential:
            return SignInFault.UNAVAILABLE
        return SignInFault.REFUSED if "bad" in credential else SignIn(member, context)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        return self.status, self.json["error"]

    @property
    def sent_to(self) -> tuple[str, dict[str, str]]:
        return split(self.headers["location"])


def split(url: str) -> tuple[str, dict[str, str]]:
    """Where it leads to, and with which parameters."""
    address, _, query = url.partition("?")
    assert all(len(values) == 1 for values in parse_qs(query).values())
    return address, dict(parse_qsl(query))


@dataclass(frozen=True, slots=True)
class ConsentPage:
    """As a browser has it."""

    ceremony: str
    cookie: str
    markup: Markup


class OAuthSite:
    def __init__(self, settings: OAuthSettings = PLENTY, base: str = BASE, more: Routes | None = None) -> None:
        self.worlds = FakeWorlds()
        self.passkeys = FakePasskeys(self.worlds)
        self.now_s = 1_000.0
        self.base = base
        mint = Mint(lambda count: bytes(count))
        script = Path(__file__).with_name("passkey.js")
        feature = oauth_feature(
            self.worlds, self.passkeys, settings, lambda: self.base, lambda: LOCAL, KEY, script, self._now
        )
        self.app = Router(lambda: mint.mint(0), feature.routes, more or {}, form_of=feature.refusal_form)

    def _now(self) -> Moment:
        return Moment(self.now_s, int(self.now_s * 1000))

    async def ask(
        self, method: str, target: str, body: bytes = b"", client: str = "192.0.2.1", /, **headers: str
    ) -> Answer:
        """`headers` have underscores for dashes."""
        raw_path, _, query = target.partition("?")
        waiting, sent = [body], list[Any]()

        async def receive() -> Any:
            await trio.lowlevel.checkpoint()
            if not waiting:
                await trio.sleep_forever()
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}

        async def send(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": (client, 1),
        }
        await self.app(scope, receive, send)
        start, *bodies = sent
        fields = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], fields, b"".join(part.get("body", b"") for part in bodies))

    # ---- as a browser -----------------------------------------------------------------------------------------------

    async def authorize(self, without: str = "", /, **other: str) -> Answer:
        """GET with good parameters, but for these."""
        asked = {name: value for name, value in {**ASKED, **other}.items() if name != without}
        return await self.ask("GET", f"/oauth/authorize?{urlencode(asked)}")

    async def page(self, without: str = "", /, **other: str) -> ConsentPage:
        answer = await self.authorize(without, **other)
        assert answer.status == 200, answer
        markup = Markup(answer.body)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return ConsentPage(markup.by_id("authorize").attributes["data-ceremony"], cookie, markup)

    async def post(self, page: ConsentPage | str, body: Mapping[str, Any], /, **headers: str) -> Answer:
        own = {"origin": self.base, "content_type": "application/json"}
        cookie = {"cookie": page.cookie} if isinstance(page, ConsentPage) else {}
        return await self.ask("POST", "/oauth/authorize", json.dumps(body).encode(), **{**own, **cookie, **headers})

    async def consent(self, who: str = "ada", without: str = "", /, **other: str) -> tuple[str, dict[str, str]]:
        """Where the browser is sent after a member's passkey."""
        page = await self.page(without, **other)
        answer = await self.post(page, {"ceremony": page.ceremony, "credential": {"id": who}})
        assert answer.status == 200, answer
        if "offer" in answer.json:
            answer = await self.post(page, {"ceremony": answer.json["offer"]["ceremony"]})
        return split(answer.json["redirect"])

    async def code(self, who: str = "ada", **other: str) -> str:
        return (await self.consent(who, **other))[1]["code"]

    # ---- as a client ------------------------------------------------------------------------------------------------

    async def form(self, path: str, fields: Mapping[str, str] | bytes, /, **headers: str) -> Answer:
        body = fields if isinstance(fields, bytes) else urlencode(fields).encode()
        return await self.ask("POST", path, body, **{"content_type": FORM, **headers})

    async def exchange(self, code: str, without: str = "", /, **other: str) -> Answer:
        good = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT, "code_verifier": VERIFIER,
            "client_id": "inspector",
        }  # fmt: skip
        fields = {name: value for name, value in {**good, **other}.items() if name != without}
        return await self.form("/oauth/token", fields)

    async def register(self, client: str = "192.0.2.1", /, **metadata: Any) -> Answer:
        body = json.dumps({"redirect_uris": [REDIRECT], "client_name": "Inspector", **metadata}).encode()
        return await self.ask("POST", "/oauth/register", body, client, content_type="application/json")
