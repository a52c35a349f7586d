"""Logins: whoever holds the passkey is believed, once and here; everything else has its fault."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from webauthn.helpers import encode_cbor

from gateway.identity.passkeys.ceremony_rules import Ceremonies, Purpose, Realms
from gateway.identity.passkeys.faults import PasskeyFault
from gateway.identity.passkeys.options import request_options
from gateway.identity.passkeys.verification import Assertion
from tests.gateway.identity.passkeys.authenticator import (
    AT,
    BE,
    ED,
    EDDSA,
    ES256,
    RS256,
    UP,
    UV,
    Answer,
    base64url,
    from_base64url,
)
from tests.gateway.identity.passkeys.ceremonies import (
    FORGED_CLIENT_DATA,
    PARTY,
    ROOM,
    Member,
    begin_login,
    logged_in,
)


@pytest.fixture
def ada() -> Member:
    return Member()


@pytest.mark.parametrize("algorithm", [ES256, EDDSA, RS256])
def test_whoever_has_the_passkey_is_believed(algorithm: int) -> None:
    ada = Member(algorithm)
    for count in (2, 3):
        assertion = ada.answer(Answer())
        assert assertion == Assertion(ada.known.credential_id, ROOM, count)
        ada.known = replace(ada.known, sign_count=count)


def test_ceremony_that_was_answered_cannot_be_answered_again(ada: Member) -> None:
    ceremonies = Ceremonies()
    begun = ceremonies.begin(Purpose.LOGIN, Realms.only(ROOM), browser="b", address="a", now_s=0.0)
    sent = ada.authenticator.sign_in(request_options(PARTY, begun))

    def attempt() -> Assertion | PasskeyFault:
        ceremony = ceremonies.take(begun.id, Purpose.LOGIN, ROOM, browser="b", now_s=1.0)
        return PasskeyFault.CEREMONY_UNKNOWN if ceremony is None else logged_in(ceremony, sent, ada.known)

    assert isinstance(attempt(), Assertion)
    assert attempt() is PasskeyFault.CEREMONY_UNKNOWN


def test_answer_to_another_ceremony_is_refused(ada: Member) -> None:
    _, options = begin_login()
    another, _ = begin_login()
    assert logged_in(another, ada.authenticator.sign_in(options), ada.known) is PasskeyFault.WRONG_CHALLENGE


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
    ],
)
def test_correctly_signed_answer_of_another_origin_is_refused(ada: Member, origin: str) -> None:
    ada.authenticator.origin = origin
    assert ada.answer(Answer()) is PasskeyFault.WRONG_ORIGIN


@pytest.mark.parametrize(
    ("client", "fault"), [*FORGED_CLIENT_DATA, ({"type": "webauthn.create"}, PasskeyFault.WRONG_TYPE)]
)
def test_client_data_of_another_ceremony_or_page_is_refused(
    ada: Member, client: Mapping[str, object], fault: PasskeyFault
) -> None:
    assert ada.answer(Answer(client=client)) is fault


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer(rp_id="x.gw.example"), PasskeyFault.WRONG_RELYING_PARTY),
        (Answer(flags=UP), PasskeyFault.USER_UNVERIFIED),
        (Answer(flags=UV), PasskeyFault.USER_ABSENT),
        (Answer(user_handle=b"x" * 32), PasskeyFault.WRONG_USER),
        (Answer(user_handle=b""), PasskeyFault.WRONG_USER),
        (Answer(user_handle=b"x" * 65), PasskeyFault.MALFORMED),
        (Answer(more=b"\x00"), PasskeyFault.MALFORMED),
        (Answer(flags=UP | UV | ED), PasskeyFault.MALFORMED),
        (Answer(flags=UP | UV | ED, more=b"\x81" * 3000), PasskeyFault.MALFORMED),
        (Answer(flags=UP | UV | ED, more=b"\xbf\xff"), PasskeyFault.MALFORMED),
        (Answer(flags=UP | UV | AT), PasskeyFault.MALFORMED),
        (Answer(flags=UP | UV | AT, more=bytes(18) + encode_cbor({1: 2})), PasskeyFault.MALFORMED),
        (Answer(client_bytes=b"{}" + b" " * 4096), PasskeyFault.MALFORMED),
    ],
)
def test_answer_that_says_something_else_is_refused(ada: Member, answer: Answer, fault: PasskeyFault) -> None:
    assert ada.answer(answer) is fault


def test_signed_extensions_and_backup_flags_are_taken(ada: Member) -> None:
    assert isinstance(ada.answer(Answer(flags=UP | UV | BE | ED, more=encode_cbor({"x": True}))), Assertion)


def test_missing_user_handle_is_refused(ada: Member) -> None:
    assert ada.altered("userHandle", None) is PasskeyFault.WRONG_USER
    assert ada.altered("userHandle", 5) is PasskeyFault.MALFORMED


def test_part_with_bits_left_over_is_malformed_although_it_decodes_to_the_same(ada: Member) -> None:
    spelling = base64url(ada.known.user_handle)
    twin = spelling[:-1] + chr(ord(spelling[-1]) + 1)
    assert from_base64url(twin) == ada.known.user_handle
    assert ada.altered("userHandle", twin) is PasskeyFault.MALFORMED


def test_every_flipped_bit_of_a_signature_is_noticed() -> None:
    for algorithm in (ES256, EDDSA):
        ada = Member(algorithm)
        ceremony, options = begin_login()
        sent = ada.authenticator.sign_in(options)
        signature = from_base64url(sent["response"]["signature"])
        for bit in range(len(signature) * 8):
            flipped = bytearray(signature)
            flipped[bit // 8] ^= 1 << bit % 8
            sent["response"]["signature"] = base64url(bytes(flipped))
            assert logged_in(ceremony, sent, ada.known) is PasskeyFault.NOT_VERIFIED


@pytest.mark.parametrize("signature", [b"", b"\x30", b"\x30\x06\x02\x01\x00\x02\x01\x00", bytes(64), bytes(512)])
def test_signature_of_another_form_is_not_verified(ada: Member, signature: bytes) -> None:
    assert ada.altered("signature", base64url(signature)) is PasskeyFault.NOT_VERIFIED


def test_answer_altered_after_it_was_signed_is_not_verified(ada: Member) -> None:
    ceremony, options = begin_login()
    sent = ada.authenticator.sign_in(options, Answer(flags=UP))
    data = bytearray(from_base64url(sent["response"]["authenticatorData"]))
    data[32] |= UV
    sent["response"]["authenticatorData"] = base64url(bytes(data))
    assert logged_in(ceremony, sent, ada.known) is PasskeyFault.NOT_VERIFIED
    client_data = from_base64url(sent["response"]["clientDataJSON"])
    assert ada.altered("clientDataJSON", base64url(client_data + b" ")) is PasskeyFault.WRONG_CHALLENGE


def test_another_passkey_signs_for_itself_alone(ada: Member) -> None:
    ben = Member()
    ceremony, options = begin_login()
    sent = ben.authenticator.sign_in(options)
    assert logged_in(ceremony, sent, replace(ben.known, public_key=ada.known.public_key)) is PasskeyFault.NOT_VERIFIED
    assert logged_in(ceremony, sent, ada.known) is PasskeyFault.CREDENTIAL_UNKNOWN


def test_unknown_credential_and_one_of_another_realm_are_told_apart(ada: Member) -> None:
    """A browser that is told to forget a credential of another realm would lose it."""
    ceremony, options = begin_login()
    sent = ada.authenticator.sign_in(options)
    assert logged_in(ceremony, sent, None) is PasskeyFault.CREDENTIAL_UNKNOWN
    for realm in ("space:01hzxc0000000000000000s001", "fleet:acme", "console", ""):
        assert logged_in(ceremony, sent, replace(ada.known, realm=realm)) is PasskeyFault.WRONG_REALM


def test_ceremony_for_all_of_a_kind_says_whose_it_was(ada: Member) -> None:
    ceremony, options = begin_login(realms=Realms.all_of("space", "fleet"))
    sent = ada.authenticator.sign_in(options)
    assertion = logged_in(ceremony, sent, replace(ada.known, realm="fleet:acme"))
    assert assertion == Assertion(ada.known.credential_id, "fleet:acme", 2)
    assert logged_in(ceremony, sent, replace(ada.known, realm="console")) is PasskeyFault.WRONG_REALM


@pytest.mark.parametrize(
    ("last", "count", "is_taken"),
    [
        (0, 0, True),
        (0, 1, True),
        (5, 6, True),
        (5, 2**32 - 1, True),
        (5, 5, False),
        (5, 4, False),
        (5, 0, False),
        (2**32 - 1, 0, False),
    ],
)
def test_counter_goes_forward_or_is_none(ada: Member, last: int, count: int, is_taken: bool) -> None:
    ada.known = replace(ada.known, sign_count=last)
    outcome = ada.answer(Answer(sign_count=count))
    assert outcome == (Assertion(ada.known.credential_id, ROOM, count) if is_taken else PasskeyFault.COUNTER_WENT_BACK)


def test_only_a_signed_counter_tells_of_a_copy(ada: Member) -> None:
    ada.known = replace(ada.known, sign_count=9)
    assert ada.altered("signature", base64url(bytes(64))) is PasskeyFault.NOT_VERIFIED


def test_kept_key_that_is_broken_is_a_fault_and_no_crash(ada: Member) -> None:
    for key in (b"", b"\x00", b"\xa0", ada.known.public_key[:-1], b"\x04" + bytes(64)):
        ceremony, options = begin_login()
        sent = ada.authenticator.sign_in(options)
        assert logged_in(ceremony, sent, replace(ada.known, public_key=key)) is PasskeyFault.NOT_VERIFIED
