"""An agent's ledgers, as people and scripts are told of them."""

from trio.testing import wait_all_tasks_blocked

from actors.ledger.ledgers import Ledgers
from actors.ledger.rules import Budget
from actors.log.memory_store import MemoryStore
from gateway.governance.spend.report import report
from tests.gateway.api.client import AGENT

BUDGET = Budget(1000)


async def test_ledgers_of_tenants_without_nodes_are_told_too() -> None:
    store = MemoryStore()
    for tenant, micros in (("a/b", 5), ("acme", 7)):
        await Ledgers(store).reserve(tenant, AGENT, "k", "up.tool", micros, BUDGET, 1000)
    told = await report(store, Ledgers(store), AGENT)
    assert [(one["tenant"], one["used_micros"], one["reserved_micros"]) for one in told] == [
        ("a/b", 5, 5),
        ("acme", 7, 7),
    ]
    history = [{"at": "1970-01-01T00:00:01.000Z", "event": "reserved", "id": "k", "tool": "up.tool", "micros": 5}]
    assert told[0]["history"] == history


async def test_agent_that_has_spent_nothing_has_no_ledger() -> None:
    store = MemoryStore()
    ledgers = Ledgers(store)
    await ledgers.of("acme", AGENT)
    assert await report(store, ledgers, AGENT) == []


async def test_refund_is_told_with_what_was_given_back_and_is_out_of_the_sums() -> None:
    store = MemoryStore()
    ledgers = Ledgers(store)
    for key, micros in (("k", 5), ("l", 7)):
        assert await ledgers.pay("acme", AGENT, key, "node.subscribe", micros, BUDGET, 1000) is True
    ledgers.charge("acme", AGENT, "k", 1000)
    ledgers.release("acme", AGENT, "l", 2000)
    await wait_all_tasks_blocked()
    (told,) = await report(store, Ledgers(store), AGENT)
    assert (told["used_micros"], told["reserved_micros"]) == (5, 0)
    assert told["history"][-1] == {"at": "1970-01-01T00:00:02.000Z", "event": "refunded", "id": "l", "micros": 7}
