"""The events of a telemetry stream as bytes (RFC-0009 §5): three types, and no other.

A frame is written from its parsed values: the keys in the order of the published schema, integers as integers however
the node wrote them, and never the node's own bytes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.closes import StreamClose
from schemas.registry import REGISTRY

FRAME_ID = "system.metrics.subscribe.frame@1.0.0"

_FIELDS = tuple((name, rule["type"]) for name, rule in REGISTRY[FRAME_ID].document["properties"].items())


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


PING = _event("ping", b"{}")

_CLOSES = {
    close: _event("close", msgspec.json.encode({"code": close.value.code, "reason": close.value.reason}))
    for close in StreamClose
}


def close_event(close: StreamClose) -> bytes:
    return _CLOSES[close]


def frame_values(frame: Mapping[str, Any]) -> dict[str, Any]:
    """As they are sent on. `frame` has passed the schema."""
    return {name: int(frame[name]) if kind == "integer" else frame[name] for name, kind in _FIELDS}


def metric_event(frame: Mapping[str, Any]) -> bytes:
    """`frame` has passed the schema."""
    return _event("metric", msgspec.json.encode(frame_values(frame)))
