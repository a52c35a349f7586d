"""The stores that the contract is held against, and a disk that fails."""

import subprocess
from pathlib import Path

import pytest

from tests.actors.log.shelves import MemoryShelf, NatsShelf, Shelf, SqliteShelf


@pytest.fixture(params=["memory", "sqlite", "nats"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    match request.param:
        case "memory":
            return MemoryShelf()
        case "sqlite":
            return SqliteShelf(tmp_path)
        case _:
            return NatsShelf(request.getfixturevalue("nats_server"))


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be preloaded into a process (`LD_PRELOAD`)."""
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return library
