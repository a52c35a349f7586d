"""Who a device is: its files, its fingerprint, and manifests that a gateway accepts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from nacl.signing import SigningKey

import actors.device.identity as identity_module
from actors.device.handlers import CAPABILITIES
from actors.device.identity import (
    DeviceIdentity,
    IdentityError,
    hw_fingerprint,
    manifest_signer,
    newer_token_from,
    this_machine,
)
from actors.device.identity_files import KEY_FILE, LEAF_FILE, TOKEN_FILE
from schemas.canonical import digest
from schemas.manifest import Accepted, accept
from tests.schemas.attested import LEAF, NODE_KEY, NOW_MS, SESSION, known
from tests.schemas.examples import ECHO_CAPABILITY, NODE_ID

IDENTITY = DeviceIdentity(NODE_KEY, LEAF, "a.b.c")
FINGERPRINT = hw_fingerprint("1234", "00:11:22:33:44:55")


# ---- files -----------------------------------------------------------------------------------------------------------


def test_an_identity_survives_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    IDENTITY.save(folder)
    read = DeviceIdentity.load(folder)
    assert (read.key, read.leaf.kid, read.token) == (NODE_KEY, LEAF.kid, "a.b.c")
    assert read.node_id == NODE_ID
    IDENTITY.save(folder)  # again, over the old files
    assert sorted(file.name for file in folder.iterdir()) == sorted([KEY_FILE, LEAF_FILE, TOKEN_FILE])


def test_others_can_read_neither_the_folder_nor_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    IDENTITY.save(folder)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    IDENTITY.save(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(IdentityError, match="chmod 600"):
        DeviceIdentity.load(tmp_path)


@pytest.mark.parametrize("file", [KEY_FILE, LEAF_FILE, TOKEN_FILE])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    IDENTITY.save(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(IdentityError, match=file):
        DeviceIdentity.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "data"), [(KEY_FILE, b"not hex"), (KEY_FILE, b"00ff"), (KEY_FILE, b"\xff\xfe"), (LEAF_FILE, b"not DER")]
)
def test_a_broken_file_is_refused(tmp_path: Path, file: str, data: bytes) -> None:
    IDENTITY.save(tmp_path)
    (tmp_path / file).write_bytes(data)
    with pytest.raises(IdentityError):
        DeviceIdentity.load(tmp_path)


def test_a_key_that_is_not_the_certificates_is_refused() -> None:
    with pytest.raises(IdentityError, match="not the one"):
        DeviceIdentity(SigningKey(bytes(32)), LEAF, "a.b.c")


def test_a_newer_token_is_one_that_somebody_put_there(tmp_path: Path) -> None:
    newer_token = newer_token_from(tmp_path)
    assert newer_token("old") is None, "there is no file"
    (tmp_path / TOKEN_FILE).write_text("old\n")
    assert newer_token("old") is None
    (tmp_path / TOKEN_FILE).write_text("new\n")
    assert newer_token("old") == "new"
    (tmp_path / TOKEN_FILE).write_text("\n")
    assert newer_token("old") is None
    (tmp_path / TOKEN_FILE).write_bytes(b"\xff\xfe")
    assert newer_token("old") is None, "no token at all"


# ---- the fingerprint -------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_over_the_sources_it_lists() -> None:
    fingerprint = FINGERPRINT
    assert fingerprint == {
        "algo": "blake3-256",
        "value": digest({"machine_id": "1234", "mac_primary": "00:11:22:33:44:55"}),
        "sources": ["machine_id", "mac_primary"],
    }
    assert hw_fingerprint("1234", None)["sources"] == ["machine_id"]
    assert hw_fingerprint(None, "00:11:22:33:44:55")["sources"] == ["mac_primary"]
    assert hw_fingerprint("1234", None)["value"] != hw_fingerprint(None, "1234")["value"]


def test_a_machine_with_nothing_to_be_known_by_has_no_fingerprint() -> None:
    with pytest.raises(IdentityError):
        hw_fingerprint(None, "")


def test_this_machine_reads_the_same_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("1234\n")
    files = (tmp_path / "none", tmp_path / "machine-id")
    monkeypatch.setattr(identity_module._machine_id, "__defaults__", (files,))  # noqa: SLF001
    assert this_machine() == this_machine()
    assert "machine_id" in this_machine()["sources"]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_machine_id_that_says_nothing_is_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "machine-id").write_bytes(content)
    assert identity_module._machine_id([tmp_path / "machine-id"]) is None  # noqa: SLF001


def cards(**macs: str) -> dict[str, list[Any]]:
    internet = SimpleNamespace(family=2, address="192.0.2.1")
    return {name: [internet, SimpleNamespace(family=psutil.AF_LINK, address=mac)] for name, mac in macs.items()}


@pytest.mark.parametrize(
    ("found", "primary"),
    [
        (cards(lo="00:00:00:00:00:00"), None),
        (cards(lo="00:00:00:00:00:00", eth1="00:11:22:33:44:66", eth0="00:11:22:33:44:55"), "00:11:22:33:44:55"),
        (cards(docker0="02:42:00:00:00:01", wlan0="AC:11:22:33:44:55"), "ac:11:22:33:44:55"),
        (cards(docker0="02:42:00:00:00:01"), "02:42:00:00:00:01"),
    ],
)
def test_the_primary_card_is_a_real_one_if_there_is_any(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, list[Any]], primary: str | None
) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    assert identity_module._mac_primary() == primary  # noqa: SLF001


# ---- the manifest ----------------------------------------------------------------------------------------------------


def test_a_gateway_accepts_the_manifest() -> None:
    signed = manifest_signer(IDENTITY, FINGERPRINT, CAPABILITIES)(NOW_MS)
    accepted = accept(signed.manifest, SESSION, known(), None, NOW_MS)
    assert isinstance(accepted, Accepted), accepted
    assert accepted.etag == signed.etag
    assert [tool.name for tool in accepted.tools] == [
        f"sys.{NODE_ID}.metrics.snapshot",
        f"sys.{NODE_ID}.metrics.subscribe",
        f"sysecho.{NODE_ID}.echo.invoke",
    ]


def test_the_echo_capability_is_the_one_of_the_rfc() -> None:
    manifest = manifest_signer(IDENTITY, FINGERPRINT, CAPABILITIES)(NOW_MS).manifest
    assert manifest["capabilities"][0] == ECHO_CAPABILITY


def test_it_lives_a_day_or_as_long_as_it_is_told() -> None:
    manifest = manifest_signer(IDENTITY, FINGERPRINT, CAPABILITIES)(NOW_MS).manifest
    assert manifest["expires_at_ms"] - manifest["issued_at_ms"] == 86_400_000
    manifest = manifest_signer(IDENTITY, FINGERPRINT, CAPABILITIES, life_ms=60_000)(NOW_MS).manifest
    assert (manifest["issued_at_ms"], manifest["expires_at_ms"]) == (NOW_MS, NOW_MS + 60_000)
