"""The reader says what websockets would say, however the bytes are cut."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame
from websockets.protocol import State

from gateway.devices.node_socket import NodeProtocol
from gateway.net.websocket.frame_reader import FrameReader
from schemas.websocket_frames import binary_frame, text_frame


def opened() -> NodeProtocol:
    protocol = NodeProtocol()
    protocol.receive_data(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: node-wire.v2\r\n\r\n"
    )
    (request,) = protocol.events_received()
    protocol.send_response(protocol.accept(request))  # type: ignore[arg-type]
    protocol.data_to_send()
    assert protocol.state is State.OPEN
    return protocol


def masked(opcode: int, payload: bytes, *, fin: bool = True, key: bytes = b"\x01\x02\x03\x04") -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = bytes([0xFE]) + size.to_bytes(2) if size < 65536 else bytes([0xFF]) + size.to_bytes(8)
    body = bytes(byte ^ key[n % 4] for n, byte in enumerate(payload))
    return bytes([(0x80 if fin else 0) | opcode]) + length + key + body


FRAMES = st.builds(
    masked,
    st.sampled_from([1, 1, 1, 1, 9, 10, 0, 2, 8]),
    st.binary(max_size=300) | st.just(b"") | st.just((1000).to_bytes(2)),
    fin=st.sampled_from([True, True, True, False]),
    key=st.binary(min_size=4, max_size=4),
)


def plain(message: Any) -> tuple[int, bytes, bool]:
    return (1, message, True) if isinstance(message, bytes) else (message.opcode, bytes(message.data), message.fin)


@settings(deadline=None, max_examples=500)
@given(
    st.lists(FRAMES | st.binary(min_size=1, max_size=10), max_size=8),
    st.lists(st.integers(1, 400), max_size=30),
    st.integers(1, 4),
)
def test_any_bytes_cut_anywhere_read_as_the_library_reads_them(
    frames: list[bytes], cuts: list[int], frames_max: int
) -> None:
    data = b"".join(frames)
    ours, theirs = opened(), opened()
    reader = FrameReader(ours)
    heard: list[Any] = []
    rest = data
    for cut in (*cuts, len(data)):
        piece, rest = rest[:cut], rest[cut:]
        heard += reader.read(piece, frames_max)
        if cut % 2:
            continue
        while reader.has_more:
            some = reader.read(b"", frames_max)
            assert len(some) <= frames_max
            heard += some
    while reader.has_more:
        heard += reader.read(b"", frames_max)
    theirs.receive_data(data)
    expected = [event for event in theirs.events_received() if isinstance(event, Frame)]
    assert [plain(message) for message in heard] == [plain(event) for event in expected]
    assert type(ours.parser_exc) is type(theirs.parser_exc)
    assert ours.data_to_send() == theirs.data_to_send()


def test_frames_of_every_length_form_are_read() -> None:
    reader = FrameReader(opened())
    for size in (0, 1, 125, 126, 127, 65535):
        assert reader.read(masked(1, b"x" * size)) == [b"x" * size]
    (long,) = reader.read(masked(1, b"x" * 65536))
    assert isinstance(long, Frame)
    assert bytes(long.data) == b"x" * 65536


@pytest.mark.parametrize(
    "frame",
    [masked(1, b"{}"), masked(10, b""), masked(2, b"other"), masked(1, b"", fin=False) + masked(0, b"")],
    ids=["usual frames", "pongs", "frames of the other kind", "fragments"],
)
def test_no_more_frames_are_looked_at_than_asked_for_and_the_rest_waits(frame: bytes) -> None:
    protocol = opened()
    reader = FrameReader(protocol)
    assert len(reader.read(frame * 10, 4)) == 4
    assert reader.has_more
    reader.keep(frame)
    assert len(reader.read(b"", 5)) == 5
    rest = reader.read(b"")
    assert len(rest) == (13 if len(frame) == 12 else 2)
    assert not reader.has_more


def test_nothing_counts_after_a_close() -> None:
    reader = FrameReader(opened())
    (close,) = reader.read(masked(8, b"") + masked(1, b"more"))
    assert isinstance(close, Frame)
    assert reader.read(masked(1, b"still")) == []


def test_many_texts_in_one_read_come_in_their_order() -> None:
    texts = [str(n).encode() for n in range(100)]
    assert FrameReader(opened()).read(b"".join(masked(1, text) for text in texts)) == texts


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 131_072])
def test_a_text_frame_of_ours_is_the_librarys_to_the_byte(size: int) -> None:
    protocol = opened()
    protocol.send_text(b"x" * size)
    assert text_frame(b"x" * size) == b"".join(protocol.data_to_send())


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_binary_frame_of_ours_is_the_librarys_to_the_byte(size: int) -> None:
    protocol = opened()
    protocol.send_binary(b"x" * size)
    assert binary_frame(b"x" * size) == b"".join(protocol.data_to_send())


def test_binary_frames_are_read_here_where_they_are_the_usual_ones_and_texts_by_the_library() -> None:
    reader = FrameReader(opened(), is_text=False)
    assert reader.read(masked(2, b"a") + masked(2, b"b")) == [b"a", b"b"]
    (text,) = reader.read(masked(1, b"c"))
    assert isinstance(text, Frame)
    (later,) = reader.read(masked(2, b"d"))
    assert isinstance(later, Frame)
    assert bytes(later.data) == b"d"
