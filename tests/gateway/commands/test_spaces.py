"""`heliograph spaces`: the live spaces of a gateway, as its operators' route tells them."""

import json
from pathlib import Path

import pytest
import trio

from gateway.commands.cli import main
from gateway.main.data_folder import DataFolder
from gateway.main.server import running
from gateway.main.settings import load
from tests.gateway.spaces.test_live import ON, make

NOW_MS = 1_790_000_000_000


async def run(folder: Path, *more: str) -> int:
    return await trio.to_thread.run_sync(main, ["spaces", "--data", str(folder), *more])


async def test_spaces_are_listed_for_people_and_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELIOGRAPH_OPERATOR_TOKEN", raising=False)
    async with running(load(None, {}, {"data": str(tmp_path), **ON})) as gateway:
        capsys.readouterr()
        assert await run(tmp_path) == 0
        assert capsys.readouterr().out == "none\n"
        made = await make(gateway, b"encryption=on")
        capsys.readouterr()
        assert await run(tmp_path, "--json") == 0
        (space,) = json.loads(capsys.readouterr().out)
        assert (space["space_id"], space["encrypted"], space["keys"]) == (made["space_id"], True, 0)
        assert await run(tmp_path) == 0
        told = capsys.readouterr().out
        head, row = told.splitlines()
        assert head.split() == [
            "space",
            "opened",
            "ends",
            "protocol",
            "encrypted",
            "connections",
            "keys",
            "files",
            "bytes",
        ]
        assert row.startswith(made["space_id"])
        assert made["token"] not in told


async def test_a_gateway_without_spaces_says_how_to_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(load(None, {}, {"data": str(tmp_path), **ON, "echo.enabled": False})):
        assert await run(tmp_path) == 2
    assert "[echo]" in capsys.readouterr().err


def test_without_a_gateway_there_is_nothing_to_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with DataFolder.hold(tmp_path, NOW_MS):
        pass
    assert main(["spaces", "--data", str(tmp_path)]) == 2
    assert f"heliograph serve --data {tmp_path}" in capsys.readouterr().err
