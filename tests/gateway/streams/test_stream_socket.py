"""A stream's socket by itself: what is outstanding, while it is there and after it has gone."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from actors.stream.actor import StreamActor, Subscriber
from actors.stream.rules import StreamRules
from actors.stream.settings import StreamSettings
from gateway.net.pump import Pump
from gateway.net.tls_socket import TlsSocket
from gateway.streams.stream_socket import StreamSocket, TlsStreamSocket, stream_socket
from tests.gateway.net.test_tls_socket import spoken
from tests.transport import Contexts


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


# ---- over TLS -------------------------------------------------------------------------------------------------------


@contextmanager
def sealed(contexts: Contexts) -> Iterator[tuple[TlsSocket, TlsStreamSocket, StreamActor]]:
    """As `connected`, after a handshake, of whose tickets nothing has been read."""
    pump, settings = Pump(), StreamSettings()
    with spoken(contexts) as (ours, _):
        outlet = stream_socket(ours, pump, settings.input_bytes_max)
        assert isinstance(outlet, TlsStreamSocket)
        rules = StreamRules(settings, opened_s=0.0)
        stream = StreamActor(outlet, rules, settings, Subscriber("acme", "agent_a", "token", 1e9), None)
        yield ours, outlet, stream
        outlet.close()
    pump.close()


def acknowledged(outlet: TlsStreamSocket) -> None:
    while outlet.outstanding():
        pass


def test_rules_know_what_a_frame_has_become_to_the_byte(contexts: Contexts) -> None:
    with sealed(contexts) as (ours, outlet, stream):
        before = ours.sealed_bytes
        stream.write_head(b"h" * 100, 0.0)
        for number in range(3):
            stream.offer(b"x" * (10 + number), 10 + number, 1.0)
        pending: list[int] = stream.rules._pending  # noqa: SLF001
        assert sum(pending) == ours.sealed_bytes - before
        assert [size - 10 - number for number, size in enumerate(pending)][1:] == [22, 22]  # a record of TLS 1.3
        acknowledged(outlet)


def test_what_tls_says_by_itself_counts_with_the_frame_behind_it_and_with_none_before(contexts: Contexts) -> None:
    with sealed(contexts) as (ours, outlet, stream):
        stream.offer(b"x" * 100, 100, 1.0)
        acknowledged(outlet)
        ours._outgoing.write(b"some answer")  # noqa: SLF001  # as to a KeyUpdate
        with taking_nothing(ours):
            ours.flush()
            assert ours.outstanding() >= 11
            assert outlet.outstanding() == 0
        stream.offer(b"y" * 100, 100, 2.0)
        assert stream.rules._pending[-1] == 100 + 22 + 11  # noqa: SLF001


@contextmanager
def taking_nothing(ours: TlsSocket) -> Iterator[None]:
    """A kernel that is full."""
    sock = ours._sock  # noqa: SLF001

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(sock, name)

        def send(self, _: bytes) -> int:
            raise BlockingIOError

    ours._sock = Full()  # type: ignore[assignment]  # noqa: SLF001
    yield
    ours._sock = sock  # noqa: SLF001
