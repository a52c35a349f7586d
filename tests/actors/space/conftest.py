"""The stores that the contract is held against."""

from pathlib import Path

import pytest

from tests.actors.space.shelves import MemoryShelf, Shelf, SqliteShelf


@pytest.fixture(params=["memory", "sqlite"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    return MemoryShelf() if request.param == "memory" else SqliteShelf(tmp_path)
