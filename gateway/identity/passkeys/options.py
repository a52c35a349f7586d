"""What a browser is asked for, in the JSON that `PublicKeyCredential.parseCreationOptionsFromJSON` reads. Pure."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.identity.passkeys.ceremony_rules import LIFE_S, Ceremony
from gateway.identity.passkeys.key_rules import ALGORITHMS
from gateway.identity.passkeys.relying_party import RelyingParty

USER_HANDLE_BYTES = 32
_TIMEOUT_MS = int(LIFE_S * 1000)


@dataclass(frozen=True, slots=True)
class PasskeyUser:
    handle: bytes
    """32 random bytes, the same for all passkeys of one member: it names nobody, and comes back with each login."""
    name: str
    """What people choose by in their browser's list."""
    display_name: str


def creation_options(
    party: RelyingParty, ceremony: Ceremony, user: PasskeyUser, known: Iterable[bytes] = ()
) -> dict[str, Any]:
    """`known` are ids of the member's other passkeys: a device that has one makes no second."""
    if len(user.handle) != USER_HANDLE_BYTES:
        raise ValueError("a user handle has 32 random bytes")
    return {
        "rp": {"id": party.id, "name": party.name},
        "user": {"id": base64url(user.handle), "name": user.name, "displayName": user.display_name},
        "challenge": base64url(ceremony.challenge),
        "pubKeyCredParams": [{"type": "public-key", "alg": alg} for alg in ALGORITHMS],
        "timeout": _TIMEOUT_MS,
        "excludeCredentials": [{"type": "public-key", "id": base64url(one)} for one in known],
        "authenticatorSelection": {
            "residentKey": "required",
            "requireResidentKey": True,  # what browsers before `residentKey` understand
            "userVerification": "required",
        },
        "attestation": "none",
    }


def request_options(party: RelyingParty, ceremony: Ceremony) -> dict[str, Any]:
    """Names no credentials: the browser offers those that it has for us, and nobody learns here who is a member."""
    return {
        "challenge": base64url(ceremony.challenge),
        "rpId": party.id,
        "timeout": _TIMEOUT_MS,
        "userVerification": "required",
    }


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
