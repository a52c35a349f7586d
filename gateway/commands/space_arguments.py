"""What the commands of echo spaces share: which space, the secrets that are no arguments, and how they end.

A process list shows arguments to everybody on a machine. So passwords and claims come from the environment, from a
terminal or from standard input.
"""

import argparse
import getpass
import io
import os
import sys
from collections.abc import Callable
from typing import IO

from gateway.commands.parsing import CommandError, Subparsers, printable
from gateway.commands.space_client import EchoService, SpaceRefusedError
from gateway.commands.space_link_rules import WHAT_A_LINK_IS, SpaceLink, read_link
from gateway.main.command_variables import SPACE
from gateway.main.durations import duration_s
from schemas.echo.names import is_key

SECRET_CHARS_MAX = 1024  # of a password or a claim; what follows is not read


def add_action(
    actions: Subparsers, name: str, run: Callable[[argparse.Namespace], int], help_: str
) -> argparse.ArgumentParser:
    """A command about one space, which is its first argument."""
    parser = actions.add_parser(name, help=help_)
    parser.add_argument("link", nargs="?", metavar="LINK", help=f"of the space, or its token (default: {SPACE})")
    parser.add_argument("--url", metavar="BASE", help="where the service is, if a token is given instead of a link")
    parser.set_defaults(run=answered(run))
    return parser


def answered(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """With what the service refuses in one line, and exit code 1."""

    def running(arguments: argparse.Namespace) -> int:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # others write what this terminal may not have
        try:
            return run(arguments)
        except SpaceRefusedError as refused:
            print(f"heliograph: {printable(str(refused))}", file=sys.stderr)
            return 1

    return running


def link_of(arguments: argparse.Namespace) -> SpaceLink:
    """Raises CommandError."""
    link = read_link(arguments.link or os.environ.get(SPACE, "").strip(), arguments.url)
    if link is None:
        raise CommandError(WHAT_A_LINK_IS)
    return link


def space_of(arguments: argparse.Namespace) -> tuple[EchoService, SpaceLink]:
    """Raises CommandError."""
    link = link_of(arguments)
    return EchoService(link.base), link


def checked_key(text: str) -> str:
    if not is_key(text):
        raise CommandError("a key is 1 to 128 of A-Z a-z 0-9 . _ : @ ~ - and is neither . nor ..")
    return text


def seconds(text: str | None) -> int | None:
    """Of --ttl."""
    if text is None:
        return None
    found = duration_s(text)
    if found is None:
        raise CommandError("--ttl is a number and a unit, such as 10m, 12h or 7d")
    return found


def output() -> IO[bytes]:
    """For bytes as they are, which a terminal is not shown."""
    if sys.stdout is None or sys.stdout.isatty():
        raise CommandError("the bytes would go to the terminal: redirect the output, or name a file with --out")
    return sys.stdout.buffer


def given_input() -> IO[bytes]:
    if sys.stdin is None:
        raise CommandError("there is no standard input to read from")
    return sys.stdin.buffer


def secret(variable: str, prompt: str) -> str:
    """From the environment, else from whoever sits at the terminal, else the first line of standard input."""
    given = os.environ.get(variable, "").strip()
    if given:
        return given
    if sys.stdin is None:
        return ""
    try:
        typed = getpass.getpass(f"{prompt}: ") if sys.stdin.isatty() else sys.stdin.readline(SECRET_CHARS_MAX)
    except EOFError:
        typed = ""
    return typed.rstrip("\r\n")
