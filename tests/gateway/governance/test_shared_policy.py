"""The policy of several gateways: seeded once, pushed at one and in force at all, and never a broken one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
import trio

from actors.engine.kv import NotPut
from gateway.governance.policy.policy import DEFAULT, Policy
from gateway.governance.policy.shared_source import KEY, SHARED_BYTES_MAX, Pushed, SharedPolicy
from gateway.governance.policy.text import PolicyFlaw, revision_of
from gateway.main.settings import SettingsError
from tests.actors.engine.processes import Process, Several, until

ONE = '[[agents]]\nagent = "*"\ntools = "sys.**"\n'
TWO = '[[agents]]\nagent = "*"\ntools = "sysecho.**"\n'
BROKEN = "[[agents]]\nagent = 7\n"
FILE = Path("policy.toml")


async def judged_here(judge: Callable[[bytes], Policy | PolicyFlaw], data: bytes) -> Policy | PolicyFlaw:
    """A thread would not stop the mock clock."""
    await trio.lowlevel.checkpoint()
    return judge(data)


class Gateway:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.policy = SharedPolicy(process.facts, judged_here)

    async def start(self, nursery: trio.Nursery, seed: str | None = None) -> None:
        await self.process.start(nursery)
        await self.policy.load(None if seed is None else FILE, seed)
        nursery.start_soon(self.policy.watch)

    def has(self, text: str) -> bool:
        return self.policy.text == text and self.policy.current.revision == revision_of(text)


def two(several: Several) -> tuple[Gateway, Gateway]:
    return Gateway(several.process("P")), Gateway(several.process("Q"))


async def test_a_file_named_at_start_is_the_policy_of_all_unless_there_is_one(autojump_clock: trio.abc.Clock) -> None:
    one, other = two(several := Several())
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        assert one.policy.current is DEFAULT
        await other.start(nursery, ONE)
        assert other.has(ONE)
        await until(lambda: one.has(ONE), 1.0)
        later = Gateway(several.process("R"))
        with structlog.testing.capture_logs() as lines:
            await later.start(nursery, TWO)
        assert later.has(ONE)
        assert "policy_file_not_needed" in [line["event"] for line in lines]
        nursery.cancel_scope.cancel()


async def test_gateways_that_seed_at_once_have_one_policy(autojump_clock: trio.abc.Clock) -> None:
    one, other = two(Several())
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as starting:
            for gateway, seed in ((one, ONE), (other, TWO)):
                starting.start_soon(gateway.start, nursery, seed)
        await trio.sleep(1)
        assert one.policy.text == other.policy.text
        assert one.policy.text in (ONE, TWO)
        nursery.cancel_scope.cancel()


async def test_what_is_pushed_at_one_is_in_force_there_at_once_and_at_the_others_soon(
    autojump_clock: trio.abc.Clock,
) -> None:
    one, other = two(Several())
    async with trio.open_nursery() as nursery:
        await one.start(nursery, ONE)
        await other.start(nursery)
        pushed = await one.policy.push(TWO)
        assert isinstance(pushed, Pushed)
        assert one.has(TWO)
        await until(lambda: other.has(TWO), 1.0)
        assert (one.policy.revision, other.policy.revision) == (pushed.revision, pushed.revision)
        assert isinstance(await other.policy.push(ONE, pushed.revision), Pushed)
        assert await one.policy.push(TWO, pushed.revision) is NotPut.MOVED
        nursery.cancel_scope.cancel()


async def test_a_push_at_a_gateway_that_is_behind_replaces_nothing(autojump_clock: trio.abc.Clock) -> None:
    one, other = two(Several())
    async with trio.open_nursery() as nursery:
        await one.start(nursery, ONE)
        await other.start(nursery)
        other.process.kv.lag_s = 1_000.0
        assert isinstance(await one.policy.push(TWO), Pushed)
        assert await other.policy.push(ONE) is NotPut.MOVED
        assert one.has(TWO)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("text", [BROKEN, "\ud800", "#" * (SHARED_BYTES_MAX + 1)], ids=["shape", "form", "length"])
async def test_what_is_no_policy_is_not_put(text: str, autojump_clock: trio.abc.Clock) -> None:
    several = Several()
    one, _ = two(several)
    async with trio.open_nursery() as nursery:
        await one.start(nursery)
        assert isinstance(await one.policy.push(text), PolicyFlaw)
        assert several.bucket.find(KEY) is None
        nursery.cancel_scope.cancel()


async def test_what_nobody_takes_is_not_in_force(autojump_clock: trio.abc.Clock) -> None:
    one, _ = two(Several())
    async with trio.open_nursery() as nursery:
        await one.start(nursery, ONE)
        one.process.kv.is_reachable = False
        assert await one.policy.push(TWO) is NotPut.UNREACHABLE
        assert one.has(ONE)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("data", [BROKEN.encode(), b"\xff"], ids=["shape", "form"])
async def test_a_broken_value_in_the_engine_leaves_the_old_one_in_force_and_is_said_once(
    data: bytes, autojump_clock: trio.abc.Clock
) -> None:
    one, _ = two(Several())
    async with trio.open_nursery() as nursery:
        await one.start(nursery, ONE)
        with structlog.testing.capture_logs() as lines:
            put = await one.process.kv.put(KEY, data)
            await until(lambda: one.policy.revision == put, 1.0)
            await trio.sleep(60)
        assert [line["event"] for line in lines] == ["policy_refused"]
        assert one.has(ONE)
        assert isinstance(await one.policy.push(TWO), Pushed)  # in place of the broken one
        nursery.cancel_scope.cancel()


async def test_a_gateway_does_not_start_on_a_broken_policy(autojump_clock: trio.abc.Clock) -> None:
    one, _ = two(Several())
    await one.process.kv.put(KEY, BROKEN.encode())
    async with trio.open_nursery() as nursery:
        await one.process.start(nursery)
        with pytest.raises(SettingsError, match="broken"):
            await one.policy.load(None, None)
        nursery.cancel_scope.cancel()


async def test_a_gateway_whose_file_the_engine_does_not_take_does_not_start(autojump_clock: trio.abc.Clock) -> None:
    one, _ = two(Several())
    async with trio.open_nursery() as nursery:
        await one.process.start(nursery)
        one.process.kv.bucket.is_full = True
        with pytest.raises(SettingsError, match="full"):
            await one.policy.load(FILE, ONE)
        nursery.cancel_scope.cancel()


async def test_a_policy_that_is_deleted_stays_in_force_where_it_was(autojump_clock: trio.abc.Clock) -> None:
    one, _ = two(Several())
    async with trio.open_nursery() as nursery:
        await one.start(nursery, ONE)
        with structlog.testing.capture_logs() as lines:
            await one.process.kv.delete(KEY)
            await trio.sleep(1)
        assert [line["event"] for line in lines] == ["policy_deleted"]
        assert isinstance(one.policy.current, Policy)
        assert one.has(ONE)
        assert isinstance(await one.policy.push(TWO), Pushed)
        nursery.cancel_scope.cancel()
