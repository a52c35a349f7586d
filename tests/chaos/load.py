"""Twenty real nodes that dial any gateway, and agents who call through any; what happens is written down."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import trio

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from actors.device.wire import Wire
from tests.chaos.field import POOR, RICH, Field, wall_ms
from tests.simulation.oracle import Oracle

CALLERS = 6
CALL_S_MAX = 5.0  # which a call has; then it is answered, whatever happened
SLACK_S = 4.0  # for three servers, three gateways and us on few processors
_POOR_SHARE = 0.2
_THINK_S = 0.05


class _Listening:
    """A wire that reads along: which command carries which call."""

    def __init__(self, wire: Wire, node_id: str, oracle: Oracle) -> None:
        self._wire, self._node_id, self._oracle = wire, node_id, oracle

    async def send(self, data: bytes) -> None:
        await self._wire.send(data)

    async def receive(self) -> bytes:
        data = await self._wire.receive()
        frame = json.loads(data)
        if frame.get("type") == "cmd" and "message" in frame["payload"].get("arguments", {}):
            self._oracle.token_of[self._node_id, frame["msg_id"]] = frame["payload"]["arguments"]["message"]
        return data

    async def aclose(self, code: int, reason: str) -> None:
        await self._wire.aclose(code, reason)


@dataclass
class Load:
    world: Field
    oracle: Oracle
    rng: Random
    answers: Counter[int] = field(default_factory=Counter)
    answered: list[tuple[str, str]] = field(default_factory=list)  # node and message, of calls that were 200
    late: list[str] = field(default_factory=list)
    cut: int = 0  # calls whose gateway was killed or stopped
    _calls: int = 0

    def begin(self) -> None:
        """From now on a gateway that is not harmed has to answer."""
        self.late.clear()
        self.answers.clear()
        self.cut = 0

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            for number, identity in enumerate(self.world.identities):
                nursery.start_soon(self._be_a_node, identity, Random(number))

    async def _be_a_node(self, identity: DeviceIdentity, rng: Random) -> None:
        node_id = identity.node_id
        device = standard_device(identity, hw_fingerprint("chaos", None), MockSampler(1, wall_ms()), wall_ms)
        (echo,) = (name for name in device.handlers if name.endswith(".echo.invoke"))
        inner = device.handlers[echo]

        async def counted(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            self.oracle.executed(node_id, arguments["message"], wall_ms())
            return await inner(arguments)

        device = replace(device, handlers={**device.handlers, echo: counted})
        journal = FileJournal(self.world.folder / "nodes" / node_id)
        try:
            async with trio.open_nursery() as nursery:

                async def dial() -> Wire:
                    url = rng.choice(self.world.gateways).device_url
                    return _Listening(await WebSocketDialer(nursery, url)(), node_id, self.oracle)

                await Agent(device, journal=journal, connect=dial, wall_ms=wall_ms, rng=rng).run()
        finally:
            journal.close()

    # ---- calls ------------------------------------------------------------------------------------------------------

    async def call_for_ever(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CALLERS):
                nursery.start_soon(self._caller)

    async def _caller(self) -> None:
        while True:
            agent = POOR if self.rng.random() < _POOR_SHARE else RICH
            await self.call(self.rng.randrange(len(self.world.gateways)), self.rng.choice(self.node_ids), agent)
            await trio.sleep(_THINK_S)

    @property
    def node_ids(self) -> list[str]:
        return [identity.node_id for identity in self.world.identities]

    async def call(self, number: int, node_id: str, agent: str = RICH) -> int:
        """The status of the answer; 0: there was none, because that gateway is not itself."""
        self._calls += 1
        message = f"call-{self._calls}"
        gateway, began_s = self.world.gateways[number], trio.current_time()
        status = 0
        with trio.move_on_after(CALL_S_MAX + SLACK_S):
            try:
                status = await self._ask(gateway.http, node_id, message, self.world.tokens[agent])
            except (OSError, trio.BrokenResourceError):
                status = 0
        ended_s = trio.current_time()
        if status == 0:
            self.cut += 1
            # What a gateway that was stopped left undone may still be on its way for a while after it goes on.
            if not gateway.was_harmed(began_s - 30.0, ended_s):
                self.late.append(f"{message} at gateway {number}: no answer after {ended_s - began_s:.1f} s")
        else:
            self.answers[status] += 1
            gateway.answered(ended_s)
        if status == 200:
            self.answered.append((node_id, message))
        return status

    async def _ask(self, port: int, node_id: str, message: str, token: str) -> int:
        body = json.dumps({"tool": f"sysecho.{node_id}.echo.invoke", "arguments": {"message": message}})
        head = "POST /mcp/tools/call HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {token}\r\n"
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            answer = bytearray()
            async for data in stream:
                answer += data
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
