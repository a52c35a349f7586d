"""A data folder that several gateways share: made once, whole for each of them, and not for one that is alone."""

from pathlib import Path

import pytest

from gateway.main.data_folder import DataFolder, FolderError, FolderInUseError, is_held

NOW_MS = 1_790_000_000_000


def test_those_that_share_have_the_same_keys_and_numbers_of_their_own(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS, shares=True) as one, DataFolder.hold(tmp_path, NOW_MS, shares=True) as two:
        assert one.jwks == two.jwks
        assert one.echo_key() == two.echo_key()
        with one.place() as first, two.place() as second:
            assert (first.number, second.number) == (0, 1)
            assert (first.audit, second.audit) == (tmp_path, tmp_path / "processes" / "1")
            second.socket.touch()
            assert first.others() == [(1, second.socket)]
        with two.place() as again:
            assert again.number == 0
        assert is_held(tmp_path)
        assert one.has_others()
    assert not is_held(tmp_path)


def test_a_shared_folder_is_in_use_for_everybody_else(tmp_path: Path) -> None:
    with (
        DataFolder.hold(tmp_path, NOW_MS, shares=True) as folder,
        pytest.raises(FolderInUseError),
        DataFolder.hold(tmp_path, NOW_MS, make=False),
    ):
        raise AssertionError("it was had twice")
    with (
        DataFolder.hold(tmp_path, NOW_MS),
        pytest.raises(FolderInUseError),
        DataFolder.hold(tmp_path, NOW_MS, shares=True),
    ):
        raise AssertionError("it was had twice")
    assert folder.path == tmp_path


def test_whoever_is_last_knows_it(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS, shares=True) as folder:
        assert not folder.has_others()


def test_a_folder_whose_log_is_on_an_engine_is_nobodys_who_is_alone(tmp_path: Path) -> None:
    with DataFolder.hold(tmp_path, NOW_MS, shares=True) as folder:
        folder.is_on_engine()
    with pytest.raises(FolderError, match="on an engine"), DataFolder.hold(tmp_path, NOW_MS):
        raise AssertionError("it was had")
    with DataFolder.hold(tmp_path, NOW_MS, shares=True):
        pass
    (tmp_path / "engine").unlink()
    with DataFolder.hold(tmp_path, NOW_MS):
        pass
