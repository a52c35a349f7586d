"""Look for personal data: our scanner, with hyperscan and without, beside presidio's pattern recognizers.

    python -m bench.pii

All look at the same strings for the same six kinds (e-mail, phone, card, IBAN, US SSN, IP); a KB is one of the JSON
that the strings came in. presidio is no dependency of ours: the first run installs it (400 MB) into an environment of
its own, `~/.cache/heliograph-bench/presidio`, and a child process there does the work (`--without-presidio`: not).
The rounds alternate, so that a noisy machine disturbs all alike; the ratio of the medians is what counts.
"""

import json
import os
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path
from random import Random
from typing import Any

from gateway.governance.pii.kinds import FINDERS
from gateway.governance.pii.prefilter import HAS_HYPERSCAN, with_hyperscan, with_tables
from gateway.governance.pii.scanner import Scanner
from tests.gateway.governance.corpus import PLANTS, machine_text, telemetry

PRESIDIO = "presidio-analyzer==2.2.366"
PRESIDIO_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heliograph-bench" / "presidio"
ROUNDS = 9
CLEAN_US_PER_KB_MAX = 30.0  # what the first sketch of prefilter, pattern, checksum took

# Reads {workload: [text, …]} and prints {workload: [seconds of a round, …]}.
PRESIDIO_CHILD = """
import json, logging, sys, time
logging.disable()
from presidio_analyzer.predefined_recognizers import (
    CreditCardRecognizer, EmailRecognizer, IbanRecognizer, IpRecognizer, PhoneRecognizer, UsSsnRecognizer)
kinds = [EmailRecognizer, PhoneRecognizer, CreditCardRecognizer, IbanRecognizer, UsSsnRecognizer, IpRecognizer]
recognizers = [kind() for kind in kinds]
def scan(text):
    for recognizer in recognizers:
        recognizer.analyze(text, recognizer.supported_entities, None)
scan("a@example.com")
workloads, spent = json.load(sys.stdin), {}
for name, texts in workloads.items():
    spent[name] = []
    for _ in range(3):
        start = time.perf_counter()
        for text in texts:
            scan(text)
        spent[name].append(time.perf_counter() - start)
json.dump(spent, sys.stdout)
"""


def workloads() -> dict[str, list[Any]]:
    random = Random(1)
    kinds = list(FINDERS)

    def planted() -> str:
        return f"{machine_text(random)}, ask {PLANTS[random.choice(kinds)](random)} about it"

    return {
        "telemetry, a frame": [telemetry(random) for _ in range(300)],
        "telemetry, 16 KB": [[telemetry(random) for _ in range(50)] for _ in range(6)],
        "machine text, 4 KB": [[machine_text(random) for _ in range(120)] for _ in range(25)],
        "one finding in 1 KB": [[planted(), *(machine_text(random) for _ in range(28))] for _ in range(50)],
        "all findings, 1 KB": [[planted() for _ in range(16)] for _ in range(50)],
    }


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in inner for text in strings(item)]


def seconds(scanner: Scanner, bodies: list[Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        for body in bodies:
            scanner.find(body)
    return (time.perf_counter() - start) / times


def presidio(bodies: dict[str, list[Any]]) -> dict[str, list[float]] | None:
    """Seconds of each round, or nothing when it cannot be installed."""
    python = PRESIDIO_HOME / "bin" / "python"
    try:
        if not python.exists():
            print(f"installing {PRESIDIO} into {PRESIDIO_HOME} (first time: a minute or two) ...", file=sys.stderr)
            venv.create(PRESIDIO_HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PRESIDIO], check=True, stderr=subprocess.DEVNULL)
        texts = {name: ["\n".join(strings(body)) for body in some] for name, some in bodies.items()}
        print("presidio ...", file=sys.stderr)
        child = subprocess.run(
            [python, "-c", PRESIDIO_CHILD], input=json.dumps(texts), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as failed:
        print(f"without presidio, which could not be installed or run: {failed}", file=sys.stderr)
        return None
    spent: dict[str, list[float]] = json.loads(child.stdout)
    return spent


def main() -> int:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bodies = workloads()
    engines = {"tables": with_tables} | ({"hyperscan": with_hyperscan} if HAS_HYPERSCAN else {})
    scanners = {name: Scanner(list(FINDERS), prefilter=prefilter) for name, prefilter in engines.items()}
    spent: dict[str, dict[str, list[float]]] = {workload: {name: [] for name in scanners} for workload in bodies}
    for round_number in range(1, ROUNDS + 1):
        for workload, some in bodies.items():
            for name, scanner in scanners.items():
                spent[workload][name].append(seconds(scanner, some, 5))
        print(f"\rround {round_number} of {ROUNDS}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    theirs = None if "--without-presidio" in sys.argv else presidio(bodies)
    if theirs:
        for workload in bodies:
            spent[workload]["presidio"] = theirs[workload]
    columns = [*(["hyperscan"] if HAS_HYPERSCAN else []), "tables", *(["presidio"] if theirs else [])]
    report: dict[str, dict[str, float]] = {}
    print(f"{'µs per KB of JSON (medians)':28}" + "".join(f"{column:>12}" for column in columns))
    for workload, some in bodies.items():
        kilobytes = sum(len(json.dumps(body, ensure_ascii=False).encode()) for body in some) / 1024
        report[workload] = {name: statistics.median(spent[workload][name]) / kilobytes * 1e6 for name in columns}
        print(f"{workload:28}" + "".join(f"{report[workload][column]:12.1f}" for column in columns))
    clean = report["telemetry, 16 KB"][columns[0]]
    print(f"clean telemetry {clean:.1f} µs per KB (expected at most {CLEAN_US_PER_KB_MAX:.0f})")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "pii.json").write_text(json.dumps({"us_per_kb": report, "rounds": ROUNDS}, indent=2) + "\n")
    return 0 if clean <= CLEAN_US_PER_KB_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
