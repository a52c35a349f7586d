"""A node's changes to the log: one append at a time, decided when it is their turn, acted on when it is durable.

Whatever changes the log waits here in its order. If nothing is under way, everything that waits is decided at once, in
the step that brought it (a caller's, a frame's), and handed to the log in one append; the log's answer performs it and
goes on with what has come meanwhile. So a hundred calls share a commit, and none wakes a task on its way to the node.
What needs more than one append goes to the worker (`run`), and everything behind it waits for that: the epoch, a
manifest, reading the log anew after a conflict.

What is decided is up to `inbox` and the rules behind it; what an answer means to session, socket and callers, to the
actor that owns this.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import trio

from actors.log.store import AppendAnswer, Appended, AppendRefused, Conflict, StoreFailedError, Then
from actors.node import command_rules as log_rules
from actors.node import commands
from actors.node.append_with_charges import submit_with_charges
from actors.node.inbox import Cancel, Draft, Item, LogItem, Unwritten
from actors.node.node_stream import part_of, restore, stream_of
from actors.node.services import LogRefusedError, NodeServices
from actors.node.session_rules import JudgeManifest, TakeResume
from schemas.frames import Announce
from schemas.ulids import Mint


class Owner(Protocol):
    """Whose commits these are. None of these raises or waits, but for `judge`."""

    def granted(self, session_id: str, epoch: int) -> None:
        """The session has its epoch."""

    async def judge(self, announce: Announce) -> None:
        """Judge a manifest, and keep it if it is accepted."""

    def act(self, item: LogItem, said: commands.Answer, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Perform what follows from an item that is durable now. `results` are the valid ones, by `msg_id`."""

    def refuse(self, batch: Sequence[LogItem]) -> None:
        """The log did not take it."""

    def superseded(self, batch: Sequence[LogItem]) -> None:
        """A newer session has the node."""

    def log_refused(self) -> None:
        """The log would not take what the session needs to go on."""


class Commits:
    def __init__(self, node_id: str, owner: Owner, services: NodeServices, mint: Mint) -> None:
        self.state = log_rules.NodeState()
        self.arguments: dict[str, bytes] = {}  # of open commands; those of a process that is gone are gone too
        self._node_id = node_id
        self._owner = owner
        self._services = services
        self._mint = mint
        self._epoch = 0
        self._waiting: deque[Item] = deque()
        self._unwritten: list[Unwritten] = []
        self._is_open = True  # to further items
        self._is_busy = True  # something is under way: first of all, the epoch
        self._is_over = False
        self._for_worker: JudgeManifest | Sequence[LogItem] | None = None
        self._crash: Exception | None = None
        self._wake = trio.Event()

    def offer(self, item: Item, now_ms: int) -> bool:
        """Take an item, and go on with it if nothing is under way; False when it is one too many, or too late."""
        if not self._is_open or len(self._waiting) >= self._services.settings.inbox_items_max:
            return False
        self._waiting.append(item)
        if not self._is_busy:
            self._go_on(now_ms)
        return True

    def report_unwritten(self, msg_id: str) -> None:
        """While acting: not one byte of this command could be sent. It is dealt with before all that waits."""
        self._unwritten.append(Unwritten(msg_id))

    def close(self) -> None:
        """Take nothing more; `run` returns when everything that waits is done."""
        self._is_open = False
        self._wake.set()

    # ---- one append after another -----------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> None:
        """Take what waits, up to something that has to be waited for."""
        try:
            while self._waiting and not self._is_busy:
                first = self._waiting.popleft()
                if isinstance(first, JudgeManifest):
                    self._leave_to_worker(first)
                else:
                    self._commit(self._batch_of(first) if self._waiting else [first], now_ms)
        except Exception as exc:  # whoever brought the item is not to blame: this actor crashes, by its worker
            self._crash_with(exc)
        if not self._is_open:
            self._wake.set()

    def _batch_of(self, first: LogItem) -> list[LogItem]:
        batch = [first]
        while self._waiting and not isinstance(self._waiting[0], JudgeManifest):
            batch.append(self._waiting.popleft())  # type: ignore[arg-type]  # mypy does not narrow an item of a deque
        return batch

    def _commit(self, batch: Sequence[LogItem], now_ms: int) -> None:
        """Decide on the whole batch and hand it to the log."""
        self._is_busy = True
        draft = Draft(self.state, self._epoch, self.arguments, self._node_id, now_ms)
        for item in batch:
            if isinstance(item, TakeResume):
                # Whose callers gave up while the node was away: cancelled before anything is sent again.
                for msg_id in self._services.calls.abandoned_of(self.state.open_commands):
                    draft.take(Cancel(msg_id))
            draft.take(item)
        if draft.events:
            refused = self._submit(draft, partial(self._answered, batch, draft))
            if refused is not None:
                self._is_busy = False
                self._owner.refuse(batch)
        else:
            self._act_on(draft)

    def _submit(self, draft: Draft, then: Then) -> AppendRefused | None:
        part = part_of(self._node_id, self.state, draft, draft.now_ms)
        return submit_with_charges(self._services.store, self._services.ledgers, part, draft.events, draft.now_ms, then)

    def _answered(self, batch: Sequence[LogItem], draft: Draft, answer: AppendAnswer | StoreFailedError) -> None:
        """By the log, between two steps of the event loop."""
        try:
            match answer:
                case Appended() if self._is_over:
                    pass  # the node's next session will see to it
                case Appended():
                    self._act_on(draft)
                case Conflict() if not self._is_over:
                    self._leave_to_worker(batch)
                case AppendRefused() | Conflict():
                    self._owner.refuse(batch)
                    self._is_busy = False
                case StoreFailedError():
                    self._crash_with(answer)
        except Exception as exc:
            self._crash_with(exc)
        if not self._is_busy and (self._waiting or not self._is_open):
            self._go_on(self._services.now().wall_ms)

    def _act_on(self, draft: Draft) -> None:
        self.state = draft.state
        if draft.arguments:
            self.arguments |= draft.arguments
        for item, said in draft.answers:
            self._owner.act(item, said, draft.results)
        if self._unwritten:
            self._waiting.extendleft(reversed(self._unwritten))
            self._unwritten.clear()
        self._is_busy = False

    # ---- what takes longer ------------------------------------------------------------------------------------------

    def _leave_to_worker(self, work: JudgeManifest | Sequence[LogItem]) -> None:
        self._is_busy = True
        self._for_worker = work
        self._wake.set()

    def _crash_with(self, exc: Exception) -> None:
        self._is_busy = True
        self._crash = exc
        self._wake.set()

    async def run(self) -> None:
        """The worker. Returns after `close`, or when the session cannot go on."""
        try:
            await self._open()
            while self._is_open or self._is_busy or self._waiting:
                await self._wake.wait()
                self._wake = trio.Event()
                if self._crash is not None:
                    raise self._crash
                work, self._for_worker = self._for_worker, None
                if isinstance(work, JudgeManifest):
                    await self._owner.judge(work.announce)
                    self._is_busy = False
                    self._go_on(self._services.now().wall_ms)
                elif work is not None:
                    await self._decide_anew(work)
        except LogRefusedError:
            self._owner.log_refused()
        finally:
            self._is_open, self._is_over = False, True
            self._owner.refuse([item for item in self._waiting if not isinstance(item, JudgeManifest)])
            self._waiting.clear()

    async def _open(self) -> None:
        """Take the next epoch: recorded before the node hears of it, so that no other session can have it."""
        session_id = self._mint.mint(self._services.now().wall_ms)
        while True:
            await self._reload()
            now_ms = self._services.now().wall_ms
            decision = log_rules.decide(self.state, commands.OpenSession(session_id), now_ms)
            answer = await self._services.store.append(part_of(self._node_id, self.state, decision, now_ms))
            if isinstance(answer, Appended):
                break
            if isinstance(answer, AppendRefused):
                raise LogRefusedError
        self.state = decision.state
        self._epoch = self.state.epoch
        self._owner.granted(session_id, self._epoch)
        self._is_busy = False
        self._go_on(now_ms)

    async def _decide_anew(self, batch: Sequence[LogItem]) -> None:
        """Somebody else has written to the node's stream."""
        await self._reload()
        now_ms = self._services.now().wall_ms
        if self.state.epoch > self._epoch:
            self._owner.superseded(batch)
            self._is_busy = False
        else:
            self._commit(batch, now_ms)
        if not self._is_busy:
            self._go_on(now_ms)

    async def _reload(self) -> None:
        self.state = restore(await self._services.store.load(stream_of(self._node_id)))
        waiting = self._services.calls.arguments_of(self.state.open_commands.values())
        known = {msg_id: data for msg_id, data in self.arguments.items() if msg_id in self.state.open_commands}
        self.arguments = waiting | known
        if self.state.highest_id is not None:
            self._mint.observe(self.state.highest_id)
