"""A telemetry stream as a client reads it: server-sent events out of lines of text, as far as ours use them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: dict[str, Any]


class ProtocolError(Exception):
    """What came is no telemetry stream."""


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """One event for each group of lines that ends with an empty one; what breaks off before its end is dropped."""
    name, data = "", ""
    for line in lines:
        field, _, value = line.decode(errors="replace").rstrip("\r\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif not field and name:
            yield _event(name, data)
            name, data = "", ""


def _event(name: str, data: str) -> Event:
    """The set of event types is closed: any other is an error (RFC-0009 §5)."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if name not in ("metric", "ping", "close") or not isinstance(value, dict):
        raise ProtocolError("the stream has an event that is none of metric, ping and close")
    return Event(name, value)
