"""What operators do about members of tenants: the people who sign agents in.

GET  /admin/members          all of them, in pages (?cursor, ?limit)
POST /admin/members/invite   {"tenant", "scopes", "label"?} → a new member and the link for it, once
                             {"member", "keep"?} → a link for another passkey of this one; unless `keep`, those that it
                             has, and what it granted, are over at once
POST /admin/members/revoke   {"member"} → passkeys, invitation and grants end, for good, and what they opened

Where nobody can sign in for a fleet, nobody is invited; where tokens come from elsewhere, there are no members.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from actors.grants.grants import Grant
from actors.member.given import Invited
from actors.member.member_events import Member
from actors.member.member_rules import LABEL_CHARS_MAX, Trouble
from actors.member.members import Members
from gateway.api.about import About
from gateway.api.actions import Actions, Declined, Done, OperatorRoutes, Outcome
from gateway.api.answers import InvitedMember, MemberPage, RevokedMember
from gateway.api.pages import PAGE_OF_IDS, refuse_page, wanted_limit
from gateway.identity.tokens import TENANT, OperatorScope, Principal
from gateway.net.exchange import Exchange
from schemas.echo.names import is_ulid
from schemas.errors import Code

PAGE_MEMBERS_MAX = 200  # also when nothing is said; asked for more: this many

_WORDS = {
    Trouble.UNKNOWN_MEMBER: ("No member has this id.", "GET /admin/members lists the ids of all members."),
    Trouble.FULL: ("There are as many members as members.members_max allows.", "Revoke some, or raise the setting."),
    Trouble.BAD_SCOPE: (
        "A scope is not one that a member may have, or there is none.",
        "Choose from these: tools:call:read_only, tools:call:reversible.",
    ),
    Trouble.BAD_LABEL: (
        "This is not a label that a member may have.",
        f"A label has at most {LABEL_CHARS_MAX} printable characters, without spaces around them.",
    ),
    Trouble.PASSKEYS_FULL: (
        "This member has as many passkeys as members.passkeys_max allows.",
        "Invite without keep, which ends them, or raise the setting.",
    ),
    Trouble.NOT_WRITTEN: ("The log did not take this: nothing has changed.", "Make room on the disk, then try again."),
}
_CODES = {Trouble.UNKNOWN_MEMBER: Code.MANIFEST_NOT_FOUND, Trouble.NOT_WRITTEN: Code.INTERNAL}
OFF_FIX = "See the reference, page oauth: when members of tenants can sign in."


class WhyOff(Protocol):
    """Why members of tenants cannot sign in."""

    @property
    def word(self) -> str: ...

    @property
    def value(self) -> Any: ...


class InviteWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: str | None = None
    scopes: list[str] = []
    label: str = ""
    member: str | None = None
    keep: bool = False


class RevokeMemberWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    member: str


class AdminMembers:
    def __init__(
        self, actions: Actions, members: Members | None, off: WhyOff | None, base: Callable[[], str] | None
    ) -> None:
        self._members = members
        self._off = off
        self._base = base
        self.routes: OperatorRoutes = {
            "/admin/members": actions.look(
                OperatorScope.TOKENS_MINT,
                self._page,
                About("List members of tenants, in pages.", MemberPage, query=PAGE_OF_IDS),
            ),
            "/admin/members/invite": actions.action(
                "member_invite",
                OperatorScope.TOKENS_MINT,
                InviteWish,
                self._invite,
                About("Invite a new member, or one again; the link is shown once.", InvitedMember, refuses=(404,)),
            ),
            "/admin/members/revoke": actions.action(
                "member_revoke",
                OperatorScope.TOKENS_MINT,
                RevokeMemberWish,
                self._revoke,
                About("Revoke a member, for good.", RevokedMember, refuses=(404,)),
            ),
        }

    async def _page(self, exchange: Exchange) -> Mapping[str, Any] | None:
        limit, cursor = wanted_limit(exchange, PAGE_MEMBERS_MAX), exchange.query("cursor")
        if limit is None or (cursor is not None and not is_ulid(cursor)):
            await refuse_page(exchange)
            return None
        if self._members is None:
            off = self._declined_off()
            await exchange.refuse(off.code, off.message, off.suggested_fix)
            return None
        room = min(limit, PAGE_MEMBERS_MAX)
        found = [member for member in self._members if member.member_id > (cursor or "")][: room + 1]
        page = [shown(member, self._members.grants_of(member.member_id)) for member in found[:room]]
        return {"members": page, **({"nextCursor": found[room - 1].member_id} if len(found) > room else {})}

    async def _invite(self, request: InviteWish, operator: Principal) -> Outcome:
        if self._members is None or self._off is not None or self._base is None:
            return self._declined_off()
        invited = await invite(self._members, request, operator.sub)
        if isinstance(invited, Declined):
            return invited
        member = invited.member
        answer = {**told(invited), "url": f"{self._base()}/join#{invited.invite}"}
        target = {"member_id": member.member_id, "tenant": member.tenant, "sub": member.agent_id}
        return Done(answer, {**target, "scopes": sorted(member.scopes), "replaces": request.member is not None})

    async def _revoke(self, request: RevokeMemberWish, operator: Principal) -> Outcome:
        if self._members is None:
            return self._declined_off()
        trouble = await self._members.revoke(request.member, operator.sub)
        if trouble is not None:
            return declined(trouble)
        return Done({"revoked": request.member}, {"member_id": request.member})

    def _declined_off(self) -> Declined:
        why = "Members of tenants cannot sign in here." if self._off is None else str(self._off.value)
        return Declined("fleet_sign_in_off", why, OFF_FIX)


async def invite(members: Members, wish: InviteWish, by: str) -> Invited | Declined:
    if wish.member is not None:
        if wish.tenant is not None or wish.scopes or wish.label:
            return Declined("both", "A member keeps its tenant, scopes and label.", "Give the member alone.")
        invited = await members.invite_again(wish.member, by, keeps_passkeys=wish.keep)
    elif wish.tenant is None or not TENANT.match(wish.tenant) or wish.keep:
        return Declined("tenant", "A tenant is 1 to 64 printable characters.", "Give a tenant, or a member.")
    else:
        invited = await members.invite(wish.tenant, frozenset(wish.scopes), wish.label, by)
    return declined(invited) if isinstance(invited, Trouble) else invited


def declined(trouble: Trouble) -> Declined:
    message, fix = _WORDS[trouble]
    return Declined(trouble.value, message, fix, _CODES.get(trouble, Code.MANIFEST_INVALID))


def told(invited: Invited) -> dict[str, Any]:
    member = invited.member
    return {
        "member_id": member.member_id,
        "tenant": member.tenant,
        "sub": member.agent_id,
        "label": member.label,
        "scopes": sorted(member.scopes),
        "invite": invited.invite,
        "expires_at_ms": invited.ends_ms,
    }


def shown(member: Member, grants: list[Grant]) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "tenant": member.tenant,
        "sub": member.agent_id,
        "label": member.label,
        "scopes": sorted(member.scopes),
        "invited_at_ms": member.invited_at_ms,
        "invite_ends_ms": None if member.invite is None else member.invite.ends_ms,
        "joined_at_ms": member.joined_at_ms,
        "passkeys": len(member.passkeys),
        "grants": [
            {
                "gid": grant.grant_id,
                "client": grant.client,
                "scopes": sorted(grant.scopes),
                "issued_at_ms": grant.issued_at_ms,
                "refreshed_at_ms": grant.refreshed_at_ms,
                "ends_ms": grant.stands_until_ms,
            }
            for grant in grants
        ],
    }
