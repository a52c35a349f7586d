"""Two gateways of one machine on a real `nats-server`: either reaches every node, and one that dies is replaced."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.server_run import ServerRun
from tests.gateway.engine.on_engine import on_engine
from tests.processes.several import Several, enrolled, kill, nodes_of


@pytest.fixture(scope="module")
def several(nats_server: ServerRun) -> Iterator[Several]:
    with tempfile.TemporaryDirectory() as made:  # short: sockets have names of at most 107 bytes
        folder = Path(made)
        here = enrolled(folder, on_engine(nats_server, folder) | {"engine.dead_s": 6.0, "engine.lost_s_max": 5.0}, 2)
        here.start(2)
        try:
            with nodes_of(here):
                for number in (0, 1):
                    for identity in here.identities:
                        here.until(
                            "reached", lambda n=number, i=identity: here.call(n, i.node_id, "are you there") == 200
                        )
                yield here
        finally:
            here.kill()


def test_either_process_reaches_every_node_and_streams_its_telemetry(several: Several) -> None:
    for number in (0, 1):
        for identity in several.identities:
            assert several.call(number, identity.node_id, "hello") == 200
        assert several.first_frame(number, several.identities[0].node_id)


def test_metrics_of_both_are_on_one_page_and_commands_reach_either(several: Several) -> None:
    status, page = several.ask(1, "GET", "/metrics")
    assert status == 200
    assert [f'heliograph_nodes{{process="{number}"}} 2' in page.decode() for number in (0, 1)] == [True, True]
    assert [several.ask(number, "GET", "/readyz")[0] for number in (0, 1)] == [200, 200]
    command = [sys.executable, "-m", "gateway.commands.cli", "nodes", "--data", str(several.data)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert all(identity.node_id in listed for identity in several.identities)


def test_audit_of_both_is_one_by_time_while_they_run(several: Several) -> None:
    command = [sys.executable, "-m", "gateway.commands.cli", "audit", "--data", str(several.data), "--json"]
    for number in (0, 1):
        assert several.call(number, several.identities[0].node_id, "who did what") == 200

    def lines() -> list[dict[str, Any]]:
        told = subprocess.run([*command, "--event", "tool_call"], capture_output=True, text=True, check=False).stdout
        return [json.loads(line) for line in told.splitlines()]

    several.until("kept", lambda: {line["process"] for line in lines()} == {0, 1})
    times = [line["at"] for line in lines()]
    assert times == sorted(times)


def test_a_process_that_is_killed_is_replaced_and_its_nodes_come_back(several: Several) -> None:
    before = several.children()
    kill(before[0])
    several.until("replaced", lambda: len(several.children()) == 2 and before[0] not in several.children())
    for number in (0, 1):
        for identity in several.identities:
            several.until("back", lambda n=number, i=identity: several.call(n, i.node_id, "again") == 200)


def test_processes_are_replaced_one_after_the_other_and_told_of_a_hangup(several: Several) -> None:
    assert several.parent is not None
    several.parent.send_signal(signal.SIGHUP)
    several.until("reloaded", lambda: several.errors.read_text().count('"event":"settings_reloaded"') == 2)
    before = set(several.children())
    several.parent.send_signal(signal.SIGUSR2)
    several.until("replaced", lambda: len(several.children()) == 2 and not before & set(several.children()))
    for number in (0, 1):
        several.until("ready", lambda n=number: several.ask(n, "GET", "/readyz")[0] == 200)


def test_the_folder_is_shared_by_gateways_and_nobody_else(several: Several) -> None:
    command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--data", str(several.data)]
    alone = subprocess.run([*command, "--http", "127.0.0.1:0"], capture_output=True, text=True, check=False)
    assert (alone.returncode, "in use" in alone.stderr) == (2, True)


def test_they_stop_when_they_are_asked_to(several: Several) -> None:
    """The last of this module."""
    children = several.children()
    assert several.end() == 0
    assert not (several.data / "running.json").exists()
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
