"""Whether the servers sync every write before they acknowledge it: they say so to whoever is of the system account."""

from typing import Any

import msgspec

from gateway.engine.link import Link, Message, NoAnswer

_SUBJECT = "$SYS.REQ.SERVER.PING.JSZ"
_ANSWERS_S_MAX = 2.0  # for all of them; then nothing is known


async def is_always_synced(system: Link) -> bool | None:
    """None: it is not known of all of them. A server without JetStream has nothing to sync."""
    first = await system.collect(_SUBJECT, b"{}", 1, timeout_s=_ANSWERS_S_MAX)
    if isinstance(first, NoAnswer):
        return None
    servers = _told(first[0]).get("meta_cluster", {}).get("cluster_size", 1)
    answers = await system.collect(_SUBJECT, b"{}", servers, timeout_s=_ANSWERS_S_MAX)
    if isinstance(answers, NoAnswer):
        return None
    told = [_told(answer) for answer in answers]
    synced = [one["config"].get("sync_always") is True for one in told if isinstance(one.get("config"), dict)]
    return all(synced) if synced else None


def _told(answer: Message) -> dict[str, Any]:
    try:
        said: dict[str, Any] = msgspec.json.decode(answer.data or b"{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
    data = said.get("data")
    return data if isinstance(data, dict) and not data.get("disabled") else {}
