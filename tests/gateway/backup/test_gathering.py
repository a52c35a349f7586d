"""What of a folder goes into a backup, and in which order."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

import gateway.backup.gathering as module
from actors.log.sqlite_files import open_files
from gateway.backup.database_copy import copy_database
from gateway.backup.gathering import BackupError, Gathered, Wish, gather
from gateway.backup.member_rules import Part, part_of
from tests.gateway.backup.folders import FILE, LEAF, SITE, SPACE, SUBSCRIPTIONS, SUBSCRIPTIONS_KEY, made, names, put

ALWAYS = {"token.key", "ca.key", "ca.crt", "echo.key", "operator-scopes.since", "revoked", "log.sqlite", SITE} | {
    SUBSCRIPTIONS,
    SUBSCRIPTIONS_KEY,
}
AUDIT = {"audit/0000000000000001.sqlite", "audit/0000000000000009.sqlite"}
SPACES = {"spaces.sqlite", f"spaces/keys/{SPACE}", f"spaces/{SPACE}/{FILE}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "data")


@pytest.fixture
def live(folder: Path) -> Iterator[Path]:
    """With a log and spaces that somebody has open and writes to."""
    files = open_files(folder / "log.sqlite")
    files.writer.execute("INSERT INTO stream VALUES (1, 'written')")
    with closing(sqlite3.connect(folder / "spaces.sqlite", isolation_level=None)) as spaces:
        spaces.execute("PRAGMA journal_mode = WAL")
        spaces.execute("INSERT INTO t VALUES ('written')")
        yield folder
    files.close(has_failed=False)


def taken(folder: Path, wish: Wish | None = None, *, is_live: bool = False, room: int = 0) -> Gathered:
    return gather(folder, folder.parent / "staging", wish or Wish(), is_live=is_live, room_left_bytes_min=room)


def named(gathered: Gathered) -> set[str]:
    found = [item.name for item in gathered.items]
    assert len(found) == len(set(found))
    return set(found)


def without_leafs(gathered: Gathered) -> set[str]:
    found = named(gathered)
    assert any(part_of(name) is Part.NODES for name in found)
    return {name for name in found if part_of(name) is not Part.NODES}


def test_spaces_are_in_it_only_if_they_are_asked_for(folder: Path) -> None:
    assert without_leafs(taken(folder)) == ALWAYS | AUDIT
    assert without_leafs(taken(folder, Wish(spaces=True))) == ALWAYS | AUDIT | SPACES


def test_audit_can_be_left_out(folder: Path) -> None:
    assert without_leafs(taken(folder, Wish(audit=False))) == ALWAYS


def test_forms_and_files_that_nobody_knows_are_told(folder: Path) -> None:
    gathered = taken(folder, Wish(spaces=True))
    assert gathered.forms == {"log": 4, "audit": 1, "projects": 1, "spaces": 1}
    assert gathered.log_id is not None
    assert gathered.left_out == 1  # thesis.txt


def test_folder_of_a_gateway_that_never_ran_has_keys_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "data")
    for name in (*AUDIT, *SPACES, "log.sqlite", SITE, "revoked", SUBSCRIPTIONS, SUBSCRIPTIONS_KEY):
        (folder / name).unlink()
    gathered = taken(folder, Wish(spaces=True))
    assert (gathered.log_id, gathered.forms) == (None, {})
    assert without_leafs(gathered) == {"token.key", "ca.key", "ca.crt", "echo.key", "operator-scopes.since"}


def test_stopped_folder_is_read_where_it_lies_and_nothing_is_made(folder: Path) -> None:
    before = names(folder)
    taken(folder, Wish(spaces=True))
    assert names(folder) == before
    assert not (folder.parent / "staging").exists()


def test_database_of_a_killed_gateway_is_copied_with_its_write_ahead_file(live: Path) -> None:
    left = live.with_name("left")
    left.mkdir()
    for name in names(live):
        put(left, name, (live / name).read_bytes())
    gathered = taken(left, Wish(spaces=True))
    copies = {item.name: item.content for item in gathered.items if item.name in ("log.sqlite", "spaces.sqlite")}
    for name, rows in (("log.sqlite", "SELECT name FROM stream"), ("spaces.sqlite", "SELECT x FROM t")):
        copy = copies[name]
        assert isinstance(copy, Path)
        assert copy.parent == live.parent / "staging"
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute(rows).fetchall()[-1] == ("written",)


def test_open_databases_are_copied_and_closed_audits_are_not(live: Path) -> None:
    gathered = taken(live, Wish(spaces=True), is_live=True)
    where = {item.name: item.content for item in gathered.items if item.name.endswith(".sqlite")}
    staging = live.parent / "staging"
    assert where == {
        "log.sqlite": staging / "log.sqlite",
        "spaces.sqlite": staging / "spaces.sqlite",
        SUBSCRIPTIONS: staging / "projects-spaces.sqlite",
        "audit/0000000000000001.sqlite": live / "audit/0000000000000001.sqlite",
        "audit/0000000000000009.sqlite": staging / "audit-0000000000000009.sqlite",
    }
    assert {path.stat().st_mode & 0o777 for path in staging.iterdir()} == {0o600}
    assert staging.stat().st_mode & 0o777 == 0o700


def test_audits_of_all_processes_that_share_the_folder_are_in_it(live: Path) -> None:
    """Of each the last file is being written, whatever the numbers of the others are."""
    of_processes = [f"processes/{number}/audit/{at:016d}.sqlite" for number in (1, 12) for at in (1, 3)]
    for name in of_processes:
        put(live, name, (live / "audit/0000000000000001.sqlite").read_bytes())
    put(live, "processes/1/audit/zzz.sqlite", b"")
    put(live, "processes/1.lock", b"")
    gathered = taken(live, is_live=True)
    where = {item.name: item.content for item in gathered.items if item.name in of_processes}
    staging = live.parent / "staging"
    copied = {name for name, content in where.items() if isinstance(content, Path) and content.parent == staging}
    assert (set(where), copied) == (set(of_processes), {name for name in of_processes if "03." in name})
    assert gathered.left_out == 2, "the thesis and what is no audit"
    module.remove_staging(staging)
    assert not named(taken(live, Wish(audit=False))) & set(of_processes)


def test_certificates_of_before_and_after_the_log_are_in_it_and_revocations_of_after(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the log names at its moment is there, though it be given up or come during the copy."""
    (early,) = (live / "leafs").iterdir()
    copy = copy_database

    def meanwhile(source: Path, target: Path, **more: object) -> None:
        copy(source, target, **more)  # type: ignore[arg-type]
        if source.name == "log.sqlite":
            early.unlink()
            put(live, LEAF, b"a certificate")
            put(live, "revoked", b"later")

    monkeypatch.setattr(module, "copy_database", meanwhile)
    gathered = taken(live, is_live=True)
    content = {item.name: item.content for item in gathered.items}
    assert {f"leafs/{early.name}", LEAF} <= content.keys()
    assert content["revoked"] == b"later"


def test_keys_of_spaces_are_read_after_their_rows_and_contents_are_listed(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_database

    def meanwhile(source: Path, target: Path, **more: object) -> None:
        copy(source, target, **more)  # type: ignore[arg-type]
        if source == live / "spaces.sqlite":
            (live / f"spaces/keys/{SPACE}").unlink()

    monkeypatch.setattr(module, "copy_database", meanwhile)
    gathered = taken(live, Wish(spaces=True), is_live=True)
    assert f"spaces/keys/{SPACE}" not in named(gathered), "it ended meanwhile: nothing opens what is left of it"


@pytest.mark.parametrize("free", [0, 1])
def test_backup_that_would_leave_too_little_room_is_refused_before_a_byte_is_copied(
    live: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    files = ["log.sqlite", "log.sqlite-wal", "audit/0000000000000009.sqlite", SUBSCRIPTIONS]
    needed = sum((live / name).stat().st_size for name in files)
    room = SimpleNamespace(f_bavail=needed + 999 + free, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: room)
    if free:
        taken(live, is_live=True, room=1000)
        return
    with pytest.raises(BackupError, match=r"room_left_bytes_min.*make room"):
        taken(live, is_live=True, room=1000)
    assert not (live.parent / "staging").exists()


def test_stopped_folder_needs_no_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=1))
    taken(folder, room=10**12)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device", "x"), sqlite3.OperationalError("full")])
def test_fault_of_the_disk_is_told_in_one_line(live: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(module, "copy_database", fail)
    with pytest.raises(BackupError, match="cannot"):
        taken(live, is_live=True)


def test_damaged_log_is_told(folder: Path) -> None:
    put(folder, "log.sqlite", b"x" * 5000)
    with pytest.raises(BackupError, match="cannot copy a database"):
        taken(folder)
