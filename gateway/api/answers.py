"""The shapes of what operators are answered, for the OpenAPI document. Times are milliseconds since 1970."""

from typing import Any, Literal, NotRequired, TypedDict

from gateway.identity.tokens import OperatorScope


class MintedToken(TypedDict):
    token: str
    jti: str


class RevokedToken(TypedDict):
    revoked: str


class CommandHistory(TypedDict):
    events: list[dict[str, Any]]


class AgentLedger(TypedDict):
    tenant: str
    agent: str
    used_micros: int
    reserved_micros: int
    period_began: str | None
    period_used_micros: int | None
    history: list[dict[str, Any]]


class AgentLedgers(TypedDict):
    ledgers: list[AgentLedger]


class NodeIdentityOnce(TypedDict):
    """Key, certificate and token are shown once."""

    node_id: str
    tenant: str
    name: str | None
    tags: dict[str, str]
    key: str
    certificate: str
    token: str | None
    token_id: str | None


class NodeIdentities(TypedDict):
    nodes: list[NodeIdentityOnce]


class RenamedNode(TypedDict):
    node_id: str
    tenant: str
    name: str | None


class TaggedNode(TypedDict):
    node_id: str
    tenant: str
    tags: dict[str, str]


class RevokedNode(TypedDict):
    revoked: str


class ForgottenNode(TypedDict):
    forgotten: str
    erased: bool


class SaidClose(TypedDict):
    code: int
    reason: str


class NodeShown(TypedDict):
    node_id: str
    tenant: str
    name: str | None
    tags: dict[str, str]
    state: Literal["enrolled", "live", "away", "expired", "revoked"]
    live: bool
    since_ms: int | None
    left: SaidClose | None
    last_seen_ms: int | None
    agent: str | None
    tools: list[str]
    expires_at_ms: int | None
    enrolled_at_ms: int | None
    revoked_at_ms: int | None


class NodePage(TypedDict):
    nodes: list[NodeShown]
    nextCursor: NotRequired[str]  # as MCP spells it


class GrantShown(TypedDict):
    gid: str
    client: str
    scopes: list[str]
    issued_at_ms: int
    refreshed_at_ms: int
    ends_ms: int


class MemberShown(TypedDict):
    member_id: str
    tenant: str
    sub: str
    label: str
    scopes: list[str]
    invited_at_ms: int
    invite_ends_ms: int | None
    joined_at_ms: int | None
    passkeys: int
    grants: list[GrantShown]


class MemberPage(TypedDict):
    members: list[MemberShown]
    nextCursor: NotRequired[str]


class InvitedMember(TypedDict):
    """The invitation is shown once."""

    member_id: str
    tenant: str
    sub: str
    label: str
    scopes: list[str]
    invite: str
    url: str
    expires_at_ms: int


class RevokedMember(TypedDict):
    revoked: str


class ConsoleLinkMade(TypedDict):
    url: str
    scopes: list[OperatorScope]
    passkey: bool
    expires_at_ms: int


class OperatorPasskeyShown(TypedDict):
    id: str
    sub: str
    scopes: list[OperatorScope]
    token_id: str | None
    made_at_ms: int
    used_at_ms: int | None
    ends_at_ms: int | None
    revoked: bool


class OperatorPasskeyList(TypedDict):
    passkeys: list[OperatorPasskeyShown]


class RemovedPasskey(TypedDict):
    removed: str


class PushedPolicy(TypedDict):
    revision: int
    policy: str
    entries: int


class SpaceShown(TypedDict):
    space_id: str
    project_id: str | None
    opened_at_ms: int
    ends_at_ms: int
    protocol: Literal["json", "protobuf"]
    encrypted: bool
    connections: int
    keys: int
    files: int
    bytes: int


class SpacePage(TypedDict):
    spaces: list[SpaceShown]
    nextCursor: NotRequired[str]


class AuditLine(TypedDict):
    """With the fields of its event."""

    id: int
    at: str
    event: str


class AuditPage(TypedDict):
    lines: list[AuditLine]
    next: int | None
