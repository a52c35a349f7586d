"""A feed of one page: in order, pinged, and never more of it waiting than there may be."""

import trio
from trio.testing import MockClock

from gateway.console.mailbox import BYTES_MAX, EVENTS_MAX, PING, PING_S, Mailbox, event


class Page:
    """Takes what is written, once it is let."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.reads = trio.Event()
        self.reads.set()

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        self.got.append(data)


def test_an_event_is_one_line_of_json() -> None:
    assert event("node", {"name": "a\nb"}) == b'event: node\ndata: {"name":"a\\nb"}\n\n'


async def test_what_waits_is_written_together_and_in_order(autojump_clock: MockClock) -> None:
    mailbox, page = Mailbox(), Page()
    mailbox.put(b"1")
    mailbox.put(b"2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.serve, page.write)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.put(b"3")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert page.got == [b"12", b"3"]


async def test_a_ping_comes_every_fifteen_seconds_whatever_else_does(autojump_clock: MockClock) -> None:
    mailbox, page = Mailbox(), Page()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.serve, page.write)
        for _ in range(4):
            await trio.sleep(PING_S / 2)
            mailbox.put(b"x")
        await trio.sleep(PING_S / 2)
        nursery.cancel_scope.cancel()
    assert b"".join(page.got).count(PING) == 2


async def test_a_page_that_does_not_read_has_so_many_events_waiting_and_then_its_feed_is_over(
    autojump_clock: MockClock,
) -> None:
    mailbox, page = Mailbox(), Page()
    page.reads = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.serve, page.write)
        mailbox.put(b"first")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(EVENTS_MAX):
            mailbox.put(b"x")
        assert not mailbox.is_over
        mailbox.put(b"one too many")
        assert mailbox.is_over
        mailbox.put(b"nothing after it")
        page.reads.set()  # it reads again: it has what was being written, and an end
    assert page.got == [b"first"]


def test_so_many_bytes_may_wait() -> None:
    mailbox = Mailbox()
    mailbox.put(b"x" * (BYTES_MAX - 1))
    mailbox.put(b"x")
    assert not mailbox.is_over
    mailbox.put(b"x")
    assert mailbox.is_over


def test_bytes_that_were_taken_make_room_again() -> None:
    mailbox = Mailbox()

    async def run() -> None:
        with trio.move_on_after(1):
            await mailbox.serve(Page().write)

    for _ in range(3):
        mailbox.put(b"x" * (BYTES_MAX - 1))
        trio.run(run, clock=MockClock(autojump_threshold=0))
    assert not mailbox.is_over


async def test_one_event_may_be_longer_than_what_may_wait(autojump_clock: MockClock) -> None:
    mailbox, page = Mailbox(), Page()
    mailbox.put(b"x" * (2 * BYTES_MAX))
    with trio.move_on_after(1):
        await mailbox.serve(page.write)
    assert (mailbox.is_over, list(map(len, page.got))) == (False, [2 * BYTES_MAX])


async def test_a_feed_that_is_over_before_it_begins_ends_at_once() -> None:
    mailbox, page = Mailbox(), Page()
    mailbox.put(b"x" * BYTES_MAX)
    mailbox.put(b"x")
    with trio.fail_after(5):
        await mailbox.serve(page.write)
    assert page.got == []
