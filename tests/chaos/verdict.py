"""After the calm: what the log, the journals and the callers say, and whether it fits together."""

import trio

from actors.ledger.ledger import Agent, restored
from actors.log.store import Part
from actors.node.history import CommandQueued, decode
from actors.node.node_stream import node_of
from gateway.engine.connection import Connection
from gateway.engine.nats_runs import Names
from gateway.engine.nats_store import NatsStore
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.settings import EngineSettings
from tests.chaos.field import POOR, POOR_MICROS, PRICE_MICROS, RICH, RICH_MICROS, TENANT, Field
from tests.chaos.load import Load
from tests.simulation.oracle import Violation


async def verdict(field: Field, load: Load) -> dict[str, int]:
    """How the commands ended. Raises Violation."""
    servers = tuple(server.url for server in field.servers)
    settings = ConnectionSettings(servers, token=field.servers[0].token)
    async with await Connection.open(settings) as link:
        store = NatsStore(link, Names("hg"), "read", trio.current_time, engine=EngineSettings())
        async with store:
            paid = await _read(store, load)
    ends = load.oracle.check()
    if load.late:
        raise Violation(f"not answered in time: {load.late[0]} (and {len(load.late) - 1} more)")
    runs = {(node, run.token) for node, executions in load.oracle.executions.items() for run in executions}
    for node_id, message in load.answered:
        if (node_id, message) not in runs:
            raise Violation(f"{message} was answered and never ran on {node_id}")
    for agent, limit in ((RICH, RICH_MICROS), (POOR, POOR_MICROS)):
        used, commands = paid[agent]
        if used > limit:
            raise Violation(f"{agent} has spent or reserved {used} of {limit}")
        if used < commands * PRICE_MICROS:
            raise Violation(f"{agent} has spent or reserved {used} for {commands} commands")
    return ends


async def _read(store: NatsStore, load: Load) -> dict[str, tuple[int, int]]:
    """Copy the nodes' histories for the oracle; what each agent has spent or reserved, and how often it called."""
    commands = {RICH: 0, POOR: 0}
    for stream in await store.names("node/", ""):
        assert node_of(stream) is not None
        after = 0
        while recorded := await store.read(stream, after):
            events = tuple(event.data for event in recorded)
            load.oracle.disk.commit((Part(stream, None, recorded[-1].at_ms, events),))
            after = recorded[-1].version
            for event in map(decode, events):
                if isinstance(event, CommandQueued):
                    commands[event.sub] += 1
    paid = {}
    for agent in (RICH, POOR):
        whose = Agent(TENANT, agent)
        paid[agent] = restored(whose, await store.load(whose.stream)).state.used_micros, commands[agent]
    return paid
