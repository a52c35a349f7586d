"""A space of a real gateway, full of marked things, and its end: no file, log line or metric has anything of it.

The gateway logs at debug level. What may stay is the space's id, which is a name and opens nothing.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from websockets.sync.client import connect

from actors.space.sqlite_space_store import SqliteSpaceStore

PATIENCE_S = 60
CHILD = [sys.executable, "-m", "tests.processes.loud_gateway_child"]
PASSWORD = "canary-password"
SETTINGS = {
    "HELIOGRAPH_ECHO_ENABLED": "true",
    "HELIOGRAPH_ECHO_DISK_FREE_MIN": "0.0",
    "HELIOGRAPH_ECHO_TTL_S_MIN": "1",
    "HELIOGRAPH_ECHO_CREATE_PASSWORD": PASSWORD,
    "HELIOGRAPH_HTTP_METRICS_OPEN": "true",
}
VALUE, KEY, QUERY = "canary-value", "canary-key", "canary-query"
FILE_NAME, CONTENT, HALF = "canary-file-name", b"canary-content" * 10_000, b"canary-half" * 30_000
MESSAGE, UID, SUB, STATE = "canary-message", "canary-uid", "canary-sub", "canary-state"
WRONG_PASSWORD, WRONG_TOKEN = "canary-wrong-password", "es_canary-wrong-token"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@dataclass
class Gateway:
    process: "subprocess.Popen[bytes]"
    address: str

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://{self.address}{path}", body, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read()

    def measure(self) -> bytes:
        status, text = self.ask("GET", "/metrics")
        assert status == 200
        return text

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0


@contextmanager
def gateway(folder: Path) -> Iterator[Gateway]:
    """What it says, on either stream and in its log, lies in the folder beside its data."""
    command = [*CHILD, "serve", "--data", str(folder / "data"), "--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]
    environment = {**os.environ, **SETTINGS, "HELIOGRAPH_LOG_TARGET": str(folder / "gateway.log")}
    running = folder / "data" / "running.json"
    running.unlink(missing_ok=True)
    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        wait_until(lambda: running.exists() or process.poll() is not None)
        yield Gateway(process, json.loads(running.read_text())["http"])
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def files_with(folder: Path, marks: list[bytes]) -> set[str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name for path in paths for mark in marks if mark in path.read_bytes() or mark in str(path).encode()}


def begin_upload(gateway: Gateway, token: str) -> socket.socket:
    """Most of a file, and then nothing more."""
    host, _, port = gateway.address.rpartition(":")
    stream = socket.create_connection((host, int(port)), PATIENCE_S)
    head = f"POST /api/s/{token}/files HTTP/1.1\r\nHost: {gateway.address}\r\nContent-Length: 9000000\r\n"
    stream.sendall(f"{head}Content-Type: multipart/form-data; boundary=B\r\n\r\n".encode() + part() + HALF)
    return stream


def part() -> bytes:
    return f'--B\r\nContent-Disposition: form-data; name="file"; filename="{FILE_NAME}"\r\n\r\n'.encode()


def make_and_fill(gateway: Gateway) -> tuple[Any, list[bytes]]:
    """The document of a space, and what must not be found of it."""
    assert gateway.ask("POST", "/spaces", f"password={WRONG_PASSWORD}".encode())[0] == 401
    form = f"password={PASSWORD}&ttl_seconds=3600&encryption=".encode()
    status, body = gateway.ask("POST", f"/spaces?q={QUERY}", form, accept="application/json")
    assert status == 201, body
    made = json.loads(body)
    api, head = f"/api/s/{made['token']}", "multipart/form-data; boundary=B"
    value = json.dumps({"value": VALUE}).encode()
    assert gateway.ask("POST", f"{api}/kv/{KEY}", value, content_type="application/json")[0] == 201
    assert gateway.ask("GET", f"{api}/kv?prefix={KEY}&{QUERY}={QUERY}")[0] in (200, 400)
    assert gateway.ask("POST", f"{api}/files", part() + CONTENT + b"\r\n--B--\r\n", content_type=head)[0] == 201
    for path in (f"/api/s/{WRONG_TOKEN}/kv/{KEY}", f"{api}/{KEY}?{QUERY}", f"/{WRONG_TOKEN}?{QUERY}"):
        assert gateway.ask("GET", path)[0] == 404
    room = f"ws://{gateway.address}/ws/s/{made['token']}?uid={UID}&subs={SUB}&self=1&tz={QUERY}&loc={QUERY}"
    with connect(room) as ada:
        assert json.loads(ada.recv(PATIENCE_S))["type"] == "welcome"
        ada.send(json.dumps({"type": "state", "data": STATE}))
        ada.send(json.dumps({"type": MESSAGE}))
        ada.send(json.dumps({"type": "msg", "data": MESSAGE}))
        while json.loads(ada.recv(PATIENCE_S))["type"] != "msg":
            pass
    marks = (VALUE, KEY, QUERY, FILE_NAME, MESSAGE, UID, SUB, STATE, PASSWORD, WRONG_PASSWORD, WRONG_TOKEN)
    secrets = (made["token"], made["claim"], made["token"][3:], made["claim"][3:])
    return made, [CONTENT[:14], HALF[:11], *(text.encode() for text in (*marks, *secrets))]


async def opens(folder: Path, space_id: str) -> bool:
    """Whether somebody with this folder reads what was in the space."""
    async with await SqliteSpaceStore.at(folder) as store:
        await store.load()
        if not await store.open(space_id):
            return False
        entry = await store.get(space_id, KEY, time.time_ns() // 1_000_000 - 3_600_000)
        return entry is not None and entry.value == VALUE.encode()


@pytest.mark.parametrize("ending", ["deleted", "expired", "killed", "killed while it is deleted"])
def test_nothing_of_a_space_is_in_any_file_log_line_or_metric_after_its_end(tmp_path: Path, ending: str) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    live.mkdir()
    with gateway(live) as one:
        made, marks = make_and_fill(one)
        space_id, key_file = made["space_id"], live / "data" / "spaces" / "keys" / made["space_id"]
        begun = begin_upload(one, made["token"])
        wait_until(lambda: any((live / "data" / "spaces" / space_id).glob("*.part")))
        assert files_with(live, marks) == set()  # sealed while it lives
        assert files_with(live, [space_id.encode()]) >= {"log.sqlite-wal", "spaces.sqlite-wal", space_id}
        whole = key_file.read_bytes()
        shutil.copytree(live / "data", copy, ignore=shutil.ignore_patterns("keys", "lock"))
        metrics = one.measure()
        api, claim = f"/api/s/{made['token']}", f"Bearer {made['claim']}"
        if ending != "deleted":
            status, body = one.ask(
                "PATCH", api, b'{"ttl_seconds":2}', content_type="application/json", authorization=claim
            )
            assert status == 200
            made["expires_at"] = json.loads(body)["expires_at"]
        if ending == "killed while it is deleted":
            host, _, port = one.address.rpartition(":")
            with socket.create_connection((host, int(port)), PATIENCE_S) as stream:
                stream.sendall(f"DELETE {api} HTTP/1.1\r\nHost: x\r\nAuthorization: {claim}\r\n\r\n".encode())
        if ending.startswith("killed"):
            one.process.kill()
            one.process.wait(PATIENCE_S)
            wait_until(lambda: time.time_ns() // 1_000_000 >= end_ms(made))
        else:
            if ending == "deleted":
                assert one.ask("DELETE", api, authorization=claim)[0] == 204
            wait_until(lambda: not key_file.exists())
            assert b"space_ended" in (live / "gateway.log").read_bytes()
            is_gone(one, live, made, [*marks, whole[:32], whole[:16]])
            metrics += one.measure()
            one.stop()
        begun.close()
    with gateway(live) as one:
        is_gone(one, live, made, [*marks, whole[:32], whole[:16]])
        metrics += one.measure()
        one.stop()
    assert b"DEBUG:" in (live / "output").read_bytes()
    assert files_with(live, [*marks, whole[:32], whole[:16]]) == set()
    assert [mark for mark in (*marks, space_id.encode()) if mark in metrics] == []
    assert not any(space_id in str(path) for path in live.rglob("*"))
    # What was copied before the end: it opens with the key that was there then, and there is none now.
    for name, key in (("before", whole), ("after", None)):
        shutil.copytree(copy, tmp_path / name)
        shutil.copytree(live / "data" / "spaces" / "keys", tmp_path / name / "spaces" / "keys")
        if key is not None:
            (tmp_path / name / "spaces" / "keys" / space_id).write_bytes(key)
        assert trio.run(opens, tmp_path / name, space_id) is (key is not None)


def end_ms(made: Any) -> float:
    return datetime.fromisoformat(made["expires_at"]).timestamp() * 1000


def is_gone(one: Gateway, live: Path, made: Any, marks: list[bytes]) -> None:
    """Nothing is left in the files of a gateway that runs on."""
    assert one.ask("GET", f"/api/s/{made['token']}/kv/{KEY}")[0] == 404
    wait_until(lambda: not (live / "data" / "spaces" / made["space_id"]).exists())
    assert files_with(live, marks) == set()
