"""The next identity takes the place of the old one whole, wherever a crash cuts it short."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

import actors.device.identity_files as files
from actors.device.identity import DeviceIdentity, IdentityError
from actors.device.identity_files import (
    DONE_FOLDER,
    KEY_FILE,
    LEAF_FILE,
    NEXT_FOLDER,
    TOKEN_FILE,
    complete_next,
    discard_next,
    next_key,
    promote_next,
)
from schemas.certificates import Leaf
from tests.schemas.attested import CA, LEAF, NODE_KEY, NOW_MS, TENANT, leaf
from tests.schemas.examples import NODE_ID

OLD = DeviceIdentity(NODE_KEY, LEAF, "old.old.old")
NEW_TOKEN = "new.new.new"


class Crash(BaseException):
    """The process is killed here."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every call that changes the disk counts; the one of this number does not happen, nor anything after it."""
    done: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if len(done) == step:
                raise Crash
            done.append(name)
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for module, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (os, "unlink"), (os, "mkdir")):
            patch.setattr(module, name, counted(name, getattr(module, name)))
        patch.setattr(os, "rmdir", counted("rmdir", os.rmdir))
        patch.setattr(shutil, "rmtree", _rmtree)
        yield done


def _rmtree(path: Path, ignore_errors: bool = False) -> None:
    """As shutil's, but by the calls that are counted."""
    if not path.exists():
        return
    for file in sorted(path.iterdir()):
        file.unlink()
    path.rmdir()


def issued(key: SigningKey, node_id: str = NODE_ID, tenant: str = TENANT) -> Leaf:
    public_key = Ed25519PublicKey.from_public_bytes(key.verify_key.encode())
    return CA.issue(node_id, tenant, public_key, NOW_MS)


def renew(folder: Path, token: str | None) -> None:
    """All that a renewal does on the disk. The gateway's answer is the same for the same key."""
    complete_next(folder, issued(next_key(folder)), token)
    promote_next(folder)


def steps(folder: Path, monkeypatch: pytest.MonkeyPatch, token: str | None) -> int:
    OLD.save(folder)
    with killed_at(10_000, monkeypatch) as done:
        renew(folder, token)
    assert len(done) > 15, "fewer than there can be: something is not counted"
    return len(done)


@pytest.mark.parametrize("token", [NEW_TOKEN, None])
def test_killed_at_any_step_the_identity_is_wholly_the_old_or_wholly_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    seen = []
    for step in range(steps(tmp_path / "all", monkeypatch, token) + 1):
        folder = tmp_path / str(step)
        OLD.save(folder)
        with killed_at(step, monkeypatch), suppress(Crash):
            renew(folder, token)
        asked_with = files.read_key(folder / NEXT_FOLDER) if (folder / NEXT_FOLDER / KEY_FILE).exists() else None
        was_answered = (folder / NEXT_FOLDER / LEAF_FILE).exists()
        identity = DeviceIdentity.load(folder)
        is_new = identity.leaf.kid != LEAF.kid
        seen.append(is_new)
        assert identity.token == ((token or OLD.token) if is_new else OLD.token)
        if was_answered:
            assert is_new, "an answer that is on the disk counts"
        if asked_with is not None and not is_new:
            assert next_key(folder) == asked_with, "the same key is asked with again"
        if is_new:
            assert not (folder / NEXT_FOLDER).exists()
        assert DeviceIdentity.load(folder) == identity
        assert not list(folder.rglob(DONE_FOLDER))
    assert seen == sorted(seen), "once it is the new one it stays"
    assert seen[0] is False
    assert seen[-1] is True


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(crashes=st.lists(st.integers(0, 40), max_size=6), token=st.sampled_from([NEW_TOKEN, None]))
def test_killed_again_and_again_it_gets_there_with_one_key(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, crashes: list[int], token: str | None
) -> None:
    folder = tmp_path_factory.mktemp("node") / "identity"
    OLD.save(folder)
    keys = set()
    for step in [*crashes, 10_000]:
        with killed_at(step, monkeypatch):
            try:
                identity = DeviceIdentity.load(folder)  # what a restart does, which may be killed too
                if identity.leaf.kid == LEAF.kid:
                    renew(folder, token)
                    identity = DeviceIdentity.load(folder)
                keys.add(identity.key.encode())
            except Crash:
                continue
    assert len(keys) == 1, "it never had another identity after its new one"
    assert identity.leaf.kid != LEAF.kid
    assert identity.token == (token or OLD.token)


def test_others_can_read_nothing_of_the_next_identity(tmp_path: Path) -> None:
    OLD.save(tmp_path / "node")
    complete_next(tmp_path / "node", issued(next_key(tmp_path / "node")), NEW_TOKEN)
    inner = tmp_path / "node" / NEXT_FOLDER
    assert inner.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in inner.iterdir()} == {0o600}
    assert {file.name for file in inner.iterdir()} == {KEY_FILE, LEAF_FILE, TOKEN_FILE}


@pytest.mark.parametrize("whose", [{"node_id": "0" * 26}, {"tenant": "umbra"}])
def test_a_next_identity_of_another_node_is_not_promoted(tmp_path: Path, whose: dict[str, str]) -> None:
    OLD.save(tmp_path)
    complete_next(tmp_path, issued(next_key(tmp_path), **whose), NEW_TOKEN)
    assert DeviceIdentity.load(tmp_path) == OLD


def test_a_certificate_for_another_key_is_not_promoted(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    next_key(tmp_path)
    complete_next(tmp_path, leaf(), NEW_TOKEN)
    assert DeviceIdentity.load(tmp_path) == OLD


@pytest.mark.parametrize("damaged", [KEY_FILE, LEAF_FILE])
def test_a_damaged_next_identity_leaves_the_old_one_in_force(tmp_path: Path, damaged: str) -> None:
    OLD.save(tmp_path)
    complete_next(tmp_path, issued(next_key(tmp_path)), NEW_TOKEN)
    (tmp_path / NEXT_FOLDER / damaged).write_bytes(b"\xff")
    assert DeviceIdentity.load(tmp_path) == OLD
    renew(tmp_path, NEW_TOKEN)
    assert DeviceIdentity.load(tmp_path).token == NEW_TOKEN


def test_a_second_answer_without_a_token_does_not_leave_the_first_ones_behind(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    certificate = issued(next_key(tmp_path))
    complete_next(tmp_path, certificate, NEW_TOKEN)
    complete_next(tmp_path, certificate, None)
    assert DeviceIdentity.load(tmp_path).token == OLD.token


def test_enrolling_again_ends_what_was_under_way(tmp_path: Path) -> None:
    OLD.save(tmp_path)
    complete_next(tmp_path, issued(next_key(tmp_path)), NEW_TOKEN)
    OLD.save(tmp_path)
    assert DeviceIdentity.load(tmp_path) == OLD
    assert not (tmp_path / NEXT_FOLDER).exists()


def test_discarding_nothing_does_nothing(tmp_path: Path) -> None:
    discard_next(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_no_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OLD.save(tmp_path)
    complete_next(tmp_path, issued(next_key(tmp_path)), NEW_TOKEN)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_private", full)
    with pytest.raises(IdentityError, match="No space left"):
        DeviceIdentity.load(tmp_path)
    monkeypatch.undo()
    assert DeviceIdentity.load(tmp_path).token == NEW_TOKEN
