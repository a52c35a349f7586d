"""Decode and validate one telemetry envelope: our codec beside `json` with `jsonschema`, in the same run.

    python -m bench.decode

Both do the same work on the same bytes: parse, check envelope and payload by the published schemas. The rounds
alternate, so that a noisy machine disturbs both alike; the ratio of the medians is what counts.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from jsonschema import Draft202012Validator

from schemas.frames import Side, Telemetry, decode
from schemas.registry import REGISTRY

FRAME = (
    b'{"type":"telemetry","msg_id":"01HZXC0000000000000000DEV0","in_reply_to":"01HZXC0000000000000000SRV0",'
    b'"payload":{"ts_ms":1745300000000,"node_id":"01hzx9k3m4p7q8r9s0t1v2w3xy","cpu_pct":12.4,"mem_bytes":1234567890,'
    b'"mem_total_bytes":8589934592,"disk_pct":31.2,"load_1m":0.42,"load_5m":0.39,"load_15m":0.35}}'
)
ENVELOPE = Draft202012Validator(REGISTRY["node.wire.envelope@2.2.0"].document)
PAYLOAD = Draft202012Validator(REGISTRY["system.metrics.subscribe.frame@1.0.0"].document)
ROUNDS = 15
EXPECTED_RATIO = 15.0


def with_codec() -> None:
    assert isinstance(decode(FRAME, Side.NODE), Telemetry)


def with_jsonschema() -> None:
    raw = json.loads(FRAME)
    assert ENVELOPE.is_valid(raw)
    assert PAYLOAD.is_valid(raw["payload"])


def microseconds(work: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times * 1e6


def main() -> int:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    ours, theirs = [], []
    for round_number in range(1, ROUNDS + 1):
        ours.append(microseconds(with_codec, 5000))
        theirs.append(microseconds(with_jsonschema, 250))
        print(f"\rround {round_number} of {ROUNDS}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    codec_us, jsonschema_us = statistics.median(ours), statistics.median(theirs)
    ratio = jsonschema_us / codec_us
    print(f"{'':24}{'median µs':>12}{'best µs':>12}")
    print(f"{'codec (jsonschema-rs)':24}{codec_us:12.2f}{min(ours):12.2f}")
    print(f"{'json + jsonschema':24}{jsonschema_us:12.2f}{min(theirs):12.2f}")
    print(f"ratio {ratio:.1f}x (expected at least {EXPECTED_RATIO:.0f}x)")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    report = {"codec_us": codec_us, "jsonschema_us": jsonschema_us, "ratio": ratio, "rounds": ROUNDS}
    (results / "decode.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if ratio >= EXPECTED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
