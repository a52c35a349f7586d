"""What waits for one client, over a pair of sockets: order, what counts, and what a slow one still gets."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.net.tls_socket import SEALED_AT_ONCE
from gateway.spaces.outgoing import Outgoing
from tests.gateway.net.test_tls_socket import spoken
from tests.transport import Contexts


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def read(sock: socket.socket) -> bytes:
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except BlockingIOError:
        pass
    return data


class Narrow:
    """A socket that takes as many bytes as it is told, one call after another; then none."""

    def __init__(self, takes: list[int]) -> None:
        self.takes = takes
        self.taken = b""

    def send(self, data: bytes) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: list[bytes]) -> int:
        if not self.takes:
            raise BlockingIOError
        taken = b"".join(buffers)[: self.takes.pop(0)]
        self.taken += taken
        return len(taken)


@settings(deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=20) | st.lists(st.integers(1, 50), max_size=4), max_size=80),
)
def test_every_byte_goes_out_once_and_in_order_however_little_is_taken(steps: list[bytes | list[int]]) -> None:
    outgoing, expected, taken = Outgoing(b"head"), b"head", b""
    for step in [*steps, [1000] * 10]:
        if isinstance(step, bytes):
            outgoing.add(step)
            expected += step
        else:
            sock = Narrow(step)
            outgoing.write(sock)  # type: ignore[arg-type]
            taken += sock.taken
    assert taken == expected
    assert not outgoing


def test_opening_does_not_count_and_what_follows_does() -> None:
    outgoing = Outgoing(b"head")
    outgoing.add_to_opening([b"x" * 1000])
    assert not outgoing.exceeds(1, 1)
    outgoing.add(b"frame")
    assert outgoing.exceeds(1, 100)
    assert outgoing.exceeds(2, 5)
    assert not outgoing.exceeds(2, 6)


def test_part_of_an_opening_that_is_left_does_not_count_either() -> None:
    outgoing = Outgoing(b"x" * 1000)
    outgoing.add(b"frame")
    outgoing.write(Narrow([400]))  # type: ignore[arg-type]
    assert not outgoing.exceeds(2, 6)
    outgoing.write(Narrow([602]))  # type: ignore[arg-type]
    assert outgoing.exceeds(1, 100)
    assert outgoing.exceeds(2, 3)
    assert not outgoing.exceeds(2, 4)


def test_forgotten_frames_leave_the_rest_of_the_one_that_has_begun(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    outgoing = Outgoing(b"head")
    outgoing.write(ours)
    outgoing.add(b"first")
    outgoing.add(b"second")
    outgoing.write(Narrow([2]))  # type: ignore[arg-type]
    outgoing.forget_frames(ours)
    outgoing.add(b"|close")
    outgoing.write(ours)
    assert read(theirs) == b"headrst|close"
    assert not outgoing


def test_forgetting_before_anything_of_a_frame_was_written_leaves_nothing_of_it() -> None:
    outgoing, sock = Outgoing(b"head"), Narrow([4, 100])
    outgoing.write(sock)  # type: ignore[arg-type]
    outgoing.add(b"first")
    outgoing.forget_frames(sock)  # type: ignore[arg-type]
    assert not outgoing


def test_frame_whose_first_byte_tls_has_sealed_is_not_forgotten(contexts: Contexts) -> None:
    """It counts as not taken until the kernel has all: what came instead would be read from its second byte on."""
    first, below = b"x" * (SEALED_AT_ONCE - 1), Narrow([100])
    outgoing = Outgoing(first)
    outgoing.add(b"second")
    outgoing.add(b"third")
    with spoken(contexts) as (ours, peer):
        peer.read()
        sock, ours._sock = ours._sock, below  # type: ignore[assignment]  # noqa: SLF001
        assert not outgoing.write(ours)
        assert outgoing.unsent_bytes == len(b"secondthird")
        outgoing.forget_frames(ours)
        outgoing.add(b"|close")
        below.takes = [100_000] * 10
        assert outgoing.write(ours)
        peer.incoming.write(below.taken)
        assert peer.read() == first + b"second|close"
        ours._sock = sock  # noqa: SLF001


def test_opening_is_forgotten_between_two_of_its_frames() -> None:
    outgoing, sock = Outgoing(b"head"), Narrow([6])
    outgoing.add_to_opening([b"welcome", b"replay", b"another"])
    outgoing.add(b"frame")
    outgoing.write(sock)  # type: ignore[arg-type]
    assert outgoing.has_opening
    assert outgoing.unsent_bytes == len(b"lcomereplayanotherframe")
    outgoing.forget_frames(sock)  # type: ignore[arg-type]
    outgoing.add(b"|close")
    sock.takes = [100]
    outgoing.write(sock)  # type: ignore[arg-type]
    assert sock.taken == b"headwelcome|close"
    assert not outgoing.has_opening


def test_opening_without_an_answer_to_an_upgrade_counts_its_frames_only() -> None:
    outgoing = Outgoing(b"")
    assert not outgoing
    outgoing.add_to_opening([b"welcome"])
    assert not outgoing.exceeds(1, 1)
    outgoing.add(b"frame")
    assert outgoing.exceeds(1, 100)
    assert outgoing.unsent_bytes == len(b"welcomeframe")
