"""Sealing and opening in encrypted rooms, on this side of the wire, with the key that follows from the token.

A value is sealed as its text, the data of a message as its JSON text.
"""

import json
import os
from typing import Any

from schemas.echo.envelope import IV_BYTES, WS_KID, kv_kid, read_envelope, room_key, seal, unseal


class RoomSeal:
    def __init__(self, token: str, space_id: str) -> None:
        self._key = room_key(token, space_id)

    def seal_value(self, key: str, value: bytes) -> str:
        return seal(self._key, kv_kid(key), value, os.urandom(IV_BYTES))

    def open_value(self, key: str, envelope: str) -> bytes | None:
        """None: it was not sealed with this room's key for this place."""
        read = read_envelope(envelope)
        return None if read is None else unseal(self._key, kv_kid(key), read)

    def seal_data(self, data: Any) -> str:
        """What is an envelope already stays as it is: its key may be the clients' own."""
        if isinstance(data, str) and read_envelope(data) is not None:
            return data
        return seal(self._key, WS_KID, json.dumps(data).encode(), os.urandom(IV_BYTES))

    def open_data(self, data: Any) -> Any:
        """As it is, if this key does not open it."""
        read = read_envelope(data) if isinstance(data, str) else None
        opened = None if read is None else unseal(self._key, WS_KID, read)
        if opened is None:
            return data
        try:
            return json.loads(opened)
        except (ValueError, RecursionError):
            return opened.decode(errors="replace")
