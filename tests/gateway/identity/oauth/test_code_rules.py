"""Codes: a minute, once, and a second use is noticed."""

import itertools
from dataclasses import replace

from gateway.identity.oauth.code_rules import Codes, Consent, Redemption, Reused
from schemas.echo.names import AUTH_CODE, is_credential
from tests.gateway.identity.oauth.site import ADA, CHALLENGE, REDIRECT

CONSENT = Consent(ADA, frozenset({"kv_read"}), "inspector", "Inspector", REDIRECT, CHALLENGE, "/mcp")


def codes(codes_max: int = 10) -> Codes:
    numbers = itertools.count()
    return Codes(60.0, 3_600.0, codes_max, lambda count: next(numbers).to_bytes(count))


def test_a_code_is_good_once() -> None:
    some = codes()
    code = some.mint(CONSENT, 0.0)
    assert is_credential(code, AUTH_CODE)
    first = some.redeem(code, 59.9)
    assert isinstance(first, Redemption)
    assert first.consent == CONSENT
    first.grant = "space:01j", "grant"
    assert some.redeem(code, 60.0) == Reused(("space:01j", "grant"))
    assert some.redeem(code, 3_000.0) == Reused(("space:01j", "grant"))


def test_a_code_ends_after_a_minute() -> None:
    some = codes()
    code = some.mint(CONSENT, 0.0)
    assert some.redeem(code, 60.0) is None
    assert len(some) == 0


def test_a_second_use_before_the_first_is_answered_is_remembered() -> None:
    some = codes()
    code = some.mint(CONSENT, 0.0)
    first = some.redeem(code, 1.0)
    assert isinstance(first, Redemption)
    assert some.redeem(code, 1.0) == Reused(None)
    assert first.is_reused


def test_used_codes_are_forgotten_in_time() -> None:
    some = codes()
    code = some.mint(CONSENT, 0.0)
    some.redeem(code, 1.0)
    assert some.redeem(code, 3_601.0) is None
    assert len(some) == 0


def test_unknown_codes_are_unknown() -> None:
    some = codes()
    some.mint(CONSENT, 0.0)
    assert some.redeem("ec_" + "x" * 43, 0.0) is None
    assert some.redeem("\ud800", 0.0) is None


def test_their_number_is_bounded_and_the_oldest_goes() -> None:
    some = codes(codes_max=2)
    minted = [some.mint(replace(CONSENT, client_id=str(number)), 0.0) for number in range(3)]
    assert some.redeem(minted[0], 0.0) is None
    for code in minted[1:]:
        assert isinstance(some.redeem(code, 0.0), Redemption)
    later = some.mint(CONSENT, 0.0)
    some.redeem(later, 0.0)
    assert len(some) == 2
    assert some.redeem(minted[1], 0.0) is None
    assert some.redeem(minted[2], 0.0) == Reused(None)


def test_no_code_is_kept_in_plain() -> None:
    some = codes()
    code = some.mint(CONSENT, 0.0)
    assert code not in repr(vars(some))
