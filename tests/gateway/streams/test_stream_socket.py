"""A stream's socket by itself: what is outstanding, while it is there and after it has gone."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from actors.stream.actor import StreamActor, Subscriber
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from gateway.net.pump import Pump
from gateway.streams.stream_socket import StreamSocket


@contextmanager
def connected() -> Iterator[tuple[StreamSocket, socket.socket, StreamActor]]:
    """A stream's socket, its client's, and the actor that it belongs to."""
    pump, settings = Pump(), StreamSettings()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        ours, _ = listener.accept()
        ours.setblocking(False)
        outlet = StreamSocket(ours, pump, settings.input_bytes_max)
        rules = StreamRules(settings, opened_s=0.0)
        stream = StreamActor(outlet, rules, settings, Subscriber("acme", "agent_a", "token", 1e9), None)
        with ours:
            yield outlet, client, stream
    assert pump.sockets == 0
    pump.close()


def test_nothing_is_outstanding_on_a_socket_that_was_closed() -> None:
    with connected() as (outlet, _, _):
        outlet.close()
        assert outlet.outstanding() == 0


def test_nothing_is_outstanding_on_a_socket_whose_client_is_lost() -> None:
    with connected() as (outlet, client, stream):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # closing resets
        while outlet.write(b"x" * 65536):
            pass
        assert outlet.outstanding() > 0
        client.close()
        outlet.on_readable()
        assert stream.rules.closed is not None
        assert outlet.outstanding() == 0
