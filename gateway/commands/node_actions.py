"""`heliograph node enroll | rename | tag | renew | revoke | forget`: what operators do to nodes.

Over `/admin` while the gateway runs, in its folder while it does not; by the same rules in both.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey
from ulid import ULID

from actors.device.identity import DeviceIdentity
from actors.device.identity_files import KEY_FILE, TOKEN_FILE
from actors.register.register_rules import Refusal
from gateway.api.admin_nodes import ENROLMENT_PATH, ROW, shown
from gateway.api.node_list import NodeList
from gateway.commands.node_csv import read_nodes
from gateway.commands.node_names import checked_node
from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.reach import Operator, add_data, ask, checked_node_id, checked_tenant, data_path, person
from gateway.commands.stopped import on_nodes
from gateway.identity.node_lives import Made, NodeLives, Wanted
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import NO_TOKENS, DataFolder
from schemas.certificates import Leaf
from schemas.labels import NAME_RULE, TAG_RULE, is_name, is_tag, tags_of
from schemas.manifest import NodeIdentity

FORGET = "/admin/node/forget"
MANY_S_MAX = 120.0  # for an answer with a thousand identities


def add(actions: Subparsers) -> None:
    enroll = actions.add_parser("enroll", help="give a node, or many from a CSV file, their key, certificate and token")
    enroll.add_argument("--tenant", help="whose it is; with --csv, that of lines that name none")
    enroll.add_argument("--name", help="what to call it, such as pump-7")
    enroll.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="may be given several times")
    enroll.add_argument("--node-id", help="a lower-case ULID (default: a new one)")
    enroll.add_argument("--csv", type=Path, metavar="FILE", help="one node a line: name, tags, node_id, tenant")
    enroll.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="the folder that goes to the node; with --csv, of folders",
    )
    enroll.add_argument("--json", action="store_true", help="ids, with that of the token, for scripts")
    add_data(enroll)
    enroll.set_defaults(run=_enroll)
    rename = _action(actions, "rename", "give a node another name", _rename)
    rename.add_argument("name", metavar="NAME", nargs="?", help="not with --none")
    rename.add_argument("--none", action="store_true", help="take its name away")
    tag = _action(actions, "tag", "put tags on a node, or take them off", _tag)
    tag.add_argument("tags", metavar="KEY=VALUE", nargs="*", help="to put on")
    tag.add_argument("--remove", action="append", default=[], metavar="KEY", help="to take off")
    renew = _action(
        actions, "renew", "make a new identity; the old one is good until it is used, a day at most", _renew
    )
    renew.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that goes to the node")
    renew.add_argument("--json", action="store_true", help="ids, with that of the token, for scripts")
    _action(actions, "revoke", "end a node's token, certificate and session, for good", _revoke)
    _action(actions, "forget", "keep nothing of a revoked node but that its id is revoked", _forget)


def _action(
    actions: Subparsers, name: str, words: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=words)
    parser.add_argument("node", metavar="NODE", help="its id or its name")
    parser.add_argument("--tenant", help="where nodes of several tenants have that name")
    add_data(parser)
    parser.set_defaults(run=run)
    return parser


# ---- enroll ---------------------------------------------------------------------------------------------------------


def _enroll(arguments: argparse.Namespace) -> int:
    path, out = data_path(arguments), arguments.out
    lines: list[int] = []
    is_csv = arguments.csv is not None
    if not is_csv:
        nodes, homes = [_one(arguments)], [out]
    else:
        if arguments.name or arguments.tag or arguments.node_id:
            raise CommandError("with --csv, names, tags and ids are in the file: leave --name, --tag and --node-id out")
        tenant = None if arguments.tenant is None else checked_tenant(arguments.tenant)
        by_line = read_nodes(_text(arguments.csv), tenant)
        lines, nodes = list(by_line), list(by_line.values())
        for node in nodes:  # so that each one's folder is known before anything is made
            node.setdefault("node_id", str(ULID()).lower())
        homes = [out / folder for folder in _folders(nodes)]
    _check_folders(homes)
    with _told_by_line(lines):
        made = ask(
            path, lambda f: _direct(f, nodes, is_csv), lambda o: _remote(o, nodes, is_csv), OperatorScope.FLEET_WRITE
        )
    for one, home in zip(made, homes, strict=True):
        _save(one, home)
    if arguments.json:
        told = [_told(one, home) for one, home in zip(made, homes, strict=True)]
        print(json.dumps(told if is_csv else told[0]))
    elif is_csv:
        print(f"{len(made)} nodes are enrolled; take each folder in {out} to its node, and run there:")
        print("  heliograph node run FOLDER --gateway ws://GATEWAY:8421/devices/connect")
    else:
        _say(made[0], out, "is enrolled")
    return 0


def _folders(nodes: list[dict[str, Any]]) -> list[str]:
    """By name; by id, where there is none or nodes of several tenants have the same."""
    uses = Counter(node.get("name") for node in nodes)
    return [node["name"] if uses[node.get("name", "")] == 1 else node["node_id"] for node in nodes]


def _one(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.tenant is None:
        raise CommandError("--tenant is needed: whose is this node?")
    node: dict[str, Any] = {"tenant": checked_tenant(arguments.tenant)}
    if arguments.node_id is not None:
        node["node_id"] = checked_node_id(arguments.node_id)
    if arguments.name is not None:
        node["name"] = _checked_name(arguments.name)
    if arguments.tag:
        node["tags"] = _checked_tags(arguments.tag)
    return node


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file} is not UTF-8 text: save it as CSV in UTF-8") from None


def _direct(folder: DataFolder, nodes: list[dict[str, Any]], is_csv: bool) -> list[dict[str, Any]]:
    wanted = [
        Wanted(
            NodeIdentity(node.get("node_id") or str(ULID()).lower(), node["tenant"]), node.get("name"), node.get("tags")
        )
        for node in nodes
    ]

    async def act(lives: NodeLives, _: NodeList) -> list[Made] | Refusal:
        return await lives.enroll(wanted, person())

    made = on_nodes(folder, act)
    if isinstance(made, Refusal):
        where = "" if made.row is None or not is_csv else ROW.format(made.row + 1)
        raise CommandError(f"{where}{made.message} {made.suggested_fix}")
    return [shown(one) for one in made]


@contextmanager
def _told_by_line(lines: list[int]) -> Iterator[None]:
    """What is wrong with a node of a list, as what is wrong with its line of the file."""
    try:
        yield
    except CommandError as error:
        text = str(error)
        for row, line in enumerate(lines, 1):
            text = text.replace(ROW.format(row), f"line {line}: ") if text.startswith(ROW.format(row)) else text
        raise (error if text == str(error) else CommandError(f"{text} Nothing of the file is enrolled.")) from None


def _remote(operator: Operator, nodes: list[dict[str, Any]], is_csv: bool) -> list[dict[str, Any]]:
    if not is_csv:
        return [operator.post("/admin/enroll", nodes[0], "certificate")]
    made: list[dict[str, Any]] = operator.post(ENROLMENT_PATH, {"nodes": nodes}, "nodes", wait_s=MANY_S_MAX)["nodes"]
    return made


def _check_folders(homes: list[Path]) -> None:
    """Whether identities can be written there, before any is made: one that cannot would be lost. Touches nothing."""
    for home in homes:
        if (home / KEY_FILE).exists():
            raise CommandError(f"{home} holds an identity already: name another folder with --out")
        there = next(place for place in (home, *home.absolute().parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise CommandError(f"cannot write to {there}: name another folder with --out")


def _save(made: dict[str, Any], home: Path) -> None:
    leaf = Leaf.from_der(bytes.fromhex(made["certificate"]))
    identity = DeviceIdentity(SigningKey(bytes.fromhex(made["key"])), leaf, made["token"] or "")
    try:
        identity.save(home)
    except OSError as error:
        raise CommandError(
            f"cannot write to {home} ({error.strerror}): the identity of node {made['node_id']} is lost; "
            f"`heliograph node renew {made['node_id']} --out DIR` makes another"
        ) from None


def _told(made: dict[str, Any], home: Path) -> dict[str, Any]:
    """What scripts want to know; the secrets are in the folder."""
    return {key: made[key] for key in ("node_id", "tenant", "name", "tags", "token_id")} | {"folder": str(home)}


def _say(made: dict[str, Any], home: Path, what: str) -> None:
    node_id, tenant = made["node_id"], made["tenant"]
    called = f" ({made['name']})" if made["name"] else ""
    if made["token"]:
        print(f"node {node_id}{called} of {tenant} {what}; take {home} to the node and run there:")
    else:
        print(f"node {node_id}{called} of {tenant} has a key and a certificate, and no token. {NO_TOKENS}")
        print(f"Ask it for one of class device_runtime, sub {node_id}, tenant {tenant}, scope device:connect,")
        print(f"and write it to {home / TOKEN_FILE}. Then take {home} to the node and run there:")
    print(f"  heliograph node run {home} --gateway ws://GATEWAY:8421/devices/connect")


# ---- later ----------------------------------------------------------------------------------------------------------


def _act(
    arguments: argparse.Namespace,
    route: str,
    body: dict[str, Any],
    wants: str,
    direct: Callable[[NodeLives, NodeIdentity], Awaitable[dict[str, Any] | Refusal]],
) -> dict[str, Any]:
    """Ask the running gateway, or do it here; both answer what the route does."""
    checked_node(arguments.node)
    tenant = None if arguments.tenant is None else checked_tenant(arguments.tenant)

    async def act(lives: NodeLives, _: NodeList) -> dict[str, Any] | Refusal:
        node = lives.resolve(arguments.node, tenant)
        return node if isinstance(node, Refusal) else await direct(lives, node)

    def here(folder: DataFolder) -> dict[str, Any]:
        done = on_nodes(folder, act, settles=route == FORGET)
        if isinstance(done, Refusal):
            raise CommandError(f"{done.message} {done.suggested_fix}")
        return done

    def there(operator: Operator) -> dict[str, Any]:
        whose = {} if tenant is None else {"tenant": tenant}
        answer: dict[str, Any] = operator.post(route, {"node": arguments.node, **whose, **body}, wants)
        return answer

    return ask(data_path(arguments), here, there, OperatorScope.FLEET_WRITE)


def _rename(arguments: argparse.Namespace) -> int:
    if (arguments.name is None) is not arguments.none:
        raise CommandError("give a new name, or --none to take the old one away")
    name = None if arguments.name is None else _checked_name(arguments.name)

    async def direct(lives: NodeLives, node: NodeIdentity) -> dict[str, Any] | Refusal:
        done = await lives.rename(node, name, person())
        return done if isinstance(done, Refusal) else {"node_id": node.node_id}

    done = _act(arguments, "/admin/node/rename", {"name": name}, "node_id", direct)
    print(f"node {done['node_id']} has no name now" if name is None else f"node {done['node_id']} is called {name} now")
    return 0


def _tag(arguments: argparse.Namespace) -> int:
    if not arguments.tags and not arguments.remove:
        raise CommandError("give tags to put on (key=value), or --remove KEY")
    put = _checked_tags(arguments.tags)
    if not all(is_tag(f"{key}=x") for key in arguments.remove):
        raise CommandError(f"--remove takes a tag's key alone. {TAG_RULE}")

    async def direct(lives: NodeLives, node: NodeIdentity) -> dict[str, Any] | Refusal:
        done = await lives.tag(node, put, arguments.remove, person())
        return done if isinstance(done, Refusal) else {"node_id": node.node_id, "tags": done.tags}

    done = _act(arguments, "/admin/node/tag", {"set": put, "remove": arguments.remove}, "tags", direct)
    tags = " ".join(f"{key}={value}" for key, value in sorted(done["tags"].items()))
    print(f"node {done['node_id']} has the tags {tags}" if tags else f"node {done['node_id']} has no tags now")
    return 0


def _renew(arguments: argparse.Namespace) -> int:
    async def direct(lives: NodeLives, node: NodeIdentity) -> dict[str, Any] | Refusal:
        made = await lives.renew_for(node, person())
        return made if isinstance(made, Refusal) else shown(made)

    _check_folders([arguments.out])
    made = _act(arguments, "/admin/node/renew", {}, "certificate", direct)
    _save(made, arguments.out)
    if arguments.json:
        print(json.dumps(_told(made, arguments.out)))
    else:
        _say(made, arguments.out, "has a new identity")
        print("The old one is good until the node has logged in with the new one, and for 24 hours at most.")
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    async def direct(lives: NodeLives, node: NodeIdentity) -> dict[str, Any] | Refusal:
        return await lives.revoke(node, person()) or {"revoked": node.node_id}

    done = _act(arguments, "/admin/node/revoke", {}, "revoked", direct)
    print(f"node {done['revoked']} is revoked: its token, its certificate and its session have ended, for good")
    return 0


def _forget(arguments: argparse.Namespace) -> int:
    async def direct(lives: NodeLives, node: NodeIdentity) -> dict[str, Any] | Refusal:
        erased = await lives.forget(node, person())
        return erased if isinstance(erased, Refusal) else {"forgotten": node.node_id, "erased": erased}

    done = _act(arguments, FORGET, {}, "forgotten", direct)
    rest = "" if done["erased"] else "; the rest goes as soon as its last connection is closed and the disk takes it"
    print(f"node {done['forgotten']} is forgotten{rest}")
    return 0


# ---- what people type -----------------------------------------------------------------------------------------------


def _checked_name(text: str) -> str:
    if not is_name(text):
        raise CommandError(f"this is no name for a node. {NAME_RULE}")
    return text


def _checked_tags(texts: list[str]) -> dict[str, str]:
    tags = tags_of(texts)
    if tags is None:
        raise CommandError(f"a tag is not of the right shape, comes twice, or there are too many. {TAG_RULE}")
    return tags
