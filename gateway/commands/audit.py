"""`heliograph audit`: who did what, why it was allowed or refused, and what it cost; from the kept audit, as a table or
as JSON lines, and followed as it grows."""

import argparse
import json
import time
from itertools import islice
from typing import Any

from gateway.commands.audit_pages import FollowedParts, newest_first
from gateway.commands.ledger import rounded
from gateway.commands.node_names import node_id_of
from gateway.commands.parsing import CommandError, Subparsers, printable, table
from gateway.commands.reach import RefusedError, add_data, checked_agent, data_path, now_ms
from gateway.observe.audit.query_rules import TIME_RULE, BadAuditQuery, read_query

LOOK_S = 0.5  # between looks for more, with --follow
LINES_DEFAULT = 100
_TEXTS = ("agent", "tool", "node", "reason", "decision", "event", "tenant", "since", "until")


def add(commands: Subparsers) -> None:
    audit = commands.add_parser("audit", help="who did what, why it was allowed or refused, and what it cost")
    audit.add_argument("--agent", metavar="AGENT", help="agent_<uuid>: the `sub` of its token")
    audit.add_argument("--tool", help="a tool's own name")
    audit.add_argument("--node", metavar="NODE", help="an id or a name that `heliograph nodes` lists")
    audit.add_argument("--reason", help="of a refusal, such as budget, rate or policy; or why a node left")
    audit.add_argument("--decision", choices=["answered", "refused", "streaming", "abandoned"])
    audit.add_argument("--event", help="tool_call, space_call, project_call, operator_action, node_came …")
    audit.add_argument("--tenant", help="only what happened in this tenant")
    audit.add_argument("--since", metavar="TIME", help="such as 7d, 12h, 2026-11-11 or 2026-11-11T08:00:00Z")
    audit.add_argument("--until", metavar="TIME", help="the same")
    audit.add_argument(
        "--lines", type=int, default=LINES_DEFAULT, metavar="N", help=f"the newest N (default {LINES_DEFAULT}; 0: all)"
    )
    audit.add_argument("--follow", action="store_true", help="follow new lines until Ctrl-C")
    audit.add_argument("--json", action="store_true", help="JSON lines, for scripts and archives")
    add_data(audit)
    audit.set_defaults(run=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 printed, 1 nothing was found, 2 wrong use."""
    path, wanted = data_path(arguments), _wanted(arguments)
    followed = FollowedParts(path, wanted) if arguments.follow else None
    newest = newest_first(path, wanted)
    lines = list(newest if arguments.lines == 0 else islice(newest, arguments.lines))
    lines.reverse()
    _print(lines, as_json=arguments.json)
    if followed is None:
        return 0 if lines else 1
    followed.pass_over(lines)
    while True:
        _print(_news(followed), as_json=arguments.json, head=False)
        time.sleep(LOOK_S)


def _news(followed: FollowedParts) -> list[dict[str, Any]]:
    """What was written since. A gateway that starts or stops meanwhile is asked again."""
    try:
        return followed.more()
    except RefusedError:
        raise
    except CommandError:
        return []


def _wanted(arguments: argparse.Namespace) -> dict[str, str]:
    wanted = {name: value for name in _TEXTS if (value := getattr(arguments, name)) is not None}
    if arguments.lines < 0:
        raise CommandError("--lines is a number of lines, or 0 for all")
    if "agent" in wanted:
        checked_agent(wanted["agent"])
    if "node" in wanted:
        wanted["node"] = node_id_of(arguments, wanted["node"])
    try:
        read_query(wanted, now_ms())
    except BadAuditQuery as bad:
        told = str(bad)
        raise CommandError(f"--since and --until are times. {told}" if told == TIME_RULE else told) from None
    return wanted


def _print(lines: list[dict[str, Any]], *, as_json: bool, head: bool = True) -> None:
    if as_json:
        for line in lines:
            print(json.dumps(line), flush=True)
    elif lines or head:
        rows = table([_row(line) for line in lines])
        print("\n".join(rows if head else rows[1:]), flush=True)


def _row(line: dict[str, Any]) -> dict[str, str]:
    price, took = line.get("price_micros"), line.get("took_ms")
    row = {
        "at": line["at"],
        "event": line["event"],
        "who": line.get("sub") or line.get("member_id") or "-",
        "what": line.get("tool") or line.get("action") or "-",
        "where": line.get("node_name") or line.get("node_id") or line.get("space_id") or line.get("project_id") or "-",
        "decision": line.get("decision") or "-",
        "reason": line.get("reason") or "-",
        "price": "-" if price is None else rounded(price, 3),
        "ms": "-" if took is None else str(took),
    }
    return {name: printable(text) for name, text in row.items()}
