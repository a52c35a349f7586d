"""The frame that every server of bench.fanout sends: the RFC's example values, and when it was published.

`mem_bytes` carries the time, as the load gives it with each order to publish: a stamp of sixteen digits.
"""

import os
from typing import Any

import msgspec

NODE_ID = "01arz3ndektsv4rrffq69g5fav"
STAMP_BYTES = 16
NO_STAMP = 10**15


def open_fifo(path: str) -> int:
    """Where stamps come from. For writing too, so that it does not end before there is a publisher."""
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def stamps(data: bytes | bytearray) -> list[int]:
    """Each is written at once, so that none is ever read in part."""
    return [int(data[at : at + STAMP_BYTES]) for at in range(0, len(data), STAMP_BYTES)]


def frame(stamp: int, node_id: str = NODE_ID) -> dict[str, Any]:
    return {
        "ts_ms": 1745300000000,
        "node_id": node_id,
        "cpu_pct": 12.4,
        "mem_bytes": stamp,
        "mem_total_bytes": 8589934592,
        "disk_pct": 31.2,
        "load_1m": 0.42,
        "load_5m": 0.39,
        "load_15m": 0.35,
    }


def data(stamp: int = NO_STAMP) -> bytes:
    """The data of the event, for servers that make the event themselves; the programs in C put the stamp in."""
    return msgspec.json.encode(frame(stamp))
