"""`heliograph serve` without governance: nothing but what `bench.governance` compares with."""

import sys

import gateway.server
from gateway.cli import main

gateway.server.Governor = lambda *_: None  # type: ignore[assignment, misc]

if __name__ == "__main__":
    sys.exit(main())
