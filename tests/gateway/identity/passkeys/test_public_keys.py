"""Which public keys may be registered: three kinds, each of one form."""

from collections.abc import Mapping

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from webauthn.helpers import encode_cbor

from gateway.identity.passkeys.faults import PasskeyFault
from tests.gateway.identity.passkeys.authenticator import EDDSA, ES256, Answer, cose_key, new_key, rsa_key
from tests.gateway.identity.passkeys.ceremonies import outcome_of_registration

ES_KEY = cose_key(new_key(ES256))


def p384() -> dict[int, object]:
    point = generate_private_key(SECP384R1()).public_key().public_numbers()
    return {1: 2, 3: -35, -1: 2, -2: point.x.to_bytes(48, "big"), -3: point.y.to_bytes(48, "big")}


def rsa(**members: object) -> dict[int, object]:
    names = {"kty": 1, "n": -1, "e": -2}
    return {**cose_key(rsa_key()), **{names[name]: value for name, value in members.items()}}


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        (p384(), PasskeyFault.ALGORITHM_UNSUPPORTED),
        ({**cose_key(rsa_key()), 3: -65535}, PasskeyFault.ALGORITHM_UNSUPPORTED),  # RS1
        ({**cose_key(rsa_key()), 3: -37}, PasskeyFault.ALGORITHM_UNSUPPORTED),  # PS256
        ({**ES_KEY, 3: -36}, PasskeyFault.ALGORITHM_UNSUPPORTED),  # ES512
        ({1: 7, 3: -48, -1: bytes(1312)}, PasskeyFault.ALGORITHM_UNSUPPORTED),  # ML-DSA-44
        ({**ES_KEY, 3: 0}, PasskeyFault.ALGORITHM_UNSUPPORTED),
        ({**ES_KEY, 3: "ES256"}, PasskeyFault.ALGORITHM_UNSUPPORTED),
        ({}, PasskeyFault.ALGORITHM_UNSUPPORTED),
        ({**p384(), 3: ES256}, PasskeyFault.KEY_UNUSABLE),
        ({**ES_KEY, 1: 3}, PasskeyFault.KEY_UNUSABLE),
        ({**ES_KEY, -1: 2}, PasskeyFault.KEY_UNUSABLE),
        ({**ES_KEY, -2: bytes(32), -3: bytes(32)}, PasskeyFault.KEY_UNUSABLE),
        ({**ES_KEY, -2: b"\xff" * 32}, PasskeyFault.KEY_UNUSABLE),
        ({**ES_KEY, -2: bytes(1) + bytes(ES_KEY[-2])}, PasskeyFault.KEY_UNUSABLE),  # type: ignore[call-overload]
        ({**ES_KEY, -3: 5}, PasskeyFault.KEY_UNUSABLE),
        ({**ES_KEY, -4: b"private"}, PasskeyFault.KEY_UNUSABLE),
        ({**cose_key(new_key(EDDSA)), 1: 2}, PasskeyFault.KEY_UNUSABLE),
        ({**cose_key(new_key(EDDSA)), -1: 7}, PasskeyFault.KEY_UNUSABLE),  # Ed448
        ({**cose_key(new_key(EDDSA)), -1: 4}, PasskeyFault.KEY_UNUSABLE),  # X25519: as long, and signs nothing
        ({**cose_key(new_key(EDDSA)), -2: bytes(31)}, PasskeyFault.KEY_UNUSABLE),
        (cose_key(rsa_key(1024)), PasskeyFault.KEY_UNUSABLE),
        (rsa(n=b"\xff" * 513), PasskeyFault.KEY_UNUSABLE),
        (rsa(n=b"\x7f" + b"\xff" * 255), PasskeyFault.KEY_UNUSABLE),
        (rsa(n=b"\x80" + bytes(255)), PasskeyFault.KEY_UNUSABLE),
        (rsa(e=b"\x03"), PasskeyFault.KEY_UNUSABLE),
        (rsa(e=b"\xff" * 256), PasskeyFault.KEY_UNUSABLE),
        (rsa(kty=2), PasskeyFault.KEY_UNUSABLE),
    ],
)
def test_key_that_is_not_of_the_three_kinds_is_refused(key: Mapping[int, object], fault: PasskeyFault) -> None:
    assert outcome_of_registration(Answer(public_key=key)) is fault


@pytest.mark.parametrize(
    "key",
    [
        b"\x04" + bytes(64),  # an uncompressed point, as U2F had it
        b"\x80",
        b"\x81" * 3000,
        b"\xa1\x01\x02",
        b"\xbf" + encode_cbor(ES_KEY)[1:] + b"\xff",
        b"\xd8\x1c" + encode_cbor(ES_KEY),
        encode_cbor(ES_KEY)[:-1],
        encode_cbor(ES_KEY) + b"\x00",
        b"\xa6" + encode_cbor(ES_KEY)[1:] + b"\x01\x02",  # a member twice
        b"\xa6" + encode_cbor(ES_KEY)[1:] + b"\xf5\x02",  # and once as true
        bytes.fromhex("a301634f4b500327206745643235353139") + bytes(32),  # what the library would repair
    ],
    ids=range(11),  # the keys are made anew for each run, and its processes have to agree on names
)
def test_key_that_is_no_map_of_canonical_cbor_is_refused(key: bytes) -> None:
    assert outcome_of_registration(Answer(public_key_bytes=key)) in (
        PasskeyFault.MALFORMED,
        PasskeyFault.ALGORITHM_UNSUPPORTED,
    )
