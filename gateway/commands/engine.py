"""`heliograph engine import`: from a gateway by itself to several on NATS."""

import argparse
import sqlite3
from pathlib import Path

import trio

from actors.log.sqlite_store import SqliteStore
from actors.log.store import StoreFailedError, UnreadableError
from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.reach import now_ms
from gateway.main.clock import now
from gateway.main.data_folder import DataFolder, FolderError
from gateway.main.engine_check import check_engine
from gateway.main.settings import Settings, SettingsError, from_environment


def add(commands: Subparsers) -> None:
    engine = commands.add_parser("engine", help="several gateways on NATS")
    actions = engine.add_subparsers(required=True, metavar="ACTION")
    importing = actions.add_parser("import", help="carry the log of a stopped gateway into an empty engine")
    importing.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML, as for serve")
    importing.add_argument("--data", metavar="DIR", help="the folder of the stopped gateway")
    importing.add_argument("--engine", metavar="URL", help="NATS: nats://HOST:PORT,…")
    importing.set_defaults(run=_import)


def _import(arguments: argparse.Namespace) -> int:
    from gateway.engine.importing import ImportFailedError  # here, so that help needs no client of NATS

    try:
        settings = from_environment(arguments.config, {"data": arguments.data, "engine.url": arguments.engine})
        if settings.engine.url is None:
            raise SettingsError("say which engine: --engine, or engine.url in the settings")
        check_engine(settings)
        with DataFolder.hold(settings.data_path, now_ms(), make=False) as folder:
            print(trio.run(_carry, settings, folder))
    except (SettingsError, FolderError, ImportFailedError, StoreFailedError, UnreadableError) as error:
        raise CommandError(str(error)) from None
    except sqlite3.Error as error:
        raise CommandError(f"cannot read the log: {error}") from None
    return 0


async def _carry(settings: Settings, folder: DataFolder) -> str:
    from gateway.engine.importing import ImportFailedError, carry  # as above
    from gateway.engine.nats_kv import NatsKv
    from gateway.engine.nats_store import NatsStore
    from gateway.engine.objects_rules import MANIFESTS
    from gateway.main.engine_side import opened_engine

    bounds = settings.engine.bounds
    async with (
        await SqliteStore.open(folder.log_path) as source,
        opened_engine(settings.engine) as (link, names, log_id),
        NatsStore(link, names, log_id, lambda: now().wall_ms / 1000, engine=bounds) as target,
    ):
        try:
            done = await carry(source, target, NatsKv(link, names, MANIFESTS, bounds))
        except* ImportFailedError as failed:
            raise failed.exceptions[0] from None
    left = f"; {done.left} streams of spaces stay in the folder" if done.left else ""
    return f"{done.streams} streams with {done.events} events and {done.manifests} manifests are in the engine{left}"
