"""What the commands of spaces take from a service that does not end: a bounded amount, and nothing stays behind."""

import contextlib
import itertools
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.commands import space_client, space_files, space_response
from gateway.commands.cli import main
from gateway.main.command_variables import FOR_COMMANDS

TOKEN = "es_" + "A" * 43
PATIENCE_S = 30.0
FLOOD_BYTES = 64 * 1024 * 1024  # a command that takes all of it has no bound
TAKEN_BYTES_MAX = 32 * 1024 * 1024  # what lies in sockets counts
Capsys = pytest.CaptureFixture[str]


class Service(socketserver.ThreadingTCPServer):
    """Answers each request with bytes, as they are, until the other side has enough."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: Callable[[str], Iterator[bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.sent_bytes = 0
        self.is_over = threading.Event()

    @property
    def link(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/s/{TOKEN}"


class _Handler(socketserver.StreamRequestHandler):
    server: Service

    def handle(self) -> None:
        target = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        with contextlib.suppress(OSError):
            for piece in self.server.answer(target):
                self.wfile.write(piece)
                self.server.sent_bytes += len(piece)


@contextlib.contextmanager
def service(answer: Callable[[str], Iterator[bytes]]) -> Iterator[Service]:
    with Service(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join()


def flood(piece: bytes) -> Iterator[bytes]:
    block = piece * (65_536 // len(piece))
    yield from itertools.repeat(block, FLOOD_BYTES // len(block))


def json_answer(document: Any) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*FOR_COMMANDS, "HELIOGRAPH_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [b"", b"Content-Length: 99999999999\r\n"])
@pytest.mark.parametrize(("size", "said"), [(5, "did not arrive whole"), (None, "larger than"), (2**40, "larger than")])
def test_no_more_of_a_file_is_taken_than_it_can_have(
    size: int | None, said: str, head: bytes, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_files, "FILE_BYTES_MAX", 1_000_000)
    file = {"file_id": "f", "name": "big"} | ({} if size is None else {"size": size})

    def answer(target: str) -> Iterator[bytes]:
        if target.endswith("/files"):
            yield json_answer({"files": [file]})
        else:
            yield b"HTTP/1.1 200 OK\r\n" + head + b"\r\n"
            yield from flood(b"x")

    with service(answer) as hostile:
        assert main(["space", "get", hostile.link, "big"]) == 2
        assert said in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []
        assert main(["space", "get", hostile.link, "big", "--out", "-"]) == 2
        assert len(capsys.readouterr().out) <= 1_000_001
        assert hostile.sent_bytes < TAKEN_BYTES_MAX


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_download_that_is_ended_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    def answer(target: str) -> Iterator[bytes]:
        if target.endswith("/files"):
            yield json_answer({"files": [{"file_id": "f", "name": "big", "size": 1_000_000}]})
        else:
            yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100_000
            slow.is_over.wait(PATIENCE_S)

    with service(answer) as slow:
        command = [sys.executable, "-m", "gateway.commands.cli", "space", "get", slow.link, "big"]
        here = str(Path(__file__).parents[3])
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": here}, stderr=subprocess.PIPE) as process:
            ends_s = time.monotonic() + PATIENCE_S
            while not any(path.stat().st_size for path in tmp_path.glob(".heliograph-*")):
                assert time.monotonic() < ends_s
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(number)
            _, told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told) == (128 + number, b"")
    assert list(tmp_path.iterdir()) == []


# ---- lists and heads -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cursor", ["c{}", "\ud800{}", "c" * 2000 + "{}"])
def test_a_list_without_an_end_is_none_of_an_echo_service(
    cursor: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_client, "LIST_PAGES_MAX", 5)
    asked: list[str] = []

    def answer(target: str) -> Iterator[bytes]:
        asked.append(target)
        yield json_answer({"keys": [{"key": "k"}], "next_cursor": cursor.format(len(asked))})

    with service(answer) as hostile:
        assert main(["space", "kv", "ls", hostile.link]) == 2
    told = capsys.readouterr()
    assert (told.out, "is not an echo service" in told.err) == ("", True)
    assert len(asked) == (5 if cursor == "c{}" else 1)


def test_a_page_of_keys_that_is_too_large_is_none_of_an_echo_service(capsys: Capsys) -> None:
    with service(lambda _: iter([json_answer({"keys": ["x" * space_client.LIST_PAGE_BYTES_MAX]})])) as hostile:
        assert main(["space", "kv", "ls", hostile.link]) == 2
    assert "is not an echo service" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("start", "piece"), [(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (b"HTTP/1.1 200 OK\r\nX: ", b"x"), (b"", b"x")]
)
@pytest.mark.parametrize("command", [["show"], ["kv", "ls"], ["kv", "rm", "k"], ["files"], ["get", "f"]])
def test_a_head_without_an_end_is_given_up(command: list[str], start: bytes, piece: bytes, capsys: Capsys) -> None:
    with service(lambda _: itertools.chain([start], flood(piece))) as hostile:
        words, more = (command[:2], command[2:]) if command[0] == "kv" else (command[:1], command[1:])
        assert main(["space", *words, hostile.link, *more]) == 2
        assert hostile.sent_bytes < TAKEN_BYTES_MAX
    told = capsys.readouterr().err
    assert "does not answer" in told
    assert len(told) < 1_000


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"HTTP/1.1 404 No\r\n\r\n"]
)
def test_an_answer_that_comes_byte_by_byte_has_a_deadline(
    start: bytes, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_response, "WHOLE_S_MAX", 0.2)

    def answer(_: str) -> Iterator[bytes]:
        yield start
        while not slow.is_over.wait(0.01):
            yield b" "

    with service(answer) as slow:
        assert main(["space", "files", slow.link]) == 2
    assert "does not answer" in capsys.readouterr().err
