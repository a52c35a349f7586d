"""What messages between processes do, in memory and over NATS."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Protocol

import pytest
import trio

from actors.engine.memory_messages import MemoryBroker, MemoryMessages
from actors.engine.messages import Messages, News, NoReply, Reply, Request
from gateway.engine.connection import Connection
from gateway.engine.nats_messages import NatsMessages
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.server_run import ServerRun

TEST_S_MAX = 30.0
_subjects = count()


class World(Protocol):
    async def process(self) -> Messages:
        """One more."""

    async def settle(self, messages: Messages) -> None:
        """What this process serves and listens to is known to all."""


class MemoryWorld:
    def __init__(self) -> None:
        self.broker = MemoryBroker()

    async def process(self) -> Messages:
        await trio.lowlevel.checkpoint()
        return MemoryMessages(self.broker)

    async def settle(self, messages: Messages) -> None:
        del messages
        await trio.lowlevel.checkpoint()


class NatsWorld:
    def __init__(self, server: ServerRun, stack: AsyncExitStack) -> None:
        self.server = server
        self.stack = stack

    async def process(self) -> Messages:
        settings = ConnectionSettings((self.server.url,), token=self.server.token)
        return NatsMessages(await self.stack.enter_async_context(await Connection.open(settings)))

    async def settle(self, messages: Messages) -> None:
        assert await messages.ask("nobody", b"", timeout_s=TEST_S_MAX) is NoReply.NO_RESPONDERS


@pytest.fixture(params=["memory", "nats"])
def server(request: pytest.FixtureRequest) -> ServerRun | None:
    """Started outside of the trio run of a test."""
    run: ServerRun | None = request.getfixturevalue("nats_server") if request.param == "nats" else None
    return run


@pytest.fixture
async def world(server: ServerRun | None) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield MemoryWorld() if server is None else NatsWorld(server, stack)


@pytest.fixture
def subject() -> str:
    return f"messages.{next(_subjects)}"


class Heard:
    """What one has heard."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self._is_news = trio.Event()

    def __call__(self, news: News) -> None:
        self.news.append(news)
        self._is_news.set()

    async def until(self, happened: Callable[[list[News]], bool]) -> list[News]:
        while not happened(self.news):
            await self._is_news.wait()
            self._is_news = trio.Event()
        return self.news


def echo(request: Request) -> None:
    request.reply(request.data + b" " + request.headers.get("To", "").encode())


async def test_a_question_is_answered_by_whoever_serves_its_subject(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        asker, server = await world.process(), await world.process()
        server.serve(subject, echo)
        await world.settle(server)
        said = await asker.ask(subject, b"hello", headers={"To": "you"}, timeout_s=TEST_S_MAX)
        assert said == Reply(b"hello you")


async def test_a_process_asks_itself(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        alone.serve(subject, echo)
        assert await alone.ask(subject, b"x", timeout_s=TEST_S_MAX) == Reply(b"x ")


async def test_nobody_takes_what_nobody_serves_or_serves_no_longer(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        asker, server = await world.process(), await world.process()
        said = await asker.ask(subject, b"", timeout_s=TEST_S_MAX)
        assert said is NoReply.NO_RESPONDERS
        assert said.is_certain
        stop = server.serve(subject, echo)
        await world.settle(server)
        assert await asker.ask(subject, b"x", timeout_s=TEST_S_MAX) == Reply(b"x ")
        stop()
        stop()
        await world.settle(server)
        assert await asker.ask(subject, b"", timeout_s=TEST_S_MAX) is NoReply.NO_RESPONDERS


async def test_an_asker_hears_what_is_said_before_the_answer_and_nothing_after_it(world: World, subject: str) -> None:
    taken: list[Request] = []
    meanwhile: list[bytes] = []

    def take(request: Request) -> None:
        taken.append(request)
        request.interim(b"one")
        request.interim(b"two")
        request.reply(b"done")
        request.interim(b"three")
        request.reply(b"again")

    with trio.fail_after(TEST_S_MAX):
        asker, server = await world.process(), await world.process()
        server.serve(subject, take)
        await world.settle(server)
        for _ in range(2):
            said = await asker.ask(subject, b"", timeout_s=TEST_S_MAX, on_interim=meanwhile.append)
            assert said == Reply(b"done")
    assert meanwhile == [b"one", b"two"] * 2


async def test_an_interim_answer_need_not_be_heard(world: World, subject: str) -> None:
    def take(request: Request) -> None:
        request.interim(b"one")
        request.reply(b"done")

    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        alone.serve(subject, take)
        assert await alone.ask(subject, b"", timeout_s=TEST_S_MAX) == Reply(b"done")


async def test_who_does_not_answer_in_time_may_have_taken_it(world: World, subject: str) -> None:
    taken: list[Request] = []
    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        alone.serve(subject, taken.append)
        said = await alone.ask(subject, b"", timeout_s=0.05)
        assert said is NoReply.TIMED_OUT
        assert not said.is_certain
    assert len(taken) == 1


async def test_silence_ends_the_waiting(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        alone.serve(subject, lambda request: request.interim(b"working"))
        heard: list[bytes] = []
        said = await alone.ask(subject, b"", timeout_s=TEST_S_MAX, silence_s=0.1, on_interim=heard.append)
        assert said is NoReply.TIMED_OUT
        assert heard == [b"working"]


async def test_of_two_that_serve_a_subject_the_first_answer_counts(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        asker, silent, quick = await world.process(), await world.process(), await world.process()
        taken: list[Request] = []
        silent.serve(subject, taken.append)
        quick.serve(subject, echo)
        await world.settle(silent)
        await world.settle(quick)
        assert await asker.ask(subject, b"x", timeout_s=TEST_S_MAX) == Reply(b"x ")
        while not taken:  # noqa: ASYNC110 (another connection: it may hear later)
            await trio.sleep(0.01)


async def test_a_question_that_is_too_long_is_not_sent(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        alone.serve(subject, echo)
        said = await alone.ask(subject, bytes(alone.payload_bytes_max + 1), timeout_s=TEST_S_MAX)
        assert said is NoReply.NOT_SENT


async def test_a_cancelled_asker_leaves_the_others_their_answers(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        alone.serve(subject, echo)
        with trio.CancelScope() as scope:
            scope.cancel()
            await alone.ask(subject, b"given up", timeout_s=TEST_S_MAX)
        assert scope.cancelled_caught
        assert await alone.ask(subject, b"next", timeout_s=TEST_S_MAX) == Reply(b"next ")


async def test_news_reach_everybody_who_listens_in_order(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        teller, one, two = await world.process(), await world.process(), await world.process()
        hearers = [Heard(), Heard()]
        for process, heard in zip((one, two), hearers, strict=True):
            process.listen(subject, heard)
            await world.settle(process)
        for number in range(100):
            teller.publish(subject, b"%d" % number, {"Hg-Epoch": "3"})
        for heard in hearers:
            news = await heard.until(lambda news: len(news) == 100)
            assert [each.data for each in news] == [b"%d" % number for number in range(100)]
            assert dict(news[0].headers) == {"Hg-Epoch": "3"}


async def test_who_listens_no_longer_hears_nothing(world: World, subject: str) -> None:
    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        before, after = Heard(), Heard()
        stop = alone.listen(subject, before)
        alone.publish(subject, b"1")
        await before.until(lambda news: len(news) == 1)
        stop()
        stop()
        alone.listen(subject, after)
        alone.publish(subject, b"2")
        await after.until(lambda news: len(news) == 1)
    assert [each.data for each in before.news] == [b"1"]


async def test_a_broken_listener_or_server_keeps_nothing_from_the_others(world: World, subject: str) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    with trio.fail_after(TEST_S_MAX):
        alone = await world.process()
        heard = Heard()
        alone.listen(subject, fail)
        alone.listen(subject, heard)
        alone.serve(subject + ".ask", fail)
        alone.publish(subject, b"1")
        assert await alone.ask(subject + ".ask", b"", timeout_s=0.05) is NoReply.TIMED_OUT
        await heard.until(lambda news: len(news) == 1)
