"""`heliograph space …`: make a space, see its facts, close it. Its values, files and room are in the modules beside."""

import argparse
import json
import os
import re
import sys
from typing import Any
from urllib.parse import urlencode

from gateway.commands import space_files, space_join, space_kv
from gateway.commands.parsing import CommandError, Subparsers, printable
from gateway.commands.space_arguments import add_action, answered, link_of, seconds, secret, space_of
from gateway.commands.space_client import EchoService
from gateway.commands.space_link_rules import WHAT_A_BASE_IS, SpaceLink, read_base, read_link
from gateway.main.command_variables import SPACE, SPACE_CLAIM, SPACE_PASSWORD
from schemas.echo.names import is_ulid

_FORM = {"content-type": "application/x-www-form-urlencoded"}
_FACTS = ("space_id", "expires_at", "protocol", "encryption_enabled", "encryption_key", "iam_enabled", "websocket_url")


def add(commands: Subparsers) -> None:
    actions = commands.add_parser(
        "space", help="use echo spaces of any instance: create, show, kv, put, get, files, join, close"
    ).add_subparsers(required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a space; prints its link and its claim")
    create.add_argument("--url", required=True, metavar="BASE", help="of the service, such as https://HOST")
    create.add_argument("--encryption", action="store_true", help="accept ciphertext only")
    create.add_argument("--protocol", choices=["json", "protobuf"], help="its default encoding (default json)")
    create.add_argument("--ttl", metavar="TIME", help="how long it lasts, such as 1h (default: as long as it may)")
    create.add_argument(
        "--password", action="store_true", help=f"ask for the service's password, or read a line (or {SPACE_PASSWORD})"
    )
    create.add_argument("--json", action="store_true", help="the whole document, for scripts")
    create.set_defaults(run=answered(_create))
    show = add_action(actions, "show", _show, "what the space is, when it ends and how it is reached")
    show.add_argument("--prompt", action="store_true", help="print what an agent is told of it instead")
    show.add_argument("--json", action="store_true", help="the whole document, for scripts")
    space_kv.add(actions)
    space_files.add(actions)
    space_join.add(actions)
    close = add_action(actions, "close", _close, "end a space: its creator with the claim, an operator by its id")
    close.add_argument(
        "--claim",
        action="store_true",
        help=f"ask for the claim, or read a line (default: {SPACE_CLAIM}, or the link's)",
    )
    close.add_argument("--data", metavar="DIR", help="with a space_id in place of LINK: the gateway's data folder")


def _create(arguments: argparse.Namespace) -> int:
    base = read_base(arguments.url)
    if base is None:
        raise CommandError(WHAT_A_BASE_IS)
    fields = {"protocol": arguments.protocol or "json"}
    if arguments.encryption:
        fields["encryption"] = "on"
    lasts_s = seconds(arguments.ttl)
    if lasts_s is not None:
        fields["ttl_seconds"] = str(lasts_s)
    if arguments.password or os.environ.get(SPACE_PASSWORD):
        fields["password"] = secret(SPACE_PASSWORD, "password")
    service = EchoService(base)
    with service.open("POST", "/spaces", urlencode(fields).encode(), _FORM) as response:
        made = service.document(response, "token")
    if arguments.json:
        print(json.dumps(made))
        return 0
    _print_facts(
        [
            ("link", _page(made, base)),
            ("claim", f"{made.get('claim', '')}   (shown once: it closes the space)"),
            ("expires_at", made.get("expires_at")),
        ]
    )
    return 0


def _page(document: dict[str, Any], base: str) -> str:
    """As the service says it, if that is a link at all."""
    told = read_link(str(document.get("dashboard_url", "")), None)
    return SpaceLink(base, str(document["token"])).page if told is None else told.page


def _show(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    document = None if arguments.prompt else service.info(link.api)
    if document is None and not arguments.json:
        with service.open("GET", f"/s/{link.token}/prompt", None, {"accept": "text/plain"}) as response:
            for line in service.text(response).splitlines():
                print(printable(line))
    elif document is None:
        raise CommandError("this instance has no document of its spaces: leave --json out, and see the prompt")
    elif arguments.json:
        print(json.dumps(document))
    else:
        _print_facts([("link", _page({"token": link.token, **document}, link.base))])
        _print_facts([(name, document[name]) for name in _FACTS if name in document])
    return 0


def _print_facts(facts: list[tuple[str, Any]]) -> None:
    for name, value in facts:
        shown = ("off", "on")[value] if isinstance(value, bool) else value
        print(f"{name:<18}  {printable(str(shown))}")


def _close(arguments: argparse.Namespace) -> int:
    given = arguments.link or os.environ.get(SPACE, "").strip()
    if is_ulid(given):
        return _close_as_operator(arguments.data, given)
    link = link_of(arguments)
    claim = (None if arguments.claim else link.claim) or secret(SPACE_CLAIM, "claim")
    if not re.fullmatch("[!-~]+", claim):
        raise CommandError(
            f"a space is closed with the claim that `space create` printed: put it into {SPACE_CLAIM}, or give --claim"
        )
    EchoService(link.base).order("DELETE", link.api, {"authorization": f"Bearer {claim}"})
    print("closed: everything in the space is erased")
    return 0


def _close_as_operator(data: str | None, space_id: str) -> int:
    # Here, because these take longer to import than any other of these commands takes in all.
    from gateway.commands.reach import Operator, RefusedError, data_path
    from gateway.identity.tokens import OperatorScope

    path = data_path(argparse.Namespace(data=data))
    try:
        Operator(path, [OperatorScope.FLEET_WRITE]).delete(f"/admin/spaces/{space_id}")
    except RefusedError as error:
        print(json.dumps(error.envelope), file=sys.stderr)
        return 1
    print(f"closed {space_id}: everything in the space is erased")
    return 0
