"""`heliograph node enroll | run`: give a node its identity; be a node, on the machine it is about."""

import argparse
import time
from pathlib import Path
from random import Random

import trio
from nacl.signing import SigningKey
from ulid import ULID

from actors.device.agent import Agent, machine_time_s
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal, JournalInUseError
from actors.device.identity import (
    TOKEN_FILE,
    DeviceIdentity,
    IdentityError,
    newer_token_from,
    this_machine,
)
from actors.device.journal import JournalFailedError
from actors.device.mock_sampler import MockSampler
from actors.device.reconnect_rules import StayAway
from actors.device.sampler import PsutilSampler
from actors.device.websocket import WebSocketDialer
from gateway.commands.parsing import CommandError, Subparsers, complain
from gateway.commands.reach import Operator, add_data, ask, checked_node_id, checked_tenant, data_path
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import NO_TOKENS, DataFolder
from gateway.main.server import until_signalled
from gateway.main.settings import SettingsError, log_from_environment
from gateway.observe.log_output import LogTargetError, log_to
from schemas.certificates import Leaf


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("node", help="enroll a node, or be one").add_subparsers(
        required=True, metavar="ACTION"
    )
    enroll = actions.add_parser("enroll", help="give a node its key, certificate and token")
    enroll.add_argument("--tenant", required=True)
    enroll.add_argument("--node-id", help="a lower-case ULID (default: a new one)")
    enroll.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that goes to the node")
    add_data(enroll)
    enroll.set_defaults(run=_enroll)
    run = actions.add_parser("run", help="be a node: dial the gateway and serve echo and metrics of this machine")
    run.add_argument("folder", type=Path, metavar="DIR", help="what `node enroll` made; its journal is kept there too")
    run.add_argument("--gateway", required=True, metavar="URL", help="ws://HOST:PORT/devices/connect, or wss://…")
    run.add_argument("--mock", type=int, metavar="SEED", help="made-up metrics instead of this machine's")
    run.set_defaults(run=_run)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _enroll(arguments: argparse.Namespace) -> int:
    path, tenant, out = data_path(arguments), checked_tenant(arguments.tenant), arguments.out
    node_id = checked_node_id(arguments.node_id or str(ULID()).lower())

    def direct(folder: DataFolder) -> DeviceIdentity:
        return folder.enroll(node_id, tenant, str(ULID()), wall_ms())

    def remote(operator: Operator) -> DeviceIdentity:
        made = operator.post("/admin/enroll", {"tenant": tenant, "node_id": node_id}, "certificate")
        leaf = Leaf.from_der(bytes.fromhex(made["certificate"]))
        return DeviceIdentity(SigningKey(bytes.fromhex(made["key"])), leaf, made["token"] or "")

    identity = ask(path, direct, remote, OperatorScope.FLEET_WRITE)
    try:
        identity.save(out)
    except OSError as error:
        raise CommandError(
            f"cannot write to {out} ({error.strerror}): enroll a node again with another --out"
        ) from None
    if identity.token:
        print(f"node {node_id} of {tenant} is enrolled; take {out} to the node and run there:")
    else:
        print(f"node {node_id} of {tenant} has a key and a certificate, and no token. {NO_TOKENS}")
        print(f"Ask it for one of class device_runtime, sub {node_id}, tenant {tenant}, scope device:connect,")
        print(f"and write it to {out / TOKEN_FILE}. Then take {out} to the node and run there:")
    print(f"  heliograph node run {out} --gateway ws://GATEWAY:8421/devices/connect")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    try:
        log_to(log_from_environment())
        identity = DeviceIdentity.load(arguments.folder)
        journal = FileJournal(arguments.folder)
    except (SettingsError, LogTargetError, IdentityError, JournalInUseError) as error:
        return complain(str(error))
    try:
        stay = trio.run(be_a_node, identity, journal, arguments.folder, arguments.gateway, arguments.mock)
    except* JournalFailedError as error:
        return_code = complain(str(error.exceptions[0]))
    except* ValueError as error:
        return_code = complain(str(error.exceptions[0]))
    else:
        return_code = 0 if stay is None else complain(stay.reason)
    finally:
        journal.close()
    return return_code


async def be_a_node(
    identity: DeviceIdentity, journal: FileJournal, folder: Path, gateway: str, mock_seed: int | None
) -> StayAway | None:
    """Until Ctrl-C (None), or until the gateway wants this node no more (why)."""
    sampler = PsutilSampler() if mock_seed is None else MockSampler(mock_seed, wall_ms())
    device = standard_device(identity, this_machine(), sampler, wall_ms)
    stay: StayAway | None = None

    async def run_agent() -> None:
        nonlocal stay
        stay = await agent.run()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        agent = Agent(
            device,
            journal=journal,
            connect=WebSocketDialer(nursery, gateway),
            wall_ms=wall_ms,
            rng=Random(),
            newer_token=newer_token_from(folder),
            now=machine_time_s,
        )
        nursery.start_soon(run_agent)
        await until_signalled()
        nursery.cancel_scope.cancel()
    return stay
