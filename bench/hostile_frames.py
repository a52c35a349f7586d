"""CPU time for the worst frames that we could make: how long one node's frame can hold up the event loop.

    python -m bench.hostile_frames

Each is as large as a frame may be and wrong at its very end, or wrong everywhere, so that it is parsed and looked
through whole before it is refused.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from schemas.frames import FRAME_BYTES_MAX, Side, decode

ROUNDS = 15
ULID = "01HZXC0000000000000000DEV0"


def frame(kind: str, payload: Any) -> bytes:
    return json.dumps({"type": kind, "msg_id": ULID, "payload": payload}, separators=(",", ":")).encode()


def largest(kind: str, item: Any, wrap: Any) -> bytes:
    """With as many items as fit."""
    room = FRAME_BYTES_MAX - len(frame(kind, wrap([])))
    return frame(kind, wrap([item] * (room // (len(json.dumps(item, separators=(",", ":"))) + 1))))


def hostile() -> Iterator[tuple[str, bytes]]:
    outcome = {"msg_id": ULID, "outcome": "done"}
    yield "resume, wrong outcomes", largest("resume", outcome, lambda items: {"last_cmd": None, "outcomes": items})
    yield "resume, numbers", largest("resume", 1, lambda items: {"last_cmd": None, "outcomes": items})
    yield "announce, wrong capabilities", largest("announce", {}, lambda items: {"manifest": {"capabilities": items}})
    yield "announce, unknown members", frame("announce", {f"m{n:05}": 0 for n in range(11_000)})
    yield "telemetry, unknown members", frame("telemetry", {f"m{n:05}": 0 for n in range(11_000)})
    yield "cmd_ack, a deep result", frame("cmd_ack", {"ok": 1, "result": json.loads("[" * 100 + "]" * 100)})
    yield "cmd_ack, a wide result", largest("cmd_ack", [], lambda items: {"ok": 1, "result": items})
    yield "no JSON at the end", largest("telemetry", 1, lambda items: items)[:-1]


def milliseconds(data: bytes) -> float:
    start = time.thread_time()
    decode(data, Side.NODE)
    return (time.thread_time() - start) * 1e3


def main() -> int:
    for name, data in hostile():
        took = [milliseconds(data) for _ in range(ROUNDS)]
        print(f"{name:30} {len(data):8,} bytes  median {statistics.median(took):6.2f} ms  worst {max(took):6.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
