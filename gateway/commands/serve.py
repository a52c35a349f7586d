"""`heliograph serve`: run a gateway until Ctrl-C."""

import argparse
import sys
from pathlib import Path
from typing import TextIO

from gateway.commands.gateway_run import run_gateway
from gateway.commands.parsing import Subparsers, complain
from gateway.commands.reach import person
from gateway.main.data_folder import makes_tokens
from gateway.main.server import running, until_signalled
from gateway.main.settings import Settings, SettingsError, from_environment
from gateway.observe.log_output import LogTargetError, log_to


def add(commands: Subparsers) -> None:
    serve = commands.add_parser("serve", help="run a gateway")
    serve.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    serve.add_argument("--data", metavar="DIR", help="keys, certificates and the log; made on the first start")
    serve.add_argument("--http", metavar="HOST:PORT", help="for agents (default 127.0.0.1:8420; port 0 picks one)")
    serve.add_argument("--devices", metavar="HOST:PORT", help="for nodes (default 127.0.0.1:8421)")
    serve.add_argument("--log", choices=["json", "pretty"], help="default: pretty on a terminal, else JSON lines")
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    flags = {
        "data": arguments.data,
        "http.listen": arguments.http,
        "devices.listen": arguments.devices,
        "log.format": arguments.log,
    }
    try:
        settings = from_environment(arguments.config, flags)
        log_to(settings.log)
    except (SettingsError, LogTargetError) as error:
        return complain(str(error))
    return run_gateway(_run, settings)


async def _run(settings: Settings) -> None:
    async with running(settings) as gateway:
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


def _is_watched(out: TextIO | None) -> bool:
    """Whether a person looks at it, and nobody can read it later: a link must not be in a journal, a file or a pipe."""
    return out is not None and out.isatty()
