"""A gateway that starts on a log of an earlier form: reservations there have the bare `msg_id` of their command."""

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from actors.ledger.events import Charged, Reserved, decode, encode
from actors.ledger.ledgers import Agent, command_key
from actors.log.store import OpenItem, Part
from actors.node.history import CommandQueued, CommandSent, Event, NodeResumed, OpenCommand, SessionOpened
from actors.node.history import encode as encode_command
from actors.node.node_stream import stream_of
from gateway.devices.listener import ListenerSettings
from tests.gateway.devices.site import Site
from tests.schemas.examples import NODE_ID

AGENT = Agent("acme", "agent_1")
MSG_ID = "01HZXC0000000000000000C000"


async def test_open_commands_reservation_is_charged_when_the_command_ends(nursery: trio.Nursery) -> None:
    site = Site(ListenerSettings(), None, ())
    history: tuple[Event, ...] = (
        SessionOpened(0, 1, "s"),
        NodeResumed(0, 1, "j", None, False),
        CommandQueued(0, MSG_ID, "tool", AGENT.sub, AGENT.tenant, 5000),
        CommandSent(0, MSG_ID, 1),
    )
    command = OpenCommand(MSG_ID, "tool", AGENT.sub, AGENT.tenant, 0, 5000, None, epoch=1)
    item = OpenItem(MSG_ID, msgspec.json.encode(command))
    await site.store.append(
        Part(stream_of(NODE_ID), 0, 0, tuple(map(encode_command, history)), opened=(item,)),
        Part(AGENT.stream, 0, 0, (encode(Reserved(0, MSG_ID, "tool", 15_000)),)),
    )
    await nursery.start(site.supervisor.run)
    await site.devices.start()
    await wait_all_tasks_blocked()  # the sweeper gives up what has been in doubt for a day
    ledger = await site.devices.ledgers.of(*AGENT)
    assert (ledger.state.open, ledger.state.used_micros, site.devices.ledgers.charged_micros) == ({}, 15_000, 15_000)
    (_, charged) = [decode(event.data) for event in await site.store.read(AGENT.stream)]
    assert isinstance(charged, Charged)
    assert charged.id == command_key(NODE_ID, MSG_ID)
    site.supervisor.request_stop()
