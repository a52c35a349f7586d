"""The port to NATS: what the engine asks of a connection. `connection` has the real one; tests script their own.

All of JetStream is requests on subjects of its own, so this knows nothing of it. What an answer means is the rules'
business, and so is whether to ask again: a connection tries everything once.

Cancellation: whoever waits for an answer may stop waiting; what was sent stays sent.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Protocol, TypeAlias

import msgspec

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
INTERIM = "Hg-Interim"
"""The header of a message in answer to a question that is not the answer yet."""


class Message(msgspec.Struct, frozen=True):
    """As it came. A message of the server itself has a header `Status`."""

    subject: str
    data: bytes
    headers: Mapping[str, str] = NO_HEADERS
    reply: str = ""

    @property
    def status(self) -> str | None:
        return self.headers.get("Status")


class NoAnswer(Enum):
    """Why there is none."""

    NOT_SENT = "not_sent"  # there is no connection, or no room: nothing has left this process, for certain
    NO_RESPONDERS = "no_responders"  # the server knows nobody who would take it
    TIMED_OUT = "timed_out"  # it may have been taken, and may still be
    LOST = "lost"  # the connection ended first: as above


class LinkState(Enum):
    """Of a connection that is kept up by itself."""

    UP = "up"
    DOWN = "down"  # and being dialled again
    REFUSED = "refused"  # as above, and the server that was reached last does not take our credentials


Answer: TypeAlias = Message | NoAnswer
Then: TypeAlias = Callable[[Answer], None]
Meanwhile: TypeAlias = Callable[[Message], None]


class Link(Protocol):
    """One process's connection. What is sent leaves in the order of the calls, unless the connection ends in between.

    Callbacks are called between two steps of the event loop: they neither wait nor raise.
    """

    @property
    def state(self) -> LinkState: ...

    @property
    def life(self) -> int:
        """Which connection this is, of all that there were. What is sent in one life is taken in order."""

    @property
    def server_version(self) -> tuple[int, int, int]:
        """Of the server that was reached last."""

    @property
    def payload_bytes_max(self) -> int:
        """What the server takes in one message, headers included."""

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Send, and do not ask what becomes of it."""

    def ask(
        self,
        subject: str,
        data: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        then: Then,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        """Send, and say by `then` what was answered; once, and never before this returns.

        `meanwhile` is told what comes before that with the header `INTERIM`.
        """

    async def request(
        self, subject: str, data: bytes = b"", headers: Mapping[str, str] = NO_HEADERS, *, timeout_s: float
    ) -> Answer:
        """The same for a task that waits."""

    async def collect(
        self, subject: str, data: bytes, count_max: int, *, timeout_s: float
    ) -> tuple[Message, ...] | NoAnswer:
        """Send, and wait for several answers: up to a message of the server itself, which is the last, or so many."""

    def subscribe(self, subject: str, deliver: Callable[[Message], None], queue: str = "") -> Callable[[], None]:
        """Call `deliver` with what is published there, across reconnects. Returns what ends that."""

    def follow(self, changed: Callable[[LinkState], None]) -> Callable[[], None]:
        """Call `changed` whenever the state is another. Returns what ends that."""
