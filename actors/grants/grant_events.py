"""A grant as it lies in the log of whoever gave it: a family of tokens, of which only hashes are kept.

The first `GrantIssued` of a `grant_id` says what was granted. Each further one is a rotation: a new pair of tokens, the
old ones being over. Which stream these lie in, and what a scope allows, is not known here.
"""

from typing import TypeAlias

import msgspec


class _Event(msgspec.Struct, frozen=True, tag=lambda name: f"{name}@1", tag_field="event", forbid_unknown_fields=True):
    at_ms: int


class GrantIssued(_Event, frozen=True):
    grant_id: str
    member_id: str
    scopes: tuple[str, ...]  # of the access token: in the first event all that was granted, later perhaps fewer
    access_hash: bytes | None  # None: the token says itself what it is, and names the grant
    access_ends_ms: int
    refresh_hash: bytes | None  # None: it is not refreshed, and over with its access token
    refresh_ends_ms: int
    ends_ms: int  # nothing of it lasts longer
    generation: int = 0  # rotations before this one
    voids_last: bool = False  # the answer before this was lost: its tokens are void, as if they had not been given
    client: str = ""  # what the client calls itself, for those who look at their grants
    resource: str = ""  # what its tokens are for, where tokens say that


class GrantRevoked(_Event, frozen=True):
    grant_id: str


GrantEvent: TypeAlias = GrantIssued | GrantRevoked
