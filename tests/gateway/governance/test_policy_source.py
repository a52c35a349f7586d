"""The policy file as it changes under a running gateway: a good one is taken, a broken one is refused and told."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from gateway.governance.policy.policy import DEFAULT, Policy
from gateway.governance.policy.source import POLICY_BYTES_MAX, PolicySource, read_policy
from gateway.governance.policy.text import PolicyFlaw, revision_of
from gateway.governance.settings import GovernanceSettings
from gateway.main.settings import SettingsError

RELOAD_S = 2.0
SUB = "agent_00000000-0000-4000-8000-000000000001"


def text(budget: int) -> str:
    return f"[[agents]]\nagent = '*'\ntools = '**'\nbudget = {budget}\n"


async def at_once(read: Callable[[Path], Policy | PolicyFlaw], path: Path) -> Policy | PolicyFlaw:
    """Threads and a clock that jumps do not go together."""
    await trio.lowlevel.checkpoint()
    return read(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text(1))
    return path


@pytest.fixture
def source(file: Path) -> PolicySource:
    policy = read_policy(file)
    assert isinstance(policy, Policy)
    return PolicySource(file, policy, RELOAD_S, at_once)


def budget(source: PolicySource) -> int:
    rules = source.current.rules_for(SUB)
    assert rules is not None
    return rules.budget_micros // 1_000_000


def touch(path: Path, written: str) -> None:
    """Written in place, within the clock's resolution: the time of change is made to differ."""
    before = path.stat().st_mtime_ns
    path.write_text(written)
    os.utime(path, ns=(before + 1000, before + 1000))


def replace(path: Path, written: str) -> None:
    """As editors do, and configuration managers."""
    other = path.with_name("new")
    other.write_text(written)
    other.rename(path)


def policy_lines(logs: list[Any]) -> list[dict[str, Any]]:
    return [dict(line) for line in logs if line["event"].startswith("policy_")]


async def test_changed_file_is_taken(file: Path, source: PolicySource, autojump_clock: MockClock) -> None:
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch)
            await trio.sleep(10 * RELOAD_S + 0.5)
            assert (budget(source), logs) == (1, [])
            touch(file, text(2))
            await trio.sleep(2 * RELOAD_S)
            assert budget(source) == 2
            replace(file, text(3))
            await trio.sleep(2 * RELOAD_S)
            assert budget(source) == 3
            nursery.cancel_scope.cancel()
    loaded = {"event": "policy_loaded", "entries": 1, "log_level": "info"}
    assert policy_lines(logs) == [{**loaded, "revision": revision_of(text(budget))} for budget in (2, 3)]


async def test_broken_file_is_told_once_with_its_line_and_the_old_policy_stays(
    file: Path, source: PolicySource, autojump_clock: MockClock
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch)
            await trio.sleep(0.5)
            touch(file, text(2) + "secret_word = 1\n")
            await trio.sleep(10 * RELOAD_S)
            assert budget(source) == 1
            touch(file, text(3))
            await trio.sleep(2 * RELOAD_S)
            assert budget(source) == 3
            nursery.cancel_scope.cancel()
    refused, loaded = policy_lines(logs)
    assert (refused["event"], refused["line"], refused["log_level"]) == ("policy_refused", 5, "error")
    assert "secret_word" not in str(refused)
    assert loaded["event"] == "policy_loaded"


async def test_file_that_goes_away_leaves_the_old_policy_and_may_come_back(
    file: Path, source: PolicySource, autojump_clock: MockClock
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch)
            await trio.sleep(0.5)
            os.unlink(file)  # noqa: PTH108
            await trio.sleep(10 * RELOAD_S)
            assert budget(source) == 1
            replace(file, text(2))
            await trio.sleep(2 * RELOAD_S)
            assert budget(source) == 2
            nursery.cancel_scope.cancel()
    assert [(line["event"], line.get("line")) for line in policy_lines(logs)] == [
        ("policy_refused", None), ("policy_loaded", None),
    ]  # fmt: skip


async def test_file_that_is_still_being_written_is_not_read(
    file: Path, source: PolicySource, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.watch)
        await trio.sleep(0.5)
        for step in range(2, 6):
            touch(file, text(step))
            await trio.sleep(RELOAD_S)
            assert budget(source) == 1
        await trio.sleep(RELOAD_S)
        assert budget(source) == 5
        nursery.cancel_scope.cancel()


async def test_file_that_changes_while_it_is_read_is_read_again(file: Path, autojump_clock: MockClock) -> None:
    reads = 0

    async def slowly(read: Callable[[Path], Policy | PolicyFlaw], path: Path) -> Policy | PolicyFlaw:
        nonlocal reads
        reads += 1
        found = await at_once(read, path)
        if reads == 1:
            touch(path, text(3))
        return found

    source = PolicySource(file, DEFAULT, RELOAD_S, slowly)
    touch(file, text(2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.watch)
        await trio.sleep(2 * RELOAD_S + 0.5)
        assert (reads, source.current) == (1, DEFAULT)
        await trio.sleep(2 * RELOAD_S)
        assert (reads, budget(source)) == (2, 3)
        nursery.cancel_scope.cancel()


async def test_file_is_read_in_a_thread(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real time: the looks are a millisecond apart."""
    threads: list[bool] = []

    def read(path: Path) -> Policy | PolicyFlaw:
        threads.append(threading.current_thread() is threading.main_thread())
        return read_policy(path)

    monkeypatch.setattr("gateway.governance.policy.source.read_policy", read)
    source = PolicySource.open(GovernanceSettings(str(file), 0.001))
    touch(file, text(2))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(source.watch)
            while budget(source) != 2:  # noqa: ASYNC110
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    assert threads == [True, False]  # at the start there is nobody who could wait


# ---- at the start ---------------------------------------------------------------------------------------------------


def test_without_a_file_the_default_policy_holds() -> None:
    assert PolicySource.open(GovernanceSettings()).current is DEFAULT


def test_good_file_holds_from_the_start(file: Path) -> None:
    assert budget(PolicySource.open(GovernanceSettings(str(file)))) == 1


def test_gateway_does_not_start_with_a_policy_that_it_cannot_read(file: Path, tmp_path: Path) -> None:
    file.write_text(text(1) + "\nbudgets = 1")
    with pytest.raises(SettingsError, match=r"governance.policy: .*policy.toml: line 6: .*did you mean budget\?"):
        PolicySource.open(GovernanceSettings(str(file)))
    with pytest.raises(SettingsError, match="No such file"):
        PolicySource.open(GovernanceSettings(str(tmp_path / "nope")))
    with pytest.raises(SettingsError, match="reload_s"):
        PolicySource.open(GovernanceSettings(str(file), 0.0))


def test_what_is_no_text_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe, folder, latin, long = (tmp_path / name for name in ("pipe", "folder", "latin", "long"))
    os.mkfifo(pipe)
    folder.mkdir()
    latin.write_bytes(b"# 1\n# \xe9\n")
    long.write_bytes(b"#" * (POLICY_BYTES_MAX + 1))
    signal.alarm(10)
    found = [read_policy(path) for path in (pipe, folder, latin, long)]
    signal.alarm(0)
    assert all(isinstance(flaw, PolicyFlaw) for flaw in found)
    assert [flaw.line for flaw in found if isinstance(flaw, PolicyFlaw)] == [None, None, 2, None]
