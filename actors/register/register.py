"""The register, driven: decided, made durable, then true for everybody; one thing after the other.

What happened to a node is in a stream of its own, the members as they are now are open items of one stream for all;
both are written together. Whoever is cancelled while something is being written has it written all the same.
"""

from bisect import insort
from collections.abc import Callable, Iterator

import msgspec
import structlog
import trio

from actors.bus.directory import OwnersDirectory
from actors.log.store import AppendAnswer, Appended, Loaded, LogStore, OpenItem, Part
from actors.register.events import Event, Member, NodeRevoked, decode_member, encode
from actors.register.register_rules import Decide, Refusal, Roll, Trouble, refuses_login
from actors.supervision.crash_report import report
from schemas.closes import NodeClose
from schemas.labels import UNLABELLED

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

STREAM = "register"
_COVERED = b"{}"  # the snapshot of a node's stream: its state is the member


def stream_of(node_id: str) -> str:
    """What happened to this node; cut by age, as all history is."""
    return f"{STREAM}/{node_id}"


class Register:
    def __init__(self, store: LogStore, directory: OwnersDirectory) -> None:
        self.roll = Roll()
        self._store = store
        self._directory = directory
        self.ids: list[str] = []
        """Of all members, sorted. Not a copy: use it before the next await."""
        self.makes_tokens = True
        """Whether nodes' tokens are made here."""
        self.on_others: Callable[[Member | None, Member], None] = lambda _before, _now: None
        """Told of what another process has recorded of a node, once it is true here. Alone, there is none."""
        self._unreadable: set[str] = set()  # members of whom nobody knows whether they are revoked
        self._turn = trio.Lock()

    async def load(self) -> None:
        """Once, at start."""
        self._take(await self._store.load(STREAM))

    def _take(self, loaded: Loaded) -> None:
        for item in loaded.open_items:
            self._learn(item.key, item.data)

    def _learn(self, node_id: str, data: bytes) -> None:
        try:
            self._put(decode_member(data))
        except msgspec.MsgspecError as error:  # damaged, or of a newer version: that node's trouble alone
            log.error("register_unreadable", node_id=node_id, causes=report(error))
            self._unreadable.add(node_id)
        else:
            self._unreadable.discard(node_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.roll)

    def find(self, node_id: str) -> Member | None:
        return self.roll.find(node_id)

    def refuses_login(self, node_id: str, jti: str, issued_at_ms: int, now_ms: int) -> NodeClose | None:
        """What there is against a token of this node that is good in itself."""
        if node_id in self._unreadable:
            return NodeClose.INTERNAL
        refused = refuses_login(self.roll.find(node_id), jti, issued_at_ms, now_ms)
        # A token from elsewhere is good for as long as its issuer says; a revoked node is ours to refuse.
        return refused if self.makes_tokens or refused is NodeClose.FORBIDDEN else None

    async def record(self, decide: Decide, at_ms: int) -> tuple[Event, ...] | Refusal:
        """Decide on what is true now, write it, and let it be true."""
        async with self._turn:
            return await self._record(decide, at_ms)

    async def _record(self, decide: Decide, at_ms: int) -> tuple[Event, ...] | Refusal:
        decided = self._decided(decide)
        if isinstance(decided, Refusal) or not decided:
            return decided
        with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
            answer = await self._write(decided, at_ms)
        return decided if isinstance(answer, Appended) else Refusal(Trouble.NOT_WRITTEN)

    def _decided(self, decide: Decide) -> tuple[Event, ...] | Refusal:
        decided = decide(self.roll)
        if isinstance(decided, Refusal):
            return decided
        for row, event in enumerate(decided):
            if event.node_id in self._unreadable and not isinstance(event, NodeRevoked):
                return Refusal(Trouble.UNREADABLE, row)
        return tuple(decided)

    async def _write(self, events: tuple[Event, ...], at_ms: int) -> AppendAnswer:
        """And let it be true, if it is written."""
        members = self.roll.after(events)
        opened = tuple(OpenItem(node_id, encode(member)) for node_id, member in members.items())
        happened: dict[str, list[bytes]] = {}
        for event in events:
            happened.setdefault(event.node_id, []).append(encode(event))
        parts = [
            Part(stream_of(node_id), None, at_ms, tuple(data), snapshot=_COVERED) for node_id, data in happened.items()
        ]
        answer = await self._store.append(self._of_all(opened, at_ms), *parts)
        if isinstance(answer, Appended):
            for member in members.values():
                self._put(member)
                self._unreadable.discard(member.node_id)  # it was revoked
        return answer

    def _of_all(self, opened: tuple[OpenItem, ...], at_ms: int) -> Part:
        """What the stream of all members is told."""
        return Part(STREAM, 0, at_ms, opened=opened)

    async def forget_history(self, node_id: str) -> bool:
        """Remove what happened to a node; whether that is durable. What holds now is the member's to say."""
        return await self._store.forget(stream_of(node_id)) is None

    def _put(self, member: Member) -> None:
        if self.roll.find(member.node_id) is None:
            insort(self.ids, member.node_id)
        self.roll.put(member)
        # Readers of the directory know nothing of a node that is revoked; its name is its own until it is forgotten.
        self._directory.label(member.identity, UNLABELLED if member.is_revoked else member.labels)
        self._directory.touch(member.node_id)
