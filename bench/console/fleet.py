"""A gateway with its fleet: all enrolled, nearly all connected, and some that work and are listened to."""

import json
import os
import resource
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from ulid import ULID

from bench.calls import LOAD_CORE, SERVE, SERVER_CORE, TENANT, Gateway, child, until
from bench.console.load import Readers, readers
from bench.console.note import note
from bench.console.operator import Operator, stream_of
from bench.reconnect import FILES_SPARE, framed
from bench.unlimited_policy import unlimited_policy

AGENTS, STREAMS, CONSOLES = 200, 100, 10


@contextmanager
def running_gateway(folder: Path) -> Iterator[tuple[Gateway, Operator]]:
    """Nobody is enrolled."""
    from gateway.commands.node_run import wall_ms
    from gateway.identity.tokens import OperatorScope, Scope, TokenClass
    from gateway.main.data_folder import DataFolder

    data = folder / "data"
    with DataFolder.hold(data, wall_ms()) as made:
        agent, life_s = f"agent_{uuid.uuid4()}", 24 * 3600
        token = made.mint(TokenClass.AGENT_RUNTIME, agent, TENANT, [Scope.READ_ONLY], life_s, str(ULID()), wall_ms())
        scopes = list(OperatorScope)
        operator = made.mint(TokenClass.OPERATOR, "bench", "operators", scopes, life_s, str(ULID()), wall_ms())
    flags = ["--data", str(data), "--http", "127.0.0.1:0", "--devices", "127.0.0.1:0", "--log", "json"]
    settings = {
        "HELIOGRAPH_LISTENER_STRANGERS_PER_ADDRESS_MAX": str(AGENTS),
        "HELIOGRAPH_GOVERNANCE_POLICY": unlimited_policy(folder),
        "HELIOGRAPH_CONSOLE_LIVE_PER_SESSION_MAX": str(CONSOLES),
    }
    note_file = data / "running.json"
    with (folder / "gateway.log").open("wb") as lines:
        more = {"stdout": subprocess.DEVNULL, "stderr": lines, "env": os.environ | settings}
        with child(SERVER_CORE, *SERVE, *flags, **more) as process:
            until(lambda: note_file.exists() and note_file.read_text().endswith("\n"), process, "the gateway")
            where = json.loads(note_file.read_text())
            port = int(where["http"].rpartition(":")[2])
            yield Gateway(process, port, where["devices"], token, []), Operator(port, operator)


def enrolled(operator: Operator, nodes: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for first in range(0, nodes, 1000):
        wanted = [
            {
                "tenant": TENANT,
                "name": f"node-{number:05d}",
                "tags": {"site": f"s{number % 50}", "rack": f"r{number % 7}"},
            }
            for number in range(first, min(first + 1000, nodes))
        ]
        made += operator.admin("/admin/enroll_many", {"nodes": wanted})["nodes"]
    return made


def identity_of(one: dict[str, Any]) -> Any:
    from nacl.signing import SigningKey

    from actors.device.identity import DeviceIdentity
    from schemas.certificates import Leaf

    key = SigningKey(bytes.fromhex(one["key"]))
    return DeviceIdentity(key, Leaf.from_der(bytes.fromhex(one["certificate"])), one["token"])


def what_they_say(nodes: Sequence[dict[str, Any]]) -> list[list[bytes]]:
    """Of each: what it sends until it is live."""
    from actors.device.handlers import CAPABILITIES
    from actors.device.identity import hw_fingerprint, manifest_signer
    from gateway.commands.node_run import wall_ms

    said = []
    for number, one in enumerate(nodes):
        sign = manifest_signer(identity_of(one), hw_fingerprint(f"quiet machine {number}", None), CAPABILITIES)
        said.append(
            [
                framed("auth", {"token": one["token"], "node_id": one["node_id"]}),
                framed("announce", dict(sign(wall_ms()).manifest)),
                framed("resume", {"journal_id": "bench", "last_cmd": None, "outcomes": [], "running": []}),
            ]
        )
    return said


@contextmanager
def whole_fleet(folder: Path, homes: Path, nodes: int) -> Iterator[tuple[Gateway, Operator, Readers]]:
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with ExitStack() as stack:
        gateway, operator = stack.enter_context(running_gateway(folder))
        note(f"enrolling {nodes:,} nodes ...")
        made = enrolled(operator, nodes)
        for one in made[:AGENTS]:
            identity_of(one).save(homes / one["node_id"])
            gateway.node_ids.append(one["node_id"])
        room = files_max - FILES_SPARE - 2 * AGENTS - STREAMS if files_max != resource.RLIM_INFINITY else nodes
        quiet = made[AGENTS:][:room]
        said = folder / "said"
        said.write_bytes(msgspec.msgpack.encode(what_they_say(quiet)))
        note(f"connecting {len(quiet):,} of them, and {AGENTS} that work ...")
        device_port = gateway.devices.rpartition(":")[2]
        roles = ("bench.reconnect", "--role", "load", device_port, str(said), str(len(quiet)))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        dialling = stack.enter_context(child(LOAD_CORE, *roles, **pipes))
        dialling.stdin.write(b"arrive\n")  # type: ignore[union-attr]
        dialling.stdin.flush()  # type: ignore[union-attr]
        dialling.stdout.readline()  # type: ignore[union-attr]
        stack.enter_context(child(LOAD_CORE, "bench.console", "--role", "nodes", str(homes), gateway.devices))
        wanted = len(quiet) + AGENTS
        until(lambda: operator.live_nodes() == wanted, gateway.process, "the nodes")
        streams = stack.enter_context(readers(gateway.port))
        streams.open([stream_of(gateway, node_id) for node_id in gateway.node_ids[:STREAMS]])
        yield gateway, operator, stack.enter_context(readers(gateway.port))
