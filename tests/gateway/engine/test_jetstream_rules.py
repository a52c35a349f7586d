"""What JetStream says, and what it means."""

import pytest

from gateway.engine.jetstream_rules import (
    ReadProblem,
    Verdict,
    api_answer,
    collected,
    delivered,
    got,
    headers_of,
    judge,
)
from gateway.engine.link import Message, NoAnswer
from gateway.engine.nats_runs import Stored


def said(data: bytes, **headers: str) -> Message:
    return Message("_INBOX.x", data, headers)


def error(code: int) -> Message:
    return said(b'{"error":{"code":400,"err_code":%d,"description":"?"},"stream":"HG_LOG","seq":0}' % code)


def test_an_acknowledgement_says_where_it_landed() -> None:
    assert judge(said(b'{"stream":"HG_LOG","seq":7,"batch":"b","count":3}'), "HG_LOG") == (Verdict.LANDED, 7, 0)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (10071, Verdict.MOVED),
        (10164, Verdict.BUSY),
        (10176, Verdict.BUSY),
        (10008, Verdict.BUSY),
        (10009, Verdict.BUSY),
        (10118, Verdict.BUSY),
        (10167, Verdict.BUSY),
        (10210, Verdict.BUSY),
        (10077, Verdict.FULL),
        (10047, Verdict.FULL),
        (10023, Verdict.FULL),
        (10028, Verdict.FULL),
        (10060, Verdict.FOREIGN),
        (10059, Verdict.FOREIGN),
        (10174, Verdict.FOREIGN),
        (10109, Verdict.FOREIGN),
        (10111, Verdict.FOREIGN),
        (10054, Verdict.REFUSED),
        (99999, Verdict.REFUSED),
        (0, Verdict.REFUSED),
    ],
)
def test_each_code_has_a_meaning(code: int, verdict: Verdict) -> None:
    assert judge(error(code), "HG_LOG") == (verdict, 0, code)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (NoAnswer.NOT_SENT, Verdict.NOT_TAKEN),
        (NoAnswer.NO_RESPONDERS, Verdict.NOT_TAKEN),
        (NoAnswer.TIMED_OUT, Verdict.UNKNOWN),
        (NoAnswer.LOST, Verdict.UNKNOWN),
    ],
)
def test_no_answer_is_unknown_only_if_somebody_may_have_taken_it(answer: NoAnswer, verdict: Verdict) -> None:
    assert judge(answer, "HG_LOG").verdict is verdict


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"[]", b'{"stream":"OTHER","seq":7}', b'{"seq":7}', b'{"stream":"HG_LOG","seq":0}']
)
def test_whoever_answers_otherwise_is_not_our_log(data: bytes) -> None:
    assert judge(said(data), "HG_LOG").verdict is Verdict.FOREIGN


def test_a_message_of_the_leader_has_its_headers_and_data() -> None:
    answer = said(b'{"message":{"subject":"s","seq":8,"hdrs":"TkFUUy8xLjANCkE6IGINCg0K","data":"eA==","time":"?"}}')
    assert got(answer) == Stored("s", 8, {"A": "b"}, b"x")
    assert got(said(b'{"message":{"subject":"s","seq":8}}')) == Stored("s", 8, {}, b"")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (error(10037), None),
        (error(10059), ReadProblem.FOREIGN),
        (error(10008), ReadProblem.AGAIN),
        (NoAnswer.TIMED_OUT, ReadProblem.AGAIN),
        (NoAnswer.NO_RESPONDERS, ReadProblem.AGAIN),
        (said(b"hello"), ReadProblem.FOREIGN),
        (said(b'{"message":{"subject":"s","seq":8,"data":"?"}}'), ReadProblem.FOREIGN),
    ],
)
def test_a_read_without_a_result_says_whether_to_read_again(
    answer: Message | NoAnswer, problem: ReadProblem | None
) -> None:
    assert got(answer) is problem
    if answer != said(b'{"message":{"subject":"s","seq":8,"data":"?"}}'):
        assert api_answer(answer) is problem


def test_an_answer_of_the_api_is_what_it_says() -> None:
    assert api_answer(said(b'{"config":{"name":"n"}}')) == {"config": {"name": "n"}}


def test_what_was_collected_ends_with_the_servers_own_word() -> None:
    found = said(b"x", **{"Nats-Subject": "s", "Nats-Sequence": "3"})
    assert collected((found, said(b"", Status="204"))) == [Stored("s", 3, found.headers, b"x")]


@pytest.mark.parametrize(
    "reply",
    ["$JS.ACK.HG_LOG.pass.1.42.3.1795000153729987179.0", "$JS.ACK.dom.acc.HG_LOG.pass.1.42.3.1795000153729987179.0.r"],
)
def test_a_delivered_message_knows_its_sequence_and_time(reply: str) -> None:
    message = Message("s", b"", {"A": "b"}, reply)
    assert delivered(message) == Stored("s", 42, {"A": "b"}, b"", 1795000153)


def test_headers_are_lines_with_a_colon() -> None:
    assert headers_of(b"NATS/1.0\r\nA: b\r\nC:d:e\r\nnone\r\n\r\n") == {"A": "b", "C": "d:e"}
    assert headers_of(b"") == {}
