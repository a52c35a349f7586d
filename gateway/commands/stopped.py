"""Nodes, members and operators' passkeys of a gateway that does not run: the same rules on the same log, in its folder,
which nobody else holds."""

import os
import sqlite3
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio
from ulid import ULID

from actors.console.operator_passkeys import OperatorPasskeys
from actors.log.sqlite_store import SqliteStore
from actors.log.store import StoreFailedError, UnreadableError
from actors.member.members import Members
from actors.member.settings import MemberSettings
from actors.supervision.supervisor import Supervisor
from gateway.api.node_list import NodeList
from gateway.commands.parsing import CommandError
from gateway.console.settings import ConsoleSettings
from gateway.devices.device_side import DeviceSettings, DeviceSide
from gateway.identity.node_lives import NodeLives
from gateway.main.clock import now
from gateway.main.data_folder import DataFolder

T = TypeVar("T")


def on_nodes(folder: DataFolder, act: Callable[[NodeLives, NodeList], Awaitable[T]], *, settles: bool = False) -> T:
    """What `act` makes of them; if it `settles` commands, their prices too. Raises CommandError when the log cannot be
    used."""

    async def run() -> T:
        async with await SqliteStore.open(folder.log_path) as store:
            devices = DeviceSide(Supervisor(), store, folder.verifier, folder.certificates, DeviceSettings())
            await devices.load()
            if settles:
                await devices.fleet.settle_ledgers()
            lives = NodeLives(folder, devices.register, devices.directory, devices.fleet, lambda: str(ULID()), now)
            nodes = NodeList(devices.register, devices.directory, lambda: now().wall_ms)
            return await act(lives, nodes)

    return _run(folder, run)


def on_members(folder: DataFolder, act: Callable[[Members], Awaitable[T]]) -> T:
    """What `act` makes of them, by the limits that settings have where nothing is said. Raises CommandError."""

    async def run() -> T:
        async with await SqliteStore.open(folder.log_path) as store:
            members = Members(
                store, MemberSettings(), now, os.urandom, lambda: str(ULID()), lambda: f"agent_{uuid.uuid4()}"
            )
            await members.load()
            return await act(members)

    return _run(folder, run)


def on_operator_passkeys(folder: DataFolder, act: Callable[[OperatorPasskeys], Awaitable[T]]) -> T:
    """What `act` makes of them. Raises CommandError."""

    async def run() -> T:
        async with await SqliteStore.open(folder.log_path) as store:
            passkeys = OperatorPasskeys(store, ConsoleSettings().passkeys_max, lambda: now().wall_ms)
            await passkeys.load()
            return await act(passkeys)

    return _run(folder, run)


def _run(folder: DataFolder, run: Callable[[], Awaitable[T]]) -> T:
    try:
        return trio.run(run)
    except (sqlite3.Error, StoreFailedError, UnreadableError) as error:
        raise CommandError(f"cannot use {folder.log_path}: {error}") from error
