"""`heliograph call TOOL JSON`: call a tool as an agent would, and print what it answers."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

from gateway.commands.operate import OperatorError, Reached, agent_token_for, running_gateway
from gateway.commands.parsing import Subparsers, add_data, complain, data_path


def add(commands: Subparsers) -> None:
    call = commands.add_parser("call", help="call a tool and print its result")
    call.add_argument("tool", help="a name from GET /mcp/tools")
    call.add_argument("arguments", nargs="?", default="{}", metavar="JSON", help='such as \'{"message": "hi"}\'')
    call.add_argument("--url", help="of the gateway (default: the one that runs on --data)")
    call.add_argument("--token", help="an agent's (default: HELIOGRAPH_TOKEN, or one minted from --data)")
    add_data(call)
    call.set_defaults(run=_call)


def _call(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 the result is printed, 1 the tool refused (the error is printed), 2 wrong use."""
    try:
        asked: Any = json.loads(arguments.arguments)
    except ValueError:
        return complain("the arguments are not JSON")
    try:
        path = data_path(arguments)
        gateway = Reached(arguments.url) if arguments.url else running_gateway(path)
        token = arguments.token or os.environ.get("HELIOGRAPH_TOKEN") or agent_token_for(path, arguments.tool)
    except OperatorError as error:
        return complain(str(error))
    request = urllib.request.Request(
        f"{gateway.url}/mcp/tools/call",
        data=json.dumps({"tool": arguments.tool, "arguments": asked}).encode(),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10, context=gateway.tls) as response:
            print(json.dumps(json.load(response), indent=2))
            return 0
    except urllib.error.HTTPError as error:
        print(error.read().decode(), file=sys.stderr)
        return 1
    except OSError as error:
        return complain(f"the gateway at {gateway.url} does not answer: {error}")
