"""Why a connection to a room ends: its WebSocket close code and reason, and whether to come back."""

from enum import Enum

from schemas.closes import Close, Return


class RoomClose(Enum):
    NORMAL = Close(1000, "normal", Return.AS_IT_LIKES)
    TOO_LARGE = Close(1009, "too_large", Return.NO)
    INTERNAL = Close(1011, "internal", Return.WITH_BACKOFF)
    SERVICE_RESTART = Close(1012, "service_restart", Return.WITH_JITTER)
    BAD_FRAME = Close(4400, "bad_frame", Return.NO)
    UNAUTHORIZED = Close(4401, "unauthorized", Return.WITH_NEW_TOKEN)
    FORBIDDEN = Close(4403, "forbidden", Return.NO)
    TIMEOUT = Close(4408, "timeout", Return.WITH_BACKOFF)
    GONE = Close(4410, "gone", Return.NO)
    SLOW = Close(4413, "slow", Return.WITH_BACKOFF_AND_SINCE)
    ROOM_FULL = Close(4420, "room_full", Return.WITH_BACKOFF)
    RATE_LIMITED = Close(4429, "rate_limited", Return.WITH_BACKOFF)
