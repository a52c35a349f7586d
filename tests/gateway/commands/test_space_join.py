"""`heliograph space join`: a real room, rooms that close in every way, and a terminal that is interrupted."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trio
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve
from websockets.trio.client import connect
from websockets.typing import Subprotocol

from gateway.commands import space_guest
from gateway.commands.parsing import CommandError
from gateway.commands.space_envelope import RoomSeal
from gateway.commands.space_guest import Guest
from gateway.commands.space_join_rules import ComeBack, Over, Presence
from gateway.commands.space_lines import LINE_BYTES_MAX, lines
from gateway.commands.space_link_rules import SpaceLink
from schemas.echo.envelope import WS_KID, read_envelope, room_key, unseal
from tests.gateway.commands.space_site import site

PATIENCE_S = 30.0
TOKEN = "es_" + "A" * 43
SPACE_ID = "01m7p6hqs2dzhfd9qxt48rxmgn"
WELCOME = {"type": "welcome", "uid": "u1", "space_id": SPACE_ID, "epoch": "e1", "seq": 5, "recovered": False}
Capsys = pytest.CaptureFixture[str]


# ---- a real room -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--encryption",), ("--protocol", "protobuf")])
async def test_frames_go_in_and_out_one_a_line(
    options: tuple[str, ...], tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made(*options)
        said = await here.join(
            made["dashboard_url"],
            '{"type":"join","subs":["lobby"]}',
            '{"type":"msg","data":{"a":"\\u001b[2J\\u007f"},"sub":"lobby","id":"1","self":true}',
            "",
            '{"type":"msg","data":null,"id":"2"}',
        )
        assert (said.code, said.err) == (0, "")
        assert "\x1b" not in said.out
        assert "\x7f" not in said.out
        heard = [json.loads(line) for line in said.out.splitlines()]
        assert heard[0]["type"] == "welcome"
        assert sorted((f["type"], f.get("id")) for f in heard if f["type"] == "ack") == [("ack", "1"), ("ack", "2")]
        assert [f["data"] for f in heard if f["type"] == "msg"] == [{"a": "\x1b[2J\x7f"}]


async def test_what_is_said_in_an_encrypted_room_is_sealed_on_the_way(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made("--encryption")
        url = f"ws://{here.gateway.http}/ws/s/{made['token']}?presence=0"
        with trio.fail_after(PATIENCE_S):
            async with connect(url, proxy=None) as other:
                assert json.loads(await other.recv())["type"] == "welcome"
                assert (await here.join(made["dashboard_url"], '{"type":"msg","data":"geheim"}')).code == 0
                sealed = json.loads(await other.recv())["data"]
        envelope = read_envelope(sealed)
        assert envelope is not None
        assert unseal(room_key(made["token"], made["space_id"]), WS_KID, envelope) == b'"geheim"'


async def test_a_line_that_is_no_frame_ends_it_after_what_was_said_before(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made()
        said = await here.join(made["dashboard_url"], '{"type":"msg","data":1,"id":"1"}', "oops", '{"type":"who"}')
        assert (said.code, "no JSON object" in said.err) == (2, True)
        assert '"ack"' in said.out
        assert '"who"' not in said.out


async def test_an_unknown_space_is_not_joined(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        said = await here.join(f"{here.base}/s/{TOKEN}")
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("heliograph: space_not_found: ")


class Joined:
    """The command in a process of its own, with lines for it to read."""

    def __init__(self, link: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.commands.cli", "space", "join", link, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    async def until(self, word: str) -> str:
        """The first line that it prints with this word."""
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE_S):
            while True:
                line = (await trio.to_thread.run_sync(self.process.stdout.readline, abandon_on_cancel=True)).decode()
                assert line, "it has ended"
                if word in line:
                    return line

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    async def end(self) -> tuple[int, str]:
        with trio.fail_after(PATIENCE_S):
            _, err = await trio.to_thread.run_sync(self.process.communicate, abandon_on_cancel=True)
        return self.process.returncode, err.decode()


@pytest.fixture
def joined() -> Iterator[Callable[..., Joined]]:
    started: list[Joined] = []

    def join(link: str, *options: str) -> Joined:
        started.append(Joined(link, *options))
        return started[-1]

    yield join
    for one in started:
        one.process.kill()
        one.process.communicate()


async def test_two_people_talk_and_one_presses_ctrl_c(
    joined: Callable[..., Joined], tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        link = (await here.made("--encryption"))["dashboard_url"]
        ada = joined(link, "--uid", "ada")
        await ada.until("you are ada")
        bob = joined(link, "--uid", "bob", "--subs", "lobby")
        await bob.until("you are bob")
        await ada.until("bob joined [lobby]")
        ada.type("hello \x1b[31mred")
        assert re.fullmatch(r"\d\d:\d\d:\d\d ada: hello \[31mred\n", await bob.until("hello"))
        bob.type("/to ada psst")
        assert " bob → you: psst\n" in await ada.until("psst")
        ada.type("/sub lobby only there")
        assert " ada [lobby]: only there\n" in await bob.until("only there")
        ada.type("/who")
        assert (await ada.until("here:")) == "* 2 here: ada, bob\n"
        bob.process.send_signal(signal.SIGINT)
        assert await bob.end() == (0, "")
        await ada.until("bob left")  # at once, and not after the 5 s of one who is lost
        ada.type("/quit")
        assert await ada.end() == (0, "")


async def test_the_end_of_the_space_ends_it_with_1(
    joined: Callable[..., Joined], tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made()
        ada = joined(made["dashboard_url"], "--json", "--listen")
        await ada.until("welcome")
        assert (await here.space("close", f"{made['dashboard_url']}#claim={made['claim']}")).code == 0
        assert await ada.end() == (1, "heliograph: the space has ended (4410)\n")


async def test_a_reader_that_has_seen_enough_ends_it_without_a_traceback(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        link = (await here.made())["dashboard_url"]
        lines_of_one = '{"type":"msg","data":1,"self":true}\n' * 3
        command = (
            f"printf '{lines_of_one}' | {sys.executable} -m gateway.commands.cli space join --json {link} | head -c 5"
        )
        with trio.fail_after(PATIENCE_S):
            done = await trio.run_process(["bash", "-c", command], capture_stdout=True, capture_stderr=True)
        assert (done.stdout, done.stderr) == (b'{"typ', b"")


# ---- rooms that break ------------------------------------------------------------------------------------------------


@dataclass
class ScriptedRoom:
    """Each connection is one of the acts, in order; after the last one there is no upgrade any more."""

    acts: list[Callable[[ServerConnection], None]]
    queries: list[str] = field(default_factory=list)
    heard: list[Any] = field(default_factory=list)
    refusal: tuple[int, Any] = (404, {"error": "space_not_found", "message": "Gone."})
    location: str | None = None
    address: str = ""

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        self.queries.append(request.path.partition("?")[2])
        if len(self.queries) <= len(self.acts):
            return None
        status, body = self.refusal
        response = connection.respond(HTTPStatus(status), json.dumps(body))
        if self.location is not None:
            response.headers["Location"] = self.location
        return response

    def play(self, connection: ServerConnection) -> None:
        self.acts[len(self.queries) - 1](connection)

    def hear(self, connection: ServerConnection) -> Any:
        self.heard.append(json.loads(connection.recv(PATIENCE_S)))
        return self.heard[-1]


@contextmanager
def scripted(room: ScriptedRoom) -> Iterator[SpaceLink]:
    protocols = [Subprotocol("echo.v1.json")]
    server: Server = serve(
        room.play, "127.0.0.1", 0, process_request=room.admit, subprotocols=protocols, compression=None
    )
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield SpaceLink(f"http://127.0.0.1:{server.socket.getsockname()[1]}", TOKEN)
        finally:
            server.shutdown()
            thread.join()


def send(connection: ServerConnection, *frames: dict[str, Any]) -> None:
    for frame in frames:
        connection.send(json.dumps(frame))


async def stay(link: SpaceLink, written: bytes | None = None, *, seals: bool = False) -> tuple[int, Presence]:
    """Without written lines nothing is read, as with --listen."""
    presence = Presence(None, ["a"])
    guest = Guest(link, presence, RoomSeal(TOKEN, SPACE_ID) if seals else None, is_json=True)
    if written is None:
        with trio.fail_after(PATIENCE_S):
            return await guest.stay(None), presence
    read, write = os.pipe()
    os.write(write, written)
    os.close(write)
    try:
        with trio.fail_after(PATIENCE_S):
            return await guest.stay(read), presence
    finally:
        os.close(read)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for is tested with the rules; here nobody waits."""
    for name in ("after_close", "after_refusal"):
        decide = getattr(space_guest, name)

        def now(*arguments: Any, decide: Callable[..., ComeBack | Over] = decide) -> ComeBack | Over:
            what = decide(*arguments)
            return ComeBack(0.0) if isinstance(what, ComeBack) else what

        monkeypatch.setattr(space_guest, name, now)


async def test_after_a_break_it_is_back_as_the_same_with_since_and_epoch(capsys: Capsys) -> None:
    def breaks(connection: ServerConnection) -> None:
        send(connection, WELCOME, {"type": "msg", "uid": "x", "seq": 9, "data": 1})
        connection.socket.close()

    def restarts(connection: ServerConnection) -> None:
        send(connection, {**WELCOME, "seq": 10, "recovered": True}, {"type": "msg", "uid": "x", "seq": 10, "data": 2})
        connection.close(1012, "service_restart")

    def ends(connection: ServerConnection) -> None:
        send(connection, {**WELCOME, "epoch": "e2", "seq": 0})
        connection.close(4410, "gone")

    room = ScriptedRoom([breaks, restarts, ends])
    with scripted(room) as link:
        status, _ = await stay(link)
    assert status == 1
    assert room.queries == ["subs=a", "uid=u1&subs=a&since=9&epoch=e1", "uid=u1&subs=a&since=10&epoch=e1"]
    told = capsys.readouterr()
    assert [json.loads(line).get("data") for line in told.out.splitlines()] == [None, 1, None, 2, None]
    assert told.err.count("not connected") == 2
    assert "may have been missed" in told.err
    assert told.err.endswith("the space has ended (4410)\n")


@pytest.mark.parametrize(("code", "status"), [(1000, 0), (1009, 1), (4400, 1), (4401, 1), (4403, 1), (4410, 1)])
async def test_closes_that_are_final_say_so_by_the_exit_code(code: int, status: int) -> None:
    def closes(connection: ServerConnection) -> None:
        send(connection, WELCOME)
        connection.close(code)

    room = ScriptedRoom([closes])
    with scripted(room) as link:
        assert (await stay(link))[0] == status
    assert len(room.queries) == 1


@pytest.mark.parametrize("code", [1011, 1012, 4408, 4413, 4420, 4429])
async def test_closes_after_which_one_comes_back(code: int, capsys: Capsys) -> None:
    def closes(connection: ServerConnection) -> None:
        connection.close(code)

    room = ScriptedRoom([closes])
    with scripted(room) as link:
        assert (await stay(link))[0] == 1
    assert len(room.queries) == 2  # and the second time there is no such space
    assert "space_not_found: Gone." in capsys.readouterr().err


async def test_a_line_that_could_not_be_sent_is_sent_after_the_break_and_subspaces_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(space_guest, "FLUSH_S_MAX", PATIENCE_S)  # a busy machine is no reason to give up

    def takes_one(connection: ServerConnection) -> None:
        send(connection, WELCOME)
        room.hear(connection)
        connection.close(4413, "slow")

    def takes_all(connection: ServerConnection) -> None:
        send(connection, WELCOME)
        while (frame := room.hear(connection))["type"] != "ping":
            pass
        send(connection, {"type": "pong", "id": frame["id"]})

    room = ScriptedRoom([takes_one, takes_all])
    said = b"".join(b'{"type":"msg","data":%d}\n' % number for number in range(200))
    with scripted(room) as link:
        status, presence = await stay(link, b'{"type":"join","subs":["b"]}\n' + said)
    assert (status, presence.subs) == (0, ["a", "b"])
    assert room.queries[1].startswith("uid=u1&subs=a%2Cb&")
    numbers = [frame["data"] for frame in room.heard if frame["type"] == "msg"]
    assert numbers == sorted(set(numbers)), "each at most once, in order"
    assert numbers[-1] == 199


async def test_lines_that_the_room_does_not_confirm_are_told(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_guest, "FLUSH_S_MAX", 0.05)

    def is_silent(connection: ServerConnection) -> None:
        send(connection, WELCOME)
        room.hear(connection)

        while room.hear(connection):
            pass

    room = ScriptedRoom([is_silent])
    with scripted(room) as link:
        assert (await stay(link, b'{"type":"msg","data":1}\n'))[0] == 1
    assert "did not confirm" in capsys.readouterr().err


async def test_a_break_before_the_last_lines_are_confirmed_is_told(capsys: Capsys) -> None:
    def breaks(connection: ServerConnection) -> None:
        send(connection, WELCOME)
        while room.hear(connection)["type"] != "ping":
            pass
        connection.socket.close()

    room = ScriptedRoom([breaks])
    with scripted(room) as link:
        assert (await stay(link, b'{"type":"msg","data":1}\n'))[0] == 1
    assert "before the room had confirmed" in capsys.readouterr().err


async def test_nothing_is_said_before_the_welcome_and_nothing_in_the_clear() -> None:
    def takes_its_time(connection: ServerConnection) -> None:
        with pytest.raises(TimeoutError):
            connection.recv(0.1)
        send(connection, WELCOME)
        while (frame := room.hear(connection))["type"] != "ping":
            pass
        send(connection, {"type": "pong", "id": frame["id"]})

    room = ScriptedRoom([takes_its_time])
    with scripted(room) as link:
        assert (await stay(link, b'{"type":"msg","data":"geheim"}\n', seals=True))[0] == 0
    assert read_envelope(room.heard[0]["data"]) is not None


@pytest.mark.parametrize("frame", ["[1]", "nonsense", "[" * 100_000])
async def test_what_is_no_frame_is_a_broken_connection(frame: str) -> None:
    def babbles(connection: ServerConnection) -> None:
        connection.send(frame)
        connection.recv(PATIENCE_S)

    room = ScriptedRoom([babbles])
    with scripted(room) as link:
        assert (await stay(link))[0] == 1
    assert len(room.queries) == 2


@pytest.mark.parametrize(
    "location", [None, *(f"{start}/ws/s/{TOKEN}" for start in ("", "ws://h", "http://h", "ws://["))]
)
async def test_a_redirect_is_neither_followed_nor_repeated(location: str | None, capsys: Capsys) -> None:
    room = ScriptedRoom([], refusal=(302, {}), location=location)
    with scripted(room) as link:
        assert (await stay(link))[0] == 1
    assert len(room.queries) == 1
    told = capsys.readouterr().err
    assert "HTTP 302" in told
    assert TOKEN not in told


@pytest.mark.parametrize("wait_ms", [10**400, -(10**400), -1, 0, True, 1.5])
async def test_a_wait_that_cannot_be_is_no_traceback(wait_ms: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space_guest, "AWAY_S_MAX", 0.0)
    room = ScriptedRoom([], refusal=(429, {"error": "rate_limited", "retry_after_ms": wait_ms}))
    with scripted(room) as link:
        assert (await stay(link))[0] == 1


async def test_names_of_a_welcome_that_cannot_be_are_not_brought_back(capsys: Capsys) -> None:
    def lies(connection: ServerConnection) -> None:
        send(connection, {**WELCOME, "uid": "\ud800", "epoch": "\ud800", "seq": 10**4000})
        connection.socket.close()

    room = ScriptedRoom([lies])
    with scripted(room) as link:
        assert (await stay(link))[0] == 1
    assert room.queries == ["subs=a", "subs=a"]
    assert "Gone." in capsys.readouterr().err


async def test_a_room_that_cannot_be_reached_at_first_is_wrong_use_and_later_a_wait(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(ScriptedRoom([])) as link:
        pass
    with pytest.raises(ExceptionGroup) as raised:
        await stay(link)
    assert raised.group_contains(CommandError, match="does not answer")
    monkeypatch.setattr(space_guest, "AWAY_S_MAX", 0.0)

    def closes(connection: ServerConnection) -> None:
        send(connection, WELCOME)
        connection.close(1012)

    room = ScriptedRoom([closes], refusal=(503, {"error": "overloaded", "message": "Busy."}))
    with scripted(room) as link:
        assert (await stay(link))[0] == 1
    assert "could not be reached for too long" in capsys.readouterr().err


# ---- lines -----------------------------------------------------------------------------------------------------------


async def _all(descriptor: int) -> list[bytes]:
    with trio.fail_after(PATIENCE_S):
        return [line async for line in lines(descriptor)]


async def test_lines_come_from_pipes_and_files_alike(tmp_path: Path) -> None:
    text = "a\n\ngrün\nlast".encode()
    (tmp_path / "file").write_bytes(text)
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    file, null = os.open(tmp_path / "file", os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
    try:
        expected = [b"a", b"", "grün".encode(), b"last"]
        assert [await _all(read), await _all(file), await _all(null)] == [expected, expected, []]
    finally:
        for descriptor in (read, file, null):
            os.close(descriptor)


async def test_a_line_without_an_end_is_not_kept_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * (3 * LINE_BYTES_MAX))
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        pieces = await _all(descriptor)
    finally:
        os.close(descriptor)
    assert sum(map(len, pieces)) == 3 * LINE_BYTES_MAX
    assert max(map(len, pieces)) <= LINE_BYTES_MAX + 64 * 1024
