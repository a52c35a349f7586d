"""The authorization server behind a real door, with passkeys that sign and a world in plain sight, on a thread."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import trio

from actors.supervision.supervisor import Supervisor
from gateway.identity.oauth.feature import oauth_feature
from gateway.identity.oauth.passkey_sign_in import CeremonySignIn
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.main.clock import now
from gateway.net.exchange import BODY_BYTES_MAX, Exchange
from gateway.net.http1.door import Door
from gateway.net.router import Router
from schemas.ulids import Mint
from tests.gateway.identity.oauth.site import ASKED, KEY, PLENTY, FakeWorlds

CALLBACK = b"<!doctype html><html lang=en><title>Client</title><link rel=icon href='data:,'><h1>Client</h1></html>"


@dataclass
class SignInSite:
    worlds: FakeWorlds
    port: int = 0

    @property
    def base(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def client(self) -> str:
        """Where the client waits: another host to the browser."""
        return f"http://127.0.0.1:{self.port}/callback"

    def address(self, **other: str) -> str:
        asked = {**ASKED, "redirect_uri": self.client, "resource": f"{self.base}/mcp", **other}
        return f"{self.base}/oauth/authorize?{urlencode(asked)}"

    async def serve(self, told: "queue.Queue[trio.lowlevel.TrioToken]", end: trio.Event) -> None:
        mint = Mint(lambda count: bytes(count))
        passkeys = CeremonySignIn(Ceremonies(), lambda: RelyingParty.of(self.base), self.worlds, now)
        feature = oauth_feature(
            self.worlds, passkeys, PLENTY, lambda: self.base, lambda: self.base, KEY, PASSKEY_SCRIPT, now
        )

        async def callback(exchange: Exchange) -> None:
            await exchange.answer(200, CALLBACK, b"text/html; charset=utf-8")

        app = Router(
            lambda: mint.mint(0), feature.routes, {"/callback": ("GET", callback)}, form_of=feature.refusal_form
        )
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor()
            await nursery.start(supervisor.run)
            door = Door(supervisor, app, body_bytes_max=lambda _: BODY_BYTES_MAX, form_of=feature.refusal_form)
            self.port = await door.listen("127.0.0.1", 0)
            told.put(trio.lowlevel.current_trio_token())
            await end.wait()
            nursery.cancel_scope.cancel()


@contextmanager
def sign_in_site() -> Iterator[SignInSite]:
    site, told = SignInSite(FakeWorlds({})), queue.Queue[trio.lowlevel.TrioToken]()
    end = trio.Event()
    thread = threading.Thread(target=trio.run, args=(site.serve, told, end))
    thread.start()
    token = told.get(timeout=20)
    try:
        yield site
    finally:
        trio.from_thread.run_sync(end.set, trio_token=token)
        thread.join()
