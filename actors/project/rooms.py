"""The rooms of projects, as projects need them. What is written of both goes into one append: it is true of both or of
neither, whenever the process ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from actors.log.store import Part
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding


@dataclass(frozen=True, slots=True)
class NewRoom:
    """One that a project wants to have."""

    space_id: str
    project_id: str
    protocol: Encoding
    is_encrypted: bool
    has_iam: bool  # unless it takes the place of a live one, whose IAM it has, members included
    ttl_s: int | None = None  # None: as long as it may
    replaces: str | None = None  # a room that ends at once; it may be over already


class ProjectRooms(Protocol):
    """Of everything here: once begun it is finished, whoever still waits; refused, nothing has happened."""

    def is_live(self, space_id: str) -> bool: ...

    async def open(self, wish: NewRoom, *parts: Part) -> EchoError | None:
        """A new, empty room, and the end of the one that it replaces. `parts` are written with it."""

    async def set_iam(self, space_id: str, *parts: Part, is_enabled: bool) -> EchoError | None:
        """Switched off, all members and grants are over. What is so already is only written once more."""

    async def end(self, space_ids: Sequence[str], *parts: Part) -> EchoError | None:
        """All of these. Those that are over already are not missed."""
