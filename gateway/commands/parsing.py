"""What all subcommands share: how they fail, and how a table looks."""

import argparse
import sys
from typing import Any, TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


class CommandError(Exception):
    """What was asked cannot be done; the text says why and what to do. The command ends with exit code 2."""


def complain(what: str) -> int:
    """Say what is wrong and what to do; the exit code of wrong use."""
    print(f"heliograph: {printable(what)}", file=sys.stderr)
    return 2


def printable(text: str) -> str:
    """Without what a terminal would obey: the text may be from elsewhere."""
    return "".join(character for character in text if character.isprintable())


def print_rows(rows: list[dict[str, Any]]) -> None:
    print("\n".join(table(rows)))


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The lines of a table with its widths made to fit."""
    if not rows:
        return ["none"]
    columns = list(rows[0])
    widths = [max(len(column), *(len(str(row[column])) for row in rows)) for column in columns]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in (columns, *([str(row[column]) for column in columns] for row in rows))
    ]
