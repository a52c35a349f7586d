"""`make conformance`: the official MCP suite, both eras, against every view of a whole gateway with the conformance
profile, what applies of it against a session of a room, and its client of authorization servers, with Chromium.

A gateway on a free port of this machine, in a folder that goes at the end, with one live node (so that lists have real
things next to the fixtures) and a token for the suite. Exits with 1 when a scenario that applies does not pass, when
one that does not apply passes after all, when the gateway logs an error, or when the page of the documentation says
otherwise than this run.
"""

import argparse
import logging
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import structlog
import trio
from mcp.shared.exceptions import MCPDeprecationWarning
from structlog.typing import EventDict
from ulid import ULID

from actors.device.agent import Agent
from actors.device.device import standard_device
from actors.device.file_journal import FileJournal
from actors.device.identity import DeviceIdentity, hw_fingerprint
from actors.device.mock_sampler import MockSampler
from actors.device.websocket import WebSocketDialer
from actors.space.spaces import Opened
from gateway.identity.tokens import Scope, TokenClass
from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.mcp.views import NAMED, VIEWS
from gateway.observe.log_output import LogSettings, log_to
from schemas.echo.frames import Encoding
from tests.conformance.profile import Profile
from tests.conformance.report import EXTENSION, PAGE, VERSIONS, Report
from tests.conformance.sign_in import check_sign_in
from tests.conformance.suite import NotInstalledError, Outcome, Suite, find_suite

TENANT = "conformance"
RUN_S_MAX = 600.0  # of everything; then the run has failed
TOKEN_LIFE_S = 3600


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("--write-docs", action="store_true", help=f"write {PAGE.name} anew, if all is well")
    arguments = parser.parse_args()
    log_to(LogSettings(format="pretty"), logging.WARNING)
    errors: list[str] = []
    structlog.configure(processors=[partial(_note_error, errors), *structlog.get_config()["processors"]])
    # Logging, sampling and roots are deprecated; older clients have them all the same, so the suite asks.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    try:
        command = find_suite()
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return 1
    report = trio.run(_run, command)
    report.problems.extend(f"the gateway has logged an error: {event}" for event in errors)
    print(report.table())
    if arguments.write_docs and not report.problems:
        PAGE.write_text(report.page())
    elif not report.problems and PAGE.read_text() != report.page():
        report.problems.append(f"{PAGE.name} says otherwise: .venv/bin/python -m tests.conformance.run --write-docs")
    for problem in report.problems:
        print(f"FAIL {problem}")
    print("conformance: " + report.summary())
    return 1 if report.problems else 0


async def _run(command: list[str]) -> Report:
    with trio.fail_after(RUN_S_MAX), tempfile.TemporaryDirectory(prefix="heliograph-conformance-") as made:
        folder = Path(made)
        async with _gateway(folder) as gateway:
            sub, scopes = f"agent_{uuid.uuid4()}", [Scope.READ_ONLY]
            token = gateway.folder.mint(
                TokenClass.AGENT_RUNTIME, sub, TENANT, scopes, TOKEN_LIFE_S, str(ULID()), _wall_ms()
            )
            suites = {view.path: Suite(command, f"http://{gateway.http}{view.path}", token) for view in VIEWS}
            report = Report(await suites[NAMED.path].scenarios())
            for view, suite in suites.items():  # one after another: what one of them changes, all views tell
                await _check(report, view, suite, folder / view[1:].replace("/", "-"))
            room, members = await _open_room(gateway), await _open_room(gateway)
            of_room = Suite(command, f"http://{gateway.http}{NAMED.path}", room.token)
            await _check_room(report, of_room, folder / "room")
            _show("the authorization server, with Chromium")
            report.add_sign_in(await check_sign_in(gateway, members, of_room, folder / "sign-in"))
            _show("the authorization server: done", end="\n")
            return report


async def _open_room(gateway: Running) -> Opened:
    assert gateway.spaces is not None
    opened = await gateway.spaces.open(Encoding.JSON, None, is_encrypted=False)
    assert isinstance(opened, Opened)
    return opened


async def _check_room(report: Report, suite: Suite, folder: Path) -> None:
    for version in VERSIONS:
        outcomes: dict[str, Outcome] = {}
        for name in report.of_room(version):
            _show(f"a room's session {version}: {name}")
            outcomes |= await suite.check_scenario(name, folder / version / name, version)
        report.add_room(version, outcomes)
        _show(f"a room's session {version}: {len(outcomes)} scenarios", end="\n")


async def _check(report: Report, view: str, suite: Suite, folder: Path) -> None:
    for version in VERSIONS:
        names = report.of_version(version)
        done: list[str] = []

        def progress(name: str, version: str = version, total: int = len(names), done: list[str] = done) -> None:
            done.append(name)
            _show(f"{view} {version}: {len(done)}/{total} {name}")

        report.add(version, await suite.check_version(version, folder / version, progress), view)
        _show(f"{view} {version}: {len(done)} scenarios", end="\n")
    outcomes: dict[str, Outcome] = {}
    extensions = report.of_version(EXTENSION)
    for number, name in enumerate(extensions, 1):
        _show(f"{view} extensions: {number}/{len(extensions)} {name}")
        outcomes |= await suite.check_scenario(name, folder / EXTENSION / name)
    report.add(EXTENSION, outcomes, view)
    _show(f"{view} extensions: {len(extensions)} scenarios", end="\n")


def _note_error(errors: list[str], _: object, level: str, said: EventDict) -> EventDict:
    """A request that fails inside may leave the suite content; it must not leave us so."""
    if level in ("error", "critical"):
        errors.append(said["event"])
    return said


def _show(line: str, end: str = "") -> None:
    """Over the line before, on a terminal; elsewhere only what is done."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{line}", end=end, flush=True)
    elif end:
        print(line, end=end, flush=True)


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncIterator[Running]:
    flags = {
        "data": str(folder / "data"),
        "http.listen": "127.0.0.1:0",
        "devices.listen": "127.0.0.1:0",
        "echo.enabled": True,
        "echo.disk_free_min": 0.0,
    }
    started: list[Running] = []

    def change_tools() -> None:
        started[0].devices.directory.notify(TENANT)

    async with trio.open_nursery() as field:
        async with running(load(None, {}, flags), lambda *parts: Profile(change_tools, *parts)) as gateway:
            started.append(gateway)
            identity = gateway.folder.enroll(str(ULID()).lower(), TENANT, str(ULID()), _wall_ms())
            field.start_soon(_be_a_node, identity, folder / "node", gateway.device_address)
            while not any(actor.is_live for actor in gateway.devices.fleet.nodes):  # noqa: ASYNC110
                await trio.sleep(0.02)
            yield gateway
        field.cancel_scope.cancel()


async def _be_a_node(identity: DeviceIdentity, folder: Path, address: str) -> None:
    device = standard_device(identity, hw_fingerprint("conformance", None), MockSampler(0, _wall_ms()), _wall_ms)
    journal = FileJournal(folder)
    try:
        async with trio.open_nursery() as nursery:
            dial = WebSocketDialer(nursery, f"ws://{address}/devices/connect")
            await Agent(device, journal=journal, connect=dial, wall_ms=_wall_ms, rng=Random(0)).run()
    finally:
        journal.close()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
