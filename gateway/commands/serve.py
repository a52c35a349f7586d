"""`heliograph serve`: run a gateway until Ctrl-C."""

import argparse
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO

import msgspec
import trio

from gateway.commands.doctor import print_findings
from gateway.commands.gateway_run import run_gateway
from gateway.commands.parsing import Subparsers, complain
from gateway.commands.processes import Processes, Ready, StoppedError
from gateway.commands.reach import person
from gateway.doctor.finding import Finding, Severity
from gateway.main.data_folder import makes_tokens
from gateway.main.engine_check import check_engine
from gateway.main.server import Running, running
from gateway.main.settings import Settings, SettingsError, from_environment
from gateway.main.signals import until_signalled
from gateway.main.start_check import start_findings
from gateway.observe.log_output import LogTargetError, log_to


def add(commands: Subparsers) -> None:
    serve = commands.add_parser("serve", help="run a gateway")
    serve.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML; SIGHUP reads them again")
    serve.add_argument("--data", metavar="DIR", help="keys, certificates and the log; made on the first start")
    serve.add_argument("--http", metavar="HOST:PORT", help="for agents (default 127.0.0.1:8420; port 0 picks one)")
    serve.add_argument("--devices", metavar="HOST:PORT", help="for nodes (default 127.0.0.1:8421)")
    serve.add_argument("--engine", metavar="URL", help="NATS, where several gateways share a fleet: nats://HOST:PORT,…")
    serve.add_argument("--processes", type=int, metavar="N", help="gateways on this machine, with --engine (default 1)")
    serve.add_argument("--log", choices=["json", "pretty"], help="default: pretty on a terminal, else JSON lines")
    serve.add_argument("--child", type=int, metavar="FD", help=argparse.SUPPRESS)  # of `processes`, its parent
    serve.add_argument("--check", action="store_true", help="print what would keep it from starting, and start nothing")
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    flags = {
        "data": arguments.data,
        "http.listen": arguments.http,
        "devices.listen": arguments.devices,
        "log.format": arguments.log,
        "engine.url": arguments.engine,
        "engine.processes": arguments.processes,
    }
    reread = partial(from_environment, arguments.config, flags)
    if arguments.check:
        return _check(reread)
    before = signal.getsignal(signal.SIGHUP)
    # Until there is something to reload, and while it stops: a hangup is no reason to end a gateway.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        settings = reread()
        reopen_log = log_to(settings.log)
        check_engine(settings)
        if arguments.child is not None:
            return run_gateway(_run_child, settings, reread, reopen_log, arguments.child)
        if settings.engine.processes > 1:
            return _run_several(settings, arguments)
        return run_gateway(_run, settings, reread, reopen_log)
    except (SettingsError, LogTargetError) as error:
        return complain(str(error))
    finally:
        signal.signal(signal.SIGHUP, before)


def _check(reread: Callable[[], Settings]) -> int:
    """Exit codes: 0 it could start, 1 it could not."""
    try:
        found = start_findings(reread())
    except SettingsError as error:
        found = [Finding(Severity.ERROR, "settings", str(error), "correct it, then check again")]
    print_findings(found)
    if not found:
        print("a gateway could start with these settings")
    return 1 if found else 0


async def _run(settings: Settings, reread: Callable[[], Settings], reopen_log: Callable[[], None]) -> None:
    async with running(settings) as gateway, trio.open_nursery() as nursery:
        await nursery.start(_reload_on_hangup, gateway, reread, reopen_log)
        # Standard output may be the log's, which has nothing but log lines.
        out = sys.stderr if settings.log.target == "stdout" else sys.stdout
        admin = "" if gateway.admin_url == gateway.http_url else f"   operators   {gateway.admin_url}"
        print(f"agents   {gateway.http_url}   nodes   {gateway.device_url}{admin}", file=out, flush=True)
        # Where tokens come from elsewhere, so do operators: whoever runs the process is none.
        if out is sys.stdout and _is_watched(out) and makes_tokens(gateway.folder.path):
            link = None if gateway.console is None else gateway.console.link_of_owner(person())
            if link is not None:
                print(f"console   {link}   good once, for {settings.console.link_s} s", flush=True)
        await until_signalled()
        nursery.cancel_scope.cancel()


def _run_several(settings: Settings, arguments: argparse.Namespace) -> int:
    given = ["serve"]
    for name in ("config", "data", "engine", "log"):
        value = getattr(arguments, name)
        given += [] if value is None else [f"--{name}", str(value)]
    processes = Processes(settings, given)
    try:
        return run_gateway(processes.run)
    except StoppedError as error:
        if str(error):
            print(f"heliograph: {error}", file=sys.stderr)
        return error.code


async def _run_child(
    settings: Settings, reread: Callable[[], Settings], reopen_log: Callable[[], None], parent: int
) -> None:
    """Until its parent asks it to stop, or is gone."""
    async with running(settings) as gateway, trio.open_nursery() as nursery:
        await nursery.start(_reload_on_hangup, gateway, reread, reopen_log)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=parent)))
        ready = Ready(gateway.http_url, gateway.device_url, gateway.admin_url)
        with suppress(trio.BrokenResourceError):
            await stream.send_all(msgspec.json.encode(ready) + b"\n")

        async def until_alone() -> None:
            with suppress(trio.BrokenResourceError):
                await stream.receive_some()
            nursery.cancel_scope.cancel()

        nursery.start_soon(until_alone)
        await until_signalled()
        nursery.cancel_scope.cancel()


async def _reload_on_hangup(
    gateway: Running,
    reread: Callable[[], Settings],
    reopen_log: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Runs until it is cancelled. Signals that come meanwhile are one more reload."""
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        task_status.started()
        async for _ in hangups:
            reopen_log()
            await gateway.reload.run(reread)


def _is_watched(out: TextIO | None) -> bool:
    """Whether a person looks at it, and nobody can read it later: a link must not be in a journal, a file or a pipe."""
    return out is not None and out.isatty()
