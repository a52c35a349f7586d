"""What tests of several packages need."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import settings

from gateway.engine.server_run import ServerRun
from gateway.net.http1.tls_connection import ALPN
from tests import transport as transports
from tests.certificates import tls_contexts
from tests.signals import let_children_hear

let_children_hear()

settings.register_profile("heliograph", deadline=None)  # how long something took is no test's business
settings.load_profile("heliograph")

BYTES_MAX = 2**36  # JetStream counts what objects may grow to, not what they have


@pytest.fixture
def contexts(tmp_path: Path) -> transports.Contexts:
    """TLS of a server and of a client that trusts it. Each test has its own: clients set their protocols on theirs."""
    server, client = tls_contexts(tmp_path)
    server.set_alpn_protocols(ALPN)
    return server, client


@pytest.fixture(params=["plain", "tls"])
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """What holds in the clear holds over TLS: sites and clients of this test speak the one, then the other."""
    transports.use(request.getfixturevalue("contexts") if request.param == "tls" else None)
    yield request.param
    transports.use(None)


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerRun]:
    """One a process of pytest, for all tests that leave it alone; each has objects of its own there.

    Where there is no `nats-server`, these tests fail: no outcome is pretended.
    """
    server = ServerRun(tmp_path_factory.mktemp("nats"), BYTES_MAX)
    trio.run(server.start)
    yield server
    trio.run(server.stop)
