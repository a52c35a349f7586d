"""A process killed while it writes: everything it had reported as acknowledged is there afterwards."""

import random
import subprocess
import sys
from pathlib import Path

from actors.log.sqlite_store import SqliteStore
from tests.actors.log.kill_child import STREAMS
from tests.actors.log.shelves import bounded

ROOT = Path(__file__).parents[3]
ROUNDS = 6


def run_until_killed(path: Path, lines: int) -> dict[str, int]:
    """The highest version of each stream that the process reported before it was killed."""
    reported: dict[str, int] = {}
    command = [sys.executable, "-m", "tests.actors.log.kill_child", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            if line.endswith("\n"):  # the last one may be cut off, and then it was not reported
                stream, version = line.split()
                reported[stream] = int(version)
            if number == lines:
                child.kill()
    assert child.returncode == -9
    return reported


@bounded
async def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    chance = random.Random(3)
    reported: dict[str, int] = {}
    for _ in range(ROUNDS):
        reported |= run_until_killed(path, chance.randrange(1, 1_500))
        async with await SqliteStore.open(path) as store:
            for number in range(STREAMS):
                stream = f"s{number}"
                loaded = await store.load(stream)
                # Of each stream one append was in flight, of at most two events.
                assert reported.get(stream, 0) <= loaded.version <= reported.get(stream, 0) + 2
                versions = [event.version for event in await store.read(stream, limit=10_000)]
                assert versions == list(range(1, loaded.version + 1))
                # The projection and the snapshot were written with the events they follow from.
                is_open = loaded.version % 3 == 2
                assert [item.data for item in loaded.open_items] == [b"open"] * is_open
                assert loaded.version == 0 or loaded.snapshot is not None
                reported[stream] = loaded.version
