"""What is retained for MQTT clients to find nodes by, `$devices/{node_id}/announce` (RFC-0001 §1), and who says it.

A node's manifest stands there from the moment in which it is accepted, whether the node is live or away, until it
expires or the node is revoked or forgotten; then nothing does. Whoever has the node's session says so at once. One of
all processes, the janitor, also looks at what is there and puts right what is not as the directory has it. Pure.
"""

import re

from actors.bus.directory import HERE, NodeRecord
from schemas.canonical import canonical

ANNOUNCED = "$devices/+/announce"
NOTHING = b""
"""An empty payload takes out what is retained."""
_TOPIC = re.compile(r"\$devices/([^/]+)/announce")


def announce_topic(node_id: str) -> str:
    return f"$devices/{node_id}/announce"


def telemetry_topic(node_id: str) -> str:
    return f"$devices/{node_id}/telemetry"


def announced_by(topic: str) -> str | None:
    """The id of the node whose topic this is."""
    found = _TOPIC.fullmatch(topic)
    return None if found is None else found[1]


def payload_of(record: NodeRecord | None, wall_ms: int) -> bytes:
    """What is to be retained of a node."""
    return NOTHING if record is None or record.is_expired(wall_ms) else canonical(record.manifest)


def is_ours(record: NodeRecord | None) -> bool:
    """Whether this process has the node's session, or had its last one."""
    return record is not None and record.owner == HERE
