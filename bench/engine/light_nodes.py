"""Nodes that take little of the machine: one process on one `epoll` speaks for all of them.

    python -m bench.engine.light_nodes FILE

The file is a list of nodes: `port` of the gateway, and `said`, the frames of the opening (`bench.reconnect`). A node
answers each echo at once and sends a frame of telemetry, so many a second, for each cadence that is open. Orders come
on standard input, each a line of JSON; each is answered by a line:

    {"dial": [FIRST, LAST]}         these nodes connect       -> when all are live
    {"rates": {NODE: HZ, …}}        of its telemetry; the others send none
"""

import contextlib
import heapq
import json
import resource
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.ingest import FRAME, masked
from bench.reconnect import UPGRADE

AT_ONCE = 64
HEARTBEAT_S = 25.0
TURN_MS = 5
_ID = "01JD0000000000000000000001"  # of each frame that a node sends: nothing depends on it


class Node:
    def __init__(self, node_id: str, port: int, said: list[bytes]) -> None:
        self.node_id = node_id
        self.hz = 0.0
        self.cadences: list[bytes] = []  # a frame of each, as it is sent
        self._port = port
        self._said = said
        self._to_say: list[bytes] = []
        self._heard = b""
        self.is_live = False
        self.sock = socket.socket()
        self.sock.close()

    def dial(self) -> None:
        self._to_say, self._heard, self.is_live, self.cadences = [*reversed(self._said)], b"", False, []
        self.sock = socket.create_connection(("127.0.0.1", self._port), timeout=10)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(UPGRADE)
        self.sock.setblocking(False)

    def on_readable(self) -> None:
        """Raises ConnectionError."""
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError(f"the gateway closed the connection of {self.node_id}: {self._heard[-200:]!r}")
        self._heard += data
        if self._heard.startswith(b"HTTP/"):
            head, end, rest = self._heard.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                raise ConnectionError(f"the gateway took no connection of {self.node_id}: {head[:200]!r}")
            self._heard = rest
            self._say()
        for frame in self._frames():
            self._on_frame(msgspec.json.decode(frame))

    def _frames(self) -> Iterator[bytes]:
        while len(self._heard) >= 4:
            start, length = (4, int.from_bytes(self._heard[2:4])) if self._heard[1] == 126 else (2, self._heard[1])
            if len(self._heard) < start + length:
                return
            opcode, frame = self._heard[0] & 15, self._heard[start : start + length]
            self._heard = self._heard[start + length :]
            if opcode == 8:
                raise ConnectionError(f"the gateway closed the session of {self.node_id}: {frame!r}")
            if opcode == 1:
                yield frame

    def _say(self) -> None:
        if self._to_say:
            self.sock.send(self._to_say.pop())

    def _on_frame(self, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if kind == "cmd":
            self._on_command(frame["msg_id"], frame["payload"])
        elif kind in ("auth_ok", "announce_ack"):
            self._say()
        elif kind == "resume_ok":
            self.is_live = True
        elif kind == "cmd_cancel":
            self.cadences = [each for each in self.cadences if frame["in_reply_to"].encode() not in each]

    def _on_command(self, msg_id: str, payload: dict[str, Any]) -> None:
        if payload["tool"].endswith(".subscribe"):
            result: dict[str, Any] = {}
            frame = {"ts_ms": FRAME["ts_ms"], "node_id": self.node_id} | FRAME
            self.cadences.append(framed("telemetry", frame, msg_id))
        else:
            message = payload["arguments"]["message"]
            result = {"message": message, "received_at_ms": FRAME["ts_ms"], "node_id": self.node_id}
        self.sock.send(framed("cmd_ack", {"ok": True, "result": result}, msg_id))

    def send(self, data: bytes) -> None:
        with contextlib.suppress(BlockingIOError):  # a gateway that reads too slowly: the frame is lost, as at a node
            self.sock.send(data)


def framed(kind: str, payload: dict[str, Any], in_reply_to: str) -> bytes:
    frame = {"type": kind, "msg_id": _ID, "in_reply_to": in_reply_to, "payload": payload}
    return masked(json.dumps(frame, separators=(",", ":")).encode().ljust(126))


class Nodes:
    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self._nodes = [Node(entry["node_id"], entry["port"], entry["said"]) for entry in entries]
        self._by_id = {node.node_id: node for node in self._nodes}
        self._by_fd: dict[int, Node] = {}
        self._due: list[tuple[float, int, str, str]] = []  # when, a number, "beat" or "frame", node
        self._number = 0
        self._heartbeat = masked(
            json.dumps({"type": "heartbeat", "msg_id": _ID, "payload": {"manifest_etag": None}}).encode().ljust(126)
        )
        self._epoll = select.epoll()

    def run(self) -> None:
        """Until standard input ends."""
        self._epoll.register(sys.stdin, select.EPOLLIN)
        while True:
            if self.turn():
                line = sys.stdin.readline()
                if not line:
                    return
                self._obey(json.loads(line))
                print("done", flush=True)

    def turn(self) -> bool:
        """Whether there is an order."""
        has_order = False
        for fd, _ in self._epoll.poll(TURN_MS / 1000):
            if fd == sys.stdin.fileno():
                has_order = True
            else:
                try:
                    self._by_fd[fd].on_readable()
                except (ConnectionError, OSError) as error:
                    raise SystemExit(str(error)) from error
        self._send_what_is_due(time.monotonic())
        return has_order

    def _send_what_is_due(self, now_s: float) -> None:
        while self._due and self._due[0][0] <= now_s:
            due_s, _, what, node_id = heapq.heappop(self._due)
            node = self._by_id[node_id]
            if what == "beat":
                node.send(self._heartbeat)
                self._plan(due_s + HEARTBEAT_S, what, node_id)
            elif node.hz:
                for frame in node.cadences:
                    node.send(frame)
                self._plan(max(due_s + 1 / node.hz, now_s - 0.1), what, node_id)

    def _plan(self, at_s: float, what: str, node_id: str) -> None:
        self._number += 1
        heapq.heappush(self._due, (at_s, self._number, what, node_id))

    def _obey(self, order: dict[str, Any]) -> None:
        match order:
            case {"dial": [first, last]}:
                self._dial(self._nodes[first:last])
            case {"rates": rates}:
                self._set_rates(rates)

    def _dial(self, nodes: list[Node]) -> None:
        to_dial, under_way = deque(nodes), list[Node]()
        while to_dial or under_way:
            while to_dial and len(under_way) < AT_ONCE:
                node = to_dial.popleft()
                node.dial()
                self._by_fd[node.sock.fileno()] = node
                self._epoll.register(node.sock, select.EPOLLIN)
                under_way.append(node)
            self.turn()
            under_way = [node for node in under_way if not node.is_live]
        now_s = time.monotonic()
        for number, node in enumerate(nodes):
            self._plan(now_s + HEARTBEAT_S * (number + 1) / len(nodes), "beat", node.node_id)

    def _set_rates(self, rates: dict[str, float]) -> None:
        self._due = [each for each in self._due if each[2] == "beat"]
        heapq.heapify(self._due)
        now_s = time.monotonic()
        for node in self._nodes:
            node.hz = rates.get(node.node_id, 0.0)
            if node.hz:
                self._number += 1
                spread = self._number % 97 / 97  # frames of many nodes are not sent at the same moment
                self._plan(now_s + spread / node.hz, "frame", node.node_id)


def main() -> None:
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
    Nodes(msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=list[dict[str, Any]])).run()


if __name__ == "__main__":
    main()
