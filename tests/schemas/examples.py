"""Valid instances of every published schema; the worked examples of the RFCs are among them."""

from typing import Any

NODE_ID = "01hzx9k3m4p7q8r9s0t1v2w3xy"
CMD_ID = "01HZXC0000000000000000SRV0"
ACK_ID = "01HZXC0000000000000000DEV0"
ETAG = "0123456789abcdef" * 4

ECHO_CAPABILITY: dict[str, Any] = {  # RFC-0005 §9, to the letter
    "cap_id": "echo",
    "kind": "system.echo",
    "schema_ref": "mcp://schemas/system.echo.invoke.input@1.0.0",
    "verbs": ["invoke"],
    "safety_class": "read_only",
    "constraints": {"rate_limit_rps": 10, "max_concurrency": 4, "deadline_ms_default": 2000},
}
METRICS_CAPABILITY: dict[str, Any] = {
    "cap_id": "metrics",
    "kind": "system.metrics",
    "schema_ref": "mcp://schemas/system.metrics@1.0.0",
    "verbs": ["snapshot", "subscribe"],
    "safety_class": "read_only",
    "constraints": {"rate_limit_rps": 2.5},
}
MANIFEST: dict[str, Any] = {
    "manifest_version": "1.1.0",
    "node_id": NODE_ID,
    "hw_fingerprint": {"algo": "blake3-256", "value": "ab" * 32, "sources": ["machine_id", "mac_primary"]},
    "node_attestation": {"alg": "Ed25519", "kid": "cd" * 32, "sig": "A" * 86, "payload_hash": "ef" * 32},
    "issued_at_ms": 1_790_000_000_000,
    "expires_at_ms": 1_790_000_000_000 + 86_400_000,
    "capabilities": [ECHO_CAPABILITY, METRICS_CAPABILITY],
}
FRAME: dict[str, Any] = {  # RFC-0009 §5.1
    "ts_ms": 1745300000000,
    "node_id": NODE_ID,
    "cpu_pct": 12.4,
    "mem_bytes": 1234567890,
    "mem_total_bytes": 8589934592,
    "disk_pct": 31.2,
    "load_1m": 0.42,
    "load_5m": 0.39,
    "load_15m": 0.35,
}
SAMPLE: dict[str, Any] = {
    "ts_ms": 1745300000000,
    "node_id": NODE_ID,
    "uptime_s": 86400,
    "cpu": {"cores": 2, "usage_pct": 12.5, "per_core_pct": [10, 15.0]},
    "mem": {
        "total_bytes": 8589934592,
        "available_bytes": 4294967296,
        "used_bytes": 1234567890,
        "swap_total_bytes": 0,
        "swap_used_bytes": 0,
    },
    "load": {"one": 0.42, "five": 0.39, "fifteen": 0.35},
    "disk": [{"mount": "/", "fs_type": "ext4", "total_bytes": 100, "available_bytes": 50}],
}
ECHO_RESULT: dict[str, Any] = {"message": "ping", "received_at_ms": 1745236800012, "node_id": NODE_ID}  # RFC-0005 §11
ERROR: dict[str, Any] = {
    "code": "E_DEADLINE_EXCEEDED",
    "message": "The answer did not come in time.",
    "suggested_fix": "retry after 1500ms",
    "retry_after_ms": 1500,
    "correlation_id": CMD_ID,
}
ERROR_DETAILS: list[dict[str, Any]] = [
    {
        "code": "BUDGET_EXCEEDED",
        "cap": "10.00",
        "used": "9.99",
        "price": "0.02",
        "cap_micros": 10_000_000,
        "used_micros": 9_990_000,
        "price_micros": 15_000,
        "resets_at": "2026-11-17T00:00:00.000Z",
    },
    {"code": "BUDGET_EXCEEDED", "cap": "0.00", "cap_micros": 0, "resets_at": None},
    {
        "code": "RATE_LIMITED",
        "cap": 60,
        "per_s": 60,
        "used": 60,
        "resets_at": "2026-11-16T06:29:14Z",
        "retry_after_ms": 1000,
    },
    {"code": "RATE_LIMITED", "cap": 2.5, "per_s": 1, "retry_after_ms": 0},
    {"code": "PII_DETECTED", "side": "result", "kinds": ["email", "national_id"]},
    {"code": "UNAUTHORIZED"},
    {"code": "TOOL_NOT_FOUND"},
    {"cap_ids": ["echo", "echo_2"]},
]
TOOL = f"sysecho.{NODE_ID}.echo.invoke"
PAYLOADS: dict[str, list[dict[str, Any]]] = {
    "auth": [{"token": "a.b.c", "node_id": NODE_ID}],
    "auth_ok": [
        {"session_id": ACK_ID, "epoch": 1, "log_id": CMD_ID, "now_ms": 1745236800000, "heartbeat_ms": 25000},
    ],
    "error": [ERROR, {"code": "E_MANIFEST_INVALID", "message": "no", "suggested_fix": "mend it"}],
    "announce": [MANIFEST],
    "announce_ack": [{"manifest_etag": ETAG, "tools": [TOOL, f"sys.{NODE_ID}.metrics.snapshot"]}],
    "heartbeat": [{"manifest_etag": ETAG}, {"manifest_etag": None}],
    "heartbeat_ack": [
        {"manifest_etag": ETAG, "now_ms": 1745236800000, "confirmed_through": CMD_ID},
        {"manifest_etag": None, "now_ms": 1745236800000, "confirmed_through": None},
    ],
    "cmd": [{"tool": TOOL, "arguments": {"message": "ping"}, "deadline_at_ms": 1745236805000}],
    "cmd_ack": [
        {"ok": True, "result": ECHO_RESULT},
        {"ok": True, "result": {}},
        {"ok": False, "error": ERROR, "begun": True},
        {"ok": False, "error": ERROR, "begun": False},
    ],
    "cmd_cancel": [{}],
    "telemetry": [FRAME],
    "resume": [
        {"journal_id": "01HZXC0000000000000000JRN0", "last_cmd": None, "outcomes": [], "running": []},
        {
            "journal_id": "01HZXC0000000000000000JRN0",
            "last_cmd": CMD_ID,
            "outcomes": [
                {"in_reply_to": CMD_ID, "ok": True, "result": ECHO_RESULT, "begun": True},
                {"in_reply_to": CMD_ID, "ok": True, "begun": True},
                {"in_reply_to": CMD_ID, "ok": False, "error": ERROR, "begun": False},
                {"in_reply_to": CMD_ID, "interrupted": True},
            ],
            "running": [ACK_ID],
            "more": True,
        },
    ],
    "resume_ok": [{"epoch": 7, "confirmed_through": CMD_ID, "replayed": 2, "expired": 0}],
}
REPLIES = frozenset({"cmd_ack", "cmd_cancel", "telemetry"})


def envelope(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    reply = {"in_reply_to": CMD_ID} if kind in REPLIES else {}
    return {"type": kind, "msg_id": ACK_ID, **reply, "payload": payload}


RENEWAL: dict[str, Any] = {
    "node_id": NODE_ID,
    "kid": "0a" * 32,
    "public_key": "1b" * 32,
    "iat": 1745236800,
    "nonce": "2c" * 16,
    "signature": "3d" * 64,
}
FOUND_NODE: dict[str, Any] = {
    "node_id": NODE_ID,
    "name": "pump-7",
    "tags": {"site": "lab"},
    "state": "live",
    "last_seen": "2026-11-17T12:00:00.000Z",
}
LOOKED_AT: dict[str, Any] = {
    "since": "2026-11-17T11:00:00.000Z",
    "left": None,
    "manifest_expires_at": "2026-11-18T11:00:00.000Z",
    "capabilities": [
        {
            "cap_id": "echo",
            "kind": "system.echo",
            "verbs": ["invoke"],
            "safety_class": "read_only",
            "limits": ECHO_CAPABILITY["constraints"],
            "tools": [f"sysecho.{NODE_ID}.echo.invoke"],
        }
    ],
    "sample": None,
}
EXAMPLES: dict[str, list[Any]] = {
    "manifest@1.0.0": [MANIFEST],
    "manifest@1.1.0": [MANIFEST],
    "error@1.0.0": [ERROR],
    "error@1.1.0": [ERROR, ERROR | {"code": "E_BAD_REQUEST"}],
    "error@1.2.0": [ERROR, *(ERROR | {"details": details} for details in ERROR_DETAILS)],
    "fleet.find.input@1.0.0": [
        {},
        {"name": "pump-", "tag": "site=lab", "state": "live", "kind": "system.metrics", "limit": 10, "cursor": NODE_ID},
        {"tag": ["site=lab", "floor_2=North.1"]},
    ],
    "fleet.find.output@1.0.0": [
        {"nodes": []},
        {"nodes": [FOUND_NODE | {"kinds": ["system.echo"]}], "next_cursor": NODE_ID},
    ],
    "fleet.node.input@1.0.0": [{"node": NODE_ID}, {"node": "pump-7"}],
    "fleet.node.output@1.0.0": [
        FOUND_NODE | LOOKED_AT | {"name": None, "tags": {}},
        FOUND_NODE
        | LOOKED_AT
        | {"state": "away", "left": {"code": 4408, "reason": "timeout"}, "since": None}
        | {"sample": {"age_ms": 0, "frame": FRAME}},
    ],
    "node.labels@1.0.0": [{}, {"name": "pump-7", "tags": {"site": "lab", "floor_2": "North.1"}}],
    "node.renew.request@1.0.0": [RENEWAL, RENEWAL | {"iat": 0, "nonce": "ab" * 32}],
    "node.renew.answer@1.0.0": [
        {"token": "eyJhbGciOiJFZERTQSJ9.e30.c2ln", "certificate": "3082"},
        {"token": None, "certificate": "30820101"},
    ],
    "system.echo.invoke.input@1.0.0": [{"message": "ping"}, {"message": ""}, {"message": "~" * 1024}],
    "system.echo.invoke.output@1.0.0": [ECHO_RESULT],
    "system.metrics.snapshot.input@1.0.0": [{}, {"include": ["cpu", "disk"]}],
    "system.metrics.subscribe.input@1.0.0": [{}, {"interval_ms": 5000}],
    "system.metrics.sample@1.0.0": [SAMPLE],
    "system.metrics.subscribe.frame@1.0.0": [FRAME],
    "system.metrics.subscribe.close@1.0.0": [
        {"code": 1000, "reason": "normal"},
        {"code": 4503, "reason": "device_offline"},
    ],
    "system.metrics@1.0.0": [SAMPLE, FRAME, {"interval_ms": 60000}, {"include": []}],
    "node.wire.envelope@2.2.0": [envelope(kind, payload) for kind, many in PAYLOADS.items() for payload in many],
    **{f"node.wire.{kind}@2.2.0": list(many) for kind, many in PAYLOADS.items()},
}
