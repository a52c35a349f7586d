"""`heliograph watch NODE`: a node's telemetry, live in the terminal; with --json, one frame a line."""

import argparse
import json
import os
import queue
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from gateway.commands.event_stream import Event, ProtocolError, events
from gateway.commands.operate import OperatorError, Reached, agent_token_for, running_gateway
from gateway.commands.parsing import Subparsers, add_data, complain, data_path
from gateway.commands.watch_view import View, meaning_of

REDRAW_S = 0.25
SILENCE_S_MAX = 60  # a ping comes every 25 s: after this long without anything the gateway cannot be reached
TOKEN_LIFE_S = 12 * 3600
_NOTHING_YET = Event("", {})
UP_AND_CLEAR = "\x1b[{lines}A\x1b[J"


def add(commands: Subparsers) -> None:
    watch = commands.add_parser("watch", help="see a node's metrics live, until Ctrl-C or the stream's end")
    watch.add_argument("node_id", metavar="NODE", help="one that `heliograph nodes` lists")
    watch.add_argument("--interval-ms", type=int, default=1000, help="1000 to 60000 (default 1000)")
    watch.add_argument("--capability", default="metrics", metavar="CAP", help="its cap_id (default metrics)")
    watch.add_argument("--json", action="store_true", help="print frames, one a line, instead of the view")
    watch.add_argument("--url", help="of the gateway (default: the one that runs on --data)")
    watch.add_argument("--token", help="an agent's (default: HELIOGRAPH_TOKEN, or one minted from --data)")
    add_data(watch)
    watch.set_defaults(run=_watch)


def _watch(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 Ctrl-C or a normal close, 1 another close or a refusal, 2 wrong use."""
    tool = f"sys.{arguments.node_id}.{arguments.capability}.subscribe"
    try:
        path = data_path(arguments)
        gateway = Reached(arguments.url) if arguments.url else running_gateway(path)
        token = arguments.token or os.environ.get("HELIOGRAPH_TOKEN") or agent_token_for(path, tool, TOKEN_LIFE_S)
    except OperatorError as error:
        return complain(str(error))
    request = urllib.request.Request(
        f"{gateway.url}/mcp/tools/call",
        data=json.dumps({"tool": tool, "arguments": {"interval_ms": arguments.interval_ms}}).encode(),
        headers={
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "text/event-stream",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=SILENCE_S_MAX, context=gateway.tls) as response:
            show = _print_frames if arguments.json else _draw
            close = show(events(response), arguments)
    except urllib.error.HTTPError as error:
        print(error.read().decode(), file=sys.stderr)
        return 1
    except (OSError, ProtocolError) as error:
        print(f"heliograph: the stream from {gateway.url} broke: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    if close is None:
        print("heliograph: the stream ended without a close event: the gateway is gone", file=sys.stderr)
        return 1
    print(f"closed, {meaning_of(close.get('code'))}", file=sys.stderr)
    return 0 if close.get("code") == 1000 else 1


def _print_frames(stream: Iterator[Event], _: argparse.Namespace) -> dict[str, Any] | None:
    """Until the close event, whose data is the answer."""
    for event in stream:
        if event.name == "close":
            return event.data
        if event.name == "metric":
            print(json.dumps(event.data), flush=True)
    return None


def _draw(stream: Iterator[Event], arguments: argparse.Namespace) -> dict[str, Any] | None:
    view = View(arguments.node_id, arguments.interval_ms, time.monotonic())
    arrived: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(stream, arrived), daemon=True).start()
    drawn = 0
    while True:
        try:
            event = arrived.get(timeout=REDRAW_S)
        except queue.Empty:
            event = _NOTHING_YET
        if isinstance(event, Exception):
            raise event
        if event is None or event.name == "close":
            return event.data if event else None
        if event.name == "metric":
            view.on_frame(event.data, time.monotonic())
        elif event.name == "ping":
            view.on_ping(time.monotonic())
        lines = view.lines(time.monotonic())
        if sys.stdout.isatty():
            print((UP_AND_CLEAR.format(lines=drawn) if drawn else "") + "\n".join(lines), flush=True)
            drawn = len(lines)
        elif event.name == "metric":
            print("\n".join(lines), flush=True)


def _read(stream: Iterator[Event], arrived: "queue.SimpleQueue[Event | Exception | None]") -> None:
    """In a thread, so that the view goes on while nothing comes."""
    try:
        for event in stream:
            arrived.put(event)
    except (OSError, ProtocolError, ValueError) as error:
        arrived.put(error)
    else:
        arrived.put(None)
