"""`heliograph node run`: be a node, on the machine it is about."""

import argparse
import time
from pathlib import Path
from random import Random

import structlog
import trio

from actors.device.agent import Agent, machine_time_s
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal, JournalInUseError
from actors.device.gateway_address import GatewayAddress
from actors.device.identity import DeviceIdentity, IdentityError, newer_token_from, this_machine
from actors.device.journal import JournalFailedError
from actors.device.local_page import PATH, LocalPage
from actors.device.mock_sampler import MockSampler
from actors.device.reconnect_rules import StayAway
from actors.device.renewal import Renewal
from actors.device.renewal_client import RenewalClient
from actors.device.sampler import PsutilSampler
from actors.device.websocket import WebSocketDialer
from actors.supervision.crash_report import first_leaf
from gateway.commands.parsing import CommandError, Subparsers, complain
from gateway.main.settings_reading import SettingsError, log_from_environment
from gateway.main.signals import until_signalled
from gateway.observe.log_output import LogTargetError, log_to

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


def add(actions: Subparsers) -> None:
    run = actions.add_parser("run", help="be a node: dial the gateway and serve echo and metrics of this machine")
    run.add_argument("folder", type=Path, metavar="DIR", help="what `node enroll` made; its journal is kept there too")
    run.add_argument("--gateway", required=True, metavar="URL", help="ws://HOST:PORT/devices/connect, or wss://…")
    run.add_argument("--mock", type=int, metavar="SEED", help="made-up metrics instead of this machine's")
    run.add_argument(
        "--local", type=int, metavar="PORT", help=f"serve the manifest at http://127.0.0.1:PORT{PATH}, for debugging"
    )
    run.set_defaults(run=_run)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _run(arguments: argparse.Namespace) -> int:
    if arguments.local is not None and not 1 <= arguments.local <= 65535:
        raise CommandError("--local needs a port from 1 to 65535")
    try:
        log_to(log_from_environment())
        identity = DeviceIdentity.load(arguments.folder)
        journal = FileJournal(arguments.folder)
    except (SettingsError, LogTargetError, IdentityError, JournalInUseError) as unusable:
        return complain(str(unusable))
    try:
        stay = trio.run(
            be_a_node, identity, journal, arguments.folder, arguments.gateway, arguments.mock, arguments.local
        )
    except Exception as crash:
        error = first_leaf(crash)
        if isinstance(error, (JournalFailedError, IdentityError, ValueError, CommandError)):
            return complain(str(error))
        raise
    finally:
        journal.close()
    return 0 if stay is None else complain(stay.reason)


async def be_a_node(
    identity: DeviceIdentity,
    journal: FileJournal,
    folder: Path,
    gateway: str,
    mock_seed: int | None,
    local_port: int | None = None,
) -> StayAway | None:
    """Until Ctrl-C (None), or until the gateway wants this node no more (why)."""
    sampler = PsutilSampler() if mock_seed is None else MockSampler(mock_seed, wall_ms())
    fingerprint = this_machine()
    stay: StayAway | None = None

    async def run_agent() -> None:
        nonlocal stay
        stay = await agent.run()
        nursery.cancel_scope.cancel()

    def use(renewed: DeviceIdentity) -> None:
        agent.use(standard_device(renewed, fingerprint, sampler, wall_ms).credentials)

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as nursery:
            agent = Agent(
                standard_device(identity, fingerprint, sampler, wall_ms),
                journal=journal,
                connect=WebSocketDialer(connections, gateway),
                wall_ms=wall_ms,
                rng=Random(),
                newer_token=newer_token_from(folder),
                now=machine_time_s,
            )
            renewal = Renewal(
                folder,
                identity,
                ask=RenewalClient(GatewayAddress(gateway)),
                gateway_ms=agent.gateway_ms,
                renewed=use,
                rng=Random(),
            )
            if local_port is not None:
                page = await _local_page(local_port, agent)
                nursery.start_soon(page.run)
            nursery.start_soon(run_agent)
            nursery.start_soon(renewal.run)
            await until_signalled()
            nursery.cancel_scope.cancel()
        connections.cancel_scope.cancel()  # only now: the agent still takes its leave
    return stay


async def _local_page(port: int, agent: Agent) -> LocalPage:
    """Before the node dials: whoever asked for the page is to know at once that it cannot be had."""
    try:
        page = await LocalPage.open(port, lambda: agent.manifest)
    except OSError as error:
        raise CommandError(f"cannot listen on 127.0.0.1:{port} ({error}); choose another port with --local") from error
    log.info("local_page_open", port=page.port)
    return page
