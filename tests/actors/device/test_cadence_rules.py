"""Cadences: acked at once, ticking without drift, gone with their socket."""

from typing import Any

import pytest

from actors.device.cadence_rules import CADENCES_MAX
from actors.device.device_messages import CloseWith, Effect, FrameSampled, SampleFrame, TimePassed, WriteJournal
from schemas.closes import NodeClose
from schemas.frames import CmdAck, Telemetry
from tests.actors.device.node import START, SUBSCRIBE, Node, cid, journal, of, sent
from tests.schemas.examples import FRAME


def subscribe(node: Node, number: int = 1, **changes: Any) -> list[Effect]:
    return node.cmd(number, **{"tool": SUBSCRIBE, "arguments": {"interval_ms": 2000}} | changes)


def sampled(node: Node, number: int = 1) -> list[Telemetry]:
    return sent(Telemetry, node.feed(FrameSampled(cid(number), FRAME)))


def ticks(node: Node, seconds: float, number: int = 1) -> list[float]:
    """When samples are taken, if each is there at once. The wire's own timers are left out of it."""
    until, taken = node.now + seconds, []
    while (at := node.rules.next_deadline()) is not None and at <= until:
        node.now = at
        if SampleFrame(cid(number), SUBSCRIBE) in node.feed(TimePassed()):
            taken.append(at - START)
            sampled(node, number)
    node.now = until
    return taken


def test_a_subscribe_is_acked_at_once_and_samples_its_first_frame() -> None:
    node = Node().live()
    effects = subscribe(node)
    (ack,) = sent(CmdAck, effects)
    assert (ack.in_reply_to, ack.ok, ack.result) == (cid(1), True, {})
    assert of(SampleFrame, effects) == [SampleFrame(cid(1), SUBSCRIBE)]
    assert of(WriteJournal, effects) == []


def test_a_frame_goes_out_in_reply_to_its_subscribe() -> None:
    node = Node().live()
    subscribe(node)
    (telemetry,) = sampled(node)
    assert (telemetry.in_reply_to, telemetry.frame) == (cid(1), FRAME)


def test_ticks_are_exact() -> None:
    node = Node().live()
    subscribe(node)
    sampled(node)
    assert ticks(node, 10.0) == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_the_default_interval_is_the_schemas() -> None:
    node = Node().live()
    subscribe(node, arguments={})
    sampled(node)
    assert ticks(node, 12.0) == [5.0, 10.0]


def test_a_late_tick_is_taken_if_the_next_one_is_far_enough() -> None:
    node = Node().live()
    subscribe(node)
    sampled(node)
    node.now = START + 9.0  # 2, 4 and 6 were missed, 8 is half an interval late
    assert of(SampleFrame, node.feed(TimePassed())) != []
    assert node.rules.next_deadline() == START + 10.0


def test_a_tick_too_close_to_the_next_one_is_skipped() -> None:
    node = Node().live()
    subscribe(node)
    sampled(node)
    node.now = START + 9.001
    assert of(SampleFrame, node.feed(TimePassed())) == []
    assert node.rules.next_deadline() == START + 10.0


def test_a_tick_that_finds_the_last_frame_unfinished_is_skipped() -> None:
    node = Node().live()
    subscribe(node)
    assert of(SampleFrame, node.wait(5.0)) == []
    sampled(node)
    assert len(of(SampleFrame, node.wait(1.0))) == 1


def test_a_sampler_that_fails_costs_one_frame() -> None:
    node = Node().live()
    subscribe(node)
    assert node.feed(FrameSampled(cid(1), None)) == []
    assert ticks(node, 4.0) == [2.0, 4.0]


def test_a_cancelled_cadence_is_silent_and_unacked() -> None:
    node = Node().live()
    subscribe(node)
    assert node.cancel(1) == []
    assert sampled(node) == []
    assert ticks(node, 10.0) == []


def test_a_cadence_ends_with_its_socket() -> None:
    node = Node().live()
    subscribe(node)
    node.lose_wire()
    assert sampled(node) == []
    (resume,) = node.resumed()
    assert (resume.outcomes, resume.running, resume.last_cmd) == ([], [], None)
    node.resume_ok()
    assert ticks(node, 10.0) == []


def test_a_subscribe_is_exempt_from_last_cmd_and_does_not_move_it() -> None:
    node = Node(journal(last_cmd=cid(5))).live()
    assert len(sent(CmdAck, subscribe(node, 1))) == 1
    assert len(sent(CmdAck, subscribe(node, 9))) == 1
    node.lose_wire()
    (resume,) = node.resumed()
    assert resume.last_cmd == cid(5)


def test_cadences_tick_independently() -> None:
    node = Node().live()
    subscribe(node, 1, arguments={"interval_ms": 3000})
    node.now += 1.0
    subscribe(node, 2)
    sampled(node, 1)
    sampled(node, 2)
    assert node.rules.next_deadline() == START + 3.0
    assert of(SampleFrame, node.wait(2.0)) == [SampleFrame(cid(1), SUBSCRIBE), SampleFrame(cid(2), SUBSCRIBE)]


def test_a_subscribe_that_comes_twice_is_one_cadence() -> None:
    node = Node().live()
    subscribe(node)
    assert subscribe(node) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"in_ms": 0}, "E_DEADLINE_EXCEEDED"),
        ({"arguments": {"interval_ms": 999}}, "E_MANIFEST_INVALID"),
        ({"arguments": {"include": ["cpu"]}}, "E_MANIFEST_INVALID"),
    ],
)
def test_a_subscribe_that_cannot_be_is_refused_as_not_begun(changes: dict[str, Any], code: str) -> None:
    node = Node().live()
    (ack,) = sent(CmdAck, subscribe(node, **changes))
    assert ack.error is not None
    assert (ack.ok, ack.error["code"], ack.begun) == (False, code, False)
    node.lose_wire()
    assert node.resumed()[0].outcomes == [], "nobody asks how a subscribe ended"


def test_one_cadence_too_many_is_refused() -> None:
    node = Node().live()
    for number in range(CADENCES_MAX):
        assert sent(CmdAck, subscribe(node, number))[0].ok
    (ack,) = sent(CmdAck, subscribe(node, CADENCES_MAX))
    assert ack.error is not None
    assert (ack.error["code"], ack.begun) == ("E_RATE_LIMITED", False)


def test_a_subscribe_before_the_session_is_live_is_a_bad_frame() -> None:
    node = Node()
    node.resumed()
    assert subscribe(node) == [CloseWith(NodeClose.BAD_FRAME)]
