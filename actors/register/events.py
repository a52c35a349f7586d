"""What operators did to nodes, and what nodes did about their own identity, as it lies in the log.

A node's events are a stream of their own, so that they can be forgotten. A member is what follows from them: it is
written with them, so that a start reads members and not history. Keys and tokens are in neither; a certificate is named
by its `kid`, a token by its `jti`.
"""

from typing import TypeAlias

import msgspec

from schemas.labels import Labels
from schemas.manifest import NodeIdentity


class _Event(msgspec.Struct, frozen=True, tag=lambda name: f"{name}@1", tag_field="event"):
    at_ms: int
    by: str  # the operator's `sub`, or the node's id
    node_id: str
    tenant: str


class NodeEnrolled(_Event, frozen=True):
    kid: str
    jti: str | None  # None: the token comes from elsewhere
    name: str | None
    tags: dict[str, str]


class NodeLabelled(_Event, frozen=True):
    """Renamed or tagged: all that it is called from here on."""

    name: str | None
    tags: dict[str, str]


class NodeRenewed(_Event, frozen=True):
    """There is a new identity. The old one is good until the new one is used, or its time is up."""

    kid: str
    jti: str | None
    public_key: str  # hex
    from_kid: str | None  # the identity that asked for it; None: an operator did
    from_jti: str | None


class IdentityRetired(_Event, frozen=True):
    """Every identity older than the one that was renewed to is over."""


class NodeRevoked(_Event, frozen=True):
    """For good: this id does not come back."""


class NodeForgotten(_Event, frozen=True):
    """Nothing of it is to be kept, but that its id is revoked."""


class NodeErased(_Event, frozen=True):
    """Nothing of it is left."""


Event: TypeAlias = (
    NodeEnrolled | NodeLabelled | NodeRenewed | IdentityRetired | NodeRevoked | NodeForgotten | NodeErased
)


class Renewal(msgspec.Struct, frozen=True):
    """A new identity that has not been used yet."""

    at_ms: int
    kid: str
    jti: str | None
    public_key: str
    from_kid: str | None
    from_jti: str | None


class Current(msgspec.Struct, frozen=True):
    """What a renewal came to: identities made up to `at_ms` are over, but for those that are named."""

    at_ms: int  # never less than before, whatever the clock did
    kids: tuple[str, ...]
    jtis: tuple[str, ...]  # none: tokens come from elsewhere, and none is over


class Member(msgspec.Struct, frozen=True):
    """A node by the word of operators."""

    node_id: str
    tenant: str
    enrolled_at_ms: int | None = None  # None: by a version that kept no register
    name: str | None = None
    tags: dict[str, str] = {}
    renewal: Renewal | None = None
    current: Current | None = None
    revoked_at_ms: int | None = None
    is_forgotten: bool = False
    is_erased: bool = False

    @property
    def identity(self) -> NodeIdentity:
        return NodeIdentity(self.node_id, self.tenant)

    @property
    def labels(self) -> Labels:
        return Labels(self.name, self.tags)

    @property
    def is_revoked(self) -> bool:
        return self.revoked_at_ms is not None


def evolve(member: Member, event: Event) -> Member:
    """The member after this event of its node."""
    change = msgspec.structs.replace
    match event:
        case NodeEnrolled(name=name, tags=tags, at_ms=at_ms):
            current, unused = member.current, member.renewal
            if current is not None:  # one more, whatever the clock says
                known = () if unused is None else (unused.kid,)
                jtis = _known(event.jti) if unused is None else _known(unused.jti) + _known(event.jti)
                current = Current(current.at_ms, (*current.kids, *known, event.kid), current.jtis + jtis)
            # A renewal that nobody has used ends nothing any more: the node was given another identity.
            return change(member, enrolled_at_ms=at_ms, name=name, tags=tags, current=current, renewal=None)
        case NodeLabelled(name=name, tags=tags):
            return change(member, name=name, tags=tags)
        case NodeRenewed():
            renewal = Renewal(event.at_ms, event.kid, event.jti, event.public_key, event.from_kid, event.from_jti)
            return change(member, renewal=renewal)
        case IdentityRetired():
            new, old = member.renewal, member.current
            if new is None:
                return member
            at_ms = max(new.at_ms, member.enrolled_at_ms or 0, 0 if old is None else old.at_ms)
            return change(member, renewal=None, current=Current(at_ms, (new.kid,), _known(new.jti)))
        case NodeRevoked(at_ms=at_ms):
            return change(member, revoked_at_ms=at_ms, renewal=None)
        case NodeForgotten():
            return Member(member.node_id, member.tenant, revoked_at_ms=member.revoked_at_ms, is_forgotten=True)
        case NodeErased():
            return change(member, is_erased=True)


def _known(jti: str | None) -> tuple[str, ...]:
    return () if jti is None else (jti,)


_encoder = msgspec.json.Encoder()
_member_decoder = msgspec.json.Decoder(Member)


def encode(written: Event | Member) -> bytes:
    return _encoder.encode(written)


def decode_member(data: bytes) -> Member:
    """Raises msgspec.MsgspecError."""
    return _member_decoder.decode(data)
