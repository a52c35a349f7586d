"""A node's socket by itself: what it does when the node does not read."""

import gc
import socket
import weakref

import trio
import trio.testing

from gateway.devices.node_socket import NodeProtocol, NodeSocket, SocketSettings
from gateway.net.pump import Pump
from gateway.net.websocket.frame_reader import FrameReader
from schemas.closes import NodeClose
from tests.gateway.net.websocket.test_frame_reader import opened


async def test_close_right_after_a_blocked_write_is_bounded_in_time() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    protocol, pump = opened(), Pump()
    settings = SocketSettings(close_s_max=0.05, unsent_frames_max=1_000_000)
    node_socket = NodeSocket(ours, FrameReader(protocol), protocol, settings, pump)
    with trio.fail_after(10), theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node_socket.run)
            await trio.testing.wait_all_tasks_blocked()
            # All in one go, so that `run` wakes up to a blocked write and a close at once.
            while node_socket.send(b"x" * 60_000) and not node_socket._unsent:  # noqa: SLF001
                pass
            node_socket.close(NodeClose.INTERNAL)
    assert not node_socket.send(b"more")
    node_socket.end(None)
    pump.close()


async def test_socket_that_has_ended_is_freed_without_a_search_for_cycles() -> None:
    """Of 20,000 sessions that end together nothing may wait for a garbage collection: that is a stall of seconds."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    protocol, pump = NodeProtocol(), Pump()
    node_socket = NodeSocket(ours, FrameReader(protocol), protocol, SocketSettings(), pump)
    owner = Owner(node_socket)
    node_socket.belongs_to(owner, owner.crash)  # type: ignore[arg-type]
    node_socket.end(None)
    assert not node_socket.send(b"more")
    left = weakref.WeakSet[object]([node_socket, protocol, owner])
    gc.disable()
    try:
        del node_socket, protocol, owner
        assert list(left) == []
    finally:
        gc.enable()
        theirs.close()
        pump.close()


class Owner:
    """As much of an actor as holds its socket."""

    def __init__(self, connection: NodeSocket) -> None:
        self.connection = connection

    def crash(self, exc: Exception) -> None:
        raise exc
