"""`heliograph nodes`: all nodes, how each one is, and how the last one left; once, or for as long as one looks on."""

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from actors.register.listed_node import ListedState
from gateway.api.node_list import Filter, NodeList, shown
from gateway.commands.parsing import CommandError, Subparsers, printable, table
from gateway.commands.reach import Gateway, add_data, ask, checked_tenant, data_path
from gateway.commands.stopped import on_nodes
from gateway.identity.node_lives import NodeLives
from gateway.identity.tokens import OperatorScope
from gateway.main.clock import now
from gateway.main.data_folder import DataFolder
from schemas.labels import TAG_RULE, is_tag

WATCH_S = 2.0  # between two looks


def add(commands: Subparsers) -> None:
    nodes = commands.add_parser("nodes", help="list all nodes and their states")
    nodes.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="only nodes with this tag")
    nodes.add_argument("--state", choices=[state.value for state in ListedState], help="only nodes in this state")
    nodes.add_argument("--tenant", help="only those of this tenant")
    nodes.add_argument("--watch", action="store_true", help="keep the list live, until Ctrl-C")
    nodes.add_argument("--json", action="store_true", help="with their tools, for scripts; with --watch, a line a look")
    add_data(nodes)
    nodes.set_defaults(run=_nodes)


def _nodes(arguments: argparse.Namespace) -> int:
    if not all(map(is_tag, arguments.tag)):
        raise CommandError(f"--tag is key=value. {TAG_RULE}")
    if arguments.tenant is not None:
        checked_tenant(arguments.tenant)
    if arguments.watch:
        Gateway.on(data_path(arguments))  # without one nothing changes, and each look would hold the folder
        return _watch(arguments)
    nodes = _look(arguments)
    print(json.dumps(nodes, indent=2) if arguments.json else "\n".join(_lines(nodes)))
    return 0


def _watch(arguments: argparse.Namespace) -> int:
    """Exit code 0 on Ctrl-C."""
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    try:
        while True:
            nodes = _look(arguments)
            if arguments.json:
                print(json.dumps(nodes), flush=True)
            else:
                clear = "\x1b[H\x1b[2J" if is_terminal else ""
                print(clear + "\n".join(_lines(nodes)), flush=True)
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return 0


def _look(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    asked = {"tag": arguments.tag, "state": arguments.state or (), "tenant": arguments.tenant or ()}
    query = urlencode({key: value for key, value in asked.items() if value}, doseq=True)
    state = None if arguments.state is None else ListedState(arguments.state)
    wanted = Filter(tuple(arguments.tag), state, arguments.tenant)

    async def chosen(_: NodeLives, nodes: NodeList) -> list[dict[str, Any]]:
        wall_ms = now().wall_ms
        return [shown(node, wall_ms) for node in nodes if wanted.takes(node, wall_ms)]

    def here(folder: DataFolder) -> list[dict[str, Any]]:
        """What `/admin/nodes` would answer. Whoever looks makes no log where there is none."""
        return on_nodes(folder, chosen) if folder.log_path.exists() else []

    return ask(
        data_path(arguments),
        here,
        lambda operator: list(operator.each(f"/admin/nodes?{query}" if query else "/admin/nodes", "nodes")),
        OperatorScope.FLEET_READ,
    )


def _lines(nodes: list[dict[str, Any]]) -> list[str]:
    return table([_row(node) for node in nodes])


def _row(node: dict[str, Any]) -> dict[str, Any]:
    left = node["left"]
    return {
        "name": node["name"] or "-",
        "node": node["node_id"],
        "tenant": node["tenant"],
        "state": node["state"],
        "since": _time(node["revoked_at_ms"] if node["state"] == ListedState.REVOKED else node["since_ms"]),
        "left": "-" if left is None else f"{left['code']} {left['reason']}",
        "last seen": _time(node["last_seen_ms"]),
        "agent": printable(node["agent"] or "-"),
        "tools": len(node["tools"]),
        "tags": " ".join(f"{key}={value}" for key, value in sorted(node["tags"].items())) or "-",
    }


def _time(at_ms: int | None) -> str:
    return "-" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
