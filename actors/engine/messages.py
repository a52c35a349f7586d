"""The port to messages between gateways: questions with answers, and news. Nothing here is kept by anybody.

A question is for whoever serves its subject, and may be served more than once, or never, or after its asker has gone:
each asker says for how long it waits, and each server decides whether a question is still worth answering. News reach
whoever listens at that moment, each in the order in which its sender told it; a connection that ends takes what is
under way with it.

Subjects are exact: tokens of `A-Z a-z 0-9 _ - $`, with dots between.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Protocol

import msgspec

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class News(msgspec.Struct, frozen=True):
    """As it was told."""

    data: bytes
    headers: Mapping[str, str] = NO_HEADERS


class Request(Protocol):
    """A question, as its server has it. Nobody hears what is said after `reply`."""

    @property
    def data(self) -> bytes: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def interim(self, data: bytes) -> None:
        """Say something before the answer; as often as there is something."""

    def reply(self, data: bytes) -> None:
        """Answer. The first answer that arrives is the one that the asker gets."""


class Reply(msgspec.Struct, frozen=True):
    data: bytes


class NoReply(Enum):
    """Why there is none."""

    NOT_SENT = "not_sent"  # there is no connection, or no room: nobody took it, for certain
    NO_RESPONDERS = "no_responders"  # nobody serves this subject now: as above
    TIMED_OUT = "timed_out"  # it may have been taken, and may still be
    LOST = "lost"  # the connection ended first: as above

    @property
    def is_certain(self) -> bool:
        """Nobody took the question, and nobody will."""
        return self in (NoReply.NOT_SENT, NoReply.NO_RESPONDERS)


class Messages(Protocol):
    """One process's. Callbacks are called between two steps of the event loop: they neither wait nor raise."""

    @property
    def payload_bytes_max(self) -> int:
        """Of a message. A longer question is NOT_SENT, and anything else that is longer is dropped."""

    def serve(self, subject: str, handle: Callable[[Request], None]) -> Callable[[], None]:
        """Have `handle` called with what is asked there. Returns what ends that: what was taken may be answered yet."""

    async def ask(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        timeout_s: float,
        silence_s: float | None = None,
        on_interim: Callable[[bytes], None] | None = None,
    ) -> Reply | NoReply:
        """Ask, and wait for the first answer: for `timeout_s` in all, and `silence_s` at a time without a word.

        A cancelled asker only stops waiting; what was sent stays sent.
        """

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Tell whoever listens now. Nobody knows whether anybody does."""

    def listen(self, subject: str, deliver: Callable[[News], None]) -> Callable[[], None]:
        """Have `deliver` called with what is told there, across reconnects. Returns what ends that."""
