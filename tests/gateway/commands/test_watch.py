"""What a person at a terminal is shown of a stream."""

import pytest

from gateway.commands.event_stream import Event, ProtocolError, events
from gateway.commands.watch_view import View, meaning_of, sparkline
from schemas.closes import StreamClose
from schemas.sse import PING, close_event, metric_event
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
