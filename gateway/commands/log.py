"""`heliograph log NODE`: the history of a node's commands, one JSON line an event."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import msgspec

from actors.log.sqlite_store import SqliteStore
from actors.node.node_stream import stream_of
from gateway.commands.node_names import node_id_of
from gateway.commands.parsing import Subparsers
from gateway.commands.reach import add_data, ask, data_path, read_log
from gateway.identity.tokens import OperatorScope

LOOK_S = 0.5  # between looks for more, with --follow


def add(commands: Subparsers) -> None:
    log = commands.add_parser("log", help="print the history of a node's commands")
    log.add_argument("node", metavar="NODE", help="an id or a name that `heliograph nodes` lists")
    log.add_argument("--follow", action="store_true", help="follow new lines until Ctrl-C")
    add_data(log)
    log.set_defaults(run=_log)


def _log(arguments: argparse.Namespace) -> int:
    path, node_id, after = data_path(arguments), node_id_of(arguments, arguments.node), 0
    while True:
        events = _events(path, node_id, after)
        for event in events:
            print(json.dumps(event), flush=True)
            after = event["version"]
        if not events and not arguments.follow:
            return 0
        if not events:
            time.sleep(LOOK_S)


def _events(path: Path, node_id: str, after: int) -> list[Any]:
    """The next ones behind this version; none when there are no more yet."""

    async def read(store: SqliteStore) -> list[Any]:
        events = await store.read(stream_of(node_id), after)
        return [{"version": event.version, **msgspec.json.decode(event.data)} for event in events]

    return ask(
        path,
        lambda folder: read_log(folder, read, []),
        lambda operator: operator.get(f"/admin/log/{node_id}?after={after}", "events")["events"],
        OperatorScope.FLEET_READ,
    )
