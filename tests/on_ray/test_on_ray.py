"""Gateways on a Ray cluster of two machines, made up here: placed by one command, restarted by Ray, ended in order."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from gateway.engine.server_run import ServerRun
from gateway.main.data_folder import PLACES
from tests.gateway.engine.on_engine import on_engine
from tests.processes.several import PATIENCE_S, Several, enrolled, nodes_of

ROOT = Path(__file__).parents[2]
TWO = 2
_LOOK_S = 0.2


@pytest.fixture
def cluster() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    one = Cluster(initialize_head=True, head_node_args={"num_cpus": TWO, "include_dashboard": False})
    one.second = one.add_node(num_cpus=TWO)
    try:
        yield one
    finally:
        one.shutdown()


@pytest.fixture
def fleet(nats_server: ServerRun) -> Iterator[Several]:
    with tempfile.TemporaryDirectory() as made:  # short: sockets have names of at most 107 bytes
        folder = Path(made)
        yield enrolled(folder, on_engine(nats_server, folder) | {"engine.dead_s": 6.0, "engine.lost_s_max": 5.0}, 1)


def ray_command(cluster: Any, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gateway.commands.cli", "ray", *arguments, "--address", cluster.address]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def gateways(fleet: Several) -> list[int]:
    """The processes that serve on the folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if process.name.isdigit() and b"--child" in words and str(fleet.data).encode() in words:
                found.append(int(process.name))
        except OSError:  # it has ended
            continue
    return sorted(found)


def until(what: str, holds: Any) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, what
        time.sleep(_LOOK_S)


def places(fleet: Several) -> list[int]:
    return sorted(int(path.stem) for path in (fleet.data / PLACES).glob("*.sock"))


@pytest.mark.ray
def test_gateways_are_placed_restarted_and_ended_by_ray(cluster: Any, fleet: Several) -> None:
    lines = ["[http]", 'listen = "127.0.0.1:0"', "[devices]", 'listen = "127.0.0.1:0"', "[engine]"]
    lines += [f"{name.removeprefix('engine.')} = {json.dumps(value)}" for name, value in fleet.settings.items()]
    config = fleet.folder / "heliograph.toml"
    config.write_text("\n".join(lines))
    given = ["--config", str(config), "--data", str(fleet.data)]

    started = ray_command(cluster, "start", *given, "--gateways", str(TWO))
    assert started.returncode == 0, started.stdout + started.stderr
    rows = [line.split() for line in started.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["gateway-0", "gateway-1"]
    again = ray_command(cluster, "start", *given, "--gateways", str(TWO))
    assert again.stdout == started.stdout, "those that run are left alone"
    first = gateways(fleet)
    assert len(first) == TWO

    # Either has the whole fleet, whatever Ray does.
    fleet.devices = rows[0][3]
    (identity,) = fleet.identities
    with nodes_of(fleet):

        def all_reach() -> None:
            for number in places(fleet):
                fleet.until("reached", lambda n=number: fleet.call(n, identity.node_id, "hello") == 200)

        all_reach()
        assert len(places(fleet)) == TWO

        # A gateway that is killed ends its actor, and Ray starts both again. The node's own is left: it knows no other.
        def session_of(pid: int) -> bool:
            return rows[0][2].rpartition(":")[2] in _ports(pid)

        (other,) = [pid for pid in first if not session_of(pid)]
        os.kill(other, signal.SIGKILL)
        until("another one", lambda: len(gateways(fleet)) == TWO and other not in gateways(fleet))
        until("it listens", lambda: ray_command(cluster, "status").returncode == 0)
        all_reach()

        # An actor that is killed takes its gateway with it, which stops in order.
        (new,) = [pid for pid in gateways(fleet) if pid not in first]
        os.kill(_parent(new), signal.SIGKILL)
        until("another one", lambda: len(gateways(fleet)) == TWO and new not in gateways(fleet))
        until("it listens", lambda: ray_command(cluster, "status").returncode == 0)
        all_reach()

        # A machine that is gone: what it had runs on the other.
        before = gateways(fleet)
        cluster.remove_node(cluster.second)
        until("moved", lambda: len(gateways(fleet)) == TWO and gateways(fleet) != before)
        until("it listens", lambda: ray_command(cluster, "status").returncode == 0)

    ended = ray_command(cluster, "stop")
    assert (ended.returncode, ended.stdout) == (0, "2 gateways ended\n"), ended.stderr
    until("no gateway is left", lambda: gateways(fleet) == [])
    assert ray_command(cluster, "status").stdout == "none\n"


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _ports(pid: int) -> set[str]:
    """Those that this process listens on."""
    links = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(str(file.readlink()))
        except OSError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {str(int(row[1].rpartition(":")[2], 16)) for row in rows if f"socket:[{row[9]}]" in links}
