"""What the subcommands share: how they complain, and the options that several have."""

import argparse
import sys
from pathlib import Path
from typing import Any, TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


def complain(what: str) -> int:
    """Say what is wrong and what to do; the exit code of wrong use."""
    print(f"heliograph: {what}", file=sys.stderr)
    return 2


def add_data(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--data", metavar="DIR", help="the gateway's data folder (default: heliograph-data)")


def data_path(arguments: argparse.Namespace) -> Path:
    return Path(arguments.data or "heliograph-data")


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A table with its widths made to fit."""
    if not rows:
        print("none")
        return
    columns = list(rows[0])
    widths = [max(len(column), *(len(str(row[column])) for row in rows)) for column in columns]
    for cells in (columns, *([str(row[column]) for column in columns] for row in rows)):
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
