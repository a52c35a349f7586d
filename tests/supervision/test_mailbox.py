"""The mailbox: bounded, never blocking for whoever offers, losing nothing for the one who receives."""

import pytest
import trio
import trio.testing

from actors.supervision.mailbox import Mailbox


async def test_items_are_received_in_the_order_they_were_offered() -> None:
    mailbox: Mailbox[int] = Mailbox(3)
    assert [mailbox.offer(item) for item in (1, 2, 3)] == [True, True, True]
    assert [await mailbox.receive() for _ in range(3)] == [1, 2, 3]


async def test_a_full_mailbox_refuses_and_takes_again_after_a_receive() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    mailbox.offer(1)
    mailbox.offer(2)
    assert not mailbox.offer(3)
    assert len(mailbox) == 2
    assert await mailbox.receive() == 1
    assert mailbox.offer(4)
    assert [await mailbox.receive(), await mailbox.receive()] == [2, 4]


def test_a_mailbox_that_could_hold_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Mailbox(0)


async def test_an_offer_wakes_the_waiting_consumer(nursery: trio.Nursery) -> None:
    mailbox: Mailbox[str] = Mailbox(1)
    received: list[str] = []

    async def consume() -> None:
        received.append(await mailbox.receive())

    nursery.start_soon(consume)
    await trio.testing.wait_all_tasks_blocked()
    mailbox.offer("a")
    await trio.testing.wait_all_tasks_blocked()
    assert received == ["a"]


async def test_receive_is_a_checkpoint_also_when_an_item_waits() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(1)
    with trio.testing.assert_checkpoints():
        await mailbox.receive()


async def test_a_cancelled_receive_leaves_the_item_in_the_mailbox() -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    mailbox.offer(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.receive()
    assert scope.cancelled_caught
    assert await mailbox.receive() == 1


async def test_a_consumer_woken_by_an_offer_and_then_cancelled_does_not_lose_the_item(nursery: trio.Nursery) -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    received: list[int] = []
    scope = trio.CancelScope()

    async def consume() -> None:
        with scope:
            received.append(await mailbox.receive())

    nursery.start_soon(consume)
    await trio.testing.wait_all_tasks_blocked()
    mailbox.offer(1)
    scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert received + mailbox.drain() == [1]


async def test_a_second_consumer_at_the_same_time_is_an_error(nursery: trio.Nursery) -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    nursery.start_soon(mailbox.receive)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(trio.BusyResourceError):
        await mailbox.receive()
    with pytest.raises(trio.BusyResourceError):
        mailbox.drain()
    mailbox.offer(1)


async def test_a_closed_mailbox_refuses_yet_hands_out_what_it_holds_and_then_ends() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    mailbox.offer(1)
    mailbox.close()
    mailbox.close()
    assert mailbox.closed
    assert not mailbox.offer(2)
    assert await mailbox.receive() == 1
    with pytest.raises(trio.EndOfChannel):
        await mailbox.receive()


async def test_closing_wakes_the_waiting_consumer_with_the_end(nursery: trio.Nursery) -> None:
    mailbox: Mailbox[int] = Mailbox(1)
    ended = trio.Event()

    async def consume() -> None:
        with pytest.raises(trio.EndOfChannel):
            await mailbox.receive()
        ended.set()

    nursery.start_soon(consume)
    await trio.testing.wait_all_tasks_blocked()
    mailbox.close()
    with trio.fail_after(1):
        await ended.wait()


def test_drain_takes_everything_and_leaves_room() -> None:
    mailbox: Mailbox[int] = Mailbox(2)
    mailbox.offer(1)
    mailbox.offer(2)
    assert mailbox.drain() == [1, 2]
    assert mailbox.drain() == []
    assert mailbox.offer(3)
