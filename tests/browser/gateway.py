"""A gateway with spaces as a process of its own, and Python as a participant of its rooms: over REST and WebSocket."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from websockets.sync.client import ClientConnection, connect

from gateway.spaces.settings import EchoSettings

PATIENCE_S = 60
PLENTY = "10000"
BEARER = "the-bearer-of-the-project-api-in-tests-of-pages"
SETTINGS = {
    "ECHO_ENABLED": "true",
    "PROJECTS_API_BEARER_TOKEN": BEARER,
    "ECHO_DISK_FREE_MIN": "0",
    "ECHO_TTL_S_MIN": "1",  # a test waits for the end of a space
    # All browsers and scripts of the tests share one address.
    **{f"ECHO_{one.name.upper()}": PLENTY for one in fields(EchoSettings) if one.name.endswith("_burst")},
}


class Gateway:
    """Pages are opened at `localhost`, to which browsers give the rights of an encrypted connection."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = {f"HELIOGRAPH_{name}": value for name, value in {**SETTINGS, **settings}.items()}
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.log = folder / "log"

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def start(self) -> None:
        """On the port that it had before, if there was one."""
        command = [sys.executable, "-m", "gateway.commands.cli", "serve", "--data", str(self._folder / "data")]
        listen = ["--http", f"127.0.0.1:{self.port}", "--devices", "127.0.0.1:0"]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, *listen], stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **self._settings}
            )
        assert self._process.stdout is not None
        _, address, *_ = self._process.stdout.readline().split()
        self.port = int(address.rpartition(":")[2])

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=PATIENCE_S)
            self._process = None

    # ---- a participant without a browser -----------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: str | bytes = b"", **headers: str) -> tuple[int, bytes]:
        """`headers` have underscores for dashes."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def make(self, **form: str) -> "Space":
        status, body = self.ask("POST", "/spaces", urlencode(form), accept="application/json")
        assert status == 201, body
        return Space(self, json.loads(body))


class Space:
    """A space by its link, as a script has it."""

    def __init__(self, gateway: Gateway, info: dict[str, Any]) -> None:
        self._gateway = gateway
        self.info = info
        self.token: str = info["token"]

    @property
    def url(self) -> str:
        return f"{self._gateway.url}/s/{self.token}"

    @property
    def claimed_url(self) -> str:
        """Where the form sends whoever made the space."""
        return f"{self.url}#claim={self.info['claim']}"

    def put(self, key: str, value: str) -> None:
        body = json.dumps({"value": value})
        status, said = self._gateway.ask("POST", f"/api/s/{self.token}/kv/{key}", body, content_type="application/json")
        assert status in (200, 201), said

    def get(self, key: str) -> str | None:
        status, body = self._gateway.ask("GET", f"/api/s/{self.token}/kv/{key}", accept="application/json")
        if status == 404:
            return None
        value: str = json.loads(body)["value"]
        return value

    def upload(self, name: str, content: bytes) -> None:
        head = f'--b\r\ncontent-disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = head.encode() + content + b"\r\n--b--\r\n"
        path = f"/api/s/{self.token}/files"
        status, said = self._gateway.ask("POST", path, body, content_type="multipart/form-data; boundary=b")
        assert status == 201, said

    def delete(self) -> None:
        bearer = f"Bearer {self.info['claim']}"
        assert self._gateway.ask("DELETE", f"/api/s/{self.token}", authorization=bearer)[0] == 204

    @contextmanager
    def join(self, uid: str, subs: str = "") -> Iterator["Participant"]:
        url = f"ws://127.0.0.1:{self._gateway.port}/ws/s/{self.token}?" + urlencode({"uid": uid, "subs": subs})
        with connect(url, subprotocols=["echo.v1.json"], open_timeout=PATIENCE_S) as socket:  # type: ignore[list-item]
            participant = Participant(socket)
            participant.next("welcome")
            yield participant


class Participant:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def send(self, **frame: object) -> None:
        self._socket.send(json.dumps(frame))

    def say(self, data: object, **where: str) -> None:
        self.send(type="msg", data=data, **where)

    def next(self, kind: str = "msg") -> dict[str, Any]:
        """The next frame of this kind; the others before it are passed over."""
        while True:
            frame: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if frame["type"] == kind:
                return frame
