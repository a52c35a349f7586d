"""What the measurement is at, for whoever waits for it."""

import os
import sys


def note(text: str) -> None:
    print(f"[load {os.getloadavg()[0]:.1f}] {text}", file=sys.stderr, flush=True)
