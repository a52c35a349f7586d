"""What follows from a question about a node that another process has, or had."""

from dataclasses import replace

import pytest

from actors.bus.bus import Failed, Succeeded
from actors.bus.directory import HERE, NodeRecord
from actors.engine import bus_messages as wire
from actors.engine.bus_rules import (
    UNANSWERED,
    is_elsewhere,
    is_over,
    is_worth_another_try,
    not_served,
    unanswered,
)
from actors.engine.messages import NoReply
from schemas.errors import Code
from schemas.manifest import Accepted

RECORD = NodeRecord("n", "acme", Accepted({}, "etag", ()), owner="P", epoch=3, live=True)


@pytest.mark.parametrize(
    ("why", "code", "is_known"),
    [
        (NoReply.NOT_SENT, Code.NODE_OFFLINE, True),
        (NoReply.NO_RESPONDERS, Code.NODE_OFFLINE, True),
        (NoReply.TIMED_OUT, Code.DEADLINE_EXCEEDED, False),
        (NoReply.LOST, Code.DEADLINE_EXCEEDED, False),
    ],
)
def test_what_is_not_answered_was_not_done_or_nobody_knows(why: NoReply, code: Code, is_known: bool) -> None:
    assert unanswered(why, "m") == Failed(code, "m", is_known=is_known)


def test_every_way_without_an_answer_has_a_row() -> None:
    assert set(UNANSWERED) == set(NoReply)


@pytest.mark.parametrize(
    ("record", "elsewhere"),
    [
        (None, False),
        (RECORD, True),
        (replace(RECORD, owner=HERE), False),
        (replace(RECORD, live=False), False),
    ],
)
def test_only_what_lives_in_another_process_is_asked_for_there(record: NodeRecord | None, elsewhere: bool) -> None:
    assert is_elsewhere(record) is elsewhere


@pytest.mark.parametrize(
    ("record", "again"),
    [
        (None, False),
        (RECORD, False),
        (replace(RECORD, epoch=4), True),
        (replace(RECORD, epoch=4, owner=HERE), True),
        (replace(RECORD, epoch=4, live=False), False),
        (replace(RECORD, owner="Q"), False),
    ],
)
def test_only_a_newer_session_is_worth_another_try(record: NodeRecord | None, again: bool) -> None:
    assert is_worth_another_try(record, 3) is again


@pytest.mark.parametrize(
    ("live_epoch", "deadline_at_ms", "serving", "answer"),
    [
        (3, 1001, 1, False),
        (None, 1001, 1, True),
        (2, 1001, 1, True),
        (4, 1001, 1, True),
        (3, 1000, 1, Failed(Code.DEADLINE_EXCEEDED)),
        (3, 999, 1, Failed(Code.DEADLINE_EXCEEDED)),
        (4, 999, 1, True),
        (3, 1001, 2, Failed(Code.RATE_LIMITED, retry_after_ms=1000)),
    ],
)
def test_an_owner_serves_its_own_session_in_time_and_within_its_limit(
    live_epoch: int | None, deadline_at_ms: int, serving: int, answer: Failed | bool
) -> None:
    assert not_served(live_epoch, 3, deadline_at_ms, 1000, serving, 2) == answer


@pytest.mark.parametrize(
    ("record", "over"),
    [
        (RECORD, False),
        (None, True),
        (replace(RECORD, live=False), True),
        (replace(RECORD, epoch=4), True),
        (replace(RECORD, owner="Q"), True),
        (replace(RECORD, owner=HERE), True),
    ],
)
def test_a_session_is_over_when_the_directory_names_another_or_none(record: NodeRecord | None, over: bool) -> None:
    assert is_over(record, "P", 3) is over


# ---- what is sent ---------------------------------------------------------------------------------------------------

OUTCOMES = [
    Succeeded("m", {"a": [1, None, "x"]}),
    Failed(Code.NODE_OFFLINE),
    Failed(Code.RATE_LIMITED, retry_after_ms=7, cap=0.5, per_s=1),
    Failed(Code.INTERNAL, "m", is_command=False, by_node=True, is_known=False),
]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_what_it_was_when_it_arrives(outcome: Succeeded | Failed) -> None:
    answer = wire.decode_call_answer(wire.encode(wire.answer_of(outcome)))
    assert not isinstance(answer, wire.NotHere)
    assert wire.outcome_of(answer) == outcome


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"[]",
        b"null",
        b"{}",
        b'{"type":"newer"}',
        b'{"type":"failed","code":"E_NEWER"}',
        b'{"type":"ok","msg_id":1,"result":{}}',
        b'{"type":"ok","msg_id":"m","result":' + b'{"a":' * 5000,
        b"\xff",
    ],
)
def test_what_is_damaged_or_newer_is_unreadable(data: bytes) -> None:
    for decode in wire.decode_call_answer, wire.decode_call, wire.decode_attach, wire.decode_ping, wire.decode_detach:
        with pytest.raises(wire.UNREADABLE):
            decode(data)


@pytest.mark.parametrize(
    ("said", "epoch"), [("3", 3), ("", None), ("x", None), ("-1", None), ("²", None), ("9" * 5000, None), ("1.0", None)]
)
def test_an_epoch_is_a_number_or_unknown(said: str, epoch: int | None) -> None:
    assert wire.epoch_of({wire.EPOCH: said}) == epoch
    assert wire.ended_of({wire.END: said}) == epoch
    assert wire.epoch_of({}) is None
