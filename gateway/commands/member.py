"""`heliograph member invite | revoke`: the people who sign agents in for a tenant.

Over `/admin` while the gateway runs, in its folder while it does not. A link needs the gateway's address, which only
one that runs knows.
"""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from actors.member.member_rules import SCOPES, Trouble
from actors.member.members import Members
from gateway.api.actions import Declined
from gateway.api.admin_members import InviteWish, declined, invite, told
from gateway.commands.parsing import CommandError, Subparsers, printable
from gateway.commands.reach import Operator, add_data, ask, checked_tenant, data_path, need_tokens, person
from gateway.commands.stopped import on_members
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import DataFolder
from schemas.echo.names import is_ulid

NO_MEMBERS = "members of tenants are that issuer's business, and cannot sign in here"


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("member", help="invite or revoke people who sign agents in").add_subparsers(
        required=True, metavar="ACTION"
    )
    inviting = actions.add_parser("invite", help="print a link, valid once, with which a person makes a passkey")
    inviting.add_argument("--tenant", help="whose agents this person runs; for a new member")
    inviting.add_argument(
        "--scope",
        action="append",
        default=[],
        choices=sorted(SCOPES),
        metavar="SCOPE",
        help=f"what these agents may do at most, for a new member; may be given twice: {', '.join(sorted(SCOPES))}",
    )
    inviting.add_argument("--label", default="", help="whose it is, for people who read lists")
    inviting.add_argument(
        "--member", metavar="ID", help="another passkey for this member, whose others and grants end at once"
    )
    inviting.add_argument("--keep", action="store_true", help="with --member: its other passkeys and its grants stay")
    inviting.add_argument("--json", action="store_true", help="for scripts")
    add_data(inviting)
    inviting.set_defaults(run=_invite)
    revoking = actions.add_parser("revoke", help="end a member for good, with its passkeys and grants")
    revoking.add_argument("member", metavar="ID", help="as `heliograph members` lists it")
    add_data(revoking)
    revoking.set_defaults(run=_revoke)


def checked_member(text: str) -> str:
    if not is_ulid(text):
        raise CommandError("a member's id is a lower-case ULID; `heliograph members` lists them")
    return text


def _invite(arguments: argparse.Namespace) -> int:
    wish = _wish(arguments)
    path = data_path(arguments)
    need_tokens(path, NO_MEMBERS)
    body = {"member": wish.member, "keep": wish.keep} if wish.member is not None else {
        "tenant": wish.tenant, "scopes": wish.scopes, "label": wish.label
    }  # fmt: skip

    async def direct(members: Members) -> dict[str, Any]:
        invited = await invite(members, wish, person())
        if isinstance(invited, Declined):
            raise CommandError(f"{invited.message} {invited.suggested_fix}")
        return told(invited)

    def here(folder: DataFolder) -> dict[str, Any]:
        return on_members(folder, direct)

    def there(operator: Operator) -> dict[str, Any]:
        made: dict[str, Any] = operator.post("/admin/members/invite", body, "invite")
        return made

    made = ask(path, here, there, OperatorScope.TOKENS_MINT)
    if arguments.json:
        print(json.dumps(made))
        return 0
    ends = datetime.fromtimestamp(made["expires_at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    print(f"member {made['member_id']} of tenant {made['tenant']}, agent {made['sub']}")
    print(f"send this link to that person; it is good once, until {ends}:")
    print(f"  {printable(made['url'])}" if "url" in made else f"  PUBLIC_URL/join#{made['invite']}")
    if "url" not in made:
        print("PUBLIC_URL is this gateway's address for browsers (http.public_url), once it runs")
    return 0


def _wish(arguments: argparse.Namespace) -> InviteWish:
    if arguments.member is not None:
        if arguments.tenant is not None or arguments.scope or arguments.label:
            raise CommandError("a member keeps its tenant, scopes and label: give --member without them")
        return InviteWish(member=checked_member(arguments.member), keep=arguments.keep)
    if arguments.tenant is None or not arguments.scope:
        raise CommandError("a new member needs --tenant and --scope; another passkey for one needs --member")
    if arguments.keep:
        raise CommandError("--keep goes with --member")
    return InviteWish(checked_tenant(arguments.tenant), sorted(set(arguments.scope)), arguments.label)


def _revoke(arguments: argparse.Namespace) -> int:
    path, member_id = data_path(arguments), checked_member(arguments.member)
    need_tokens(path, NO_MEMBERS)

    async def direct(members: Members) -> None:
        trouble: Trouble | None = await members.revoke(member_id, person())
        if trouble is not None:
            why = declined(trouble)
            raise CommandError(f"{why.message} {why.suggested_fix}")

    def here(folder: DataFolder) -> None:
        on_members(folder, direct)

    def there(operator: Operator) -> None:
        operator.post("/admin/members/revoke", {"member": member_id}, "revoked")

    ask(path, here, there, OperatorScope.TOKENS_MINT)
    print(f"revoked {member_id}")
    return 0
