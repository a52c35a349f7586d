"""`heliograph project …`: projects of an echo service, by whoever has its bearer. Their sites are in `site`."""

import argparse
import json
from pathlib import Path
from typing import Any

from gateway.commands.parsing import CommandError, Subparsers, print_rows, printable
from gateway.commands.project_arguments import add_action, checked_id, facts, place_of, project_of
from gateway.commands.project_file import NAME
from gateway.commands.space_arguments import given_input, seconds

PROMPT_BYTES_MAX = 32 * 1024  # of a project's own text; more is refused here, and by every instance
_FACTS = (
    "project_id", "name", "app_name", "url", "app_token", "space_id", "expires_at", "websocket_url", "protocol",
    "encryption_enabled", "encryption_key", "iam_enabled", "multi_space", "created_at",
)  # fmt: skip
_COLUMNS = ("project_id", "name", "url", "expires_at", "created_at")


def add(commands: Subparsers) -> None:
    actions = commands.add_parser(
        "project", help="projects of an echo service, each with a site and a room: create, show, book, ls, rm"
    ).add_subparsers(required=True, metavar="ACTION")
    create = add_action(actions, "create", _create, "make a project; prints its id, its url and its room's token")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--domain", metavar="LABEL", help="of its hostname (default: made of its name)")
    create.add_argument("--app-name", metavar="NAME", help="what people call it (default: its name)")
    create.add_argument(
        "--prompt", metavar="FILE", help="what clients of its rooms are told besides; - for standard input"
    )
    create.add_argument(
        "--protocol", choices=["json", "protobuf"], help="the default encoding of its rooms (default json)"
    )
    create.add_argument(
        "--ttl", metavar="TIME", help="how long its first room lasts, such as 1h (default: as long as it may)"
    )
    create.add_argument("--encryption", action="store_true", help="its rooms accept ciphertext only")
    create.add_argument("--iam", action="store_true", help="its rooms accept access tokens only")
    create.add_argument("--multi-space", action="store_true", help="allow several rooms")
    show = add_action(actions, "show", _show, "what a project is, where its site is, and the token of its room")
    show.add_argument("--prompt", action="store_true", help="print what clients of its room are told instead")
    book = add_action(
        actions, "book", _book, "give it a new, empty room; the old one ends at once, and its token stops working"
    )
    book.add_argument("--space", metavar="TOKEN", help="which room, where there are several (default: the first)")
    for parser in (show, book):
        parser.add_argument("project", nargs="?", metavar="ID", help=f"(default: that of {NAME})")
    ls = add_action(actions, "ls", _ls, "list all projects")
    for parser in (create, show, book, ls):
        parser.add_argument("--json", action="store_true", help="what the service answers, for scripts")
    rm = add_action(actions, "rm", _rm, "delete a project with its site and its rooms")
    rm.add_argument("project", metavar="ID")


def _create(arguments: argparse.Namespace) -> int:
    wishes: dict[str, Any] = {
        "domain": arguments.domain,
        "app_name": arguments.app_name,
        "protocol": arguments.protocol,
        "ttl_seconds": seconds(arguments.ttl),
        "system_prompt": None if arguments.prompt is None else _text(arguments.prompt),
        "encryption_enabled": arguments.encryption or None,
        "iam_enabled": arguments.iam or None,
        "multi_space": arguments.multi_space or None,
    }
    body = {"name": arguments.name, **{name: wish for name, wish in wishes.items() if wish is not None}}
    return _tell(place_of(arguments).api.create(body), is_json=arguments.json)


def _text(path: str) -> str:
    try:
        data = given_input().read(PROMPT_BYTES_MAX + 1) if path == "-" else _head(Path(path))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > PROMPT_BYTES_MAX:
        raise CommandError(f"the prompt is larger than {PROMPT_BYTES_MAX >> 10} KiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CommandError("the prompt is not UTF-8 text") from None


def _head(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(PROMPT_BYTES_MAX + 1)


def _show(arguments: argparse.Namespace) -> int:
    document = place_of(arguments).api.project(project_of(arguments))
    if not arguments.prompt:
        return _tell(document, is_json=arguments.json)
    for line in str(document.get("system_prompt", "")).splitlines():
        print(printable(line))
    return 0


def _book(arguments: argparse.Namespace) -> int:
    body = {} if arguments.space is None else {"space_token": arguments.space}
    return _tell(place_of(arguments).api.book(project_of(arguments), body), is_json=arguments.json)


def _tell(document: dict[str, Any], *, is_json: bool) -> int:
    if is_json:
        print(json.dumps(document))
    else:
        facts(document, *_FACTS)
        further = document.get("spaces")
        for space in further[1:] if isinstance(further, list) else []:
            if isinstance(space, dict):
                shown = (space.get("space_token"), space.get("name") or "", space.get("expires_at"))
                print(f"{'room':<18}  {printable('  '.join(map(str, shown)))}")
    return 0


def _ls(arguments: argparse.Namespace) -> int:
    projects = list(place_of(arguments).api.projects())
    if arguments.json:
        print(json.dumps(projects))
    else:
        print_rows([{column: printable(str(one.get(column, ""))) for column in _COLUMNS} for one in projects])
    return 0


def _rm(arguments: argparse.Namespace) -> int:
    project_id = checked_id(arguments.project)
    place_of(arguments).api.delete(project_id)
    print(f"deleted {project_id}: its site, its rooms and what was in them")
    return 0
