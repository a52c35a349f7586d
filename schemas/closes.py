"""Why a connection ends: one table for telemetry streams (RFC-0009 §7), one for a node's WebSocket (device wire §2.5).

Each row says what the other side should do next, so that a client library can be driven by the table alone.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum


class Return(StrEnum):
    """Whether the other side should come back."""

    AS_IT_LIKES = "as it likes"
    WITH_BACKOFF = "with backoff"
    WITH_BACKOFF_AND_SINCE = "with backoff, and with since"
    WITH_JITTER = "with jitter"
    WITH_NEW_TOKEN = "with a new token"
    WITH_LONGER_INTERVAL = "with a longer interval_ms"
    AFTER_30_S = "after 30 s at the earliest"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Close:
    code: int
    reason: str  # the word on the wire, and the label of a metric
    come_back: Return


class StreamClose(Enum):
    """How a telemetry stream ends, in the data of its `close` event."""

    NORMAL = Close(1000, "normal", Return.AS_IT_LIKES)
    IDLE_TIMEOUT = Close(4408, "idle_timeout", Return.WITH_BACKOFF)
    BACKPRESSURE = Close(4413, "backpressure", Return.WITH_LONGER_INTERVAL)
    RATE_LIMITED = Close(4429, "rate_limited", Return.WITH_BACKOFF)
    DEVICE_OFFLINE = Close(4503, "device_offline", Return.WITH_BACKOFF)


class NodeClose(Enum):
    """How a node's session ends, as WebSocket close code and reason."""

    NORMAL = Close(1000, "normal", Return.AS_IT_LIKES)
    INTERNAL = Close(1011, "internal", Return.WITH_BACKOFF)
    SERVICE_RESTART = Close(1012, "service_restart", Return.WITH_JITTER)
    BAD_FRAME = Close(4400, "bad_frame", Return.WITH_BACKOFF)
    UNAUTHORIZED = Close(4401, "unauthorized", Return.WITH_NEW_TOKEN)
    FORBIDDEN = Close(4403, "forbidden", Return.NO)
    TIMEOUT = Close(4408, "timeout", Return.WITH_BACKOFF)
    SUPERSEDED = Close(4409, "superseded", Return.AFTER_30_S)
    TOO_LARGE = Close(4413, "too_large", Return.WITH_BACKOFF)
    MANIFEST_REJECTED = Close(4422, "manifest_rejected", Return.NO)
    RATE_LIMITED = Close(4429, "rate_limited", Return.WITH_BACKOFF)
