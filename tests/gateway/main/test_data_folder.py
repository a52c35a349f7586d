"""The data folder: made once, private, held by one, and the same after a restart."""

import stat
from pathlib import Path

import pytest

from actors.device.identity import DeviceIdentity
from gateway.identity.tokens import Principal, Scope, TokenClass, TokenFault
from gateway.main.data_folder import DataFolder, FolderInUseError
from tests.schemas.examples import NODE_ID

NOW_MS = 1_790_000_000_000
JTI = "01HZXC0000000000000000J000"
AGENT = "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6"


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
