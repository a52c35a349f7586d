"""A made-up fleet as the console's calls tell of it: any number of nodes, agents, streams, lines. From one seed."""

import json
import math
import time
from pathlib import Path
from random import Random
from typing import Any

SCHEMAS = Path(__file__).parent.parent.parent / "schemas" / "files"
STATES = ("live",) * 14 + ("away",) * 4 + ("expired", "enrolled", "revoked")
LEFTS = ((4408, "timeout"), (1000, "normal"), (4409, "superseded"), (1012, "service_restart"))
SITES, KINDS = ("lab", "roof", "yard", "hall-2", "north"), ("pump", "valve", "boiler", "gate", "meter", "fan")
REASONS = ("budget", "policy", "rate", "arguments", "offline")
CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
POLICY = """\
# What agents may do here. The first entry that matches an agent is its own, whole.
[[agents]]
agent = "agent_6f1c2c1e-8d0b-4c57-9a55-0d6c1f4b7a10"
tools = ["sys.**", "sysecho.**"]
nodes = ["tag:site=lab"]
budget = 25
budget_period = "1d"
price = 0.02
rates = [{ tools = "**", calls = 600, per = "1m" }]

[[agents]]                       # everybody else
agent = "*"
tools = ["*.*.*.snapshot"]
"""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


class MadeUpFleet:
    def __init__(self, nodes: int = 48, seed: int = 19) -> None:
        self.random = Random(seed)
        self.began_ms = now_ms()
        self.nodes = [self._node(number) for number in range(nodes)]
        self.agents = sorted(map(self._agent, range(7)), key=lambda one: -one["spent_micros"])
        self.lines = [self._line(number) for number in range(400, 0, -1)]
        self.extra_tools: list[dict[str, Any]] = []
        self.spaces = [self._space() for _ in range(6)]
        self.upstreams = [
            _upstream("search", "http", "up", 18, 1204),
            _upstream("files", "stdio", "up", 7, 88),
            _upstream("tickets", "http", "down", 0, 3, "connect"),
        ]

    # ---- what there is ----------------------------------------------------------------------------------------------

    def _id(self) -> str:
        return "01m7n" + "".join(self.random.choices(CROCKFORD, k=21))

    def _node(self, number: int) -> dict[str, Any]:
        random, state = self.random, self.random.choice(STATES)
        kind = random.choice(KINDS)
        is_live = state == "live"
        rate = round(random.choice((0.2, 1, 1, 2, 5, 10)) * random.uniform(0.9, 1.05), 2) if is_live else 0.0
        spark = [
            max(0.0, round(rate * (1 + 0.25 * math.sin(at / 3 + number) + random.uniform(-0.1, 0.1)), 2))
            for at in range(30)
        ]
        code, reason = (4403, "forbidden") if state == "revoked" else random.choice(LEFTS)
        return {
            "node_id": self._id(),
            "tenant": random.choice(("acme", "acme", "north")),
            "name": None if random.random() < 0.1 else f"{kind}-{number + 1}",
            "tags": {
                "site": random.choice(SITES),
                **({"row": str(random.randint(1, 9))} if random.random() < 0.6 else {}),
            },
            "state": state,
            "since_ms": None if state == "enrolled" else self.began_ms - random.randint(1, 400_000_000),
            "left": None if state in ("live", "enrolled") else {"code": code, "reason": reason},
            "last_call_ms": self.began_ms - random.randint(1_000, 90_000_000) if is_live else None,
            "calls": random.randint(0, 90_000) if is_live else 0,
            "frames_per_s": rate,
            "spark": spark if is_live else [0.0] * 30,
            "drops": random.randint(1, 900) if random.random() < 0.07 else 0,
            "tools": 0 if state == "enrolled" else 3,
        }

    def _agent(self, number: int) -> dict[str, Any]:
        random = self.random
        sub = f"agent_{random.getrandbits(32):08x}-8d0b-4c57-9a55-{random.getrandbits(48):012x}"
        calls, cap = random.randint(20, 40_000), random.choice((10, 25, 100)) * 1_000_000
        spent = min(cap, calls * 1_500)
        refusals = {reason: random.randint(1, 90) for reason in random.sample(REASONS, random.randint(0, 3))}
        tools = [f"sys.{random.choice(self.nodes)['node_id']}.metrics.snapshot" for _ in range(3)] if self.nodes else []
        return {
            "sub": sub,
            "tenant": "acme",
            "calls": calls,
            "refused": sum(refusals.values()),
            "spent_micros": spent,
            "budget": None
            if number == 6
            else {
                "agent": sub,
                "tenant": "acme",
                "policy": "4be1a2c09d33",
                "cap": "25.00",
                "cap_micros": cap,
                "used": "1.00",
                "used_micros": spent,
                "reserved_micros": 0,
                "left_micros": cap - spent,
                "period_s": 86_400,
                "resets_at": "2026-11-19T00:00:00Z",
                "price_micros": 15_000,
                "rates": [
                    {
                        "name": "rate-1",
                        "cap": 600,
                        "per_s": 60,
                        "used": random.randint(0, 590),
                        "remaining": 10,
                        "reset_s": 3,
                        "retry_after_ms": 0,
                    }
                ],
            },
            "last_ms": self.began_ms - random.randint(1_000, 9_000_000),
            "tools": [{"tool": tool, "calls": calls // 3, "micros": spent // 3} for tool in tools],
            "refusals": refusals,
        }

    def _line(self, number: int) -> dict[str, Any]:
        random = self.random
        node = random.choice(self.nodes) if self.nodes else {"node_id": None, "name": None}
        at_ms = self.began_ms - (400 - number) * 31_000 - random.randint(2_000, 30_000)
        event = random.choice(("tool_call",) * 8 + ("node_came", "node_went", "operator_action"))
        common = {
            "id": number,
            "at": _iso(at_ms),
            "event": event,
            "node_id": node["node_id"],
            "node_name": node["name"],
            "tenant": "acme",
        }
        if event in ("node_came", "node_went"):
            code, reason = random.choice(LEFTS)
            return {
                **common,
                "epoch": 3,
                "code": code if event == "node_went" else None,
                "reason": reason if event == "node_went" else None,
            }
        if event == "operator_action":
            return {
                **common,
                "node_id": None,
                "node_name": None,
                "action": "node_tag",
                "sub": "op-anna",
                "token_id": "01M7",
                "decision": "answered",
                "target": {"node_id": node["node_id"], "tenant": "acme", "name": node["name"]},
                "code": None,
                "reason": None,
                "took_ms": 3.2,
            }
        is_refused = random.random() < 0.12
        return {
            **common,
            "tool": f"sysecho.{node['node_id']}.echo.invoke",
            "sub": random.choice(self.agents)["sub"],
            "token_id": "01M7NXQJS0CBBKT4CND45MRPZG",
            "decision": "refused" if is_refused else "answered",
            "code": "E_SAFETY_DENIED" if is_refused else None,
            "reason": random.choice(REASONS) if is_refused else None,
            "kinds": None,
            "price_micros": None if is_refused else 15_000,
            "policy": "4be1a2c09d33",
            "correlation_id": f"01M7NXQJS0CBBKT4CND45MR{number:03d}",
            "trace_id": None,
            "took_ms": round(random.uniform(2, 40), 1),
        }

    def _space(self) -> dict[str, Any]:
        random = self.random
        opened = self.began_ms - random.randint(10_000, 80_000_000)
        return {
            "space_id": self._id().upper(),
            "project_id": None,
            "opened_at_ms": opened,
            "ends_at_ms": opened + 259_200_000,
            "protocol": "json",
            "encrypted": random.random() < 0.5,
            "connections": random.randint(0, 9),
            "keys": random.randint(0, 40),
            "files": random.randint(0, 5),
            "bytes": random.randint(0, 9_000_000),
        }

    # ---- what is asked ----------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        states = [node["state"] for node in self.nodes]
        return {state: states.count(state) for state in ("live", "away", "expired", "enrolled", "revoked")}

    def fleet(self, body: dict[str, Any]) -> dict[str, Any]:
        text, tags = body.get("text", ""), body.get("tags", [])
        found = [
            node
            for node in self.nodes
            if text in (node["name"] or "") + " " + node["node_id"]
            and all(tag in [f"{key}={value}" for key, value in node["tags"].items()] for tag in tags)
            and body.get("state") in (None, node["state"])
            and body.get("tenant") in (None, node["tenant"])
        ]
        sort = body.get("sort", "name")
        key = {"since": "since_ms", "last_call": "last_call_ms"}.get(sort, sort)
        found.sort(
            key=lambda node: (node[key] is None, _comparable(node[key]), node["node_id"]),
            reverse=body.get("descending", False),
        )
        offset = body.get("offset", 0)
        rows = found[offset : offset + body.get("limit", 100)]
        return {"counts": self.counts(), "total": len(found), "offset": offset, "rows": rows, "now_ms": now_ms()}

    def find(self, node_id: str) -> dict[str, Any] | None:
        return next((node for node in self.nodes if node["node_id"] == node_id), None)

    def node(self, node: dict[str, Any]) -> dict[str, Any]:
        node_id = node["node_id"]
        echo, metrics = "read_only", "read_only"
        capabilities = [
            _capability(
                "metrics",
                "system.metrics",
                metrics,
                5,
                4,
                1,
                3.2,
                [
                    _tool(f"sys.{node_id}.metrics.snapshot", "snapshot", schema("system.metrics.snapshot.input@1.0.0")),
                    _tool(
                        f"sys.{node_id}.metrics.subscribe", "subscribe", schema("system.metrics.subscribe.input@1.0.0")
                    ),
                ],
            ),
            _capability(
                "echo",
                "system.echo",
                echo,
                10,
                2,
                0,
                10,
                [
                    _tool(f"sysecho.{node_id}.echo.invoke", "invoke", schema("system.echo.invoke.input@1.0.0")),
                    *self.extra_tools,
                ],
            ),
        ]
        streams = [
            {
                "node_id": node_id,
                "node_name": node["name"],
                "tenant": "acme",
                "stream_id": f"01M7NXQJS0CBBKT4CND45MR{at:03d}",
                "tool": f"sys.{node_id}.metrics.subscribe",
                "interval_ms": 1000,
                "sub": agent["sub"],
                "since_ms": self.began_ms - 500_000,
            }
            for at, agent in enumerate(self.agents[:2])
        ]
        return {
            **node,
            "agent": "heliograph-node/0.1.0",
            "enrolled_at_ms": self.began_ms - 900_000_000,
            "expires_at_ms": self.began_ms + 7_000_000,
            "epoch": 3,
            "owner": "here",
            "capabilities": capabilities if node["state"] != "enrolled" else [],
            "streams": streams if node["state"] == "live" else [],
            "certificates": [
                {
                    "kid": "b8285f9fe6147f6f",
                    "not_before_ms": self.began_ms,
                    "not_after_ms": self.began_ms + 8_000_000_000,
                }
            ],
            "capabilities_total": 2,
            "streams_total": 2 if node["state"] == "live" else 0,
        }

    def frame(self, node_id: str, at_ms: int) -> dict[str, Any]:
        t = at_ms / 1000
        total = 16 * 1024**3
        return {
            "ts_ms": at_ms,
            "node_id": node_id,
            "cpu_pct": round(38 + 22 * math.sin(t / 9) + self.random.uniform(-6, 6), 1),
            "mem_bytes": int(total * (0.52 + 0.04 * math.sin(t / 40)) + self.random.randint(0, 90_000_000)),
            "mem_total_bytes": total,
            "disk_pct": 61.4,
            "load_1m": round(1.4 + 0.7 * math.sin(t / 14), 2),
            "load_5m": round(1.2 + 0.3 * math.sin(t / 60), 2),
            "load_15m": 1.1,
        }

    def audit(self, body: dict[str, Any]) -> dict[str, Any]:
        fields = {"agent": "sub", "node": "node_id"}
        wanted = {
            fields.get(name, name): value
            for name, value in body.items()
            if name in ("agent", "tool", "node", "reason", "decision", "event", "tenant")
        }
        found = [line for line in self.lines if all(line.get(name) == value for name, value in wanted.items())]
        limit = int(body.get("limit", 200))
        if "after" in body:
            later = [line for line in reversed(found) if line["id"] > int(body["after"])]
            return {"lines": later[:limit], "next": later[limit - 1]["id"] if len(later) > limit else None}
        found = [line for line in found if line["id"] < int(body.get("before", 1 << 60))]
        return {"lines": found[:limit], "next": found[limit - 1]["id"] if len(found) > limit else None}

    def agent(self, sub: str) -> dict[str, Any]:
        agent = next((one for one in self.agents if one["sub"] == sub), None)
        history: list[dict[str, Any]] = []
        at = self.began_ms - 30_000_000
        for number in range(300):
            at += self.random.randint(1_000, 190_000)
            history.append(
                {
                    "at": _iso(at),
                    "event": "reserved",
                    "id": str(number),
                    "tool": self.random.choice(self.agents)["tools"][0]["tool"],
                    "micros": 15_000,
                }
            )
        used = agent["spent_micros"] if agent else 0
        ledger = {
            "budget": agent["budget"] if agent else None,
            "tenant": "acme",
            "agent": sub,
            "used_micros": used,
            "reserved_micros": 0,
            "period_began": None,
            "period_used_micros": None,
            "history": history,
        }
        lines = [line for line in self.lines if line.get("sub") == sub][:50]
        return {"ledgers": [ledger] if agent else [], "lines": lines}


def _iso(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms / 1000)) + f".{at_ms % 1000:03d}Z"


def _comparable(value: Any) -> Any:
    return "" if value is None else (str(value["code"]) if isinstance(value, dict) else value)


def _tool(name: str, verb: str, input_schema: Any) -> dict[str, Any]:
    return {"name": name, "title": None, "verb": verb, "input_schema": input_schema, "safety_class": "read_only"}


def _capability(
    cap_id: str,
    kind: str,
    safety_class: str,
    rps: float,
    at_once: int,
    in_flight: int,
    left: float,
    tools: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "cap_id": cap_id,
        "kind": kind,
        "verbs": [tool["verb"] for tool in tools],
        "safety_class": safety_class,
        "tools": tools,
        "limits": {"rate_limit_rps": rps, "max_concurrency": at_once},
        "use": {"in_flight": in_flight, "tokens_left": left},
    }


def _upstream(
    name: str, transport: str, state: str, tools: int, calls: int, error: str | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "transport": transport,
        "tenants": ["acme"],
        "state": state,
        "since_ms": now_ms() - 90_000,
        "tools": tools,
        "calls": calls,
        "last_error": error,
    }
