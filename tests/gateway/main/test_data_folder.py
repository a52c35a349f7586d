"""The data folder: made once, private, held by one, and the same after a restart."""

import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from actors.device.identity import DeviceIdentity
from gateway.identity.tokens import OperatorScope, Principal, Scope, TokenClass, TokenFault
from gateway.main.data_folder import ECHO_KEY, SINCE_FILE, DataFolder, FolderError, FolderInUseError, issuer_of
from tests.schemas.examples import NODE_ID

NOW_MS = 1_790_000_000_000
JTI = "01HZXC0000000000000000J000"
AGENT = "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6"


def hold_existing(path: Path) -> AbstractContextManager[DataFolder]:
    return DataFolder.hold(path, NOW_MS, make=False)


def agent_token(folder: DataFolder) -> str:
    return folder.mint(TokenClass.AGENT_RUNTIME, AGENT, "acme", [Scope.READ_ONLY], 60, JTI, NOW_MS)


def test_first_start_makes_keys_that_nobody_else_can_read(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path / "data", NOW_MS) as folder:
        folder.enroll(NODE_ID, "acme", JTI, NOW_MS)
        folder.revoke(JTI)
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"token.key", "ca.key", "ca.crt", "revoked", "lock"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_key_of_echo_is_made_once_and_only_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / ECHO_KEY
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        assert not file.exists()
        key = folder.echo_key()
    assert (len(key), stat.S_IMODE(file.stat().st_mode)) == (32, 0o600)
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        assert folder.echo_key() == key


@pytest.mark.parametrize("damaged", ["", "00" * 31, "x" * 64])
def test_damaged_key_of_echo_is_told(tmp_path: Path, damaged: str) -> None:
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        (tmp_path / ECHO_KEY).write_text(damaged)
        with pytest.raises(FolderError, match="damaged"):
            folder.echo_key()


def test_tokens_certificates_and_revocations_survive_a_restart(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        token = agent_token(folder)
        identity = folder.enroll(NODE_ID, "acme", "01HZXC0000000000000000J001", NOW_MS)
        keys = folder.jwks
    with DataFolder.hold(tmp_path, NOW_MS + 1000) as folder:
        assert folder.jwks == keys
        assert isinstance(folder.verifier.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS), Principal)
        known = folder.certificates.resolve(identity.leaf.kid)
        assert known == identity.leaf
        assert folder.certificates.vouches_for(known, NOW_MS)
        folder.revoke(JTI)
        assert folder.verifier.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS) is TokenFault.REVOKED
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        assert folder.verifier.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS) is TokenFault.REVOKED


def test_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with (
        DataFolder.hold(tmp_path, NOW_MS),
        pytest.raises(FolderInUseError, match="in use"),
        DataFolder.hold(tmp_path, NOW_MS),
    ):
        pass
    with DataFolder.hold(tmp_path, NOW_MS):
        pass


def test_enrolled_node_gets_an_identity_that_can_be_saved_and_used(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path / "data", NOW_MS) as folder:
        identity = folder.enroll(NODE_ID, "acme", JTI, NOW_MS)
        identity.save(tmp_path / "node")
        assert DeviceIdentity.load(tmp_path / "node") == identity
        principal = folder.verifier.verify(identity.token, TokenClass.DEVICE_RUNTIME, NOW_MS)
        assert isinstance(principal, Principal)
        assert (principal.sub, principal.tenant) == (NODE_ID, "acme")
        assert principal.scopes == frozenset({"device:connect"})


# ---- whose folder it is ---------------------------------------------------------------------------------------------


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_folder_is_made_by_a_gateway_that_starts_and_by_nobody_else(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="there is no data folder"), hold_existing(tmp_path / "data"):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FolderError, match="not a gateway's data folder"), hold_existing(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
    with DataFolder.hold(tmp_path, NOW_MS) as made:
        keys = made.jwks
    before = files(tmp_path)
    with hold_existing(tmp_path) as held:
        assert held.jwks == keys
    assert files(tmp_path) == before


@pytest.mark.parametrize("missing", [("ca.crt",), ("ca.crt", "ca.key"), ("ca.crt", "ca.key", "token.key")])
def test_interrupted_first_start_is_finished_by_the_next_and_keeps_what_there_was(
    missing: tuple[str, ...], tmp_path: Path
) -> None:
    with DataFolder.hold(tmp_path, NOW_MS):
        pass
    for name in missing:
        (tmp_path / name).unlink()
    (tmp_path / f"{missing[-1]}.new").write_bytes(b"half a k")  # what it was about to write
    before = files(tmp_path)
    told = "interrupted" if len(missing) < 3 else "not a gateway's data folder"
    with pytest.raises(FolderError, match=told), hold_existing(tmp_path):
        pass
    with pytest.raises(FolderError, match=told):
        issuer_of(tmp_path)
    assert files(tmp_path) == before
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        identity = folder.enroll(NODE_ID, "acme", JTI, NOW_MS)
        assert folder.certificates.vouches_for(identity.leaf, NOW_MS)
    after = files(tmp_path)
    kept = {"token.key", "ca.key"} - set(missing)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    with hold_existing(tmp_path):
        pass


def test_backup_without_its_lock_is_a_gateways_folder(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS):
        pass
    (tmp_path / "lock").unlink()
    with hold_existing(tmp_path), pytest.raises(FolderInUseError), hold_existing(tmp_path):
        pass


def test_token_is_signed_for_a_folder_that_somebody_holds(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        token = issuer_of(tmp_path).mint(
            sub="ada",
            tenant="operators",
            token_class=TokenClass.OPERATOR,
            scopes=[OperatorScope.FLEET_READ],
            jti=JTI,
            now_ms=NOW_MS,
            life_s=60,
        )
        assert isinstance(folder.verifier.verify(token, TokenClass.OPERATOR, NOW_MS), Principal)


def test_disk_that_refuses_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with (
        pytest.raises(FolderError, match=r"cannot use the data folder .*File exists"),
        DataFolder.hold(tmp_path / "data", NOW_MS),
    ):
        pass


@pytest.mark.parametrize("name", ["token.key", "ca.key", "ca.crt", "leafs/x.crt"])
def test_damaged_file_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS):
        pass
    (tmp_path / "leafs").mkdir()
    (tmp_path / name).write_text("half a k")
    with pytest.raises(FolderError, match="restore the folder from a backup"), DataFolder.hold(tmp_path, NOW_MS):
        pass


def test_revocation_that_the_disk_takes_in_part_counts_now_and_spoils_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = "01HZXC0000000000000000J001", "01HZXC0000000000000000J002"
    written = os.write
    with DataFolder.hold(tmp_path / "data", NOW_MS) as folder:
        token = folder.mint(TokenClass.AGENT_RUNTIME, AGENT, "acme", [Scope.READ_ONLY], 60, first, NOW_MS)
        monkeypatch.setattr(os, "write", lambda fd, data: written(fd, data[:19]))
        with pytest.raises(OSError, match="space"):
            folder.revoke(first)
        monkeypatch.setattr(os, "write", written)
        assert folder.verifier.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS) is TokenFault.REVOKED
        folder.revoke(second)
        folder.revoke(first)
    with DataFolder.hold(tmp_path / "data", NOW_MS) as folder:
        assert {first, second} <= set(folder.revoked())


def test_node_id_that_another_tenant_has_is_not_enrolled_again(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path / "data", NOW_MS) as folder:
        folder.enroll(NODE_ID, "acme", "01HZXC0000000000000000J001", NOW_MS)
        folder.enroll(NODE_ID, "acme", "01HZXC0000000000000000J002", NOW_MS)
        with pytest.raises(ValueError, match="another tenant"):
            folder.enroll(NODE_ID, "umbra", "01HZXC0000000000000000J003", NOW_MS)
        assert folder.certificates.tenants_of(NODE_ID) == {"acme"}


def test_moment_from_which_operators_need_scopes_is_recorded_once_by_a_start(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS) as folder:
        assert folder.operators_since_ms == NOW_MS
    with DataFolder.hold(tmp_path, NOW_MS + 5000) as folder:
        assert folder.operators_since_ms == NOW_MS
    assert stat.S_IMODE((tmp_path / SINCE_FILE).stat().st_mode) == 0o600


def test_folder_of_an_older_version_records_it_at_its_next_start_and_not_for_a_command(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS):
        (tmp_path / SINCE_FILE).unlink()
    with DataFolder.hold(tmp_path, NOW_MS + 5000, make=False) as folder:
        assert folder.operators_since_ms == 0
    assert not (tmp_path / SINCE_FILE).exists()
    with DataFolder.hold(tmp_path, NOW_MS + 9000) as folder:
        assert folder.operators_since_ms == NOW_MS + 9000


def test_damaged_moment_stops_the_start_instead_of_being_replaced(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS):
        (tmp_path / SINCE_FILE).write_text("x")
    with pytest.raises(FolderError, match="damaged"), DataFolder.hold(tmp_path, NOW_MS):
        pass
