"""The audit of processes that share a data folder, as one: by time, none left out, none twice, whoever wrote it."""

import json
from pathlib import Path

import pytest
import trio

from gateway.commands.audit_pages import FollowedParts, newest_first, parts_of
from gateway.commands.cli import main
from gateway.observe.audit.audit_store import AuditStore
from gateway.observe.audit.settings import AuditSettings

NOON_MS = 1_790_000_000_000


class Process:
    """That keeps its part of the audit."""

    def __init__(self, path: Path, number: int) -> None:
        self._home = path if number == 0 else path / "processes" / str(number)
        self._home.mkdir(parents=True, exist_ok=True)
        self._now_ms = NOON_MS
        self.store = AuditStore(self._home / "audit", AuditSettings(), lambda: self._now_ms)
        self.store.load()

    def write(self, *seconds: int) -> None:
        for second in seconds:
            self._now_ms = NOON_MS + 1000 * second
            self.store.add("tool_call", {"reason": "budget" if second % 2 else None, "at_s": second})
        trio.run(self.store.flush)


def seconds(lines: list[dict[str, int]]) -> list[int]:
    return [line["at_s"] for line in lines]


def test_parts_of_all_processes_are_one_audit_by_time(tmp_path: Path) -> None:
    parts = {number: Process(tmp_path, number) for number in (0, 1, 12)}
    parts[0].write(1, 4, 7)
    parts[1].write(2, 5, 8)
    parts[12].write(3, 6)
    assert parts_of(tmp_path) == [0, 1, 12]
    lines = list(newest_first(tmp_path, {}))
    assert seconds(lines) == [8, 7, 6, 5, 4, 3, 2, 1]
    assert [line["process"] for line in lines] == [1, 0, 12, 1, 0, 12, 1, 0]
    assert seconds(list(newest_first(tmp_path, {"reason": "budget"}))) == [7, 5, 3, 1]


def test_a_gateway_by_itself_has_no_parts(tmp_path: Path) -> None:
    Process(tmp_path, 0).write(1)
    (tmp_path / "processes").mkdir()
    assert parts_of(tmp_path) == []


def test_each_line_of_each_process_is_followed_once_also_of_one_that_starts_meanwhile(tmp_path: Path) -> None:
    first, second = Process(tmp_path, 0), Process(tmp_path, 1)
    first.write(1)
    second.write(2, 3)
    followed = FollowedParts(tmp_path, {})
    assert followed.more() == []
    second.write(4)
    first.write(5)
    assert seconds(followed.more()) == [4, 5]
    assert followed.more() == []
    third = Process(tmp_path, 2)
    third.write(6)
    second.write(7)
    assert seconds(followed.more()) == [6, 7]
    assert followed.more() == []


def test_lines_that_were_printed_are_not_followed(tmp_path: Path) -> None:
    first, second = Process(tmp_path, 0), Process(tmp_path, 1)
    first.write(1, 2, 3)
    second.write(4)
    followed = FollowedParts(tmp_path, {})
    second.write(5)  # between the two looks of the command
    followed.pass_over(list(newest_first(tmp_path, {})))
    first.write(6)
    assert seconds(followed.more()) == [6]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--tenant", "\udcff"], "UTF-8"),  # as Python reads bytes of the shell that are not
        (["--reason", "x" * 300], "at most 256 characters"),
        (["--since", "never"], "--since and --until are times"),
    ],
)
def test_filter_that_none_can_have_is_wrong_use_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str], told: str
) -> None:
    Process(tmp_path, 0).write(1)
    assert main(["audit", "--data", str(tmp_path), *asked]) == 2
    assert told in capsys.readouterr().err


def test_command_prints_the_newest_of_all_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = Process(tmp_path, 0), Process(tmp_path, 1)
    first.write(1, 4)
    second.write(2, 3)
    assert main(["audit", "--data", str(tmp_path), "--json", "--lines", "3"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["at_s"], line["process"]) for line in told] == [(2, 1), (3, 1), (4, 0)]
