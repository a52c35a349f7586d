"""One gateway of several is the desk: it alone signs people in, the others hand such requests to it as they came.

Signing in takes several requests that belong together: a challenge and its answer, a code and the token for it, a link,
the console's session after it. Between them they are in the memory of the process that began them, as in a gateway by
itself. With one desk none of them can be used twice, because no two processes know of it. If the desk dies, whoever was
signing in begins again, and sessions of the console are over, as after a restart.

The desk is the process that is the janitor. Two for a moment are harmless: what one began, the other does not know.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import trio

from actors.engine.janitor import KEY
from actors.engine.kv import Kv
from actors.engine.presence_rules import ProcessEntry
from actors.log.store import UnreadableError
from gateway.main.feature import Feature
from gateway.mcp.forward import VIA, Forwards
from gateway.mcp.homes import Home
from gateway.net.asgi import App
from gateway.net.exchange import AsgiScope, Exchange, Receive, Send
from gateway.net.router import Handler, Routes

KNOWN_S = 1.0  # for which the desk is where it was when somebody looked
LOOK_S_MAX = 2.0  # for an answer of the engine; then a request is answered where it is


class Desk:
    def __init__(self, live: Kv, process: str, processes: Mapping[str, ProcessEntry], forwards: Forwards) -> None:
        self._live = live
        self._process = process
        self._processes = processes
        self._forwards = forwards
        self._home: Home | None = None
        self._looked_s: float | None = None

    def before(self, feature: Feature) -> Feature:
        """The feature, whose routes are answered at the desk."""
        return replace(feature, routes=self.at(feature.routes))

    def at(self, routes: Routes, is_for_it: Callable[[str], bool] = lambda _: True) -> Routes:
        """`is_for_it`: by path."""
        return {path: (method, partial(self._answer, handler, is_for_it)) for path, (method, handler) in routes.items()}

    async def _answer(self, handler: Handler, is_for_it: Callable[[str], bool], exchange: Exchange) -> None:
        if is_for_it(exchange.path) and exchange.header(VIA) is None:
            home = await self._where()
            if home is not None and await self._forwards.hand_over(exchange, home, None):
                return
        await handler(exchange)

    async def _where(self) -> Home | None:
        """None: here, or nobody knows."""
        now_s = trio.current_time()
        if self._looked_s is None or now_s - self._looked_s > KNOWN_S:
            self._looked_s, self._home = now_s, await self._look()
        home = self._home
        return home if home is not None and self._forwards.homes.is_alive(home) else None

    async def _look(self) -> Home | None:
        with trio.move_on_after(LOOK_S_MAX):
            try:
                entry = await self._live.get(KEY)
            except UnreadableError:
                return None
            process = "" if entry is None else entry.data.decode("ascii", "replace")
            known = self._processes.get(process)
            if process != self._process and known is not None:
                return Home(process, known.host, known.address)
        return None


def from_others(app: App) -> App:
    """Where gateways hand requests over: who the client is, they say."""

    async def answer(scope: AsgiScope, receive: Receive, send: Send) -> None:
        client = next((value for name, value in scope.get("headers", ()) if name == VIA), None)
        if client is not None:
            scope = {**scope, "client": (client.decode("latin-1"), 0)}
        await app(scope, receive, send)

    return answer
