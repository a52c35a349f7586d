"""How a TLS socket ends: its own goodbye, the peer's, and none."""

import socket
import ssl

import pytest

from gateway.net.tls_socket import break_off
from tests.gateway.net.test_tls_socket import VERSIONS, all_of, early, spoken
from tests.transport import Contexts


def test_close_says_goodbye_once(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        ours.send(b"bye")
        ours.shutdown(socket.SHUT_WR)
        sealed_bytes = ours.sealed_bytes
        ours.close()
        assert ours.sealed_bytes == sealed_bytes
        assert peer.until_over() == b"bye"


def test_what_the_peer_still_says_after_our_goodbye_is_heard(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        ours.shutdown(socket.SHUT_WR)
        peer.sock.sendall(peer.seal(b"one more thing"))
        assert all_of(ours, 14) == b"one more thing"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_comes_with_the_peers_answer_to_our_goodbye_is_heard(contexts: Contexts, version: ssl.TLSVersion) -> None:
    with spoken(contexts, version) as (ours, peer):
        ours.say_goodbye()
        peer.sock.sendall(peer.seal(b"one more thing") + peer.goodbye())
        assert all_of(ours, 14) == b"one more thing"
        assert ours.recv(4096) == b""


def test_goodbye_before_the_early_bytes_were_read_leaves_them_readable(contexts: Contexts) -> None:
    """As of a refusal to whoever is one too many: who closes without reading them on takes the refusal back."""
    with early(contexts, b"a request") as (ours, peer):
        ours.shutdown(socket.SHUT_WR)
        assert ours.recv(4096) == b"a request"
        peer.sock.sendall(peer.seal(b" and its body"))
        assert all_of(ours, 13) == b" and its body"


def test_connection_that_is_broken_off_says_no_goodbye(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        ours.send(b"half of i")
        break_off(ours)
        ours.close()
        with pytest.raises((ConnectionResetError, ssl.SSLError)):
            peer.until_over()


def test_no_goodbye_follows_half_a_record(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        while ours.put(b"x" * 10_000):
            pass
        assert ours.has_unsent
        sealed_bytes = ours.sealed_bytes
        ours.close()
        assert ours.sealed_bytes == sealed_bytes
        del peer
