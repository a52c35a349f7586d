"""`heliograph node check`: try every rule of the device wire on a node, in whatever language it is written."""

import argparse
import contextlib
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trio

from actors.kit.check import Check
from actors.kit.clock_rules import KitClock
from actors.kit.facts import KitSettings
from actors.kit.gateway_rules import KitGateway
from actors.kit.player import NOTICED_MAX, Noticed, Player
from actors.kit.table import CHECKS, chosen, unknown
from actors.kit.verdicts import Outcome, Verdict
from actors.supervision.crash_report import first_leaf
from gateway.commands.parsing import CommandError, Subparsers
from gateway.kit.kit_listener import PATH, KitListener
from gateway.kit.kit_node import NodeFolder, NodeProcess
from gateway.kit.report import Tried, conforms, document, lines, place, summary
from gateway.main.settings import SettingsError
from gateway.main.signals import until_signalled
from gateway.net.tls import server_context

CHECK_S_MAX = 300.0  # for one check: a node that comes back late several times is still waited for
RUN_S_MAX = 3600.0
LOOPBACK = "127.0.0.1"
_LOOK = "Its own log says more; --node-log FILE keeps that of a node that the kit starts."


def add(actions: Subparsers) -> None:
    defaults = KitSettings()
    check = actions.add_parser(
        "check",
        help="try every rule of the device wire on a node in any language",
        description="A gateway that tries every rule of the device wire on the node that dials in.",
    )
    check.add_argument("--out", type=Path, metavar="DIR", help="for the node's identity (default: a temporary folder)")
    check.add_argument("--devices", default=f"{LOOPBACK}:0", metavar="HOST:PORT", help="where the node dials")
    check.add_argument("--only", action="append", default=[], metavar="SECTION", help="of the reference, or a check")
    check.add_argument("--quick", action="store_true", help="leave out checks that take half a minute by their nature")
    check.add_argument("--json", action="store_true", help="print the outcome as JSON; progress is on standard error")
    check.add_argument("--list", action="store_true", help="print the checks and do nothing else")
    for name, seconds, what in (
        ("--wait", defaults.first_dial_s, "for the first connection"),
        ("--patience", defaults.patience_s, "for the node to come back, each time"),
        ("--check-timeout", CHECK_S_MAX, "for each check"),
        ("--timeout", RUN_S_MAX, "for the whole run"),
    ):
        check.add_argument(name, type=float, default=seconds, metavar="S", help=f"{what} (default: {seconds:g})")
    check.add_argument("--node-log", type=Path, metavar="FILE", help="takes what the started node prints")
    check.add_argument("--tls-certificate", metavar="FILE", help="PEM; the node then dials wss://")
    check.add_argument("--tls-key", metavar="FILE", help="PEM, without a password")
    check.add_argument(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="behind --: starts the node; {folder} and {url} in it are filled in. Then crashes can be tried as well",
    )
    check.set_defaults(run=_check)


@dataclass(frozen=True, slots=True)
class _Plan:
    host: str
    port: int
    tls: ssl.SSLContext | None
    checks: tuple[Check, ...]
    command: tuple[str, ...]
    node_log: Path | None
    settings: KitSettings
    is_quick: bool
    is_json: bool
    check_s_max: float
    run_s_max: float

    def say(self, text: str) -> None:
        print(text, file=sys.stderr if self.is_json else sys.stdout, flush=True)


def _check(arguments: argparse.Namespace) -> int:
    if arguments.list:
        for check in CHECKS:
            print(f"{place(check):7} {check.name:36} {check.must}{' (slow)' if check.is_slow else ''}")
        return 0
    plan = _plan(arguments)
    with _folder(arguments.out) as path:
        try:
            folder = NodeFolder(path, time.time_ns() // 1_000_000)
        except OSError as error:
            raise CommandError(f"cannot write to {path}: {error.strerror}") from error
        try:
            run = trio.run(_run, plan, folder)
        except ExceptionGroup as crash:
            leaf = first_leaf(crash)
            raise leaf if isinstance(leaf, CommandError) else crash from None
    if run is None:
        return 130
    if plan.is_json:
        print(json.dumps(document(folder.enrolled.identity.node_id, run)))
    else:
        print(f"\n{summary(run)}")
    return 0 if conforms(run) else 1


def _plan(arguments: argparse.Namespace) -> _Plan:
    strange = unknown(arguments.only)
    if strange:
        raise CommandError("--only names no section and no check; --list shows them")
    for name in ("wait", "patience", "check_timeout", "timeout"):
        if not 0 < getattr(arguments, name) <= 7 * 24 * 3600:
            raise CommandError(f"--{name.replace('_', '-')} needs a number of seconds, at most a week")
    host, _, port = arguments.devices.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise CommandError("--devices needs HOST:PORT, such as 0.0.0.0:8421")
    try:
        tls = server_context("--", arguments.tls_certificate, arguments.tls_key)
    except SettingsError as error:
        raise CommandError(str(error).replace("--.tls_", "--tls-")) from error
    return _Plan(
        host=host.strip("[]"),
        port=int(port),
        tls=tls,
        checks=chosen(arguments.only),
        command=tuple(arguments.command),
        node_log=arguments.node_log,
        settings=KitSettings(first_dial_s=arguments.wait, patience_s=arguments.patience),
        is_quick=arguments.quick,
        is_json=arguments.json,
        check_s_max=arguments.check_timeout,
        run_s_max=arguments.timeout,
    )


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="heliograph-check-") as made:
            yield Path(made) / "node"
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CommandError(f"{out} exists: the kit makes a new identity, in a folder that is not there yet")
    yield out


async def _run(plan: _Plan, folder: NodeFolder) -> list[Tried] | None:
    """What came of each check; None if a signal ended the run."""
    run: list[Tried] | None = None
    clock = KitClock(trio.current_time(), time.time_ns() // 1_000_000)
    gateway = KitGateway(folder.enrolled, plan.settings, clock, os.urandom, can_start=bool(plan.command))
    notices, noticed = trio.open_memory_channel[Noticed](NOTICED_MAX)
    async with trio.open_nursery() as nursery:
        try:
            port = await KitListener(notices, plan.tls).listen(nursery, plan.host, plan.port)
        except OSError as error:
            raise CommandError(f"cannot listen on {plan.host}:{plan.port} ({error.strerror}): name another") from error
        host = _reached_at(plan.host, bool(plan.command))
        url = f"{'ws' if plan.tls is None else 'wss'}://{host}:{port}{PATH}"
        command = [part.replace("{folder}", str(folder.path)).replace("{url}", url) for part in plan.command]
        process = NodeProcess(folder, command, plan.node_log, notices, nursery)
        nursery.start_soon(_until_signalled, nursery.cancel_scope)
        try:
            await _begin(plan, folder, process, url)
            run = await _play(plan, Player(gateway, process, noticed))
            if not gateway.has_dialled:
                plan.say(
                    f"\nNo node connected to {url}. Can it reach that address, and does it dial that path? {_LOOK}"
                )
        finally:
            with trio.CancelScope(shield=True):
                await process.kill()
        nursery.cancel_scope.cancel()
    return run


async def _until_signalled(scope: trio.CancelScope) -> None:
    await until_signalled()
    scope.cancel()


def _reached_at(host: str, is_here: bool) -> str:
    if host in ("0.0.0.0", "::"):
        return LOOPBACK if is_here else "THIS-MACHINE"
    return f"[{host}]" if ":" in host else host


async def _begin(plan: _Plan, folder: NodeFolder, process: NodeProcess, url: str) -> None:
    if plan.command:
        plan.say(f"Starting the node, to connect to {url} ...\n")
        try:
            await process.start()
        except OSError as error:
            raise CommandError(f"cannot start {plan.command[0]}: {error.strerror}") from error
        return
    plan.say(f"The node's identity is in {folder.path}. Copy the folder if the node runs on another machine.")
    plan.say(f"Start the node with that folder and this address:\n\n  {url}\n")
    plan.say(f"For example, our own node:\n\n  heliograph node run {folder.path} --gateway {url}\n")
    plan.say(f"Waiting up to {plan.settings.first_dial_s:g} s for it to connect ...\n")


async def _play(plan: _Plan, player: Player) -> list[Tried]:
    run: list[Tried] = []
    until = trio.current_time() + plan.run_s_max
    for check in plan.checks:
        tried = await _try(plan, player, check, until - trio.current_time())
        run.append(tried)
        for line in lines(tried):
            plan.say(line)
    return run


async def _try(plan: _Plan, player: Player, check: Check, left_s: float) -> Tried:
    if check.is_slow and plan.is_quick:
        return Tried(check, Verdict(Outcome.NOT_TRIED, why="it is slow, and --quick was given"), 0.0)
    if left_s <= 0:
        why = f"the run had its {plan.run_s_max:g} s; give it more with --timeout"
        return Tried(check, Verdict(Outcome.NOT_TRIED, why=why, is_open=True), 0.0)
    began = trio.current_time()
    wait_s = 0.0 if player.gateway.has_dialled else plan.settings.first_dial_s
    verdict = await player.play(check, min(left_s, plan.check_s_max + wait_s))
    return Tried(check, verdict, trio.current_time() - began)
