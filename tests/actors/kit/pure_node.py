"""A node made of the rules that our own runs by, without sockets, disks or clocks, to be played with and broken.

Time is a number that whoever plays a check moves on. Everything that a fault may concern is a method of its own.
"""

import heapq
import itertools
import json
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from nacl.signing import SigningKey

from actors.device.device_messages import (
    CloseWith,
    Connected,
    Effect,
    Event,
    FrameReceived,
    FrameSampled,
    GarbageReceived,
    HandlerReturned,
    JournalWritten,
    SampleFrame,
    SendFrame,
    StartHandler,
    StartJournal,
    TimePassed,
    WireLost,
    WriteJournal,
)
from actors.device.device_rules import DeviceRules
from actors.device.handlers import CAPABILITIES
from actors.device.identity import DeviceIdentity, manifest_signer
from actors.device.journal import AnyRecord, JournalState, Opened
from actors.device.manifest_life import SignedManifest
from actors.device.reconnect_rules import Wait, after_close
from actors.kit.steps import Asked, Dialled, Ended, Exited, Happening, Received
from schemas.certificates import Leaf
from schemas.closes import NodeClose
from schemas.frames import FRAME_BYTES_MAX, SUBPROTOCOL, BadFrame, Frame, Side, decode, encode
from schemas.projection import project
from schemas.renewal import request_of
from schemas.ulids import Mint

ECHO_S, SNAPSHOT_S = 0.002, 0.1
LOOK_S, RETRY_S = 20.0, 30.0  # whether to renew
BROKEN_OFF = 1006
WALL_MS = 1_790_000_000_000  # the node's own clock when time is 0
FINGERPRINT = {"algo": "blake3-256", "value": "0" * 64, "sources": ["machine_id"]}
SAMPLE = {
    "cpu": {"cores": 2, "usage_pct": 12.5},
    "mem": {"total_bytes": 1000, "available_bytes": 400},
    "load": {"one": 0.1, "five": 0.2, "fifteen": 0.3},
    "disk": [{"mount": "/", "fs_type": "ext4", "total_bytes": 1000, "available_bytes": 400}],
}
FRAME = {
    "cpu_pct": 1.0,
    "mem_bytes": 600,
    "mem_total_bytes": 1000,
    "disk_pct": 60.0,
    "load_1m": 0.1,
    "load_5m": 0.2,
    "load_15m": 0.3,
}


class PureNode:
    rules_class = DeviceRules

    def __init__(self, identity: DeviceIdentity) -> None:
        self.identity = identity
        self.token = identity.token  # in its folder
        self.disk: list[AnyRecord] = []
        self.tools = {
            tool.name: tool for tool in project({"node_id": identity.node_id, "capabilities": self.capabilities()})
        }
        self.now = 0.0
        self.is_running = False
        self.is_open = False
        self._order = itertools.count()
        self._happenings: list[tuple[float, int, Happening]] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._failures = 0
        self._asked = 0
        self._signer: tuple[DeviceIdentity, Callable[[int], SignedManifest]] | None = None
        self._rng = Random(7)
        self._mint = Mint(self._rng.randbytes)

    # ---- what a fault may concern ------------------------------------------------------------------------------------

    def capabilities(self) -> tuple[Mapping[str, Any], ...]:
        return CAPABILITIES

    def subprotocols(self) -> tuple[str, ...]:
        return (SUBPROTOCOL,)

    def goes_out(self, frame: Frame) -> None:
        self.write(encode(frame))

    def comes_in(self, data: bytes) -> None:
        frame = decode(data, Side.GATEWAY)
        self.feed(GarbageReceived(frame) if isinstance(frame, BadFrame) else FrameReceived(frame))

    def comes_in_binary(self) -> None:
        self.close(NodeClose.BAD_FRAME.value.code)

    def comes_back_in(self, code: int) -> float | None:
        """Seconds; None: not at all."""
        decision = after_close(code, self._failures, self._rng)
        self._failures += 1
        if not isinstance(decision, Wait):
            return None
        if decision.needs_new_token and self.token == self.used_token:
            return None
        return decision.seconds

    def sign(self, issued_at_ms: int) -> SignedManifest:
        return manifest_signer(self.identity, FINGERPRINT, self.capabilities())(issued_at_ms)

    def journal(self, records: tuple[AnyRecord, ...]) -> None:
        self.disk += records

    def echo(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"message": arguments["message"], "received_at_ms": self.wall_ms, "node_id": self.identity.node_id}

    def snapshot(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        groups = arguments.get("include", list(SAMPLE))
        base = {"ts_ms": self.wall_ms, "node_id": self.identity.node_id, "uptime_s": 1}
        return base | {name: value for name, value in SAMPLE.items() if name in groups}

    def request(self) -> dict[str, Any]:
        """For its next identity."""
        self._asked += 1
        return request_of(
            self.identity.key,
            node_id=self.identity.node_id,
            kid=self.identity.leaf.kid,
            public_key=self.next_key().verify_key.encode(),
            iat=(self.rules.gateway_ms(self.now) or 0) // 1000,
            nonce=self._rng.randbytes(16),
        )

    def next_key(self) -> SigningKey:
        return SigningKey(bytes([9]) * 32)

    def adopt(self, identity: DeviceIdentity) -> None:
        self.identity, self.token = identity, identity.token

    def frame(self) -> dict[str, Any]:
        return {"ts_ms": self.wall_ms, "node_id": self.identity.node_id, **FRAME}

    # ---- its life ----------------------------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        return WALL_MS + int(self.now * 1000)

    def start(self) -> None:
        self.is_running = True
        self.rules = self.rules_class(
            node_id=self.identity.node_id,
            tools=self.tools,
            sign=self.signer(),
            journal=JournalState(self.disk),
            new_id=lambda: self._mint.mint(self.wall_ms),
        )
        self.dial_in(0.0)
        self.later(LOOK_S, self.look)

    def look(self) -> None:
        """Whether it is time for the next identity."""
        leaf, now_ms = self.identity.leaf, self.rules.gateway_ms(self.now)
        if now_ms is not None and now_ms >= (leaf.not_before_ms + leaf.not_after_ms) // 2:
            self.tell(Asked(self.now, self.token, json.dumps(self.request()).encode()))
        else:
            self.later(LOOK_S, self.look)

    def hung_up(self) -> None:
        self.later(RETRY_S, self.look)

    def answered(self, status: int, body: bytes) -> None:
        if status != 200:
            self.hung_up()
            return
        answer = json.loads(body)
        leaf = Leaf.from_der(bytes.fromhex(answer["certificate"]))
        self.adopt(DeviceIdentity(self.next_key(), leaf, answer["token"]))
        self.later(LOOK_S, self.look)

    def kill(self) -> None:
        self.is_running = self.is_open = False
        self._later.clear()
        self._happenings.clear()

    def dial_in(self, seconds: float) -> None:
        self.later(seconds, lambda: self.tell(Dialled(self.now, self.subprotocols())))

    def exit(self) -> None:
        self.tell(Exited(self.now))
        self.is_running = False

    def signer(self) -> Callable[[int], SignedManifest]:
        """Another one for another identity, so that what the old key signed is not announced any more."""
        if self._signer is None or self._signer[0] is not self.identity:
            self._signer = (self.identity, lambda issued_at_ms: self.sign(issued_at_ms))
        return self._signer[1]

    # ---- what the gateway does ---------------------------------------------------------------------------------------

    def upgraded(self) -> None:
        self.is_open = True
        self.used_token = self.token
        self.feed(Connected(self.token, self.signer()))

    def refused(self) -> None:
        self._over(BROKEN_OFF)

    def closed(self, code: int) -> None:
        if self.is_open:
            self.is_open = False
            self._forget_outgoing()
            self.feed(WireLost())
            self._over(code)

    def receive(self, data: bytes) -> None:
        if not self.is_open:
            return
        if len(data) > FRAME_BYTES_MAX:
            self.too_large()
        else:
            self.comes_in(data)

    def too_large(self) -> None:
        self.close(NodeClose.TOO_LARGE.value.code)

    def receive_binary(self) -> None:
        if self.is_open:
            self.comes_in_binary()

    # ---- its own doing -----------------------------------------------------------------------------------------------

    def write(self, data: bytes, after_s: float = 0.0, *, is_text: bool = True) -> None:
        if after_s:
            self.later(after_s, lambda: self.tell(Received(self.now, data, is_text)) if self.is_open else None)
        else:
            self.tell(Received(self.now, data, is_text))

    def close(self, code: int) -> None:
        self.is_open = False
        self.tell(Ended(self.now, code))
        self.feed(WireLost())
        self._over(code)

    def _over(self, code: int) -> None:
        seconds = self.comes_back_in(code)
        if seconds is None:
            self.exit()
        else:
            self.dial_in(seconds)

    def feed(self, event: Event) -> None:
        self.perform(self.rules.handle(event, self.now))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame(frame):
                    if self.is_open:
                        self.goes_out(frame)
                case CloseWith(close):
                    if self.is_open:
                        self.is_open = False
                        self.tell(Ended(self.now, close.value.code))
                        self._over(close.value.code)
                case WriteJournal(ticket, records):
                    self.journal(records)
                    self.feed(JournalWritten(ticket))
                case StartJournal(ticket, log_id, journal_id):
                    self.journal((Opened(log_id, journal_id),))
                    self.feed(JournalWritten(ticket))
                case StartHandler(msg_id, tool, arguments):
                    is_echo = tool.endswith(".invoke")
                    result = self.echo(arguments) if is_echo else self.snapshot(arguments)
                    returned = HandlerReturned(msg_id, result)
                    self.later(ECHO_S if is_echo else SNAPSHOT_S, partial(self.feed, returned))
                case SampleFrame(msg_id):
                    self.feed(FrameSampled(msg_id, self.frame()))

    # ---- time --------------------------------------------------------------------------------------------------------

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._later, (self.now + seconds, next(self._order), do))

    def tell(self, happening: Happening) -> None:
        heapq.heappush(self._happenings, (happening.at, next(self._order), happening))

    def _forget_outgoing(self) -> None:
        """What was written to a connection that is gone is heard by nobody."""
        self._happenings = [one for one in self._happenings if not isinstance(one[2], Received)]
        heapq.heapify(self._happenings)

    def next_happening(self, until: float) -> Happening | None:
        """The next thing that the gateway notices, at or before then; time moves on to it, or to `until`."""
        while True:
            if self._happenings:
                return heapq.heappop(self._happenings)[2]
            moments = [self._later[0][0]] if self._later else []
            deadline = self.rules.next_deadline() if self.is_running else None
            if deadline is not None:
                moments.append(deadline)
            at = min(moments, default=None)
            if at is None or at > until:
                self.now = max(self.now, until)
                return None
            self.now = max(self.now, at)
            if self._later and self._later[0][0] <= self.now:
                heapq.heappop(self._later)[2]()
            elif deadline is not None:
                self.feed(TimePassed())
