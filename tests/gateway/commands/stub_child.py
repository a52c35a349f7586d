"""A gateway as its parent sees it: `stub_child.py FOLDER … --child FD`. FOLDER says what it does, and is told of it."""

import os
import sys
from pathlib import Path

folder, fd = Path(sys.argv[1]), int(sys.argv[-1])
with (folder / "started").open("a") as started:
    started.write(f"{os.getpid()}\n")
plan = (folder / "plan").read_text()
if plan == "cannot":
    sys.exit(2)
if plan == "ready":
    os.write(fd, b'{"http":"h","devices":"d","admin":"h"}\n')
os.read(fd, 1)  # until its parent is gone, or a signal ends it
