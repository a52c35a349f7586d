"""What a gateway knows of streams: their heads, as they were when it last read or wrote them.

A head may be stale, for somebody else may have written since; what is decided on it then does not land. Within a round
of the writer a head is *confirmed* when it was read, or was right for something that landed: only then are callers told
that a stream has moved on.
"""

from collections.abc import Iterable, Mapping

from actors.log.store import RefusalReason, UnreadableError
from gateway.engine.asking import each_of
from gateway.engine.nats_reads import Reads, UnreachableError
from gateway.engine.unit_rules import Head

_READS_AT_ONCE = 32


class Heads:
    def __init__(self, reads: Reads, known_max: int) -> None:
        """Beyond `known_max` all are let go of, and read again when they are needed."""
        self._reads = reads
        self._known_max = known_max
        self._known: dict[str, Head] = {}
        self._confirmed: set[str] = set()
        self._was_at: dict[str, int] = {}  # sequences of heads that are to be read anew in this round

    @property
    def known(self) -> Mapping[str, Head]:
        return self._known

    def begin_round(self) -> None:
        self._confirmed.clear()
        self._was_at.clear()
        if len(self._known) > self._known_max:
            self._known.clear()

    def learn(self, stream: str, head: Head) -> None:
        """Somebody has read it."""
        if self.seq_of(stream) < head.seq or stream not in self._known:
            self._known[stream] = head

    def seq_of(self, stream: str) -> int:
        """Where it was when it was read or written last; 0 if that is not known."""
        known = self._known.get(stream)
        return 0 if known is None else known.seq

    def confirm(self, streams: Iterable[str]) -> None:
        self._confirmed.update(streams)

    def is_confirmed(self, stream: str) -> bool:
        return stream in self._confirmed

    def doubt(self, streams: Iterable[str]) -> None:
        """They have to be read anew."""
        for stream in streams:
            known = self._known.pop(stream, None)
            if known is not None:
                self._was_at[stream] = known.seq
            self._confirmed.discard(stream)

    async def know(self, streams: Iterable[str]) -> dict[str, RefusalReason]:
        """Read those that are not known, several at a time. Returns those that cannot be read, and why."""
        unknown = [stream for stream in streams if stream not in self._known]
        if not unknown:
            return {}
        troubles: dict[str, RefusalReason] = {}

        async def read(stream: str) -> None:
            try:
                self._known[stream] = (await self._reads.find(stream, self._was_at.pop(stream, 0))).head
                self._confirmed.add(stream)
            except UnreachableError:
                troubles[stream] = RefusalReason.UNREACHABLE
            except UnreadableError:
                troubles[stream] = RefusalReason.STORE_ERROR

        await each_of(unknown, read, _READS_AT_ONCE)
        return troubles
