"""`heliograph schema list | show | check`."""

import argparse
import json
import sys
from pathlib import Path

import jiter

from gateway.commands.parsing import Subparsers, complain
from schemas.contract import contract
from schemas.registry import REGISTRY, Schema


def add(commands: Subparsers) -> None:
    schema = commands.add_parser("schema", help="look at the published schemas, or check a document against one")
    actions = schema.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all ids with their content hashes")
    listing.add_argument("--json", action="store_true", help="for scripts")
    listing.set_defaults(run=_list)
    show = actions.add_parser("show", help="print one schema exactly as it is published")
    show.add_argument("id", help="such as system.echo.invoke.input@1.0.0")
    show.set_defaults(run=_show)
    check = actions.add_parser("check", help="say where a JSON document breaks a schema (exit 1 if it does)")
    check.add_argument("id", help="such as manifest@1.0.0")
    check.add_argument("file", type=Path, help="the JSON document, or - for standard input")
    check.set_defaults(run=_check)


def _list(arguments: argparse.Namespace) -> int:
    hashes = {schema.id: schema.content_hash for schema in REGISTRY}
    if arguments.json:
        print(json.dumps(hashes, indent=2))
    else:
        for schema_id, content_hash in hashes.items():
            print(f"{schema_id:<42}{content_hash}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    schema = _find(arguments.id)
    if schema is None:
        return 2
    print(schema.body.decode(), end="")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    schema = _find(arguments.id)
    if schema is None:
        return 2
    try:
        data = sys.stdin.buffer.read() if str(arguments.file) == "-" else arguments.file.read_bytes()
        document = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON, or has a key twice, or is too deep"
        return complain(f"cannot read {arguments.file}: {reason}")
    flaws = contract(schema.id).explain(document)
    for flaw in flaws:
        print(flaw.words)
    if not flaws:
        print(f"fits {schema.id}")
    return 1 if flaws else 0


def _find(schema_id: str) -> Schema | None:
    schema = REGISTRY.get(schema_id)
    if schema is None:
        complain("no schema has that id; `heliograph schema list` shows them all")
    return schema
