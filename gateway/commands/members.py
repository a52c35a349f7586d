"""`heliograph members`: the people who sign agents in, and what stands of each."""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from actors.member.members import Members
from gateway.api.admin_members import shown
from gateway.commands.member import NO_MEMBERS
from gateway.commands.parsing import Subparsers, printable, table
from gateway.commands.reach import Operator, add_data, ask, data_path, need_tokens, now_ms
from gateway.commands.stopped import on_members
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import DataFolder


def add(commands: Subparsers) -> None:
    members = commands.add_parser("members", help="list the people who sign agents in, with passkeys and grants")
    members.add_argument("--json", action="store_true", help="with their grants, for scripts")
    add_data(members)
    members.set_defaults(run=_members)


def _members(arguments: argparse.Namespace) -> int:
    path = data_path(arguments)
    need_tokens(path, NO_MEMBERS)

    async def all_of(members: Members) -> list[dict[str, Any]]:
        return [shown(member, members.grants_of(member.member_id)) for member in members]

    def here(folder: DataFolder) -> list[dict[str, Any]]:
        """Whoever looks makes no log where there is none."""
        return on_members(folder, all_of) if folder.log_path.exists() else []

    def there(operator: Operator) -> list[dict[str, Any]]:
        return list(operator.each("/admin/members", "members"))

    found = ask(path, here, there, OperatorScope.TOKENS_MINT)
    print(json.dumps(found, indent=2) if arguments.json else "\n".join(table([_row(member) for member in found])))
    return 0


def _row(member: dict[str, Any]) -> dict[str, Any]:
    return {
        "member": member["member_id"],
        "tenant": member["tenant"],
        "label": printable(member["label"]) or "-",
        "agent": member["sub"],
        "scopes": " ".join(scope.removeprefix("tools:call:") for scope in member["scopes"]),
        "joined": _time(member["joined_at_ms"]),
        "invite": _invite(member["invite_ends_ms"]),
        "passkeys": member["passkeys"],
        "grants": len(member["grants"]),
    }


def _invite(ends_ms: int | None) -> str:
    if ends_ms is None:
        return "-"
    return f"until {_time(ends_ms)}" if now_ms() < ends_ms else "ended"


def _time(at_ms: int | None) -> str:
    return "-" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
