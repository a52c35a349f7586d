"""The codec: every frame of the wire there and back, and any bytes at all without harm."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.contract import contract
from schemas.frames import FRAME_BYTES_MAX, BadFrame, Cmd, CmdAck, Fault, Frame, Outcome, Resume, Side, decode, encode
from schemas.registry import REGISTRY
from tests.schemas.examples import (
    ACK_ID,
    CMD_ID,
    ECHO_RESULT,
    ERROR,
    FRAME,
    MANIFEST,
    NODE_ID,
    PAYLOADS,
    TOOL,
    envelope,
)
from tests.schemas.mutations import mutants

SIDE_OF = {kind.type: side for side in Side for kind in side.value}
EVERY_PAYLOAD = [(kind, payload) for kind, many in PAYLOADS.items() for payload in many]


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decoded(value: Any, sender: Side) -> Frame:
    frame = decode(text(value), sender)
    assert isinstance(frame, Frame), frame
    return frame


@pytest.mark.parametrize(("kind", "payload"), EVERY_PAYLOAD)
def test_every_frame_survives_decode_and_encode(kind: str, payload: dict[str, Any]) -> None:
    raw = envelope(kind, payload)
    frame = decoded(raw, SIDE_OF[kind])
    assert frame.type == kind
    assert json.loads(encode(frame)) == raw
    assert decode(encode(frame), SIDE_OF[kind]) == frame


def test_wire_trace_of_rfc_0005_decodes_and_encodes_to_the_byte() -> None:
    cmd = (
        b'{"type":"cmd","msg_id":"01HZXC0000000000000000SRV0","payload":{"tool":'
        b'"sysecho.01hzx9k3m4p7q8r9s0t1v2w3xy.echo.invoke","arguments":{"message":"ping"},"deadline_at_ms":1745236805000}}'
    )
    ack = (
        b'{"type":"cmd_ack","msg_id":"01HZXC0000000000000000DEV0","in_reply_to":"01HZXC0000000000000000SRV0",'
        b'"payload":{"ok":true,"result":{"message":"ping","received_at_ms":1745236800012,'
        b'"node_id":"01hzx9k3m4p7q8r9s0t1v2w3xy"}}}'
    )
    sent = Cmd(msg_id=CMD_ID, tool=TOOL, arguments={"message": "ping"}, deadline_at_ms=1745236805000)
    answered = CmdAck(msg_id=ACK_ID, in_reply_to=CMD_ID, ok=True, result=ECHO_RESULT)
    assert decode(cmd, Side.GATEWAY) == sent
    assert decode(ack, Side.NODE) == answered
    assert encode(sent) == cmd
    assert encode(answered) == ack


def test_outcomes_of_a_resume_are_typed() -> None:
    frame = decoded(envelope("resume", PAYLOADS["resume"][1]), Side.NODE)
    assert isinstance(frame, Resume)
    assert frame.outcomes[1] == Outcome(in_reply_to=CMD_ID, ok=True, begun=True)
    assert frame.outcomes[3] == Outcome(in_reply_to=CMD_ID, interrupted=True)


@pytest.mark.parametrize("kind", [kind for side in Side for kind in side.value])
def test_fields_of_a_frame_are_the_properties_of_its_schema(kind: type[Frame]) -> None:
    document = REGISTRY[f"node.wire.{kind.type}@2.2.0"].document
    fields = set(kind.__struct_fields__) - set(Frame.__struct_fields__)
    if "$ref" in document:
        assert len(fields) == 1
    else:
        assert fields == set(document["properties"])


@pytest.mark.parametrize(("kind", "payload"), EVERY_PAYLOAD)
def test_frame_of_the_other_side_is_of_no_known_type(kind: str, payload: dict[str, Any]) -> None:
    other = Side.GATEWAY if SIDE_OF[kind] is Side.NODE else Side.NODE
    bad = decode(text(envelope(kind, payload)), other)
    assert isinstance(bad, BadFrame)
    assert bad.fault is Fault.UNKNOWN_TYPE


def telemetry(**changes: Any) -> bytes:
    return text(envelope("telemetry", FRAME | changes))


HEARTBEAT = envelope("heartbeat", {"manifest_etag": None})


@pytest.mark.parametrize(
    ("data", "fault", "pointer"),
    [
        (b"", Fault.NOT_JSON, ""),
        (b"hello", Fault.NOT_JSON, ""),
        (b"\xff\xfe", Fault.NOT_JSON, ""),
        (b'{"type":"\xed\xa0\x80"}', Fault.NOT_JSON, ""),
        (rb'{"type":"\ud800"}', Fault.NOT_JSON, ""),
        (b'{"type":NaN}', Fault.NOT_JSON, ""),
        (b'{"type":Infinity}', Fault.NOT_JSON, ""),
        (b"\xef\xbb\xbf{}", Fault.NOT_JSON, ""),
        (b"{} {}", Fault.NOT_JSON, ""),
        (b"[" * 100_000, Fault.TOO_DEEP, ""),
        (b'{"a":' * 20_000, Fault.TOO_DEEP, ""),
        (b'{"type":"auth","type":"auth"}', Fault.DUPLICATE_KEY, ""),
        (b'{"payload":{"a":1,"a":1}}', Fault.DUPLICATE_KEY, ""),
        (telemetry(mem_bytes=2**53), Fault.WRONG_SHAPE, "/payload/mem_bytes"),
        (telemetry(load_1m=1e300), Fault.WRONG_SHAPE, "/payload/load_1m"),
        (telemetry(cpu_pct=12.4).replace(b"12.4", b"1e999"), Fault.WRONG_SHAPE, "/payload/cpu_pct"),
        (telemetry(load_5m=77.5).replace(b"77.5", b"1e999"), Fault.WRONG_SHAPE, "/payload/load_5m"),
        (telemetry(mem_bytes=7).replace(b":7,", b":" + b"9" * 4000 + b","), Fault.WRONG_SHAPE, "/payload/mem_bytes"),
        (b'{"payload":' + b"9" * 100_000 + b"}", Fault.NUMBER_OUT_OF_RANGE, ""),
        (b" " * (FRAME_BYTES_MAX + 1), Fault.TOO_LARGE, ""),
        (b"[]", Fault.NOT_AN_OBJECT, ""),
        (b"null", Fault.NOT_AN_OBJECT, ""),
        (b"{}", Fault.UNKNOWN_TYPE, "/type"),
        (b'{"type":["auth"]}', Fault.UNKNOWN_TYPE, "/type"),
        (b'{"type":"AUTH"}', Fault.UNKNOWN_TYPE, "/type"),
        (text(HEARTBEAT | {"evil": 1}), Fault.WRONG_SHAPE, ""),
        (text(HEARTBEAT | {"msg_id": "01hzxc0000000000000000dev0"}), Fault.WRONG_SHAPE, "/msg_id"),
        (text(HEARTBEAT | {"msg_id": ACK_ID + "\n"}), Fault.WRONG_SHAPE, "/msg_id"),
        (text(HEARTBEAT | {"payload": []}), Fault.WRONG_SHAPE, "/payload"),
        (text(HEARTBEAT | {"payload": {"manifest_etag": None, "x": 1}}), Fault.WRONG_SHAPE, "/payload"),
        (text(envelope("auth", {"node_id": NODE_ID})), Fault.WRONG_SHAPE, "/payload/token"),
        (text(envelope("auth", {"node_id": NODE_ID, "token": "x" * 4097})), Fault.WRONG_SHAPE, "/payload/token"),
        (text(envelope("cmd_ack", {"ok": True})), Fault.WRONG_SHAPE, "/payload/result"),
        (text(envelope("cmd_ack", {"ok": False, "error": ERROR})), Fault.WRONG_SHAPE, "/payload/begun"),
        (text(envelope("cmd_ack", {"ok": True, "result": {}, "begun": True})), Fault.WRONG_SHAPE, "/payload/begun"),
        (telemetry(cpu_pct=101), Fault.WRONG_SHAPE, "/payload/cpu_pct"),
        (text(HEARTBEAT | {"type": "telemetry", "payload": FRAME}), Fault.WRONG_SHAPE, "/in_reply_to"),
    ],
)  # fmt: skip
def test_bad_frame_is_named_by_fault_and_place(data: bytes, fault: Fault, pointer: str) -> None:
    bad = decode(data, Side.NODE)
    assert isinstance(bad, BadFrame)
    assert (bad.fault, bad.pointer) == (fault, pointer)


def test_frame_of_the_largest_size_is_read() -> None:
    padding = FRAME_BYTES_MAX - len(text(HEARTBEAT))
    assert isinstance(decode(text(HEARTBEAT) + b" " * padding, Side.NODE), Frame)


def test_deepest_nesting_that_parses_is_judged_like_any_other() -> None:
    result = b'{"a":' * 150 + b"1" + b"}" * 150
    ack = text(envelope("cmd_ack", {"ok": True, "result": "DEEP"})).replace(b'"DEEP"', result)
    assert isinstance(decode(ack, Side.NODE), CmdAck)


def test_manifest_is_not_judged_by_the_codec() -> None:
    frame = decoded(envelope("announce", {"anything": "goes"}), Side.NODE)
    assert json.loads(encode(frame))["payload"] == {"anything": "goes"}
    assert isinstance(decode(text(envelope("announce", MANIFEST) | {"payload": []}), Side.NODE), BadFrame)


@pytest.mark.parametrize("result", [None, 5, "x", [1], {}, {"a": 2**70}])
def test_result_may_be_any_json_because_refusing_it_does_not_end_a_session(result: Any) -> None:
    ack = decoded(envelope("cmd_ack", {"ok": True, "result": result}), Side.NODE)
    assert isinstance(ack, CmdAck)
    assert ack.result == result
    assert decode(encode(ack), Side.NODE) == ack
    outcome = {"in_reply_to": CMD_ID, "ok": True, "begun": True, "result": result}
    resume = decoded(envelope("resume", PAYLOADS["resume"][0] | {"outcomes": [outcome]}), Side.NODE)
    assert isinstance(resume, Resume)
    assert resume.outcomes[0].result == result
    assert decode(encode(resume), Side.NODE) == resume


def test_result_that_is_lost_is_told_from_one_that_is_null() -> None:
    lost = Outcome(in_reply_to=CMD_ID, ok=True, begun=True)
    assert lost.result is msgspec.UNSET
    assert lost != Outcome(in_reply_to=CMD_ID, ok=True, begun=True, result=None)


def test_frame_limit_is_128_kib() -> None:
    assert FRAME_BYTES_MAX == 131_072


class NoIteration:
    """A validator whose listing of all errors must not be asked for."""

    def __init__(self, real: Any) -> None:
        self.validate = real.validate

    def iter_errors(self, _: Any) -> Any:
        raise AssertionError("makes every error of a hostile instance at once")


def test_first_flaw_stops_at_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    resume = contract("node.wire.resume@2.2.0")
    monkeypatch.setattr(resume, "_fast", NoIteration(resume._fast))  # noqa: SLF001
    hostile = PAYLOADS["resume"][0] | {"outcomes": [{}] * 40_000}
    assert resume.first_flaw(hostile) is not None


def test_bad_payload_in_a_sound_envelope_keeps_type_and_id() -> None:
    bad = decode(text(envelope("telemetry", {})), Side.NODE)
    assert isinstance(bad, BadFrame)
    assert (bad.type, bad.msg_id) == ("telemetry", ACK_ID)


def test_bad_envelope_gives_no_id_to_answer() -> None:
    bad = decode(text(HEARTBEAT | {"msg_id": "x"}), Side.NODE)
    assert isinstance(bad, BadFrame)
    assert bad.msg_id is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["type", "msg_id", "payload"]), inner),
)


@given(st.binary(max_size=300) | st.text().map(lambda s: s.encode("utf-8", "surrogatepass")))
@example(b"[" * FRAME_BYTES_MAX)
@example(b'"' + b"\\u0000" * 20_000 + b'"')
def test_any_bytes_give_a_frame_or_a_bad_frame(data: bytes) -> None:
    for side in Side:
        assert isinstance(decode(data, side), Frame | BadFrame)


@given(JSON)
def test_any_json_gives_a_frame_or_a_bad_frame(value: Any) -> None:
    for side in Side:
        assert isinstance(decode(json.dumps(value).encode(), side), Frame | BadFrame)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_damaged_frames_are_read_or_refused_without_echoing_the_sender(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        kind, payload = rng.choice(EVERY_PAYLOAD)
        raw = mutants(envelope(kind, payload), rng)
        if isinstance(raw, dict):
            raw["MARK-key"] = "MARK-value"
        frame = decode(json.dumps(raw).encode(), SIDE_OF[kind])
        assert isinstance(frame, BadFrame)
        assert "MARK" not in frame.words + repr(frame)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_decodes_encodes_to_the_same_frame(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        kind, payload = rng.choice(EVERY_PAYLOAD)
        frame = decode(json.dumps(mutants(envelope(kind, payload), rng)).encode(), SIDE_OF[kind])
        if isinstance(frame, Frame):
            assert decode(encode(frame), SIDE_OF[kind]) == frame
