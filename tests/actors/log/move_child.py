"""Opens copies of a log, each in a process of its own that dies one step later than the one before.

python -m tests.actors.log.move_child LOG FOLDER, with `faults.c` preloaded. What each of them leaves is in a folder of
its own in FOLDER: one died in the middle of the first write to a file, one in that of the second, and so on, and one at
each sync.
"""

import ctypes
import os
import shutil
import sys
from itertools import count
from pathlib import Path

from actors.log.sqlite_files import open_files

SYNC, WRITE = 1, 2
TORN_THEN_DEATH = -2


def open_and_die(path: Path, suffix: str, op: int, nth: int) -> bool:
    """False if it was opened before the nth."""
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).fault_arm(suffix.encode(), op, nth, TORN_THEN_DEATH)
        open_files(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 9)
    return os.waitstatus_to_exitcode(status) == 9


def main(log: Path, folder: Path) -> None:
    for suffix in (".sqlite", ".sqlite-wal"):
        for op in (SYNC, WRITE):
            for nth in count(1):
                path = folder / f"{suffix[1:]}-{op}-{nth:03}" / "log.sqlite"
                shutil.copytree(log.parent, path.parent)
                if not open_and_die(path, suffix, op, nth):
                    break


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
