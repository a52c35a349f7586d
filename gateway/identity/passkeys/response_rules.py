"""What a browser answers, from the JSON of `PublicKeyCredential.toJSON()`: bounded, and each part of the one spelling.

Members that are not needed are ignored, as the contract has it for what a browser made. What the parts say is for
`answer_rules.py`; whether it is signed, for `verification.py`. Pure.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.identity.passkeys.faults import PasskeyFault

# Each bound is asked for before anything is decoded; beyond it the answer is MALFORMED.
CREDENTIAL_ID_BYTES_MIN, CREDENTIAL_ID_BYTES_MAX = 16, 1023  # as WebAuthn has it
USER_HANDLE_BYTES_MAX = 64  # as WebAuthn has it
CLIENT_DATA_BYTES_MAX = 4096  # browsers write about 200
AUTHENTICATOR_DATA_BYTES_MAX = 4096  # 37 and what extensions add, which we ask for none of
ATTESTATION_BYTES_MAX = 16_384  # about 200 without a statement, 6,000 with the certificates of a TPM
SIGNATURE_BYTES_MAX = 512  # of the longest RSA key that is taken

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class RegistrationResponse:
    credential_id: bytes
    client_data: bytes
    attestation: bytes


@dataclass(frozen=True, slots=True)
class AssertionResponse:
    credential_id: bytes
    """What credentials are looked up by. Nothing is proved yet."""
    client_data: bytes
    authenticator_data: bytes
    signature: bytes
    user_handle: bytes | None


def read_registration(credential: object) -> RegistrationResponse | PasskeyFault:
    head = _read_head(credential)
    if head is None:
        return PasskeyFault.MALFORMED
    credential_id, response = head
    client_data = _bytes(response.get("clientDataJSON"), CLIENT_DATA_BYTES_MAX)
    attestation = _bytes(response.get("attestationObject"), ATTESTATION_BYTES_MAX)
    if client_data is None or attestation is None:
        return PasskeyFault.MALFORMED
    return RegistrationResponse(credential_id, client_data, attestation)


def read_assertion(credential: object) -> AssertionResponse | PasskeyFault:
    head = _read_head(credential)
    if head is None:
        return PasskeyFault.MALFORMED
    credential_id, response = head
    client_data = _bytes(response.get("clientDataJSON"), CLIENT_DATA_BYTES_MAX)
    data = _bytes(response.get("authenticatorData"), AUTHENTICATOR_DATA_BYTES_MAX)
    signature = _bytes(response.get("signature"), SIGNATURE_BYTES_MAX)
    user_handle = _bytes(response.get("userHandle"), USER_HANDLE_BYTES_MAX)
    has_bad_handle = response.get("userHandle") is not None and user_handle is None
    if client_data is None or data is None or signature is None or has_bad_handle:
        return PasskeyFault.MALFORMED
    return AssertionResponse(credential_id, client_data, data, signature, user_handle)


def _read_head(credential: object) -> tuple[bytes, Mapping[object, object]] | None:
    """The id and the response, of what is no more than that."""
    if not isinstance(credential, Mapping) or credential.get("type") != "public-key":
        return None
    credential_id = _bytes(credential.get("rawId"), CREDENTIAL_ID_BYTES_MAX)
    response = credential.get("response")
    if credential_id is None or len(credential_id) < CREDENTIAL_ID_BYTES_MIN or not isinstance(response, Mapping):
        return None
    return (credential_id, response) if credential.get("id") == credential.get("rawId") else None


def _bytes(text: object, bytes_max: int) -> bytes | None:
    """Of the one text that encodes them: no padding, no other alphabet, no bits left over."""
    if not isinstance(text, str) or len(text) > (bytes_max * 4 + 2) // 3 or not _BASE64URL.fullmatch(text):
        return None
    if len(text) % 4 == 1:
        return None
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if base64.urlsafe_b64encode(data).rstrip(b"=").decode() == text else None
