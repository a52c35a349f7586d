"""An MCP server that is a child of ours: one JSON message a line on its standard input and output.

Not the SDK's own transport, for four reasons: its child inherits more of our environment than `PATH`, `HOME` and
`LANG`; a line may have any length; nobody learns when a request was written; and at the end it waits longer for the
child than a gateway has to stop. What the child writes to its standard error goes nowhere.
"""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import trio
from mcp.client._transport import TransportStreams
from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream, create_context_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from gateway.calls.upstreams.reach import REACH
from gateway.calls.upstreams.settings import UpstreamSettings

INHERITED = ("PATH", "HOME", "LANG")
BAD_LINES_MAX = 100  # a banner is forgiven; one more line that is no message, and the child counts as gone
REAP_S_MAX = 1.0  # for the kernel to end a child that was killed


class ChildGoneError(Exception):
    """The child's fault: it ended, or closed its standard output, or wrote what cannot be read."""


@asynccontextmanager
async def child_process(
    command: Sequence[str], environment: Mapping[str, str], cwd: str | None, settings: UpstreamSettings
) -> AsyncIterator[TransportStreams]:
    """Raises OSError when there is no such program, and ChildGoneError (in a group) when it does not stay."""
    # In a session of its own, so that its children can be ended with it, and no Ctrl-C of ours reaches it.
    process = await trio.lowlevel.open_process(
        list(command),
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        arrived, arriving = create_context_streams[SessionMessage | Exception](0)
        # With room, so that telling a child that does not read of a call given up does not hold up the caller.
        leaving, left = create_context_streams[SessionMessage](2 * settings.calls_max)
        async with trio.open_nursery() as nursery, arrived, arriving, leaving, left:
            nursery.start_soon(_read, process.stdout, arrived, settings.message_bytes_max)
            nursery.start_soon(_write, process.stdin, left)
            yield arriving, leaving
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await _end(process, settings.stop_s_max)


async def _read(
    stdout: trio.abc.ReceiveStream, arrived: ContextSendStream[SessionMessage | Exception], bytes_max: int
) -> None:
    line, bad_lines = bytearray(), 0
    try:
        async for chunk in stdout:
            *whole, rest = chunk.split(b"\n")
            for end in whole:
                line += end
                message = _parsed(bytes(line))
                line.clear()
                if message is not None:
                    await arrived.send(message)
                    continue
                bad_lines += 1
                if bad_lines > BAD_LINES_MAX:
                    raise ChildGoneError
            line += rest
            if len(line) > bytes_max:
                break
    except (trio.BrokenResourceError, anyio.BrokenResourceError):
        pass
    raise ChildGoneError


def _parsed(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


async def _write(stdin: trio.abc.SendStream, left: ContextReceiveStream[SessionMessage]) -> None:
    try:
        async for message in left:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            reach = None if left.last_context is None else left.last_context.get(REACH)
            if reach is not None:
                reach.sent = True
            await stdin.send_all(data + b"\n")
    except trio.BrokenResourceError:
        raise ChildGoneError from None


async def _end(process: trio.Process, stop_s_max: float) -> None:
    """With all that it has started itself. Its group has its id, for it leads a session."""
    assert process.stdin is not None
    assert process.stdout is not None
    await process.stdin.aclose()
    _signal(process.pid, signal.SIGTERM)
    with trio.move_on_after(stop_s_max):
        await process.wait()
    _signal(process.pid, signal.SIGKILL)
    with trio.move_on_after(REAP_S_MAX):
        await process.wait()
    await process.stdout.aclose()


def _signal(group: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, what)
