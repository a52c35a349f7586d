"""The order of a session: every frame in every phase, every close by its rule, to the millisecond."""

from dataclasses import replace
from typing import Any

import pytest

from actors.bucket_rules import TokenBucket
from actors.bus.bus import Failed
from actors.log.appender import Lost
from actors.node import intents
from actors.node.history import Reason
from actors.node.intents import Cancel, Intent, Issue, OpenSession, Report, ReportUnwritten, Resumed, Sweep
from actors.node.moment import Moment
from actors.node.reports import Drop
from actors.node.session_rules import (
    Abandon,
    CloseWith,
    Count,
    Effects,
    EndSession,
    GiveBack,
    HandAck,
    HandResume,
    JudgeManifest,
    KeepManifest,
    Phase,
    Relay,
    SendFrame,
    Session,
    Settle,
    illegal,
    lost,
)
from actors.node.settings import NodeSettings
from schemas.closes import NodeClose
from schemas.errors import Code
from schemas.frames import (
    Announce,
    AnnounceAck,
    Auth,
    AuthOk,
    BadFrame,
    CmdAck,
    ErrorFrame,
    Fault,
    Frame,
    Heartbeat,
    HeartbeatAck,
    Outcome,
    Resume,
    ResumeOk,
    Telemetry,
)
from schemas.manifest import Accepted, Rejected
from schemas.projection import project
from schemas.ulids import Mint
from tests.schemas.examples import ACK_ID, CMD_ID, ECHO_RESULT, ETAG, FRAME, MANIFEST, NODE_ID

WALL_MS = 1_790_000_000_000
SETTINGS = NodeSettings()
ACCEPTED = Accepted(MANIFEST, ETAG, project(MANIFEST))
REFUSED = Rejected(Code.MANIFEST_INVALID, "/node_id", "/node_id does not match its pattern")

AUTH = Auth(msg_id=ACK_ID, token="t", node_id=NODE_ID)
ANNOUNCE = Announce(msg_id=ACK_ID, manifest=MANIFEST)
OTHER = Announce(msg_id=ACK_ID, manifest=MANIFEST | {"issued_at_ms": MANIFEST["issued_at_ms"] + 1})
HEARTBEAT = Heartbeat(msg_id=ACK_ID, manifest_etag=None)
RESUME = Resume(msg_id=ACK_ID, journal_id="j", last_cmd=None, outcomes=[], running=[])
ACK = CmdAck(msg_id=ACK_ID, in_reply_to=CMD_ID, ok=True, result=ECHO_RESULT)
TELEMETRY = Telemetry(msg_id=ACK_ID, in_reply_to=CMD_ID, frame=FRAME)
BAD = BadFrame(Fault.NOT_JSON)
BAD_TELEMETRY = BadFrame(Fault.WRONG_SHAPE, type="telemetry", msg_id=ACK_ID)


def at(seconds: float) -> Moment:
    return Moment(seconds, WALL_MS + round(seconds * 1000))


def session(phase: Phase = Phase.OPENING, settings: NodeSettings = SETTINGS, token_s: float = 3600) -> Session:
    """A session that has come this far at second 0."""
    manifests = TokenBucket.full(1 / settings.manifest_every_s, settings.manifests_burst, 0.0)
    one = Session(Mint(lambda n: b"\0" * n), settings, at(0), WALL_MS + round(token_s * 1000), manifests)
    if phase is not Phase.OPENING:
        one.granted("S", 7, "L", ACK_ID, at(0))
    if phase in (Phase.RESUMING, Phase.LIVE):
        one.judged(ANNOUNCE, ACCEPTED, ACCEPTED, at(0))
    if phase is Phase.LIVE:
        one.resumed(ACK_ID, Resumed(7, False, None, (), ()), at(0))
    if phase is Phase.ENDED:
        one.close(NodeClose.NORMAL)
    assert one.phase is phase
    return one


def closed(effects: Effects) -> NodeClose | None:
    return next((effect.close for effect in effects if isinstance(effect, CloseWith)), None)


def sent(effects: Effects) -> Any:
    (effect,) = effects
    assert isinstance(effect, SendFrame)
    return effect.frame


# ---- the order -----------------------------------------------------------------------------------------------------

LEGAL: dict[tuple[Phase, type[Frame]], type] = {
    (Phase.ANNOUNCING, Announce): JudgeManifest,
    (Phase.ANNOUNCING, Heartbeat): SendFrame,
    (Phase.RESUMING, Announce): JudgeManifest,
    (Phase.RESUMING, Heartbeat): SendFrame,
    (Phase.RESUMING, Resume): HandResume,
    (Phase.LIVE, Announce): JudgeManifest,
    (Phase.LIVE, Heartbeat): SendFrame,
    (Phase.LIVE, CmdAck): HandAck,
    (Phase.LIVE, Telemetry): Relay,
}


@pytest.mark.parametrize("phase", [Phase.OPENING, Phase.ANNOUNCING, Phase.RESUMING, Phase.LIVE])
@pytest.mark.parametrize("frame", [AUTH, OTHER, HEARTBEAT, RESUME, ACK, TELEMETRY], ids=lambda frame: frame.type)
def test_each_frame_is_taken_in_its_phases_and_closes_with_4400_in_others(phase: Phase, frame: Frame) -> None:
    one = session(phase)
    effects = one.received(frame, None, at(1))
    expected = LEGAL.get((phase, type(frame)))
    if expected is None:
        assert closed(effects) is NodeClose.BAD_FRAME
        assert one.phase is Phase.ENDED
    else:
        assert [type(effect) for effect in effects] == [expected]
        assert one.phase is phase


@pytest.mark.parametrize("frame", [ANNOUNCE, HEARTBEAT, RESUME, ACK, TELEMETRY, BAD], ids=lambda frame: str(frame)[:12])
def test_nothing_counts_after_the_end(frame: Frame | BadFrame) -> None:
    one = session(Phase.ENDED)
    assert one.received(frame, None, at(1)) == ()
    assert one.close(NodeClose.INTERNAL) == ()
    assert one.granted("S", 1, "L", ACK_ID, at(1)) == ()
    assert one.kept(ANNOUNCE, ACCEPTED, True, at(1)) == ()
    assert one.resumed(ACK_ID, Resumed(1, False, None, (), ()), at(1)) == ()


def test_first_close_stands() -> None:
    one = session(Phase.LIVE)
    assert closed(one.close(NodeClose.SUPERSEDED)) is NodeClose.SUPERSEDED
    assert one.close(NodeClose.INTERNAL) == ()


@pytest.mark.parametrize("phase", [Phase.ANNOUNCING, Phase.RESUMING, Phase.LIVE])
@pytest.mark.parametrize(
    ("bad", "close"),
    [
        (BAD, NodeClose.BAD_FRAME),
        (BadFrame(Fault.TOO_LARGE), NodeClose.TOO_LARGE),
        (BadFrame(Fault.UNKNOWN_TYPE), NodeClose.BAD_FRAME),
        (BadFrame(Fault.WRONG_SHAPE, type="cmd_ack", msg_id=ACK_ID), NodeClose.BAD_FRAME),
        (BadFrame(Fault.WRONG_SHAPE, type="telemetry", msg_id=None), NodeClose.BAD_FRAME),
    ],
)
def test_bad_frame_closes_by_its_code(phase: Phase, bad: BadFrame, close: NodeClose) -> None:
    assert closed(session(phase).received(bad, None, at(1))) is close


def test_telemetry_that_breaks_its_schema_is_dropped_and_counted_when_live() -> None:
    one = session(Phase.LIVE)
    assert one.received(BAD_TELEMETRY, None, at(1)) == (Count(Drop.TELEMETRY_INVALID),)
    assert one.phase is Phase.LIVE
    assert closed(session(Phase.RESUMING).received(BAD_TELEMETRY, None, at(1))) is NodeClose.BAD_FRAME


# ---- what is said --------------------------------------------------------------------------------------------------


def test_auth_ok_tells_epoch_log_clock_and_heartbeat() -> None:
    frame = sent(session().granted("01SESSION", 7, "01LOG", CMD_ID, at(2)))
    assert isinstance(frame, AuthOk)
    assert (frame.session_id, frame.epoch, frame.log_id, frame.now_ms) == ("01SESSION", 7, "01LOG", WALL_MS + 2000)
    assert (frame.heartbeat_ms, frame.in_reply_to) == (25_000, CMD_ID)


def test_epoch_is_granted_once() -> None:
    one = session(Phase.LIVE)
    assert one.granted("S", 8, "L", ACK_ID, at(1)) == ()
    assert one.phase is Phase.LIVE


def test_accepted_manifest_is_acknowledged_with_its_tools() -> None:
    frame = sent(session(Phase.ANNOUNCING).judged(ANNOUNCE, ACCEPTED, ACCEPTED, at(1)))
    assert isinstance(frame, AnnounceAck)
    assert (frame.manifest_etag, frame.in_reply_to) == (ETAG, ACK_ID)
    assert frame.tools == [tool.name for tool in ACCEPTED.tools]


@pytest.mark.parametrize("phase", [Phase.RESUMING, Phase.LIVE])
def test_announcing_again_keeps_the_phase(phase: Phase) -> None:
    one = session(phase)
    one.judged(ANNOUNCE, ACCEPTED, ACCEPTED, at(1))
    assert one.phase is phase


def test_heartbeat_is_answered_with_our_etag_clock_and_what_is_confirmed() -> None:
    before, after = session(Phase.ANNOUNCING), session(Phase.LIVE)
    frame = sent(before.received(HEARTBEAT, None, at(3)))
    assert isinstance(frame, HeartbeatAck)
    assert (frame.manifest_etag, frame.now_ms, frame.confirmed_through) == (None, WALL_MS + 3000, None)
    frame = sent(after.received(HEARTBEAT, CMD_ID, at(3)))
    assert (frame.manifest_etag, frame.confirmed_through, frame.in_reply_to) == (ETAG, CMD_ID, ACK_ID)


def test_resume_is_answered_and_makes_the_session_live() -> None:
    one = session(Phase.RESUMING)
    frame = sent(one.resumed(ACK_ID, Resumed(7, False, CMD_ID, ("",) * 2, ("",) * 1), at(1)))
    assert isinstance(frame, ResumeOk)
    assert (frame.epoch, frame.confirmed_through, frame.replayed, frame.expired) == (7, CMD_ID, 2, 1)
    assert one.phase is Phase.LIVE


def test_resume_cannot_be_taken_before_a_manifest_is_accepted() -> None:
    one = session(Phase.ANNOUNCING)
    assert one.resumed(ACK_ID, Resumed(7, False, None, (), ()), at(1)) == ()
    assert one.phase is Phase.ANNOUNCING


# ---- manifests judged, kept and refused ------------------------------------------------------------------------------


def test_manifest_that_is_news_is_kept_before_it_is_acknowledged() -> None:
    one = session(Phase.ANNOUNCING)
    assert one.judged(ANNOUNCE, ACCEPTED, None, at(1)) == (KeepManifest(ANNOUNCE, ACCEPTED),)
    assert isinstance(sent(one.kept(ANNOUNCE, ACCEPTED, True, at(2))), AnnounceAck)
    assert one.phase is Phase.RESUMING


def test_manifest_that_cannot_be_kept_closes_with_1011() -> None:
    one = session(Phase.LIVE)
    one.judged(ANNOUNCE, ACCEPTED, None, at(1))
    assert closed(one.kept(ANNOUNCE, ACCEPTED, False, at(2))) is NodeClose.INTERNAL


def test_time_that_we_take_to_keep_a_manifest_is_not_the_nodes() -> None:
    one = session(Phase.ANNOUNCING)
    one.judged(ANNOUNCE, ACCEPTED, None, at(2))
    assert one.tick(at(15)) == ()
    one.kept(ANNOUNCE, ACCEPTED, True, at(15))
    assert one.next_deadline_s() == 23.0
    assert closed(one.tick(at(23))) is NodeClose.TIMEOUT


def test_time_that_we_take_to_record_a_complete_resume_is_not_the_nodes() -> None:
    one = session(Phase.RESUMING)
    one.received(RESUME, None, at(9))
    assert one.tick(at(50)) == ()


def test_second_resume_while_the_first_is_recorded_closes_with_4400() -> None:
    one = session(Phase.RESUMING)
    one.received(RESUME, None, at(1))
    assert closed(one.received(RESUME, None, at(1))) is NodeClose.BAD_FRAME


def test_manifest_that_is_accepted_already_is_acknowledged_at_once_however_often_it_comes() -> None:
    one = session(Phase.LIVE)
    for _ in range(100):
        assert isinstance(sent(one.received(ANNOUNCE, None, at(1))), AnnounceAck)


def test_accepted_manifest_that_has_expired_is_judged_again() -> None:
    one = session(Phase.LIVE)
    over_s = (MANIFEST["expires_at_ms"] - WALL_MS) / 1000
    assert one.received(ANNOUNCE, None, at(over_s)) == (JudgeManifest(ANNOUNCE),)


def test_other_manifests_are_judged_a_few_at_once_and_then_at_their_rate() -> None:
    one = session(Phase.LIVE, replace(SETTINGS, manifests_burst=2, manifest_every_s=5.0))
    effects = [one.received(OTHER, None, at(1)) for _ in range(3)]
    assert effects[:2] == [(JudgeManifest(OTHER),)] * 2
    refusal = sent(effects[2])
    assert isinstance(refusal, ErrorFrame)
    assert (refusal.error["code"], refusal.error["retry_after_ms"]) == ("E_RATE_LIMITED", 5000)
    assert one.received(OTHER, None, at(6)) == (JudgeManifest(OTHER),)


def test_manifest_that_comes_while_another_is_being_kept_is_refused_for_now() -> None:
    one = session(Phase.LIVE)
    one.judged(OTHER, ACCEPTED, None, at(1))
    refusal = sent(one.received(OTHER, None, at(1)))
    assert isinstance(refusal, ErrorFrame)
    assert refusal.error["code"] == "E_RATE_LIMITED"


# ---- what it means when an intent comes to nothing -----------------------------------------------------------------

ISSUE = Issue(CMD_ID, "tool", "agent", "acme", WALL_MS + 5000)
ACK_INTENT = intents.TakeAck(Report(CMD_ID, ok=True))
RESUME_INTENT = intents.TakeResume(ACK_ID, "j", None)
INTENTS: list[Intent] = [
    OpenSession("s"),
    RESUME_INTENT,
    ACK_INTENT,
    ISSUE,
    Cancel(CMD_ID),
    ReportUnwritten(CMD_ID),
    Sweep(),
]


def failed(code: Code) -> list[object]:
    return [GiveBack(ISSUE), Settle(CMD_ID, Failed(code, CMD_ID, is_command=False))]


@pytest.mark.parametrize(
    ("why", "meanings"),
    [
        (
            Lost.REFUSED,
            [
                [EndSession(NodeClose.INTERNAL)],
                [EndSession(NodeClose.INTERNAL)],
                [
                    Count(Drop.ACK_NOT_RECORDED),
                    Settle(CMD_ID, Failed(Code.INTERNAL, CMD_ID)),
                    EndSession(NodeClose.INTERNAL),
                ],
                failed(Code.INTERNAL),
                [Abandon(CMD_ID)],
                [EndSession(NodeClose.INTERNAL)],
                [],
            ],
        ),
        (Lost.SUPERSEDED, [[], [], [], failed(Code.NODE_OFFLINE), [Abandon(CMD_ID)], [], []]),
        (Lost.ENDED, [[], [], [], failed(Code.NODE_OFFLINE), [Abandon(CMD_ID)], [], []]),
    ],
)
def test_what_is_lost_means_what_the_table_says(why: Lost, meanings: list[list[object]]) -> None:
    assert [list(lost(intent, why)) for intent in INTENTS] == meanings


def test_what_is_illegal_ends_a_resume_fails_a_call_and_is_counted_otherwise() -> None:
    assert illegal(RESUME_INTENT, Reason.ALREADY_RESUMED) == (EndSession(NodeClose.BAD_FRAME),)
    assert list(illegal(ISSUE, Reason.PAST_DEADLINE)) == failed(Code.DEADLINE_EXCEEDED)
    assert list(illegal(ISSUE, Reason.ID_NOT_INCREASING)) == failed(Code.INTERNAL)
    assert illegal(ACK_INTENT, Reason.NOT_SENT) == (Count(Drop.COMMAND_ILLEGAL),)


# ---- refused -------------------------------------------------------------------------------------------------------


def test_refused_manifest_is_answered_by_an_error_that_names_it() -> None:
    frame = sent(session(Phase.ANNOUNCING).judged(ANNOUNCE, REFUSED, ACCEPTED, at(1)))
    assert isinstance(frame, ErrorFrame)
    assert frame.in_reply_to == ACK_ID
    assert (frame.error["code"], frame.error["message"]) == ("E_MANIFEST_INVALID", REFUSED.message)


def test_third_refused_manifest_in_a_row_closes_with_4422() -> None:
    one = session(Phase.LIVE)
    for _ in range(2):
        assert closed(one.judged(ANNOUNCE, REFUSED, ACCEPTED, at(1))) is None
    assert closed(one.judged(ANNOUNCE, REFUSED, ACCEPTED, at(1))) is NodeClose.MANIFEST_REJECTED


def test_accepted_manifest_starts_the_count_anew() -> None:
    one = session(Phase.LIVE)
    for verdict in (REFUSED, REFUSED, ACCEPTED, REFUSED, REFUSED):
        assert closed(one.judged(ANNOUNCE, verdict, ACCEPTED, at(1))) is None


def test_refused_manifest_leaves_the_last_accepted_in_force() -> None:
    one = session(Phase.LIVE)
    one.judged(ANNOUNCE, REFUSED, ACCEPTED, at(1))
    assert one.accepted is ACCEPTED


# ---- resume in several frames --------------------------------------------------------------------------------------


def page(**changes: Any) -> Resume:
    fields: dict[str, Any] = {"msg_id": ACK_ID, "journal_id": "j", "last_cmd": CMD_ID, "outcomes": [], "running": []}
    return Resume(**fields | changes)


def test_resume_is_taken_when_its_last_frame_has_come() -> None:
    one = session(Phase.RESUMING)
    first, last = page(more=True), page(more=False)
    assert one.received(first, None, at(1)) == ()
    assert one.received(last, None, at(1)) == (HandResume((first, last)),)


@pytest.mark.parametrize("change", [{"journal_id": "k"}, {"last_cmd": None}])
def test_frames_of_one_resume_must_agree(change: dict[str, Any]) -> None:
    one = session(Phase.RESUMING)
    one.received(page(more=True), None, at(1))
    assert closed(one.received(page(**change), None, at(1))) is NodeClose.BAD_FRAME


def test_resume_of_too_many_frames_closes_with_4400() -> None:
    one = session(Phase.RESUMING, replace(SETTINGS, resume_frames_max=3))
    assert [closed(one.received(page(more=True), None, at(1))) for _ in range(3)] == [None, None, NodeClose.BAD_FRAME]


def test_resume_of_too_many_outcomes_closes_with_4400() -> None:
    one = session(Phase.RESUMING, replace(SETTINGS, resume_outcomes_max=3))
    two = [Outcome(in_reply_to=CMD_ID, ok=True, begun=True)] * 2
    assert closed(one.received(page(outcomes=two, more=True), None, at(1))) is None
    assert closed(one.received(page(outcomes=two), None, at(1))) is NodeClose.BAD_FRAME


# ---- time ----------------------------------------------------------------------------------------------------------


def test_silence_of_a_node_that_has_no_epoch_yet_is_our_own_doing() -> None:
    one = session(Phase.OPENING)
    assert one.tick(at(600)) == ()


@pytest.mark.parametrize("phase", [Phase.LIVE])
def test_60_s_without_a_frame_close_with_4408(phase: Phase) -> None:
    one = session(phase)
    assert one.tick(at(59.999)) == ()
    assert one.next_deadline_s() == 60.0
    assert closed(one.tick(at(60.0))) is NodeClose.TIMEOUT


def test_any_frame_starts_the_silence_anew() -> None:
    one = session(Phase.LIVE)
    one.received(HEARTBEAT, None, at(59))
    assert one.next_deadline_s() == 119.0
    assert one.tick(at(60)) == ()


@pytest.mark.parametrize("phase", [Phase.ANNOUNCING, Phase.RESUMING])
def test_no_resume_within_10_s_of_auth_ok_closes_with_4408(phase: Phase) -> None:
    one = session(phase)
    one.received(HEARTBEAT, None, at(9))
    assert one.next_deadline_s() == 10.0
    assert one.tick(at(9.999)) == ()
    assert closed(one.tick(at(10.0))) is NodeClose.TIMEOUT


def test_half_a_resume_does_not_stop_the_10_s() -> None:
    one = session(Phase.RESUMING)
    one.received(page(more=True), None, at(5))
    assert closed(one.tick(at(10))) is NodeClose.TIMEOUT


def test_end_of_the_token_closes_with_4401() -> None:
    one = session(Phase.LIVE, token_s=30)
    assert one.next_deadline_s() == 30.0
    assert one.tick(at(29.999)) == ()
    assert closed(one.tick(at(30))) is NodeClose.UNAUTHORIZED


def flood(one: Session, seconds: int, per_second: int) -> NodeClose | None:
    for second in range(seconds):
        for n in range(per_second):
            close = closed(one.received(HEARTBEAT, None, at(second + n / per_second)))
            if close is not None:
                return close
    return None


def test_200_frames_a_second_are_no_flood() -> None:
    assert flood(session(Phase.LIVE), 60, 200) is None


def test_more_than_200_frames_a_second_for_5_s_close_with_4429() -> None:
    assert flood(session(Phase.LIVE), 5, 201) is None
    assert flood(session(Phase.LIVE), 6, 201) is NodeClose.RATE_LIMITED


def test_burst_with_a_pause_is_no_flood() -> None:
    one = session(Phase.LIVE)
    for start in range(0, 60, 6):
        for second in range(4):
            for _ in range(500):
                assert closed(one.received(HEARTBEAT, None, at(start + second))) is None
