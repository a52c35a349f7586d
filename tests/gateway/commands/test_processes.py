"""The parent of several gateways, with children that only say that they listen."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from actors.supervision.restart_rules import RestartIntensity
from gateway.commands.processes import Processes, Ready, StoppedError
from gateway.main.settings import load

_STUB = Path(__file__).with_name("stub_child.py")
_PATIENCE_S = 30.0
_LOOK_S = 0.005
_COUNT = 3


@dataclass
class Site:
    folder: Path
    told: list[Ready] = field(default_factory=list)

    def plan(self, text: str) -> None:
        """What children do that start from now on."""
        made = self.folder / "plan.new"
        made.write_text(text)
        made.replace(self.folder / "plan")

    def started(self) -> list[int]:
        path = self.folder / "started"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def alive(self) -> list[int]:
        return [pid for pid in self.started() if Path(f"/proc/{pid}").exists()]

    def processes(self) -> Processes:
        flags = {"data": str(self.folder / "data"), "http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0"}
        return Processes(
            load(None, {}, flags | {"engine.processes": _COUNT}),
            ["serve"],
            self.told.append,
            program=(sys.executable, "-I", "-S", str(_STUB), str(self.folder)),
            intensity=RestartIntensity(restarts_max=3, window_s=0.03),
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(_PATIENCE_S):
            while not holds():  # noqa: ASYNC110  # children tell it in files
                await trio.sleep(_LOOK_S)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until the parent has ended after SIGTERM."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.processes().run)
            await self.until(lambda: bool(self.started()))  # it hears signals by then
            yield
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.plan("ready")
    return made


def test_one_that_cannot_start_before_all_listen_ends_them_all(site: Site) -> None:
    site.plan("cannot")
    with pytest.raises(StoppedError) as caught:
        trio.run(site.processes().run)
    assert (caught.value.code, len(site.started()), site.told) == (2, 1, [])


def test_one_that_cannot_start_again_is_tried_until_it_can_and_the_others_go_on(site: Site) -> None:
    async def main() -> None:
        async with site.running():
            await site.until(lambda: bool(site.told))
            first, *others = site.started()
            site.plan("cannot")
            os.kill(first, signal.SIGKILL)
            await site.until(lambda: len(site.started()) >= _COUNT + 5)  # more often than crashes are forgiven
            assert site.alive()[:2] == others
            site.plan("ready")
            await site.until(lambda: len(site.alive()) == _COUNT)
            assert set(others) < set(site.alive())

    trio.run(main)
    assert site.alive() == []


def test_a_successor_that_cannot_start_ends_the_replacement(site: Site) -> None:
    async def main() -> None:
        async with site.running():
            await site.until(lambda: bool(site.told))
            _, *others = site.started()
            site.plan("cannot")
            os.kill(os.getpid(), signal.SIGUSR2)
            await site.until(lambda: len(site.started()) >= _COUNT + 3)
            assert site.alive()[:2] == others
            site.plan("ready")
            await site.until(lambda: len(site.alive()) == _COUNT)
            assert set(others) < set(site.alive())
            os.kill(os.getpid(), signal.SIGUSR2)  # as the log says
            await site.until(lambda: len(site.alive()) == _COUNT and not set(others) & set(site.alive()))

    trio.run(main)


def test_a_second_replacement_while_one_is_under_way_is_ignored(site: Site) -> None:
    async def main() -> None:
        async with site.running():
            await site.until(lambda: bool(site.told))
            before = set(site.started())
            site.plan("slow")
            os.kill(os.getpid(), signal.SIGUSR2)
            await site.until(lambda: len(site.started()) == _COUNT + 1)
            os.kill(os.getpid(), signal.SIGUSR2)
            await site.until(lambda: "gateway_replacement_ignored" in [line["event"] for line in lines])
            assert (len(site.started()), len(site.alive())) == (_COUNT + 1, _COUNT)
            assert len(before & set(site.alive())) == _COUNT - 1

    with capture_logs() as lines:
        trio.run(main)
    assert (site.alive(), len(site.started())) == ([], _COUNT + 1)


def test_no_other_is_started_once_they_are_asked_to_stop(site: Site) -> None:
    site.plan("slow")

    async def main() -> None:
        async with site.running():
            pass

    trio.run(main)
    assert (site.alive(), len(site.started()), site.told) == ([], 1, [])


def test_a_restart_under_way_is_asked_to_stop_too(site: Site) -> None:
    async def main() -> None:
        async with site.running():
            await site.until(lambda: bool(site.told))
            os.kill(site.started()[0], signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)  # at about the same time

    trio.run(main)
    assert site.alive() == []
