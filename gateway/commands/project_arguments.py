"""What the commands of projects and sites share: which service, its bearer, which project."""

import argparse
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.commands import project_file
from gateway.commands.parsing import CommandError, Subparsers, printable
from gateway.commands.project_client import KeptService, ProjectApi
from gateway.commands.space_arguments import answered
from gateway.commands.space_client import EchoService
from gateway.commands.space_link_rules import WHAT_A_BASE_IS, read_base
from gateway.main.command_variables import BEARERS, URL

_BEARER = re.compile("[!-~]{1,4096}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a service is, and what it is known by."""

    base: str
    bearer: str
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Place({self.base!r})"

    @property
    def api(self) -> ProjectApi:
        return ProjectApi(EchoService(self.base, self.tls), self.bearer)

    def kept_service(self) -> KeptService:
        return KeptService(self.base, self.tls)


def add_action(
    actions: Subparsers, name: str, run: Callable[[argparse.Namespace], int], help_: str, **more: Any
) -> argparse.ArgumentParser:
    """A command about a project."""
    parser = actions.add_parser(name, help=help_, **more)
    parser.add_argument(
        "--url", metavar="BASE", help=f"of the service (default: {URL}, or the gateway that runs on the data folder)"
    )
    parser.add_argument("--data", metavar="FOLDER", help="of a gateway (default: HELIOGRAPH_DATA, or heliograph-data)")
    parser.set_defaults(run=answered(run))
    return parser


def place_of(arguments: argparse.Namespace) -> Place:
    """Raises CommandError."""
    bearer = next(filter(None, (os.environ.get(name, "").strip() for name in BEARERS)), "")
    if not _BEARER.fullmatch(bearer):
        raise CommandError(f"put the bearer of the project API into {BEARERS[1]}, or into {BEARERS[0]}")
    url = arguments.url or os.environ.get(URL, "").strip()
    if url:
        base = read_base(url)
        if base is None:
            raise CommandError(WHAT_A_BASE_IS)
        return Place(base, bearer)
    # Here, because these take longer to import than any other of these commands takes in all.
    from gateway.commands.reach import Gateway, data_path

    try:
        gateway = Gateway.on(data_path(arguments))
    except CommandError as error:
        raise CommandError(f"{error}; or name the service with --url or {URL}") from None
    return Place(gateway.url, bearer, gateway.tls)


def checked_id(text: str) -> str:
    if not project_file.is_project_id(text):
        raise CommandError("a project is named by its id; `heliograph project ls` lists them")
    return text


def project_of(arguments: argparse.Namespace, folder: Path | None = None) -> str:
    """The one that was named, else that of the folder (default: the current one). Raises CommandError."""
    if arguments.project is not None:
        return checked_id(arguments.project)
    found = project_file.find(Path.cwd() if folder is None else folder)
    if found is None:
        raise CommandError(
            f"there is no {project_file.NAME} here: name the project by its id; `heliograph project ls` lists them"
        )
    return found[1]


def facts(document: dict[str, Any], *names: str) -> None:
    for name in names:
        if name in document:
            value = document[name]
            shown = ("off", "on")[value] if isinstance(value, bool) else "none" if value is None else value
            print(f"{name:<18}  {printable(str(shown))}")
