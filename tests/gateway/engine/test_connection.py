"""The connection to NATS, against a real server: what is asked is answered once, whatever happens to the server."""

import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from gateway.engine.connection import Connection, NotConnectedError
from gateway.engine.link import Answer, LinkState, Message, NoAnswer
from gateway.engine.nats_thread import ConnectionSettings, begin_all
from gateway.engine.outgoing import Interest
from gateway.engine.server_run import ServerRun

TEST_S_MAX = 30.0


def settings_of(server: ServerRun, token: str | None = None, **more: float) -> ConnectionSettings:
    return ConnectionSettings((server.url,), token=token or server.token, **more)  # type: ignore[arg-type]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerRun]:
    """One to be stopped and killed."""
    run = ServerRun(tmp_path)
    await run.start()
    yield run
    await run.stop()


@pytest.fixture
async def link(server: ServerRun) -> AsyncIterator[Connection]:
    async with await Connection.open(settings_of(server, redial_s=0.01)) as connection:
        yield connection


def echo(link: Connection, subject: str = "echo") -> None:
    """Answer whatever is asked there with itself."""
    link.subscribe(subject, lambda message: link.publish(message.reply, message.data, message.headers))


async def reach(link: Connection, state: LinkState) -> None:
    arrived = trio.Event()

    def note(_: LinkState) -> None:
        if link.state is state:
            arrived.set()

    stop = link.follow(note)
    note(link.state)
    await arrived.wait()
    stop()


async def ask(link: Connection, data: bytes = b"", timeout_s: float = TEST_S_MAX) -> Answer:
    return await link.request("echo", data, {"A": "b"}, timeout_s=timeout_s)


async def test_a_request_is_answered_with_data_and_headers(link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        echo(link)
        answer = await ask(link, b"x")
    assert isinstance(answer, Message)
    assert (answer.data, dict(answer.headers)) == (b"x", {"A": "b"})


async def test_a_subject_that_nobody_listens_to_has_no_responders(link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        assert await ask(link) is NoAnswer.NO_RESPONDERS
        assert await link.collect("echo", b"", 3, timeout_s=TEST_S_MAX) is NoAnswer.NO_RESPONDERS


async def test_what_is_asked_in_one_turn_leaves_in_its_order(link: Connection) -> None:
    heard: list[bytes] = []
    all_heard = trio.Event()

    def note(message: Message) -> None:
        heard.append(message.data)
        if len(heard) == 500:
            all_heard.set()

    with trio.fail_after(TEST_S_MAX):
        link.subscribe("in.order", note)
        for number in range(500):
            link.publish("in.order", b"%d" % number)
        await all_heard.wait()
    assert heard == [b"%d" % number for number in range(500)]


async def test_several_answers_are_collected_up_to_a_number_or_a_word_of_the_server(link: Connection) -> None:
    def count(message: Message) -> None:
        for number in range(int(message.data)):
            link.publish(message.reply, b"%d" % number)

    with trio.fail_after(TEST_S_MAX):
        link.subscribe("count", count)
        three = await link.collect("count", b"5", 3, timeout_s=TEST_S_MAX)
        assert isinstance(three, tuple)
        assert [message.data for message in three] == [b"0", b"1", b"2"]
        assert await link.collect("count", b"2", 3, timeout_s=0.01) is NoAnswer.TIMED_OUT


async def test_nobody_answering_in_time_is_told_apart_from_nobody_there(link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        link.subscribe("echo", lambda _: None)
        assert await ask(link, timeout_s=0.01) is NoAnswer.TIMED_OUT


async def test_a_cancelled_waiter_leaves_the_others_their_answers(link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        echo(link)
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask(link, b"given up")
        assert scope.cancelled_caught
        answer = await ask(link, b"next")
    assert isinstance(answer, Message)
    assert answer.data == b"next"


async def test_a_subscription_ends_when_its_owner_says_so(link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        stop = link.subscribe("echo", lambda message: link.publish(message.reply, b"here"))
        assert isinstance(await ask(link), Message)
        stop()
        stop()
        assert await ask(link) is NoAnswer.NO_RESPONDERS


async def test_an_answer_that_is_not_taken_keeps_nobody_else_from_theirs(link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        echo(link)
        link.ask("echo", b"", {}, TEST_S_MAX, lambda _: 1 / 0)  # type: ignore[arg-type]
        assert isinstance(await ask(link), Message)


async def test_what_is_under_way_when_the_server_dies_is_lost_and_what_comes_then_is_not_sent(
    server: ServerRun, link: Connection
) -> None:
    answers: list[Answer] = []
    with trio.fail_after(TEST_S_MAX):
        link.subscribe("echo", lambda _: None)
        link.ask("echo", b"", {}, TEST_S_MAX, answers.append)
        assert await ask(link, timeout_s=0.01) is NoAnswer.TIMED_OUT  # both have reached the server
        server.kill()
        await reach(link, LinkState.DOWN)
        assert answers == [NoAnswer.LOST]
        assert await ask(link) is NoAnswer.NOT_SENT


async def test_a_connection_comes_back_by_itself_with_its_subscriptions(server: ServerRun, link: Connection) -> None:
    states: list[LinkState] = []
    with trio.fail_after(TEST_S_MAX):
        echo(link)
        assert isinstance(await ask(link), Message)
        link.follow(states.append)
        server.kill()
        await reach(link, LinkState.DOWN)
        await server.start()
        await reach(link, LinkState.UP)
        assert isinstance(await ask(link, b"again"), Message)
    assert states == [LinkState.DOWN, LinkState.UP]


async def test_a_server_that_is_stopped_answers_when_it_goes_on(server: ServerRun, link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        echo(link)
        assert isinstance(await ask(link), Message)
        server.pause()
        try:
            assert await ask(link, timeout_s=0.05) is NoAnswer.TIMED_OUT
        finally:
            server.go_on()
        assert isinstance(await ask(link), Message)


async def test_a_server_that_leaves_pings_unanswered_is_given_up(server: ServerRun) -> None:
    with trio.fail_after(TEST_S_MAX):
        async with await Connection.open(settings_of(server, ping_s=0.02, connect_s_max=0.1)) as link:
            server.pause()
            try:
                await reach(link, LinkState.DOWN)
            finally:
                server.go_on()
            await reach(link, LinkState.UP)


async def test_another_server_is_dialled_when_one_is_gone(server: ServerRun, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = ServerRun(tmp_path / "other")
    other.token = server.token
    with trio.fail_after(TEST_S_MAX):
        await other.start()
        settings = ConnectionSettings((server.url, other.url), token=server.token, redial_s=0.01)
        async with await Connection.open(settings) as link:
            for dead in (server, other):
                dead.kill()
                while not isinstance(await link.request("$SYS.REQ.USER.INFO", timeout_s=1), Message):  # noqa: ASYNC110
                    await trio.sleep(0.01)
                await dead.start()
        await other.stop()


async def test_credentials_that_are_refused_are_said_and_never_shown(server: ServerRun) -> None:
    settings = settings_of(server, "wrong-token")
    assert "wrong-token" not in repr(settings)
    with trio.fail_after(TEST_S_MAX), pytest.raises(NotConnectedError, match="refuses the credentials"):
        await Connection.open(settings)


async def test_credentials_that_stop_counting_are_a_state_of_their_own(server: ServerRun, link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        await server.stop()
        server.token = "another"
        await server.start()
        await reach(link, LinkState.REFUSED)


async def test_no_server_is_said_after_a_bounded_wait(server: ServerRun) -> None:
    await server.stop()
    with trio.fail_after(TEST_S_MAX), pytest.raises(NotConnectedError, match=r"within 0\.05 s"):
        await Connection.open(settings_of(server, open_s_max=0.05))


async def test_closing_ends_the_thread_and_answers_whoever_waits(server: ServerRun) -> None:
    before = threading.active_count()
    answers: list[Answer] = []
    with trio.fail_after(TEST_S_MAX):
        link = await Connection.open(settings_of(server))
        link.subscribe("echo", lambda _: None)
        link.ask("echo", b"", {}, TEST_S_MAX, answers.append)
        assert await ask(link, timeout_s=0.01) is NoAnswer.TIMED_OUT
        await link.aclose()
        await link.aclose()
        assert answers == [NoAnswer.LOST]
        with pytest.raises(trio.ClosedResourceError):
            await ask(link)
        await link.watch()
    assert not [thread for thread in threading.enumerate() if thread.name == "heliograph-nats"]
    assert threading.active_count() <= before + 1  # trio's worker that waited for it


async def test_closing_does_not_wait_for_a_server_that_takes_nothing_any_more(server: ServerRun) -> None:
    with trio.fail_after(TEST_S_MAX):
        link = await Connection.open(settings_of(server, close_s_max=0.05))
        server.pause()
        for _ in range(12):
            link.publish("flood", bytes(1_000_000))
        answer = await link.request("flood", timeout_s=0.05)
        assert answer in (NoAnswer.TIMED_OUT, NoAnswer.NOT_SENT)
        await link.aclose()
        server.go_on()
    assert not [thread for thread in threading.enumerate() if thread.name == "heliograph-nats"]


async def test_giving_up_on_a_server_that_says_nothing_ends_the_thread() -> None:
    with trio.fail_after(TEST_S_MAX):
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            settings = ConnectionSettings((f"nats://127.0.0.1:{port}",), close_s_max=0.05)
            nursery.start_soon(Connection.open, settings)
            silent = await listener.accept()
            nursery.cancel_scope.cancel()
        await silent.aclose()
        await listener.aclose()
    assert not [thread for thread in threading.enumerate() if thread.name == "heliograph-nats"]


async def test_what_is_published_last_still_leaves(server: ServerRun, link: Connection) -> None:
    heard: list[bytes] = []
    all_heard = trio.Event()

    def note(message: Message) -> None:
        heard.append(message.data)
        if message.data == b"99":
            all_heard.set()

    with trio.fail_after(TEST_S_MAX):
        link.subscribe("last.words", note)
        assert await ask(link) is NoAnswer.NO_RESPONDERS  # it is subscribed now
        other = await Connection.open(settings_of(server))
        for number in range(100):
            other.publish("last.words", b"%d" % number)
        await other.aclose()
        await all_heard.wait()
    assert len(heard) == 100


def test_the_thread_ends_with_the_run_that_opened_it(nats_server: ServerRun) -> None:
    threads: list[threading.Thread] = []

    async def run() -> None:
        await Connection.open(settings_of(nats_server))
        threads.extend(thread for thread in threading.enumerate() if thread.name == "heliograph-nats")

    trio.run(run)
    [thread] = threads
    thread.join(TEST_S_MAX)
    assert not thread.is_alive()


async def test_beyond_the_bound_of_unanswered_questions_the_next_is_not_sent(server: ServerRun) -> None:
    settings = ConnectionSettings((server.url,), token=server.token, asks_max=2)
    with trio.fail_after(TEST_S_MAX):
        async with await Connection.open(settings) as link:
            link.subscribe("echo", lambda _: None)
            for _ in range(2):
                link.ask("echo", b"", {}, TEST_S_MAX, lambda _: None)
            assert await ask(link) is NoAnswer.NOT_SENT


async def test_messages_that_nobody_has_time_for_are_dropped_and_counted(server: ServerRun) -> None:
    settings = ConnectionSettings((server.url,), token=server.token, undelivered_max=0)
    with trio.fail_after(TEST_S_MAX):
        async with await Connection.open(settings) as link:
            heard: list[Message] = []
            link.subscribe("echo", heard.append)
            link.publish("echo", b"")
            assert await link.request("nobody", timeout_s=TEST_S_MAX) is NoAnswer.NO_RESPONDERS
            while link.dropped == 0:  # noqa: ASYNC110  # counted in the other thread
                await trio.sleep(0.001)
            assert heard == []


async def test_a_message_larger_than_the_server_takes_is_not_sent(link: Connection) -> None:
    with trio.fail_after(TEST_S_MAX):
        headers_bytes = len("NATS/1.0\r\nA: b\r\n\r\n")
        for size in (link.payload_bytes_max + 1, link.payload_bytes_max - headers_bytes + 1):
            assert await ask(link, bytes(size)) is NoAnswer.NOT_SENT
        assert await ask(link, bytes(link.payload_bytes_max - headers_bytes)) is NoAnswer.NO_RESPONDERS


async def test_subscriptions_that_end_and_come_while_all_are_begun_make_none_deaf() -> None:
    first, second, ended, third, late = (Interest(name, "", lambda _: None) for name in "abcde")
    interests, begun = [first, second, ended, third], list[Interest]()

    async def begin(interest: Interest) -> None:
        await trio.lowlevel.checkpoint()
        begun.append(interest)
        if interest is second:  # what the sender does meanwhile
            for over in (first, ended):
                over.is_over = True
                interests.remove(over)

    async def flush() -> None:
        await trio.lowlevel.checkpoint()
        if third in begun and late not in interests:
            interests.append(late)

    await begin_all(interests, begin, flush)
    assert begun == [first, second, third, late]


async def test_a_server_that_is_left_is_dialled_after_the_others(server: ServerRun, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = ServerRun(tmp_path / "other")
    other.token = server.token
    with trio.fail_after(TEST_S_MAX):
        await other.start()
        try:
            settings = ConnectionSettings((server.url, other.url), token=server.token, redial_s=0.01)
            async with (
                await Connection.open(settings_of(server)) as here,
                await Connection.open(settings_of(other)) as there,
                await Connection.open(settings) as link,
            ):
                here.subscribe("where", lambda message: here.publish(message.reply, b"here"))
                there.subscribe("where", lambda message: there.publish(message.reply, b"there"))
                seen = []
                for life in range(1, 7):
                    while link.life < life or not isinstance(  # noqa: ASYNC110
                        answer := await link.request("where", timeout_s=TEST_S_MAX), Message
                    ):
                        await trio.sleep(0.01)
                    seen.append(answer.data)
                    link.leave()
            assert all(one != next_one for one, next_one in pairwise(seen)), seen
        finally:
            await other.stop()
