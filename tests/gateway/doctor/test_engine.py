"""What doctor finds of the NATS servers that the settings name: those that answer, those that do not, and impostors."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from gateway.commands.cli import main
from gateway.doctor import engine_look
from gateway.doctor.engine_look import look_at_engine
from gateway.doctor.engine_rules import engine_findings
from gateway.doctor.facts import EngineServer
from gateway.doctor.finding import Severity
from gateway.engine.server_run import ServerRun
from gateway.main.settings import Settings, load

ERROR, WARNING = Severity.ERROR, Severity.WARNING
GOOD = EngineServer("a:4222", answers=True, has_jetstream=True)
QUIET = EngineServer("b:4222", answers=True)  # as one that begins with TLS
GONE = EngineServer("c:4222", why="Connection refused")
BARE = EngineServer("d:4222", answers=True, has_jetstream=False)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ((), []),
        ((GOOD,), []),
        ((QUIET,), []),
        ((GONE,), [ERROR]),
        ((GONE, GONE), [ERROR, ERROR]),
        ((GOOD, GONE), [WARNING]),
        ((QUIET, GONE), [WARNING]),
        ((BARE,), [ERROR]),
        ((GOOD, BARE), [ERROR]),
        ((EngineServer(""),), []),
        ((EngineServer(""), GONE), [ERROR]),
    ],
)
def test_servers(servers: tuple[EngineServer, ...], expected: list[Severity]) -> None:
    found = list(engine_findings(servers))
    assert [finding.severity for finding in found] == expected
    assert all(finding.about == "engine" and finding.matter and finding.remedy for finding in found)


def of(*urls: str) -> Settings:
    return load(None, {}, {"engine.url": ",".join(urls)})


@contextmanager
def saying(greeting: bytes) -> Iterator[str]:
    """Whoever connects is told this, and nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with closing(server.accept()[0]) as connection:
                connection.sendall(greeting)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("greeting", "has_jetstream"),
    [
        (b'INFO {"server_id":"N","jetstream":true}\r\n', True),
        (b'INFO {"server_id":"N"}\r\n', False),
        (b'INFO {"jetstream":"true"}\r\n', False),
        (b"INFO []\r\n", False),
        (b"INFO {\r\n", None),
        (b"INFO " + b"[" * 10_000 + b"\r\n", None),
        (b"\xff\xfe\r\n", None),
        (b"SSH-2.0-OpenSSH\r\n", None),
        (b"", None),
        (b"INFO " + b"x" * 20_000, None),
    ],
)
def test_greeting_says_whether_there_is_jetstream(greeting: bytes, has_jetstream: bool | None) -> None:
    with saying(greeting) as address:
        assert look_at_engine(of(f"nats://{address}")) == (EngineServer(address, True, has_jetstream),)


def test_server_that_says_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_look, "ANSWER_S_MAX", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert look_at_engine(of(f"tls://{address}")) == (EngineServer(address, True, None),)


def test_gateway_without_an_engine_asks_nobody() -> None:
    assert look_at_engine(Settings()) == ()


def test_address_that_is_none_is_passed_over() -> None:
    assert look_at_engine(of("nats://127.0.0.1:nonsense")) == (EngineServer(""),)


async def test_server_of_nats_is_one(nats_server: ServerRun) -> None:
    (server,) = look_at_engine(of(nats_server.url))
    assert (server.answers, server.has_jetstream) == (True, True)


def test_doctor_tells_of_a_server_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("HELIOGRAPH_ENGINE_URL", f"nats://{address}")
        assert main(["doctor", "--json", "--data", str(tmp_path / "data")]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = [one for one in found if one["about"] == "engine"]
    assert (finding["severity"], address in finding["matter"]) == ("error", True)
