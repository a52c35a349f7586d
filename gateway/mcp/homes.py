"""Where sessions of the handshake era live, among several gateways: each in the process that it began in.

`mcp.<session>` names that process. It is put before the client learns its session's id, so whichever process its next
request reaches finds it; it ends when the session does, or a while after a process died that could not say so. Handing
a request over is `forward.py`'s.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import trio

from actors.engine.kv import Kv
from actors.engine.presence_rules import ProcessEntry
from actors.log.store import UnreadableError

SESSION = "mcp."
PUT_S_MAX = 2.0  # that a client waits for its session to be known to all; then it is known only where it lives
LOOK_S_MAX = 2.0  # for an answer of the engine; then the session is unknown
RENEWALS_A_LIFE = 3  # of an entry, whose session may be idle for as long as the entry lives

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True)
class Home:
    """Another process, which lives."""

    process: str
    host: str
    address: str


class Homes:
    def __init__(self, kv: Kv, process: str, processes: Mapping[str, ProcessEntry], idle_s_max: float) -> None:
        """`processes`: those that live, as they are now."""
        self._kv = kv
        self._process = process
        self._processes = processes
        self._idle_s_max = idle_s_max
        self._here: dict[str, None] = {}  # sessions
        self._gone: dict[str, None] = {}  # whose entries are to be deleted
        self._news = trio.Event()

    async def opened(self, session_id: str) -> None:
        """It begins here; its client has not been told yet."""
        self._here[session_id] = None
        with trio.move_on_after(PUT_S_MAX):
            await self._put(session_id)

    def closed(self, session_id: str) -> None:
        if self._here.pop(session_id, self) is None:
            self._gone[session_id] = None
            self._news.set()

    async def find(self, session_id: str | None) -> Home | None:
        """Where a session is that is not here; None: nowhere, as far as anybody knows."""
        if session_id is None or session_id in self._here or not _ID.fullmatch(session_id):
            return None
        entry = None
        with trio.move_on_after(LOOK_S_MAX):
            try:
                entry = await self._kv.get(SESSION + session_id)
            except UnreadableError:
                return None
        if entry is None:
            return None
        process = entry.data.decode("ascii", "replace")
        return None if process == self._process else self._home(process)

    def is_alive(self, home: Home) -> bool:
        return self._home(home.process) is not None

    def _home(self, process: str) -> Home | None:
        known = self._processes.get(process)
        return None if known is None else Home(process, known.host, known.address)

    async def run(self) -> None:
        """Until it is cancelled: sessions that live stay known, those that have ended do not."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._renew)
            while True:
                await self._news.wait()
                self._news = trio.Event()
                gone, self._gone = list(self._gone), {}
                for session_id in gone:
                    await self._kv.delete(SESSION + session_id)  # what is not taken ends by itself

    async def _renew(self) -> None:
        while True:
            await trio.sleep(self._idle_s_max / RENEWALS_A_LIFE)
            for session_id in list(self._here):
                if session_id in self._here:
                    await self._put(session_id)

    async def _put(self, session_id: str) -> None:
        await self._kv.put(SESSION + session_id, self._process.encode(), ttl_s=max(1.0, self._idle_s_max))
