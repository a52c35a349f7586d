"""`heliograph console`: print a link that signs in to the console; `console passkeys`: who can come without one.

It opens nothing: the link is for whoever runs the command, and is good once.
"""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from actors.console.operator_passkeys import OperatorPasskeys
from actors.console.passkey_rules import Trouble
from gateway.api.admin_console import declined
from gateway.commands.parsing import CommandError, Subparsers, printable, table
from gateway.commands.reach import Operator, add_data, ask, data_path, now_ms, person
from gateway.commands.stopped import on_operator_passkeys
from gateway.console.access import described
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import DataFolder
from schemas.echo.names import is_ulid

TOKEN_LIFE_S = 400 * 86_400
"""Of the token that asks for a link: nothing that is made in a session outlives the token behind it, passkeys too. It
is sent once and kept nowhere, and what it opened ends when its id is revoked."""


def add(commands: Subparsers) -> None:
    console = commands.add_parser("console", help="print a link, valid once, that signs in to the console")
    console.add_argument(
        "--scope",
        action="append",
        choices=[scope.value for scope in OperatorScope],
        metavar="SCOPE",
        help=f"give these scopes and no others; may be given several times: {', '.join(OperatorScope)}",
    )
    console.add_argument(
        "--passkey", action="store_true", help="with --scope: the person who signs in may make a passkey"
    )
    console.add_argument("--json", action="store_true", help="for scripts")
    add_data(console)
    console.set_defaults(run=_link)
    more = console.add_subparsers(metavar="ACTION")
    passkeys = more.add_parser("passkeys", help="list the passkeys that sign in to the console")
    passkeys.set_defaults(run=_passkeys)
    removing = passkeys.add_subparsers(metavar="ACTION").add_parser("rm", help="remove a passkey, and end its sessions")
    removing.add_argument("passkey", metavar="ID", help="as `heliograph console passkeys` lists it")
    removing.set_defaults(run=_remove)
    for parser in (passkeys, removing):
        add_data(parser)
        parser.set_defaults(data=argparse.SUPPRESS)  # what was given before the action counts
    passkeys.add_argument("--json", action="store_true", help="for scripts", default=argparse.SUPPRESS)


def _link(arguments: argparse.Namespace) -> int:
    # A gateway that does not run has nobody to sign in to.
    operator = Operator(data_path(arguments), list(OperatorScope), TOKEN_LIFE_S)
    body: dict[str, Any] = {} if arguments.scope is None else {"scopes": sorted(set(arguments.scope))}
    if arguments.passkey:
        body["passkey"] = True
    made = operator.post("/admin/console/link", body, "url")
    if arguments.json:
        print(json.dumps(made))
        return 0
    print(f"open this link; it is good once, until {_time(made['expires_at_ms'])}:")
    print(f"  {printable(made['url'])}")
    return 0


def _passkeys(arguments: argparse.Namespace) -> int:
    async def all_of(passkeys: OperatorPasskeys) -> list[dict[str, Any]]:
        return [described(one) for one in passkeys]

    def here(folder: DataFolder) -> list[dict[str, Any]]:
        """Whoever looks makes no log where there is none."""
        if not folder.log_path.exists():
            return []
        revoked = folder.verifier.is_revoked
        found = on_operator_passkeys(folder, all_of)
        return [{**one, "revoked": revoked(one["id"]) or revoked(one["token_id"])} for one in found]

    def there(operator: Operator) -> list[dict[str, Any]]:
        return list(operator.get("/admin/console/passkeys", "passkeys")["passkeys"])

    found = ask(data_path(arguments), here, there, OperatorScope.TOKENS_MINT)
    print(json.dumps(found, indent=2) if arguments.json else "\n".join(table([_row(one) for one in found])))
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    passkey_id: str = arguments.passkey
    if not is_ulid(passkey_id.lower()):
        raise CommandError("a passkey's id is an upper-case ULID; `heliograph console passkeys` lists them")

    async def direct(passkeys: OperatorPasskeys) -> None:
        trouble: Trouble | None = await passkeys.remove(passkey_id, person())
        if trouble is not None:
            why = declined(trouble)
            raise CommandError(f"{why.message} {why.suggested_fix}")

    def here(folder: DataFolder) -> None:
        on_operator_passkeys(folder, direct)

    def there(operator: Operator) -> None:
        operator.post("/admin/console/passkeys/remove", {"passkey": passkey_id}, "removed")

    ask(data_path(arguments), here, there, OperatorScope.TOKENS_MINT)
    print(f"removed {passkey_id}")
    return 0


def _row(passkey: dict[str, Any]) -> dict[str, Any]:
    is_over = passkey["revoked"] or now_ms() >= passkey["ends_at_ms"]
    return {
        "passkey": passkey["id"],
        "operator": printable(passkey["sub"]),
        "scopes": " ".join(passkey["scopes"]),
        "made": _time(passkey["made_at_ms"]),
        "used": _time(passkey["used_at_ms"]),
        "ends": ("revoked" if passkey["revoked"] else "ended") if is_over else _time(passkey["ends_at_ms"]),
        "token": passkey["token_id"],
    }


def _time(at_ms: int | None) -> str:
    return "-" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
