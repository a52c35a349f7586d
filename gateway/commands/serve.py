"""`heliograph serve`: run a gateway until Ctrl-C."""

import argparse
import logging
import sys
from pathlib import Path

import msgspec
import structlog

from gateway.commands.gateway_run import run_gateway
from gateway.commands.parsing import Subparsers, complain
from gateway.server import running, until_signalled
from gateway.settings import Settings, SettingsError, from_environment


def add(commands: Subparsers) -> None:
    serve = commands.add_parser("serve", help="run a gateway")
    serve.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML")
    serve.add_argument("--data", metavar="DIR", help="keys, certificates and the log; made on the first start")
    serve.add_argument("--http", metavar="HOST:PORT", help="for agents (default 127.0.0.1:8420; port 0 picks one)")
    serve.add_argument("--devices", metavar="HOST:PORT", help="for nodes (default 127.0.0.1:8421)")
    serve.add_argument("--log", choices=["json", "pretty"], help="default: pretty on a terminal, else JSON lines")
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    flags = {"data": arguments.data, "http.listen": arguments.http, "devices.listen": arguments.devices}
    configure_log(arguments.log or ("pretty" if sys.stderr.isatty() else "json"))
    try:
        settings = from_environment(arguments.config, flags)
    except SettingsError as error:
        return complain(str(error))
    return run_gateway(_run, settings)


async def _run(settings: Settings) -> None:
    async with running(settings) as gateway:
        print(f"agents   {gateway.http_url}   nodes   {gateway.device_url}", flush=True)
        await until_signalled()


def configure_log(form: str, level: int = logging.INFO) -> None:
    """Audit and operation, one line an event, on standard error."""
    encode = msgspec.json.Encoder(enc_hook=repr).encode
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(serializer=lambda event, **_: encode(event).decode())
        if form == "json"
        else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,  # every call leaves a line
    )
