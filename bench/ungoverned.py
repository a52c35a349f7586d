"""`heliograph serve` without governance: nothing but what `bench.governance` compares with."""

import sys

import gateway.server
from gateway.cli import main

vars(gateway.server)["Governor"] = lambda *_: None

if __name__ == "__main__":
    sys.exit(main())
