"""`heliograph restore FILE --data DIR`: a data folder made of a backup."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

from gateway.backup.gathering import BackupError
from gateway.backup.restoring import check, restore
from gateway.commands.backup import spoken, summary, warned
from gateway.commands.ending import cleaned_when_ended
from gateway.commands.parsing import CommandError, Subparsers, printable
from gateway.commands.reach import add_data, data_path


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("restore", help="make a data folder of a backup")
    parser.add_argument("file", type=Path, metavar="FILE", help="what `heliograph backup` has written")
    parser.add_argument("--check", action="store_true", help="read all of it and say whether it can be restored")
    parser.add_argument("--json", action="store_true", help="what is in it, for scripts")
    add_data(parser)
    parser.set_defaults(run=_restore)


def _restore(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 restored, or it could be; 2 it cannot be restored there."""
    folder = data_path(arguments)
    try:
        if arguments.check:
            manifest = check(arguments.file)
        else:
            with cleaned_when_ended():
                manifest = restore(arguments.file, folder)
    except BackupError as error:
        raise CommandError(str(error)) from None
    if arguments.json:
        print(json.dumps(summary(manifest)))
        return 0
    made_at = datetime.fromtimestamp(manifest.made_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    of = f"{len(manifest.members)} files of {made_at}, {spoken(manifest)}"
    print(f"{arguments.file} can be restored: {of}" if arguments.check else f"{folder}: {of}")
    for line in warned(manifest):
        print(line)
    if not arguments.check:
        print("Tokens and nodes that were revoked after that are not: see that the old gateway is gone, revoke them,")
        print(f"then start: heliograph serve --data {printable(str(folder))}")
    return 0
