"""`heliograph backup` and `restore` as a person or a script meets them."""

import errno
import gzip
import json
import os
import signal
import stat
from pathlib import Path

import pytest

from gateway.commands.cli import main
from tests.gateway.backup.folders import archived, made, names
from tests.gateway.commands.fake_gateway import Asked, Reply, fake_gateway, running_on


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELIOGRAPH_DATA", "HELIOGRAPH_OPERATOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path / "data")


def backups(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.iterdir() if path.is_file()]


def test_backup_has_a_name_with_its_time_and_is_its_owners_alone(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", "--data", "data"]) == 0
    (file,) = backups(tmp_path)
    assert file.match("heliograph-backup-2???????T??????Z.tar")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = capsys.readouterr().out
    assert told.startswith(f"{file.name}: ")
    assert "without echo spaces, with the audit" in told
    assert "left out: 1 files" in told
    assert "keys" in told
    assert "no command log" not in told


def test_backup_without_a_log_says_so(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of gateways on an engine: nobody is to find that out when it is too late."""
    (folder / "log.sqlite").unlink()
    for command in (["backup", "--data", "data", "--out", "b.tar"], ["restore", "b.tar", "--check"]):
        assert main(command) == 0
        assert "It has no command log" in capsys.readouterr().out


def test_backup_goes_into_a_folder_that_is_named_and_is_compressed_if_asked(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").mkdir()
    assert main(["backup", "--data", "data", "--out", "kept", "--gzip", "--spaces", "--no-audit", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (file,) = (tmp_path / "kept").iterdir()
    assert (told["file"], told["bytes"]) == (f"kept/{file.name}", file.stat().st_size)
    assert (told["has_spaces"], told["has_audit"], told["left_out"]) == (True, False, 1)
    assert file.name.endswith(".tar.gz")
    assert gzip.decompress(file.read_bytes())


def test_what_is_backed_up_is_restored(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "--data", "data", "--out", "b.tar", "--spaces"]) == 0
    assert main(["restore", "b.tar", "--check"]) == 0
    assert "can be restored" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()
    assert main(["restore", "b.tar", "--data", "new"]) == 0
    assert "heliograph serve --data new" in capsys.readouterr().out
    assert names(tmp_path / "new") <= names(folder) | {"lock"}
    assert main(["restore", "b.tar", "--data", "new"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["restore", "b.tar", "--data", "newer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["has_spaces"] is True


@pytest.mark.parametrize("kind", ["file", "link"])
def test_file_that_exists_is_not_replaced(
    tmp_path: Path, folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b.tar"
    out.write_text("precious") if kind == "file" else out.symlink_to("nowhere")
    assert main(["backup", "--data", "data", "--out", "b.tar"]) == 2
    assert "b.tar exists" in capsys.readouterr().err
    assert kind == "link" or out.read_text() == "precious"


def test_file_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sync = os.fsync

    def fsync(fd: int) -> None:
        (tmp_path / "b.tar").write_text("precious")
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    assert main(["backup", "--data", "data", "--out", "b.tar"]) == 2
    assert "exists" in capsys.readouterr().err
    assert [path.name for path in backups(tmp_path)] == ["b.tar"]
    assert (tmp_path / "b.tar").read_text() == "precious"


@pytest.mark.parametrize("gzips", [True, False])
def test_full_disk_leaves_nothing_of_a_backup(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gzips: bool
) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    assert main(["backup", "--data", "data", "--out", "b.tar", *(["--gzip"] if gzips else [])]) == 2
    assert "No space left on device): there is nothing of the backup" in capsys.readouterr().err
    assert backups(tmp_path) == []


def test_signal_leaves_nothing_of_a_backup(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit):
        main(["backup", "--data", "data", "--out", "b.tar"])
    assert backups(tmp_path) == []


def test_folder_that_is_not_there_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "--data", "data", "--out", "nowhere/b.tar"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err
    assert main(["backup", "--data", "other"]) == 2
    assert "heliograph serve --data other" in capsys.readouterr().err


def test_file_that_is_no_backup_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("nonsense")
    for words in (["restore", "x", "--check"], ["restore", "x", "--data", "new"], ["restore", "y", "--data", "new"]):
        assert main(words) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "new").exists()


# ---- of a running gateway --------------------------------------------------------------------------------------------


def fetched(folder: Path, reply: Reply, *words: str) -> tuple[int, list[Asked]]:
    with fake_gateway(lambda _: reply) as server, running_on(folder, server):
        return main(["backup", "--data", str(folder), "--out", "b.tar", *words]), server.asked


def test_backup_of_a_running_gateway_is_fetched_with_a_token_of_all_scopes(tmp_path: Path, folder: Path) -> None:
    data = archived(folder)
    code, (asked,) = fetched(folder, Reply(data, content_type="application/x-tar"), "--spaces")
    assert code == 0
    assert (asked.method, asked.path, asked.body) == ("POST", "/admin/backup", {"spaces": True, "audit": True})
    assert (tmp_path / "b.tar").read_bytes() == data


@pytest.mark.parametrize("cut", [0, 512, 5_000, -1])
def test_answer_that_is_not_whole_is_not_kept(
    tmp_path: Path, folder: Path, cut: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data = archived(folder)
    code, _ = fetched(folder, Reply(data[:cut], content_type="application/x-tar"))
    assert code == 2
    assert "no whole backup" in capsys.readouterr().err
    assert backups(tmp_path) == []


def test_answer_that_breaks_off_is_told_and_not_kept(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-tar\r\nTransfer-Encoding: chunked\r\n\r\n"
    code, _ = fetched(folder, Reply(head + b"200\r\n" + archived(folder)[:512] + b"\r\n", 0))
    assert code == 2
    assert "broke off" in capsys.readouterr().err
    assert backups(tmp_path) == []


def test_refusal_is_told_and_nothing_is_kept(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusal = {"code": "E_RATE_LIMITED", "message": "Another backup is being taken.", "suggested_fix": "Try again."}
    code, _ = fetched(folder, Reply(refusal, 429))
    assert code == 2
    assert "Another backup is being taken. Try again." in capsys.readouterr().err
    assert backups(tmp_path) == []
