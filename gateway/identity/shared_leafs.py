"""Nodes' certificates where several gateways share a fleet: under `leaf.<kid>`, for all of them.

Certificates are public; the keys that issue them stay in files. One that a watcher has not told of yet is looked up
before its node is refused: it may just have been enrolled elsewhere. Whether a certificate counts is judged by the CA
that issued it, as ever.
"""

import errno
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import structlog
import trio

from actors.engine.facts import Facts
from actors.engine.kv import Entry, Gone, NotPut
from actors.log.store import UnreadableError
from gateway.identity.leaf_files import LeafFiles
from schemas.certificates import CertificateError, KnownCertificates, Leaf

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LEAF = "leaf."
LOOK_UP_S_MAX = 2.0  # for a certificate that the watcher has not told; then its node is refused, and may come again
PUTS_AT_ONCE = 16  # of a long list; the others wait
_REASONS = {NotPut.FULL: errno.ENOSPC}


class SharedLeafs:
    def __init__(self, facts: Facts, certificates: KnownCertificates, files: LeafFiles | None = None) -> None:
        """`files`: those of the folder, from when its gateway was by itself."""
        self._kv = facts.kv
        self._certificates = certificates
        self._files = files
        self._told: set[str] = set()  # ids that all processes know of
        facts.follow(LEAF, self._heard)

    async def keep(self, leafs: Sequence[Leaf]) -> None:
        """Durable for all processes. Raises OSError; whoever is cancelled, or fails, drops them."""
        answers: list[int | NotPut] = []

        async def put(leaf: Leaf) -> None:
            answers.append(await self._kv.put(LEAF + leaf.kid, leaf.der))

        await _each(leafs, put)
        for answer in answers:
            if isinstance(answer, NotPut):
                raise OSError(_REASONS.get(answer, errno.EHOSTUNREACH), "the engine does not take a certificate")

    def learn(self, leafs: Sequence[Leaf]) -> None:
        for leaf in leafs:
            self._certificates.learn(leaf)

    async def drop(self, leafs: Sequence[Leaf]) -> None:
        """They count no more, here at once. One that cannot be removed is removed when that is said again."""
        for leaf in leafs:
            self._certificates.forget(leaf)

        async def delete(leaf: Leaf) -> None:
            await self._kv.delete(LEAF + leaf.kid)

        with trio.CancelScope(shield=True):
            await _each(leafs, delete)
            if self._files is not None:
                await self._files.drop(leafs)

    async def carry_over(self) -> bool:
        """At start, with those of the folder: whether all processes know them now."""
        try:
            await self.keep([leaf for leaf in self._certificates if leaf.kid not in self._told])
        except OSError:
            return False
        return True

    async def find(self, kid: str) -> Leaf | None:
        """Of this id, if there is such a certificate. None also while nobody can say."""
        known = self._certificates.resolve(kid)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return known
        entry = None
        with trio.move_on_after(LOOK_UP_S_MAX), suppress(UnreadableError, ValueError):  # the latter: it is no kid
            entry = await self._kv.get(LEAF + kid)
        if entry is not None:
            self._heard(entry)
        return self._certificates.resolve(kid)

    def _heard(self, change: Entry | Gone) -> None:
        kid = change.key.removeprefix(LEAF)
        known = self._certificates.resolve(kid)
        if isinstance(change, Gone):
            self._told.discard(kid)
            if known is not None:
                self._certificates.forget(known)
            return
        self._told.add(kid)
        if known is not None:
            return
        try:
            leaf = Leaf.from_der(change.data)
        except CertificateError:
            leaf = None
        if leaf is None or leaf.kid != kid:
            log.error("leaf_unreadable", kid=kid)
        else:
            self._certificates.learn(leaf)


async def _each(leafs: Sequence[Leaf], do: Callable[[Leaf], Awaitable[None]]) -> None:
    waiting = list(leafs)

    async def take() -> None:
        while waiting:
            await do(waiting.pop())

    async with trio.open_nursery() as nursery:
        for _ in range(min(PUTS_AT_ONCE, len(waiting))):
            nursery.start_soon(take)
