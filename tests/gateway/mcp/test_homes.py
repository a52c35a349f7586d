"""Where sessions live among several processes: known before a client needs it, for as long as the session lives."""

import pytest
import trio

from actors.engine.memory_kv import MemoryBucket, MemoryKv
from actors.engine.presence_rules import ProcessEntry
from gateway.mcp.homes import PUT_S_MAX, Home, Homes

IDLE_S = 30.0


class Two:
    def __init__(self) -> None:
        self.bucket = MemoryBucket()
        self.processes = {name: ProcessEntry("host", f"unix:/{name}.sock", 0) for name in "PQ"}
        self.kvs = [MemoryKv(self.bucket) for _ in "PQ"]
        self.one, self.other = (
            Homes(kv, name, self.processes, IDLE_S) for kv, name in zip(self.kvs, "PQ", strict=True)
        )


async def test_a_session_is_found_by_others_and_not_by_its_own_process(autojump_clock: trio.abc.Clock) -> None:
    two = Two()
    await two.one.opened("abc")
    assert await two.other.find("abc") == Home("P", "host", "unix:/P.sock")
    assert await two.one.find("abc") is None
    assert await two.other.find("xyz") is None
    assert await two.other.find(None) is None


@pytest.mark.parametrize("session_id", ["", "a.b", "*", ">", "a b", "x" * 65, "é"])
async def test_what_is_no_id_of_a_session_is_not_looked_up(session_id: str, autojump_clock: trio.abc.Clock) -> None:
    assert await Two().other.find(session_id) is None


async def test_it_is_known_for_as_long_as_it_lives_and_no_longer(autojump_clock: trio.abc.Clock) -> None:
    two = Two()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(two.one.run)
        await two.one.opened("abc")
        await trio.sleep(10 * IDLE_S)
        assert await two.other.find("abc") is not None
        two.one.closed("abc")
        two.one.closed("abc")  # once is enough
        await trio.sleep(1)
        assert await two.other.find("abc") is None
        nursery.cancel_scope.cancel()


async def test_one_whose_process_died_is_nowhere_at_once_and_its_entry_ends(autojump_clock: trio.abc.Clock) -> None:
    two = Two()
    await two.one.opened("abc")
    home = await two.other.find("abc")
    assert home is not None
    assert two.other.is_alive(home)
    del two.processes["P"]
    assert not two.other.is_alive(home)
    assert await two.other.find("abc") is None
    await trio.sleep(IDLE_S + 1)
    assert two.bucket.find("mcp.abc") is None


async def test_out_of_touch_a_session_begins_all_the_same_and_none_is_found(autojump_clock: trio.abc.Clock) -> None:
    two = Two()
    two.kvs[0].is_reachable = False
    began_s = trio.current_time()
    await two.one.opened("abc")
    assert trio.current_time() - began_s <= PUT_S_MAX
    assert await two.other.find("abc") is None
    two.kvs[1].is_reachable = False
    assert await two.other.find("abc") is None


async def test_an_entry_that_names_nobody_is_no_home(autojump_clock: trio.abc.Clock) -> None:
    two = Two()
    await two.kvs[0].put("mcp.abc", b"\xff")
    assert await two.other.find("abc") is None
