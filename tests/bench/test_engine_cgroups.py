"""The control groups of bench.engine, on a folder that looks like the kernel's."""

import os
from pathlib import Path

import pytest

from bench.engine.cgroups import PERIOD_US, Group, NoGroupsError, groups

GONE = "heliograph-bench-999999999"  # more than any process id


def v1(folder: Path) -> Path:
    (folder / "cpu.cfs_quota_us").write_text("-1")
    return folder


def test_a_run_has_a_folder_of_its_own_and_removes_it(tmp_path: Path) -> None:
    with groups(v1(tmp_path)) as made:
        assert made.folder.name.endswith(str(os.getpid()))
        assert (made.folder / "cpu.shares").exists()
        (made.folder / "cpu.shares").unlink()  # the kernel's own files go with their folder
    assert [each.name for each in tmp_path.iterdir()] == ["cpu.cfs_quota_us"]


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / GONE).mkdir()
    mine = tmp_path / "heliograph-bench-1"  # of a process that lives
    mine.mkdir()
    with groups(v1(tmp_path)):
        assert not (tmp_path / GONE).exists()
        assert mine.exists()


def test_a_share_is_a_quota_of_each_period(tmp_path: Path) -> None:
    Group(tmp_path, is_v2=False).limit(0.2)
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == str(PERIOD_US // 5)
    Group(tmp_path, is_v2=False).limit(None)
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == "-1"
    Group(tmp_path, is_v2=True).limit(0.2)
    assert (tmp_path / "cpu.max").read_text() == f"{PERIOD_US // 5} {PERIOD_US}"
    Group(tmp_path, is_v2=True).limit(None)
    assert (tmp_path / "cpu.max").read_text() == f"max {PERIOD_US}"


def test_how_often_a_group_ran_out_of_time_is_read(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("nr_periods 50\nnr_throttled 40\nthrottled_time 123\n")
    assert Group(tmp_path, is_v2=False).periods() == (50, 40)


def test_no_groups_are_said_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").mkdir()  # cannot be written to, whoever we are
    with pytest.raises(NoGroupsError, match=str(tmp_path)), groups(tmp_path / "none", tmp_path):
        pass
