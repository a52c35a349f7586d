"""Answers to `POST /devices/renew`: judges a request by `renewal_rules`, has it decided, and says what came of it.

One request a connection; reading it, and every limit on strangers, is the listener's. How often a node may ask is
counted here, because each answer costs two signatures and a durable write.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil

import msgspec
import structlog
import trio

from actors.bucket_rules import TokenBucket
from actors.bus.renewal import Renewed, RenewNode
from actors.node.moment import Moment
from gateway.devices import renewal_rules as rules
from gateway.devices.renewal_rules import Head, Refusal
from gateway.identity.device_auth import Register
from gateway.identity.tokens import Verifier
from schemas.certificates import KnownCertificates
from schemas.errors import envelope
from schemas.ulids import Mint

RENEWALS_BURST = 4  # of one node at once, and so many failed proofs with one token; the next is 429
RENEWAL_EVERY_S = 60.0  # then one in so long
FAILED_TOKENS_MAX = 10_000  # whose failed proofs are counted; past it the one that has failed longest ago is forgotten
ANSWER_S_MAX = 10.0  # for the decision to be durable; then 504, and the node asks again

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as it was read: head and body, or what is wrong with its head."""

    head: Head | Refusal
    body: bytes = b""


class Renewals:
    def __init__(
        self,
        renew: RenewNode,
        verifier: Verifier,
        certificates: KnownCertificates,
        now: Callable[[], Moment],
        entropy: Callable[[int], bytes],
        register: Register | None = None,
    ) -> None:
        """Without a register no token is over before its time."""
        self._register = register
        self._renew = renew
        self._verifier = verifier
        self._certificates = certificates
        self._now = now
        self._mint = Mint(entropy)
        self._proved: dict[str, TokenBucket] = {}  # by node: as many as have proved who they are
        self._failed: dict[str, TokenBucket] = {}  # by token; the one that has failed longest ago first

    async def answer(self, ask: Ask) -> bytes:
        """The whole response."""
        proved = self._judge(ask)
        if isinstance(proved, Refusal):
            return self._refuse(proved)
        outcome = None
        with trio.move_on_after(ANSWER_S_MAX):
            outcome = await self._renew(proved.node, proved.token_id, proved.kid, proved.public_key)
        if not isinstance(outcome, Renewed):
            refusal = rules.TOO_SLOW if outcome is None else rules.REFUSED[outcome]
            return self._refuse(refusal, proved.node.node_id)
        log.info("node_renewed", node_id=proved.node.node_id)
        body = {"token": outcome.token, "certificate": outcome.certificate.hex()}
        return _response(HTTPStatus.OK, msgspec.json.encode(body))

    def _judge(self, ask: Ask) -> rules.Proved | Refusal:
        """In one go: nothing that counts can end between two of these checks."""
        if isinstance(ask.head, Refusal):
            return ask.head
        now = self._now()
        principal = rules.admit(ask.head.token, self._verifier, now.wall_ms)
        if isinstance(principal, Refusal):
            return principal
        if self._register is not None:
            over = self._register.refuses_login(principal.sub, principal.jti, principal.issued_at_ms, now.wall_ms)
            if over is not None:
                return rules.OVER[over]
        body = rules.read_body(ask.body, principal, now.wall_ms)
        if isinstance(body, Refusal):
            return body
        # The proof comes before the count: whoever has the token alone must not be able to use up the node's renewals.
        proved = rules.prove(body, principal, self._certificates, now.wall_ms)
        if isinstance(proved, Refusal):
            bucket = self._failed.pop(principal.jti, None) or _full(now)
            if len(self._failed) >= FAILED_TOKENS_MAX:
                del self._failed[next(iter(self._failed))]
            self._failed[principal.jti] = bucket
        else:
            bucket = self._proved.setdefault(principal.sub, _full(now))
        wait_ms = bucket.take(now.mono_s)
        return proved if wait_ms is None else rules.too_often(wait_ms)

    def _refuse(self, refusal: Refusal, node_id: str | None = None) -> bytes:
        correlation_id = self._mint.mint(self._now().wall_ms)
        tell = log.info if node_id is None else log.warning  # anybody can cause the former
        tell(
            "renewal_refused",
            status=int(refusal.status),
            reason=refusal.reason,
            node_id=node_id,
            correlation_id=correlation_id,
        )
        error = envelope(
            refusal.code,
            refusal.message,
            refusal.suggested_fix,
            retry_after_ms=refusal.retry_after_ms,
            correlation_id=correlation_id,
        )
        headers = {}
        if refusal.status is HTTPStatus.UNAUTHORIZED:
            headers["www-authenticate"] = 'Bearer realm="heliograph"'
        if refusal.status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers["allow"] = "POST"
        if refusal.retry_after_ms is not None:
            headers["retry-after"] = str(ceil(refusal.retry_after_ms / 1000))
        return _response(refusal.status, msgspec.json.encode(error), headers)


def _full(now: Moment) -> TokenBucket:
    return TokenBucket.full(1 / RENEWAL_EVERY_S, RENEWALS_BURST, now.mono_s)


def _response(status: HTTPStatus, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "connection": "close",
        **(headers or {}),
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
