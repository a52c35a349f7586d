"""A process that appends as fast as it can and says what was acknowledged, until it is killed.

python -m tests.actors.log.kill_child DATABASE
"""

import sys
from pathlib import Path

import trio

from actors.log.sqlite_store import SqliteStore
from actors.log.store import Appended, LogLimits, OpenItem, Part

STREAMS = 16
SECONDS_MAX = 60.0


async def append_on(store: SqliteStore, stream: str) -> None:
    version = (await store.load(stream)).version
    while True:
        # Three events a command: two that open it in one append, one that closes it. An earlier process may have been
        # killed between the two.
        key = f"{version // 3:08d}"
        if version % 3 == 0:
            item = OpenItem(key, b"open")
            part = Part(stream, version, 0, (b"queued", b"sent"), opened=(item,), snapshot=b"%d" % version)
        else:
            part = Part(stream, version, 0, (b"acked",), closed=(key,))
        answer = await store.append(part)
        assert isinstance(answer, Appended), answer
        version = answer.version
        print(stream, version, flush=True)


async def main(path: Path) -> None:
    # Small bounds, so that a kill also meets checkpoints.
    async with await SqliteStore.open(path, LogLimits(wal_bytes_max=200_000)) as store:
        print("open", 0, flush=True)
        with trio.move_on_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                for number in range(STREAMS):
                    nursery.start_soon(append_on, store, f"s{number}")


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
