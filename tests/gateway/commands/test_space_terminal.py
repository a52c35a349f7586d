"""What the commands of spaces show on a terminal, which is a real one here."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from tests.gateway.commands.space_site import site

PATIENCE_S = 30.0
Capsys = pytest.CaptureFixture[str]


async def on_terminal(*arguments: str, typed: bytes = b"", command: str = "space") -> tuple[int, str]:
    """The exit code, and all that it showed there. What is typed follows the first prompt."""
    return await trio.to_thread.run_sync(_on_terminal, (command, *arguments), typed)


def _on_terminal(arguments: tuple[str, ...], typed: bytes) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read() -> None:
        try:
            while piece := os.read(ours, 4096):
                shown.extend(piece)
                if typed and shown.endswith(b": "):
                    os.write(ours, typed)
        except OSError:  # nobody has the other end any more
            return

    reader = threading.Thread(target=read)
    reader.start()
    command = [sys.executable, "-m", "gateway.commands.cli", *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            timeout=PATIENCE_S,
            check=False,
            start_new_session=True,  # else a prompt would go to the terminal of whoever runs the tests
        )
    finally:
        os.close(theirs)
        reader.join(PATIENCE_S)
        os.close(ours)
    return done.returncode, shown.decode()


async def test_what_others_wrote_cannot_command_the_terminal(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        link = (await here.made())["dashboard_url"]
        assert (await here.space("kv", "set", link, "k", "one\x1b[2J\ntwo\x07")).code == 0
        assert await on_terminal("kv", "get", link, "k") == (0, "one[2J\r\ntwo\r\n")
        assert (await here.space("put", link, "-", "--name", "f", stdin=b"\x1b[2J")).code == 0
        code, shown = await on_terminal("get", link, "f", "--out", "-")
        assert (code, "\x1b" in shown, "redirect the output" in shown) == (2, False, True)


async def test_the_way_of_a_file_is_shown(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(bytes(3_000_000))
    async with site(tmp_path, capsys, monkeypatch) as here:
        link = (await here.made())["dashboard_url"]
        code, shown = await on_terminal("put", link, "f")
        assert code == 0
        assert "\r 50 %  1.4 MiB" in shown
        assert "\r100 %  2.9 MiB\r\n" in shown
        code, shown = await on_terminal("get", link, "f", "--force")
        assert (code, "\r100 %  2.9 MiB\r\n" in shown) == (0, True)


async def test_a_claim_that_is_typed_is_not_shown(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site(tmp_path, capsys, monkeypatch) as here:
        made = await here.made()
        code, shown = await on_terminal("close", made["dashboard_url"], "--claim", typed=b"ei_wrong\n")
        assert (code, "claim: " in shown, "unauthorized" in shown, "wrong" in shown) == (1, True, True, False)
