"""Registrations: what an honest browser sends is kept, and every way to lie has its fault."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from webauthn.helpers import encode_cbor

from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.verification import NewCredential, register
from tests.gateway.identity.passkeys.authenticator import (
    AT,
    BE,
    BS,
    ED,
    EDDSA,
    ES256,
    RS256,
    UP,
    UV,
    Answer,
    SoftwareAuthenticator,
    base64url,
    cose_key,
    from_base64url,
    new_key,
    rsa_key,
)
from tests.gateway.identity.passkeys.ceremonies import BASE, FORGED_CLIENT_DATA, PARTY, begin_login, begin_registration

ES_KEY = cose_key(new_key(ES256))


def outcome(answer: Answer, algorithm: int = ES256, origin: str = BASE) -> NewCredential | PasskeyFault:
    ceremony, options = begin_registration()
    return register(PARTY, ceremony, SoftwareAuthenticator(origin, algorithm).register(options, answer))


@pytest.mark.parametrize("algorithm", [ES256, EDDSA, RS256])
def test_honest_registration_yields_id_key_and_counter(algorithm: int) -> None:
    ceremony, options = begin_registration()
    authenticator = SoftwareAuthenticator(BASE, algorithm)
    new = register(PARTY, ceremony, authenticator.register(options))
    (passkey,) = authenticator.passkeys
    assert new == NewCredential(passkey.id, encode_cbor(cose_key(passkey.key)), 1)


@pytest.mark.parametrize("flags", [UP | UV | BE, UP | UV | BE | BS])
def test_synchronized_passkey_is_taken(flags: int) -> None:
    assert isinstance(outcome(Answer(flags=flags, sign_count=0)), NewCredential)


def test_extensions_that_nobody_asked_for_are_passed_over() -> None:
    answer = Answer(flags=UP | UV | ED, more=encode_cbor({"credProtect": 2}))
    assert isinstance(outcome(answer), NewCredential)


@pytest.mark.parametrize(
    ("fmt", "statement"),
    [
        ("packed", {"alg": -7, "sig": b"not checked"}),
        ("packed", {"alg": -7, "sig": b"x", "x5c": [b"not a certificate"]}),
        ("fido-u2f", {"sig": b"x", "x5c": [b"\x30\x82" * 1000]}),
        ("tpm", {"ver": "2.0", "certInfo": b"", "pubArea": b"", "x5c": []}),
        ("none", {"sig": b"too much"}),
        ("never heard of", {}),
    ],
)
def test_attestation_is_ignored_and_never_parsed(fmt: str, statement: Mapping[str, object]) -> None:
    assert isinstance(outcome(Answer(fmt=fmt, statement=statement)), NewCredential)


@pytest.mark.parametrize(
    "origin",
    [
        "https://x.gw.example",
        "http://gw.example",
        "https://gw.example:8443",
        "https://gw.example:443",
        "https://GW.example",
        "https://gw.example.",
        "https://gw.example/",
        "https://gw.example.evil",
        "https://evilgw.example",
        "https://gw.example@evil",
        " https://gw.example",
        "android:apk-key-hash:x",
        "null",
        "",
    ],
)
def test_other_origin_is_refused(origin: str) -> None:
    assert outcome(Answer(), origin=origin) is PasskeyFault.WRONG_ORIGIN


@pytest.mark.parametrize(
    ("client", "fault"), [*FORGED_CLIENT_DATA, ({"type": "webauthn.get"}, PasskeyFault.WRONG_TYPE)]
)
def test_client_data_of_another_ceremony_or_page_is_refused(client: Mapping[str, object], fault: PasskeyFault) -> None:
    assert outcome(Answer(client=client)) is fault


def test_client_data_without_cross_origin_and_with_more_members_is_taken() -> None:
    ceremony, options = begin_registration()
    said = {"type": "webauthn.create", "challenge": options["challenge"], "origin": BASE, "more": {"to": ["come"]}}
    answer = Answer(client_bytes=json.dumps(said, indent=1).encode())
    assert isinstance(register(PARTY, ceremony, SoftwareAuthenticator(BASE).register(options, answer)), NewCredential)


def test_challenge_in_another_spelling_is_refused() -> None:
    ceremony, options = begin_registration()
    for spelling in (options["challenge"] + "=", options["challenge"][:-1] + "_", f" {options['challenge']}"):
        answer = Answer(client={"challenge": spelling})
        fault = register(PARTY, ceremony, SoftwareAuthenticator(BASE).register(options, answer))
        assert fault is PasskeyFault.WRONG_CHALLENGE


@pytest.mark.parametrize(
    "said",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"type":"webauthn.create","type":"webauthn.create"}', b"[" * 4000, b"1e999"],
)
def test_client_data_that_is_no_object_is_malformed(said: bytes) -> None:
    assert outcome(Answer(client_bytes=said)) is PasskeyFault.MALFORMED


def test_client_data_in_utf_16_is_malformed_although_python_would_read_it() -> None:
    ceremony, options = begin_registration()
    said = {"type": "webauthn.create", "challenge": options["challenge"], "origin": BASE}
    answer = Answer(client_bytes=json.dumps(said).encode("utf-16"))
    assert register(PARTY, ceremony, SoftwareAuthenticator(BASE).register(options, answer)) is PasskeyFault.MALFORMED


@pytest.mark.parametrize("rp_id", ["x.gw.example", "example", "GW.example", "evil"])
def test_other_relying_party_is_refused(rp_id: str) -> None:
    assert outcome(Answer(rp_id=rp_id)) is PasskeyFault.WRONG_RELYING_PARTY


def test_user_must_be_present_and_verified() -> None:
    assert outcome(Answer(flags=UP)) is PasskeyFault.USER_UNVERIFIED
    assert outcome(Answer(flags=UV)) is PasskeyFault.USER_ABSENT
    assert outcome(Answer(flags=0)) is PasskeyFault.USER_ABSENT


def test_backup_without_being_eligible_for_one_is_refused() -> None:
    assert outcome(Answer(flags=UP | UV | BS)) is PasskeyFault.NOT_VERIFIED


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
    assert outcome(Answer(public_key=key)) is fault


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
)
def test_key_that_is_no_map_of_canonical_cbor_is_refused(key: bytes) -> None:
    assert outcome(Answer(public_key_bytes=key)) in (PasskeyFault.MALFORMED, PasskeyFault.ALGORITHM_UNSUPPORTED)


def credential() -> tuple[Any, dict[str, Any]]:
    ceremony, options = begin_registration()
    return ceremony, SoftwareAuthenticator(BASE).register(options)


@pytest.mark.parametrize(
    "attestation",
    [
        b"",
        b"\xa0",
        b"\x80",
        b"\x81" * 16_000,
        b"\xd9\xd9\xf7\xa0",
        encode_cbor({"fmt": "none", "attStmt": {}}),
        encode_cbor({"fmt": "none", "attStmt": {}, "authData": "text"}),
        encode_cbor({"fmt": "none", "attStmt": {}, "authData": b"x" * 36}),
        encode_cbor({"fmt": "none", "attStmt": {}, "authData": bytes(32) + bytes([UP | UV | AT]) + bytes(4)}),
        encode_cbor({"fmt": "none", "attStmt": {}, "authData": bytes(32) + bytes([UP | UV]) + bytes(4)}),
        encode_cbor({"fmt": "none", "attStmt": [[[[[]]]]], "authData": bytes(37)}),
        b"\xa1\x68authData\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xa1\x68authData\x43abc\x00",
        b"\xa2\x68authData\x43abc\x68authData\x43abc",
        b"\xa1\x62\xff\xff\x00",
    ],
)
def test_hostile_attestation_object_is_malformed(attestation: bytes) -> None:
    ceremony, sent = credential()
    sent["response"]["attestationObject"] = base64url(attestation)
    assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


def test_attestation_object_cut_off_anywhere_is_malformed() -> None:
    ceremony, sent = credential()
    whole = from_base64url(sent["response"]["attestationObject"])
    for end in range(len(whole)):
        sent["response"]["attestationObject"] = base64url(whole[:end])
        assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


@pytest.mark.parametrize("more", [b"\x00", encode_cbor({}), b"\x81" * 3000])
def test_bytes_that_are_left_over_are_malformed(more: bytes) -> None:
    assert outcome(Answer(more=more)) is PasskeyFault.MALFORMED


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", None),
        ("id", "x"),
        ("rawId", None),
        ("rawId", base64url(b"another id, long enough")),
        ("type", "password"),
        ("type", ["public-key"]),
        ("response", None),
        ("response", []),
        ("response", "text"),
    ],
)
def test_credential_without_a_needed_member_is_malformed(name: str, value: object) -> None:
    ceremony, sent = credential()
    sent[name] = value
    assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


@pytest.mark.parametrize("sent", [None, 1, "text", [], {}, {"response": {}}])
def test_what_is_no_credential_is_malformed(sent: object) -> None:
    ceremony, _ = begin_registration()
    assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


@pytest.mark.parametrize("length", [0, 15, 1024])
def test_id_outside_its_bounds_is_malformed(length: int) -> None:
    ceremony, sent = credential()
    sent["id"] = sent["rawId"] = base64url(bytes(length))
    assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


def test_id_other_than_the_attested_one_is_malformed() -> None:
    ceremony, sent = credential()
    sent["id"] = sent["rawId"] = base64url(bytes(32))
    assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


@pytest.mark.parametrize("name", ["clientDataJSON", "attestationObject"])
@pytest.mark.parametrize(
    "spelled",
    [
        lambda text: text + "=",
        lambda text: f"{text}\n",
        lambda text: "+" + text[1:],
        lambda text: text + "A" * (1 - len(text) % 4 + 4),  # no text has a length of 1 modulo 4
        lambda _: "AB",  # bits left over
        lambda _: "é",
        lambda _: 5,
        lambda _: "A" * 1_000_000,
    ],
)
def test_part_in_another_spelling_or_too_long_is_malformed(name: str, spelled: Any) -> None:
    ceremony, sent = credential()
    sent["response"][name] = spelled(sent["response"][name])
    assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


def test_unknown_members_of_the_credential_are_ignored() -> None:
    ceremony, sent = credential()
    more = copy.deepcopy(sent)
    more.update(authenticatorAttachment="brain", clientExtensionResults={"x": [1]}, unheard={"of": None})
    more["response"].update(transports="none", publicKey=5, authenticatorData="!", unheard="of")
    assert register(PARTY, ceremony, more) == register(PARTY, ceremony, sent)


def test_answer_to_a_login_is_no_registration() -> None:
    _, options = begin_registration()
    authenticator = SoftwareAuthenticator(BASE)
    authenticator.register(options)
    ceremony, request = begin_login()
    assert register(PARTY, ceremony, authenticator.sign_in(request)) is PasskeyFault.MALFORMED
    _, options = begin_registration()
    crossed = authenticator.register(
        {**options, "challenge": request["challenge"]}, Answer(client={"type": "webauthn.get"})
    )
    assert register(PARTY, ceremony, crossed) is PasskeyFault.WRONG_TYPE
