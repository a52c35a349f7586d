"""Links that sign in: once, in time, and no longer than the token behind them."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from gateway.console.link_rules import Given, Links
from gateway.identity.tokens import NEVER_MS, OperatorScope, Principal, TokenClass

LIFE_S = 600.0


def operator(jti: str = "01A", sub: str = "ada", expires_at_ms: int = NEVER_MS) -> Principal:
    scopes = frozenset({OperatorScope.FLEET_READ})
    return Principal(sub, "operators", TokenClass.OPERATOR, scopes, jti, 0, expires_at_ms)


ADA = Given(operator(), True)


def links(links_max: int = 3) -> Links:
    numbers = count()
    return Links(LIFE_S, links_max, lambda size: f"{next(numbers)}".rjust(size, "x"))


def test_link_is_good_once() -> None:
    some = links()
    secret = some.make(ADA, 0.0)
    assert some.take(secret, 1.0) is ADA
    assert some.take(secret, 1.0) is None


def test_link_is_good_until_its_end_and_not_at_it() -> None:
    for at_s, expected in ((LIFE_S - 0.001, ADA), (LIFE_S, None), (LIFE_S + 1, None)):
        some = links()
        assert some.take(some.make(ADA, 0.0), at_s) is expected


@given(st.text(max_size=100))
def test_what_is_no_link_is_nobody_and_uses_none_up(guess: str) -> None:
    some = links()
    secret = some.make(ADA, 0.0)
    assert some.take(guess, 1.0) is (ADA if guess == secret else None)
    assert len(some) == (0 if guess == secret else 1)


def test_one_too_many_ends_the_oldest() -> None:
    some = links(links_max=2)
    first, second, third = (some.make(ADA, at_s) for at_s in (0.0, 1.0, 2.0))
    assert len(some) == 2
    assert [some.take(secret, 3.0) for secret in (first, second, third)] == [None, ADA, ADA]


def test_ended_links_take_no_place() -> None:
    some = links(links_max=2)
    some.make(ADA, 0.0)
    late = some.make(ADA, LIFE_S - 1)
    newest = some.make(ADA, LIFE_S)
    assert [some.take(secret, LIFE_S + 1) for secret in (late, newest)] == [ADA, ADA]


def test_links_of_a_revoked_token_end_and_others_stay() -> None:
    some = links()
    bob = Given(operator("01B", "bob"), False)
    secrets = [some.make(one, 0.0) for one in (ADA, bob, ADA)]
    some.end_of("01A")
    assert [some.take(secret, 1.0) for secret in secrets] == [None, bob, None]


def test_secret_has_256_bits_and_is_kept_as_a_hash() -> None:
    some = Links(LIFE_S, 3)
    secret = some.make(ADA, 0.0)
    assert len(secret) == 43
    assert secret != some.make(ADA, 0.0)
    assert secret not in repr(vars(some))
