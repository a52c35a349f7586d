"""What a client that sleeps acknowledges, and what it costs to ask: the figures of docs/explanation/backpressure.md.

    python -m bench.acknowledged

A client on 127.0.0.1 never reads. Frames of 260 bytes are written one at a time, each when the one before is
acknowledged; what counts is how many frames its kernel acknowledged, with the smallest receive buffer that Linux
grants, with 64 KiB, and with the kernel's own choice. The other figure is the CPU time of one `ioctl(SIOCOUTQ)`.
"""

import fcntl
import socket
import statistics
import sys
import termios
import time
from array import array

FRAME = b"x" * 260
BUFFERS = {"the smallest buffer": 1, "64 KiB": 64 * 1024, "the defaults": None}  # asked for; Linux doubles it
STUCK_S = 0.5
LOOKS, ROUNDS = 50_000, 9


def outstanding(sock: socket.socket, into: "array[int]") -> int:
    fcntl.ioctl(sock, termios.TIOCOUTQ, into)
    return into[0]


def acknowledged_frames(receive_buffer: int | None) -> int:
    into = array("i", [0])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.connect(server.getsockname())
        writer, _ = server.accept()
        with writer:
            writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frames = 0
            while True:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # else an acknowledgement takes 40 ms
                writer.sendall(FRAME)
                stuck_s = time.monotonic() + STUCK_S
                while outstanding(writer, into):
                    if time.monotonic() > stuck_s:
                        return frames
                    time.sleep(0)
                frames += 1


def look_us() -> float:
    into = array("i", [0])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        start = time.thread_time()
        for _ in range(LOOKS):
            outstanding(client, into)
        return (time.thread_time() - start) / LOOKS * 1e6


def main() -> int:
    for name, receive_buffer in BUFFERS.items():
        print(f"{name}: {acknowledged_frames(receive_buffer):,} frames of {len(FRAME)} bytes")
    print(f"one look: {statistics.median(look_us() for _ in range(ROUNDS)):.2f} µs, median of {ROUNDS} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
