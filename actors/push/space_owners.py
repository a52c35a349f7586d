"""Spaces as owners of push subscriptions. Theirs lie with their values and files, and end with them."""

from actors.space.spaces import EchoSpaces
from schemas.echo.errors import EchoError


class SpaceOwners:
    gone = EchoError.SPACE_NOT_FOUND

    def __init__(self, spaces: EchoSpaces) -> None:
        self.store = spaces.store
        self._spaces = spaces

    async def opened(self, owner_id: str) -> bool:
        return await self._spaces.opened(owner_id)

    async def made(self, owner_id: str) -> EchoError | None:
        return None if await self._spaces.opened(owner_id) else self.gone

    def disk_fault(self, more_bytes: int = 0) -> EchoError | None:
        return self._spaces.disk_fault(more_bytes)

    def now_ms(self) -> int:
        return self._spaces.now().wall_ms
