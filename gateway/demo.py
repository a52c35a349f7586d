"""`heliograph demo`: one node's announcement, from its certificate to a tool that an agent may call.

Everything runs in memory on the real contracts. It will grow into a live gateway with nodes as those land.
"""

import os
import time
import uuid

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import SigningKey
from ulid import ULID

from gateway.access.scopes import authorize
from gateway.access.tokens import Issuer, Principal, Scope, TokenClass, Verifier, key_id
from schemas.certificates import CertificateAuthority, KnownCertificates
from schemas.contract import contract
from schemas.frames import BadFrame, Cmd, CmdAck, Side, decode, encode
from schemas.manifest import Accepted, NodeIdentity, accept, sign
from schemas.projection import Tool
from schemas.ulids import Mint

TENANT = "demo"
ECHO = {
    "cap_id": "echo",
    "kind": "system.echo",
    "schema_ref": "mcp://schemas/system.echo.invoke.input@1.0.0",
    "verbs": ["invoke"],
    "safety_class": "read_only",
    "constraints": {"rate_limit_rps": 10, "max_concurrency": 4, "deadline_ms_default": 2000},
}
METRICS = {
    "cap_id": "metrics",
    "kind": "system.metrics",
    "schema_ref": "mcp://schemas/system.metrics@1.0.0",
    "verbs": ["snapshot", "subscribe"],
    "safety_class": "read_only",
    "constraints": {"rate_limit_rps": 5, "max_concurrency": 4},
}
HOSTILE = {
    "a frame that nests for ever": b"[" * 100_000,
    "a key given twice": b'{"type":"auth","type":"cmd"}',
    "a number past all bounds": b'{"type":"heartbeat","payload":{"x":1e999}}',
    "an unknown type": b'{"type":"reboot_everything"}',
}


def run_demo() -> int:
    now_ms = time.time_ns() // 1_000_000
    mint = Mint(os.urandom)
    accepted = _announce(now_ms)
    echo = accepted.tools[-1]
    _authorize(echo, mint, now_ms)
    _call(echo, mint, now_ms)

    print("\n5. Hostile input is normal. Each frame gets a fixed answer; nothing of it is repeated:")
    for what, data in HOSTILE.items():
        bad = decode(data, Side.NODE)
        assert isinstance(bad, BadFrame)
        print(f"   {what:<30} {bad.words}")
    print("\nNext: docs/index.md, or `.venv/bin/heliograph schema list` for every published contract.")
    return 0


def _announce(now_ms: int) -> Accepted:
    print("1. A CA vouches for a node; the node signs what it can do.")
    ca = CertificateAuthority.make(Ed25519PrivateKey.generate(), now_ms)
    node = NodeIdentity(str(ULID()).lower(), TENANT)
    node_key = Ed25519PrivateKey.generate()
    leaf = ca.issue(node.node_id, node.tenant, node_key.public_key(), now_ms)
    manifest = sign(
        {
            "manifest_version": "1.1.0",
            "node_id": node.node_id,
            "hw_fingerprint": {"algo": "blake3-256", "value": os.urandom(32).hex(), "sources": ["machine_id"]},
            "issued_at_ms": now_ms,
            "expires_at_ms": now_ms + 3_600_000,
            "capabilities": [ECHO, METRICS],
        },
        leaf.kid,
        SigningKey(node_key.private_bytes_raw()),
    )
    known = KnownCertificates(ca.certificate, [leaf])
    accepted = accept(manifest, node, known, None, now_ms)
    assert isinstance(accepted, Accepted)
    print(f"   node {node.node_id}, certificate {leaf.kid[:16]}…, manifest accepted, etag {accepted.etag[:16]}…")
    tampered = accept(manifest | {"expires_at_ms": now_ms + 7_200_000}, node, known, None, now_ms)
    print(f"   the same with one number changed: {getattr(tampered, 'code', '')} ({getattr(tampered, 'message', '')})")

    print("\n2. Each capability and verb becomes a tool (a name of at most 64 characters):")
    for tool in accepted.tools:
        print(f"   {tool.name}   {len(tool.name)} characters, {tool.safety_class}")
    return accepted


def _authorize(tool: Tool, mint: Mint, now_ms: int) -> None:
    print("\n3. An agent's token decides what it may call.")
    key = Ed25519PrivateKey.generate()
    issuer = Issuer(key, issuer="heliograph", audience="heliograph")
    verifier = Verifier({key_id(key.public_key()): key.public_key()}, issuer="heliograph", audience="heliograph")
    for what, tenant, scopes in (
        ("read-only scope", TENANT, [Scope.READ_ONLY]),
        ("no scope", TENANT, []),
        ("another tenant", "other", [Scope.READ_ONLY]),
    ):
        token = issuer.mint(
            sub=f"agent_{uuid.uuid4()}",
            tenant=tenant,
            token_class=TokenClass.AGENT_RUNTIME,
            scopes=scopes,
            jti=mint.mint(now_ms),
            now_ms=now_ms,
            life_s=600,
        )
        principal = verifier.verify(token, TokenClass.AGENT_RUNTIME, now_ms)
        assert isinstance(principal, Principal)
        denied = authorize(principal, tool, TENANT, now_ms)
        print(f"   {what:<30} {'may call' if denied is None else f'denied: {denied.message}'}")


def _call(tool: Tool, mint: Mint, now_ms: int) -> None:
    print("\n4. A call and its answer, as they travel on the device wire:")
    cmd = Cmd(msg_id=mint.mint(now_ms), tool=tool.name, arguments={"message": "ping"}, deadline_at_ms=now_ms + 5000)
    result = {"message": "ping", "received_at_ms": now_ms + 7, "node_id": tool.target.node_id}
    ack = CmdAck(msg_id=mint.mint(now_ms), in_reply_to=cmd.msg_id, ok=True, result=result)
    print(f"   gateway → {encode(cmd).decode()}")
    print(f"   node    → {encode(ack).decode()}")
    print(f"   the result fits {tool.output_id}: {contract(tool.output_id).is_valid(result)}")
