"""What `site` and `project` take from a service that lies, floods or breaks off; and how a deploy is interrupted."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from gateway.commands import site_plan_rules, space_client
from gateway.commands.cli import main
from gateway.commands.project_client import KeptService, ProjectApi
from gateway.main.command_variables import BEARERS, FOR_COMMANDS
from tests.gateway.commands.test_site import BEARER, studio
from tests.gateway.commands.test_site_folder import put
from tests.gateway.commands.test_space_hostile import TAKEN_BYTES_MAX, flood, json_answer, service
from tests.gateway.commands.test_space_terminal import on_terminal

ID = "01j9zq8f3m5x7c2v4b6n8p0q1r"
PROJECT = {"project_id": ID, "name": "n", "url": "http://n.localhost", "app_token": "es_x"}
PATIENCE_S = 30.0
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*FOR_COMMANDS, *BEARERS, "HELIOGRAPH_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("API_BEARER_TOKEN", BEARER)
    monkeypatch.chdir(tmp_path)
    put(tmp_path, site__index_dot_html="page")
    monkeypatch.setattr(site_plan_rules, "FAULT_WAITS_S", (0.0, 0.0))


def run(base: str, *arguments: str) -> int:
    return main([*arguments, "--url", base])


def refusal(status: int, **document: Any) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body


COMMANDS = [
    ["project", "ls"],
    ["project", "show", ID],
    ["project", "book", ID],
    ["project", "create", "n"],
    ["project", "rm", ID],
    ["site", "ls", "--project", ID],
    ["site", "rm", "a.html", "--project", ID],
    ["site", "deploy", "site", "--project", ID],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
@pytest.mark.parametrize(
    ("start", "piece"),
    [(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (b"HTTP/1.1 200 OK\r\n\r\n", b"[")],
    ids=["head", "body"],
)
def test_flood_is_given_up_without_a_traceback(command: list[str], start: bytes, piece: bytes, capsys: Capsys) -> None:
    with service(lambda _: itertools.chain([start], flood(piece))) as hostile:
        code = run(hostile.link.partition("/s/")[0], *command)
        assert hostile.sent_bytes < TAKEN_BYTES_MAX
    assert code in ((0, 2) if command[1] == "rm" else (2,))  # of what is done there is nothing to read
    assert len(capsys.readouterr().err) < 1_000


ANSWERS: list[Any] = [
    [],
    {"project_id": None, "projects": None, "objects": None},
    {"project_id": "../../etc", "projects": [1, {}], "objects": [None, {"path": 1}]},
    {"project_id": ID, "projects": [{"project_id": "\x1b[2J\ud800"}], "objects": [{"path": "\x1b[2J\ud800"}]},
    {"project_id": "\x1b]0;owned\x07", "url": 7},
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_answer_of_another_form_is_one_line_at_most_and_commands_no_terminal(
    command: list[str], answer: Any, capsys: Capsys
) -> None:
    with service(lambda _: iter([json_answer(answer)])) as hostile:
        code = run(hostile.link.partition("/s/")[0], *command)
    told = capsys.readouterr()
    assert code in (0, 1, 2)
    assert "\x1b" not in told.out + told.err
    assert "\x07" not in told.out + told.err
    assert told.err.count("\n") == (0 if code == 0 else 1)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_words_of_a_service_do_not_command_the_terminal(command: list[str], capsys: Capsys) -> None:
    with service(lambda _: iter([refusal(400, error="\x1b[2Jword", message="\x1b[31mred\n\x07")])) as hostile:
        assert run(hostile.link.partition("/s/")[0], *command) == 1
    told = capsys.readouterr()
    assert (told.err.count("\n"), "\x1b" in told.err, "\x07" in told.err) == (1, False, False)


def test_list_without_an_end_is_none_of_an_echo_service(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_client, "LIST_PAGES_MAX", 5)
    counter = itertools.count()

    def answer(_: str) -> Iterator[bytes]:
        yield json_answer({"objects": [{"path": "a"}], "next_cursor": f"c{next(counter)}"})

    with service(answer) as hostile:
        assert run(hostile.link.partition("/s/")[0], "site", "ls", "--project", ID) == 2
    assert next(counter) == 5
    assert "is not an echo service" in capsys.readouterr().err


def test_deploy_believes_no_hash_but_its_own(capsys: Capsys) -> None:
    """One that answers as if it had taken the file, and has not."""

    def answer(target: str) -> Iterator[bytes]:
        is_list = "/static?" in target
        yield json_answer(
            {**PROJECT, "objects": [], "next_cursor": None, "sha256": "0" * 64} if not is_list else {"objects": []}
        )

    with service(answer) as hostile:
        assert run(hostile.link.partition("/s/")[0], "site", "deploy", "site", "--project", ID) == 2
    assert "changed while it was sent" in capsys.readouterr().err


def test_service_that_breaks_off_is_tried_again_and_then_given_up(capsys: Capsys) -> None:
    puts = 0

    def answer(target: str) -> Iterator[bytes]:
        nonlocal puts
        if "/static/" in target:
            puts += 1
            return
        yield json_answer({"objects": []} if "/static?" in target else PROJECT)

    with service(answer) as broken:
        assert run(broken.link.partition("/s/")[0], "site", "deploy", "site", "--project", ID) == 2
    assert puts == 3
    assert "does not answer" in capsys.readouterr().err


def test_room_of_another_form_is_not_published(capsys: Capsys) -> None:
    for url in (None, 7, "wss://elsewhere.example/ws/s/es_other", "es_x"):
        document = {**PROJECT, "websocket_url": url}
        with service(lambda _: iter([json_answer(document)])) as hostile:  # noqa: B023
            base = hostile.link.partition("/s/")[0]
            assert run(base, "site", "deploy", "site", "--project", ID, "--room", "room.json") == 2
        assert "the project's room has ended" in capsys.readouterr().err


async def test_connection_is_used_again_and_opened_anew_when_it_was_closed(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        made = (await one.run("project", "create", "n", "--json")).json

        def several() -> list[Any]:
            with closing(KeptService(one.one.base)) as kept:
                api, sockets = ProjectApi(kept, BEARER), []
                for path in ("a", "b", "c", "d"):
                    api.put(made["project_id"], path, b"x", 1)
                    connection = kept._kept  # noqa: SLF001
                    assert connection is not None
                    sockets.append(None if connection.sock is None else connection.sock.fileno())
                    if path == "b":
                        connection.close()
                return sockets

        sockets = await trio.to_thread.run_sync(several)
        assert None not in sockets
        assert sockets[0] == sockets[1]
        assert sockets[2] == sockets[3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_deploy_that_is_interrupted_ends_at_once(number: signal.Signals, tmp_path: Path) -> None:
    is_sending = threading.Event()

    def answer(target: str) -> Iterator[bytes]:
        if "/static/" in target:
            is_sending.set()
            slow.is_over.wait(PATIENCE_S)
        else:
            yield json_answer({"objects": []} if "/static?" in target else PROJECT)

    with service(answer) as slow:
        base = slow.link.partition("/s/")[0]
        command = [
            sys.executable,
            "-m",
            "gateway.commands.cli",
            "site",
            "deploy",
            "site",
            "--project",
            ID,
            "--url",
            base,
        ]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
            assert is_sending.wait(PATIENCE_S)
            process.send_signal(number)
            _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    assert told == b""


async def test_progress_is_shown_on_a_terminal(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    async with studio(tmp_path, capsys, monkeypatch) as one:
        put(one.pages, big_dot_txt="x" * 200_000)
        code, shown = await on_terminal("deploy", "assets", "--domain", "shop", command="site")
        assert code == 0, shown
        assert "4 files" in shown
        assert "uploaded big.txt" in shown
        assert "4 uploaded, 0 unchanged" in shown
        assert shown.rstrip().endswith(f"http://shop.localhost:{one.one.base.rpartition(':')[2]}")
