"""The `heliograph` command."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from gateway.commands.extras import add_command, needed
from gateway.commands.parsing import CommandError, complain

COMMANDS = (
    "demo", "serve", "node", "nodes", "log", "token", "member", "members", "call", "watch", "space", "spaces",
    "project", "site", "push", "ledger", "policy", "audit", "console", "backup", "restore", "doctor",
    "engine", "ray", "schema",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the answer is no or the gateway had to stop, 2 the command was used wrongly."""
    arguments = parser_for(sys.argv[1:] if argv is None else argv).parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        if sys.stdout is not None:  # else it was closed before we began, and nobody wants to read
            sys.stdout.flush()
    except CommandError as error:
        return complain(str(error))
    except ModuleNotFoundError as missing:  # of a module that is imported only where it is used
        return complain(str(needed(missing)))
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # the output is a full disk, or closed; what goes wrong elsewhere has its own words
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return complain(f"cannot write the output: {error.strerror}")
    except KeyboardInterrupt:
        return 130
    return code


def parser_for(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="heliograph", description="The gateway through which AI agents reach live devices."
    )
    parser.add_argument("--version", action="version", version=f"heliograph {version('heliograph')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # A command that is named is the only one to be imported: the others' modules take longer than most commands do.
    for name in argv[:1] if argv[:1] and argv[0] in COMMANDS else COMMANDS:
        add_command(commands, name, [name])
    return parser


if __name__ == "__main__":
    sys.exit(main())
