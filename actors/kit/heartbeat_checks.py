"""Heartbeats, the gateway's clock, and the manifest's life (§3, §5.2, §5.3)."""

from actors.kit.check import check
from actors.kit.facts import RESUME_S, said, seen
from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Script
from actors.kit.verdicts import Broken
from schemas.errors import Code
from schemas.frames import Announce, Heartbeat

GAPS = 3  # between heartbeats, that are looked at
RETRY_AFTER_MS = 1000
OTHER_ETAG = "0" * 64
JUMP_MS = 60 * 60 * 1000


def _beat(gateway: KitGateway) -> Script[Heartbeat]:
    period_s = gateway.settings.heartbeat_ms / 1000
    beat = yield from gateway.expect(Heartbeat, 2 * period_s + 1, f"at a period of {period_s:g} s")
    return beat


@check("3")
def heartbeat_period(gateway: KitGateway) -> Script[None]:
    """The node sends a heartbeat every heartbeat_ms."""
    yield from gateway.live()
    period_s = gateway.settings.heartbeat_ms / 1000
    yield from _beat(gateway)
    first_at = gateway.now
    for _ in range(GAPS):
        yield from _beat(gateway)
    mean_s = (gateway.now - first_at) / GAPS
    if mean_s < 0.75 * period_s:
        raise Broken(f"a heartbeat every {period_s:g} s", f"one every {mean_s:.2f} s")


@check("3")
def heartbeat_etag(gateway: KitGateway) -> Script[None]:
    """manifest_etag is the blake3-256 of the RFC 8785 form of the manifest that was announced."""
    yield from gateway.live()
    beat = yield from gateway.prepare(_beat(gateway))
    if beat.manifest_etag != gateway.etag:
        raise Broken("the etag of the announced manifest", "no etag" if beat.manifest_etag is None else "another etag")


@check("3")
def announces_when_etags_differ(gateway: KitGateway) -> Script[None]:
    """When heartbeat_ack names another manifest_etag, the node announces again."""
    yield from gateway.live()
    gateway.answers_heartbeats = False
    beat = yield from gateway.prepare(_beat(gateway))
    yield from gateway.answer(beat, manifest_etag=OTHER_ETAG)
    gateway.answers_heartbeats = True
    announce = yield from gateway.expect(Announce, RESUME_S, "of another etag in heartbeat_ack")
    yield from gateway.acknowledge(announce)


@check("5.2")
def follows_the_gateways_clock(gateway: KitGateway) -> Script[None]:
    """The newest now_ms counts: a command is late by the gateway's clock also after that was set forward."""
    yield from gateway.live()
    tool, arguments = gateway.any_call()
    gateway.clock.ahead_ms += JUMP_MS
    for _ in range(2):
        yield from gateway.prepare(_beat(gateway))
    yield from gateway.let_pass(gateway.settings.quiet_s / 2)
    ack = yield from gateway.call(tool, arguments, in_ms=-JUMP_MS // 2)
    if ack.ok or ack.error is None or ack.error["code"] != Code.DEADLINE_EXCEEDED:
        raise Broken("E_DEADLINE_EXCEEDED for a command that is late by heartbeat_ack's now_ms", said(ack))


@check("3")
def renews_its_manifest(gateway: KitGateway) -> Script[None]:
    """A fresh manifest is announced before half of the life of the current one is over."""
    yield from gateway.live()
    old = gateway.session.manifest
    assert old is not None
    half_ms = (int(old["issued_at_ms"]) + int(old["expires_at_ms"])) // 2
    gateway.clock.ahead_ms += max(0, half_ms - gateway.clock.ms)
    announce = yield from gateway.expect(Announce, RESUME_S, "of a time past half of the manifest's life")
    yield from gateway.acknowledge(announce)
    if int(announce.manifest["issued_at_ms"]) < half_ms:
        raise Broken("a manifest with a fresh stamp", "an older one")


@check("5.3")
def announces_again_after_rate_limit(gateway: KitGateway) -> Script[None]:
    """After E_RATE_LIMITED the node announces again, not before retry_after_ms, and the session goes on."""
    yield from gateway.prepare(gateway.dial_again())
    yield from gateway.prepare(gateway.admit())
    announce = yield from gateway.prepare(gateway.expect(Announce, RESUME_S))
    yield from gateway.refuse_manifest(announce, Code.RATE_LIMITED, RETRY_AFTER_MS)
    refused_at = gateway.now
    heard = yield from gateway.hear(gateway.now + RESUME_S, Announce)
    if not isinstance(heard, Announce):
        raise Broken("announce again", seen(heard))
    if gateway.now - refused_at < 0.9 * RETRY_AFTER_MS / 1000:
        raise Broken(f"no announce before {RETRY_AFTER_MS} ms have passed", "one sooner")
    yield from gateway.prepare(gateway.acknowledge(heard))
    yield from gateway.prepare(gateway.hear_resume())
    yield from gateway.go_live()


CHECKS = (
    heartbeat_period,
    heartbeat_etag,
    announces_when_etags_differ,
    announces_again_after_rate_limit,
    follows_the_gateways_clock,
    renews_its_manifest,
)
