"""A process whose disk fails: run with `faults.c` preloaded, says on standard output what its callers were told.

python -m tests.actors.log.fault_child DATABASE APPENDS_BEFORE SUFFIX OP NTH HOW [WAL_BYTES_MAX]
"""

import ctypes
import sys
from pathlib import Path

import trio

from actors.log.sqlite_files import wal_of
from actors.log.sqlite_store import SqliteStore
from actors.log.store import DEFAULT_LIMITS, Appended, AppendRefused, LogLimits, StoreFailedError
from tests.actors.log.shelves import part


def say(*words: object) -> None:
    print(*words, flush=True)


async def append(store: SqliteStore, stream: str, version: int) -> bool:
    try:
        answer = await store.append(part(stream, version, f"event {version}"))
    except StoreFailedError as failure:
        say("failed", stream, failure)
        return False
    match answer:
        case Appended():
            say("acked", stream, answer.version)
        case AppendRefused():
            say("refused", stream, answer.reason)
        case _:
            say("conflict", stream, answer)
    return isinstance(answer, Appended)


async def main(path: Path, before: int, suffix: str, op: int, nth: int, how: int, limits: LogLimits) -> None:
    arm = ctypes.CDLL(None).fault_arm
    store = await SqliteStore.open(path, limits)
    with trio.fail_after(30):
        for version in range(before):
            await append(store, "a", version)
        arm(suffix.encode(), op, nth, how)
        async with trio.open_nursery() as nursery:  # in flight together when it happens
            for stream in ("a", "b", "c"):
                nursery.start_soon(append, store, stream, before if stream == "a" else 0)
        await append(store, "later", 0)
        say("readable", len(await store.read("a")))
        with trio.move_on_after(0.05):
            try:
                await store.watch()
            except StoreFailedError as failure:
                say("watched", failure)
        try:
            await store.close()
        except StoreFailedError as failure:
            say("unclosed", failure)
        wal = wal_of(path)
        say("wal", wal.stat().st_size if wal.exists() else 0)


if __name__ == "__main__":
    _, database, before, suffix, op, nth, how, *wal_bytes_max = sys.argv
    limits = LogLimits(wal_bytes_max=int(wal_bytes_max[0])) if wal_bytes_max else DEFAULT_LIMITS
    trio.run(main, Path(database), int(before), suffix, int(op), int(nth), int(how), limits)
