"""The section `[echo]`: the limits of spaces (`actors/space/settings.py`), and those of their routes and sockets."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from actors.space.settings import SpaceSettings
from gateway.net.body_pace_rules import BodyPace
from gateway.net.exchange import BODY_BYTES_MAX


@dataclass(frozen=True, slots=True)
class EchoSettings(SpaceSettings):
    enabled: bool = False  # without it every route of spaces is 404
    service_name: str = "kisko-echo"  # as `GET /healthz` says it
    # Needed by `POST /spaces`, if set; a wrong one is 401. An empty one would let everybody in, and stops the start. It
    # is in no dump of the settings.
    create_password: Annotated[str, msgspec.Meta(min_length=1)] | None = field(default=None, repr=False)
    csrf: Literal["standard", "strict"] = "standard"  # of `POST /spaces`; without it 403 `csrf_failed`
    # ---- uploads of files; every other body has `door.body_s_max`
    upload_bytes_per_s_min: int = 16 * 1024  # slower, beyond `upload_free_s`, is 400 `invalid_payload`; 0: none
    upload_idle_s_max: float = 10.0  # without a byte of it; then 400 `invalid_payload`, and the connection is closed
    upload_free_s: float = 20.0  # spent waiting for it, before its rate counts
    uploads_per_address_max: int = 8  # at a time; the next one is 429 `rate_limited`
    uploads_per_space_max: int = 16  # at a time, by whomever; the next one is 429 `rate_limited`
    # ---- rates, as a burst and what is refilled; above them 429 `rate_limited`. Of IPv6, a /64 is one address.
    rest_burst: int = 120  # requests of one address
    rest_per_s: float = 20.0
    room_rest_burst: int = 600  # requests to one space, by whomever
    room_rest_per_s: float = 100.0
    creations_burst: int = 10  # new spaces by one address
    creations_per_h: float = 10.0
    passwords_burst: int = 10  # wrong passwords from one address
    passwords_per_min: float = 10.0
    ceremonies_burst: int = 10  # passkey ceremonies begun by one address
    ceremonies_per_min: float = 10.0
    ceremonies_max: int = 10_000  # under way, in memory, 5 minutes at most; then the oldest of all ends
    ceremonies_per_address_max: int = 20  # under way; then the oldest of that address ends
    unknown_tokens_burst: int = 30  # requests and upgrades of one address with a token of no space
    unknown_tokens_per_min: float = 30.0
    upgrades_burst: int = 30  # to rooms, by one address
    upgrades_per_s: float = 1.0
    room_upgrades_burst: int = 60  # to one room, by whomever
    room_upgrades_per_s: float = 5.0
    # ---- sockets of rooms
    sockets_max: int = 10_000  # of all rooms; the next upgrade is 503 `overloaded`
    sockets_per_address_max: int = 1_024  # of all rooms, for one address; the next upgrade is 503 `overloaded`
    socket_read_bytes_max: int = 8 * 1024  # taken from one socket before the next one has its turn
    socket_close_s_max: float = 5.0  # for the close frame to go out and the client to hang up; then closed regardless
    # ---- rooms over MCP (`/mcp` with a room's token), with the rates of requests above
    mcp_file_bytes_max: int | None = None  # through a tool; more is `payload_too_large`. None: as `file_bytes_max`
    # Requests and answers above 64 KiB at a time, of all rooms: each is in memory several times over. The next one is
    # 503 `overloaded`.
    mcp_large_max: int = 4
    mcp_large_per_space_max: int = 2  # of these, of one space, by whomever; the next is 503 `overloaded`
    mcp_large_per_address_max: int = 1  # of these, of one address, to whatever spaces; the next is 503 `overloaded`
    mcp_sessions_max: int = 10_000  # of clients of the handshake era, of all rooms; the next is 503 `overloaded`
    mcp_sessions_per_space_max: int = 256  # of one space, by whomever; the next is 503 `overloaded`
    mcp_sessions_per_address_max: int = 128  # of one address, to whatever spaces; the next is 503 `overloaded`
    mcp_session_idle_s_max: float = 1800.0  # without a request under way; then the session is over, and its id is 404

    @property
    def mcp_file_bytes(self) -> int:
        return self.file_bytes_max if self.mcp_file_bytes_max is None else self.mcp_file_bytes_max

    @property
    def mcp_body_bytes(self) -> int:
        """Of a request: a file in base64, or a value, and what is around it."""
        return max(-(-self.mcp_file_bytes // 3) * 4 + BODY_BYTES_MAX, self.body_bytes_max)

    @property
    def body_pace(self) -> BodyPace:
        """Of uploads, and of bodies to `/mcp`."""
        return BodyPace(self.upload_free_s, self.upload_bytes_per_s_min, idle_s_max=self.upload_idle_s_max)
