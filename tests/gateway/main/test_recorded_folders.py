"""Data folders that earlier code has written: today's gateway starts on each, twice, and everything is there."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from actors.log.sqlite_store import SqliteStore
from actors.node.history import CommandAcked, decode
from actors.node.node_stream import stream_of
from actors.space.space_log import SpaceLog
from actors.space.sqlite_space_store import SqliteSpaceStore
from gateway.backup.restoring import restore
from gateway.commands.cli import main
from gateway.governance.spend.report import report
from gateway.main.folder_forms import databases
from gateway.main.server import running
from gateway.main.settings import load
from gateway.observe.audit.audit_store import FOLDER, search
from gateway.observe.audit.query_rules import AuditQuery
from tests.gateway.projects.test_sites_live import Gateway as Sites

RECORDED = Path(__file__).with_name("recorded")
FOLDERS = sorted(path.stem for path in RECORDED.glob("folder-*.json"))
ON = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "echo.enabled": True, "echo.disk_free_min": 0.0}
CALLS_MIN = 4


def expected(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.fixture(params=[*FOLDERS, "backup-1"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    """A copy, and what is in it."""
    name, folder = request.param, tmp_path / "data"
    if name.startswith("backup"):
        restore(RECORDED / f"{name}.tar.gz", folder)
        return folder, expected(FOLDERS[-1])
    with tarfile.open(RECORDED / f"{name}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    then = expected(name)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == set(then["files"])
    return folder, then


def test_folder_of_every_form_is_recorded() -> None:
    """Whoever changes the form of a database records another folder."""
    newest = expected(FOLDERS[-1])
    assert len(FOLDERS) >= 8
    assert {"log.sqlite", "spaces.sqlite", "revoked", "echo.key"} <= set(newest["files"])
    assert all(newest[name] for name in ("name", "member_id", "space_id", "project_id", "site"))


async def test_recorded_folder_starts_and_has_all_that_was_in_it(recorded: tuple[Path, Any]) -> None:
    folder, then = recorded
    for _ in range(2):  # the second time there is nothing to be moved
        with trio.fail_after(30), capture_logs() as lines:
            async with running(load(None, {}, {"data": str(folder), **ON})) as gateway:
                assert gateway.folder.verifier.is_revoked(then["revoked"])
                assert gateway.folder.certificates.leafs_of(then["node_id"]) != ()
                node = gateway.devices.directory.find(then["node_id"])
                assert node is not None
                assert (node.tenant, node.labels.name) == ("acme", then["name"])
                store = gateway.devices.fleet.services.store
                events = [decode(one.data) for one in await store.read(stream_of(then["node_id"]))]
                calls = sum(isinstance(event, CommandAcked) for event in events)
                assert calls >= CALLS_MIN
                (ledger,) = await report(store, gateway.devices.ledgers, then["agent"])
                assert ledger["used_micros"] == calls * 15_000
                members = {member.member_id for member in gateway.members or ()}
                assert members == ({then["member_id"]} if then["member_id"] else set())
                if then["site"]:
                    page = await Sites(gateway).get("/")
                    assert page.body.decode() == then["site"]
        assert [line for line in lines if line["log_level"] in ("error", "critical")] == []
    if any(path.parent.name == FOLDER for path, _ in databases(folder)):
        found = search(folder / FOLDER, AuditQuery(equal=(("tool", f"sysecho.{then['node_id']}.echo.invoke"),)))
        assert len(found.lines) >= CALLS_MIN or not then["site"]


async def test_space_of_a_recorded_folder_opens_whatever_the_time_is(recorded: tuple[Path, Any]) -> None:
    folder, then = recorded
    if then["space_id"] is None:
        assert not (folder / "spaces.sqlite").exists()
        return
    async with await SqliteStore.open(folder / "log.sqlite") as log, await SqliteSpaceStore.at(folder) as store:
        assert then["space_id"] in await store.load()
        assert await store.open(then["space_id"])
        value = await store.get(then["space_id"], "greeting", 0)
        assert value is not None
        assert value.value == b"hello"
        read = await SpaceLog(store, log).read(then["space_id"])
        assert read is not None
        assert read.space.space_id == then["space_id"]


def test_commands_work_on_a_recorded_folder(
    recorded: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, then = recorded
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    out = tmp_path / "before.tar"
    assert main(["backup", "--data", str(copy), "--out", str(out)]) == 0
    assert main(["restore", str(out), "--data", str(tmp_path / "restored")]) == 0
    capsys.readouterr()
    for place in (copy, tmp_path / "restored"):
        assert main(["nodes", "--json", "--data", str(place)]) == 0
        assert [node["node_id"] for node in json.loads(capsys.readouterr().out)] == [then["node_id"]]
