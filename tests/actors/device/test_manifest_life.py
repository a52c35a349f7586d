"""Which manifest is announced, and when the next one is signed."""

from actors.device.gateway_clock import GatewayClock
from actors.device.manifest_life import RENEW_AFTER, ManifestLife
from schemas.manifest import ISSUED_AHEAD_MS_MAX
from tests.actors.device.node import T0_MS, unsigned

LIFE_MS = 1_000_000


def life_at(now_ms: int = T0_MS) -> tuple[ManifestLife, GatewayClock]:
    clock = GatewayClock()
    set_clock(clock, now_ms, at=0.0)
    return ManifestLife(lambda issued_at_ms: unsigned(issued_at_ms, LIFE_MS), clock), clock


def set_clock(clock: GatewayClock, now_ms: int, at: float) -> None:
    clock.ask("A", at)
    clock.answer("A", now_ms)


def test_it_is_stamped_from_the_gateways_clock() -> None:
    life, _ = life_at()
    assert life.etag is None
    assert life.renew_at is None
    assert life.to_announce(12.0).issued_at_ms == T0_MS + 12_000
    assert life.etag is not None


def test_it_is_renewed_before_half_of_its_life() -> None:
    assert RENEW_AFTER < 0.5
    life, _ = life_at()
    life.to_announce(0.0)
    renew_at = life.renew_at
    assert renew_at is not None
    assert renew_at == LIFE_MS * RENEW_AFTER / 1000
    before = life.to_announce(renew_at - 0.002)
    assert before.issued_at_ms == T0_MS
    assert life.to_announce(renew_at).issued_at_ms == T0_MS + int(LIFE_MS * RENEW_AFTER)


def test_a_refused_one_is_signed_anew() -> None:
    life, _ = life_at()
    life.to_announce(0.0)
    life.refuse()
    assert life.etag is None
    assert life.to_announce(3.0).issued_at_ms == T0_MS + 3000


def test_one_that_is_a_little_ahead_of_another_bound_is_kept() -> None:
    life, clock = life_at()
    life.to_announce(0.0)
    set_clock(clock, T0_MS - ISSUED_AHEAD_MS_MAX, at=1.0)
    assert life.to_announce(1.0).issued_at_ms == T0_MS


def test_one_that_is_further_ahead_than_a_gateway_accepts_is_signed_anew() -> None:
    life, clock = life_at()
    life.to_announce(0.0)
    set_clock(clock, T0_MS - ISSUED_AHEAD_MS_MAX - 1, at=1.0)
    assert life.to_announce(1.0).issued_at_ms == T0_MS - ISSUED_AHEAD_MS_MAX - 1
