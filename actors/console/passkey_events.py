"""Passkeys of operators, as they lie in the log: one stream for all of them."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec


class _Event(msgspec.Struct, frozen=True, tag=lambda name: f"{name}@1", tag_field="event", forbid_unknown_fields=True):
    at_ms: int
    passkey_id: str


class OperatorPasskey(msgspec.Struct, frozen=True):
    passkey_id: str  # an upper-case ULID, as a token's `jti`: whatever revokes one revokes the other
    credential_id: bytes
    public_key: bytes  # COSE, as the authenticator gave it
    sign_count: int  # 0: it does not count
    user_handle: bytes  # what authenticators know the operator by: random, the same for all passkeys of a `sub`
    sub: str
    tenant: str
    scopes: tuple[str, ...]  # all that a session of it has
    token_id: str  # of the token behind its registration: revoked, the passkey is over
    made_at_ms: int
    ends_at_ms: int  # never after the token
    used_at_ms: int | None = None


class PasskeyAdded(_Event, frozen=True):
    passkey: OperatorPasskey


class PasskeyUsed(_Event, frozen=True):
    """Somebody has signed in with it."""

    sign_count: int


class PasskeyRemoved(_Event, frozen=True):
    """For good. One whose time is up goes this way too, when there is another reason to write."""

    by: str  # the operator's `sub`; empty: its time was up


Event: TypeAlias = PasskeyAdded | PasskeyUsed | PasskeyRemoved
Passkeys: TypeAlias = Mapping[str, OperatorPasskey]  # by id, and so by age


def evolve(passkeys: Passkeys, event: Event) -> Passkeys:
    match event:
        case PasskeyAdded():
            return {**passkeys, event.passkey_id: event.passkey}
        case PasskeyUsed():
            before = passkeys.get(event.passkey_id)
            if before is None:
                return passkeys
            used = msgspec.structs.replace(before, sign_count=event.sign_count, used_at_ms=event.at_ms)
            return {**passkeys, event.passkey_id: used}
        case PasskeyRemoved():
            return {key: passkey for key, passkey in passkeys.items() if key != event.passkey_id}


_encoder = msgspec.json.Encoder()
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_snapshot_decoder = msgspec.json.Decoder(tuple[OperatorPasskey, ...])


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def encode_snapshot(passkeys: Passkeys) -> bytes:
    return _encoder.encode(tuple(passkeys.values()))


def decode(data: bytes) -> Event:
    """Raises msgspec.MsgspecError."""
    return _event_decoder.decode(data)


def decode_snapshot(data: bytes) -> Passkeys:
    """Raises msgspec.MsgspecError."""
    return {passkey.passkey_id: passkey for passkey in _snapshot_decoder.decode(data)}
