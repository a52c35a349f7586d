"""websockets' server side, failing with close codes of our tables instead of RFC 6455's."""

import logging
from collections.abc import Sequence

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import CONNECTING, State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from schemas.closes import Close

# websockets logs what it receives when asked to debug, and parser failures with their data: not into our log.
_silent = logging.getLogger("heliograph.websockets.silent")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
_silent.setLevel(logging.CRITICAL)


class WireProtocol(ServerProtocol):
    """No extensions, so no compression either."""

    def __init__(
        self,
        *,
        bytes_max: int,
        too_large: Close,
        malformed: Close,
        subprotocols: Sequence[str] = (),
        state: State = CONNECTING,
        answers_pings: bool = True,
    ) -> None:
        """`answers_pings` is for who does not count them; else a pong is up to who reads the ping."""
        super().__init__(
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            extensions=[],
            max_size=bytes_max,
            state=state,
            logger=_silent,
        )
        self._too_large = too_large
        self._malformed = malformed
        self._answers_pings = answers_pings

    def send_frame(self, frame: Frame) -> None:
        if self._answers_pings or frame.opcode is not Opcode.PONG:
            super().send_frame(frame)

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        if code == CloseCode.ABNORMAL_CLOSURE:  # the peer is gone: nothing is sent
            super().fail(code, reason)
        else:
            ours = self._too_large if code == CloseCode.MESSAGE_TOO_BIG else self._malformed
            super().fail(ours.code, ours.reason)
