"""Settings of an engine: what cannot be is refused before anything starts, with what to do instead."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import trio
from ulid import ULID

from actors.engine.bus_messages import Ping, Pong, encode
from actors.log.store import CannotOpenError
from gateway.engine.server_run import ServerRun
from gateway.main.engine_check import FEEDS_MOST, check_engine
from gateway.main.server import running
from gateway.main.settings import SettingsError, load
from gateway.main.start_check import start_findings
from tests.gateway.engine.on_engine import on_engine

NATS_PAYLOAD_BYTES_MAX = 1024 * 1024  # its default
HEADERS_ROOM_BYTES = 4096
URL = {"engine.url": "nats://127.0.0.1:4222"}


def test_a_gateway_by_itself_has_nothing_to_check() -> None:
    check_engine(load(None, {}, {}))
    check_engine(load(None, {}, {**URL, "engine.url": "nats://a:4222, tls://b:4222"}))


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"engine.processes": 2}, "--engine"),
        ({**URL, "echo.enabled": True}, "spaces"),
        ({"engine.url": ""}, "nats://HOST:PORT"),
        ({"engine.url": "http://a:1"}, "nats://HOST:PORT"),
        ({"engine.url": "nats://a:99999"}, "nats://HOST:PORT"),
        ({"engine.url": "nats://me:secret@a:4222"}, "engine.credentials"),
        ({**URL, "engine.credentials": "/there/is/no/such/file"}, "names no file"),
        ({**URL, "engine.processes": 0}, "processes"),
        ({**URL, "engine.replicas": 0}, "replicas"),
        ({**URL, "engine.dead_s": 4.0}, "heartbeats"),
        ({**URL, "engine.lost_s_max": 1.0}, "heartbeat"),
        ({**URL, "engine.batch_min": 1}, "batch_min"),
        ({**URL, "engine.log_bytes_max": 0}, "log_bytes_max"),
        ({**URL, "engine.feeds_max": 0}, "feeds_max"),
        ({**URL, "engine.feeds_max": FEEDS_MOST + 1}, "feeds_max"),
        ({**URL, "engine.listeners_max": 0}, "listeners_max"),
        ({**URL, "engine.internal_listen": "10.0.0.5:0"}, "a port from 1"),
        ({**URL, "engine.internal_listen": "0.0.0.0:9000"}, "an address of this machine"),
        ({**URL, "engine.internal_listen": "[::]:9000"}, "an address of this machine"),
        ({**URL, "engine.mqtt": "nowhere"}, "HOST:PORT"),
        ({**URL, "engine.mqtt": "127.0.0.1:0"}, "HOST:PORT"),
        ({**URL, "engine.mqtt": "a:1883", "engine.mqtt_credentials": "/no/such"}, "names no file"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(wrong: dict[str, Any], hint: str) -> None:
    with pytest.raises(SettingsError, match=hint) as refused:
        check_engine(load(None, {}, wrong))
    assert "secret" not in str(refused.value)


def test_one_message_names_as_many_feeds_as_a_gateway_may_have() -> None:
    process = str(ULID())
    names = tuple(f"{process}.{10**9 + number}" for number in range(FEEDS_MOST))  # after a billion others
    for message in Ping(process, names), Pong(names):
        assert len(encode(message)) < NATS_PAYLOAD_BYTES_MAX - HEADERS_ROOM_BYTES


def test_streams_of_as_many_nodes_as_a_gateway_has_streams_find_their_nodes_elsewhere() -> None:
    bounds = load(None, {}, URL).engine.bus
    assert bounds.feeds_max >= load(None, {}, URL).stream.streams_max
    assert bounds.listeners_max >= bounds.feeds_max


def test_missing_packages_are_named_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("gateway.main.engine_check.find_spec", lambda name: None if name == "nats" else found(name))
    with pytest.raises(SettingsError, match=r"pip install 'heliograph\[gateway,engine\]'"):
        check_engine(load(None, {}, URL))


def test_a_check_before_the_start_says_it_too(tmp_path: Path) -> None:
    findings = start_findings(load(None, {}, {**URL, "echo.enabled": True, "data": str(tmp_path / "data")}))
    assert [finding.about for finding in findings if "spaces" in finding.matter] == ["engine"]


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"engine.prefix": "Not one"}, "prefix"),
        ({"engine.sync_is_always": False}, "sync_interval: always"),
        ({"engine.replicas": 3}, "room for 3 replicas"),
    ],
)
async def test_what_is_wrong_with_the_engine_is_said_with_its_remedy(
    nats_server: ServerRun, tmp_path: Path, wrong: dict[str, Any], hint: str
) -> None:
    given = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "data": str(tmp_path / "data")}
    settings = load(None, {}, {**given, **on_engine(nats_server, tmp_path), "engine.append_patience_s": 0.3, **wrong})
    with pytest.raises((SettingsError, CannotOpenError), match=hint):
        async with running(settings):
            raise AssertionError("it started")


async def test_credentials_that_nats_refuses_are_said_to_be_so(nats_server: ServerRun, tmp_path: Path) -> None:
    given = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "data": str(tmp_path / "data")}
    on = on_engine(nats_server, tmp_path)
    await trio.Path(on["engine.credentials"]).write_text("another-token")
    with pytest.raises(CannotOpenError, match=r"engine\.credentials"):
        async with running(load(None, {}, {**given, **on})):
            raise AssertionError("it started")
