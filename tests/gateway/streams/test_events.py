"""The three events of a stream, to the byte as RFC-0009 §5 prints them."""

from schemas.closes import StreamClose
from schemas.contract import contract
from schemas.sse import FRAME_ID, PING, close_event, metric_event
from tests.gateway.commands.test_watch import FRAME


def test_metric_is_printed_as_in_the_rfc() -> None:
    printed = (
        b'event: metric\ndata: {"ts_ms":1745300000000,"node_id":"01hzx9k3m4p7q8r9s0t1v2w3xy","cpu_pct":12.4,'
        b'"mem_bytes":1234567890,"mem_total_bytes":8589934592,"disk_pct":31.2,"load_1m":0.42,"load_5m":0.39,'
        b'"load_15m":0.35}\n\n'
    )
    frame = FRAME | {"mem_bytes": 1234567890, "mem_total_bytes": 8589934592}
    assert metric_event(frame) == printed
    assert metric_event(dict(reversed(frame.items()))) == printed, "whatever order the node wrote its keys in"


def test_integers_are_written_as_integers_however_the_node_wrote_them() -> None:
    frame = FRAME | {"mem_bytes": 1024.0, "ts_ms": 1.7453e12, "cpu_pct": 12}
    assert contract(FRAME_ID).first_flaw(frame) is None
    event = metric_event(frame)
    assert b'"mem_bytes":1024,' in event
    assert b'"ts_ms":1745300000000,' in event
    assert b'"cpu_pct":12,' in event


def test_ping_and_close_are_printed_as_in_the_rfc() -> None:
    assert PING == b"event: ping\ndata: {}\n\n"
    assert close_event(StreamClose.NORMAL) == b'event: close\ndata: {"code":1000,"reason":"normal"}\n\n'
    assert close_event(StreamClose.IDLE_TIMEOUT) == b'event: close\ndata: {"code":4408,"reason":"idle_timeout"}\n\n'
