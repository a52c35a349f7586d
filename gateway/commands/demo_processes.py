"""`heliograph demo --processes N`: a `nats-server` of its own, N gateways on it, and nodes that any of them reaches."""

import argparse
import json
import logging
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import trio
from ulid import ULID

from actors.device.identity import DeviceIdentity
from actors.device.identity_files import KEY_FILE
from actors.private_file import write_private
from gateway.commands.demo_node import TENANT, TOKEN_LIFE_S, be_a_node
from gateway.commands.gateway_run import run_gateway
from gateway.commands.node_run import wall_ms
from gateway.commands.parsing import CommandError
from gateway.commands.processes import Processes, Ready, StoppedError
from gateway.commands.unix_http import UnixConnection
from gateway.engine.server_run import NoServerError, ServerRun
from gateway.identity.tokens import AnyScope, OperatorScope, Scope, TokenClass
from gateway.main.data_folder import PLACES, DataFolder
from gateway.main.engine_check import check_engine
from gateway.main.settings import SettingsError, load
from gateway.observe.log_output import LogSettings, log_to

LIVE_S_MAX = 60.0  # for every process to reach every node; then what is reached by then is shown
_LOOK_S = 0.1
_ANSWER_S_MAX = 10.0
_SESSIONS = re.compile(r'^heliograph_node_sessions{process="(\d+)"} (\d+)$', re.MULTILINE)


def run_several(folder: Path, agent_id: str, policy: Path, arguments: argparse.Namespace) -> int:
    nats = folder / "nats"
    nats.mkdir(mode=0o700, exist_ok=True)
    server = ServerRun(nats)
    credentials, config = folder / "nats.token", folder / "demo-engine.toml"
    engine = {
        "url": "nats://127.0.0.1:1",  # until the server says which port it has
        "credentials": str(credentials),
        "replicas": 1,
        "processes": arguments.processes,
        "log_bytes_max": 64 * 1024**2,
        "bucket_bytes_max": 16 * 1024**2,
        "sync_is_always": True,
    }
    write_private(credentials, server.token.encode())
    log_to(LogSettings(format="pretty"), logging.WARNING)
    try:
        check_engine(load(None, {}, {f"engine.{name}": value for name, value in engine.items()}))
        return run_gateway(_Demo(folder, agent_id, policy, server, config, engine, arguments).run)
    except StoppedError as error:
        raise CommandError(str(error) or f"a gateway could not start: see {folder / LOG_FILE}") from None
    except (NoServerError, SettingsError) as error:
        raise CommandError(str(error)) from None


LOG_FILE = "gateways.log"


class _Demo:
    def __init__(
        self,
        folder: Path,
        agent_id: str,
        policy: Path,
        server: ServerRun,
        config: Path,
        engine: dict[str, Any],
        arguments: argparse.Namespace,
    ) -> None:
        self._folder, self._server, self._arguments = folder, server, arguments
        self._config, self._engine, self._policy = config, engine, policy
        self._homes: dict[Path, DeviceIdentity] = {}
        with DataFolder.hold(folder, wall_ms(), shares=True) as data:
            for number in range(arguments.nodes):
                home = folder / f"node-{number}"
                if not (home / KEY_FILE).exists():
                    data.enroll(str(ULID()).lower(), TENANT, str(ULID()), wall_ms()).save(home)
                self._homes[home] = DeviceIdentity.load(home)
            self._agent = _mint(data, TokenClass.AGENT_RUNTIME, agent_id, [Scope.READ_ONLY])
            self._operator = _mint(data, TokenClass.OPERATOR, "demo", list(OperatorScope))

    async def run(self) -> None:
        await self._server.start()
        try:
            self._engine["url"] = self._server.url
            sections = {
                "governance": {"policy": str(self._policy)},
                "log": {"target": str(self._folder / LOG_FILE)},
                "engine": self._engine,
            }
            lines = [f"data = {json.dumps(str(self._folder))}"]
            for section, values in sections.items():
                lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
            await trio.Path(self._config).write_text("\n".join(lines) + "\n")
            flags = {"http.listen": self._arguments.http, "devices.listen": self._arguments.devices}
            settings = load(self._config, {}, flags)
            is_ready = trio.Event()
            said: list[Ready] = []

            def say(ready: Ready) -> None:
                said.append(ready)
                is_ready.set()

            processes = Processes(settings, ["serve", "--config", str(self._config)], say)
            async with trio.open_nursery() as nursery:

                async def gateways() -> None:
                    await processes.run()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(gateways)
                await is_ready.wait()
                for number, (home, identity) in enumerate(self._homes.items()):
                    nursery.start_soon(be_a_node, identity, home, said[0].devices, number)
                with trio.move_on_after(LIVE_S_MAX):
                    await self._all_reached()
                await self._show(said[0])
        finally:
            await self._server.stop()

    @property
    def _ids(self) -> list[str]:
        return [identity.node_id for identity in self._homes.values()]

    async def _all_reached(self) -> None:
        for number in range(self._arguments.processes):
            while await self._answered_by(number) < len(self._ids):  # noqa: ASYNC110  # no one event says so
                await trio.sleep(_LOOK_S)

    async def _answered_by(self, number: int) -> int:
        """How many of the nodes answer to a call at this process."""
        answered = 0
        for node_id in self._ids:
            body = json.dumps({"tool": f"sysecho.{node_id}.echo.invoke", "arguments": {"message": "hello"}})
            status, _ = await self._ask(number, "POST", "/mcp/tools/call", body, self._agent)
            answered += status == 200
        return answered

    async def _ask(self, number: int, method: str, path: str, body: str | None, token: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            connection = UnixConnection(str(self._folder.absolute() / PLACES / f"{number}.sock"), _ANSWER_S_MAX)
            try:
                connection.request(method, path, body, {"authorization": f"Bearer {token}"})
                response = connection.getresponse()
                return response.status, response.read().decode()
            except OSError:
                return 0, ""
            finally:
                connection.close()

        return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)

    async def _show(self, ready: Ready) -> None:
        numbers = range(self._arguments.processes)
        _, page = await self._ask(0, "GET", "/metrics", None, self._operator)
        sessions = {int(number): int(count) for number, count in _SESSIONS.findall(page)}
        answered = {number: await self._answered_by(number) for number in numbers}
        lines = [
            f"{len(numbers)} gateways share {len(self._ids)} nodes. Agents: {ready.http}   nodes: {ready.devices}",
            f"MCP clients: {ready.http}/mcp/fleet   log: {self._folder / LOG_FILE}\n",
            *(
                f"  process {number}: has the sessions of {sessions.get(number, 0)} nodes; {answered[number]} answer it"
                for number in numbers
            ),
        ]
        node_id = self._ids[0] if self._ids else "NODE"
        call = json.dumps({"tool": f"sysecho.{node_id}.echo.invoke", "arguments": {"message": "hello"}})
        subscribe = json.dumps({"tool": f"sys.{node_id}.metrics.subscribe", "arguments": {"interval_ms": 1000}})
        lines += [
            "\nTry, in another terminal; each connection reaches one of them, whichever it is:\n",
            f"  TOKEN={self._agent}\n",
            f"  curl -s {ready.http}/mcp/tools/call -H \"Authorization: Bearer $TOKEN\" -d '{call}'",
            f'  curl -sN {ready.http}/mcp/tools/call -H "Authorization: Bearer $TOKEN" -H "Accept: text/event-stream" '
            f"-d '{subscribe}'",
            f"  .venv/bin/heliograph nodes --data {self._folder}",
            "\nCtrl-C stops everything.",
        ]
        if self._arguments.ready_file is not None:
            told = {
                "http": ready.http,
                "devices": ready.devices,
                "tenant": TENANT,
                "agent_token": self._agent,
                "operator_token": self._operator,
                "nodes": self._ids,
                "sessions": sessions,
                "answered": answered,
            }
            try:
                await trio.Path(self._arguments.ready_file).write_text(json.dumps(told) + "\n")
            except OSError as error:
                file = self._arguments.ready_file
                raise SettingsError(f"--ready-file: cannot write {file}: {error.strerror}") from error
        print("\n".join(lines), flush=True)


def _mint(folder: DataFolder, token_class: TokenClass, sub: str, scopes: Collection[AnyScope]) -> str:
    return folder.mint(token_class, sub, TENANT, scopes, TOKEN_LIFE_S, str(ULID()), wall_ms())
