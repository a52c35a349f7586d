"""The driver of a device's renewal: it looks whether one is due, asks, checks the answer and puts it in force.

When to ask is decided by `renewal_rules`; what survives a crash at which step is in `identity_files`. It looks at the
folder anew each time, so that an identity that somebody put there counts. The new identity is for the next session:
the one that is open ends by itself, or is closed with 4401 when the gateway ends the old identity.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import structlog
import trio
from nacl.signing import SigningKey

from actors.device import renewal_rules
from actors.device.identity import DeviceIdentity, IdentityError
from actors.device.identity_files import complete_next, next_key
from actors.device.renewal_client import Failure, Granted
from actors.log_throttle import LogThrottle
from schemas.certificates import CertificateError, Leaf
from schemas.renewal import request_of

LOOK_EVERY_S = 60.0  # whether it is due: clocks are set, machines sleep, files are replaced
CLOCK_EVERY_S = 1.0  # whether the gateway's time is known: an identity may end within the minute
FAILURES_TOLD_EVERY_S = 3600.0  # those in between are counted
NONCE_BYTES = 16

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class Renewal:
    def __init__(
        self,
        folder: Path,
        identity: DeviceIdentity,
        *,
        ask: Callable[[str, dict[str, Any]], Awaitable[Granted | Failure]],
        gateway_ms: Callable[[], int | None],
        renewed: Callable[[DeviceIdentity], None],
        rng: Random,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`identity` is the one in use; `renewed` is told of each that takes its place. `gateway_ms` is the gateway's
        time as the device knows it, None while it does not: the request is stamped with it, so it has to wait."""
        self._folder = folder
        self._in_use = identity
        self._ask = ask
        self._gateway_ms = gateway_ms
        self._renewed = renewed
        self._rng = rng
        self._entropy = entropy
        self._chance = rng.random()  # of this identity: when in its life to ask
        self._first_chance = rng.random()  # of this start: how long to wait if it is due already
        self._up_since_s: float | None = None  # since its first step
        self._makes_tokens = True  # until an answer says otherwise
        self._failures = 0
        self._told = LogThrottle(FAILURES_TOLD_EVERY_S)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            wait_s = await self.step()
            await trio.sleep(wait_s)

    async def step(self) -> float:
        """Ask, if it is due; returns how long to wait before the next step."""
        now_s, now_ms = trio.current_time(), self._gateway_ms()
        if self._up_since_s is None:
            self._up_since_s = now_s
        if now_ms is None:
            return CLOCK_EVERY_S
        try:
            identity = await trio.to_thread.run_sync(DeviceIdentity.load, self._folder)
        except IdentityError:
            self._failed("the folder holds no identity")
            return LOOK_EVERY_S
        if identity.node_id != self._in_use.node_id:
            self._failed("the folder holds another node's identity")
            return LOOK_EVERY_S
        self._take(identity)
        due = renewal_rules.plan(identity.token, identity.leaf, makes_tokens=self._makes_tokens, chance=self._chance)
        if due is None:
            return LOOK_EVERY_S
        if now_ms < due.due_at_ms:
            return min(LOOK_EVERY_S, (due.due_at_ms - now_ms) / 1000)
        wait_s = renewal_rules.first_wait_s(due, now_ms, now_s - self._up_since_s, self._first_chance)
        if wait_s > 0:
            return wait_s
        failure = await self._renew(identity, now_ms)
        if failure is None:
            return LOOK_EVERY_S
        self._failed(failure.reason)
        return renewal_rules.retry_wait_s(self._failures, due.life_ms, self._rng.random(), failure.retry_after_s)

    async def _renew(self, identity: DeviceIdentity, now_ms: int) -> Failure | None:
        try:
            key = await trio.to_thread.run_sync(next_key, self._folder)
            body = request_of(
                identity.key,
                node_id=identity.node_id,
                kid=identity.leaf.kid,
                public_key=key.verify_key.encode(),
                iat=now_ms // 1000,
                nonce=self._entropy(NONCE_BYTES),
            )
            answer = await self._ask(identity.token, body)
            if isinstance(answer, Failure):
                return answer
            leaf = _checked(answer.certificate, identity, key, now_ms)
            if leaf is None:
                return Failure("the certificate is not one for this node and its new key")
            self._makes_tokens = answer.token is not None
            await trio.to_thread.run_sync(complete_next, self._folder, leaf, answer.token)
            self._take(await trio.to_thread.run_sync(DeviceIdentity.load, self._folder))
        except (OSError, IdentityError):
            return Failure("the folder cannot be written, or was changed meanwhile")
        return None

    def _take(self, identity: DeviceIdentity) -> None:
        """What the folder holds, if it is another than the one in use."""
        if identity.leaf.kid == self._in_use.leaf.kid:
            return
        self._in_use = identity
        self._failures = 0
        self._chance = self._rng.random()
        self._renewed(identity)
        log.info("identity_renewed", node_id=identity.node_id, kid=identity.leaf.kid)

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if count := self._told.hit(trio.current_time()):
            log.warning("renewal_failed", reason=reason, count=count)


def _checked(der: bytes, identity: DeviceIdentity, key: SigningKey, now_ms: int) -> Leaf | None:
    """The answer's certificate, if it is for this node, its tenant and its new key, and has not ended."""
    try:
        leaf = Leaf.from_der(der)
    except CertificateError:
        return None
    is_ours = (leaf.node_id, leaf.tenant) == (identity.node_id, identity.leaf.tenant)
    is_for_key = leaf.public_key == key.verify_key.encode()
    return leaf if is_ours and is_for_key and now_ms < leaf.not_after_ms else None
