"""`POST /devices/renew`: what a request of a stranger says, and whether it proves what it has to. Pure.

The checks run in a fixed order, cheapest first, and the first that fails is the answer: head, token, body, whose token
it is, time, certificate and signature, then how often (the caller counts). What a proved request leads to is decided
behind `actors.bus.renewal`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
import jiter

from actors.bus.renewal import NotRenewed
from gateway.identity.authenticator import NotAdmitted, RouteKind, judge
from gateway.identity.device_auth import FOR_NODES
from gateway.identity.scopes import may_connect
from gateway.identity.tokens import Principal, Verifier
from schemas.certificates import KnownCertificates
from schemas.closes import NodeClose
from schemas.contract import contract
from schemas.errors import Code
from schemas.manifest import NodeIdentity
from schemas.renewal import IAT_TOLERANCE_S, is_signed_by

PATH = "/devices/renew"
BODY_BYTES_MAX = 8 * 1024  # of a request; a longer one is 413
_BEARER = re.compile(rb"bearer +([A-Za-z0-9._~+/=-]+)\Z", re.IGNORECASE)
_BODY = contract("node.renew.request@1.0.0")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is none. `reason` is for the log; the other words are for whoever runs the node."""

    status: HTTPStatus
    code: Code
    reason: str
    message: str
    suggested_fix: str
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    token: str | None
    body_bytes: int
    forwarded: tuple[bytes, ...]  # values of X-Forwarded-For, as they came


@dataclass(frozen=True, slots=True)
class Proved:
    """A request that is this node's, made with the identity it has now."""

    node: NodeIdentity
    token_id: str
    kid: str
    public_key: bytes


def _malformed(status: HTTPStatus, reason: str, message: str, suggested_fix: str) -> Refusal:
    return Refusal(status, Code.MANIFEST_INVALID, reason, message, suggested_fix)


def _unattested(reason: str, message: str, suggested_fix: str) -> Refusal:
    return Refusal(HTTPStatus.FORBIDDEN, Code.ATTESTATION_FAILED, reason, message, suggested_fix)


_AS_DOCUMENTED = "Send one JSON body that fits node.renew.request@1.0.0, with Content-Length."
_ENROLL = "Ask an operator to enroll or renew the node."
_ENROLL_ANEW = "Ask an operator to enroll the device under a new id: a revoked node stays revoked."
_ANOTHER_VERSION = _malformed(HTTPStatus.BAD_REQUEST, "version", "The request is not HTTP/1.1.", _AS_DOCUMENTED)
_BAD_HEAD = _malformed(
    HTTPStatus.BAD_REQUEST,
    "head",
    "The request line or a header, such as Host or Content-Length, is missing or malformed.",
    _AS_DOCUMENTED,
)
_ONLY_POST = Refusal(
    HTTPStatus.METHOD_NOT_ALLOWED,
    Code.VERB_UNSUPPORTED,
    "method",
    "This route takes POST only.",
    f"Send POST {PATH} with a JSON body that fits node.renew.request@1.0.0.",
)
_NO_LENGTH = _malformed(
    HTTPStatus.LENGTH_REQUIRED, "no_length", "The request has no Content-Length, or is chunked.", _AS_DOCUMENTED
)
_TOO_LARGE = _malformed(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", f"The body is over {BODY_BYTES_MAX} bytes.", _AS_DOCUMENTED
)
_NOT_JSON = _malformed(HTTPStatus.BAD_REQUEST, "not_json", "The body is not JSON.", _AS_DOCUMENTED)
_ANOTHER_NODES = Refusal(
    HTTPStatus.FORBIDDEN,
    Code.SAFETY_DENIED,
    "another_node",
    "The token does not speak for this node, or lacks the scope device:connect.",
    "Send the device_runtime token of the node that asks.",
)
_STALE = _unattested(
    "stale",
    f"iat is more than {IAT_TOLERANCE_S} seconds off the gateway's clock.",
    "Stamp the request with the gateway's time (now_ms of auth_ok or heartbeat_ack) and sign it again.",
)
_UNKNOWN_KID = _unattested("unknown_kid", "kid is no certificate of this node that is valid now.", _ENROLL)
_BAD_SIGNATURE = _unattested(
    "bad_signature",
    "signature is not that of the certificate's key.",
    "Sign iat, node_id, nonce and public_key with the key of the certificate kid.",
)

REFUSED = {
    NotRenewed.NODE_REVOKED: Refusal(
        HTTPStatus.FORBIDDEN, Code.SAFETY_DENIED, NotRenewed.NODE_REVOKED, "The node was revoked.", _ENROLL_ANEW
    ),
    NotRenewed.SECOND_KEY: _unattested(
        NotRenewed.SECOND_KEY, "This identity was renewed already, with another key.", _ENROLL
    ),
    NotRenewed.NOT_RECORDED: Refusal(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        Code.INTERNAL,
        NotRenewed.NOT_RECORDED,
        "The gateway could not record the renewal.",
        "Ask again later, with the same public_key.",
    ),
}
# A token that is good in itself, by how a session with it would be closed.
OVER = {
    NodeClose.FORBIDDEN: REFUSED[NotRenewed.NODE_REVOKED],
    NodeClose.UNAUTHORIZED: Refusal(
        HTTPStatus.UNAUTHORIZED,
        Code.SAFETY_DENIED,
        "retired",
        "The token is of an identity that was renewed.",
        "Send the token of the renewal.",
    ),
    NodeClose.INTERNAL: REFUSED[NotRenewed.NOT_RECORDED],
}
TOO_SLOW = Refusal(
    HTTPStatus.GATEWAY_TIMEOUT,
    Code.DEADLINE_EXCEEDED,
    "too_slow",
    "The gateway did not record the renewal in time.",
    "Ask again, with the same public_key.",
)
OVERLOADED = Refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    Code.RATE_LIMITED,
    "overloaded",
    "The gateway has too many connections.",
    "Wait, then ask again with the same public_key.",
)


def too_often(retry_after_ms: int) -> Refusal:
    return Refusal(
        HTTPStatus.TOO_MANY_REQUESTS,
        Code.RATE_LIMITED,
        "too_often",
        "This node asks for renewals too often.",
        "Wait for retry_after_ms, then ask again with the same public_key.",
        retry_after_ms,
    )


def unauthenticated(refusal: NotAdmitted) -> Refusal:
    return Refusal(
        HTTPStatus.UNAUTHORIZED,
        Code.SAFETY_DENIED,
        refusal.reason,
        "A valid token of the node is needed.",
        "Send Authorization: Bearer TOKEN with the node's device_runtime token; if it has ended, enroll again.",
    )


def is_renewal(head: bytes) -> bool:
    """Whether a request, by its first line, is for this route. Everything else on the listener is an upgrade."""
    target = head.partition(b"\r\n")[0].partition(b" ")[2].partition(b" ")[0]
    return target.partition(b"?")[0] == PATH.encode()


def read_head(head: bytes) -> Head | Refusal:
    """Of a whole head, its empty line included."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=len(head))
    try:
        connection.receive_data(head)
        request = connection.next_event()
    except h11.RemoteProtocolError:
        return _BAD_HEAD
    if not isinstance(request, h11.Request):
        return _BAD_HEAD
    if request.http_version != b"1.1":
        return _ANOTHER_VERSION
    if request.method != b"POST":
        return _ONLY_POST
    headers = [(bytes(name), bytes(value)) for name, value in request.headers]
    lengths = _values(headers, b"content-length")  # h11 has seen to it that they are one number
    if not lengths or _values(headers, b"transfer-encoding"):
        return _NO_LENGTH
    body_bytes = int(lengths[0])
    if body_bytes > BODY_BYTES_MAX:
        return _TOO_LARGE
    return Head(_bearer(_values(headers, b"authorization")), body_bytes, _values(headers, b"x-forwarded-for"))


def _values(headers: Sequence[tuple[bytes, bytes]], wanted: bytes) -> tuple[bytes, ...]:
    return tuple(value for name, value in headers if name == wanted)


def _bearer(values: Sequence[bytes]) -> str | None:
    match = _BEARER.match(values[0]) if len(values) == 1 else None
    return None if match is None else match[1].decode("ascii")


def admit(token: str | None, verifier: Verifier, now_ms: int, kind: RouteKind = FOR_NODES) -> Principal | Refusal:
    principal = judge(verifier, token, kind, now_ms)
    return unauthenticated(principal) if isinstance(principal, NotAdmitted) else principal


def read_body(data: bytes, principal: Principal, now_ms: int) -> dict[str, Any] | Refusal:
    """The body, if it has its form and is about the node that the token speaks for."""
    try:
        body = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return _NOT_JSON
    flaw = _BODY.first_flaw(body)
    if flaw is not None:
        return _malformed(HTTPStatus.BAD_REQUEST, "body", f"{flaw.words}.", _AS_DOCUMENTED)
    if not may_connect(principal, body["node_id"], now_ms):
        return _ANOTHER_NODES
    read: dict[str, Any] = body
    return read


def prove(body: dict[str, Any], principal: Principal, known: KnownCertificates, now_ms: int) -> Proved | Refusal:
    """What `read_body` read, held against the clock and the certificates."""
    if abs(int(body["iat"]) - now_ms // 1000) > IAT_TOLERANCE_S:
        return _STALE
    leaf = known.resolve(body["kid"])
    node = NodeIdentity(principal.sub, principal.tenant)
    if leaf is None or (leaf.node_id, leaf.tenant) != (node.node_id, node.tenant):
        return _UNKNOWN_KID
    if not known.vouches_for(leaf, now_ms):
        return _UNKNOWN_KID
    if not is_signed_by(leaf.public_key, body):
        return _BAD_SIGNATURE
    return Proved(node, principal.jti, leaf.kid, bytes.fromhex(body["public_key"]))
