"""One live feed of a page: events wait here until the page has taken those before them, and only so many.

Putting one in never waits. A page for whom more waits than the bounds say has its feed ended: it opens another, which
begins with all that there is. So does one that takes nothing at all for as long as the door waits for it.
"""

from collections import deque
from typing import Any

import msgspec
import trio

from gateway.console.api import Write

PING_S = 15.0  # between two pings
EVENTS_MAX = 256  # that wait for one page; one more ends its feed
BYTES_MAX = 1024 * 1024  # of those, if they are several; more end its feed


def event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


PING = event("ping", {})


class Mailbox:
    def __init__(self) -> None:
        self.is_over = False
        """One event too many: nothing of it is sent, nor anything after it."""
        self._events: deque[bytes] = deque()
        self._bytes = 0
        self._has_mail = trio.Event()

    def put(self, one: bytes) -> None:
        if self.is_over:
            return
        is_too_much = self._bytes > 0 and self._bytes + len(one) > BYTES_MAX  # one alone is as long as a page's window
        if len(self._events) >= EVENTS_MAX or is_too_much:
            self.is_over = True
            self._events.clear()
        else:
            self._events.append(one)
            self._bytes += len(one)
        self._has_mail.set()

    async def serve(self, write: Write) -> None:
        """Pass on what comes, until it is over or cancelled."""
        ping_s = trio.current_time() + PING_S
        while not self.is_over:
            with trio.move_on_at(ping_s):
                await self._has_mail.wait()
            data = b"".join(self._events)
            self._events.clear()
            self._bytes, self._has_mail = 0, trio.Event()
            if trio.current_time() >= ping_s:
                ping_s = trio.current_time() + PING_S
                data += PING
            if data and not self.is_over:
                await write(data)
