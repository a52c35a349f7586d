"""Answers that come bit by bit, live feeds and exports: how many there may be, and what cuts them off.

A feed ends when its source does, when its session ends, when the gateway stops, and when its client hangs up or stops
reading. In the first three cases its response is ended in order, so that a page sees an end and not a fault; but a file
that is not whole is broken off.
"""

from functools import partial

import trio

from gateway.console.answers import NO_STORE
from gateway.console.api import Streamed
from gateway.console.session_rules import Session
from gateway.console.settings import ConsoleSettings
from gateway.net.exchange import Exchange, Receive, Send

_END = {"type": "http.response.body", "body": b"", "more_body": False}


class _Feed:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.scope = trio.CancelScope(deadline=session.ends_s)
        self.is_stalled = False


class Feeds:
    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._feeds: dict[bytes, set[_Feed]] = {}  # by session
        self._is_stopping = False

    def __len__(self) -> int:
        return sum(map(len, self._feeds.values()))

    def has_room(self, session: Session) -> bool:
        limits, token_id = self._settings, session.principal.jti
        own = len(self._feeds.get(session.key, ()))
        of_token = sum(feed.session.principal.jti == token_id for feeds in self._feeds.values() for feed in feeds)
        is_full = len(self) >= limits.live_max or own >= limits.live_per_session_max
        return not is_full and of_token < limits.live_per_token_max and not self._is_stopping

    def end_of(self, session: Session) -> None:
        for feed in self._feeds.get(session.key, ()):
            feed.scope.cancel()

    def stop(self) -> None:
        """All of them, and there will be no others."""
        self._is_stopping = True
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.scope.cancel()

    async def serve(self, exchange: Exchange, session: Session, streamed: Streamed) -> None:
        """Where there is room."""
        feed = _Feed(session)
        feeds = self._feeds.setdefault(session.key, set())
        feeds.add(feed)
        try:
            await exchange.hand_over(partial(self._run, feed, streamed))
        finally:
            feeds.discard(feed)
            if not feeds:
                self._feeds.pop(session.key, None)

    async def _run(self, feed: _Feed, streamed: Streamed, _: Receive, send: Send) -> None:
        headers = {b"content-type": streamed.content_type, **NO_STORE, b"x-accel-buffering": b"no", **streamed.headers}

        async def write(data: bytes) -> None:
            with trio.move_on_after(self._settings.write_s_max) as patience:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if patience.cancelled_caught:
                feed.is_stalled = True
                feed.scope.cancel()
                await trio.lowlevel.checkpoint()

        await send({"type": "http.response.start", "status": 200, "headers": list(headers.items())})
        with feed.scope:
            await streamed.run(write)
        is_cut = feed.is_stalled or (streamed.is_file and feed.scope.cancelled_caught)
        if not is_cut:
            with trio.move_on_after(self._settings.write_s_max):
                await send(_END)
