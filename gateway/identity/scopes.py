"""The safety matrix (RFC-0003 §5 with RFC-0006 §2): which token may use which tool.

Phase A (RFC-0006 §4.1) is here too: until its end a token without a `scope` claim counted as read-only. The date has
passed; the rule stays, so that a gateway with an old clock or an old log judges as it did then.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.identity.tokens import Principal, Scope
from schemas.projection import Tool

PHASE_A_END_MS = int(datetime(2026, 4, 29, tzinfo=UTC).timestamp() * 1000)

# (safety_class, whether it is a subscribe) → the scope that allows it. What is not here is allowed to nobody:
# physical_actuation also needs a commit_token, which no kind has yet.
_MATRIX = {
    ("read_only", False): Scope.READ_ONLY,
    ("read_only", True): Scope.READ_ONLY,
    ("reversible", False): Scope.REVERSIBLE,
}
TOOL_SCOPES: frozenset[Scope] = frozenset(_MATRIX.values())  # those that open any tool at all


@dataclass(frozen=True, slots=True)
class Denied:
    """Why a tool may not be used, as the texts of its E_SAFETY_DENIED. `scope` is what a better token would carry."""

    message: str
    suggested_fix: str
    scope: Scope | None = None
    is_of_another_tenant: bool = False


# Made once: a list of tools asks about thousands of them.
_DENIED_TO_ALL = Denied(
    "No token may use this tool: its safety class is not open to agents.",
    "Use another tool, or escalate to the operator of the device.",
)
_DENIED_WITHOUT = {
    scope: Denied(f"This tool needs the scope {scope}.", f"Ask an operator for a token with the scope {scope}.", scope)
    for scope in _MATRIX.values()
}
_DENIED_TO_OTHERS = Denied(
    "This tool belongs to another tenant.",
    "Use a token of the node's tenant, or list the tools that your own token may call.",
    is_of_another_tenant=True,
)


def scopes_of(principal: Principal, now_ms: int) -> frozenset[str]:
    if principal.scopes is None:
        return frozenset({Scope.READ_ONLY}) if now_ms < PHASE_A_END_MS else frozenset()
    return principal.scopes


def needed_scope(safety_class: str, verb: str) -> Scope | None:
    """The scope that a tool of this class and verb asks for; None where no scope suffices."""
    return _MATRIX.get((safety_class, verb == "subscribe"))


def authorize(principal: Principal, tool: Tool, node_tenant: str, now_ms: int) -> Denied | None:
    """Scope first, then tenant; None when the call may go on."""
    scope = needed_scope(tool.safety_class, tool.target.verb)
    return _judged(principal, scope, principal.tenant == node_tenant, now_ms)


def may_use(principal: Principal, safety_class: str, is_of_tenant: bool, now_ms: int) -> Denied | None:
    """The same for a tool that is no device's: it has no verb, and may belong to several tenants."""
    return _judged(principal, needed_scope(safety_class, "invoke"), is_of_tenant, now_ms)


def may_use_kind(principal: Principal, safety_class: str, verb: str, now_ms: int) -> Denied | None:
    """The same for a kind's tool on a node of the principal's tenant, whichever that is."""
    return _judged(principal, needed_scope(safety_class, verb), True, now_ms)


def may_look(principal: Principal, now_ms: int) -> Denied | None:
    """For what tells of tools and nodes and uses none: any scope that opens a tool will do."""
    return None if scopes_of(principal, now_ms) & TOOL_SCOPES else _DENIED_WITHOUT[Scope.READ_ONLY]


def _judged(principal: Principal, scope: Scope | None, is_of_tenant: bool, now_ms: int) -> Denied | None:
    if scope is None:
        return _DENIED_TO_ALL
    if scope not in scopes_of(principal, now_ms):
        return _DENIED_WITHOUT[scope]
    if not is_of_tenant:
        return _DENIED_TO_OTHERS
    return None


def may_connect(principal: Principal, node_id: str, now_ms: int) -> bool:
    """Whether a verified device token may open the session of this node."""
    return principal.sub == node_id and Scope.DEVICE_CONNECT in scopes_of(principal, now_ms)
