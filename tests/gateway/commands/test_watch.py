"""What a person at a terminal is shown of a stream."""

import contextlib
import fcntl
import http.server
import itertools
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from gateway.commands.cli import main
from gateway.commands.event_stream import Event, ProtocolError, events
from gateway.commands.reach import Gateway
from gateway.commands.watch import arriving, draw
from gateway.commands.watch_view import View, meaning_of, sparkline
from schemas.closes import StreamClose
from schemas.sse import PING, close_event, metric_event
from tests.gateway.commands.fake_gateway import FOLLOW, Asked, Reply, fake_gateway
from tests.gateway.commands.fake_gateway import reply as usual
from tests.schemas.examples import NODE_ID

FRAME = {
    "ts_ms": 1745300000000,
    "node_id": NODE_ID,
    "cpu_pct": 12.4,
    "mem_bytes": 1 << 32,
    "mem_total_bytes": 1 << 33,
    "disk_pct": 31.2,
    "load_1m": 0.42,
    "load_5m": 0.39,
    "load_15m": 0.35,
}


def test_events_are_read_back_as_they_were_written() -> None:
    written = metric_event(FRAME) + PING + close_event(StreamClose.BACKPRESSURE)
    assert list(events(written.splitlines(keepends=True))) == [
        Event("metric", FRAME),
        Event("ping", {}),
        Event("close", {"code": 4413, "reason": "backpressure"}),
    ]


def test_event_that_breaks_off_is_dropped() -> None:
    assert list(events(metric_event(FRAME)[:-1].splitlines(keepends=True))) == []


@pytest.mark.parametrize(
    "lines", [b"event: other\ndata: {}\n\n", b"event: ping\ndata: {\n\n", b"event: ping\ndata: 1\n\n"]
)
def test_anything_but_the_three_events_is_an_error(lines: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(events(lines.splitlines(keepends=True)))


def test_view_shows_values_history_and_how_alive_the_stream_is() -> None:
    view = View(NODE_ID, 1000, 0.0)
    assert "waiting for the first frame, 3 s" in view.lines(3.0)[0]
    view.on_frame(FRAME, 4.0)
    view.on_frame(FRAME | {"cpu_pct": 99.0}, 5.0)
    view.on_ping(25.0)
    title, _, cpu, memory, disk, load = view.lines(26.5)
    assert "last frame 21.5 s ago, ping 2 s ago, 2 frames" in title
    assert cpu == "cpu       99.0 %  ▁█"
    assert memory == "memory    50.0 %  ▅▅  4.0 of 8.0 GiB"
    assert disk == "disk      31.2 %  ▃▃"
    assert load == "load      0.42    ██  0.42  0.39  0.35"


def test_sparkline_of_nothing_and_of_zeros() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"


@pytest.mark.parametrize("close", list(StreamClose))
def test_every_close_code_has_a_meaning_and_says_whether_to_come_back(close: StreamClose) -> None:
    told = meaning_of(close.value.code)
    assert told.startswith(f"{close.value.code} {close.value.reason}: ")
    assert str(close.value.come_back) in told


def test_unknown_code_is_said_to_be_one() -> None:
    assert "unknown" in meaning_of("4500\x1b[2J")


# ---- on a terminal --------------------------------------------------------------------------------------------------

WIDTHS = (40, 80, 200)
HEIGHT = 12
HOSTILE = "[bold red]x[/] :smile: \x1b[2J\x1b]0;owned\x07\x9b31m\r\n"
CONTROLS = re.compile(r"\x1b\[\?(?:1049|25)[hl]|\x1b\[H")  # its own screen, the cursor, and home


def resize(fd: int, columns: int, rows: int = HEIGHT) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[tuple[TextIO, int, list[bytes]]]:
    """A terminal to draw on, its number to resize it with, and what it was given."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)  # what is written is what arrives
    resize(theirs, columns)
    got: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # it is closed
            while data := os.read(ours, 65536):
                got.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w", encoding="utf-8", newline="\n") as file:
        yield file, theirs, got
    reader.join()
    os.close(ours)


def screens(got: list[bytes]) -> tuple[list[list[str]], str]:
    """Each time the whole screen was drawn, its lines; and what stays behind on the screen of before."""
    text = b"".join(got).decode()
    during, left, after = text.partition("\x1b[?1049l")
    assert left
    drawn = [CONTROLS.sub("", screen).split("\n") for screen in during.split("\x1b[H")[1:]]
    return [screen for screen in drawn if screen != [""]], CONTROLS.sub("", after)


def stream_of(*more: Event) -> Iterator[Event]:
    return iter([*(Event("metric", FRAME | {"cpu_pct": float(n)}) for n in range(100)), Event("ping", {}), *more])


@pytest.mark.parametrize("width", WIDTHS)
def test_view_fits_the_terminal_and_says_everything(width: int) -> None:
    view = View(NODE_ID, 1000, 0.0)
    with terminal(width) as (file, _, got):
        close = draw(stream_of(Event("close", {"code": 1000})), view, file)
    assert close == {"code": 1000}
    drawn, after = screens(got)
    assert len(drawn) == 102  # at once, and with each event but the last
    assert {len(screen) for screen in drawn} == {HEIGHT}
    assert {len(line) for screen in drawn for line in screen} == {width}
    words = " ".join(" ".join(drawn[-1]).split())
    for part in (NODE_ID, "every 1 s", "ping 0 s ago", "100 frames", "cpu 99.0 %", "disk 31.2 %", "load 0.42"):
        assert part in words
    assert "4.0 of 8.0 GiB" in words
    assert "0.42 0.39 0.35" in words
    assert "".join(drawn[-1]).count("█") >= 4  # the newest of its history, the largest load
    assert [line.rstrip() for line in after.splitlines()] == [line.rstrip() for line in drawn[-1]][: after.count("\n")]


@pytest.mark.parametrize("sizes", list(itertools.permutations(WIDTHS)))
def test_view_follows_the_terminals_size(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # as some shells say, and never again
    monkeypatch.setenv("LINES", "24")
    with terminal(132) as (file, fd, got):

        def resized() -> Iterator[Event]:
            for rows, columns in enumerate(sizes, start=3):
                resize(fd, columns, rows)
                yield Event("metric", FRAME)

        assert draw(resized(), View(NODE_ID, 1000, 0.0), file) is None
    drawn, _ = screens(got)
    shapes = [(len(screen), {len(line) for line in screen}) for screen in drawn]
    assert shapes == [(HEIGHT, {132}), *((rows, {columns}) for rows, columns in enumerate(sizes, start=3))]


def test_texts_are_never_obeyed() -> None:
    frame = FRAME | {"node_id": HOSTILE, "note": HOSTILE}
    with terminal(80) as (file, _, got):
        draw(iter([Event("metric", frame)]), View(HOSTILE, 1000, 0.0), file)
    drawn, after = screens(got)
    for text in ("".join(drawn[-1]), after.replace("\n", "")):
        assert text.isprintable()
        assert "[bold red]x[/] :smile: [2J" in text


@pytest.mark.parametrize("broken", [KeyboardInterrupt(), ProtocolError("no"), OSError("gone")])
def test_terminal_is_left_as_it_was_however_the_stream_ends(broken: BaseException) -> None:
    def stream() -> Iterator[Event]:
        yield Event("metric", FRAME)
        raise broken

    before = signal.getsignal(signal.SIGTERM)
    with terminal(80) as (file, _, got), pytest.raises(type(broken)):
        draw(stream(), View(NODE_ID, 1000, 0.0), file)
    text = b"".join(got).decode()
    assert text.index("\x1b[?1049l") > text.index("\x1b[?1049h")
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "cpu       12.4 %" in screens(got)[1]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "flaw",
    [{"cpu_pct": "high"}, {"cpu_pct": None}, {"load_1m": float("nan")}, {"mem_bytes": 10**400}, {"disk_pct": []}],
)
def test_frame_without_its_numbers_is_an_error(flaw: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        View(NODE_ID, 1000, 0.0).on_frame(FRAME | flaw, 1.0)


# ---- where there is none --------------------------------------------------------------------------------------------


def answer(asked: Asked) -> Reply:
    if asked.path != "/mcp/tools/call":
        return usual(asked)
    assert asked.body == {"tool": FOLLOW, "arguments": {"interval_ms": 1000}}
    stream = metric_event(FRAME) + PING + metric_event(FRAME) + close_event(StreamClose.BACKPRESSURE)
    return Reply(stream, content_type="text/event-stream")


def test_output_that_is_no_terminal_gets_plain_lines_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_gateway(answer) as gateway:
        command = ["watch", NODE_ID, "--url", f"http://{gateway.address}", "--token", "mine"]
        assert main(command) == 1
        plain, told = capsys.readouterr()
        assert main([*command, "--json"]) == 1
        frames = capsys.readouterr().out
    assert told.startswith("closed, 4413 backpressure: ")
    assert plain.count("\n") == 2 * 6
    assert plain.count("memory    50.0 %  ▅") == 2
    assert "\x1b" not in plain
    assert [json.loads(line) for line in frames.splitlines()] == [FRAME, FRAME]


def test_ctrl_c_does_not_wait_for_the_next_byte_of_the_stream() -> None:
    """A thread is reading it, and would have its lock until a ping comes, 25 s later."""
    over, overdue = threading.Event(), threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.flush()
            if not over.wait(20):
                overdue.set()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        gateway = Gateway.at(f"http://127.0.0.1:{server.server_port}")
        with gateway.open("POST", "/mcp/tools/call", "mine", {}, "text/event-stream", 60) as response:
            assert next(arriving(events(response))).name == ""
        over.set()
        server.shutdown()
    assert not overdue.is_set()


def test_stream_that_breaks_off_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def breaks(_: Asked) -> Reply:
        return Reply(metric_event(FRAME), content_type="text/event-stream")

    def nonsense(_: Asked) -> Reply:
        return Reply(b"event: other\ndata: \xff\n\n", content_type="text/event-stream")

    for replies, said in ((breaks, "the gateway is gone"), (nonsense, "none of metric, ping and close")):
        with fake_gateway(replies) as gateway:
            assert main(["watch", NODE_ID, "--url", f"http://{gateway.address}", "--token", "mine"]) == 1
        assert said in capsys.readouterr().err


def test_reader_of_frames_that_has_seen_enough_is_no_error() -> None:
    def many(_: Asked) -> Reply:
        return Reply(metric_event(FRAME) * 2000, content_type="text/event-stream")

    with fake_gateway(many) as gateway:
        watch = f"watch {NODE_ID} --json --token mine --url http://{gateway.address}"
        command = f"{sys.executable} -m gateway.commands.cli {watch} | head -n 1"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == FRAME


def test_no_command_but_watch_loads_what_draws() -> None:
    program = """
import importlib, sys
from gateway.commands.cli import COMMANDS
for name in COMMANDS:
    importlib.import_module(f"gateway.commands.{name}")
assert not [name for name in sys.modules if name.partition(".")[0] in ("rich", "pygments")]
import rich.live
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=Path(__file__).parents[3])
