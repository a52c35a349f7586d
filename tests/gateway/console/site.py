"""A console in memory: its routes, a log on a made-up disk, calls that the test brings, and browsers that come."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from actors.console.operator_passkeys import OperatorPasskeys
from actors.log.memory_store import MemoryDisk, MemoryStore
from gateway.api.about import About
from gateway.api.actions import Actions, Done, Outcome
from gateway.api.admin_console import AdminConsole
from gateway.calls.audit import Audit
from gateway.console.api import ConsoleCall
from gateway.console.opening import Console
from gateway.console.settings import ConsoleSettings
from gateway.identity.operators import Operators
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.identity.tokens import NEVER_MS, OperatorScope, Principal, TokenClass, Verifier, key_id
from gateway.net.exchange import Exchange
from gateway.net.router import Router, RouteTable
from tests.actors.node.harness import now
from tests.gateway.api.client import Response, new_id
from tests.gateway.identity.passkeys.authenticator import HONEST, SoftwareAuthenticator
from tests.gateway.identity.passkeys.authenticator import Answer as Signed

ORIGIN = "https://ops.example"
SESSION = "__Host-heliograph_console"
KEY = Ed25519PrivateKey.from_private_bytes(b"c" * 32).public_key()
PLENTY = ConsoleSettings(sign_ins_burst=1_000, pages_burst=1_000)


class Poke(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str = ""


def operator(
    *scopes: OperatorScope, sub: str = "ada", jti: str | None = None, life_s: float | None = None
) -> Principal:
    """Whom a token speaks for; for ever, unless it is said for how long."""
    ends_ms = NEVER_MS if life_s is None else now().wall_ms + int(1000 * life_s)
    named = frozenset(scopes or tuple(OperatorScope))
    return Principal(sub, "operators", TokenClass.OPERATOR, named, jti or new_id(), 0, ends_ms)


@dataclass
class Site:
    calls: Iterable[ConsoleCall] = ()
    settings: ConsoleSettings = PLENTY
    origin: str = ORIGIN
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    elsewhere: set[bytes] = field(default_factory=set)  # passkeys of other realms
    poked: list[tuple[str, str]] = field(default_factory=list)

    async def open(self) -> "Site":
        """As after a start: what was in memory is gone."""
        self.verifier = Verifier({key_id(KEY): KEY}, issuer="test", audience="test")
        self.passkeys = OperatorPasskeys(MemoryStore(self.disk), self.settings.passkeys_max, lambda: now().wall_ms)
        await self.passkeys.load()
        audit = Audit(now)
        operators = Operators(self.verifier, now, 0)
        actions = Actions(operators, audit, now)

        async def act(exchange: Exchange) -> None:
            if await operators.any.admit(exchange) is not None:
                await table.find(exchange)(exchange)

        self.console = Console(
            lambda: self.origin,
            self.settings,
            self.passkeys,
            Ceremonies(),
            self.elsewhere.__contains__,
            self.verifier,
            audit,
            self.calls,
            act,
            now,
            new_id,
        )
        poke = actions.action("poke", OperatorScope.FLEET_WRITE, Poke, self._poke, About("Poke.", None))
        drop = actions.removal("drop", OperatorScope.FLEET_WRITE, self._drop, About("Drop.", None, name="name"))
        routes = {"/admin/poke": poke, "/admin/drop/{}": drop, **AdminConsole(actions, operators, self.console).routes}
        table = RouteTable({path: (route.method, route.handler) for path, route in routes.items()})
        self.app = Router(new_id, self.console.routes)
        return self

    def _poke(self, request: Poke, operator: Principal) -> Outcome:
        self.poked.append((operator.sub, request.text))
        return Done({"poked": request.text}, {"chars": len(request.text)})

    async def _drop(self, name: str) -> Outcome:
        await trio.lowlevel.checkpoint()
        self.poked.append(("drop", name))
        return Done({}, {"chars": len(name)})

    def link(self, principal: Principal | None = None, *, may_register: bool = True) -> str:
        """The secret of a link."""
        by = principal or operator()
        scopes = frozenset(scope for scope in OperatorScope if scope in (by.scopes or ()))
        return self.console.link(by, scopes, may_register=may_register).url.partition("#k=")[2]

    def revoke(self, token_id: str) -> None:
        """As an operator does."""
        self.verifier.revoke(token_id)
        self.console.revoke(token_id)

    async def signed_in(self, principal: Principal | None = None, **more: Any) -> "Browser":
        browser = Browser(self)
        answer = await browser.post("session", {"link": self.link(principal, **more)})
        assert answer.status == 200, answer
        return browser


class Browser:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.origin = site.origin
        self.cookies: dict[str, str] = {}
        self.authenticator = SoftwareAuthenticator(site.origin)

    async def post(self, name: str, body: Any = None, **headers: str | None) -> Response:
        """From the console's page: with its origin and its cookies. A header that is None is left out."""
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        answer = await self.ask("POST", f"/console/api/{name}", data, **headers)
        assert answer is not None
        return answer

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str | None) -> Response | None:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        fields = {"origin": self.origin, "content-type": "application/json", "cookie": cookie or None}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        given = [(name.encode(), value.encode("latin-1")) for name, value in fields.items() if value is not None]
        answer = await asked(self.site.app, method, path, body, given)
        if answer is not None and "set-cookie" in answer.headers:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def register(self, answer: Signed = HONEST) -> Response:
        begun = await self.post("passkey/options")
        if begun.status != 200:
            return begun
        credential = self.authenticator.register(begun.json["publicKey"], answer)
        return await self.post("passkey", {"ceremony": begun.json["ceremony"], "credential": credential})

    async def sign_in(self, answer: Signed = HONEST) -> Response:
        begun = await self.post("sign-in/options")
        assert begun.status == 200, begun
        credential = self.authenticator.sign_in(begun.json["publicKey"], answer)
        return await self.post("sign-in", {"ceremony": begun.json["ceremony"], "credential": credential})

    def elsewhere(self) -> "Browser":
        """Another browser of the same person: with the authenticator, without the cookies."""
        other = Browser(self.site)
        other.authenticator = self.authenticator
        return other


async def asked(
    app: Router, method: str, path: str, body: bytes, headers: list[tuple[bytes, bytes]], **more: Any
) -> Response | None:
    """One request without a server. None: there was no answer."""
    sent: list[Any] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if waiting:
            return waiting.pop(0)
        await trio.sleep_forever()
        return None

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": target,
        "query_string": query.encode(),
        "headers": headers,
        "client": ("192.0.2.1", 1),
        "extensions": {},
    }
    await app(scope | more, receive, send)
    if not sent:
        return None
    start, *bodies = sent
    answered = {name.decode(): value.decode() for name, value in start["headers"]}
    return Response(start["status"], answered, b"".join(part.get("body", b"") for part in bodies))
