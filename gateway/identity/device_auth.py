"""What an `auth` frame proves (device wire §2.5): a node's identity, or the close code that turns it away."""

from typing import Protocol

from actors.node.services import Authenticated
from gateway.identity.authenticator import NotAdmitted, RouteKind, judge
from gateway.identity.scopes import may_connect
from gateway.identity.tokens import TokenClass, Verifier
from schemas.certificates import KnownCertificates
from schemas.closes import NodeClose
from schemas.frames import Auth, BadFrame, Fault, Frame
from schemas.manifest import NodeIdentity

FOR_NODES = RouteKind(TokenClass.DEVICE_RUNTIME)


class Register(Protocol):
    """`actors.register.register.Register`."""

    def refuses_login(self, node_id: str, jti: str, issued_at_ms: int, now_ms: int) -> NodeClose | None: ...


def judge_auth(
    frame: Frame | BadFrame,
    verifier: Verifier,
    certificates: KnownCertificates,
    now_ms: int,
    register: Register | None = None,
) -> Authenticated | NodeClose:
    """The first frame of a session. Without a register no node is revoked, and none was renewed."""
    if isinstance(frame, BadFrame):
        if frame.fault is Fault.TOO_LARGE:
            return NodeClose.TOO_LARGE
        # An `auth` that is whole but for its token has no token: that is about authority, not about form.
        without_token = frame.type == "auth" and frame.pointer == "/payload/token" and frame.msg_id is not None
        return NodeClose.UNAUTHORIZED if without_token else NodeClose.BAD_FRAME
    if not isinstance(frame, Auth):
        return NodeClose.BAD_FRAME
    principal = judge(verifier, frame.token, FOR_NODES, now_ms)
    if isinstance(principal, NotAdmitted):
        return NodeClose.UNAUTHORIZED
    tenants = certificates.tenants_of(frame.node_id)
    if not may_connect(principal, frame.node_id, now_ms) or (tenants and principal.tenant not in tenants):
        return NodeClose.FORBIDDEN
    if register is not None:
        over = register.refuses_login(frame.node_id, principal.jti, principal.issued_at_ms, now_ms)
        if over is not None:
            return over
    identity = NodeIdentity(frame.node_id, principal.tenant)
    return Authenticated(identity, frame.msg_id, principal.jti, principal.expires_at_ms, principal.issued_at_ms)
