"""What lies in a JetStream stream of a fleet: how many messages there ever were, and how many bytes there are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from bench.engine.children import BenchError
from gateway.engine.connection import Connection
from gateway.engine.link import Message
from gateway.engine.nats_runs import Names
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.objects_rules import LIVE, MANIFESTS
from gateway.engine.server_run import ServerRun

_ANSWER_S_MAX = 10.0


class _State(msgspec.Struct):
    bytes: int
    last_seq: int


class _Info(msgspec.Struct):
    state: _State


@dataclass(frozen=True, slots=True)
class JetStream:
    link: Connection

    @classmethod
    @asynccontextmanager
    async def of(cls, server: ServerRun) -> AsyncIterator["JetStream"]:
        async with await Connection.open(ConnectionSettings((server.url,), token=server.token)) as link:
            yield cls(link)

    async def appended(self, prefix: str) -> int:
        """To the log of that fleet, since it was made."""
        return (await self._state(Names(prefix).log)).last_seq

    async def kept_bytes(self, prefix: str) -> int:
        """Of manifests, and of who is where."""
        buckets = [f"KV_{Names(prefix).bucket(name)}" for name in (MANIFESTS, LIVE)]
        return sum([(await self._state(bucket)).bytes for bucket in buckets])

    async def _state(self, stream: str) -> _State:
        answer = await self.link.request(f"$JS.API.STREAM.INFO.{stream}", timeout_s=_ANSWER_S_MAX)
        if not isinstance(answer, Message):
            raise BenchError(f"NATS does not say what is in {stream}: {answer}")
        return msgspec.json.decode(answer.data, type=_Info).state
