"""`heliograph space join`: the room of a space in a terminal; with --json, one frame a line, in and out."""

import argparse
import signal
import sys
import threading

import trio

from actors.supervision.crash_report import first_leaf
from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.space_arguments import add_action, space_of
from gateway.commands.space_envelope import RoomSeal
from gateway.commands.space_guest import Guest
from gateway.commands.space_join_rules import HELP, Presence
from schemas.echo.frames import SUBS_MAX
from schemas.echo.names import is_name


def add(actions: Subparsers) -> None:
    join = add_action(actions, "join", _join, "the room: what others say is printed, what you type is sent")
    join.description = f"What you type goes to everybody. {HELP}."
    join.add_argument("--uid", help="who to be (default: the service picks one)")
    join.add_argument("--subs", default="", metavar="A,B", help="subspaces to be in from the start")
    join.add_argument("--self", dest="wants_copy", action="store_true", help="receive your own messages too")
    join.add_argument("--listen", action="store_true", help="do not read standard input; until Ctrl-C")
    join.add_argument("--json", action="store_true", help="one JSON frame a line, in and out")


def _join(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 you left (or Ctrl-C), 1 the room is over or would not let you in, 2 wrong use or no service."""
    service, link = space_of(arguments)
    subs = [sub for sub in arguments.subs.split(",") if sub]
    if len(subs) > SUBS_MAX or not all(map(is_name, [*subs, *([] if arguments.uid is None else [arguments.uid])])):
        raise CommandError(
            f"a uid or a subspace is 1 to 64 of A-Z a-z 0-9 . _ : @ ~ -, and there are at most {SUBS_MAX} subspaces"
        )
    document = service.info(link.api) or {}
    is_encrypted = document.get("encryption_enabled") is True
    seal = RoomSeal(link.token, document["space_id"]) if is_encrypted else None
    guest = Guest(link, Presence(arguments.uid, subs, arguments.wants_copy), seal, is_json=arguments.json)
    descriptor = None if arguments.listen or sys.stdin is None else sys.stdin.fileno()
    try:
        return trio.run(_until_signalled, guest, descriptor)
    except ExceptionGroup as group:  # such as that nobody reads the output any more
        raise first_leaf(group) from None


async def _until_signalled(guest: Guest, descriptor: int | None) -> int:
    """Ctrl-C is how a person leaves: the room is told, and the exit code is 0."""
    if threading.current_thread() is not threading.main_thread():
        return await guest.stay(descriptor)
    status = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def leave() -> None:
                await anext(signals)
                nursery.cancel_scope.cancel()

            nursery.start_soon(leave)
            status = await guest.stay(descriptor)
            nursery.cancel_scope.cancel()
    return status
