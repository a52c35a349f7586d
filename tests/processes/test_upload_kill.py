"""kill -9 of a gateway to which files are uploaded and deleted: what it acknowledged is there, and nothing else is."""

import hashlib
import json
import threading
from http.client import HTTPException
from pathlib import Path

from tests.browser.gateway import Gateway

BEARER = "b" * 40
PATHS = "abcd"
ROUNDS = 3
ACKNOWLEDGED = 12  # answers of a round, before the kill
KIB = 1024


class Uploader(threading.Thread):
    """Replaces and deletes one file again and again, until nobody answers."""

    def __init__(
        self, gateway: Gateway, static: str, path: str, known: bytes | None, answers: threading.Semaphore
    ) -> None:
        super().__init__(daemon=True)
        self.may_be: set[bytes | None] = {known}
        self._gateway = gateway
        self._target = f"{static}/{path}"
        self._path = path
        self._answers = answers

    def run(self) -> None:
        number = 0
        while True:
            number += 1
            # Of several sizes, some of which go to the disk in pieces; every third is one that others have as well.
            mark = b"shared" if number % 3 == 0 else f"{self._path} {number} {id(self)}".encode()
            content = None if number % 5 == 0 else mark * (number % 4 * 40 * KIB // len(mark) + 1)
            self.may_be.add(content)
            try:
                method, body = ("DELETE", b"") if content is None else ("PUT", content)
                status, _ = self._gateway.ask(method, self._target, body, authorization=f"Bearer {BEARER}")
            except (OSError, HTTPException):
                return
            assert status in (200, 201, 204, 404)
            self.may_be = {content}
            self._answers.release()


def served(gateway: Gateway, path: str) -> bytes | None:
    status, body = gateway.ask("GET", f"/{path}", host="board.localhost")
    assert status in (200, 404)
    return body if status == 200 else None


def test_file_that_was_acknowledged_is_there_after_a_kill_and_nothing_else_is_left(tmp_path: Path) -> None:
    settings = {"PROJECTS_API_BEARER_TOKEN": BEARER, "PROJECTS_UPLOAD_BUFFER_BYTES_MAX": str(16 * KIB)}
    gateway = Gateway(tmp_path, **settings)
    gateway.start()
    try:
        made = json.dumps({"name": "Board", "domain": "board"})
        status, said = gateway.ask("POST", "/api/projects", made, authorization=f"Bearer {BEARER}")
        assert status == 201, said
        static = f"/api/projects/{json.loads(said)['project_id']}/static"
        known: dict[str, bytes | None] = dict.fromkeys(PATHS)
        for _ in range(ROUNDS):
            answers = threading.Semaphore(0)
            uploaders = {path: Uploader(gateway, static, path, known[path], answers) for path in PATHS}
            for uploader in uploaders.values():
                uploader.start()
            for _ in range(ACKNOWLEDGED):
                assert answers.acquire(timeout=60)
            gateway.end()
            for uploader in uploaders.values():
                uploader.join(60)
            gateway.start()
            known = {path: served(gateway, path) for path in PATHS}
            for path, content in known.items():
                assert content in uploaders[path].may_be
            files = {file.name for file in (tmp_path / "data" / "sites").rglob("*") if file.is_file()}
            assert files == {hashlib.sha256(content).hexdigest() for content in known.values() if content is not None}
    finally:
        gateway.end()
