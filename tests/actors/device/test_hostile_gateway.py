"""A gateway that sends anything at all: the device does not crash, does not flood, and takes no lasting harm."""

import json
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

import actors.device.execution_rules as execution_rules
from actors.device.device_messages import CloseWith, FrameReceived, GarbageReceived
from actors.device.device_rules import DeviceState
from actors.device.handlers import CAPABILITIES
from actors.device.identity import manifest_signer
from actors.device.wire import OUTBOX_FRAMES_MAX, OpenWire
from schemas.canonical import INTEGER_MAX
from schemas.closes import NodeClose
from schemas.errors import Code, envelope
from schemas.frames import BadFrame, Cmd, CmdAck, ErrorFrame, Heartbeat, Side, decode
from schemas.ulids import MSG_ID_AHEAD_MS_MAX, is_too_far_ahead, to_text
from tests.actors.device.conftest import IDENTITY, World
from tests.actors.device.gateway import MemoryWire
from tests.actors.device.node import (
    ECHO,
    HELLO,
    LOG,
    OTHER_LOG,
    SESSION,
    SNAPSHOT,
    SUBSCRIBE,
    T0_MS,
    Node,
    cid,
    journal,
    of,
    records,
    refusals,
    sent,
    started,
)

FINGERPRINT = {"algo": "blake3-256", "value": "0" * 64, "sources": ["machine_id"]}
LAST_ULID = "7" + "Z" * 25
PAST_ULIDS = "Z" * 26  # fits the pattern, and no clock ever mints it


def id_at(wall_ms: int) -> str:
    return to_text(wall_ms << 80)


# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("msg_id", [LAST_ULID, PAST_ULIDS, id_at(T0_MS + MSG_ID_AHEAD_MS_MAX + 1)])
def test_command_whose_id_no_gateway_would_take_back_is_refused(msg_id: str) -> None:
    """Begun, it would be the `last_cmd` of every `resume` from then on, and each would be closed with 4400."""
    node = Node().live()
    effects = node.receive(Cmd(msg_id=msg_id, tool=ECHO, arguments=HELLO, deadline_at_ms=T0_MS + 5000))
    assert refusals(effects) == [(msg_id, "E_INTERNAL")]
    assert records(effects) == []
    node.lose_wire()
    (resume,) = node.resumed()
    assert resume.last_cmd is None
    node.resume_ok()
    assert started(node.begin(1)) == [cid(1)]


def test_command_whose_id_is_as_far_ahead_as_a_gateway_takes_begins() -> None:
    node = Node().live()
    msg_id = id_at(T0_MS + MSG_ID_AHEAD_MS_MAX)
    effects = node.receive(Cmd(msg_id=msg_id, tool=ECHO, arguments=HELLO, deadline_at_ms=T0_MS + 5000))
    assert started(effects + node.written(effects)) == [msg_id]
    node.lose_wire()
    (resume,) = node.resumed()
    assert resume.last_cmd is not None
    assert not is_too_far_ahead(resume.last_cmd, node.gateway_ms)


# ---- clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now_ms", [2**48, INTEGER_MAX, 10**30, 1e300])
def test_time_that_no_clock_shows_is_a_bad_frame(now_ms: Any) -> None:
    """A manifest stamped with it could not even be signed."""
    node = Node()
    node.connect()
    assert node.auth_ok(now_ms=now_ms) == [CloseWith(NodeClose.BAD_FRAME)]
    assert node.rules.state is DeviceState.CONNECTING


@pytest.mark.parametrize("now_ms", [0, 2**48 - 1])
def test_manifest_can_be_signed_whatever_the_gateways_time_is(now_ms: int) -> None:
    sign = manifest_signer(IDENTITY, FINGERPRINT, CAPABILITIES)
    node = Node(sign=sign)
    node.connect()
    assert of(CloseWith, node.auth_ok(now_ms=now_ms)) == []
    assert of(CloseWith, node.announce_ack() + node.resume_ok()) == []


# ---- floods ----------------------------------------------------------------------------------------------------------


def test_replays_without_end_before_the_session_is_live_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_rules, "ACKS_WAITING_MAX", 10)
    node = Node()
    node.resumed()
    for _ in range(5):
        for number in range(1, 50):
            assert node.cmd(number, tool="sys.no.such.tool") == []
    assert len(sent(CmdAck, node.resume_ok())) == 10


async def test_errors_without_end_do_not_fill_the_log(autojump_clock: MockClock, world: World) -> None:
    world.start()
    peer = await world.gateway.accept_live()
    with capture_logs() as logs:
        for _ in range(500):
            peer.send(ErrorFrame(msg_id=cid(0), error=envelope(Code.INTERNAL)))
        await trio.sleep(61)
        peer.send(ErrorFrame(msg_id=cid(0), error=envelope(Code.INTERNAL)))
        await wait_all_tasks_blocked()
    told = [entry for entry in logs if entry["event"] == "gateway_refused"]
    assert [(entry["code"], entry["count"]) for entry in told] == [("E_INTERNAL", 1), ("E_INTERNAL", 500)]


async def test_wire_is_closed_once_and_the_first_reason_stands() -> None:
    open_wire = OpenWire(MemoryWire(), lambda _: None)
    with capture_logs() as logs:
        open_wire.close(NodeClose.BAD_FRAME)
        for number in range(2 * OUTBOX_FRAMES_MAX):
            open_wire.send(Heartbeat(msg_id=cid(number), manifest_etag=None))
    assert [entry["close_code"] for entry in logs] == [4400]
    await open_wire.run()
    assert open_wire.ended_with.code == 4400


# ---- anything at all -------------------------------------------------------------------------------------------------

IDS = st.sampled_from([cid(1), cid(2), cid(3), "0" * 26, LAST_ULID, PAST_ULIDS, id_at(T0_MS), id_at(T0_MS + 10**9)])
NUMBERS = st.sampled_from([0, 1, -1, T0_MS, T0_MS + 5000, 2**48 - 1, 2**48, INTEGER_MAX, 10**30, 1e300, 0.5, "x", None])
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
ETAGS = st.sampled_from([None, "0" * 64, f"{T0_MS:064x}"])
ARGUMENTS = st.one_of(
    st.just(HELLO),
    st.just({}),
    st.fixed_dictionaries({"interval_ms": NUMBERS}),
    st.dictionaries(st.text(), ANY, max_size=2),
)
PAYLOADS = {
    "auth_ok": st.fixed_dictionaries(
        {
            "session_id": st.just(SESSION),
            "epoch": st.sampled_from([1, 1, 1, 2, 10**30, 1e300]),
            "log_id": st.sampled_from([LOG, LOG, OTHER_LOG]),
            "now_ms": st.one_of(st.just(T0_MS), NUMBERS),
            "heartbeat_ms": st.one_of(st.just(25_000), NUMBERS),
        }
    ),
    "error": st.one_of(st.just(envelope(Code.INTERNAL)), ANY),
    "announce_ack": st.fixed_dictionaries({"manifest_etag": ETAGS, "tools": st.just([])}),
    "heartbeat_ack": st.fixed_dictionaries(
        {"manifest_etag": ETAGS, "now_ms": NUMBERS, "confirmed_through": st.one_of(st.none(), IDS)}
    ),
    "cmd": st.fixed_dictionaries(
        {
            "tool": st.sampled_from([ECHO, SNAPSHOT, SUBSCRIBE, "sys.no.such.tool"]),
            "arguments": ARGUMENTS,
            "deadline_at_ms": NUMBERS,
        }
    ),
    "cmd_cancel": st.just({}),
    "resume_ok": st.fixed_dictionaries(
        {
            "epoch": st.sampled_from([1, 1, 1, 2]),
            "confirmed_through": st.one_of(st.none(), IDS),
            "replayed": st.just(0),
            "expired": st.just(0),
        }
    ),
    "telemetry": ANY,  # a node's frame
    "nonsense": ANY,
}


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(sorted(PAYLOADS)))
    frame = {"type": kind, "msg_id": draw(IDS), "payload": draw(PAYLOADS[kind])}
    if kind == "cmd_cancel" or draw(st.booleans()):
        frame["in_reply_to"] = draw(IDS)
    return json.dumps(frame).encode()


@given(st.lists(st.one_of(frames(), st.sampled_from(["time", "disk", "opens"]), st.binary(max_size=20)), max_size=40))
@settings(deadline=None, max_examples=300)
def test_no_frame_in_any_order_crashes_the_rules_or_keeps_them_awake(steps: list[bytes | str]) -> None:
    node = Node(journal(), sign=manifest_signer(IDENTITY, FINGERPRINT, CAPABILITIES))
    pending: list[Any] = []
    for step in steps:
        if node.rules.state is DeviceState.CONNECTING:
            pending += node.connect()
        if step == "time":
            pending += node.wait(7.0, wakes_max=500)
        elif step == "disk":
            requests, pending = pending, []
            pending += node.written(requests)
        elif step == "opens":  # politely, as far as it goes
            for open_up in (node.auth_ok, node.announce_ack, node.resume_ok):
                pending += open_up()
        elif isinstance(step, bytes):
            frame = decode(step, Side.GATEWAY)
            pending += node.feed(GarbageReceived(frame) if isinstance(frame, BadFrame) else FrameReceived(frame))
    node.lose_wire()
    node.written(pending)
