"""Settings of a gateway on a real `nats-server`, with objects of its own there."""

import itertools
from pathlib import Path
from typing import Any

from gateway.engine.server_run import ServerRun

_NUMBERS = itertools.count()


def on_engine(server: ServerRun, folder: Path, prefix: str | None = None) -> dict[str, Any]:
    """Of gateways of one fleet, which share the prefix."""
    credentials = folder / "nats.token"
    credentials.write_text(server.token)
    return {
        "engine.url": server.url,
        "engine.credentials": str(credentials),
        "engine.prefix": prefix or f"gw{next(_NUMBERS)}",
        "engine.replicas": 1,
        "engine.log_bytes_max": 64 * 1024**2,
        "engine.bucket_bytes_max": 16 * 1024**2,
        "engine.sync_is_always": True,
        "engine.heartbeat_s": 0.3,
        "engine.dead_s": 2.0,
        "engine.lost_s_max": 1.5,
    }
