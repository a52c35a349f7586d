"""A whole gateway with spaces, and the command line as somebody elsewhere uses it: with a link, and no folder."""

import contextlib
import io
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from gateway.commands.cli import main
from gateway.main.command_variables import BEARERS, FOR_COMMANDS
from gateway.main.server import Running, running
from gateway.main.settings import load

PATIENCE_S = 30.0
ON = {"http.listen": "127.0.0.1:0", "devices.listen": "127.0.0.1:0", "echo.enabled": True, "echo.disk_free_min": 0.0}


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Site:
    gateway: Running
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    @property
    def base(self) -> str:
        assert self.gateway.base is not None
        return self.gateway.base()

    async def space(self, *arguments: str, stdin: bytes = b"") -> Said:
        return await self.run("space", *arguments, stdin=stdin)

    async def run(self, *arguments: str, stdin: bytes = b"") -> Said:
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self.capsys.readouterr()
        with trio.fail_after(PATIENCE_S):
            code = await trio.to_thread.run_sync(main, arguments)
        told = self.capsys.readouterr()
        return Said(code, told.out, told.err)

    async def join(self, link: str, *lines: str) -> Said:
        """With --json: what is heard until all these lines are taken."""
        read, write = os.pipe()
        os.write(write, "".join(f"{line}\n" for line in lines).encode())
        os.close(write)
        self.capsys.readouterr()
        with trio.fail_after(PATIENCE_S), os.fdopen(read) as stdin:
            self.monkeypatch.setattr("sys.stdin", stdin)
            code = await trio.to_thread.run_sync(main, ["space", "join", "--json", link])
        told = self.capsys.readouterr()
        return Said(code, told.out, told.err)

    async def made(self, *arguments: str) -> Any:
        said = await self.space("create", "--url", self.base, "--json", *arguments)
        assert said.code == 0, said
        return said.json


@contextlib.asynccontextmanager
async def site(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[Site]:
    for name in (*FOR_COMMANDS, *BEARERS, "HELIOGRAPH_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    given = {"data": str(folder / "data"), **ON, **settings}
    with capture_logs():  # the gateway's, which else are in the output
        async with running(load(None, {}, given)) as gateway:
            yield Site(gateway, capsys, monkeypatch)
