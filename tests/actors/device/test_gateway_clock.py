"""The bound of the gateway's time is never below it, whatever the network does to the answers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.device.gateway_clock import GatewayClock


def test_time_is_counted_from_when_the_question_was_sent() -> None:
    gateway = GatewayClock()
    gateway.ask("A", 100.0)
    assert gateway.answer("A", 5000)
    assert gateway.bound_ms(103.0) == 8000
    assert gateway.bound_ms(103.0001) == 8001  # rounded up: it is a bound
    assert gateway.reaches(9000) == 104.0


def test_an_answer_that_names_no_question_counts_for_the_oldest() -> None:
    gateway = GatewayClock()
    gateway.ask("A", 100.0)
    gateway.ask("B", 125.0)
    assert gateway.answer(None, 0)
    assert gateway.bound_ms(126.0) == 26_000
    assert gateway.oldest_question == 125.0


def test_an_answer_settles_the_questions_before_it() -> None:
    gateway = GatewayClock()
    for name, at in (("A", 100.0), ("B", 125.0), ("C", 150.0)):
        gateway.ask(name, at)
    assert gateway.answer("B", 0)
    assert gateway.oldest_question == 150.0
    assert not gateway.answer("A", 99_000)
    assert gateway.bound_ms(152.0) == 27_000


def test_an_answer_to_nothing_changes_nothing() -> None:
    gateway = GatewayClock()
    assert not gateway.answer(None, 1)
    gateway.ask("A", 1.0)
    assert not gateway.answer("B", 1)
    assert gateway.oldest_question == 1.0


def test_a_time_that_is_none_is_not_taken() -> None:
    gateway = GatewayClock()
    gateway.ask("A", 1.0)
    assert not gateway.answer("A", 10**400)
    assert gateway.answer("A", 1000)
    assert gateway.reaches(10**400) > 1e9


def test_questions_die_with_their_socket_and_the_bound_lives_on() -> None:
    gateway = GatewayClock()
    gateway.ask("A", 1.0)
    gateway.answer("A", 1000)
    gateway.ask("B", 2.0)
    gateway.forget_questions()
    assert gateway.oldest_question is None
    assert gateway.bound_ms(3.0) == 3000


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 30), st.floats(0, 60)), min_size=1, max_size=10))
@settings(deadline=None)
def test_the_bound_is_never_below_the_gateways_time(exchanges: list[tuple[float, float, float]]) -> None:
    """Each exchange: how long the question travels, how long the answer does, how long until the next question."""
    gateway, now, offset_s = GatewayClock(), 1000.0, 5e5
    for index, (there_s, back_s, pause_s) in enumerate(exchanges):
        gateway.ask(str(index), now)
        stamped_ms = int((now + there_s + offset_s) * 1000)
        now += there_s + back_s
        gateway.answer(str(index) if index % 2 else None, stamped_ms)
        for later in (now, now + pause_s):
            assert gateway.bound_ms(later) >= int((later + offset_s) * 1000)
        now += pause_s
