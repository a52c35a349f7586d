"""The memory of a room: its last messages, for connections that come back. In memory only, and bounded.

A connection that says which message it saw last gets what it would have received since, or is told that the memory does
not reach: whether it does depends on the room's numbers alone, not on whom the messages were for.
"""

from collections import deque

import msgspec

from actors.space.routing_rules import is_for
from actors.space.settings import SpaceSettings
from schemas.echo.frames import Message

MESSAGE_BYTES = 512
"""That a message takes besides its payload, about."""


class ReplayTotal:
    """What all rooms of a process hold; one for all of them."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class ReplayMemory:
    def __init__(self, settings: SpaceSettings, total: ReplayTotal) -> None:
        self._settings = settings
        self._total = total
        # Since when, payload bytes, the message, and the member whom its `tuid` is the name of.
        self._held: deque[tuple[float, int, Message, str | None]] = deque()
        self._bytes = 0
        self._forgotten_seq = 0  # of the last message that is not held any more

    def __len__(self) -> int:
        return len(self._held)

    def remember(self, message: Message, payload_bytes: int, now_s: float, for_member: str | None = None) -> None:
        self._held.append((now_s, payload_bytes, message, for_member))
        self._bytes += payload_bytes
        self._total.bytes += payload_bytes + MESSAGE_BYTES
        while len(self._held) > self._settings.replay_messages_max or self._bytes > self._settings.replay_bytes_max:
            self._forget_first()
        while self._total.bytes > self._settings.replay_total_bytes_max and self._held:
            self._forget_first()

    def expire(self, now_s: float) -> None:
        while self._held and now_s >= self._held[0][0] + self._settings.replay_s_max:
            self._forget_first()

    def clear(self) -> None:
        while self._held:
            self._forget_first()

    def next_deadline_s(self) -> float | None:
        """When the oldest is to be forgotten."""
        return self._held[0][0] + self._settings.replay_s_max if self._held else None

    def missed(
        self, since: int, last_seq: int, uid: str, subs: frozenset[str], now_s: float, member_id: str | None = None
    ) -> list[Message] | None:
        """What a connection of this `uid` and these `subs` would have received after message `since`, marked as replay.

        Also what its own former connection sent: which one that was is not known, and a message too many can be told by
        its `conn`, one too few by nothing. What was for one `uid` is a member's own, where there are members. None: the
        memory does not reach.
        """
        self.expire(now_s)
        if not self._forgotten_seq <= since <= last_seq:
            return None
        return [
            msgspec.structs.replace(message, replay=True)
            for _, _, message, for_member in self._held
            if message.seq > since
            and is_for(message.sub, message.tuid, uid, subs)
            and (message.tuid is None or for_member == member_id)
        ]

    def _forget_first(self) -> None:
        _, payload_bytes, message, _ = self._held.popleft()
        self._bytes -= payload_bytes
        self._total.bytes -= payload_bytes + MESSAGE_BYTES
        self._forgotten_seq = message.seq
