"""What `/mcp/fleet` costs as a fleet grows: a part of `bench.mcp`.

    python -m bench.mcp_views [--nodes 5000] [--findable 20000]

`tools/list` with many nodes beside the same with five, and a page of `fleet_find` by tag, governed as in production.
No sockets, as in `bench.mcp_lists`; one CPU. Prints CPU milliseconds, medians, as JSON.
"""

import argparse
import gc
import json
import logging
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio
from ulid import ULID

from actors.ledger.ledgers import Ledgers
from actors.log.memory_store import MemoryStore
from actors.node.fleet import Fleet
from bench.mcp_lists import MODERN, OverSdk, made_up_fleet, principal, serving
from gateway.calls.tool_calls import ToolCalls
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import DEFAULT
from gateway.identity.tokens import Scope
from gateway.main.clock import now
from gateway.main.server import GC_THRESHOLDS
from gateway.mcp.methods import Methods
from gateway.mcp.settings import McpSettings
from gateway.mcp.views import FLEET
from schemas.labels import Labels
from schemas.manifest import NodeIdentity

TENANT = "bench"
SMALL = 5
ROUNDS = 400
PAGE_NODES = 50
SITES = 20  # so that a tag is on a twentieth of the nodes
LIST_RATIO_MAX = 1.2
FIND_MS_MAX = 2.0


def methods_of(fleet: Fleet) -> Methods:
    services = fleet.services
    governor = Governor(lambda: DEFAULT, Ledgers(MemoryStore()))
    calls = ToolCalls(services.directory, fleet, lambda: str(ULID()), now, governor)
    return Methods(services.directory, calls, now, McpSettings(), view=FLEET)


async def cpu_ms(ask: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    took: list[float] = []
    for _ in range(rounds):
        began_s = time.process_time()
        await ask()
        took.append((time.process_time() - began_s) * 1000)
    return statistics.median(took[rounds // 10 :])


async def listing(nodes: int) -> dict[str, float]:
    fleet = await made_up_fleet(nodes)
    methods, who = methods_of(fleet), principal(Scope.READ_ONLY)
    async with serving(fleet, methods, McpSettings()) as manager:
        over_sdk = OverSdk(manager, who, MODERN)
        return {
            "ours": await cpu_ms(lambda: methods.handle(who, "tools/list", {})),
            "sdk": await cpu_ms(lambda: over_sdk(None)),
        }


async def finding(nodes: int) -> dict[str, float]:
    """Page after page of one site's nodes, from the beginning to the end."""
    fleet = await made_up_fleet(nodes)
    directory = fleet.services.directory
    for number, node_id in enumerate(list(directory.ids(TENANT))):
        labels = Labels(f"pump-{number}", {"site": f"s{number % SITES}", "row": f"r{number % 7}"})
        directory.label(NodeIdentity(node_id, TENANT), labels)
    methods, who = methods_of(fleet), principal(Scope.READ_ONLY)
    found = 0
    arguments: dict[str, Any] = {"tag": "site=s3", "limit": PAGE_NODES}
    pages = 0

    async def page() -> None:
        nonlocal found, pages
        result = await methods.handle(who, "tools/call", {"name": "fleet_find", "arguments": arguments})
        seen = result["structuredContent"]
        found, pages = found + len(seen["nodes"]), pages + 1
        arguments.pop("cursor", None)
        if "next_cursor" in seen:
            arguments["cursor"] = seen["next_cursor"]

    cost = await cpu_ms(page, 10 * nodes // SITES // PAGE_NODES)
    assert found == 10 * nodes // SITES
    return {"cpu_ms_a_page": cost, "pages": pages}


async def measure(nodes: int, findable: int) -> dict[str, Any]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # JSON is all we print
    gc.set_threshold(*GC_THRESHOLDS)
    few, many = await listing(SMALL), await listing(nodes)
    return {
        "nodes": nodes,
        "findable": findable,
        "list": {"few": few, "many": many},
        "list_ratio": max(many[way] / few[way] for way in few),
        "find": await finding(findable),
    }


def print_views(views: dict[str, Any]) -> bool:
    """Whether it is what was expected."""
    few, many, find = views["list"]["few"], views["list"]["many"], views["find"]
    print(
        f"/mcp/fleet, CPU ms: tools/list with {SMALL} nodes {few['ours']:.3f} (with the SDK {few['sdk']:.3f}), ", end=""
    )
    print(f"with {views['nodes']:,} nodes {many['ours']:.3f} ({many['sdk']:.3f})")
    listed = bool(views["list_ratio"] <= LIST_RATIO_MAX)
    print(f"ratio {views['list_ratio']:.2f}, expected: at most {LIST_RATIO_MAX:g}: {'met' if listed else 'NOT MET'}")
    found = bool(find["cpu_ms_a_page"] < FIND_MS_MAX)
    print(f"fleet_find by tag among {views['findable']:,} nodes, {PAGE_NODES} on a page: ", end="")
    print(
        f"{find['cpu_ms_a_page']:.2f} CPU ms a page, expected: under {FIND_MS_MAX:g}: {'met' if found else 'NOT MET'}"
    )
    return listed and found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--findable", type=int, default=20_000)
    parser.add_argument("--json", action="store_true", help="for bench.mcp")
    options = parser.parse_args()
    views = trio.run(measure, options.nodes, options.findable)
    if options.json:
        print(json.dumps(views))
        return 0
    return 0 if print_views(views) else 1


if __name__ == "__main__":
    sys.exit(main())
