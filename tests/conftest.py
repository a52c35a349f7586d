"""What tests of several packages need.

Those of the log on a real nats-server are run by `make engine`, and left out elsewhere until engine mode can be used:
what JetStream answers is scripted in the others.
"""

import os
from collections.abc import Iterator

import pytest
import trio

from gateway.engine.server_run import ServerRun
from tests.signals import let_children_hear

let_children_hear()

HAS_NATS = os.environ.get("NATS_TESTS") == "run"
_ON_A_SERVER = {
    "test_connection.py",
    "test_kv_contract.py",
    "test_nats_cluster.py",
    "test_nats_store.py",
    "test_objects.py",
    "test_server_run.py",
}
BYTES_MAX = 2**36  # JetStream counts what objects may grow to, not what they have


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerRun]:
    """One for all tests that leave it alone; each has objects of its own there."""
    server = ServerRun(tmp_path_factory.mktemp("nats"), BYTES_MAX)
    trio.run(server.start)
    yield server
    trio.run(server.stop)


def _needs_server(item: pytest.Item) -> bool:
    is_of_engine = item.path.parent.name == "engine" and item.path.name in _ON_A_SERVER
    return is_of_engine or "[nats" in item.name or "TestNatsLog" in item.nodeid


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not HAS_NATS:
        config.hook.pytest_deselected(items=[item for item in items if _needs_server(item)])
        items[:] = [item for item in items if not _needs_server(item)]
