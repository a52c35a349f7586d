"""Registrations and logins: our rules first, then the library, whose every exception is one fault.

The ceremony has been taken from `Ceremonies` before, so that an answer is tried once. Whoever keeps credentials looks
them up by the id that `read_assertion` gives, and refuses to register an id that any realm has already.
"""

from dataclasses import dataclass
from typing import Any

from webauthn import verify_authentication_response, verify_registration_response
from webauthn.helpers import decode_credential_public_key, encode_cbor, parse_cbor
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.decoded_public_key_to_cryptography import decoded_public_key_to_cryptography
from webauthn.helpers.structs import (
    AuthenticationCredential,
    AuthenticatorAssertionResponse,
    AuthenticatorAttestationResponse,
    RegistrationCredential,
)

from gateway.identity.passkeys.answer_rules import (
    CREATE,
    GET,
    authenticator_fault,
    client_data_fault,
    read_authenticator_data,
    went_back,
)
from gateway.identity.passkeys.cbor_rules import is_item
from gateway.identity.passkeys.ceremony_rules import Ceremony
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.key_rules import ALGORITHMS, key_fault
from gateway.identity.passkeys.options import base64url
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.identity.passkeys.response_rules import AssertionResponse, read_registration


@dataclass(frozen=True, slots=True)
class NewCredential:
    """What is kept of a passkey, with its realm and the user handle that the ceremony was for."""

    credential_id: bytes
    public_key: bytes
    """COSE, as the authenticator wrote it."""
    sign_count: int


@dataclass(frozen=True, slots=True)
class KnownCredential:
    credential_id: bytes
    public_key: bytes
    sign_count: int
    realm: str
    user_handle: bytes


@dataclass(frozen=True, slots=True)
class Assertion:
    """Somebody has the passkey and was verified by it. `sign_count` is to be kept, for the next time."""

    credential_id: bytes
    realm: str
    sign_count: int


def register(party: RelyingParty, ceremony: Ceremony, credential: object) -> NewCredential | PasskeyFault:
    response = read_registration(credential)
    if isinstance(response, PasskeyFault):
        return response
    fault = client_data_fault(response.client_data, CREATE, ceremony.challenge, party)
    if fault is not None:
        return fault
    authenticator_data = _attested_data(response.attestation)
    data = None if authenticator_data is None else read_authenticator_data(authenticator_data)
    if data is None or data.attested is None or data.attested.id != response.credential_id:
        return PasskeyFault.MALFORMED
    fault = authenticator_fault(data, party) or _public_key_fault(data.attested.public_key)
    if fault is not None:
        return fault
    try:
        verified = verify_registration_response(
            credential=RegistrationCredential(
                id=base64url(response.credential_id),
                raw_id=response.credential_id,
                response=AuthenticatorAttestationResponse(
                    client_data_json=response.client_data,
                    # Statements are not asked for and not believed: no certificate of a stranger is ever parsed.
                    attestation_object=encode_cbor({"fmt": "none", "attStmt": {}, "authData": authenticator_data}),
                ),
            ),
            expected_challenge=ceremony.challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=True,
            supported_pub_key_algs=[COSEAlgorithmIdentifier(alg) for alg in ALGORITHMS],
        )
    except Exception:  # whatever it meets in hostile bytes: its own errors, KeyError, ValueError, those of cryptography
        return PasskeyFault.NOT_VERIFIED
    return NewCredential(verified.credential_id, verified.credential_public_key, verified.sign_count)


def authenticate(
    party: RelyingParty, ceremony: Ceremony, response: AssertionResponse, known: KnownCredential | None
) -> Assertion | PasskeyFault:
    """`known` is what is kept under `response.credential_id`; None: no realm has it."""
    fault = client_data_fault(response.client_data, GET, ceremony.challenge, party)
    if fault is not None:
        return fault
    data = read_authenticator_data(response.authenticator_data)
    if data is None or data.attested is not None:
        return PasskeyFault.MALFORMED
    fault = authenticator_fault(data, party)
    if fault is not None:
        return fault
    if known is None or known.credential_id != response.credential_id:
        return PasskeyFault.CREDENTIAL_UNKNOWN
    if known.realm not in ceremony.realms:
        return PasskeyFault.WRONG_REALM
    if response.user_handle != known.user_handle:
        return PasskeyFault.WRONG_USER
    try:
        verify_authentication_response(
            credential=AuthenticationCredential(
                id=base64url(response.credential_id),
                raw_id=response.credential_id,
                response=AuthenticatorAssertionResponse(
                    client_data_json=response.client_data,
                    authenticator_data=response.authenticator_data,
                    signature=response.signature,
                    user_handle=response.user_handle,
                ),
            ),
            expected_challenge=ceremony.challenge,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            credential_public_key=known.public_key,
            credential_current_sign_count=0,  # ours is asked below: only a signed counter can tell of a copy
            require_user_verification=True,
        )
    except Exception:  # as above
        return PasskeyFault.NOT_VERIFIED
    if went_back(data.sign_count, known.sign_count):
        return PasskeyFault.COUNTER_WENT_BACK
    return Assertion(known.credential_id, known.realm, data.sign_count)


def _attested_data(attestation: bytes) -> bytes | None:
    """The authenticator's data in an attestation object."""
    members = _decoded(attestation)
    data = members.get("authData") if isinstance(members, dict) else None
    return data if isinstance(data, bytes) else None


def _public_key_fault(public_key: bytes) -> PasskeyFault | None:
    """The library would keep a key that is none, and fail at the first login."""
    fault = key_fault(_decoded(public_key))
    if fault is not None:
        return fault
    try:
        decoded_public_key_to_cryptography(decode_credential_public_key(public_key))
    except Exception:  # such as a point off its curve
        return PasskeyFault.KEY_UNUSABLE
    return None


def _decoded(data: bytes) -> Any:
    """None: not of the form that authenticators write."""
    if not is_item(data):
        return None
    try:
        return parse_cbor(data)
    except Exception:  # text that is not UTF-8, a key twice
        return None
