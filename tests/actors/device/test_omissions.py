"""Each omission leaves out the one rule it names: a simulation can rely on what is missing, and on what is not."""

from actors.device.device_messages import HandlerFailed, HandlerReturned, StartHandler, WriteJournal
from actors.device.journal import Begun, Ended
from schemas.errors import Code
from schemas.frames import CmdAck
from tests.actors.device.node import ECHO_SLOTS, Node, cid, of, result_of, sent
from tests.actors.device.omissions import (
    HoardingExecution,
    TimelessExecution,
    UnboundedClock,
    UnboundedRules,
    UnjournaledExecution,
    UntruthfulExecution,
    rules_with,
)


def test_without_journal_before_begin_a_command_begins_before_anything_is_durable() -> None:
    node = Node(rules_class=rules_with(UnjournaledExecution)).live()
    effects = node.cmd(1)
    assert of(WriteJournal, effects) == []
    assert len(of(StartHandler, effects)) == 1
    assert node.cmd(1) == []
    effects = node.feed(HandlerReturned(cid(1), result_of()))
    assert of(WriteJournal, effects)[0].records == (Begun(cid(1)), Ended(cid(1), ok=True))
    assert len(sent(CmdAck, node.written(effects))) == 1


def test_without_drop_not_begun_a_waiting_command_outlives_its_socket() -> None:
    node = Node(rules_class=rules_with(HoardingExecution)).live()
    for number in range(1, ECHO_SLOTS + 2):
        node.begin(number)
    node.lose_wire()
    effects = node.feed(HandlerReturned(cid(1), result_of()))
    assert [start.msg_id for start in of(StartHandler, node.written(effects))] == [cid(ECHO_SLOTS + 1)]


def test_without_the_clock_bound_a_slow_answer_lets_a_late_command_begin() -> None:
    node = Node(rules_class=UnboundedRules)
    node.connect()
    stamped_ms = node.gateway_ms
    node.now += 3.0
    node.auth_ok(now_ms=stamped_ms)
    node.announce_ack()
    node.resume_ok()
    assert len(of(StartHandler, node.begin(1, in_ms=-1000))) == 1


def test_without_the_bound_a_slow_answer_makes_the_gateway_seem_earlier_than_it_is() -> None:
    gateway = UnboundedClock()
    gateway.ask("A", 100.0)
    gateway.now = 103.0
    gateway.answer("A", 5000)
    assert gateway.bound_ms(103.0) == 5000


def test_without_the_begun_flag_a_failed_handler_is_reported_as_never_begun() -> None:
    node = Node(rules_class=rules_with(UntruthfulExecution)).live()
    node.begin(1)
    effects = node.feed(HandlerFailed(cid(1)))
    assert of(WriteJournal, effects)[0].records == (Ended(cid(1), ok=False, code=Code.INTERNAL, begun=False),)
    assert sent(CmdAck, node.written(effects))[0].begun is False


def test_without_the_deadline_a_late_command_begins() -> None:
    node = Node(rules_class=rules_with(TimelessExecution)).live()
    assert len(of(StartHandler, node.begin(1, in_ms=-60_000))) == 1
