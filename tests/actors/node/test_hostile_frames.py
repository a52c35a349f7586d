"""Any frame at all, from a live node: a code of the table or nothing, and nobody else notices."""

import json
import random

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from schemas.closes import NodeClose
from schemas.frames import AuthOk, Cmd
from tests.actors.node.harness import Gateway, ScriptedNode
from tests.schemas.examples import NODE_ID, PAYLOADS, envelope
from tests.schemas.mutations import mutants

STREAM = f"node/{NODE_ID}"
MAY_CLOSE_WITH = {NodeClose.BAD_FRAME, NodeClose.TOO_LARGE, NodeClose.MANIFEST_REJECTED}
FROM_A_NODE = ("auth", "announce", "heartbeat", "cmd_ack", "telemetry", "resume")


async def throw(frames: list[bytes], *, live: bool) -> None:
    """A node goes live, or as far as `auth_ok`, then says these things."""
    gateway = Gateway()
    async with trio.open_nursery() as nursery:
        node = ScriptedNode.alone(gateway)
        nursery.start_soon(node.actor.run)
        if live:
            await node.go_live()
        else:
            await node.connection.next(AuthOk)
        stream = gateway.store.disk.streams[STREAM]
        before = stream.version
        for frame in frames:
            node.actor.on_frame(frame)
            await trio.testing.wait_all_tasks_blocked()
        assert node.connection.closed in {None, *MAY_CLOSE_WITH}
        assert stream.open_items == {}
        if live:  # a session that was live has nothing more to write about rubbish
            assert stream.version == before
        assert not any(isinstance(sent, Cmd) for sent in node.connection.sent)
        nursery.cancel_scope.cancel()


def run(frames: list[bytes], *, live: bool) -> None:
    async def main() -> None:
        await throw(frames, live=live)

    trio.run(main, clock=MockClock(autojump_threshold=0))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.booleans())
def test_any_bytes_close_by_a_code_of_the_table(frames: list[bytes], live: bool) -> None:
    run(frames, live=live)


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 2**32), live=st.booleans())
def test_damaged_frames_close_by_a_code_of_the_table_or_change_nothing(seed: int, live: bool) -> None:
    rng = random.Random(seed)
    frames = []
    for _ in range(rng.randrange(1, 8)):
        kind = rng.choice(FROM_A_NODE)
        frames.append(json.dumps(mutants(envelope(kind, rng.choice(PAYLOADS[kind])), rng)).encode())
    run(frames, live=live)
