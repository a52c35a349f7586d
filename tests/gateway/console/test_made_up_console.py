"""The made-up console of the pages' tests answers as a gateway does: it has no member that a gateway's answer lacks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

from tests.browser.console_fleet import MadeUpFleet
from tests.browser.console_server import served
from tests.gateway.api.client import AGENT
from tests.gateway.api.live import live_gateway
from tests.gateway.console.test_data_wire import PATIENCE_S, QUICK, called
from tests.gateway.console.visitor import Visitor

FREE = {"tags", "tool", "input_schema", "refusals"}  # whose members are others' words


def strange(made_up: Any, real: Any, where: str) -> Iterator[str]:
    """Members that only the first has. Of lists the first items count; what one of them lacks is not compared."""
    if isinstance(made_up, dict) and isinstance(real, dict):
        yield from (f"{where}.{name}" for name in made_up.keys() - real.keys())
        for name in (made_up.keys() & real.keys()) - FREE:
            yield from strange(made_up[name], real[name], f"{where}.{name}")
    elif isinstance(made_up, list) and isinstance(real, list) and made_up and real:
        yield from strange(made_up[0], real[0], f"{where}[]")


async def test_what_pages_are_tested_with_is_what_a_gateway_says(tmp_path: Path) -> None:
    fleet = MadeUpFleet(40)
    node = next(node for node in fleet.nodes if node["state"] == "live")
    with trio.fail_after(PATIENCE_S), served(fleet) as console:
        async with live_gateway(tmp_path, **QUICK) as live:
            ada = await Visitor.come(live)
            await called(live, ada)
            explained = {"agent": AGENT, "tool": live.tool()}
            calls: dict[str, tuple[Any, Any]] = {
                **{
                    name: ({}, {}) for name in ("whoami", "fleet", "streams", "agents", "policy", "spaces", "upstreams")
                },
                **{name: ({}, {}) for name in ("engine", "passkeys")},
                **{name: ({"node_id": live.node_id}, {"node_id": node["node_id"]}) for name in ("node", "history")},
                "agent": ({"sub": AGENT}, {"sub": fleet.agents[0]["sub"]}),
                "policy/explain": (explained, explained),
                "audit": ({"event": "tool_call"}, {"event": "tool_call"}),
            }
            found: list[str] = []
            for name, (asked, made_up) in calls.items():
                answer = json.loads(json.dumps(console.answer(name, made_up, "")))
                found += strange(answer, await ada.read(name, asked), name)
            assert found == []
            agents = console.answer("agents", {}, "")
            assert agents["counted_since_ms"] == (await ada.read("agents"))["counted_since_ms"]
