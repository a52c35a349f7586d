"""Log lines on their way out: one line whatever is in it, in the right place, and never anybody's undoing."""

import fcntl
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.log_output import LogOutput, LogSettings, LogTargetError, Sink, log_to, processors

PIPE_BYTES = 4096


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)
    structlog.reset_defaults()


def rendered(form: str, event: dict[str, Any], *, is_terminal: bool = False) -> bytes:
    line: Any = dict(event)
    for processor in processors(form, is_terminal=is_terminal):
        line = processor(None, "info", line)
    assert isinstance(line, bytes)
    return line


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


# ---- one line -------------------------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(exclude_categories=[]))  # lone surrogates, too


@given(ANY_TEXT)
def test_json_line_is_one_line_and_says_what_was_logged(text: str) -> None:
    line = rendered("json", {"event": "tool_call", "tenant": text, "code": None})
    assert b"\n" not in line
    assert b"\r" not in line
    assert (json.loads(line)["tenant"], json.loads(line)["code"]) == (text, None)


@given(ANY_TEXT, st.booleans())
def test_pretty_line_is_one_line_and_carries_no_control_codes(text: str, is_terminal: bool) -> None:
    line = rendered("pretty", {"event": "tool_call", "tenant": text}, is_terminal=is_terminal).decode()
    assert len(line.splitlines()) == 1
    harmless = rendered("pretty", {"event": "tool_call", "tenant": ""}, is_terminal=is_terminal).decode()
    assert line.count("\x1b") == harmless.count("\x1b")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_pretty_traceback_shows_no_local_variables(is_terminal: bool) -> None:
    """structlog would have rich draw it, with all of them, wherever rich is installed."""
    arguments = "MARK" * 2
    try:
        json.loads(arguments)
    except ValueError as error:
        line = rendered("pretty", {"event": "x", "exc_info": error}, is_terminal=is_terminal)
    assert b"JSONDecodeError" in line
    assert b"MARKMARK" not in line


def test_what_has_no_json_form_is_told_by_its_type_alone() -> None:
    assert json.loads(rendered("json", {"event": "x", "odd": object()}))["odd"] == "<object>"


@pytest.mark.parametrize(("is_terminal", "is_json"), [(True, False), (False, True)])
def test_auto_is_pretty_on_a_terminal_and_json_elsewhere(is_terminal: bool, is_json: bool) -> None:
    assert rendered("auto", {"event": "x"}, is_terminal=is_terminal).startswith(b"{") is is_json


def test_fields_come_in_their_order_then_the_event_its_level_and_the_time(tmp_path: Path) -> None:
    log_to(LogSettings(target=str(tmp_path / "log"), format="json"))
    log = structlog.get_logger()
    log.info("a", z=1, b=None)
    log.error("b", z=1, b=None)
    log.bind(z=1).info("c", b=None)
    lines = lines_of(tmp_path / "log")
    assert [list(line) for line in lines] == [["z", "b", "event", "level", "timestamp"]] * 3
    assert [(line["event"], line["level"]) for line in lines] == [("a", "info"), ("b", "error"), ("c", "info")]
    times = [line["timestamp"] for line in lines]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", time) for time in times)
    assert times == sorted(times)


def test_lines_below_the_level_are_not_written(tmp_path: Path) -> None:
    log_to(LogSettings(target=str(tmp_path / "log"), format="json"), logging.WARNING)
    structlog.get_logger().info("a")
    structlog.get_logger().warning("b")
    assert [line["event"] for line in lines_of(tmp_path / "log")] == ["b"]


def test_what_a_test_captures_is_not_written(tmp_path: Path) -> None:
    log_to(LogSettings(target=str(tmp_path / "log"), format="json"))
    log = structlog.get_logger().bind()
    with structlog.testing.capture_logs() as lines:
        log.info("a", z=1)
    assert (lines, lines_of(tmp_path / "log")) == ([{"z": 1, "event": "a", "log_level": "info"}], [])


# ---- the target -----------------------------------------------------------------------------------------------------


def test_file_is_the_owners_alone_and_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for event in ("first", "second"):
        log_to(LogSettings(target=str(path)))
        structlog.get_logger().info(event)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [line["event"] for line in lines_of(path)] == ["first", "second"]


def test_hangup_signal_reopens_the_file(tmp_path: Path) -> None:
    path, rotated = tmp_path / "log", tmp_path / "log.1"
    log_to(LogSettings(target=str(path)))
    structlog.get_logger().info("before")
    path.rename(rotated)
    structlog.get_logger().info("between")
    signal.raise_signal(signal.SIGHUP)
    structlog.get_logger().info("after")
    assert [line["event"] for line in lines_of(rotated)] == ["before", "between"]
    assert [line["event"] for line in lines_of(path)] == ["after"]


def test_file_that_cannot_be_reopened_goes_on_as_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log_to(LogSettings(target=str(folder / "log")))
    folder.rename(tmp_path / "moved")
    signal.raise_signal(signal.SIGHUP)
    structlog.get_logger().info("still")
    assert [line["event"] for line in lines_of(tmp_path / "moved" / "log")] == ["still"]
    assert "old file: No such file" in capfd.readouterr().err


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogTargetError, match=r"cannot open the log .*nowhere/log: No such file"):
        log_to(LogSettings(target=str(tmp_path / "nowhere" / "log")))


def test_hangup_signal_keeps_its_meaning_without_a_file() -> None:
    before = signal.getsignal(signal.SIGHUP)
    log_to(LogSettings(target="stderr"))
    assert signal.getsignal(signal.SIGHUP) is before


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_standard_streams_get_lines_at_once(stream: str, capfd: pytest.CaptureFixture[str]) -> None:
    log_to(LogSettings(target=stream))
    structlog.get_logger().warning("hello", n=1)
    line = json.loads(getattr(capfd.readouterr(), stream[3:]))
    assert (line["event"], line["level"], line["n"]) == ("hello", "warning", 1)


def test_process_without_standard_error_logs_to_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    LogOutput("stderr").write(b"into the void")


# ---- a target that takes no lines -----------------------------------------------------------------------------------


def test_full_disk_is_told_once_and_then_once_a_minute(capfd: pytest.CaptureFixture[str]) -> None:
    now_s = 1000.0
    output = LogOutput("/dev/full", lambda: now_s)
    for _ in range(5):
        output.write(b"line")
    assert capfd.readouterr().err == "heliograph: 1 log lines lost: No space left on device\n"
    now_s += 60.0
    output.write(b"line")
    assert capfd.readouterr().err == "heliograph: 5 log lines lost: No space left on device\n"


@pytest.fixture
def small_pipe() -> Iterator[tuple[int, int]]:
    """Its two ends, both blocking, as a shell would give them to us."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_pipe_that_nobody_reads_refuses_instead_of_blocking(small_pipe: tuple[int, int]) -> None:
    reader, writer = small_pipe
    sink = Sink(writer)
    with pytest.raises(BlockingIOError):
        sink.put(b"x" * (PIPE_BYTES + 1))
    assert os.read(reader, 2 * PIPE_BYTES) == b"x" * PIPE_BYTES
    sink.put(b"next")
    assert os.read(reader, PIPE_BYTES) == b"\nnext\n"  # the torn line has ended; this one is whole


def test_lost_lines_are_told_in_the_log_once_it_goes_on(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 2 * PIPE_BYTES)
        log_to(LogSettings(target=str(pipe), format="json"))
        log = structlog.get_logger()
        for n in range(200):
            log.info("filling", n=n)
        kept = os.read(reader, 2 * PIPE_BYTES).splitlines()
        log.info("on again")
        told = [json.loads(line) for line in os.read(reader, 2 * PIPE_BYTES).splitlines() if line]
    finally:
        os.close(reader)
    whole = sum(line.endswith(b"}") for line in kept)
    assert [line["event"] for line in told] == ["on again", "log_lines_lost"]
    assert whole + told[1]["lines"] == 200


def test_pipe_without_a_reader_is_no_place_for_a_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogTargetError):
        log_to(LogSettings(target=str(tmp_path / "pipe")))
