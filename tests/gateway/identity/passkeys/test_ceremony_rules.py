"""Ceremonies: five minutes, once, of one browser; and nobody can end another's."""

import hashlib
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.identity.passkeys.ceremony_rules import LIFE_S, Ceremonies, Ceremony, CeremonyLimits, Purpose, Realms

ROOM = "space:01hzxc0000000000000000s000"
OTHER_ROOM = "space:01hzxc0000000000000000s001"
BROWSER, ADDRESS = "b" * 43, "192.0.2.1"


@dataclass
class Store:
    """With the arguments that a test does not care about."""

    of: Ceremonies

    def begin(self, purpose: Purpose = Purpose.LOGIN, now_s: float = 0.0, address: str = ADDRESS) -> Ceremony:
        return self.of.begin(purpose, Realms.only(ROOM), browser=BROWSER, address=address, now_s=now_s, context="kept")

    def take(
        self,
        ceremony: Ceremony,
        purpose: Purpose = Purpose.LOGIN,
        realm: str | None = ROOM,
        browser: str = BROWSER,
        now_s: float = 1.0,
    ) -> Ceremony | None:
        return self.of.take(ceremony.id, purpose, realm, browser=browser, now_s=now_s)


@pytest.fixture
def store() -> Store:
    return Store(Ceremonies())


def test_ceremony_is_taken_once_with_all_that_it_was_begun_with(store: Store) -> None:
    begun = store.begin()
    taken = store.take(begun)
    assert taken == begun
    assert taken is not None
    assert (taken.purpose, taken.context, len(taken.challenge)) == (Purpose.LOGIN, "kept", 32)
    assert store.take(begun) is None


def test_no_two_have_an_id_or_a_challenge_in_common(store: Store) -> None:
    begun = [store.begin(address=str(number)) for number in range(100)]
    assert len({one.id for one in begun} | {one.challenge.hex() for one in begun}) == 200


def test_ceremony_ends_at_exactly_five_minutes(store: Store) -> None:
    assert LIFE_S == 300
    first, second = store.begin(now_s=10.0), store.begin(now_s=10.0)
    assert store.take(first, now_s=309.999) == first
    assert store.take(second, now_s=310.0) is None
    assert len(store.of) == 0


def test_another_browser_gets_nothing_and_ends_nothing(store: Store) -> None:
    begun = store.begin()
    for other in ("", "x", BROWSER[:-1], BROWSER + "b", "\udc80"):
        assert store.take(begun, browser=other) is None
    assert store.take(begun) == begun


def test_unknown_id_is_answered_as_a_used_one(store: Store) -> None:
    assert store.of.take("", Purpose.LOGIN, None, browser=BROWSER, now_s=0.0) is None


@pytest.mark.parametrize("purpose", [one for one in Purpose if one is not Purpose.LOGIN])
def test_another_purpose_is_refused_and_uses_it_up(store: Store, purpose: Purpose) -> None:
    begun = store.begin()
    assert store.take(begun, purpose) is None
    assert store.take(begun) is None


def test_another_realm_is_refused_and_uses_it_up(store: Store) -> None:
    begun = store.begin()
    assert store.take(begun, realm=OTHER_ROOM) is None
    assert store.take(begun) is None


def test_route_without_a_realm_takes_any(store: Store) -> None:
    begun = store.begin(Purpose.AUTHORIZE)
    assert store.take(begun, Purpose.AUTHORIZE, realm=None) == begun


def test_realms_are_those_named_and_those_of_a_kind() -> None:
    assert ROOM in Realms.only(ROOM)
    assert OTHER_ROOM not in Realms.only(ROOM)
    both = Realms.all_of("space", "fleet")
    assert ROOM in both
    assert "fleet:*" in both
    for other in ("console", "space", "fleet", "", ":", "spaces:1", "Space:1"):
        assert other not in both
    assert "fleet:acme" not in Realms.only("fleet:*"), "a tenant of this name is one tenant"


def test_secret_of_the_browser_is_kept_as_its_hash_alone(store: Store) -> None:
    store.begin()
    held = repr(vars(store.of))
    assert BROWSER not in held
    assert repr(hashlib.sha256(BROWSER.encode()).digest()) in held


def test_address_beyond_its_share_ends_its_own_oldest_and_no_other() -> None:
    store = Store(Ceremonies(CeremonyLimits(total_max=100, per_address_max=3)))
    others = store.begin(address="198.51.100.7")
    own = [store.begin() for _ in range(50)]
    assert len(store.of) == 4
    assert store.take(others) == others
    assert [store.take(one) is not None for one in own] == [False] * 47 + [True] * 3


def test_beyond_the_total_the_oldest_of_all_ends() -> None:
    store = Store(Ceremonies(CeremonyLimits(total_max=3, per_address_max=2)))
    begun = [store.begin(address=str(number)) for number in range(4)]
    assert [store.take(one) is not None for one in begun] == [False, True, True, True]


def test_address_at_its_share_ends_nobody_else_when_all_places_are_taken() -> None:
    store = Store(Ceremonies(CeremonyLimits(total_max=3, per_address_max=2)))
    victim = store.begin(address="198.51.100.7")
    for _ in range(10):
        store.begin()
    assert store.take(victim) == victim


def test_share_is_free_again_once_ceremonies_are_taken_or_have_ended() -> None:
    store = Store(Ceremonies(CeremonyLimits(total_max=10, per_address_max=2)))
    first = store.begin()
    assert store.take(first) == first
    second, third = store.begin(now_s=1.0), store.begin(now_s=2.0)
    fourth = store.begin(now_s=301.0)  # the second has ended
    assert [store.take(one, now_s=301.5) for one in (second, third, fourth)] == [None, third, fourth]


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 9), st.floats(0, 200)), max_size=60))
def test_store_agrees_with_a_naive_one(steps: list[tuple[bool, int, int, float]]) -> None:
    store, now_s = Store(Ceremonies(CeremonyLimits(total_max=5, per_address_max=2))), 0.0
    model: list[tuple[Ceremony, str, float]] = []
    seen: list[Ceremony] = []
    for is_begin, address, which, passed_s in steps:
        now_s += passed_s
        model = [one for one in model if now_s < one[2] + LIFE_S]
        if is_begin:
            own = [one for one in model if one[1] == str(address)]
            if len(own) == 2:
                model.remove(own[0])
            if len(model) == 5:
                del model[0]
            seen.append(store.begin(now_s=now_s, address=str(address)))
            model.append((seen[-1], str(address), now_s))
        elif which < len(seen):
            wanted = seen[-1 - which]
            expected = [one for one in model if one[0] == wanted]
            assert store.take(wanted, now_s=now_s) == (wanted if expected else None)
            model = [one for one in model if one[0] != wanted]
            assert len(store.of) == len(model)
