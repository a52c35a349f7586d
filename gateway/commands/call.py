"""`heliograph call TOOL JSON`: call a tool as an agent would, and print what it answers."""

import argparse
import json
import sys
from typing import Any

from gateway.commands.agent_token import add_agent, as_agent, is_of_a_device
from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.reach import ANSWER_S_MAX, RefusedError
from gateway.governance.policy.upstream_text import TIMEOUT_S_MAX

TOKEN_LIFE_S = 60


def add(commands: Subparsers) -> None:
    call = commands.add_parser("call", help="call a tool and print its result")
    call.add_argument("tool", help="a name from GET /mcp/tools")
    call.add_argument("arguments", nargs="?", default="{}", metavar="JSON", help='such as \'{"message": "hi"}\'')
    call.add_argument("--tenant", help="whose agent to be, if several tenants may use the tool and no token is given")
    add_agent(call)
    call.set_defaults(run=_call)


def _call(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 the result is printed, 1 the tool refused (the error is printed), 2 wrong use."""
    try:
        asked: Any = json.loads(arguments.arguments)
    except (ValueError, RecursionError):
        raise CommandError('the arguments are not JSON: give an object such as \'{"message": "hi"}\'') from None
    gateway, token = as_agent(arguments, arguments.tool, TOKEN_LIFE_S, arguments.tenant)
    body = {"tool": arguments.tool, "arguments": asked}
    try:
        result = gateway.ask("POST", "/mcp/tools/call", token, body, wants=None, wait_s=patience_s(arguments.tool))
    except RefusedError as error:
        print(json.dumps(error.envelope), file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2))
    return 0


def patience_s(tool: str) -> float:
    """The gateway ends a call in time, and says so. To another server it may give as long as a policy can say."""
    return ANSWER_S_MAX if is_of_a_device(tool) else TIMEOUT_S_MAX + ANSWER_S_MAX
