"""Sessions of the console: who is signed in, and every way in which that ends."""

from actors.node.moment import Moment
from gateway.console.session_rules import Session, Sessions, SignedInBy
from tests.gateway.console.test_link_rules import operator

START_MS = 1_790_000_000_000
LIFE_S = 8 * 3600


def at(seconds: float, set_by_ms: int = 0) -> Moment:
    return Moment(seconds, START_MS + int(seconds * 1000) + set_by_ms)


def site(sessions_max: int = 3) -> tuple[Sessions, list[Session]]:
    ended: list[Session] = []
    return Sessions(LIFE_S, sessions_max, ended.append), ended


def test_session_is_found_by_its_secret_until_its_end() -> None:
    sessions, ended = site()
    secret, session = sessions.open(operator(), SignedInBy.LINK, at(0))
    assert session.ends_at_ms == START_MS + 1000 * LIFE_S
    assert sessions.find(secret, at(LIFE_S - 0.001)) is session
    assert sessions.find(secret[:-1], at(1)) is None
    assert ended == []
    assert sessions.find(secret, at(LIFE_S)) is None
    assert ended == [session]
    assert (sessions.find(secret, at(1)), len(sessions)) == (None, 0)


def test_session_ends_with_the_token_behind_it() -> None:
    sessions, ended = site()
    secret, session = sessions.open(operator(expires_at_ms=START_MS + 60_000), SignedInBy.LINK, at(0))
    assert session.ends_at_ms == START_MS + 60_000
    assert sessions.find(secret, at(59.9)) is session
    assert sessions.find(secret, at(60)) is None
    assert ended == [session]


def test_operator_of_a_session_has_no_longer_than_the_session() -> None:
    sessions, _ = site()
    _, session = sessions.open(operator(), SignedInBy.LINK, at(0))
    assert session.principal.expires_at_ms == session.ends_at_ms
    assert session.token_ends_at_ms == operator().expires_at_ms


def test_clock_that_is_set_back_gives_nobody_more_time() -> None:
    sessions, _ = site()
    secret, _ = sessions.open(operator(expires_at_ms=START_MS + 60_000), SignedInBy.LINK, at(0))
    assert sessions.find(secret, at(60, set_by_ms=-3_600_000)) is None


def test_clock_that_is_set_forward_ends_what_its_token_no_longer_opens() -> None:
    sessions, _ = site()
    secret, _ = sessions.open(operator(expires_at_ms=START_MS + 60_000), SignedInBy.LINK, at(0))
    assert sessions.find(secret, at(1, set_by_ms=60_000)) is None


def test_secrets_are_new_each_time_and_kept_as_hashes() -> None:
    sessions, _ = site()
    first, session = sessions.open(operator(), SignedInBy.LINK, at(0))
    second, _ = sessions.open(operator(), SignedInBy.LINK, at(0))
    assert len({first, second}) == 2
    assert len(first) == 43
    assert first not in repr((vars(sessions), session))


def test_one_too_many_ends_the_oldest_but_those_that_are_over_first() -> None:
    sessions, ended = site(sessions_max=2)
    _, short = sessions.open(operator(expires_at_ms=START_MS + 1_000), SignedInBy.LINK, at(0))
    _, old = sessions.open(operator(), SignedInBy.LINK, at(0))
    _, third = sessions.open(operator(), SignedInBy.LINK, at(2))
    assert ended == [short]
    sessions.open(operator(), SignedInBy.LINK, at(3))
    assert ended == [short, old]
    assert sessions.stands(third, at(4))


def test_revoking_a_token_or_a_passkey_ends_what_is_behind_it() -> None:
    sessions, ended = site(sessions_max=5)
    _, by_link = sessions.open(operator("01T"), SignedInBy.LINK, at(0))
    _, by_passkey = sessions.open(operator("01P"), SignedInBy.PASSKEY, at(0), also_ends_with="01T")
    _, other = sessions.open(operator("01X"), SignedInBy.LINK, at(0))
    sessions.end_of("01P")
    assert ended == [by_passkey]
    _, again = sessions.open(operator("01P"), SignedInBy.PASSKEY, at(0), also_ends_with="01T")
    sessions.end_of("01T")
    assert ended == [by_passkey, by_link, again]
    assert sessions.stands(other, at(1))


def test_end_is_told_once() -> None:
    sessions, ended = site()
    _, session = sessions.open(operator(), SignedInBy.LINK, at(0))
    sessions.open(operator(), SignedInBy.LINK, at(0))
    sessions.end(session)
    sessions.end(session)
    assert not sessions.stands(session, at(0))
    sessions.end_all()
    assert (len(ended), len(sessions)) == (2, 0)
