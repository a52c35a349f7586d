"""`heliograph spaces`: the live echo spaces of the gateway that runs on a folder, and how much each has."""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from gateway.commands.parsing import CommandError, Subparsers, table
from gateway.commands.reach import Operator, RefusedError, add_data, data_path
from gateway.identity.tokens import OperatorScope
from schemas.errors import Code


def add(commands: Subparsers) -> None:
    spaces = commands.add_parser("spaces", help="list all live echo spaces and their sizes")
    spaces.add_argument("--json", action="store_true", help="for scripts")
    add_data(spaces)
    spaces.set_defaults(run=_spaces)


def _spaces(arguments: argparse.Namespace) -> int:
    # Of a gateway that is stopped there is nothing to see without opening the spaces, which would end some.
    operator = Operator(data_path(arguments), [OperatorScope.FLEET_READ])
    try:
        spaces = list(operator.each("/admin/spaces", "spaces"))
    except RefusedError as error:
        if error.envelope["code"] == Code.MANIFEST_NOT_FOUND:
            raise CommandError("this gateway has no spaces: they are on with `enabled = true` in [echo]") from None
        raise
    print(json.dumps(spaces, indent=2) if arguments.json else "\n".join(table([_row(space) for space in spaces])))
    return 0


def _row(space: dict[str, Any]) -> dict[str, Any]:
    return {
        "space": space["space_id"],
        "opened": _time(space["opened_at_ms"]),
        "ends": _time(space["ends_at_ms"]),
        "protocol": space["protocol"],
        "encrypted": "yes" if space["encrypted"] else "no",
        "connections": space["connections"],
        "keys": space["keys"],
        "files": space["files"],
        "bytes": space["bytes"],
    }


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
