"""A TLS socket by itself: it is used like the socket below it, and loses nothing that was opened or sealed."""

import contextlib
import fcntl
import socket
import ssl
import termios
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from gateway.net.pump import Pump
from gateway.net.tls_socket import OPENED_AT_ONCE, RECORD_BYTES_MAX, SEALED_AT_ONCE, TlsSocket
from tests.transport import Contexts

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Peer:
    """A client with its buffers in its own hands: it sends what it has sealed when it is told to."""

    def __init__(self, sock: socket.socket, trusts: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusts.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1", session=session)

    def step(self) -> bool:
        """Of the handshake; whether it is over for the client."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            return True
        return False

    def hear(self) -> bool:
        """Whether there was something."""
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return False
        self.incoming.write(data)
        if not data:
            self.incoming.write_eof()
        return True

    def read(self) -> bytes:
        """All that is there."""
        said = b""
        while True:
            try:
                part = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                if not self.hear():
                    return said
                continue
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                return said
            said += part

    def until_over(self) -> bytes:
        """All that is said, up to the goodbye. Raises OSError when there is none."""
        said = b""
        while True:
            try:
                part = self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                self.hear()
                continue
            except ssl.SSLZeroReturnError:
                return said
            if not part:
                return said
            said += part

    def seal(self, *pieces: bytes) -> bytes:
        """A record for each, not sent yet."""
        for piece in pieces:
            self.tls.write(piece)
        return self.outgoing.read()

    def goodbye(self) -> bytes:
        with contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        return self.outgoing.read()


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    with ours, theirs:
        for sock in (ours, theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield ours, theirs


def shake(ours: TlsSocket, peer: Peer) -> None:
    is_over = False
    while True:
        is_over = is_over or peer.step()
        if data := peer.outgoing.read():
            peer.sock.sendall(data)
        if ours.shake():
            break
        with contextlib.suppress(BlockingIOError):
            ours.hear()
        peer.hear()
    while not (is_over or peer.step()):  # of TLS 1.2 the server has the last word
        peer.hear()


@contextmanager
def spoken(contexts: Contexts, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> Iterator[tuple[TlsSocket, Peer]]:
    """Both after their handshake."""
    with connected() as (below, theirs):
        ours, peer = TlsSocket(below, contexts[0]), Peer(theirs, client_of(version))
        shake(ours, peer)
        yield ours, peer


def client_of(version: ssl.TLSVersion) -> ssl.SSLContext:
    """Whom it trusts is tested elsewhere."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    return context


def unacked(sock: TlsSocket) -> int:
    count = array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, count)
    return count[0]


def all_of(ours: TlsSocket, size: int) -> bytes:
    said = b""
    while len(said) < size:
        with contextlib.suppress(BlockingIOError):
            said += ours.recv(4096)
    return said


# ---- in -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_said_comes_out_on_the_other_side(contexts: Contexts, version: ssl.TLSVersion) -> None:
    with spoken(contexts, version) as (ours, peer):
        peer.sock.sendall(peer.seal(b"ask"))
        assert all_of(ours, 3) == b"ask"
        with pytest.raises(BlockingIOError):
            ours.recv(100)
        assert ours.send(b"answer") == 6
        assert peer.read() == b"answer"


def test_many_records_that_came_at_once_are_opened_at_once(contexts: Contexts) -> None:
    """A second call would never come: the socket has nothing more to be ready for."""
    with spoken(contexts) as (ours, peer):
        peer.sock.sendall(peer.seal(*[b"%03d" % number for number in range(100)]))
        assert all_of(ours, 1) == b"".join(b"%03d" % number for number in range(100))
        assert not ours.has_input


def test_record_that_comes_a_byte_at_a_time_is_nothing_until_its_last(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        sealed = peer.seal(b"x" * 50)
        for index in range(len(sealed) - 1):
            peer.sock.sendall(sealed[index : index + 1])
            with pytest.raises(BlockingIOError):
                ours.recv(4096)
        peer.sock.sendall(sealed[-1:])
        assert ours.recv(4096) == b"x" * 50


def test_no_more_is_opened_than_was_asked_for_and_one_record(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        peer.sock.sendall(peer.seal(b"x" * OPENED_AT_ONCE, b"y" * OPENED_AT_ONCE))
        said: list[bytes] = []
        while sum(map(len, said)) < 2 * OPENED_AT_ONCE:
            with contextlib.suppress(BlockingIOError):
                said.append(ours.recv(1000))
        assert max(map(len, said)) <= OPENED_AT_ONCE + 1000


@pytest.mark.parametrize("has_hung_up", [True, False])
async def test_goodbye_behind_data_is_heard_though_the_socket_is_not_ready_again(
    contexts: Contexts, *, has_hung_up: bool
) -> None:
    class Owner:
        def __init__(self) -> None:
            self.said: list[bytes] = []
            self.ended = trio.Event()

        def on_readable(self) -> None:
            with contextlib.suppress(BlockingIOError):
                self.said.append(ours.recv(4096))
                if not self.said[-1]:
                    pump.unregister(ours)
                    self.ended.set()

        def crash(self, exc: Exception) -> None:
            raise exc

    with trio.fail_after(20), spoken(contexts) as (ours, peer):
        pump, owner = Pump(), Owner()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump.run)
            pump.register(ours, owner)
            peer.sock.sendall(peer.seal(b"last words") + peer.goodbye())
            if has_hung_up:
                peer.sock.shutdown(socket.SHUT_WR)
            await owner.ended.wait()
            assert owner.said == [b"last words", b""]
            nursery.cancel_scope.cancel()
        pump.close()


@contextmanager
def early(contexts: Contexts, data: bytes) -> Iterator[tuple[TlsSocket, Peer]]:
    """Both after their handshake, with whose last bytes this came."""
    with connected() as (below, theirs):
        ours, peer = TlsSocket(below, contexts[0]), Peer(theirs, client_of(ssl.TLSVersion.TLSv1_3))
        assert not peer.step()
        theirs.sendall(peer.outgoing.read())
        while not peer.step():
            assert not ours.shake()
            with contextlib.suppress(BlockingIOError):
                ours.hear()
            peer.hear()
        theirs.sendall(peer.outgoing.read() + peer.seal(data))
        while not ours.shake():
            with contextlib.suppress(BlockingIOError):
                ours.hear()
        yield ours, peer


def test_what_comes_with_the_end_of_the_handshake_is_input(contexts: Contexts) -> None:
    with early(contexts, b"early bird") as (ours, _):
        assert ours.has_input
        assert ours.recv(4096) == b"early bird"


def test_end_without_a_goodbye_is_an_end_too(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        sealed = peer.seal(b"cut")
        peer.sock.sendall(sealed[:-1])
        peer.sock.shutdown(socket.SHUT_WR)
        said = None
        while said is None:
            with contextlib.suppress(BlockingIOError):
                said = ours.recv(4096)
        assert said == b""


def test_record_that_was_tampered_with_ends_the_connection_without_our_goodbye(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        sealed = bytearray(peer.seal(b"pay Mallory"))
        sealed[-1] ^= 1
        peer.sock.sendall(sealed)
        with pytest.raises(ssl.SSLError):
            all_of(ours, 1)
        assert ours.recv(100) == b""
        with pytest.raises(BrokenPipeError):
            ours.send(b"anything")
        ours.close()
        with pytest.raises(ssl.SSLError):
            peer.until_over()


# ---- out ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 1000, OPENED_AT_ONCE, SEALED_AT_ONCE + 1, 3_000_000])
def test_whoever_comes_back_with_the_rest_sends_every_byte_once(contexts: Contexts, size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    with spoken(contexts) as (ours, peer):
        left, heard = memoryview(data), bytearray()
        while left:
            try:
                left = left[ours.send(left) :]
            except BlockingIOError:
                heard += peer.read()
        while len(heard) < size:
            heard += peer.read()
        assert heard == data


def test_short_send_leaves_a_byte_until_the_kernel_has_all_before_it(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        chunk, sent = b"x" * 10_000, 10_000
        while sent == 10_000:
            sent = ours.send(chunk)
        assert sent == 9_999
        assert ours.has_unsent
        with pytest.raises(BlockingIOError):
            ours.send(chunk[sent:])
        while ours.has_unsent:
            peer.read()
            ours.flush()
        sealed_bytes = ours.sealed_bytes
        assert ours.send(chunk[sent:]) == 1
        assert ours.sealed_bytes == sealed_bytes  # it was sealed before


def test_much_is_sealed_a_record_at_a_time(contexts: Contexts, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL's buffer keeps the size of the most that it held: of each connection, for as long as it is open."""
    taken: list[int] = []
    take = TlsSocket._take_sealed  # noqa: SLF001

    def counted(ours: TlsSocket) -> bytes:
        sealed = take(ours)
        taken.append(len(sealed))
        return sealed

    with spoken(contexts) as (ours, peer):
        monkeypatch.setattr(TlsSocket, "_take_sealed", counted)
        data = bytes(index % 251 for index in range(SEALED_AT_ONCE))
        assert ours.send(data) == len(data)
        assert ours.put(data)
        heard = bytearray()
        while len(heard) < 2 * len(data):
            heard += peer.read()
        assert heard == 2 * data
        assert max(taken) < RECORD_BYTES_MAX + 100


def test_several_buffers_are_sent_as_one(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        assert ours.sendmsg([b"a" * 10, memoryview(b"b" * 20), b"c"]) == 31
        assert peer.read() == b"a" * 10 + b"b" * 20 + b"c"
        assert ours.sendmsg([b"x" * SEALED_AT_ONCE, b"more"]) <= SEALED_AT_ONCE


def test_outstanding_is_every_byte_of_ciphertext_that_is_not_acknowledged(contexts: Contexts) -> None:
    with spoken(contexts) as (ours, peer):
        peer.read()
        while ours.outstanding():
            pass
        before = ours.sealed_bytes
        while ours.put(b"x" * 10_000):
            pass
        while peer.read():
            ours.flush()
        while ours.outstanding():
            ours.flush()
            peer.read()
        assert ours.sealed_bytes - before > 10_000
        assert (unacked(ours), ours.has_unsent) == (0, False)


# ---- what TLS says by itself ----------------------------------------------------------------------------------------


def test_peer_that_says_nothing_at_length_is_cut_off(contexts: Contexts, monkeypatch: pytest.MonkeyPatch) -> None:
    """By KeyUpdates, say, which no client of Python's can send; here by a record that does not come to its end."""
    monkeypatch.setattr("gateway.net.tls_socket.SILENT_BYTES_MAX", 1000)
    with spoken(contexts) as (ours, peer):
        for _ in range(3):  # what is said ends a silence
            record = peer.seal(b"x" * 900)
            peer.sock.sendall(record[:-1])
            with pytest.raises(BlockingIOError):
                ours.recv(4096)
            peer.sock.sendall(record[-1:])
            assert ours.recv(4096) == b"x" * 900
        peer.sock.sendall(peer.seal(b"x" * 2000)[:1001])
        with pytest.raises(ConnectionResetError):
            ours.recv(4096)


def test_records_of_a_byte_are_no_silence(contexts: Contexts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.net.tls_socket.SILENT_BYTES_MAX", 1000)
    with spoken(contexts) as (ours, peer):
        peer.sock.sendall(peer.seal(*[b"x"] * 2000))
        assert all_of(ours, 2000) == b"x" * 2000


def test_peer_that_provokes_answers_and_reads_none_is_cut_off(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By asking for new handshakes (TLS 1.2), each of which is refused."""
    monkeypatch.setattr("gateway.net.tls_socket.UNREAD_ANSWERS_BYTES_MAX", 100)
    with spoken(contexts) as (ours, peer):
        while ours.put(b"x" * 10_000):
            pass

        def provoke(times: int) -> None:
            for _ in range(times):
                ours._outgoing.write(b"an alert of 24 bytes ...")  # noqa: SLF001  # no client of Python's asks for one
                ours._answer()  # noqa: SLF001

        provoke(4)
        with pytest.raises(ConnectionResetError):
            provoke(1)
        del peer


@pytest.mark.parametrize("version", VERSIONS)
def test_sessions_are_resumed(contexts: Contexts, version: ssl.TLSVersion) -> None:
    trusts = client_of(version)
    session: ssl.SSLSession | None = None
    for is_resumed in (False, True):
        with connected() as (below, theirs):
            ours, peer = TlsSocket(below, contexts[0]), Peer(theirs, trusts, session)
            shake(ours, peer)
            ours.send(b"x")
            assert peer.read() == b"x"
            assert peer.tls.session_reused is is_resumed
            session = peer.tls.session
            assert session is not None
            assert session.timeout == 7200
