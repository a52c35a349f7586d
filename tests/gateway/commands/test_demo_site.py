"""The demo's site: published once, kept with its folder, and no reason for the demo to stop."""

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.space.events import Ending
from gateway.commands.demo_site import BEARER_FILE, BOARD, NODES_MAX, PROJECT_FILE, DemoSite, kept_bearer, sample
from gateway.commands.project_arguments import Place
from gateway.main.server import Running, running
from gateway.main.settings import load
from gateway.projects.settings import bearer_fault

FRAME = {"ts_ms": 1_790_000_000_123, "cpu_pct": 1.26, "mem_bytes": 1, "mem_total_bytes": 3, "load_1m": 0.123}
PATIENCE_S = 30.0


@asynccontextmanager
async def gateway_on(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    flags = {
        "data": str(folder),
        "http.listen": "127.0.0.1:0",
        "devices.listen": "127.0.0.1:0",
        "echo.enabled": True,
        "echo.disk_free_min": 0.0,
        "projects.api_bearer_token": kept_bearer(folder),
        **settings,
    }
    with trio.fail_after(PATIENCE_S):
        async with running(load(None, {}, flags)) as gateway:
            yield gateway


async def objects(gateway: Running, site: DemoSite, bearer: str) -> dict[str, str]:
    place = Place(gateway.http_url, bearer)
    listed = await trio.to_thread.run_sync(lambda: list(place.api.objects(site.project_id)))
    return {one["path"]: one["sha256"] for one in listed}


def test_bearer_is_kept_for_its_owner_alone_and_is_one_that_a_gateway_takes(tmp_path: Path) -> None:
    bearer = kept_bearer(tmp_path)
    assert bearer_fault(bearer) is None
    assert kept_bearer(tmp_path) == bearer
    assert stat.S_IMODE((tmp_path / BEARER_FILE).stat().st_mode) == 0o600


def test_sample_is_small_and_rounded() -> None:
    assert sample("pump-1", "lab", FRAME) == {
        "node": "pump-1",
        "site": "lab",
        "cpu_pct": 1.3,
        "mem_pct": 33.3,
        "load_1m": 0.12,
        "at": "2026-09-21T14:13:20.123Z",
    }


async def test_folder_that_is_used_again_keeps_its_project_and_gets_what_is_new(tmp_path: Path) -> None:
    bearer = kept_bearer(tmp_path)
    async with gateway_on(tmp_path) as gateway:
        first = await DemoSite.publish(gateway, tmp_path, bearer)
        assert first is not None
        assert first.url.startswith("http://board.localhost:")
        before = await objects(gateway, first, bearer)
        assert set(before) == {*(file.name for file in BOARD.iterdir()), "room.json"}
    async with gateway_on(tmp_path) as gateway:
        second = await DemoSite.publish(gateway, tmp_path, bearer)
        assert second is not None
        assert second.project_id == first.project_id
        after = await objects(gateway, second, bearer)
        assert {path for path in before if after[path] != before[path]} == {"room.json"}  # it has another port
        assert gateway.spaces is not None
        assert await gateway.spaces.close(second.project["space_id"], Ending.CLOSED) is None
        third = await DemoSite.publish(gateway, tmp_path, bearer)
        assert third is not None
        assert third.project["app_token"] not in (None, second.project["app_token"])
        (tmp_path / PROJECT_FILE).write_text("01j9zq8f3m5x7c2v4b6n8p0q1r")
        fourth = await DemoSite.publish(gateway, tmp_path, bearer)
        assert fourth is not None
        assert fourth.url.startswith("http://fleet-board-")  # the label is taken


async def test_where_there_is_no_place_for_it_the_demo_says_so_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bearer = kept_bearer(tmp_path)
    async with gateway_on(tmp_path, **{"projects.objects_max": 2}) as gateway:
        assert await DemoSite.publish(gateway, tmp_path, bearer) is None
    assert "The board could not be published: " in capsys.readouterr().out
    async with gateway_on(tmp_path, **{"echo.enabled": False}) as gateway:
        assert await DemoSite.publish(gateway, tmp_path, bearer) is None


async def test_gateway_that_stops_does_not_wait_for_nodes_that_are_away(tmp_path: Path) -> None:
    bearer = kept_bearer(tmp_path)
    async with gateway_on(tmp_path) as gateway:
        site = await DemoSite.publish(gateway, tmp_path, bearer)
        assert site is not None
        site.let_talk(gateway, ["01j9zq8f3m5x7c2v4b6n8p0q1r"] * (NODES_MAX + 1))
