"""What an answer says: made on which origin, for which challenge and relying party, and whether a person was verified.

All of it is asked before the library sees the answer, so that each refusal has its own fault and hostile bytes meet no
lenient parser. Pure; signatures and keys are for `verification.py`.
"""

import hashlib
from dataclasses import dataclass

import jiter

from gateway.identity.passkeys.cbor_rules import item_end
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.options import base64url
from gateway.identity.passkeys.relying_party import RelyingParty

CREATE, GET = "webauthn.create", "webauthn.get"

_PRESENT, _VERIFIED, _HAS_CREDENTIAL, _HAS_EXTENSIONS = 0x01, 0x04, 0x40, 0x80
_HASH_BYTES, _FIXED_BYTES = 32, 37  # of the relying party; and with flags and counter
_AAGUID_BYTES = 16


def client_data_fault(client_data: bytes, kind: str, challenge: bytes, party: RelyingParty) -> PasskeyFault | None:
    """As the browser wrote it. A member that is named twice is refused: two parsers may choose differently."""
    try:
        said = jiter.from_json(client_data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return PasskeyFault.MALFORMED
    if not isinstance(said, dict):
        return PasskeyFault.MALFORMED
    if said.get("type") != kind:
        return PasskeyFault.WRONG_TYPE
    if said.get("challenge") != base64url(challenge):
        return PasskeyFault.WRONG_CHALLENGE
    # Not "ends with": sites on subdomains may name our relying party, and only this keeps them out.
    if said.get("origin") != party.origin or said.get("crossOrigin", False) is not False or "topOrigin" in said:
        return PasskeyFault.WRONG_ORIGIN
    return None


@dataclass(frozen=True, slots=True)
class AttestedCredential:
    id: bytes
    public_key: bytes


@dataclass(frozen=True, slots=True)
class AuthenticatorData:
    party_hash: bytes
    is_present: bool
    is_verified: bool
    sign_count: int
    attested: AttestedCredential | None


def read_authenticator_data(data: bytes) -> AuthenticatorData | None:
    """None: not of the form, or something is left over."""
    if len(data) < _FIXED_BYTES:
        return None
    flags = data[_HASH_BYTES]
    at, attested = _FIXED_BYTES, None
    if flags & _HAS_CREDENTIAL:
        id_start = _FIXED_BYTES + _AAGUID_BYTES + 2
        id_end = id_start + int.from_bytes(data[id_start - 2 : id_start], "big")
        key_end = item_end(data, id_end)
        if key_end is None:
            return None
        at, attested = key_end, AttestedCredential(data[id_start:id_end], data[id_end:key_end])
    end = item_end(data, at) if flags & _HAS_EXTENSIONS else at
    if end != len(data):
        return None
    return AuthenticatorData(
        party_hash=data[:_HASH_BYTES],
        is_present=bool(flags & _PRESENT),
        is_verified=bool(flags & _VERIFIED),
        sign_count=int.from_bytes(data[_HASH_BYTES + 1 : _FIXED_BYTES], "big"),
        attested=attested,
    )


def authenticator_fault(data: AuthenticatorData, party: RelyingParty) -> PasskeyFault | None:
    if data.party_hash != hashlib.sha256(party.id.encode()).digest():
        return PasskeyFault.WRONG_RELYING_PARTY
    if not data.is_present:
        return PasskeyFault.USER_ABSENT
    return None if data.is_verified else PasskeyFault.USER_UNVERIFIED


def went_back(sign_count: int, last: int) -> bool:
    """Passkeys that are synchronized between devices do not count: theirs is 0 for ever."""
    return (sign_count, last) != (0, 0) and sign_count <= last
