"""`heliograph serve` without governance: nothing but what `bench.governance` compares with."""

import sys

import gateway.main.server
from gateway.commands.cli import main

vars(gateway.main.server)["Governor"] = lambda *_: None

if __name__ == "__main__":
    sys.exit(main())
