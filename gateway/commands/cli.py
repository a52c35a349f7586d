"""The `heliograph` command."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from gateway.commands import call, demo, ledger, operate, policy, schema, serve, watch


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the answer is no or the gateway had to stop, 2 the command was used wrongly."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heliograph", description="The gateway through which AI agents reach live devices."
    )
    parser.add_argument("--version", action="version", version=f"heliograph {version('heliograph')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for topic in (demo, serve, operate, call, watch, ledger, policy, schema):
        topic.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
