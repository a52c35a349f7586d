"""A backup as a file: read back as it was written, and nothing else is taken for one."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gateway.backup.archive as module
from gateway.backup.archive import Archive, verified
from gateway.backup.gathering import BackupError, Gathered, Item, Wish
from gateway.backup.manifest_rules import Manifest
from gateway.backup.restoring import FORMS_MAX, check

SMALL = [Item(name, name.encode() * 20) for name in ("token.key", "ca.key", "ca.crt", "revoked")]


def archive(*items: Item) -> bytes:
    return b"".join(Archive(Gathered(Wish(), items=[*SMALL, *items]), "0.1.0", 1).pieces())


class Whole(bytes):
    """Not shown by a failing test."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module")
def whole() -> bytes:
    return Whole(archive())


def verdict(tmp_path: Path, data: bytes) -> Manifest | str:
    file = tmp_path / "backup"
    file.write_bytes(data)
    try:
        return verified(file, FORMS_MAX)
    except BackupError as error:
        return str(error)


def test_other_programs_read_it(whole: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        members = tar.getmembers()
        assert [member.name for member in members][-1] == "manifest.json"
        assert {member.mode for member in members} == {0o600}
        revoked = tar.extractfile("revoked")
        assert revoked is not None
        assert revoked.read() == b"revoked" * 20


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 256 * 1024, 256 * 1024 + 1])
def test_file_of_any_size_is_read_back(tmp_path: Path, size: int) -> None:
    (tmp_path / "log").write_bytes(bytes([7]) * size)
    read = verdict(tmp_path, archive(Item("log.sqlite", tmp_path / "log")))
    assert isinstance(read, Manifest)
    assert [member.size for member in read.members if member.name == "log.sqlite"] == [size]


def test_size_beyond_8_gib_fits_its_header() -> None:
    header = Archive(Gathered(Wish()), "0.1.0", 1)._header("log.sqlite", 9 * 1024**3)  # noqa: SLF001
    assert tarfile.TarInfo.frombuf(header, "ascii", "strict").size == 9 * 1024**3


def test_file_that_was_removed_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    read = verdict(tmp_path, archive(Item("log.sqlite", tmp_path / "gone")))
    assert isinstance(read, Manifest)
    assert "log.sqlite" not in {member.name for member in read.members}


def test_file_that_becomes_shorter_breaks_it_off(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(bytes(600_000))
    pieces = Archive(Gathered(Wish(), items=[Item("log.sqlite", file)]), "0.1.0", 1).pieces()
    next(pieces)
    file.write_bytes(b"")
    with pytest.raises(BackupError, match="shorter"):
        list(pieces)


def test_compressed_one_is_read_too(tmp_path: Path, whole: bytes) -> None:
    assert isinstance(verdict(tmp_path, gzip.compress(whole)), Manifest)


def test_one_that_breaks_off_anywhere_is_refused(tmp_path: Path, whole: bytes) -> None:
    for cut in (*range(0, len(whole), 512), len(whole) - 1, 1, 511):
        assert "no whole backup" in str(verdict(tmp_path, whole[:cut])), cut
    packed = gzip.compress(whole)
    for cut in range(2, len(packed), 37):
        assert "no whole backup" in str(verdict(tmp_path, packed[:cut])), cut


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(min_value=0), changed=st.integers(1, 255))
def test_one_changed_byte_is_noticed_or_changes_nothing(tmp_path: Path, whole: bytes, at: int, changed: int) -> None:
    at %= len(whole)
    spoiled = whole[:at] + bytes([whole[at] ^ changed]) + whole[at + 1 :]
    expected, read = verdict(tmp_path, whole), verdict(tmp_path, spoiled)
    assert isinstance(expected, Manifest)
    if isinstance(read, Manifest):  # fields of a header that nobody reads, and those of the manifest that are free
        assert read.members == expected.members
        assert read.forms == expected.forms


@pytest.mark.parametrize("more", [b"x", bytes(1), bytes(512)])
def test_anything_behind_its_end_is_refused(tmp_path: Path, whole: bytes, more: bytes) -> None:
    assert "no whole backup" in str(verdict(tmp_path, whole + more))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"x", b"L", b"S"]
)
def test_anything_but_a_plain_file_is_refused(tmp_path: Path, whole: bytes, kind: bytes) -> None:
    """Also where nothing else is wrong with it."""
    head, rest = whole[: tarfile.BLOCKSIZE], whole[tarfile.BLOCKSIZE :]
    info = tarfile.TarInfo.frombuf(head, "ascii", "strict")
    assert isinstance(verdict(tmp_path, info.tobuf(tarfile.GNU_FORMAT) + rest), Manifest)
    info.type, info.linkname = kind, "/etc/passwd"
    assert "no whole backup" in str(verdict(tmp_path, info.tobuf(tarfile.GNU_FORMAT) + rest))


def test_header_that_promises_more_than_there_is_costs_no_memory(tmp_path: Path) -> None:
    for name in ("log.sqlite", "manifest.json"):
        info = tarfile.TarInfo(name)
        info.size = 2**62
        assert "no whole backup" in str(verdict(tmp_path, info.tobuf(tarfile.GNU_FORMAT) + bytes(2048)))


def test_more_files_than_a_manifest_has_room_for_are_not_read(
    tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes that unpack to nothing but headers must not cost memory for each."""
    monkeypatch.setattr(module, "MEMBERS_MAX", len(SMALL))
    assert isinstance(verdict(tmp_path, whole), Manifest)
    monkeypatch.setattr(module, "MEMBERS_MAX", len(SMALL) - 1)
    assert "no whole backup" in str(verdict(tmp_path, whole))


def test_same_name_twice_is_refused(tmp_path: Path) -> None:
    assert "no whole backup" in str(verdict(tmp_path, archive(Item("revoked", b"other"))))


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", b"\x1f\x8bnonsense", b"nonsense" * 1000, bytes(512), bytes(1024)])
def test_any_other_file_is_refused(tmp_path: Path, data: bytes) -> None:
    assert "no whole backup" in str(verdict(tmp_path, data))


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match=r"cannot read .*nope: No such file"):
        check(tmp_path / "nope")
    with pytest.raises(BackupError, match="Is a directory"):
        check(tmp_path)
