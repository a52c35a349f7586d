"""`heliograph ray`: gateways that a Ray cluster places and restarts. Ray carries nothing of theirs: NATS does.

A gateway is the child of an actor. When either ends, so does the other, and Ray starts the actor again, elsewhere if
its machine is gone. What two gateways may do at the same time is decided in the log, never by Ray.
"""

import argparse
import os
import signal
import socket
import subprocess
import threading
from typing import Any

import msgspec

from gateway.commands.parsing import CommandError, Subparsers, table
from gateway.commands.processes import PROGRAM, STOP_S_MAX, Ready

NAMESPACE = "heliograph"
AGAIN_S = 5.0  # after a gateway ended: one that cannot start is not tried more often
_CALLS_MAX = 8  # questions to an actor at the same time; the others wait
_STATUS_S_MAX = 5.0


class Gateway:
    """An actor: one gateway, on the machine where Ray has put it."""

    def __init__(self, arguments: list[str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                # It stops in order when our end goes, however we end.
                [*PROGRAM, "serve", *arguments, "--child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # no signal for Ray's processes reaches it
            )
        self._ours = ours
        self._said = b""
        self._listens = threading.Event()
        self._is_stopping = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        with self._ours.makefile("rb") as lines:
            self._said = lines.readline()
            if self._said:
                self._listens.set()
            self._child.wait()
        if not self._is_stopping.wait(AGAIN_S):
            os._exit(1)  # what Ray takes for a crash: it starts the actor again

    def ready(self) -> dict[str, str]:
        """Once it listens."""
        self._listens.wait()
        ready = msgspec.json.decode(self._said, type=Ready)
        return {"machine": socket.gethostname(), "agents": ready.http, "nodes": ready.devices}

    def stop(self) -> None:
        """Finish what is under way, then end. The actor is to be killed next."""
        self._is_stopping.set()
        self._child.send_signal(signal.SIGTERM)
        try:
            self._child.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._child.kill()


def add(commands: Subparsers) -> None:
    cluster = commands.add_parser("ray", help="gateways on a Ray cluster")
    actions = cluster.add_subparsers(required=True, metavar="ACTION")
    start = actions.add_parser("start", help="have Ray run gateways, from now on and without this command")
    start.add_argument("--config", required=True, metavar="FILE", help="settings, at this place on every machine")
    start.add_argument("--data", required=True, metavar="DIR", help="data folder, at this place on every machine")
    start.add_argument("--gateways", type=int, default=1, metavar="N", help="how many (default 1)")
    start.add_argument("--wait", type=float, default=120.0, metavar="S", help="for all to listen (default 120)")
    start.set_defaults(run=_start)
    status = actions.add_parser("status", help="the gateways, and where they listen")
    status.set_defaults(run=_status)
    stop = actions.add_parser("stop", help="end all of them in order")
    stop.set_defaults(run=_stop)
    for action in (start, status, stop):
        action.add_argument("--address", default="auto", metavar="ADDRESS", help="of Ray's head (default: found here)")


def _cluster(address: str) -> Any:
    import ray  # here: it takes seconds, and is seldom installed

    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError) as error:
        raise CommandError(f"no Ray cluster at {address}: {error}") from None
    return ray


def _start(arguments: argparse.Namespace) -> int:
    for flag, path in (("--config", arguments.config), ("--data", arguments.data)):
        if not os.path.isabs(path):  # noqa: PTH117  # of another machine
            raise CommandError(f"{flag}: {path} has to be absolute, for it is looked up on every machine")
    if arguments.gateways < 1:
        raise CommandError("--gateways is at least 1")
    ray = _cluster(arguments.address)
    given = ["--config", arguments.config, "--data", arguments.data]
    gateway = ray.remote(Gateway)
    actors = {}
    for name in (f"gateway-{number}" for number in range(arguments.gateways)):
        actors[name] = gateway.options(
            name=name,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=1,
            scheduling_strategy="SPREAD",
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=_CALLS_MAX,
        ).remote(given)
    return _show(ray, actors, arguments.wait)


def _status(arguments: argparse.Namespace) -> int:
    ray = _cluster(arguments.address)
    return _show(ray, _actors(ray), _STATUS_S_MAX)


def _show(ray: Any, actors: dict[str, Any], wait_s: float) -> int:
    """Exit codes: 0 all of them listen, 1 some do not."""
    asked = {name: actor.ready.remote() for name, actor in actors.items()}
    done = set(ray.wait(list(asked.values()), num_returns=len(asked), timeout=wait_s)[0]) if asked else set()
    nothing = {"machine": "-", "agents": "does not listen", "nodes": "-"}
    rows = [{"gateway": name} | (ray.get(ref) if ref in done else nothing) for name, ref in asked.items()]
    print("\n".join(table(rows)))
    return int(len(done) < len(asked))


def _stop(arguments: argparse.Namespace) -> int:
    ray = _cluster(arguments.address)
    actors = _actors(ray)
    asked = [actor.stop.remote() for actor in actors.values()]
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=STOP_S_MAX + AGAIN_S)
    for actor in actors.values():
        ray.kill(actor)
    print(f"{len(actors)} gateways ended")
    return 0


def _actors(ray: Any) -> dict[str, Any]:
    return {name: ray.get_actor(name) for name in sorted(ray.util.list_named_actors())}
