"""The `heliograph` command."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import jiter

from gateway.demo import run_demo
from schemas.contract import contract
from schemas.registry import REGISTRY


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the answer is no, 2 the command was used wrongly."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heliograph", description="The gateway through which AI agents reach live devices."
    )
    parser.add_argument("--version", action="version", version=f"heliograph {version('heliograph')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="run a gateway with five made-up nodes, call them, and show what happens")
    demo.set_defaults(run=lambda _: run_demo())

    schema = commands.add_parser("schema", help="look at the published schemas, or check a document against one")
    actions = schema.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="all ids with their content hashes")
    listing.add_argument("--json", action="store_true", help="for scripts")
    listing.set_defaults(run=_schema_list)
    show = actions.add_parser("show", help="print one schema exactly as it is published")
    show.add_argument("id", help="such as system.echo.invoke.input@1.0.0")
    show.set_defaults(run=_schema_show)
    check = actions.add_parser("check", help="say where a JSON document breaks a schema (exit 1 if it does)")
    check.add_argument("id", help="such as manifest@1.0.0")
    check.add_argument("file", type=Path, help="the JSON document, or - for standard input")
    check.set_defaults(run=_schema_check)
    return parser


def _schema_list(arguments: argparse.Namespace) -> int:
    hashes = {schema.id: schema.content_hash for schema in REGISTRY}
    if arguments.json:
        print(json.dumps(hashes, indent=2))
    else:
        for schema_id, content_hash in hashes.items():
            print(f"{schema_id:<42}{content_hash}")
    return 0


def _schema_show(arguments: argparse.Namespace) -> int:
    schema = REGISTRY.get(arguments.id)
    if schema is None:
        return _unknown_schema()
    print(schema.body.decode(), end="")
    return 0


def _schema_check(arguments: argparse.Namespace) -> int:
    schema = REGISTRY.get(arguments.id)
    if schema is None:
        return _unknown_schema()
    try:
        data = sys.stdin.buffer.read() if str(arguments.file) == "-" else arguments.file.read_bytes()
        document = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON, or has a key twice, or is too deep"
        print(f"heliograph: cannot read {arguments.file}: {reason}", file=sys.stderr)
        return 2
    flaws = contract(schema.id).explain(document)
    for flaw in flaws:
        print(flaw.words)
    if not flaws:
        print(f"fits {schema.id}")
    return 1 if flaws else 0


def _unknown_schema() -> int:
    print("heliograph: no schema has that id; `heliograph schema list` shows them all", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
