"""A session from the node's side: its order, its heartbeats, its manifest, and what ends it."""

from typing import Any

import pytest

from actors.device.device_messages import (
    CloseWith,
    Connected,
    FrameReceived,
    GarbageReceived,
    HandlerReturned,
    JournalWritten,
    NoteRefusal,
    StartJournal,
    TimePassed,
)
from actors.device.device_rules import ANNOUNCE_AGAIN_S, HEARTBEAT_S_MAX, HEARTBEAT_S_MIN, OPENING_S_MAX, DeviceState
from actors.device.journal import JournalState
from schemas.closes import NodeClose
from schemas.errors import Code, envelope
from schemas.frames import (
    Announce,
    AnnounceAck,
    Auth,
    AuthOk,
    BadFrame,
    Cmd,
    CmdAck,
    CmdCancel,
    ErrorFrame,
    Fault,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Resume,
    ResumeOk,
)
from tests.actors.device.node import (
    ECHO,
    HELLO,
    JOURNAL,
    LOG,
    OTHER_LOG,
    SESSION,
    START,
    T0_MS,
    TOKEN,
    Node,
    cid,
    journal,
    of,
    result_of,
    sent,
    unsigned,
)
from tests.schemas.examples import NODE_ID

HEARTBEAT_S = 25.0
REFUSED = ErrorFrame(msg_id=cid(0), error=envelope(Code.ATTESTATION_FAILED))


def in_state(state: DeviceState) -> Node:
    node = Node()
    steps = [node.connect, node.auth_ok, node.announce_ack, node.resume_ok]
    for step in steps[: list(DeviceState).index(state)]:
        step()
    assert node.rules.state is state
    return node


def heartbeat_ack(etag: str | None, now_ms: int = T0_MS, **changes: Any) -> HeartbeatAck:
    fields: dict[str, Any] = {
        "msg_id": cid(0),
        "manifest_etag": etag,
        "now_ms": now_ms,
        "confirmed_through": None,
    }
    return HeartbeatAck(**fields | changes)


def answered(node: Node, heartbeat: Heartbeat, **changes: Any) -> list[Any]:
    fields = {"in_reply_to": heartbeat.msg_id} | changes
    return node.receive(heartbeat_ack(heartbeat.manifest_etag, node.gateway_ms, **fields))


# ---- the order of §2.4 -----------------------------------------------------------------------------------------------


def test_the_first_frame_is_auth() -> None:
    node = Node()
    assert node.rules.next_deadline() is None
    (auth,) = sent(Auth, node.connect())
    assert (auth.token, auth.node_id) == (TOKEN, NODE_ID)
    assert node.rules.state is DeviceState.AUTH_SENT


def test_auth_ok_is_answered_with_a_manifest_of_the_gateways_time() -> None:
    node = in_state(DeviceState.AUTH_SENT)
    node.now += 2.0  # the answer took this long: the bound counts it
    (announce,) = sent(Announce, node.auth_ok(now_ms=T0_MS))
    assert announce.manifest["issued_at_ms"] == T0_MS + 2000
    assert node.rules.state is DeviceState.ANNOUNCED


def test_a_node_with_nothing_to_report_resumes_all_the_same() -> None:
    node = Node()
    (resume,) = node.resumed()
    assert (resume.journal_id, resume.last_cmd, resume.outcomes, resume.running) == (JOURNAL, None, [], [])


def test_resume_ok_makes_the_session_live() -> None:
    node = in_state(DeviceState.RESUMED)
    assert node.resume_ok() == []
    assert node.rules.state is DeviceState.LIVE


def test_a_resume_ok_of_another_epoch_is_a_bad_frame() -> None:
    node = in_state(DeviceState.RESUMED)
    assert node.resume_ok(epoch=2) == [CloseWith(NodeClose.BAD_FRAME)]


def test_an_auth_ok_that_answers_nothing_is_a_bad_frame() -> None:
    node = in_state(DeviceState.AUTH_SENT)
    assert node.auth_ok(in_reply_to=cid(77)) == [CloseWith(NodeClose.BAD_FRAME)]


FRAMES: list[Frame] = [
    AuthOk(msg_id=cid(0), session_id=SESSION, epoch=1, log_id=LOG, now_ms=T0_MS, heartbeat_ms=25_000),
    REFUSED,
    AnnounceAck(msg_id=cid(0), manifest_etag="0" * 64, tools=[]),
    heartbeat_ack(unsigned(T0_MS).etag),
    Cmd(msg_id=cid(1), tool=ECHO, arguments=HELLO, deadline_at_ms=T0_MS + 5000),
    CmdCancel(msg_id=cid(0), in_reply_to=cid(1)),
    ResumeOk(msg_id=cid(0), epoch=1, confirmed_through=None, replayed=0, expired=0),
    Resume(msg_id=cid(0), journal_id="j", last_cmd=None, outcomes=[], running=[]),  # a node's frame
]
LEGAL = {
    DeviceState.AUTH_SENT: {AuthOk, ErrorFrame},
    DeviceState.ANNOUNCED: {ErrorFrame, AnnounceAck, HeartbeatAck},
    DeviceState.RESUMED: {ErrorFrame, AnnounceAck, HeartbeatAck, Cmd, CmdCancel, ResumeOk},
    DeviceState.LIVE: {ErrorFrame, AnnounceAck, HeartbeatAck, Cmd, CmdCancel},
}


@pytest.mark.parametrize("state", list(LEGAL))
@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.type)
def test_a_frame_out_of_order_closes_with_4400_and_nothing_of_it_is_done(state: DeviceState, frame: Frame) -> None:
    node = in_state(state)
    effects = node.receive(frame)
    if type(frame) in LEGAL[state]:
        assert of(CloseWith, effects) == []
    else:
        assert effects == [CloseWith(NodeClose.BAD_FRAME)]
        assert node.rules.state is DeviceState.CONNECTING
        (resume,) = node.resumed()
        assert (resume.last_cmd, resume.outcomes, resume.running) == (None, [], [])


@pytest.mark.parametrize("state", list(LEGAL))
def test_garbage_closes_with_4400(state: DeviceState) -> None:
    node = in_state(state)
    assert node.feed(GarbageReceived(BadFrame(Fault.NOT_JSON))) == [CloseWith(NodeClose.BAD_FRAME)]
    assert node.rules.state is DeviceState.CONNECTING


def test_a_wire_that_was_let_go_of_is_not_heard_any_more() -> None:
    node = in_state(DeviceState.CONNECTING)
    for frame in FRAMES:
        assert node.feed(FrameReceived(frame)) == []
    assert node.feed(GarbageReceived(BadFrame(Fault.NOT_JSON))) == []
    assert node.lose_wire() == []
    assert node.rules.state is DeviceState.CONNECTING


def test_a_second_wire_is_a_mistake_of_the_driver() -> None:
    node = in_state(DeviceState.LIVE)
    with pytest.raises(ValueError, match="wire already"):
        node.feed(Connected(TOKEN))
    assert node.rules.state is DeviceState.LIVE


def test_events_about_nothing_we_know_change_nothing() -> None:
    node = in_state(DeviceState.LIVE)
    assert node.feed(JournalWritten(99)) == []
    assert node.feed(HandlerReturned(cid(9), result_of())) == []
    assert node.feed(TimePassed()) == []
    assert node.rules.state is DeviceState.LIVE


# ---- the journal of a log --------------------------------------------------------------------------------------------


def test_another_log_starts_another_journal_and_resume_waits_for_it() -> None:
    node = Node(journal(last_cmd=cid(7)))
    node.connect()
    (start,) = of(StartJournal, node.auth_ok(log_id=OTHER_LOG))
    assert start.log_id == OTHER_LOG
    assert start.journal_id != JOURNAL
    assert sent(Resume, node.announce_ack()) == []
    (resume,) = sent(Resume, node.feed(JournalWritten(start.ticket)))
    assert (resume.journal_id, resume.last_cmd) == (start.journal_id, None)


def test_a_node_without_a_journal_starts_one() -> None:
    node = Node(JournalState())
    node.connect()
    assert [start.log_id for start in of(StartJournal, node.auth_ok())] == [LOG]


def test_the_journal_of_this_log_is_kept() -> None:
    node = Node(journal(last_cmd=cid(7)))
    node.connect()
    assert of(StartJournal, node.auth_ok()) == []
    (resume,) = sent(Resume, node.announce_ack())
    assert (resume.journal_id, resume.last_cmd) == (JOURNAL, cid(7))


# ---- heartbeats ------------------------------------------------------------------------------------------------------


def test_heartbeats_go_out_every_period_from_auth_ok_on() -> None:
    node = in_state(DeviceState.AUTH_SENT)
    node.now += 1.5
    node.auth_ok(heartbeat_ms=2000)
    assert node.rules.next_deadline() == START + 3.5
    assert node.feed(TimePassed()) == []
    node.announce_ack()
    node.resume_ok()
    for tick in (1, 2, 3):
        node.now = START + 1.5 + 2.0 * tick
        (heartbeat,) = sent(Heartbeat, node.feed(TimePassed()))
        answered(node, heartbeat)


@pytest.mark.parametrize(("heartbeat_ms", "period_s"), [(1, HEARTBEAT_S_MIN), (10**400, HEARTBEAT_S_MAX)])
def test_no_period_makes_the_node_flood_or_fall_silent(heartbeat_ms: int, period_s: float) -> None:
    node = in_state(DeviceState.AUTH_SENT)
    node.auth_ok(heartbeat_ms=heartbeat_ms)
    node.announce_ack()
    node.resume_ok()
    assert node.rules.next_deadline() == START + period_s


def test_heartbeats_that_were_missed_are_not_made_up_for() -> None:
    node = in_state(DeviceState.LIVE)
    node.now += 3.4 * HEARTBEAT_S
    assert len(sent(Heartbeat, node.feed(TimePassed()))) == 1
    assert node.rules.next_deadline() == START + 4 * HEARTBEAT_S


def test_an_unanswered_heartbeat_closes_with_4408_after_60_s() -> None:
    node = in_state(DeviceState.LIVE)
    effects = node.wait(HEARTBEAT_S + 60.0 - 0.001)
    assert len(sent(Heartbeat, effects)) == 3
    assert of(CloseWith, effects) == []
    assert of(CloseWith, node.wait(0.001)) == [CloseWith(NodeClose.TIMEOUT)]
    assert node.rules.state is DeviceState.CONNECTING
    assert node.rules.next_deadline() is None


def test_answered_heartbeats_keep_the_session() -> None:
    node = in_state(DeviceState.LIVE)
    for _ in range(20):
        (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
        assert answered(node, heartbeat) == []
    assert node.rules.state is DeviceState.LIVE


@pytest.mark.parametrize("state", [DeviceState.AUTH_SENT, DeviceState.ANNOUNCED, DeviceState.RESUMED])
def test_an_opening_that_takes_too_long_closes_with_4408(state: DeviceState) -> None:
    node = in_state(state)
    assert of(CloseWith, node.wait(OPENING_S_MAX - 0.001)) == []
    assert of(CloseWith, node.wait(0.001)) == [CloseWith(NodeClose.TIMEOUT)]


# ---- the manifest ----------------------------------------------------------------------------------------------------


def test_another_etag_in_the_answer_is_answered_with_the_manifest() -> None:
    node = in_state(DeviceState.LIVE)
    (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
    assert heartbeat.manifest_etag == unsigned(T0_MS).etag
    (announce,) = sent(Announce, answered(node, heartbeat, manifest_etag=None))
    assert announce.manifest["issued_at_ms"] == T0_MS, "it is still good"


def test_the_same_etag_is_no_reason_to_announce() -> None:
    node = in_state(DeviceState.LIVE)
    (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
    assert answered(node, heartbeat) == []


def test_while_an_announcement_is_under_way_another_etag_is_no_reason_to_announce() -> None:
    node = in_state(DeviceState.LIVE)
    (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
    (announce,) = sent(Announce, answered(node, heartbeat, manifest_etag=None))
    (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
    assert answered(node, heartbeat, manifest_etag=None) == []
    node.announce_ack(in_reply_to=cid(55))  # answers another one
    (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
    assert answered(node, heartbeat, manifest_etag=None) == []
    node.announce_ack(in_reply_to=announce.msg_id)
    (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
    assert len(sent(Announce, answered(node, heartbeat, manifest_etag=None))) == 1


def test_a_manifest_is_signed_anew_before_half_of_its_life() -> None:
    life_s = 100.0
    node = Node(life_ms=int(life_s * 1000)).live()
    effects = node.wait(life_s / 2 - 1)
    (announce,) = sent(Announce, effects)
    assert announce.manifest["issued_at_ms"] == T0_MS + 45_000
    assert node.announce_ack(in_reply_to=announce.msg_id) == []
    assert sent(Announce, node.wait(40.0)) == []


def test_a_manifest_is_kept_over_a_reconnect() -> None:
    node = in_state(DeviceState.LIVE)
    node.now += 60.0
    node.lose_wire()
    node.connect()
    (announce,) = sent(Announce, node.auth_ok())
    assert announce.manifest["issued_at_ms"] == T0_MS


@pytest.mark.parametrize("named", [True, False])
def test_a_refused_manifest_is_signed_anew_after_a_pause(named: bool) -> None:
    node = in_state(DeviceState.AUTH_SENT)
    (announce,) = sent(Announce, node.auth_ok())
    refusal = ErrorFrame(
        msg_id=cid(0), in_reply_to=announce.msg_id if named else None, error=envelope(Code.ATTESTATION_FAILED)
    )
    assert node.receive(refusal) == [NoteRefusal("E_ATTESTATION_FAILED")]
    assert node.rules.state is DeviceState.ANNOUNCED
    assert sent(Announce, node.wait(ANNOUNCE_AGAIN_S - 0.001)) == []
    (again,) = sent(Announce, node.wait(0.001))
    assert again.manifest["issued_at_ms"] == T0_MS + ANNOUNCE_AGAIN_S * 1000
    assert len(sent(Resume, node.announce_ack(in_reply_to=again.msg_id))) == 1


def test_an_error_about_something_else_is_noted() -> None:
    node = in_state(DeviceState.LIVE)
    assert node.receive(REFUSED) == [NoteRefusal("E_ATTESTATION_FAILED")]
    assert sent(Announce, node.wait(ANNOUNCE_AGAIN_S)) == []


def test_an_announcement_that_is_never_answered_closes_with_4408() -> None:
    node = in_state(DeviceState.LIVE)
    (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
    answered(node, heartbeat, manifest_etag=None)
    for _ in range(2):
        (heartbeat,) = sent(Heartbeat, node.wait(HEARTBEAT_S))
        answered(node, heartbeat)
    assert of(CloseWith, node.wait(10.0)) == [CloseWith(NodeClose.TIMEOUT)]


# ---- acks and the session --------------------------------------------------------------------------------------------


def test_acks_wait_until_the_session_is_live() -> None:
    node = in_state(DeviceState.RESUMED)
    effects = node.begin(1)
    effects += node.feed(HandlerReturned(cid(1), result_of()))
    effects += node.written(effects)
    assert sent(CmdAck, effects) == []
    (ack,) = sent(CmdAck, node.resume_ok())
    assert (ack.in_reply_to, ack.ok, ack.result) == (cid(1), True, result_of())


def test_what_ended_before_the_resume_is_in_it_and_not_acked_again() -> None:
    node = in_state(DeviceState.LIVE)
    node.begin(1)
    node.lose_wire()
    node.written(node.feed(HandlerReturned(cid(1), result_of())))
    (resume,) = node.resumed()
    assert [outcome.in_reply_to for outcome in resume.outcomes] == [cid(1)]
    assert node.resume_ok() == []


def test_resume_waits_for_a_command_that_is_being_journaled() -> None:
    node = in_state(DeviceState.LIVE)
    beginning = node.cmd(1)
    node.lose_wire()
    node.connect()
    node.auth_ok()
    assert sent(Resume, node.announce_ack()) == []
    (resume,) = sent(Resume, node.written(beginning))
    assert (resume.last_cmd, resume.running) == (cid(1), [cid(1)])
