"""`heliograph demo`: a gateway with live nodes, and what to try next. Runs until Ctrl-C."""

import argparse
import contextlib
import json
import logging
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import trio
from ulid import ULID

from actors.device.identity import DeviceIdentity
from actors.device.identity_files import KEY_FILE
from actors.register.register_rules import Refusal
from gateway.commands.demo_js import find_js_node
from gateway.commands.demo_node import TENANT, TOKEN_LIFE_S, be_a_node
from gateway.commands.demo_room import DemoSpace
from gateway.commands.demo_site import BEARER_FILE, DemoSite, kept_bearer
from gateway.commands.gateway_run import run_gateway
from gateway.commands.node_run import wall_ms
from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.program_name import typed
from gateway.commands.reach import data_path
from gateway.identity.node_lives import Wanted
from gateway.identity.tokens import AnyScope, OperatorScope, Scope, TokenClass
from gateway.main.data_folder import DataFolder, is_data_folder
from gateway.main.public_base import is_loopback
from gateway.main.server import Running, running
from gateway.main.settings import PREFIX, Settings, SettingsError, load
from gateway.main.signals import until_signalled
from gateway.observe.log_output import LogSettings, log_to
from schemas.manifest import NodeIdentity

LIVE_S_MAX = 60.0
WITH_JS_NODES_MIN = 3  # so many nodes, and the last one may be in JavaScript; the tutorials are about the first ones
POLICY_FILE = "demo-policy.toml"
NAMES = (  # and tags; those past them are called by their number
    ("pump-1", {"site": "lab", "row": "1"}),
    ("pump-2", {"site": "lab", "row": "2"}),
    ("valve-1", {"site": "lab"}),
    ("boiler", {"site": "roof"}),
    ("gate", {"site": "yard"}),
)
_POLICY = """\
# The demo's own agent has a larger budget than others; change this file, and the gateway follows.
[[agents]]
agent = "{agent}"
tools = ["**"]
budget = 1000

[[agents]]
agent = "*"
tools = ["**"]
"""


def add(commands: Subparsers) -> None:
    demo = commands.add_parser("demo", help="run a gateway with simulated nodes, and print what to try")
    demo.add_argument("--nodes", type=int, default=5, metavar="N")
    demo.add_argument("--http", default="127.0.0.1:0", metavar="HOST:PORT", help="for agents; port 0 picks one")
    demo.add_argument("--devices", default="127.0.0.1:0", metavar="HOST:PORT", help="for nodes; port 0 picks one")
    demo.add_argument(
        "--data",
        metavar="DIR",
        help="the data folder (default: HELIOGRAPH_DATA, or a temporary folder)",
    )
    demo.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="N",
        help="gateways that share the nodes, on a nats-server of its own",
    )
    demo.add_argument("--ready-file", type=Path, metavar="FILE", help="written as JSON once all nodes are live")
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    with _folder(arguments) as folder:
        if arguments.processes != 1:
            from gateway.commands.demo_processes import run_several  # only here is a client of NATS needed

            return run_several(folder, _agent_with_policy(folder), folder / POLICY_FILE, arguments)
        on_this_machine = is_loopback(arguments.http.rpartition(":")[0].strip("[]"))
        flags = {
            "data": str(folder),
            "http.listen": arguments.http,
            "devices.listen": arguments.devices,
            "governance.policy": str(folder / POLICY_FILE),
            # Links to spaces need an address; without settings there is one only on this machine.
            "echo.enabled": on_this_machine,
        }
        try:
            load(None, {}, flags)  # what is wrong with them is said before anything is made
            agent_id = _agent_with_policy(folder)
            bearer = kept_bearer(folder) if on_this_machine else None
            settings = load(None, {}, {**flags, "projects.api_bearer_token": bearer})
        except SettingsError as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"cannot write to {error.filename}: {error.strerror}") from None
        log_to(LogSettings(format="pretty"), logging.WARNING)
        return run_gateway(_run, settings, folder, agent_id, arguments.nodes, arguments.ready_file)


def _agent_with_policy(folder: Path) -> str:
    """The agent that the folder's policy names; a folder that is used again keeps both, with what was changed there."""
    file = folder / POLICY_FILE
    if is_data_folder(folder) and not file.exists():
        raise CommandError(f"{folder} is the data folder of another gateway: name one for the demo with --data")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not file.exists():
        file.write_text(_POLICY.format(agent=f"agent_{uuid.uuid4()}"))
    named = re.search(r"agent_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", file.read_text(errors="replace"))
    return f"agent_{uuid.uuid4()}" if named is None else named[0]


@contextlib.contextmanager
def _folder(arguments: argparse.Namespace) -> Iterator[Path]:
    if arguments.data or os.environ.get(f"{PREFIX}DATA"):
        yield data_path(arguments)
        return
    with tempfile.TemporaryDirectory(prefix="heliograph-demo-") as made:
        yield Path(made)


async def _run(settings: Settings, folder: Path, agent_id: str, nodes: int, ready_file: Path | None) -> None:
    async with trio.open_nursery() as field:
        async with running(settings) as gateway:
            homes = await _identities(gateway, folder, nodes)
            js_node = await find_js_node() if len(homes) >= WITH_JS_NODES_MIN else None
            for number, (home, identity) in enumerate(homes.items()):
                is_last = number == len(homes) - 1
                field.start_soon(be_a_node, identity, home, gateway.device_url, number, js_node if is_last else None)
            with trio.move_on_after(LIVE_S_MAX):
                await _all_live(gateway, len(homes))
            ids = [identity.node_id for identity in homes.values()]
            agent = _mint(gateway.folder, TokenClass.AGENT_RUNTIME, agent_id, [Scope.READ_ONLY])
            operator = _mint(gateway.folder, TokenClass.OPERATOR, "demo", list(OperatorScope))
            space = await DemoSpace.open(gateway)
            if space is not None and ids:
                space.let_talk(ids[-1])  # the tutorials are about the first ones
            bearer = settings.projects.api_bearer_token
            site = None if bearer is None else await DemoSite.publish(gateway, folder, bearer)
            if site is not None:
                site.let_talk(gateway, ids)
            console = None if gateway.console is None else gateway.console.link_of_owner("demo")
            if ready_file is not None:
                ready = {
                    "http": gateway.http_url,
                    "devices": gateway.device_url,
                    "tenant": TENANT,
                    "agent_token": agent,
                    "operator_token": operator,
                    "nodes": ids,
                    "space": None if space is None else space.link,
                    "api_bearer_token": bearer,
                    "site": None if site is None else {"project_id": site.project_id, "url": site.url},
                    "console": console,
                }
                try:
                    await trio.Path(ready_file).write_text(json.dumps(ready) + "\n")
                except OSError as error:
                    raise SettingsError(f"--ready-file: cannot write {ready_file}: {error.strerror}") from error
            link = None if space is None else space.link
            _say_what_to_try(gateway, ids, agent, link, site, console, has_js_node=js_node is not None)
            await until_signalled()
            print("\nstopping ...")
            if space is not None:
                await space.close()
        field.cancel_scope.cancel()  # after the gateway, whose streams would else be told that their nodes went


async def _identities(gateway: Running, folder: Path, nodes: int) -> dict[Path, DeviceIdentity]:
    """Those of the folder, if it is used again, but for revoked ones; the others are enrolled, with a name and tags."""
    homes = [folder / f"node-{number}" for number in range(nodes)]
    new = [number for number, home in enumerate(homes) if not (home / KEY_FILE).exists()]
    wanted = [_wanted(gateway, number) for number in new]
    made = await gateway.lives.enroll(wanted, "demo") if wanted else []
    if isinstance(made, Refusal):
        raise CommandError(f"cannot enroll the demo's nodes: {made.message} {made.suggested_fix}")
    for number, one in zip(new, made, strict=True):
        one.identity.save(homes[number])
    loaded = {home: DeviceIdentity.load(home) for home in homes}
    return {home: identity for home, identity in loaded.items() if not _is_revoked(gateway, identity.node_id)}


def _is_revoked(gateway: Running, node_id: str) -> bool:
    """Then it stays away for good, and nobody is to wait for it."""
    member = gateway.lives.register.find(node_id)
    return member is not None and member.is_revoked


def _wanted(gateway: Running, number: int) -> Wanted:
    """Without its name, if a node has it whose folder was lost."""
    name, tags = _called(number)
    is_free = isinstance(gateway.lives.resolve(name, TENANT), Refusal)
    return Wanted(NodeIdentity(str(ULID()).lower(), TENANT), name if is_free else None, tags)


def _called(number: int) -> tuple[str, dict[str, str]]:
    if number < len(NAMES):
        return NAMES[number]
    return f"node-{number + 1}", {"site": "field"}


def _mint(folder: DataFolder, token_class: TokenClass, sub: str, scopes: Collection[AnyScope]) -> str:
    return folder.mint(token_class, sub, TENANT, scopes, TOKEN_LIFE_S, str(ULID()), wall_ms())


async def _all_live(gateway: Running, nodes: int) -> None:
    while gateway.devices.directory.live_count < nodes:  # noqa: ASYNC110  # no one event says so
        await trio.sleep(0.02)


def _say_what_to_try(
    gateway: Running,
    node_ids: list[str],
    agent: str,
    space: str | None,
    site: DemoSite | None,
    console: str | None,
    *,
    has_js_node: bool,
) -> None:
    live = gateway.devices.directory.live_count
    node_id = node_ids[0] if node_ids else "NODE"
    url = gateway.http_url
    name = _called(0)[0]
    program = typed(sys.argv[0], Path.cwd())
    find = json.dumps({"tool": "fleet_find", "arguments": {"tag": "site=lab"}})
    echo = json.dumps({"tool": "system_echo_invoke", "arguments": {"node": name, "message": "hello"}})
    snapshot = json.dumps({"tool": "system_metrics_snapshot", "arguments": {"node": name, "include": ["cpu", "load"]}})
    subscribe = json.dumps({"tool": f"sys.{node_id}.metrics.subscribe", "arguments": {"interval_ms": 1000}})
    print(f"{live} nodes are live. Agents: {url}   nodes: {gateway.device_url}")
    print(f"MCP clients: {url}/mcp/fleet\n")
    if has_js_node:
        print("The last of the nodes is docs/examples/node-js, in JavaScript, with the metrics of this machine.\n")
    print("Try, in another terminal:\n")
    print(f"  TOKEN={agent}\n  DATA={gateway.folder.path}\n")
    print(f'  curl -s {url}/mcp/tools -H "Authorization: Bearer $TOKEN"')
    for body in (find, echo, snapshot):
        print(f"  curl -s {url}/mcp/tools/call -H \"Authorization: Bearer $TOKEN\" -d '{body}'")
    stream = f'{url}/mcp/tools/call -H "Authorization: Bearer $TOKEN" -H "Accept: text/event-stream"'
    print(f"  curl -sN {stream} -d '{subscribe}'")
    print(f"  curl -s {url}/schemas/system.metrics.sample@1.0.0")
    print(f'  curl -s {url}/devices -H "Authorization: Bearer $TOKEN"')
    print(f"  {program} nodes --data {gateway.folder.path}")
    print(f"  {program} watch {name} --data {gateway.folder.path}")
    print(f"  {program} log {name} --data {gateway.folder.path}")
    scope = Scope.READ_ONLY
    print(f"  {program} member invite --tenant {TENANT} --scope {scope} --data {gateway.folder.path}")
    if space is not None:
        print(f"  curl -s {space}/prompt")
        print(f"  {program} space join {space}")
    if site is not None:
        bearer = f"API_BEARER_TOKEN=$(cat {gateway.folder.path / BEARER_FILE})"
        print(f"  {bearer} {program} site ls --project {site.project_id} --data {gateway.folder.path}")
    print("\nAn MCP client can sign in with a passkey instead of a token. Run member invite as above, open the link")
    print(f"that it prints and make the passkey. Then give the client this address, and no token:\n\n  {url}/mcp/fleet")
    if space is not None:
        print(f"\nA room with a node in it, for your browser:\n\n  {space}")
    if site is not None:
        print(f"\nA board of the fleet, on its own hostname:\n\n  {site.url}")
    if console is not None:
        print("\nThe fleet, live, for your browser. The link is good once, for ten minutes; for another, run")
        print(f"{program} console --data {gateway.folder.path}\n\n  {console}")
    print("\nCtrl-C stops everything.", flush=True)
