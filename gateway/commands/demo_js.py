"""The demo's node in JavaScript: docs/examples/node-js, where it is, with its packages and a Node that can run it.

It is a child of the demo and ends with it. Where anything of it is missing there is none, and nobody says so.
"""

import re
import shutil
import signal
import subprocess
from pathlib import Path

import trio

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "node-js"
NODE_MIN = 20
LOOK_S_MAX = 5.0  # for Node to tell its version; then it counts as missing
LEAVE_S_MAX = 2.0  # for the node to take its leave; then it is killed


async def find_js_node() -> list[str] | None:
    """The command that starts it, but for its folder and the gateway's address."""
    node = shutil.which("node")
    if node is None or not (EXAMPLE / "node_modules" / "ws").is_dir():
        return None
    try:
        with trio.fail_after(LOOK_S_MAX):
            told = await trio.run_process([node, "--version"], capture_stdout=True, capture_stderr=True, check=False)
    except (OSError, trio.TooSlowError):
        return None
    version = re.match(rb"v(\d{1,4})\.", told.stdout)
    return [node, str(EXAMPLE / "node.mjs")] if version and int(version[1]) >= NODE_MIN else None


async def run_js_node(command: list[str], folder: Path, url: str) -> None:
    """Until it ends by itself, or until cancelled: then it is told to go."""
    try:
        process = await trio.lowlevel.open_process(
            [*command, str(folder), url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C for the demo is for the demo alone
        )
    except OSError:
        return
    try:
        await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)


async def _end(process: trio.Process) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            process.send_signal(how)
            with trio.move_on_after(LEAVE_S_MAX):
                await process.wait()
