"""How long it takes to erase the keys of echo spaces that end together: the figure of docs/reference/spaces.md.

    python -m bench.space_ends [--spaces 10000] [--folder DIR]

Makes that many empty spaces in a store on a disk, then erases their keys, as a sweep does when all of them have ended.
The time is mostly that of the disk's syncs, so name a folder on the disk that matters.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import trio
from ulid import ULID

from actors.space.sqlite_space_store import SqliteSpaceStore


async def erase(folder: Path, count: int) -> float:
    async with await SqliteSpaceStore.at(folder) as store:
        await store.load()
        ids = [str(ULID()).lower() for _ in range(count)]
        for space_id in ids:
            refused = await store.create(space_id)
            assert refused is None, refused
        start = time.perf_counter()
        await store.erase_keys(ids)
        return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", type=int, default=10_000)
    parser.add_argument("--folder", help="a folder on the disk to measure (default: a temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        took_s = trio.run(erase, Path(folder), arguments.spaces)
    print(f"the keys of {arguments.spaces:,} spaces are erased in {took_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
