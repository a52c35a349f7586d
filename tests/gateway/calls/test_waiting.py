"""Whatever waits is checked again before it acts, and owes nothing when it is cancelled."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors.bus.bus import Failed
from actors.ledger.ledgers import Agent
from gateway.calls.upstreams.actor import Trouble
from gateway.identity.tokens import Scope
from gateway.mcp.errors import RpcError
from schemas.errors import Code
from schemas.frames import Cmd, CmdCancel
from tests.actors.node.harness import until
from tests.gateway.api.client import AGENT, token
from tests.gateway.calls.place import AGENT_OF, PRICE, FakeUpstream, Place
from tests.schemas.examples import NODE_ID

RESERVED = [Place.stream, Place.subscription, Place.upstream_call]  # they have no command of their own
EVERYTHING = [Place.call, *RESERVED]


async def meanwhile(ask: Callable[[], Any], act: Callable[[], object], after_s: float) -> list[bool]:
    let_through: list[bool] = []

    async def wait() -> None:
        let_through.append(await ask())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(after_s)
        act()
    return let_through


@pytest.mark.parametrize("ask", EVERYTHING)
async def test_token_revoked_while_the_ledger_is_read_opens_nothing(
    autojump_clock: MockClock, place: Place, ask: Callable[[Place], Any]
) -> None:
    place.site.store.load_s = 1.0
    assert await meanwhile(partial(ask, place), place.revoke, 0.5) == [False]
    assert not place.happened
    assert await place.site.spent() == 0


@pytest.mark.parametrize("ask", RESERVED)
async def test_token_revoked_while_its_reservation_is_awaited_opens_nothing(
    autojump_clock: MockClock, place: Place, ask: Callable[[Place], Any]
) -> None:
    place.site.store.commit_s = 1.0
    assert await meanwhile(partial(ask, place), place.revoke, 0.5) == [False]
    assert not place.happened
    assert await place.site.spent() == 0


@pytest.mark.parametrize("ask", RESERVED)
async def test_token_that_expires_while_it_waits_opens_nothing(
    autojump_clock: MockClock, place: Place, ask: Callable[[Place], Any]
) -> None:
    await place.site.ledgers.of("acme", AGENT)
    place.site.store.commit_s = 1.0
    still_good, place.site.calls.admission.still_good = place.site.calls.admission.still_good, lambda _: False
    assert await ask(place) is False
    assert not place.happened
    place.site.calls.admission.still_good = still_good
    assert await place.site.spent() == 0


@pytest.mark.parametrize("ask", RESERVED)
async def test_waiter_that_is_cancelled_leaves_no_reservation_behind(
    autojump_clock: MockClock, place: Place, ask: Callable[[Place], Any]
) -> None:
    place.site.store.commit_s = 1.0
    with trio.move_on_after(0.5):
        await ask(place)
    await trio.sleep(10)
    assert await place.site.spent() == 0
    assert (await place.site.ledgers.of("acme", AGENT)).is_at_rest
    assert place.site.store.disk.streams[Agent("acme", AGENT).stream].open_items == {}
    assert not place.happened


async def test_caller_that_hangs_up_on_a_call_that_has_left_is_charged(autojump_clock: MockClock, place: Place) -> None:
    with trio.move_on_after(0.5):
        await place.upstream_call()
    assert await place.site.spent() == PRICE
    assert (await place.site.ledgers.of("acme", AGENT)).is_at_rest


@pytest.mark.parametrize("ask", RESERVED)
async def test_what_crashes_after_its_reservation_costs_nothing(
    autojump_clock: MockClock, place: Place, ask: Callable[[Place], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class BrokenError(Exception):
        pass

    async def broken(*_: object) -> Any:
        await trio.lowlevel.checkpoint()
        raise BrokenError

    monkeypatch.setattr(place.site.fleet, "attach", broken)
    monkeypatch.setattr(FakeUpstream, "call", broken)
    with pytest.raises((BrokenError, ExceptionGroup)):
        await ask(place)
    assert await place.site.spent() == 0


async def test_upstream_that_was_never_reached_costs_nothing_and_one_that_was_does(
    autojump_clock: MockClock, place: Place
) -> None:
    place.upstream.answer = Trouble.DOWN
    assert (await place.site.client.call("up.tool", {}, token(scopes=[Scope.REVERSIBLE]))).status == 503
    assert await place.site.spent() == 0
    place.upstream.answer = {"content": [], "isError": False}
    assert await place.upstream_call()
    assert await place.site.spent() == PRICE


async def test_stream_whose_token_is_revoked_while_its_node_is_asked_leaves_no_cadence_behind(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach = place.site.fleet.attach

    async def slow(*there: Any) -> Any:
        await trio.sleep(1)
        return await attach(*there)

    monkeypatch.setattr(place.site.fleet, "attach", slow)
    assert await meanwhile(place.stream, place.revoke, 0.5) == [False]
    await trio.testing.wait_all_tasks_blocked()
    sent = place.node.connection.sent
    asked = [frame.msg_id for frame in sent if isinstance(frame, Cmd)]
    assert len(asked) == 1
    assert [frame.in_reply_to for frame in sent if isinstance(frame, CmdCancel)] == asked
    assert await place.site.spent() == 0


# ---- subscriptions --------------------------------------------------------------------------------------------------


async def test_subscription_of_a_watch_that_closes_meanwhile_starts_no_cadence(
    autojump_clock: MockClock, place: Place
) -> None:
    place.site.store.commit_s = 1.0
    watch = place.site.watches.open(AGENT_OF, frozenset())
    assert watch is not None

    async def ask() -> bool:
        with pytest.raises(RpcError):
            await place.site.watches.subscribe(watch, f"metrics://{NODE_ID}")
        return False

    await meanwhile(ask, watch.close, 0.5)
    await trio.sleep(30)
    assert not place.happened
    assert await place.site.spent() == 0


async def test_same_resource_asked_for_twice_at_once_is_paid_for_once(autojump_clock: MockClock, place: Place) -> None:
    place.site.store.commit_s = 1.0
    watch = place.site.watches.open(AGENT_OF, frozenset())
    assert watch is not None
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(place.site.watches.subscribe, watch, f"metrics://{NODE_ID}")
    await until(lambda: place.happened)
    assert await place.site.spent() == PRICE
    assert len(await place.node.commands(1)) == 1
    watch.close()


async def test_two_that_ask_at_once_for_a_node_that_refuses_are_both_refused(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> Failed:
        await trio.sleep(1)
        return Failed(Code.NODE_OFFLINE)

    monkeypatch.setattr(place.site.fleet, "attach", refused)
    watch = place.site.watches.open(AGENT_OF, frozenset())
    assert watch is not None
    told: list[str] = []

    async def ask(after_s: float) -> None:
        await trio.sleep(after_s)
        with pytest.raises(RpcError):
            await place.site.watches.subscribe(watch, f"metrics://{NODE_ID}")
        told.append("refused")

    async with trio.open_nursery() as nursery:
        for after_s in (0, 0, 0.5):
            nursery.start_soon(ask, after_s)
    assert told == ["refused"] * 3
    assert await place.site.spent() == 0
    watch.close()


async def test_subscription_cancelled_as_it_attaches_is_not_heard_later(
    autojump_clock: MockClock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach = place.site.fleet.attach

    async def slow(*there: Any) -> Any:
        await trio.sleep(1)
        return await attach(*there)

    monkeypatch.setattr(place.site.fleet, "attach", slow)
    watch = place.site.watches.open(AGENT_OF, frozenset())
    assert watch is not None
    with trio.move_on_after(0.5):
        await place.site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    watch.tell(f"metrics://{NODE_ID}")
    await watch.next()
    await trio.sleep(5)
    assert not place.happened
    assert await place.site.spent() == 0
    watch.close()


async def test_subscription_to_a_node_whose_manifest_has_expired_is_refused(
    autojump_clock: MockClock, place: Place
) -> None:
    await trio.sleep(3601)
    watch = place.site.watches.open(AGENT_OF, frozenset())
    assert watch is not None
    with pytest.raises(RpcError) as refused:
        await place.site.watches.subscribe(watch, f"metrics://{NODE_ID}")
    assert refused.value.data["code"] == "E_MANIFEST_INVALID"
    watch.close()
