"""Which passkeys operators have, and for how long. Pure.

    registered by somebody who came with a token ── its own end, at most the token's ──► over
                                                 └─ removed; its id, or that of the token, revoked ──► over

That a credential is of no other realm, and what is revoked, is for the caller to know.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from actors.console.passkey_events import Event, OperatorPasskey, PasskeyAdded, PasskeyRemoved, Passkeys, PasskeyUsed


class Trouble(StrEnum):
    """Why not. Closed."""

    UNKNOWN = "unknown_passkey"
    FULL = "full"
    TAKEN = "passkey_taken"
    NOT_WRITTEN = "not_written"


Decision: TypeAlias = Sequence[Event] | Trouble


def is_over(passkey: OperatorPasskey, now_ms: int) -> bool:
    return now_ms >= passkey.ends_at_ms


def of_credential(passkeys: Passkeys, credential_id: bytes) -> OperatorPasskey | None:
    return next((one for one in passkeys.values() if one.credential_id == credential_id), None)


def handle_of(passkeys: Passkeys, sub: str) -> bytes | None:
    """What authenticators know this operator by; None: none does yet."""
    return next((one.user_handle for one in passkeys.values() if one.sub == sub), None)


def add(passkeys: Passkeys, new: OperatorPasskey, passkeys_max: int, now_ms: int) -> Decision:
    """Those whose time is up make room."""
    over = [one.passkey_id for one in passkeys.values() if is_over(one, now_ms)]
    if of_credential(passkeys, new.credential_id) is not None:
        return Trouble.TAKEN
    if len(passkeys) - len(over) >= passkeys_max:
        return Trouble.FULL
    return (*(PasskeyRemoved(now_ms, one, "") for one in over), PasskeyAdded(now_ms, new.passkey_id, new))


def use(passkeys: Passkeys, passkey_id: str, sign_count: int, now_ms: int) -> Decision:
    passkey = passkeys.get(passkey_id)
    if passkey is None or is_over(passkey, now_ms):
        return Trouble.UNKNOWN
    return (PasskeyUsed(now_ms, passkey_id, sign_count),)


def remove(passkeys: Passkeys, passkey_id: str, by: str, now_ms: int) -> Decision:
    return (PasskeyRemoved(now_ms, passkey_id, by),) if passkey_id in passkeys else Trouble.UNKNOWN
