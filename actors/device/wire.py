"""The port between an agent and whatever carries its frames: a WebSocket, or a pair of queues in a simulation."""

from collections.abc import Awaitable, Callable
from typing import Protocol

ABNORMAL = 1006  # WebSocket's code for a connection that ended without saying why; never on the wire


class WireClosed(Exception):  # noqa: N818  # an expected end, named for what happened
    """The wire is gone: the gateway closed it with this code, or it broke or never opened (1006)."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason


class Wire(Protocol):
    """`send` and `receive` are called by one task each. All three may raise WireClosed."""

    async def send(self, data: bytes) -> None:
        """One text frame."""

    async def receive(self) -> bytes:
        """The next text frame."""

    async def aclose(self, code: int, reason: str) -> None:
        """Say goodbye if that is still possible, within a bounded time; free everything. May be called twice."""


Connect = Callable[[], Awaitable[Wire]]
"""Opens a wire within a bounded time, or raises WireClosed."""
