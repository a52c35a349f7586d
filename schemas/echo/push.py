"""The bodies of Web Push, of spaces and of projects: what subscribes, unsubscribes and notifies. By their form alone.

The bounds are those of the room's tools (`room_tools.json`), whose arguments are the same objects. Whether a
subscription can be used is for whoever sends.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.echo.errors import EchoError
from schemas.echo.names import is_name
from schemas.echo.room_tools import ROOM_TOOLS

MESSAGE_BYTES_MAX = 3_993  # of the JSON that a browser gets; more is 413 `payload_too_large`
_SUBSCRIBE, _UNSUBSCRIBE, _NOTIFY = (
    ROOM_TOOLS[name] for name in ("echo_push_subscribe", "echo_push_unsubscribe", "echo_push_notify")
)
_OURS = ("uid", "subs")  # beside what a browser made, in a flat body


class SubscribeWish(msgspec.Struct, frozen=True):
    subscription: Mapping[str, Any]  # as a browser made it
    uid: str | None = None
    subs: tuple[str, ...] = ()


class NotifyWish(msgspec.Struct, frozen=True):
    message: bytes  # as the browser gets it
    tuid: str | None = None
    sub: str | None = None


def read_subscribe(body: Any) -> SubscribeWish | EchoError:
    """`{"subscription": {…}, "uid"?, "subs"?}`, or all of it in one object."""
    if isinstance(body, Mapping) and "subscription" not in body and "endpoint" in body:
        made = {name: value for name, value in body.items() if name not in _OURS}
        body = {"subscription": made, **{name: body[name] for name in _OURS if name in body}}
    if not _SUBSCRIBE.takes(body):
        return EchoError.INVALID_PAYLOAD
    uid, subs = body.get("uid"), tuple(dict.fromkeys(body.get("subs", ())))
    if not all(map(is_name, subs if uid is None else (uid, *subs))):
        return EchoError.INVALID_PAYLOAD
    return SubscribeWish(body["subscription"], uid, subs)


def read_unsubscribe(body: Any) -> str | EchoError:
    """The endpoint."""
    if not _UNSUBSCRIBE.takes(body):
        return EchoError.INVALID_PAYLOAD
    endpoint: str = body["endpoint"]
    return endpoint if _is_text(endpoint) else EchoError.INVALID_PAYLOAD


def read_notify(body: Any) -> NotifyWish | EchoError:
    if not _NOTIFY.takes(body):
        return EchoError.INVALID_PAYLOAD
    tuid, sub = body.get("tuid"), body.get("sub")
    if not all(name is None or is_name(name) for name in (tuid, sub)):
        return EchoError.INVALID_PAYLOAD
    told = {name: body[name] for name in ("title", "body", "data") if name in body}
    try:
        message = json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):  # a number beyond all numbers, half of a surrogate pair, a bottomless depth
        return EchoError.INVALID_PAYLOAD
    return NotifyWish(message, tuid, sub) if len(message) <= MESSAGE_BYTES_MAX else EchoError.PAYLOAD_TOO_LARGE


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
