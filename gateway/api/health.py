"""How the gateway is, for whoever asks: both routes are open, so neither may cost more for being asked often.

GET /healthz   the process runs; the name of the service
GET /readyz    able to serve: its log takes a write, and so does the store of spaces, where they are on; one of several
               gateways also reaches the engine, is told what is in it, and has a clock that agrees with it
"""

from collections.abc import Awaitable, Callable

import trio

from actors.log.store import Appended, LogStore, OpenItem, Part, StoreFailedError
from actors.space.spaces import EchoSpaces
from gateway.net.cors import CORS, answer_preflight
from gateway.net.exchange import Exchange
from gateway.net.router import ANY, Routes

VERDICT_S = 1.0  # for which a verdict is good; whoever asks meanwhile gets it too
PROBE_S_MAX = 1.0  # for one look; one that takes longer means not ready


class HealthRoutes:
    def __init__(self, probe: Callable[[], Awaitable[bool]], service: str) -> None:
        self._health = {"status": "ok", "service": service}
        self._probe = probe
        self._probing = trio.Lock()
        self._verdict = False
        self._good_until_s = 0.0
        self.routes: Routes = {"/healthz": (ANY, self._healthz), "/readyz": ("GET", self._readyz)}

    async def _healthz(self, exchange: Exchange) -> None:
        if exchange.method == "OPTIONS":
            await answer_preflight(exchange)
        elif exchange.method in ("GET", "HEAD"):
            await exchange.json(self._health, headers=CORS)
        else:
            await exchange.refuse_method("GET")

    async def _readyz(self, exchange: Exchange) -> None:
        if await self._is_ready():
            await exchange.json({"status": "ready"})
        else:
            await exchange.refuse_status(503, "The gateway cannot serve now.", "Try again in a while.")

    async def _is_ready(self) -> bool:
        async with self._probing:  # those who wait here find the verdict of the one before them
            if trio.current_time() >= self._good_until_s:
                self._verdict = False
                # Shielded: a client that leaves in the middle would leave the next one with a look of its own.
                with trio.move_on_after(PROBE_S_MAX, shield=True):
                    self._verdict = await self._probe()
                self._good_until_s = trio.current_time() + VERDICT_S
        return self._verdict


async def is_ready(
    log: LogStore, spaces: EchoSpaces | None, wall_ms: int, is_shared_ready: Callable[[], bool] = lambda: True
) -> bool:
    """Whether what has to be written can be, and (`is_shared_ready`) what is shared with other gateways is in order.

    That spaces have reached `total_bytes_max`, or leave too little of the disk free, is no reason to say no: visitors
    could fill them, and would take the gateway from its agents and nodes.
    """
    if not is_shared_ready():
        return False
    return await takes_writes(log, wall_ms) and (spaces is None or await spaces.store.takes_writes())


async def takes_writes(store: LogStore, wall_ms: int) -> bool:
    """Whether the log takes a write now."""
    probe = Part(stream="readiness", expected_version=0, at_ms=wall_ms, opened=(OpenItem("probe", b""),))
    try:
        return isinstance(await store.append(probe), Appended)
    except StoreFailedError:
        return False
