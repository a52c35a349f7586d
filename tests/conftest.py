"""What tests of several packages need."""

from collections.abc import Iterator

import pytest
import trio

from gateway.engine.server_run import ServerRun

BYTES_MAX = 2**36  # JetStream counts what objects may grow to, not what they have


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerRun]:
    """One for all tests that leave it alone; each has objects of its own there."""
    server = ServerRun(tmp_path_factory.mktemp("nats"), BYTES_MAX)
    trio.run(server.start)
    yield server
    trio.run(server.stop)
