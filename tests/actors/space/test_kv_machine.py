"""Each store's values against a naive model, over any sequence of writes, ends, expiries, restarts and crashes.

A crash of the embedded store is its folder copied as it is, without closing anything.
"""

import shutil
import tempfile
from functools import partial
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.space.memory_space_store import MemorySpaceDisk
from actors.space.store import (
    NOT_FOUND,
    VALUE_OVERHEAD_BYTES,
    Entry,
    KeyInfo,
    PutAnswer,
    Refused,
    SpaceStoreLimits,
    Usage,
    VersionConflict,
    Written,
)
from tests.actors.log.shelves import in_order
from tests.actors.log.test_store_machine import TrioThread
from tests.actors.space.shelves import MemoryShelf, SqliteShelf, Store

KEYS = ("a", "a.1", "b", "~")
LIMITS = SpaceStoreLimits(batch_writes_max=3, cache_bytes_max=2 * VALUE_OVERHEAD_BYTES + 40, page_keys_max=2)

Put = tuple[str, bytes, int, bool, int | None]
_PUTS = st.tuples(
    st.sampled_from(KEYS),
    st.binary(max_size=30),
    st.integers(1, 6),  # how long it lasts
    st.booleans(),
    st.sampled_from([None, None, None, 0, -1, 1]),  # what is expected: anything, nothing, what is there, something else
)


class Model:
    """One room's values as a reader of the port's description would write them down."""

    def __init__(self) -> None:
        self.version = 0
        self.entries: dict[str, Entry] = {}

    def live(self, key: str, now_ms: int) -> Entry | None:
        entry = self.entries.get(key)
        return entry if entry is not None and entry.expires_at_ms > now_ms else None

    def put(self, put: Put, now_ms: int) -> tuple[int | None, PutAnswer]:
        """What to expect, and the answer."""
        key, value, lasts_ms, encrypted, relative = put
        there = self.live(key, now_ms)
        actual = 0 if there is None else there.version
        expected = {None: None, 0: 0, -1: actual, 1: actual + 1}[relative]
        if expected is not None and expected != actual:
            return expected, VersionConflict(actual)
        self.version += 1
        self.entries[key] = Entry(key, value, self.version, now_ms, now_ms + lasts_ms, encrypted)
        return expected, Written(self.version, there is None)


class KvMachine(RuleBasedStateMachine):
    """What happens to one room after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = TrioThread()
        self.now_ms = 1_000
        self.number = 0
        self.model: Model | None = None
        self.store: Store = self.loop.call(self.open_store)
        self.begin()

    async def open_store(self) -> Store:
        raise NotImplementedError

    def crash_store(self) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        self.number += 1
        self.space_id = f"{self.number:026d}"
        self.model = Model()
        assert self.loop.call(partial(self.store.create, self.space_id)) is None

    @rule(puts=st.lists(_PUTS, min_size=1, max_size=5))
    def put(self, puts: list[Put]) -> None:
        """Written by tasks that do not wait for each other."""
        asked, expected = [], []
        for put in puts:
            key, value, lasts_ms, encrypted, _ = put
            version, answer = (None, NOT_FOUND) if self.model is None else self.model.put(put, self.now_ms)
            expected.append(answer)
            asked.append(
                partial(
                    self.store.put,
                    self.space_id,
                    key,
                    value,
                    now_ms=self.now_ms,
                    expires_at_ms=self.now_ms + lasts_ms,
                    encrypted=encrypted,
                    expected_version=version,
                )
            )
        assert self.loop.call(partial(in_order, *asked)) == expected

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        answer: bool | Refused = NOT_FOUND
        if self.model is not None:
            answer = self.model.live(key, self.now_ms) is not None
            self.model.entries.pop(key, None)
        assert self.loop.call(partial(self.store.delete, self.space_id, key, self.now_ms)) == answer

    @rule(by_ms=st.integers(1, 4))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule()
    def sweep(self) -> None:
        answer: int | Refused = NOT_FOUND
        if self.model is not None:
            expired = [key for key in self.model.entries if self.model.live(key, self.now_ms) is None]
            answer = len(expired)
            for key in expired:
                del self.model.entries[key]
        assert self.loop.call(partial(self.store.sweep_expired, self.space_id, self.now_ms)) == answer

    @rule()
    def sweep_while_it_is_not_open(self) -> None:
        assert self.store.release(self.space_id)
        self.sweep()
        self.reopen()

    @rule()
    def end(self) -> None:
        assert self.loop.call(partial(self.store.end, self.space_id)) is None
        self.model = None

    @rule()
    def begin_another(self) -> None:
        if self.model is None:
            self.begin()

    @rule()
    def release(self) -> None:
        assert self.store.release(self.space_id)
        self.reopen()

    @rule()
    def restart(self) -> None:
        self.loop.call(self.store.close)
        self.store = self.loop.call(self.open_store)
        self.reopen()

    @rule()
    def crash(self) -> None:
        self.crash_store()
        self.store = self.loop.call(self.open_store)
        self.reopen()

    def reopen(self) -> None:
        assert self.loop.call(partial(self.store.open, self.space_id)) == (self.model is not None)

    @invariant()
    def reads_like_the_model(self) -> None:
        for key in KEYS:
            expected = None if self.model is None else self.model.live(key, self.now_ms)
            assert self.loop.call(partial(self.store.get, self.space_id, key, self.now_ms)) == expected

    @invariant()
    def lists_and_counts_like_the_model(self) -> None:
        entries = {} if self.model is None else self.model.entries
        for prefix in ("", "a", "b"):
            listed: list[KeyInfo] = []
            after: str | None = ""
            while after is not None:
                page = self.store.list_keys(self.space_id, self.now_ms, prefix, after)
                listed += page.keys
                after = page.next_after
            assert listed == [
                KeyInfo(key, entry.version, len(entry.value), entry.expires_at_ms)
                for key, entry in sorted(entries.items())
                if key.startswith(prefix) and entry.expires_at_ms > self.now_ms
            ]
        kv_bytes = sum(len(entry.value) for entry in entries.values())
        assert self.store.usage(self.space_id) == Usage(keys=len(entries), kv_bytes=kv_bytes)
        assert self.store.totals().bytes == kv_bytes + len(entries) * VALUE_OVERHEAD_BYTES
        assert self.store.next_expiry_ms(self.space_id) == min(
            (entry.expires_at_ms for entry in entries.values()), default=None
        )

    def teardown(self) -> None:
        self.loop.call(self.store.close)
        self.loop.stop()


class SqliteMachine(KvMachine):
    """Rooms in a folder."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="heliograph-spaces-"))
        self.folder = self.root / "0"
        self.folder.mkdir()
        self.lives = 0
        super().__init__()

    async def open_store(self) -> Store:
        return await SqliteShelf(self.folder).open(LIMITS)

    def crash_store(self) -> None:
        self.lives += 1
        copy = self.root / str(self.lives)
        shutil.copytree(self.folder, copy)
        self.loop.call(self.store.close)
        self.folder = copy

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


class MemoryMachine(KvMachine):
    """Rooms in memory."""

    def __init__(self) -> None:
        self.disk = MemorySpaceDisk()
        super().__init__()

    async def open_store(self) -> Store:
        shelf = MemoryShelf()
        shelf.disk = self.disk
        return await shelf.open(LIMITS)

    def crash_store(self) -> None:
        """Every write is on the disk when it is answered, and none is under way."""


TestSqliteSpaces = SqliteMachine.TestCase
TestSqliteSpaces.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestMemorySpaces = MemoryMachine.TestCase
TestMemorySpaces.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
