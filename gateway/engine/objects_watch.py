"""What operators are to know of the engine's objects: how full each is, and how often its leader was another.

At a bound appends and puts are refused, so the log says beforehand that one is filling. A change of leader is counted
where it is seen; two between two looks are one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
import trio

from gateway.engine.jetstream_rules import API, api_answer
from gateway.engine.link import Link
from gateway.engine.nats_runs import Names
from gateway.engine.objects_rules import CONFIG, LIVE, MANIFESTS

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOOK_S = 10.0
FULL_PART = 0.8  # of the bound; said once when it is reached, and again after it was below
_ADVICE = "raise max_bytes (nats stream edit --max-bytes), after a look at what grew"


@dataclass(slots=True)
class ObjectCounts:
    """Zeros until it was looked at."""

    bytes: int = 0
    bytes_max: int = 0
    leader_changes: int = 0
    _leader: str | None = None
    _is_filling: bool = False

    def note(self, info: Mapping[str, Any]) -> bool:
        """What the server says of it; whether its filling is to be told now."""
        self.bytes = int(info["state"]["bytes"])
        self.bytes_max = max(int(info["config"].get("max_bytes", 0)), 0)
        leader = info.get("cluster", {}).get("leader") or self._leader  # between two there is none
        self.leader_changes += self._leader not in (None, leader)
        self._leader = leader
        was_filling, self._is_filling = self._is_filling, self.bytes > self.bytes_max * FULL_PART > 0
        return self._is_filling and not was_filling


class ObjectsWatch:
    def __init__(self, link: Link, names: Names, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._streams = {"log": names.log}
        self._streams |= {bucket.lower(): f"KV_{names.bucket(bucket)}" for bucket in (LIVE, MANIFESTS, CONFIG)}
        self.counts = {name: ObjectCounts() for name in self._streams}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for name, stream in self._streams.items():
                await self._look(name, stream)
            await trio.sleep(LOOK_S)

    async def _look(self, name: str, stream: str) -> None:
        """An answer that does not come, or is none, leaves what was known."""
        said = api_answer(await self._link.request(f"{API}STREAM.INFO.{stream}", timeout_s=self._timeout_s))
        if not isinstance(said, dict) or not {"state", "config"} <= said.keys():
            return
        counts = self.counts[name]
        if counts.note(said):
            room = {"bytes": counts.bytes, "bytes_max": counts.bytes_max}
            log.warning("engine_object_filling", object=stream, **room, advice=_ADVICE)
