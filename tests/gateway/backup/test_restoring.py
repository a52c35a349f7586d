"""A folder made of a backup: all of it, or nothing, whatever goes wrong and whenever."""

import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import gateway.backup.restoring as module
from actors.log.sqlite_files import sync_folder
from gateway.backup.archive import Archive
from gateway.backup.gathering import BackupError, Gathered, Item, Wish
from gateway.backup.restoring import check, restore
from gateway.main.data_folder import DataFolder, FolderError, is_data_folder
from tests.gateway.backup.folders import FILE, NOW_MS, SITE, SPACE, archived, contents, made, names

SPACES = {"spaces.sqlite", f"spaces/keys/{SPACE}", f"spaces/{SPACE}/{FILE}"}
NEVER = {"thesis.txt", "running.json", "sites/incoming/0", "lock"}


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return made(tmp_path / "origin")


@pytest.fixture
def backup(tmp_path: Path, origin: Path) -> Path:
    file = tmp_path / "backup.tar"
    file.write_bytes(archived(origin))
    return file


def written(tmp_path: Path, *items: Item, forms: dict[str, int] | None = None) -> Path:
    file = tmp_path / "other.tar"
    keys = [Item(name, b"k") for name in ("token.key", "ca.key", "ca.crt")]
    gathered = Gathered(Wish(), forms=forms or {}, items=[*keys, *items])
    file.write_bytes(b"".join(Archive(gathered, "9.9.9", 1).pieces()))
    return file


@pytest.mark.parametrize("exists", [True, False])
def test_restored_folder_has_every_byte_and_belongs_to_its_owner_alone(
    tmp_path: Path, origin: Path, backup: Path, exists: bool
) -> None:
    folder = tmp_path / "new"
    if exists:
        folder.mkdir(mode=0o700)
    manifest = restore(backup, folder)
    expected = names(origin) - NEVER
    assert names(folder) - {"lock"} == expected
    assert contents(folder, expected) == contents(origin, expected)
    assert {member.name for member in manifest.members} == expected
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert modes == {True: 0o700, False: 0o600}
    with DataFolder.hold(folder, NOW_MS, make=False) as held:
        assert held.verifier.is_revoked("01HZXC0000000000000000J000")
        assert held.certificates.leafs_of("01hzxc0000000000000000n0d0") != ()


def test_backup_without_spaces_makes_a_folder_without_any(tmp_path: Path, origin: Path) -> None:
    file = tmp_path / "backup.tar"
    file.write_bytes(archived(origin, Wish()))
    restore(file, tmp_path / "new")
    assert names(tmp_path / "new") - {"lock"} == names(origin) - NEVER - SPACES


@pytest.mark.parametrize("there", ["token.key", "thesis.txt", ".hidden", "folder/"])
def test_folder_that_is_not_empty_is_left_as_it_is(tmp_path: Path, backup: Path, there: str) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / there).mkdir() if there.endswith("/") else (folder / there).write_text("precious")
    with pytest.raises(BackupError, match="is not empty"):
        restore(backup, folder)
    assert [path.name for path in folder.iterdir()] == [there.strip("/")]


def test_root_of_a_new_volume_is_empty(tmp_path: Path, origin: Path, backup: Path) -> None:
    """ext4 has a folder of its own there."""
    volume = tmp_path / "volume"
    (volume / "lost+found" / "found").mkdir(parents=True)
    data = backup.read_bytes()
    backup.write_bytes(data.replace(b"hello", b"hullo"))
    with pytest.raises(BackupError, match="not as it was written"):
        restore(backup, volume)
    assert [path.name for path in volume.iterdir()] == ["lost+found"]
    backup.write_bytes(data)
    restore(backup, volume)
    assert names(volume) - {"lock"} == names(origin) - NEVER
    assert (volume / "lost+found" / "found").is_dir()


def test_folder_that_somebody_has_filled_between_two_looks_is_left_as_it_is(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new"
    real = fcntl.flock

    def late(fd: int, how: int) -> None:
        monkeypatch.undo()
        restore(backup, folder)
        (folder / "ca.crt").write_text("theirs")
        real(fd, how)

    folder.mkdir()
    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(BackupError, match="is not empty"):
        restore(backup, folder)
    assert (folder / "ca.crt").read_text() == "theirs"


@pytest.mark.parametrize("has_begun", [True, False])
def test_folder_that_somebody_else_takes_as_soon_as_it_is_made_stays_theirs(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """Two restores at once, or a gateway that starts: whoever comes second removes nothing."""
    folder = tmp_path / "new"
    with ExitStack() as theirs:
        real = fcntl.flock

        def taken(fd: int, how: int) -> None:
            monkeypatch.undo()
            real(theirs.enter_context((folder / "lock").open("w")), fcntl.LOCK_EX)
            if has_begun:
                (folder / "token.key").write_text("theirs")
            real(fd, how)

        monkeypatch.setattr(fcntl, "flock", taken)
        with pytest.raises(BackupError, match="in use"):
            restore(backup, folder)
        assert names(folder) == ({"lock", "token.key"} if has_begun else {"lock"})


def test_name_of_a_new_folder_is_durable_with_those_above_it(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def sync(path: Path) -> None:
        synced.append(path)
        sync_folder(path)

    monkeypatch.setattr(module, "sync_folder", sync)
    restore(backup, tmp_path / "a" / "b" / "new")
    assert {tmp_path / "a" / "b", tmp_path / "a", tmp_path} <= set(synced)


@pytest.mark.parametrize("how", [fcntl.LOCK_EX, fcntl.LOCK_SH])  # a gateway, or one of several
def test_folder_that_somebody_else_has_is_refused(tmp_path: Path, backup: Path, how: int) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, how)
        with pytest.raises(BackupError, match="in use"):
            restore(backup, folder)
    assert names(folder) == {"lock"}


def test_path_that_is_a_file_is_told(tmp_path: Path, backup: Path) -> None:
    (tmp_path / "new").write_text("precious")
    with pytest.raises(BackupError, match="cannot restore into"):
        restore(backup, tmp_path / "new")
    assert (tmp_path / "new").read_text() == "precious"


@pytest.mark.parametrize("exists", [True, False])
def test_restore_that_fails_leaves_a_folder_that_was_there_and_no_other(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk", "somewhere")

    monkeypatch.setattr(module, "_write", fail)
    folder = tmp_path / "new"
    if exists:
        folder.mkdir()
    with pytest.raises(BackupError, match="the disk"):
        restore(backup, folder)
    assert folder.exists() == exists


def test_broken_backup_makes_nothing(tmp_path: Path, backup: Path) -> None:
    data = backup.read_bytes()
    backup.write_bytes(data[: len(data) // 2])
    with pytest.raises(BackupError, match="no whole backup"):
        restore(backup, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_backup_of_a_newer_form_makes_nothing_and_says_what_to_install(tmp_path: Path) -> None:
    file = written(tmp_path, forms={"log": 99})
    with pytest.raises(BackupError, match=r"log of form 99, .*\(heliograph 9\.9\.9\)"):
        restore(file, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["../escaped", "thesis.txt", "lock"])
def test_name_that_no_backup_has_makes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(BackupError, match="no backup has"):
        restore(written(tmp_path, Item(name, b"x")), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "escaped").exists()


def test_log_that_was_damaged_before_it_was_copied_is_found_now(tmp_path: Path) -> None:
    for damaged in (b"x" * 5000, b""):
        file = written(tmp_path, Item("log.sqlite", damaged), forms={"log": 4})
        assert check(file).forms == {"log": 4}
        with pytest.raises(BackupError, match="its log was damaged"):
            restore(file, tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_log_of_an_earlier_form_is_restored_as_it_is(tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "actors" / "log" / "recorded" / "form-2.sqlite"
    restore(written(tmp_path, Item("log.sqlite", log.read_bytes()), forms={"log": 2}), tmp_path / "new")
    with closing(sqlite3.connect(tmp_path / "new" / "log.sqlite")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


# ---- what may go wrong on the way ------------------------------------------------------------------------------------


class Counted:
    """Fails, or stops the process, at the n-th of all calls that change the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, fault: BaseException) -> None:
        self.calls = 0
        for owner, name in ((os, "fsync"), (os, "mkdir"), (Path, "rename"), (module, "sync_folder")):
            monkeypatch.setattr(owner, name, self._failing(getattr(owner, name), at, fault))

    def _failing(self, real: Callable[..., object], at: int, fault: BaseException) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            self.calls += 1
            if self.calls == at:
                raise fault
            return real(*arguments, **more)

        return call


def steps(backup: Path, folder: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch, 0, OSError())
        restore(backup, folder)
    return counted.calls


def test_full_disk_at_any_step_leaves_nothing(tmp_path: Path, backup: Path) -> None:
    count = steps(backup, tmp_path / "all")
    assert count > 30
    left = 0
    for at in range(1, count):
        folder = tmp_path / f"new-{at}"
        said = ""
        with pytest.MonkeyPatch.context() as patch:
            Counted(patch, at, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"))
            try:
                restore(backup, folder)
            except BackupError as error:
                said = str(error)
        if is_data_folder(folder):  # a folder that is there need not be made, and the last names may not be durable
            assert names(folder) == names(tmp_path / "all")
            left += 1
        else:
            assert "cannot restore into" in said
            assert "No space left" in said
            assert not folder.exists(), at
    assert left < count / 2


class PulledPlugError(BaseException):
    """Nothing more is done."""


def test_machine_that_stops_at_any_step_leaves_no_folder_that_a_gateway_would_start_on(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all").mkdir()
    count = steps(backup, tmp_path / "all")
    monkeypatch.setattr(module, "_remove_all", lambda _: None)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    for at in range(1, count):
        folder = tmp_path / f"new-{at}"
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            Counted(patch, at, PulledPlugError())
            with pytest.raises(PulledPlugError):
                restore(backup, folder)
        if is_data_folder(folder):
            assert names(folder) == names(tmp_path / "all")
            with DataFolder.hold(folder, NOW_MS):
                pass
            continue
        if (folder / "restoring").exists():
            for make in (True, False):
                with (
                    pytest.raises(FolderError, match="did not end: empty it"),
                    DataFolder.hold(folder, NOW_MS, make=make),
                ):
                    pass
        else:
            assert names(folder) <= {"lock"}


def test_file_that_is_changed_between_two_looks_makes_nothing(
    tmp_path: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchanged(_: Path) -> object:
        manifest = check(backup)
        data = backup.read_bytes()
        backup.write_bytes(data.replace(b"hello", b"hullo"))
        return manifest

    assert b"hello" in backup.read_bytes()
    monkeypatch.setattr(module, "check", exchanged)
    with pytest.raises(BackupError, match="not as it was written"):
        restore(backup, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert SITE.startswith("sites/")
