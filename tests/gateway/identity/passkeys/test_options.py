"""What browsers are asked for, in the JSON that they parse themselves."""

import json

import pytest

from gateway.identity.passkeys.ceremony_rules import Purpose
from gateway.identity.passkeys.options import PasskeyUser, creation_options, request_options
from tests.gateway.identity.passkeys.authenticator import base64url
from tests.gateway.identity.passkeys.ceremonies import PARTY, USER, begin


def test_creation_asks_for_a_discoverable_credential_with_user_verification_and_no_attestation() -> None:
    ceremony = begin(Purpose.REGISTER)
    options = creation_options(PARTY, ceremony, USER, [b"a" * 16, b"b" * 16])
    assert json.loads(json.dumps(options)) == {
        "rp": {"id": "gw.example", "name": "Heliograph"},
        "user": {"id": base64url(USER.handle), "name": USER.name, "displayName": "ada"},
        "challenge": base64url(ceremony.challenge),
        "pubKeyCredParams": [{"type": "public-key", "alg": alg} for alg in (-7, -8, -257)],
        "timeout": 300_000,
        "excludeCredentials": [
            {"type": "public-key", "id": base64url(b"a" * 16)},
            {"type": "public-key", "id": base64url(b"b" * 16)},
        ],
        "authenticatorSelection": {
            "residentKey": "required",
            "requireResidentKey": True,
            "userVerification": "required",
        },
        "attestation": "none",
    }


def test_request_names_no_credentials() -> None:
    ceremony = begin(Purpose.LOGIN)
    assert request_options(PARTY, ceremony) == {
        "challenge": base64url(ceremony.challenge),
        "rpId": "gw.example",
        "timeout": 300_000,
        "userVerification": "required",
    }


@pytest.mark.parametrize("handle", [b"", b"x" * 31, b"x" * 33])
def test_user_handle_has_32_bytes(handle: bytes) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        creation_options(PARTY, begin(Purpose.REGISTER), PasskeyUser(handle, "ada", "ada"))
