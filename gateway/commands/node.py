"""`heliograph node run`: be a node, on the machine it is about. What operators do to nodes is `node_actions`."""

import argparse
import time
from pathlib import Path
from random import Random

import trio

from actors.device.agent import Agent, machine_time_s
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal, JournalInUseError
from actors.device.identity import (
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
from gateway.commands import node_actions
from gateway.commands.parsing import Subparsers, complain
from gateway.main.server import until_signalled
from gateway.main.settings import SettingsError, log_from_environment
from gateway.observe.log_output import LogTargetError, log_to


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("node", help="enroll, name, renew, revoke nodes; or be one").add_subparsers(
        required=True, metavar="ACTION"
    )
    node_actions.add(actions)
    run = actions.add_parser("run", help="be a node: dial the gateway and serve echo and metrics of this machine")
    run.add_argument("folder", type=Path, metavar="DIR", help="what `node enroll` made; its journal is kept there too")
    run.add_argument("--gateway", required=True, metavar="URL", help="ws://HOST:PORT/devices/connect, or wss://…")
    run.add_argument("--mock", type=int, metavar="SEED", help="made-up metrics instead of this machine's")
    run.set_defaults(run=_run)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


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
