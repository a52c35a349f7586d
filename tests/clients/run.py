"""`make conformance`, second half: clients on the official SDKs' 1.x lines against every view, a process each.

They are what desktop clients embed, and stricter than the protocol in places. A whole gateway on a free port, in a
folder that goes at the end, with live mock nodes, a policy, and a server behind it whose schemas are odd. Each client
is given a plan, does what `client.mjs` and `python_client.py` say, and reports line by line. Exits with 1 when a check
fails, when a client does not get to its end, or when the gateway logs an error.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import trio
from structlog.typing import EventDict

from gateway.mcp import views
from gateway.observe.log_output import LogSettings, log_to
from tests.clients.field import Field, open_field
from tests.clients.installed import ClientCommand, NotInstalledError, find_clients

RUN_S_MAX = 300.0  # of everything; then the run has failed
VIEWS = tuple(view.path for view in views.VIEWS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.run", description=__doc__)
    parser.add_argument("--view", action="append", metavar="PATH", choices=VIEWS, help="only these views")
    parser.add_argument("--client", action="append", metavar="NAME", help="only these clients")
    parser.add_argument("--verbose", action="store_true", help="a line for each check that passed, too")
    arguments = parser.parse_args()
    log_to(LogSettings(format="pretty"), logging.WARNING)
    errors: list[str] = []
    structlog.configure(processors=[partial(_note_error, errors), *structlog.get_config()["processors"]])
    try:
        clients = [one for one in find_clients() if not arguments.client or one.name in arguments.client]
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return 1
    chosen = [view for view in views.VIEWS if not arguments.view or view.path in arguments.view]
    problems = trio.run(_run, clients, chosen, arguments.verbose)
    problems += [f"the gateway has logged an error: {event}" for event in errors]
    for problem in problems:
        print(f"FAIL {problem}")
    print(f"clients: {len(problems)} problems" if problems else "clients: all checks pass")
    return 1 if problems else 0


async def _run(clients: list[ClientCommand], chosen: list[views.View], verbose: bool) -> list[str]:
    problems: list[str] = []
    with trio.fail_after(RUN_S_MAX), tempfile.TemporaryDirectory(prefix="heliograph-clients-") as made:
        async with open_field(Path(made)) as field:
            for view in chosen:
                for client in clients:
                    problems += await _one(client, field, view, verbose)
    return problems


async def _one(client: ClientCommand, field: Field, view: views.View, verbose: bool) -> list[str]:
    """Run a client to its end, doing what it asks for. What went wrong."""
    who, began = f"{client.title} on {view.path}", time.monotonic()
    problems: list[str] = []
    passed, is_done = 0, False
    start = partial(
        trio.run_process,
        client.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, "NODE_NO_WARNINGS": "1"},
    )
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(start)
        assert process.stdin is not None
        assert process.stdout is not None
        await _tell(process.stdin, field.plan(view))
        rest = b""
        async for some in process.stdout:
            *lines, rest = (rest + some).split(b"\n")
            for line in map(json.loads, lines):
                if "ask" in line:
                    await field.do(line["ask"])
                    await _tell(process.stdin, {})
                elif "check" in line and line["problem"] is None:
                    passed += 1
                    if verbose:
                        print(f"  pass {line['check']}", flush=True)
                elif "check" in line:
                    problems.append(f"{who}: {line['check']}\n     {line['problem']}")
                is_done = is_done or "done" in line
    if not is_done:
        problems.append(f"{who}: it ended before its last check")
    failed = f", {len(problems)} FAIL" if problems else ""
    print(f"{who}: {passed} checks pass{failed} ({time.monotonic() - began:.1f} s)", flush=True)
    return problems


async def _tell(stdin: trio.abc.SendStream, value: Mapping[str, Any]) -> None:
    await stdin.send_all(json.dumps(value).encode() + b"\n")


def _note_error(errors: list[str], _: object, level: str, said: EventDict) -> EventDict:
    """A request that fails inside may leave a client content; it must not leave us so."""
    if level in ("error", "critical"):
        errors.append(said["event"])
    return said


if __name__ == "__main__":
    sys.exit(main())
