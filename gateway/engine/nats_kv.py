"""A bucket on JetStream: the `Kv` of engine mode.

A bucket is a stream with one message a subject; its form is that of NATS's own key-value store, so its tools show it.
Whatever is put compare-and-set is published until it is known what became of it, as an append is: it carries an id, and
whoever is told that the key has moved looks whose value is there.
"""

import random
from collections.abc import Callable
from math import ceil

import msgspec
import trio
from ulid import ULID

from actors.engine.kv import Change, Entry, NotPut
from actors.engine.memory_kv import check_key
from actors.log.store import UnreadableError
from gateway.engine.attempt_rules import BUSY_S, NOT_TAKEN_S, UNKNOWN_S
from gateway.engine.jetstream_rules import API, EXPECTED_SEQ, ReadProblem, Verdict, api_answer, got, judge, taken_ms
from gateway.engine.link import Link, Message
from gateway.engine.nats_runs import ID, Names, Stored
from gateway.engine.objects_rules import LASTING
from gateway.engine.settings import EngineSettings
from gateway.engine.watch_rules import Answer, Broken, Effect, Watched

_OPERATION, _MARKER, _TTL = "KV-Operation", "Nats-Marker-Reason", "Nats-TTL"
DELETED_S = 3_600  # for which a deleted key leaves a marker; then nothing is there, as before its first put
_HEARTBEAT_S = 2.0  # of a consumer; a watcher that hears nothing for two of them begins anew
_AGAIN_S = (0.1, 0.3)
_IDLE_NS = 30_000_000_000  # after which the server forgets a watcher that is gone


class NatsKv:
    def __init__(
        self, link: Link, names: Names, bucket: str, settings: EngineSettings, deleted_s: int = DELETED_S
    ) -> None:
        """`deleted_s` is how long markers of deleted keys stay where messages may end; elsewhere they stay for good."""
        self._link = link
        self._marker = {_OPERATION: "DEL"} | ({} if bucket in LASTING else {_TTL: f"{deleted_s}s"})
        self._settings = settings
        self._stream = f"KV_{names.bucket(bucket)}"
        self._prefix = f"$KV.{names.bucket(bucket)}."

    # ── single keys ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, key: str) -> Entry | None:
        check_key(key)
        found = await self._last(key)
        return None if found is None or _is_gone(found) else Entry(key, found.data, found.seq)

    async def put(
        self, key: str, data: bytes, *, expected: int | None = None, ttl_s: float | None = None
    ) -> int | NotPut:
        check_key(key, ttl_s)
        headers = {} if ttl_s is None else {_TTL: f"{ceil(ttl_s)}s"}
        return await self._publish(key, data, headers, expected)

    async def delete(self, key: str, *, expected: int | None = None) -> NotPut | None:
        check_key(key)
        if expected is None:
            try:
                found = await self._last(key)
            except UnreadableError:
                return NotPut.UNREACHABLE
            if found is None or _is_gone(found):
                return None
        written = await self._publish(key, b"", self._marker, expected)
        return written if isinstance(written, NotPut) else None

    async def stamped_ms(self, key: str) -> int | None:
        """When the engine took what lies there, by its own clock; None: it cannot be said."""
        check_key(key)
        request = msgspec.json.encode({"last_by_subj": self._prefix + key})
        subject = f"{API}STREAM.MSG.GET.{self._stream}"
        return taken_ms(await self._link.request(subject, request, timeout_s=self._settings.read_s_max))

    async def _last(self, key: str) -> Stored | None:
        request = msgspec.json.encode({"last_by_subj": self._prefix + key})
        began_s = trio.current_time()
        while True:
            subject = f"{API}STREAM.MSG.GET.{self._stream}"
            found = got(await self._link.request(subject, request, timeout_s=self._settings.read_s_max))
            if not isinstance(found, ReadProblem):
                return found
            if trio.current_time() - began_s >= self._settings.append_patience_s:
                raise UnreadableError("unreachable")
            await trio.sleep(random.uniform(*_AGAIN_S))

    async def _publish(self, key: str, data: bytes, headers: dict[str, str], expected: int | None) -> int | NotPut:
        headers = {ID: str(ULID()), **headers}
        if expected is not None:
            headers[EXPECTED_SEQ] = str(expected)
        began_s = trio.current_time()
        while True:
            answer = await self._link.request(self._prefix + key, data, headers, timeout_s=self._settings.attempt_s_max)
            judged = judge(answer, self._stream)
            match judged.verdict:
                case Verdict.LANDED:
                    return judged.seq
                case Verdict.FULL:
                    return NotPut.FULL
                case Verdict.REFUSED | Verdict.FOREIGN:
                    return NotPut.UNREACHABLE
                case Verdict.MOVED:
                    seen = await self._look(key, headers, expected)
                    if isinstance(seen, int | NotPut):
                        return seen
                    wait_s = BUSY_S
                case Verdict.NOT_TAKEN:
                    wait_s = NOT_TAKEN_S
                case _:
                    wait_s = UNKNOWN_S
            if trio.current_time() - began_s >= self._settings.append_patience_s:
                return NotPut.UNREACHABLE
            await trio.sleep(random.uniform(*wait_s))

    async def _look(self, key: str, headers: dict[str, str], expected: int | None) -> int | NotPut | None:
        """The key is said to be elsewhere: whose value is there? None: try again, the headers say where."""
        try:
            found = await self._last(key)
        except UnreadableError:
            return NotPut.UNREACHABLE
        if found is not None and found.id == headers[ID]:
            return found.seq
        if expected == 0 and found is not None and _is_gone(found):
            headers[EXPECTED_SEQ] = str(found.seq)  # a marker lies where nothing is
            return None
        if expected is not None and (0 if found is None else found.seq) == expected:
            headers[EXPECTED_SEQ] = str(expected)  # not that of a marker that has gone meanwhile
            return None  # whoever was asked is not up to date
        return NotPut.MOVED

    # ── all of them ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def watch(self, heard: Callable[[Change], None]) -> None:
        watched = Watched(self._prefix)
        while True:
            await self._watch_once(watched, heard)
            await trio.sleep(random.uniform(*_AGAIN_S))

    async def _watch_once(self, watched: Watched, heard: Callable[[Change], None]) -> None:
        """Until something is lost."""
        name = f"watch-{ULID()}"
        inbox = f"_INBOX.{name}"
        early: list[Message] | None = []  # until it is known how many there are for a start
        lost = trio.Event()
        heard_s = trio.current_time()

        def perform(effects: list[Effect]) -> None:
            for effect in effects:
                match effect:
                    case Broken():
                        lost.set()
                    case Answer(subject):
                        self._link.publish(subject, b"")
                    case _:
                        heard(effect)

        def deliver(message: Message) -> None:
            nonlocal heard_s
            heard_s = trio.current_time()
            if early is not None:
                early.append(message)
            elif not lost.is_set():
                perform(watched.hear(message))

        unsubscribe = self._link.subscribe(inbox, deliver)
        unfollow = self._link.follow(lambda _: lost.set())
        try:
            pending = await self._make_consumer(name, inbox)
            if pending is None:
                return
            perform(watched.begin(pending))
            first, early = early or (), None
            for message in first:
                deliver(message)
            while not lost.is_set() and trio.current_time() - heard_s < 2 * _HEARTBEAT_S:
                with trio.move_on_after(_HEARTBEAT_S):
                    await lost.wait()
        finally:
            unfollow()
            unsubscribe()
            self._link.publish(f"{API}CONSUMER.DELETE.{self._stream}.{name}", b"")

    async def _make_consumer(self, name: str, inbox: str) -> int | None:
        """How many messages it has for a start; None if there is none."""
        config = {
            "name": name,
            "deliver_policy": "last_per_subject",
            "deliver_subject": inbox,
            "ack_policy": "none",
            "filter_subject": f"{self._prefix}>",
            "idle_heartbeat": int(_HEARTBEAT_S * 10**9),
            "flow_control": True,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _IDLE_NS,
        }
        request = msgspec.json.encode({"stream_name": self._stream, "config": config})
        subject = f"{API}CONSUMER.CREATE.{self._stream}.{name}.{self._prefix}>"
        said = api_answer(await self._link.request(subject, request, timeout_s=self._settings.read_s_max))
        return int(said["num_pending"]) if isinstance(said, dict) else None


def _is_gone(stored: Stored) -> bool:
    return _OPERATION in stored.headers or _MARKER in stored.headers
