"""Projects as owners of push subscriptions: a store of their own, in which each project that has any is a space.

So what a browser left is sealed under a key of its project, and goes with it: first the key, then the rows. A project
is deleted at once; erasing follows (`run`), and what a crash leaves of it the next start erases (`load`).
"""

from collections.abc import Callable, Set

import trio

from actors.space.spaces import error_of
from actors.space.store import SpaceStore
from schemas.echo.errors import EchoError

RETRY_S = 5.0  # between two tries to erase what the disk refused to


class ProjectOwners:
    """`load` first, then `run` for as long as the gateway does; `forget` is for whoever deletes projects."""

    gone = EchoError.PROJECT_NOT_FOUND

    def __init__(
        self,
        store: SpaceStore,
        is_there: Callable[[str], bool],
        disk_fault: Callable[[int], EchoError | None],
        now_ms: Callable[[], int],
    ) -> None:
        """`is_there`: whether there is this project."""
        self.store = store
        self.now_ms = now_ms
        self._is_there = is_there
        self._disk_fault = disk_fault
        self._over: set[str] = set()
        self._wake = trio.Event()

    async def load(self, known: Set[str]) -> None:
        """`known` are projects of which the log has anything: also one that this release cannot read keeps its own."""
        for project_id in self.store.space_ids():
            if project_id not in known:
                self.forget(project_id)
        await self.erase()

    def forget(self, project_id: str) -> None:
        """There is no such project any more."""
        self._over.add(project_id)
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self.erase()
            self._wake = trio.Event()
            with trio.move_on_after(RETRY_S if self._over else float("inf")):
                await self._wake.wait()

    async def erase(self) -> None:
        """What the disk refuses stays for the next time."""
        for project_id in list(self._over):
            if await self.store.end(project_id) is None:
                self._over.discard(project_id)

    async def opened(self, owner_id: str) -> bool:
        return self._is_there(owner_id) and await self.store.open(owner_id) and self._is_there(owner_id)

    async def made(self, owner_id: str) -> EchoError | None:
        if not self._is_there(owner_id):
            return self.gone
        if not await self.store.open(owner_id):
            refused = await self.store.create(owner_id)
            if refused is not None:
                return error_of(refused)
        if not self._is_there(owner_id):  # it was deleted meanwhile, and erased perhaps before there was anything
            self.forget(owner_id)
            return self.gone
        return None

    def disk_fault(self, more_bytes: int = 0) -> EchoError | None:
        return self._disk_fault(more_bytes)
