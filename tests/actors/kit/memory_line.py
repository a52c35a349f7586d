"""Our own node, as it runs on devices, and a player of checks on it: between them queues, on a mock clock."""

import math
from random import Random

import trio

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.memory_journal import JournalDisk, MemoryJournal
from actors.device.mock_sampler import MockSampler
from actors.device.wire import ABNORMAL, WireClosed
from actors.kit.player import NOTICED_MAX, Noticed
from actors.kit.steps import Dialled, Ended, Exited, Received
from schemas.frames import FRAME_BYTES_MAX, SUBPROTOCOL
from tests.actors.kit.playing import IDENTITY
from tests.actors.kit.pure_node import WALL_MS


def wall_ms() -> int:
    return WALL_MS + round(trio.current_time() * 1000)


class MemoryLine:
    """One connection: the kit's end (`Connection`) and the node's (`Wire`)."""

    def __init__(self, notices: trio.MemorySendChannel[Noticed]) -> None:
        self._notices = notices
        self._to_node, self._from_kit = trio.open_memory_channel[bytes](math.inf)
        self._closed: WireClosed | None = None
        self.answered = trio.Event()
        self.refused_with: int | None = None

    # ---- the kit's end -----------------------------------------------------------------------------------------------

    async def upgrade(self) -> None:
        self.answered.set()

    async def refuse(self, status: int) -> None:
        self.refused_with = status
        self.answered.set()

    async def answer(self, status: int, body: bytes) -> None:
        raise NotImplementedError(f"nobody asked: {status}, {len(body)} bytes")

    async def send(self, data: bytes, *, is_text: bool) -> None:
        if not is_text or len(data) > FRAME_BYTES_MAX:  # what the node's WebSocket does by itself
            code = 4400 if not is_text else 1009
            self._end(code)
            self._notices.send_nowait((self, Ended(trio.current_time(), code)))
        elif self._closed is None:
            self._to_node.send_nowait(data)

    async def close(self, code: int, reason: str) -> None:
        self._end(code, reason)

    def drop(self) -> None:
        self._end(ABNORMAL)
        self.answered.set()

    def _end(self, code: int, reason: str = "") -> None:
        if self._closed is None:
            self._closed = WireClosed(code, reason)
            self._to_node.close()

    # ---- the node's end ----------------------------------------------------------------------------------------------

    async def wire_send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed is not None:
            raise self._closed
        self._notices.send_nowait((self, Received(trio.current_time(), data)))

    async def receive(self) -> bytes:
        try:
            return await self._from_kit.receive()
        except trio.EndOfChannel:
            assert self._closed is not None
            raise self._closed from None

    async def aclose(self, code: int, reason: str) -> None:
        await trio.lowlevel.checkpoint()
        if self._closed is None:
            self._end(ABNORMAL, reason)
            self._notices.send_nowait((self, Ended(trio.current_time(), code)))


class _Wire:
    def __init__(self, line: MemoryLine) -> None:
        self.send = line.wire_send
        self.receive = line.receive
        self.aclose = line.aclose


class AgentUnderTest:
    """Implements `actors.kit.player.Node`: processes of one device, one after another, on one disk."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.notices, self.noticed = trio.open_memory_channel[Noticed](NOTICED_MAX)
        self._nursery = nursery
        self._disk = JournalDisk()
        self._token = IDENTITY.token
        self._processes = 0
        self._scope = trio.CancelScope()

    def put_token(self, token: str) -> None:
        self._token = token

    async def kill(self) -> None:
        self._scope.cancel()
        await trio.testing.wait_all_tasks_blocked()

    async def start(self) -> None:
        self._processes += 1
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._live, self._scope, Random(self._processes))

    async def _live(self, scope: trio.CancelScope, rng: Random) -> None:
        identity = DeviceIdentity(IDENTITY.key, IDENTITY.leaf, self._token)
        agent = Agent(
            standard_device(identity, hw_fingerprint("1234", None), MockSampler(1, WALL_MS), wall_ms),
            journal=MemoryJournal(self._disk),
            connect=self._connect,
            wall_ms=wall_ms,
            rng=rng,
            newer_token=lambda refused: self._token if self._token != refused else None,
        )
        with scope:
            await agent.run()
        if not scope.cancel_called:
            await self.notices.send((None, Exited(trio.current_time())))

    async def _connect(self) -> _Wire:
        line = MemoryLine(self.notices)
        await self.notices.send((line, Dialled(trio.current_time(), (SUBPROTOCOL,))))
        await line.answered.wait()
        if line.refused_with is not None:
            raise WireClosed(ABNORMAL)
        return _Wire(line)
