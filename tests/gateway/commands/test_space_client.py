"""What the commands of spaces make of services that are not as they should be. Nothing of it is a traceback."""

import hashlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.cli import main
from gateway.main.command_variables import FOR_COMMANDS
from tests.certificates import write_certificate
from tests.gateway.commands.fake_gateway import PROXIES, Asked, FakeGateway, Reply, fake_gateway, running_on
from tests.gateway.commands.space_site import site

TOKEN = "es_" + "A" * 43
SPACE_ID = "01m7p6hqs2dzhfd9qxt48rxmgn"
FILE_ID = "01m7p6hqs2dzhfd9qxt48rxmgp"
ESCAPES = "\x1b[2J\x07\x9b31m"
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*FOR_COMMANDS, "HELIOGRAPH_DATA", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def service() -> Iterator[FakeGateway]:
    with fake_gateway(lambda _: Reply(status=500)) as server:
        yield server


def link(service: FakeGateway) -> str:
    return f"http://{service.address}/s/{TOKEN}"


def refuse(word: str, status: int, **more: Any) -> Reply:
    return Reply({"error": word, "message": "Said so.", "correlation_id": "0", **more}, status)


COMMANDS = [["show"], ["kv", "get", "k"], ["kv", "set", "k", "v"], ["kv", "ls"], ["kv", "rm", "k"], ["files"], ["join"]]
COMMANDS += [["get", "f"], ["put", "f"]]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"<html>", 200, "text/html"),
        Reply(b"<html>", 502, "text/html"),
        Reply([1], 200),
        Reply({}, 200),
        Reply({"error": 7}, 500),
        Reply(b"[" * 100_000, 200),
        Reply(b"", 301, headers={"Location": "http://127.0.0.1:1/"}),
        Reply(b"nonsense\r\n\r\n", 0),
    ],
)
def test_what_is_no_echo_service_is_one_line_and_exit_code_2(
    reply: Reply, service: FakeGateway, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("f").write_text("content")
    service.replies = lambda _: reply
    monkeypatch.setenv("HELIOGRAPH_SPACE", link(service))
    for command in COMMANDS:
        if command == ["kv", "rm", "k"] and reply.status == 200:
            continue  # of which only the status counts
        assert main(["space", *command]) == 2, command
        told = capsys.readouterr()
        assert (told.out, told.err.count("\n")) == ("", 1)
        assert f"http://{service.address}" in told.err
        assert TOKEN not in told.err


def test_nobody_at_the_address_is_said_with_what_to_do(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("f").write_text("content")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for base in (f"http://127.0.0.1:{port}", "http://nowhere.invalid", "http://a..b"):
        monkeypatch.setenv("HELIOGRAPH_SPACE", f"{base}/s/{TOKEN}")
        for command in COMMANDS:
            assert main(["space", *command]) == 2
            told = capsys.readouterr().err
            assert "does not answer" in told
            assert "see that it runs" in told
            assert TOKEN not in told


def test_refusals_are_the_word_the_message_and_what_to_do(service: FakeGateway, capsys: Capsys) -> None:
    service.replies = lambda _: refuse("rate_limited", 429, retry_after_ms=2100)
    assert main(["space", "kv", "get", link(service), "k"]) == 1
    assert capsys.readouterr().err == "heliograph: rate_limited: Said so. Try again in 3 s.\n"
    for said_ms, wait in ((10**400, 86_400), (-(10**400), 1), (0, 1)):
        service.replies = lambda _, said_ms=said_ms: refuse("rate_limited", 429, retry_after_ms=said_ms)  # type: ignore[misc]
        assert main(["space", "kv", "get", link(service), "k"]) == 1
        assert capsys.readouterr().err == f"heliograph: rate_limited: Said so. Try again in {wait} s.\n"
    service.replies = lambda _: refuse(f"new{ESCAPES}\nword", 400, retry_after_ms="x")
    assert main(["space", "kv", "get", link(service), "k"]) == 1
    assert capsys.readouterr().err == "heliograph: new[2J31mword: Said so.\n"


def test_no_proxy_gets_the_link(service: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    service.replies = lambda _: Reply({"space_id": SPACE_ID})
    with fake_gateway() as proxy:
        for name in PROXIES:
            monkeypatch.setenv(name, f"http://{proxy.address}")
        assert main(["space", "show", link(service)]) == 0
        assert proxy.asked == []


# ---- another instance, which has what the guide has and no more ------------------------------------------------------


def guide_only(answers: dict[str, Reply]) -> Callable[[Asked], Reply]:
    def reply(asked: Asked) -> Reply:
        path = asked.path.removeprefix(f"/api/s/{TOKEN}")
        return answers.get(path, Reply(b"nope", 404, "text/plain"))

    return reply


def test_an_instance_without_documents_is_shown_by_its_prompt(service: FakeGateway, capsys: Capsys) -> None:
    prompt = Reply(f"<ECHO_PROMPT>\n{ESCAPES}hello\n".encode(), 200, "text/plain")
    service.replies = guide_only({f"/s/{TOKEN}/prompt": prompt})
    assert main(["space", "show", link(service)]) == 0
    assert capsys.readouterr().out == "<ECHO_PROMPT>\n[2J31mhello\n"
    assert main(["space", "show", link(service), "--json"]) == 2
    assert "no document" in capsys.readouterr().err


def test_values_of_an_instance_without_documents(service: FakeGateway, capsys: Capsys) -> None:
    entry = {"key": "k", "version": 1, "encrypted": False, "value": "v"}
    service.replies = guide_only({"/kv/k": Reply(entry)})
    assert main(["space", "kv", "set", link(service), "k", "v"]) == 0
    assert service.asked[-1].body == {"value": "v"}
    assert main(["space", "kv", "get", link(service), "k"]) == 0
    assert capsys.readouterr().out == "version 1\nv"
    service.replies = guide_only({"/kv/k": Reply({**entry, "encrypted": True})})
    assert main(["space", "kv", "get", link(service), "k"]) == 2
    assert "--raw" in capsys.readouterr().err
    service.replies = guide_only({"/kv/k": refuse("encryption_required", 400)})
    assert main(["space", "kv", "set", link(service), "k", "v"]) == 1
    assert "--raw" in capsys.readouterr().err


@pytest.mark.parametrize("entry", [{}, {"value_base64": "?"}, {"value_base64": 7}])
def test_an_answer_without_a_value_is_none(entry: dict[str, Any], service: FakeGateway, capsys: Capsys) -> None:
    service.replies = guide_only({"/kv/k": Reply({"key": "k", **entry})})
    assert main(["space", "kv", "get", link(service), "k"]) == 2
    assert "no value" in capsys.readouterr().err


def test_a_list_whose_cursor_does_not_move_ends(service: FakeGateway, capsys: Capsys) -> None:
    service.replies = guide_only({"/kv": Reply({"keys": [{"key": f"k{ESCAPES}"}, 7], "next_cursor": "again"})})
    assert main(["space", "kv", "ls", link(service)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert len(service.asked) == 2


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [7, {}, [7], "files", None])
def test_a_list_that_is_none_has_no_files(files: Any, service: FakeGateway, capsys: Capsys) -> None:
    service.replies = guide_only({"/files": Reply({"files": files}), "/kv": Reply({"keys": files})})
    for command in (["files"], ["kv", "ls"]):
        assert main(["space", *command, link(service)]) == 0
        assert capsys.readouterr().out == "none\n"
    assert main(["space", "get", link(service), "f"]) == 1


@pytest.mark.parametrize("command", ["kv set {} k -", "put {} -", "close {}"])
def test_without_standard_input_it_is_said(command: str, service: FakeGateway) -> None:
    line = f"{sys.executable} -m gateway.commands.cli space {command.format(link(service))} <&-"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Traceback" not in done.stderr


def test_characters_that_the_terminal_does_not_have_are_replaced(service: FakeGateway) -> None:
    service.replies = guide_only({"/files": Reply({"files": [{"name": "\U0001f600.txt"}]})})
    line = f"PYTHONIOENCODING=latin-1 {sys.executable} -m gateway.commands.cli space files {link(service)}"
    done = subprocess.run(line, shell=True, capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stderr, b"?.txt" in done.stdout) == (0, b"", True)


def file(name: str, content: bytes, **more: Any) -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    return {"file_id": FILE_ID, "name": name, "size": len(content), "sha256": sha256, **more}


@pytest.mark.parametrize(
    ("name", "here"),
    [("../../up", "up"), ("/etc/passwd", "passwd"), (".ssh", "ssh"), (f"a{ESCAPES}", "a[2J31m"), ("..", "file")],
)
def test_a_name_of_the_service_never_leaves_the_folder(
    name: str, here: str, tmp_path: Path, service: FakeGateway, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "in" / "here")
    listed = Reply({"files": [file(name, b"content")]})
    service.replies = guide_only({"/files": listed, f"/files/{FILE_ID}": Reply(b"content")})
    assert main(["space", "get", link(service), FILE_ID]) == 0
    assert capsys.readouterr().out == f"{here}\n"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "in" / "here" / here]


@pytest.mark.parametrize("out", ["f", "-"])
@pytest.mark.parametrize("sent", [b"conten", b"contents", b"CONTENT"])
def test_a_file_that_is_not_what_was_said_is_not_left_behind(
    sent: bytes, out: str, tmp_path: Path, service: FakeGateway, capsys: Capsys
) -> None:
    listed = Reply({"files": [file("f", b"content")]})
    service.replies = guide_only({"/files": listed, f"/files/{FILE_ID}": Reply(sent)})
    assert main(["space", "get", link(service), "f", "--out", out]) == 2
    assert "did not arrive whole" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_became_unreadable_is_not_left_behind_when_it_was_to_be_overwritten(
    tmp_path: Path, service: FakeGateway
) -> None:
    Path("f").write_text("mine")
    listed = Reply({"files": [file("f", b"content")]})
    service.replies = guide_only({"/files": listed, f"/files/{FILE_ID}": Reply(b"other")})
    assert main(["space", "get", link(service), "f", "--force"]) == 2
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


# ---- operators -------------------------------------------------------------------------------------------------------


def test_an_operator_closes_a_space_by_its_id(tmp_path: Path, service: FakeGateway, capsys: Capsys) -> None:
    service.replies = lambda asked: (
        Reply(status=204)
        if (asked.method, asked.path) == ("DELETE", f"/admin/spaces/{SPACE_ID}")
        else Reply({"code": "E_MANIFEST_NOT_FOUND", "message": "No such space.", "suggested_fix": "Look."}, 404)
    )
    data = ["--data", str(tmp_path / "data")]
    with running_on(tmp_path / "data", service):
        assert main(["space", "close", SPACE_ID, *data]) == 0
        assert SPACE_ID in capsys.readouterr().out
        assert str(service.asked[-1].authorization).startswith("Bearer ey")
        assert main(["space", "close", SPACE_ID[:-1] + "0", *data]) == 1
        assert json.loads(capsys.readouterr().err)["code"] == "E_MANIFEST_NOT_FOUND"


# ---- TLS -------------------------------------------------------------------------------------------------------------


async def test_over_tls_a_certificate_has_to_be_trusted(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = str(write_certificate(tmp_path))
    settings = {"http.tls_certificate": pem, "http.tls_key": pem}
    async with site(tmp_path, capsys, monkeypatch, **settings) as here:
        base = here.gateway.http_url
        assert base.startswith("https://127.0.0.1:")
        for command in (["create", "--url", base], ["join", "--listen", f"{base}/s/{TOKEN}"]):
            said = await here.space(*command)
            assert (said.code, "is not one that this system trusts" in said.err) == (2, True), said
        monkeypatch.setenv("SSL_CERT_FILE", pem)
        made = await here.space("create", "--url", base, "--json")
        link = f"{base}/s/{made.json['token']}"
        assert (await here.space("kv", "set", link, "a", "b")).code == 0
        joined = await here.join(link, '{"type":"msg","data":1,"id":"1"}')
        assert (joined.code, '"type": "ack"' in joined.out) == (0, True)
