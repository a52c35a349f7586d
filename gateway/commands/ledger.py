"""`heliograph ledger AGENT`: what an agent has spent, and on what."""

import argparse
import json
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from actors.ledger.ledgers import Ledgers
from actors.log.sqlite_store import SqliteStore
from gateway.commands.parsing import Subparsers
from gateway.commands.reach import add_data, ask, checked_agent, data_path, read_log
from gateway.governance.spend.report import report
from gateway.identity.tokens import OperatorScope


def add(commands: Subparsers) -> None:
    ledger = commands.add_parser("ledger", help="what an agent has spent, and on what")
    ledger.add_argument("agent", help="agent_<uuid>")
    ledger.add_argument("--json", action="store_true", help="exact, in micro-dollars")
    add_data(ledger)
    ledger.set_defaults(run=_ledger)


def _ledger(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 printed, 1 this agent has spent nothing yet, 2 wrong use."""
    agent = checked_agent(arguments.agent)

    async def read(store: SqliteStore) -> Any:
        return await report(store, Ledgers(store), agent)

    ledgers = ask(
        data_path(arguments),
        lambda folder: read_log(folder, read, []),
        lambda operator: operator.get(f"/admin/ledger/{agent}", "ledgers")["ledgers"],
        OperatorScope.SPEND_READ,
    )
    if arguments.json:
        print(json.dumps(ledgers, indent=2))
    else:
        for ledger in ledgers:
            _print(ledger)
        if not ledgers:
            print("this agent has spent nothing yet")
    return 0 if ledgers else 1


def _print(ledger: dict[str, Any]) -> None:
    print(f"{ledger['agent']} of {ledger['tenant']}")
    print(f"  spent     {rounded(ledger['used_micros'])}  ({ledger['used_micros']} micro-dollars)")
    print(f"  of these  {rounded(ledger['reserved_micros'])} reserved for what is under way")
    if ledger["period_began"] is not None:
        print(f"  since     {ledger['period_began']}  {rounded(ledger['period_used_micros'])}")
    for line in ledger["history"]:
        amount = rounded(line["micros"], 3) if "micros" in line else ""
        print(f"  {line['at']}  {line['event']:9}{amount:>9}  {line['id']}  {line.get('tool', '')}".rstrip())


def rounded(micros: int, decimals: int = 2) -> str:
    """For people: half-even, as banks do (decision 11)."""
    amount = (Decimal(micros) / 1_000_000).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_EVEN)
    return f"${amount}"
