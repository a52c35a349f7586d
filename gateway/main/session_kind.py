"""What a feature may bring to `/mcp`: sessions of a kind of its own, for those who show a credential of its own.

The endpoint has the protocol, the lives of sessions and the sizes of requests. A kind says whose credential it is,
which tools that opens, and what they do. The endpoint asks the kinds in their order whether a credential is theirs;
one that nobody claims is a token of an agent.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.net.body_pace_rules import BodyPace
from gateway.net.echo_answers import Refusal
from gateway.net.exchange import Exchange
from gateway.net.refusal_form import RefusalForm


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Of sessions of the handshake era; beyond one of them the next `initialize` is refused."""

    in_all_max: int
    of_accounts_max: tuple[int, ...]  # one for each of a caller's accounts
    idle_s_max: float  # without a request under way; then a session is over


class Caller(Protocol):
    """Who asks. A token's principal is one too."""

    @property
    def credential_id(self) -> str:
        """What sessions and requests belong to, and end with. No secret."""

    @property
    def accounts(self) -> tuple[Hashable, ...]:
        """What sessions are counted by."""

    @property
    def expires_at_ms(self) -> int: ...


class LargeShare(AbstractContextManager[object], Protocol):
    """A request's place among those that may be large, once it is taken, for as long as anybody is in the context."""

    def take(self) -> bool:
        """Whether this request may be large. Once it may, it may."""


@dataclass(frozen=True, slots=True)
class ToolDone:
    document: Mapping[str, Any]
    correlation_id: str


@dataclass(frozen=True, slots=True)
class ToolFailed:
    error: Mapping[str, Any]  # for the model to read
    correlation_id: str


@dataclass(frozen=True, slots=True)
class ToolUnknown:
    """There is no such tool."""

    correlation_id: str


class SessionKind(Protocol):
    name: str  # in the log
    instructions: str  # what a model is told first
    scope: str | None  # what a client without a credential should ask for; None: asking gives nobody such a credential
    limits: SessionLimits
    body_bytes_max: int  # of a request; a larger one is refused
    large_max: int  # requests under way that are larger than an agent's may be; the next one is refused
    large_of_accounts_max: tuple[int, ...]  # of these, one for each of a caller's accounts
    body_pace: BodyPace  # how slowly it may come
    refusal_form: RefusalForm  # how the door says that it came more slowly
    on_end: Callable[[str], None]  # set by the endpoint; to be told of every credential that has ended, by its id

    def claims(self, token: str) -> bool:
        """Whether this credential is of this kind, by its form. Asked of every request, agents' too."""

    def admit(self, exchange: Exchange, token: str) -> Caller | Refusal | None:
        """Who asks; None: nobody has this credential."""

    def takes_large(self, body: bytes) -> bool:
        """Whether a body that is larger than an agent's may be is worth decoding. Asked before anything does: what is
        not text in there costs many times its size."""

    def is_good(self, caller: Caller) -> bool:
        """Whether it still is, for one that has waited since it was admitted."""

    def ends_at_ms(self, caller: Caller) -> int:
        """Until when what this one opened may stay open, as things are now; 0: no longer. Asked when the time that was
        known has come: it may have moved."""

    def tools(self, caller: Caller) -> Sequence[Mapping[str, Any]]:
        """As MCP lists them, in an order that does not change."""

    async def call(
        self, caller: Caller, name: str, arguments: Any, share: LargeShare
    ) -> ToolDone | ToolFailed | ToolUnknown:
        """What is large, the document too, takes the request's share first."""
