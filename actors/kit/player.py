"""Plays checks on a node that dials in: steps performed, happenings told, every wait bounded.

What carries frames is behind `Connection`: a WebSocket, or a pair of queues in a test. Who brings connections puts what
happens on them into one channel, under the connection that it is of. What a step has ended is heard no more.
"""

from typing import Protocol, TypeAlias

import trio

from actors.kit.check import Check
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import (
    Answer,
    Asked,
    CloseWith,
    Dialled,
    Done,
    Drop,
    Ended,
    Exited,
    HangUp,
    Happening,
    Kill,
    Listen,
    PutToken,
    Received,
    Refuse,
    SendBinary,
    SendText,
    Start,
    Step,
    TimeUp,
    Upgrade,
)
from actors.kit.verdicts import Outcome, Verdict

NOTICED_MAX = 256  # happenings that no check has listened to yet; then whoever brings them waits
SEND_S_MAX = 10.0  # for one frame; then the connection is cut, since the node does not read


class Connection(Protocol):
    """One dial of the node. Methods may be called after it is gone, and then do nothing."""

    async def upgrade(self) -> None: ...

    async def refuse(self, status: int) -> None: ...

    async def answer(self, status: int, body: bytes) -> None:
        """What asked for an identity instead of an upgrade."""

    async def send(self, data: bytes, *, is_text: bool) -> None: ...

    async def close(self, code: int, reason: str) -> None:
        """Say so, and give the node a moment to answer, without waiting for it here."""

    def drop(self) -> None: ...


class Node(Protocol):
    """The node under test, as far as it is not on the wire."""

    def put_token(self, token: str) -> None: ...

    async def start(self) -> None: ...

    async def kill(self) -> None: ...


Noticed: TypeAlias = tuple[Connection | None, Happening]


class Player:
    def __init__(self, gateway: KitGateway, node: Node, noticed: trio.MemoryReceiveChannel[Noticed]) -> None:
        self.gateway = gateway
        self._node = node
        self._noticed = noticed
        self._dialling: Connection | None = None
        self._open: Connection | None = None
        self._asking: Connection | None = None

    async def play(self, check: Check, seconds_max: float) -> Verdict:
        script = check.tried(self.gateway)
        self.gateway.clock.now = trio.current_time()
        with trio.move_on_after(seconds_max):
            try:
                step = next(script)
                while True:
                    step = script.send(await self._perform(step))
            except StopIteration as end:
                verdict: Verdict = end.value
                return verdict
        script.close()
        self.gateway.is_suspect = True
        return _untried(f"it did not come to its end within {seconds_max:g} s")

    # ---- steps -------------------------------------------------------------------------------------------------------

    async def _perform(self, step: Step) -> Happening:
        match step:
            case Listen(until):
                return await self._listen(until)
            case SendText(data):
                await self._send(data, is_text=True)
            case SendBinary(data):
                await self._send(data, is_text=False)
            case CloseWith(code, reason):
                closing, self._open = self._open, None
                if closing is not None:
                    await closing.close(code, reason)
            case Drop():
                self._drop()
            case Upgrade():
                self._open, self._dialling = self._dialling, None
                if self._open is not None:
                    await self._open.upgrade()
            case Refuse(status):
                await self._refuse(status)
            case Answer(status, body):
                await self._answer(status, body)
            case HangUp():
                asking, self._asking = self._asking, None
                if asking is not None:
                    asking.drop()
            case PutToken(token):
                self._node.put_token(token)
            case Kill():
                self._drop()
                await self._node.kill()
            case Start():
                await self._node.start()
        return Done(trio.current_time())

    def _drop(self) -> None:
        for connection in (self._open, self._dialling, self._asking):
            if connection is not None:
                connection.drop()
        self._open = self._dialling = self._asking = None

    async def _refuse(self, status: int) -> None:
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            await dialling.refuse(status)

    async def _answer(self, status: int, body: bytes) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            await asking.answer(status, body)

    async def _send(self, data: bytes, *, is_text: bool) -> None:
        if self._open is None:
            return
        with trio.move_on_after(SEND_S_MAX) as scope:
            await self._open.send(data, is_text=is_text)
        if scope.cancelled_caught:
            self._open.drop()

    async def _listen(self, until: float) -> Happening:
        await self._refuse(503)  # a dial that the last script left unanswered
        await self._answer(503, b"")  # or a request
        with trio.move_on_at(until):
            while True:
                connection, happening = await self._next(until)
                match happening:
                    case TimeUp() | Exited():
                        return happening
                    case Dialled():
                        self._dialling = connection
                        return happening
                    case Asked():
                        self._asking = connection
                        return happening
                    case Received() if connection is self._open:
                        return happening
                    case Ended() if connection is self._open:
                        self._open = None
                        return happening
        return TimeUp(trio.current_time())

    async def _next(self, until: float) -> Noticed:
        """What has been noticed already comes before the end of time."""
        try:
            return self._noticed.receive_nowait()
        except trio.WouldBlock:
            if trio.current_time() >= until:
                return None, TimeUp(trio.current_time())
        return await self._noticed.receive()


def _untried(why: str) -> Verdict:
    return Verdict(Outcome.NOT_TRIED, why=why, is_open=True)
