"""`heliograph nodes`: the nodes that have announced themselves."""

import argparse
import json
from typing import Any

from actors.bus.directory import LocalDirectory
from actors.log.sqlite_store import SqliteStore
from gateway.commands.parsing import Subparsers, print_rows
from gateway.commands.reach import add_data, ask, data_path, read_log
from gateway.identity.tokens import OperatorScope


def add(commands: Subparsers) -> None:
    nodes = commands.add_parser("nodes", help="list the nodes that have announced themselves")
    nodes.add_argument("--json", action="store_true", help="with their tools, for scripts")
    add_data(nodes)
    nodes.set_defaults(run=_nodes)


def _nodes(arguments: argparse.Namespace) -> int:
    nodes = ask(
        data_path(arguments),
        lambda folder: read_log(folder, _retained, []),
        lambda operator: list(operator.each("/admin/nodes", "nodes")),
        OperatorScope.FLEET_READ,
    )
    if arguments.json:
        print(json.dumps(nodes, indent=2))
    else:
        print_rows([_row(node) for node in nodes])
    return 0


async def _retained(store: SqliteStore) -> list[Any]:
    """What `/admin/nodes` would answer."""
    directory = LocalDirectory(store)
    await directory.load()
    return [
        {
            "node_id": record.node_id,
            "tenant": record.tenant,
            "live": False,
            "since_ms": None,
            "left": None,
            "tools": [tool.name for tool in record.tools],
            "expires_at_ms": record.manifest["expires_at_ms"],
        }
        for record in directory
    ]


def _row(node: dict[str, Any]) -> dict[str, Any]:
    state = "live" if node["live"] else "away"
    return {"node": node["node_id"], "tenant": node["tenant"], "state": state, "tools": len(node["tools"])}
