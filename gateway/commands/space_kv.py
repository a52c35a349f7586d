"""`heliograph space kv get | set | ls | rm`: the values of a space. In an encrypted room they are opened and sealed
here, unless --raw says otherwise."""

import argparse
import base64
import json
import sys
from typing import Any
from urllib.parse import quote

from gateway.commands.parsing import CommandError, Subparsers, print_rows, printable
from gateway.commands.space_arguments import add_action, checked_key, given_input, output, seconds, space_of
from gateway.commands.space_client import EchoService, SpaceRefusedError
from gateway.commands.space_envelope import RoomSeal
from gateway.commands.space_link_rules import SpaceLink

VALUE_BYTES_MAX = 8 * 1024 * 1024  # of standard input; more is refused here, and every instance takes less
_UNOPENED = "it is not sealed with the room's own key, or not for this key: --raw prints it as it is"


def add(actions: Subparsers) -> None:
    of_kv = actions.add_parser("kv", help="get, set, list and remove values").add_subparsers(
        required=True, metavar="ACTION"
    )
    get = add_action(of_kv, "get", _get, "print a value")
    set_ = add_action(of_kv, "set", _set, "write a value")
    for parser in (get, set_):
        parser.add_argument("key", metavar="KEY")
    set_.add_argument("value", metavar="VALUE", help="- for standard input")
    set_.add_argument("--ttl", metavar="TIME", help="how long it lasts, such as 10m (default: as long as the space)")
    set_.add_argument("--if-match", type=int, metavar="VERSION", help="write only over this version")
    set_.add_argument("--raw", action="store_true", help="VALUE is an envelope already, or the room is not encrypted")
    get.add_argument("--raw", action="store_true", help="leave an envelope closed")
    ls = add_action(of_kv, "ls", _ls, "list the keys")
    ls.add_argument("--prefix", default="", help="only keys that begin with it")
    for parser in (get, set_, ls):
        parser.add_argument("--json", action="store_true", help="what the service answers, for scripts")
    rm = add_action(of_kv, "rm", _rm, "remove a value")
    rm.add_argument("key", metavar="KEY")


def _get(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    key = checked_key(arguments.key)
    entry = service.ask("GET", f"{link.api}/kv/{key}", wants="key")
    value = _value(entry)
    if entry.get("encrypted") is True and not arguments.raw:
        opened = _seal(service, link).open_value(key, value.decode(errors="replace"))
        if opened is None:
            raise SpaceRefusedError("invalid_encryption", f"The value cannot be opened: {_UNOPENED}.")
        value = opened
        entry = {**entry, **_as_members(value)}
    if arguments.json:
        print(json.dumps(entry))
    elif sys.stdout is None or sys.stdout.isatty():  # which would obey what somebody else wrote
        for line in value.decode(errors="replace").split("\n"):
            print(printable(line))
    else:
        output().write(value)
    return 0


def _value(entry: dict[str, Any]) -> bytes:
    try:
        if "value_base64" in entry:
            return base64.b64decode(entry["value_base64"], validate=True)
        return str(entry["value"]).encode("utf-8", "surrogatepass")
    except (KeyError, ValueError, TypeError):
        raise CommandError("the service sent no value: see that the address is that of an echo service") from None


def _as_members(value: bytes) -> dict[str, Any]:
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value": None, "value_base64": base64.b64encode(value).decode()}


def _set(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    key, value = checked_key(arguments.key), _given(arguments.value)
    body: dict[str, Any] = {"value": value}
    lasts_s = seconds(arguments.ttl)
    if lasts_s is not None:
        body["ttl_seconds"] = lasts_s
    headers = {} if arguments.if_match is None else {"if-match": f'"{arguments.if_match}"'}
    document = None if arguments.raw else service.info(link.api)
    if document is not None and document.get("encryption_enabled") is True:
        body["value"] = RoomSeal(link.token, document["space_id"]).seal_value(key, value.encode())
    entry = service.ask("POST", f"{link.api}/kv/{key}", body, wants="version", headers=headers)
    print(json.dumps(entry) if arguments.json else f"version {printable(str(entry['version']))}")
    return 0


def _given(value: str) -> str:
    """As text: a value is a JSON string."""
    if value != "-":
        data = value.encode("utf-8", "surrogateescape")
    elif len(data := given_input().read(VALUE_BYTES_MAX + 1)) > VALUE_BYTES_MAX:
        raise CommandError("the value is too large for any instance: `heliograph space put` uploads files")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CommandError("the value is not UTF-8 text: encode it, or upload it with `heliograph space put`") from None


def _seal(service: EchoService, link: SpaceLink) -> RoomSeal:
    document = service.info(link.api)
    if document is None:
        raise CommandError("this instance does not say the space's id, of which the key is made: use --raw")
    return RoomSeal(link.token, document["space_id"])


def _ls(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    keys = list(service.listed(f"{link.api}/kv?prefix={quote(arguments.prefix, safe='')}", "keys"))
    if arguments.json:
        print(json.dumps(keys))
    else:
        columns = ("key", "version", "size", "expires_at")
        print_rows([{column: printable(str(key.get(column, ""))) for column in columns} for key in keys])
    return 0


def _rm(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    key = checked_key(arguments.key)
    service.order("DELETE", f"{link.api}/kv/{key}")
    print(f"removed {key}")
    return 0
