"""What may be done to a node, and what follows: events, or why not. Pure.

    enrolled ──► renewed ⇄ retired (the old identity) ──► revoked ──► forgotten ──► erased
        └─ named and tagged at any time before it is forgotten

Names are unique among the nodes of a tenant that are not forgotten. A node that was enrolled by a version without a
register is a member from the first thing that is done to it on. Making keys and certificates, ending sessions and
removing what is to be forgotten is left to others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from actors.register.events import (
    Event,
    IdentityRetired,
    Member,
    NodeEnrolled,
    NodeErased,
    NodeForgotten,
    NodeLabelled,
    NodeRenewed,
    NodeRevoked,
    evolve,
)
from schemas.closes import NodeClose
from schemas.labels import NAME_RULE, TAG_RULE, TAGS_MAX, Labels, is_name, is_node_id, is_tag
from schemas.manifest import NodeIdentity

RENEWAL_OVERLAP_MS = 24 * 3600 * 1000  # for which the old identity is good beside an unused new one; then it is over


class Trouble(StrEnum):
    """Why not. Closed: `docs/reference/operators.md` says what each means."""

    UNKNOWN_NODE = "unknown_node"
    AMBIGUOUS_NAME = "ambiguous_name"
    BAD_NAME = "bad_name"
    BAD_TAG = "bad_tag"
    NAME_TAKEN = "name_taken"
    TWICE = "twice"
    OTHER_TENANT = "other_tenant"
    REVOKED = "revoked"
    NOT_REVOKED = "not_revoked"
    RENEWED_OTHERWISE = "renewed_otherwise"
    UNREADABLE = "unreadable"
    NOT_WRITTEN = "not_written"


@dataclass(frozen=True, slots=True)
class Refusal:
    trouble: Trouble
    row: int | None = None  # of several, counted from 0: the one that is at fault

    @property
    def message(self) -> str:
        return WORDS[self.trouble][0]

    @property
    def suggested_fix(self) -> str:
        return WORDS[self.trouble][1]


WORDS = {
    Trouble.UNKNOWN_NODE: ("No node has this id or name.", "List the nodes, and use an id or a name from there."),
    Trouble.AMBIGUOUS_NAME: ("Nodes of several tenants have this name.", "Give the tenant too, or the node's id."),
    Trouble.BAD_NAME: ("This is not a name that a node may have.", NAME_RULE),
    Trouble.BAD_TAG: ("A tag is not of the right shape, or there are too many.", TAG_RULE),
    Trouble.NAME_TAKEN: ("Another node of this tenant has this name.", "Choose another name, or rename that node."),
    Trouble.TWICE: ("The same name or id appears twice.", "Give each node a name and an id of its own."),
    Trouble.OTHER_TENANT: (
        "This node id belongs to another tenant.",
        "Leave the id out for a new one, or choose another.",
    ),
    Trouble.REVOKED: ("This node is revoked, and that is for good.", "Enroll it under a new id: leave the id out."),
    Trouble.NOT_REVOKED: ("This node is not revoked.", "Revoke it first: what is forgotten must not come back."),
    Trouble.RENEWED_OTHERWISE: (
        "This identity was already renewed, with another key.",
        "Use the identity of that renewal. If it is lost, renew or enroll the node as an operator.",
    ),
    Trouble.UNREADABLE: (
        "What the register has of this node cannot be read: nobody knows whether it is revoked.",
        "Restore the data folder from a backup, or revoke the node.",
    ),
    Trouble.NOT_WRITTEN: ("The log did not take this: nothing has changed.", "Make room on the disk, then try again."),
}


class Roll:
    """All members, and who has which name."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._members: dict[str, Member] = {}
        self._named: dict[str, dict[str, str]] = {}  # name → tenant → node
        for member in members:
            self.put(member)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def find(self, node_id: str) -> Member | None:
        return self._members.get(node_id)

    def named(self, name: str) -> Mapping[str, str]:
        """The ids of the nodes that have this name, by tenant."""
        return self._named.get(name, {})

    def put(self, member: Member) -> None:
        older = self._members.get(member.node_id)
        if older is not None and older.name is not None and self.named(older.name).get(older.tenant) == older.node_id:
            del self._named[older.name][older.tenant]  # else somebody has taken it who was heard of first
        self._members[member.node_id] = member
        if member.name is not None:
            self._named.setdefault(member.name, {})[member.tenant] = member.node_id

    def after(self, events: Iterable[Event]) -> dict[str, Member]:
        """The members that these events change, as they are then."""
        changed: dict[str, Member] = {}
        for event in events:
            node_id = event.node_id
            member = changed.get(node_id) or self._members.get(node_id) or Member(node_id, event.tenant)
            changed[node_id] = evolve(member, event)
        return changed


Decision: TypeAlias = Sequence[Event] | Refusal
Decide: TypeAlias = Callable[[Roll], Decision]


@dataclass(frozen=True, slots=True)
class Act:
    """By whom, and when."""

    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A node to be enrolled. What it is called is None where nothing was said: then a member keeps what it has."""

    identity: NodeIdentity
    kid: str
    jti: str | None
    name: str | None = None
    tags: Mapping[str, str] | None = None


def resolve(
    roll: Roll, node: str, tenant: str | None, tenant_of: Callable[[str], str | None]
) -> NodeIdentity | Refusal:
    """The node that a person means by an id or a name. `tenant_of` knows nodes that are no members yet."""
    if is_node_id(node):
        member = roll.find(node)
        owner = tenant_of(node) if member is None else member.tenant
        is_known = owner is not None and tenant in (None, owner) and not (member and member.is_forgotten)
        return NodeIdentity(node, owner) if is_known and owner is not None else Refusal(Trouble.UNKNOWN_NODE)
    named = roll.named(node)
    if tenant is None and len(named) > 1:
        return Refusal(Trouble.AMBIGUOUS_NAME)
    owner = next(iter(named), None) if tenant is None else tenant
    if owner is None or owner not in named:
        return Refusal(Trouble.UNKNOWN_NODE)
    return NodeIdentity(named[owner], owner)


# ---- what operators do ----------------------------------------------------------------------------------------------


def enroll(roll: Roll, wanted: Sequence[Enrolment], tenants_of: Callable[[str], Iterable[str]], act: Act) -> Decision:
    """All of them, or none: a refusal names the first row at fault. `tenants_of`: those that a node id belongs to."""
    events: list[NodeEnrolled] = []
    ids: set[str] = set()
    names: set[tuple[str, str]] = set()
    for row, one in enumerate(wanted):
        node, member = one.identity, roll.find(one.identity.node_id)
        old = Labels() if member is None else member.labels
        name = old.name if one.name is None else one.name
        tags = dict(old.tags if one.tags is None else one.tags)
        trouble = _flaw(Labels(name, tags)) or _clash(roll, node, name)
        if node.node_id in ids or (name is not None and (node.tenant, name) in names):
            trouble = Trouble.TWICE
        elif set(tenants_of(node.node_id)) - {node.tenant} or (member is not None and member.tenant != node.tenant):
            trouble = Trouble.OTHER_TENANT
        elif member is not None and member.is_revoked:
            trouble = Trouble.REVOKED
        if trouble is not None:
            return Refusal(trouble, row)
        ids.add(node.node_id)
        if name is not None:
            names.add((node.tenant, name))
        events.append(NodeEnrolled(act.at_ms, act.by, node.node_id, node.tenant, one.kid, one.jti, name, tags))
    return events


def rename(roll: Roll, node: NodeIdentity, name: str | None, act: Act) -> Decision:
    """None: it has no name any more."""
    return _label(roll, node, Labels(name, _labels(roll, node).tags), act)


def tag(roll: Roll, node: NodeIdentity, put: Mapping[str, str], remove: Iterable[str], act: Act) -> Decision:
    """`remove` is keys; those that it does not have are not missed."""
    labels, gone = _labels(roll, node), set(remove)
    tags = {key: value for key, value in labels.tags.items() if key not in gone} | dict(put)
    return _label(roll, node, Labels(labels.name, tags), act)


def revoke(roll: Roll, node: NodeIdentity, act: Act) -> Decision:
    """Once more is no news."""
    member = roll.find(node.node_id)
    if member is not None and member.is_revoked:
        return ()
    return (NodeRevoked(act.at_ms, act.by, node.node_id, node.tenant),)


def forget(roll: Roll, node: NodeIdentity, act: Act) -> Decision:
    member = roll.find(node.node_id)
    if member is None or not member.is_revoked:
        return Refusal(Trouble.NOT_REVOKED)
    return (NodeForgotten(act.at_ms, act.by, node.node_id, node.tenant),)


def erased(roll: Roll, node: NodeIdentity, act: Act) -> Decision:
    member = roll.find(node.node_id)
    if member is None or not member.is_forgotten or member.is_erased:
        return ()
    return (NodeErased(act.at_ms, act.by, node.node_id, node.tenant),)


def _labels(roll: Roll, node: NodeIdentity) -> Labels:
    member = roll.find(node.node_id)
    return Labels() if member is None else member.labels


def _label(roll: Roll, node: NodeIdentity, labels: Labels, act: Act) -> Decision:
    member = roll.find(node.node_id)
    if member is not None and member.is_forgotten:
        return Refusal(Trouble.UNKNOWN_NODE)
    trouble = _flaw(labels) or _clash(roll, node, labels.name)
    if trouble is not None:
        return Refusal(trouble)
    if member is not None and member.labels == labels:
        return ()
    return (NodeLabelled(act.at_ms, act.by, node.node_id, node.tenant, labels.name, dict(labels.tags)),)


def _flaw(labels: Labels) -> Trouble | None:
    if labels.name is not None and not is_name(labels.name):
        return Trouble.BAD_NAME
    return None if len(labels.tags) <= TAGS_MAX and all(map(is_tag, labels.tag_texts)) else Trouble.BAD_TAG


def _clash(roll: Roll, node: NodeIdentity, name: str | None) -> Trouble | None:
    owner = None if name is None else roll.named(name).get(node.tenant)
    return None if owner in (None, node.node_id) else Trouble.NAME_TAKEN


# ---- identities -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewIdentity:
    kid: str
    jti: str | None
    public_key: str


def renewed_already(roll: Roll, node: NodeIdentity, from_kid: str, public_key: str) -> bool | Refusal:
    """What a node's wish for a new identity meets: True when it was granted before and asks once more, False when it is
    to be granted now. An identity is known by its certificate: tokens from elsewhere come and go."""
    member = roll.find(node.node_id)
    if member is None:
        return False
    if member.is_revoked:
        return Refusal(Trouble.REVOKED)
    renewal = member.renewal
    if renewal is None or renewal.kid == from_kid:  # that one has come to be used, though nobody has logged in with it
        return False
    if (renewal.from_kid, renewal.public_key) == (from_kid, public_key):
        return True
    # An operator's renewal counts as well: whoever has the old identity only must not undo it.
    return Refusal(Trouble.RENEWED_OTHERWISE)


def renew(
    roll: Roll, node: NodeIdentity, new: NewIdentity, from_kid: str | None, from_jti: str | None, act: Act
) -> Decision:
    """By the node that has the old identity, or (both None) by an operator, who undoes a renewal that is under way."""
    member = roll.find(node.node_id)
    if member is not None and member.is_revoked:
        return Refusal(Trouble.REVOKED)
    if from_kid is not None:
        known = renewed_already(roll, node, from_kid, new.public_key)
        if isinstance(known, Refusal):
            return known
        if known:
            return ()
    retired: Sequence[Event] = ()
    if member is not None and member.renewal is not None and member.renewal.kid == from_kid:
        retired = (IdentityRetired(act.at_ms, act.by, node.node_id, node.tenant),)
    event = NodeRenewed(
        act.at_ms, act.by, node.node_id, node.tenant, new.kid, new.jti, new.public_key, from_kid, from_jti
    )
    return (*retired, event)


def retire(roll: Roll, node: NodeIdentity, kid: str, act: Act) -> Decision:
    """The identity `kid`, which this node was renewed to, is the only one from now on."""
    member = roll.find(node.node_id)
    if member is None or member.renewal is None or member.renewal.kid != kid:
        return ()
    return (IdentityRetired(act.at_ms, act.by, node.node_id, node.tenant),)


def is_overdue(member: Member, now_ms: int) -> bool:
    """Whether its old identity has been good for long enough beside the new one."""
    return member.renewal is not None and now_ms >= member.renewal.at_ms + RENEWAL_OVERLAP_MS


def refuses_login(member: Member | None, jti: str, issued_at_ms: int, now_ms: int) -> NodeClose | None:
    """What the register has against a token of this node that is good in itself."""
    if member is None:
        return None
    if member.is_revoked:
        return NodeClose.FORBIDDEN
    current, renewal = member.current, member.renewal
    if (renewal is not None and jti == renewal.jti) or (current is not None and jti in current.jtis):
        return None  # the register knows it, so that no date has to tell
    is_over = current is not None and bool(current.jtis) and issued_at_ms <= current.at_ms
    if renewal is not None and renewal.jti is not None and is_overdue(member, now_ms):
        is_over = is_over or issued_at_ms <= max(renewal.at_ms, member.enrolled_at_ms or 0)
    return NodeClose.UNAUTHORIZED if is_over else None


def is_over(member: Member | None, kid: str, not_before_ms: int) -> bool:
    """Whether a certificate of this node, made then, no longer counts."""
    if member is None or (member.renewal is not None and kid == member.renewal.kid):
        return False
    current = member.current
    return member.is_revoked or (current is not None and kid not in current.kids and not_before_ms <= current.at_ms)
