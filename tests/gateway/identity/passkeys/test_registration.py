"""Registrations: what an honest browser sends is kept, and every way to lie has its fault."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
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
)
from tests.gateway.identity.passkeys.ceremonies import (
    BASE,
    FORGED_CLIENT_DATA,
    PARTY,
    begin_login,
    begin_registration,
    outcome_of_registration,
)


@pytest.mark.parametrize("algorithm", [ES256, EDDSA, RS256])
def test_honest_registration_yields_id_key_and_counter(algorithm: int) -> None:
    ceremony, options = begin_registration()
    authenticator = SoftwareAuthenticator(BASE, algorithm)
    new = register(PARTY, ceremony, authenticator.register(options))
    (passkey,) = authenticator.passkeys
    assert new == NewCredential(passkey.id, encode_cbor(cose_key(passkey.key)), 1)


@pytest.mark.parametrize("flags", [UP | UV | BE, UP | UV | BE | BS])
def test_synchronized_passkey_is_taken(flags: int) -> None:
    assert isinstance(outcome_of_registration(Answer(flags=flags, sign_count=0)), NewCredential)


def test_extensions_that_nobody_asked_for_are_passed_over() -> None:
    answer = Answer(flags=UP | UV | ED, more=encode_cbor({"credProtect": 2}))
    assert isinstance(outcome_of_registration(answer), NewCredential)


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
    assert isinstance(outcome_of_registration(Answer(fmt=fmt, statement=statement)), NewCredential)


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
    assert outcome_of_registration(Answer(), origin=origin) is PasskeyFault.WRONG_ORIGIN


@pytest.mark.parametrize(
    ("client", "fault"), [*FORGED_CLIENT_DATA, ({"type": "webauthn.get"}, PasskeyFault.WRONG_TYPE)]
)
def test_client_data_of_another_ceremony_or_page_is_refused(client: Mapping[str, object], fault: PasskeyFault) -> None:
    assert outcome_of_registration(Answer(client=client)) is fault


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
    assert outcome_of_registration(Answer(client_bytes=said)) is PasskeyFault.MALFORMED


def test_client_data_in_utf_16_is_malformed_although_python_would_read_it() -> None:
    ceremony, options = begin_registration()
    said = {"type": "webauthn.create", "challenge": options["challenge"], "origin": BASE}
    answer = Answer(client_bytes=json.dumps(said).encode("utf-16"))
    assert register(PARTY, ceremony, SoftwareAuthenticator(BASE).register(options, answer)) is PasskeyFault.MALFORMED


@pytest.mark.parametrize("rp_id", ["x.gw.example", "example", "GW.example", "evil"])
def test_other_relying_party_is_refused(rp_id: str) -> None:
    assert outcome_of_registration(Answer(rp_id=rp_id)) is PasskeyFault.WRONG_RELYING_PARTY


def test_user_must_be_present_and_verified() -> None:
    assert outcome_of_registration(Answer(flags=UP)) is PasskeyFault.USER_UNVERIFIED
    assert outcome_of_registration(Answer(flags=UV)) is PasskeyFault.USER_ABSENT
    assert outcome_of_registration(Answer(flags=0)) is PasskeyFault.USER_ABSENT


def test_backup_without_being_eligible_for_one_is_refused() -> None:
    assert outcome_of_registration(Answer(flags=UP | UV | BS)) is PasskeyFault.NOT_VERIFIED


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


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda whole: whole + b"\x00",
        lambda whole: b"\xd9\xd9\xf7" + whole,  # "this is CBOR"
        lambda whole: b"\xbf" + whole[1:] + b"\xff",
        lambda whole: b"\xb8\x03" + whole[1:],
        lambda whole: b"\xa4" + whole[1:] + b"\x61x" + b"\x81" * 5 + b"\x80",
        lambda whole: b"\xa4" + whole[1:] + b"\x61x\xfb" + bytes(8),
    ],
)
def test_attestation_object_in_another_form_of_cbor_is_malformed(wrapped: Any) -> None:
    ceremony, sent = credential()
    sent["response"]["attestationObject"] = base64url(wrapped(from_base64url(sent["response"]["attestationObject"])))
    assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


def test_attestation_object_cut_off_anywhere_is_malformed() -> None:
    ceremony, sent = credential()
    whole = from_base64url(sent["response"]["attestationObject"])
    for end in range(len(whole)):
        sent["response"]["attestationObject"] = base64url(whole[:end])
        assert register(PARTY, ceremony, sent) is PasskeyFault.MALFORMED


@pytest.mark.parametrize("more", [b"\x00", encode_cbor({}), b"\x81" * 3000])
def test_bytes_that_are_left_over_are_malformed(more: bytes) -> None:
    assert outcome_of_registration(Answer(more=more)) is PasskeyFault.MALFORMED


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


@pytest.mark.parametrize(("length", "is_taken"), [(1, False), (15, False), (16, True), (1023, True), (1024, False)])
def test_id_has_16_to_1023_bytes(length: int, is_taken: bool) -> None:
    made = outcome_of_registration(Answer(credential_id=bytes(length)))
    assert isinstance(made, NewCredential) if is_taken else made is PasskeyFault.MALFORMED


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
