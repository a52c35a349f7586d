"""One distribution, two installs: `heliograph` is what a node needs, `heliograph[gateway]` is all of it.

A command whose packages are not installed is still listed and still parsed: it says which line to type. Which packages
belong to which install is in pyproject.toml (docs/adr/0051-one-distribution-two-installs.md).
"""

import argparse
import importlib
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from gateway.commands.parsing import CommandError, Subparsers

OURS = {"actors", "gateway", "schemas"}
ENGINE = {"nats"}  # what only `heliograph[engine]` has
RAY = {"ray"}  # what only `heliograph[ray]` has


def add_command(commands: Subparsers, module: str, names: Sequence[str]) -> None:
    """Add what a module of `gateway.commands` adds: the parsers of `names`. If its packages are missing, stand-ins."""
    try:
        adds = importlib.import_module(f"gateway.commands.{module}")
    except ModuleNotFoundError as missing:
        wanted = needed(missing)
        for name in names:
            # No option is known, --help neither, so that every use ends in the same words.
            parser = commands.add_parser(
                name, help="not installed: it is one of the gateway's commands", add_help=False, prefix_chars="\0"
            )
            parser.add_argument("rest", nargs=argparse.REMAINDER)
            parser.set_defaults(run=partial(_say, wanted))
    else:
        adds.add(commands)


def needed(missing: ModuleNotFoundError) -> CommandError:
    """What to say of a package that is not installed. A module of ours that is missing is a fault, and raised again."""
    package = (missing.name or "").partition(".")[0]
    if not package or package in OURS:
        raise missing
    extra = "gateway,engine" if package in ENGINE else "gateway,engine,ray" if package in RAY else "gateway"
    return CommandError(f"{package} is not installed, which this command needs: pip install 'heliograph[{extra}]'")


def _say(wanted: CommandError, _: argparse.Namespace) -> NoReturn:
    raise wanted
