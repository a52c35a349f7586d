"""What can be made to happen to messages in memory."""

from typing import Any

import pytest
import trio
import trio.lowlevel

from actors.engine.memory_messages import MemoryBroker, MemoryMessages
from actors.engine.messages import News, NoReply, Reply, Request


def echo(request: Request) -> None:
    request.reply(request.data)


async def test_a_delay_is_on_each_way(autojump_clock: trio.testing.MockClock) -> None:
    broker = MemoryBroker(delay_s=lambda: 0.25)
    asker, server = MemoryMessages(broker), MemoryMessages(broker)
    server.serve("echo", echo)
    began_s = trio.current_time()
    assert await asker.ask("echo", b"x", timeout_s=1.0) == Reply(b"x")
    assert trio.current_time() - began_s == pytest.approx(0.5)
    assert await asker.ask("echo", b"x", timeout_s=0.4) is NoReply.TIMED_OUT


async def test_what_is_sent_later_arrives_later(autojump_clock: trio.testing.MockClock) -> None:
    delays = iter([0.5, 0.1])
    broker = MemoryBroker(delay_s=lambda: next(delays))
    teller, hearer = MemoryMessages(broker), MemoryMessages(broker)
    heard: list[bytes] = []
    hearer.listen("news", lambda news: heard.append(news.data))
    teller.publish("news", b"1")
    teller.publish("news", b"2")
    await trio.sleep(0.4)
    assert heard == []
    await trio.sleep(0.2)
    assert heard == [b"1", b"2"]


async def test_what_is_sent_later_to_another_may_arrive_first(autojump_clock: trio.testing.MockClock) -> None:
    delays = iter([0.5, 0.1])
    broker = MemoryBroker(delay_s=lambda: next(delays))
    teller, one, two = MemoryMessages(broker), MemoryMessages(broker), MemoryMessages(broker)
    heard: list[bytes] = []
    one.listen("one", lambda news: heard.append(news.data))
    two.listen("two", lambda news: heard.append(news.data))
    teller.publish("one", b"1")
    await trio.lowlevel.checkpoint()  # the first is under way, and the second comes before it
    teller.publish("two", b"2")
    await trio.sleep(1)
    assert heard == [b"2", b"1"]


async def test_what_is_lost_is_not_answered(autojump_clock: trio.testing.MockClock) -> None:
    lost = iter([True, False, True])
    broker = MemoryBroker(loses=lambda: next(lost))
    asker, server = MemoryMessages(broker), MemoryMessages(broker)
    taken: list[Request] = []

    def take(request: Request) -> None:
        taken.append(request)
        request.reply(b"")

    server.serve("echo", take)
    assert await asker.ask("echo", b"", timeout_s=1.0) is NoReply.TIMED_OUT
    assert not taken
    assert await asker.ask("echo", b"", timeout_s=1.0) is NoReply.TIMED_OUT
    assert len(taken) == 1


async def test_who_is_cut_off_has_nobody_and_is_nobody(autojump_clock: trio.testing.MockClock) -> None:
    broker = MemoryBroker()
    asker, server = MemoryMessages(broker), MemoryMessages(broker)
    server.serve("echo", echo)
    server.serve("silent", lambda _: None)
    said: list[Any] = []

    async def ask() -> None:
        said.append(await asker.ask("silent", b"", timeout_s=60.0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        asker.cut_off()
    assert said == [NoReply.LOST]
    assert await asker.ask("echo", b"", timeout_s=1.0) is NoReply.NOT_SENT
    asker.connect()
    server.cut_off()
    assert await asker.ask("echo", b"", timeout_s=1.0) is NoReply.NO_RESPONDERS
    server.connect()
    assert await asker.ask("echo", b"", timeout_s=1.0) == Reply(b"")


async def test_who_is_dead_serves_nothing_and_is_told_nothing(autojump_clock: trio.testing.MockClock) -> None:
    broker = MemoryBroker()
    asker, server = MemoryMessages(broker), MemoryMessages(broker)
    heard: list[News] = []
    server.serve("echo", echo)
    server.listen("news", heard.append)
    server.die()
    asker.publish("news", b"")
    assert await asker.ask("echo", b"", timeout_s=1.0) is NoReply.NO_RESPONDERS
    assert heard == []
    assert not broker.servers["echo"]


async def test_who_is_stopped_answers_when_it_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    broker = MemoryBroker()
    asker, server = MemoryMessages(broker), MemoryMessages(broker)
    taken: list[bytes] = []

    def take(request: Request) -> None:
        taken.append(request.data)
        request.reply(request.data)

    server.serve("echo", take)
    server.stop()
    assert await asker.ask("echo", b"1", timeout_s=1.0) is NoReply.TIMED_OUT
    assert taken == []
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            assert await asker.ask("echo", b"2", timeout_s=1.0) == Reply(b"2")

        nursery.start_soon(ask)
        await trio.sleep(0.5)
        server.go_on()
    assert taken == [b"1", b"2"]


async def test_what_a_stopped_process_says_waits_with_it(autojump_clock: trio.testing.MockClock) -> None:
    broker = MemoryBroker()
    teller, hearer = MemoryMessages(broker, waiting_max=2), MemoryMessages(broker)
    heard: list[bytes] = []
    hearer.listen("news", lambda news: heard.append(news.data))
    teller.stop()
    for number in range(3):
        teller.publish("news", b"%d" % number)
    await trio.sleep(1)
    assert heard == []
    teller.go_on()
    await trio.sleep(1)
    assert heard == [b"0", b"1"]
    assert teller.dropped == 1


async def test_no_more_waits_for_a_stopped_process_than_it_may(autojump_clock: trio.testing.MockClock) -> None:
    broker = MemoryBroker()
    teller, hearer = MemoryMessages(broker), MemoryMessages(broker, waiting_max=2)
    heard: list[bytes] = []
    hearer.listen("news", lambda news: heard.append(news.data))
    hearer.stop()
    for number in range(3):
        teller.publish("news", b"%d" % number)
    await trio.sleep(1)
    hearer.go_on()
    assert heard == [b"0", b"1"]
    assert hearer.dropped == 1


async def test_any_word_prolongs_the_waiting(autojump_clock: trio.testing.MockClock) -> None:
    alone = MemoryMessages()

    async def talk(request: Request) -> None:
        for _ in range(4):
            await trio.sleep(0.3)
            request.interim(b"working")
        if request.data:
            request.reply(b"done")

    async with trio.open_nursery() as nursery:
        alone.serve("slow", lambda request: nursery.start_soon(talk, request))
        assert await alone.ask("slow", b"x", timeout_s=60.0, silence_s=0.5) == Reply(b"done")
        began_s = trio.current_time()
        assert await alone.ask("slow", b"", timeout_s=60.0, silence_s=0.5) is NoReply.TIMED_OUT
        assert trio.current_time() - began_s == pytest.approx(4 * 0.3 + 0.5)
        assert await alone.ask("slow", b"x", timeout_s=0.7, silence_s=0.5) is NoReply.TIMED_OUT
