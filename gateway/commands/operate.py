"""`token mint`, `token revoke`, `node enroll`, `nodes`, `log`.

On a running gateway they go over `/admin`; on the folder of a stopped one they work directly.
"""

import argparse
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import trio
from nacl.signing import SigningKey
from ulid import ULID

from actors.bus.directory import LocalDirectory
from actors.device.identity import TOKEN_FILE, DeviceIdentity
from actors.log.sqlite_store import SqliteStore
from actors.node.node_stream import node_of, stream_of
from gateway.commands.node import add_run
from gateway.commands.parsing import Subparsers, add_data, complain, data_path, print_rows
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.data_folder import NO_TOKENS, DataFolder, FolderInUseError, makes_tokens
from gateway.main.durations import duration_s
from gateway.main.server import RUNNING_FILE
from gateway.main.settings import OPERATOR_TOKEN, TOKEN
from gateway.net.tls import client_context
from schemas.certificates import Leaf


class OperatorError(Exception):
    """What was asked cannot be done; the text says why."""


def add(commands: Subparsers) -> None:
    token = commands.add_parser("token", help="mint or revoke tokens").add_subparsers(required=True, metavar="ACTION")
    mint = token.add_parser("mint", help="make a token and print it")
    mint.add_argument("--class", dest="token_class", choices=[c.value for c in TokenClass], default="agent_runtime")
    mint.add_argument("--sub", help="whom it speaks for (default: a new agent)")
    mint.add_argument("--tenant", required=True)
    mint.add_argument("--scope", action="append", choices=[s.value for s in Scope], help="may be given several times")
    mint.add_argument("--life", default="1h", help="such as 10m, 12h, 30d (default 1h)")
    mint.add_argument("--json", action="store_true", help="token and jti, for scripts")
    mint.set_defaults(run=_guarded(_mint))
    revoke = token.add_parser("revoke", help="refuse a token from now on, and end what it opened")
    revoke.add_argument("jti")
    revoke.set_defaults(run=_guarded(_revoke))
    node = commands.add_parser("node", help="enroll a node, or be one").add_subparsers(required=True, metavar="ACTION")
    add_run(node)
    enroll = node.add_parser("enroll", help="give a node its key, certificate and token")
    enroll.add_argument("--tenant", required=True)
    enroll.add_argument("--node-id", help="a lower-case ULID (default: a new one)")
    enroll.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that goes to the node")
    enroll.set_defaults(run=_guarded(_enroll))
    nodes = commands.add_parser("nodes", help="list the nodes that have announced themselves")
    nodes.add_argument("--json", action="store_true")
    nodes.set_defaults(run=_guarded(_nodes))
    log = commands.add_parser("log", help="print the history of a node's commands")
    log.add_argument("node_id")
    log.add_argument("--follow", action="store_true", help="go on as it grows, until Ctrl-C")
    log.set_defaults(run=_guarded(_log))
    for parser in (mint, revoke, enroll, nodes, log):
        add_data(parser)


def _guarded(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def run(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except (OperatorError, ValueError) as error:
            return complain(str(error))

    return run


# ---- the commands --------------------------------------------------------------------------------------------------


def _mint(arguments: argparse.Namespace) -> int:
    token_class = TokenClass(arguments.token_class)
    default_scopes = [Scope.READ_ONLY] if token_class is TokenClass.AGENT_RUNTIME else []
    sub = arguments.sub or (f"agent_{uuid.uuid4()}" if token_class is TokenClass.AGENT_RUNTIME else None)
    if sub is None:
        raise OperatorError("this class of token needs --sub")
    scopes = [Scope(scope) for scope in arguments.scope or default_scopes]
    life_s = _seconds(arguments.life)
    _need_tokens(data_path(arguments), f"ask it for a token of class {token_class} with this sub, tenant and scope")

    def direct(folder: DataFolder) -> Any:
        jti = str(ULID())
        token = folder.mint(token_class, sub, arguments.tenant, scopes, life_s, jti, _now_ms())
        return {"token": token, "jti": jti}

    request = {"token_class": token_class, "sub": sub, "tenant": arguments.tenant, "scopes": scopes, "life_s": life_s}
    made = ask(data_path(arguments), direct, "POST", "/admin/mint", request)
    print(json.dumps({**made, "sub": sub}) if arguments.json else made["token"])
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    if not re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", arguments.jti):
        raise OperatorError("a jti is an upper-case ULID, as `token mint --json` prints it")
    ask(
        data_path(arguments),
        lambda folder: folder.revoke(arguments.jti),
        "POST",
        "/admin/revoke",
        {"jti": arguments.jti},
    )
    print(f"revoked {arguments.jti}")
    return 0


def _enroll(arguments: argparse.Namespace) -> int:
    node_id = arguments.node_id or str(ULID()).lower()

    def direct(folder: DataFolder) -> Any:
        return folder.enroll(node_id, arguments.tenant, str(ULID()), _now_ms())

    made = ask(data_path(arguments), direct, "POST", "/admin/enroll", {"tenant": arguments.tenant, "node_id": node_id})
    if not isinstance(made, DeviceIdentity):
        leaf = Leaf.from_der(bytes.fromhex(made["certificate"]))
        made = DeviceIdentity(SigningKey(bytes.fromhex(made["key"])), leaf, made["token"] or "")
    made.save(arguments.out)
    if not made.token:
        print(f"node {node_id} of {arguments.tenant} has a key and a certificate, and no token. {NO_TOKENS}")
        print(
            f"Ask it for one of class device_runtime, sub {node_id}, tenant {arguments.tenant}, scope device:connect,"
        )
        print(f"and write it to {arguments.out / TOKEN_FILE}. Then take {arguments.out} to the node and run there:")
    else:
        print(f"node {node_id} of {arguments.tenant} is enrolled; take {arguments.out} to the node and run there:")
    print(f"  heliograph node run {arguments.out} --gateway ws://GATEWAY:8421/devices/connect")
    return 0


def _nodes(arguments: argparse.Namespace) -> int:
    def direct(folder: DataFolder) -> Any:
        async def read() -> Any:
            async with await SqliteStore.open(folder.log_path) as store:
                shelf = LocalDirectory(store)
                await shelf.load()
                return [
                    {
                        "node_id": retained.node_id,
                        "tenant": retained.tenant,
                        "live": False,
                        "since_ms": None,
                        "left": None,
                        "tools": [tool.name for tool in retained.tools],
                        "expires_at_ms": retained.manifest["expires_at_ms"],
                    }
                    for retained in shelf
                ]

        return {"nodes": trio.run(read)}

    nodes = ask(data_path(arguments), direct, "GET", "/admin/nodes")["nodes"]
    if arguments.json:
        print(json.dumps(nodes, indent=2))
    else:
        print_rows([_row(node) for node in nodes])
    return 0


def _row(node: dict[str, Any]) -> dict[str, Any]:
    state = "live" if node["live"] else "away"
    return {"node": node["node_id"], "tenant": node["tenant"], "state": state, "tools": len(node["tools"])}


def _log(arguments: argparse.Namespace) -> int:
    if node_of(stream_of(arguments.node_id)) != arguments.node_id or not re.fullmatch(
        r"[0-9a-z]{26}", arguments.node_id
    ):
        raise OperatorError("a node id is a lower-case ULID; `heliograph nodes` lists them")
    after = 0
    while True:

        def direct(folder: DataFolder, after: int = after) -> Any:
            async def read() -> Any:
                async with await SqliteStore.open(folder.log_path) as store:
                    events = await store.read(stream_of(arguments.node_id), after)
                    return [{"version": e.version, **msgspec.json.decode(e.data)} for e in events]

            return {"events": trio.run(read)}

        events = ask(data_path(arguments), direct, "GET", f"/admin/log/{arguments.node_id}?after={after}")["events"]
        for event in events:
            print(json.dumps(event), flush=True)
            after = event["version"]
        if not events and not arguments.follow:
            return 0
        if not events:
            time.sleep(0.5)


# ---- how they reach the gateway ------------------------------------------------------------------------------------


def ask(path: Path, direct: Callable[[DataFolder], Any], method: str, route: str, body: Any = None) -> Any:
    """Do it here if nobody holds the folder; else ask the gateway that does."""
    if not path.exists():
        raise OperatorError(f"there is no data folder {path}: `heliograph serve` makes one, or name yours with --data")
    try:
        with DataFolder.hold(path, _now_ms()) as folder:
            return direct(folder)
    except FolderInUseError:
        return _over_http(path, method, route, body)


@dataclass(frozen=True, slots=True)
class Reached:
    """Where a gateway listens for agents; over TLS, with what it is known by (None: what the system trusts)."""

    url: str
    tls: ssl.SSLContext | None = None


def running_gateway(path: Path) -> Reached:
    """The gateway that holds this folder."""
    try:
        note = json.loads((path / RUNNING_FILE).read_text())
        address, certificate = note["http"], note["http_certificate"]
    except (OSError, ValueError, KeyError):
        raise OperatorError(f"no gateway runs on {path}: start one with `heliograph serve`") from None
    return (
        Reached(f"http://{address}")
        if certificate is None
        else Reached(f"https://{address}", client_context(certificate))
    )


def _need_tokens(path: Path, instead: str) -> None:
    """Raises OperatorError where the gateway makes no tokens."""
    if not makes_tokens(path):
        raise OperatorError(f"{NO_TOKENS} So {instead}.")


def agent_token_for(path: Path, tool: str, life_s: int = 60) -> str:
    """A token of a short life that may call this tool of the running gateway."""
    _need_tokens(path, f"give an agent's token with --token, or in {TOKEN}")
    nodes = _over_http(path, "GET", "/admin/nodes", None)["nodes"]
    tenant = next((node["tenant"] for node in nodes if tool in node["tools"]), None)
    if tenant is None:
        raise OperatorError("no node has that tool; `heliograph nodes --json` lists them all")
    request = {"token_class": "agent_runtime", "sub": f"agent_{uuid.uuid4()}", "tenant": tenant}
    made = _over_http(path, "POST", "/admin/mint", {**request, "scopes": [Scope.READ_ONLY], "life_s": life_s})
    token: str = made["token"]
    return token


def _over_http(path: Path, method: str, route: str, body: Any) -> Any:
    gateway = running_gateway(path)
    token = os.environ.get(OPERATOR_TOKEN)
    if not token:
        _need_tokens(path, f"put an operator's token of its making into {OPERATOR_TOKEN}")
        user = os.environ.get("USER", "operator")
        folder = DataFolder(path, _now_ms())
        token = folder.mint(TokenClass.OPERATOR, user, "operators", [], 60, str(ULID()), _now_ms())
    request = urllib.request.Request(
        f"{gateway.url}{route}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10, context=gateway.tls) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        told = json.load(error)
        raise OperatorError(f"{told['message']} {told['suggested_fix']}") from None
    except OSError as error:
        raise OperatorError(f"the gateway at {gateway.url} does not answer: {error}") from None
    if "nextCursor" in answer:  # a list of nodes comes in pages
        rest = _over_http(path, method, f"/admin/nodes?cursor={answer['nextCursor']}", body)
        return {"nodes": answer["nodes"] + rest["nodes"]}
    return answer


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _seconds(life: str) -> int:
    life_s = duration_s(life)
    if life_s is None:
        raise OperatorError("a life is a number and a unit, such as 10m, 12h or 30d")
    return life_s
