"""`heliograph watch NODE`: a node's telemetry, live in the terminal; with --json, one frame a line."""

import argparse
import http.client
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TextIO

from gateway.commands.agent_token import add_agent, as_agent, gateway_of, given_token
from gateway.commands.event_stream import Event, ProtocolError, events
from gateway.commands.node_names import node_id_for_agent, node_id_of
from gateway.commands.parsing import Subparsers
from gateway.commands.reach import RefusedError
from gateway.commands.watch_view import View, meaning_of
from schemas.labels import is_node_id

REDRAW_S = 0.25
SILENCE_S_MAX = 60  # a ping comes every 25 s: after this long without anything the gateway cannot be reached
TOKEN_LIFE_S = 12 * 3600
_NOTHING_YET = Event("", {})


def add(commands: Subparsers) -> None:
    watch = commands.add_parser("watch", help="see a node's metrics live, until Ctrl-C or the stream's end")
    watch.add_argument("node", metavar="NODE", help="an id or a name that `heliograph nodes` lists")
    watch.add_argument("--interval-ms", type=int, default=1000, help="1000 to 60000 (default 1000)")
    watch.add_argument("--capability", default="metrics", metavar="CAP", help="its cap_id (default metrics)")
    watch.add_argument("--json", action="store_true", help="print frames, one a line, instead of the view")
    add_agent(watch)
    watch.set_defaults(run=_watch)


def _watch(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 Ctrl-C or a normal close, 1 another close or a refusal, 2 wrong use."""
    given = given_token(arguments)
    if given is None or is_node_id(arguments.node):
        tool = _tool(node_id_of(arguments, arguments.node), arguments.capability)
        gateway, token = as_agent(arguments, tool, TOKEN_LIFE_S)
    else:
        gateway, token = gateway_of(arguments), given
        tool = _tool(node_id_for_agent(gateway, token, arguments.node), arguments.capability)
    body = {"tool": tool, "arguments": {"interval_ms": arguments.interval_ms}}
    try:
        with gateway.open("POST", "/mcp/tools/call", token, body, "text/event-stream", SILENCE_S_MAX) as response:
            close = _show(events(response), arguments)
    except RefusedError as error:
        print(json.dumps(error.envelope), file=sys.stderr)
        return 1
    except BrokenPipeError:
        raise
    except (OSError, http.client.HTTPException, ProtocolError) as error:
        print(f"heliograph: the stream from {gateway.url} broke: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    if close is None:
        print("heliograph: the stream ended without a close event: the gateway is gone", file=sys.stderr)
        return 1
    print(f"closed, {meaning_of(close.get('code'))}", file=sys.stderr)
    return 0 if close.get("code") == 1000 else 1


def _tool(node_id: str, capability: str) -> str:
    return f"sys.{node_id}.{capability}.subscribe"


def _show(stream: Iterator[Event], arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Until the close event, whose data is the answer."""
    view = View(arguments.node, arguments.interval_ms, time.monotonic())
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    if is_terminal and not arguments.json:
        return draw(arriving(stream), view, sys.stdout)

    def show(event: Event) -> None:
        if event.name == "metric":
            print(json.dumps(event.data) if arguments.json else "\n".join(view.lines(time.monotonic())), flush=True)

    return _follow(stream, None if arguments.json else view, show)


def draw(stream: Iterator[Event], view: View, terminal: TextIO) -> dict[str, Any] | None:
    """The view on the whole terminal, whatever size that has at the moment. At the end its last state stays behind.

    On a screen of its own: a terminal that is made narrower breaks the lines that stand there, and whatever is drawn
    over them cannot know where they begin. A `Text` has no markup that could be obeyed.
    """
    from rich.console import Console  # here, because no other command has a use for it
    from rich.live import Live
    from rich.text import Text

    console = Console(file=terminal, force_terminal=True, force_interactive=True)

    def drawn() -> str:
        return "\n".join(view.lines(time.monotonic(), console.width))

    def show(_: Event) -> None:
        columns, rows = os.get_terminal_size(terminal.fileno())
        console.size = columns or 80, rows or 25  # not what the environment says: that does not follow
        live.update(Text(drawn(), no_wrap=True, overflow="crop"), refresh=True)

    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with ExitStack() as at_the_end:
        if threading.current_thread() is threading.main_thread():  # as Ctrl-C: the terminal is left as it was
            before = signal.signal(signal.SIGTERM, signal.default_int_handler)
            at_the_end.callback(signal.signal, signal.SIGTERM, before)
        at_the_end.callback(lambda: print(drawn(), file=terminal, flush=True))
        with live:
            show(_NOTHING_YET)
            return _follow(stream, view, show)


def _follow(stream: Iterator[Event], view: View | None, show: Callable[[Event], None]) -> dict[str, Any] | None:
    for event in stream:
        if event.name == "close":
            return event.data
        if view is not None:
            view.on_event(event, time.monotonic())
        show(event)
    return None


def arriving(stream: Iterator[Event]) -> Iterator[Event]:
    """The events, and one without a name whenever nothing has come for a while, so that the view goes on."""
    arrived: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()

    def read() -> None:
        try:
            for event in stream:
                arrived.put(event)
        except Exception as error:  # whatever it is, the main thread raises it
            arrived.put(error)
        else:
            arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            event = arrived.get(timeout=REDRAW_S)
        except queue.Empty:
            event = _NOTHING_YET
        if isinstance(event, Exception):
            raise event
        if event is None:
            return
        yield event
