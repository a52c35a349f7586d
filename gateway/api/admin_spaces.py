"""What operators do to echo spaces: see which there are, and end one.

GET    /admin/spaces              live spaces, in pages (?cursor, ?limit), with how much each has
DELETE /admin/spaces/{space_id}   it ends at once: its token is unknown, its sockets get 4410, it is erased

Neither shows a token, or anything that somebody wrote into a space. Where spaces are off, there are no such routes.
"""

from collections.abc import Mapping
from typing import Any

from actors.log.store import UnreadableError
from actors.space.events import Ending, Space
from actors.space.rooms import Rooms
from actors.space.spaces import EchoSpaces
from actors.space.store import Usage
from gateway.api.about import About
from gateway.api.actions import Actions, Declined, Done, OperatorRoutes, Outcome
from gateway.api.answers import SpacePage
from gateway.api.pages import ID_SCHEMA, PAGE_OF_IDS, refuse_page, wanted_limit
from gateway.identity.tokens import OperatorScope
from gateway.net.exchange import Exchange
from schemas.echo.errors import EchoError
from schemas.echo.names import is_ulid
from schemas.errors import Code

PAGE_SPACES_MAX = 200  # also when nothing is said; asked for more: this many. Each may be a look at the disk


class AdminSpaces:
    def __init__(self, actions: Actions, spaces: EchoSpaces, rooms: Rooms) -> None:
        self._spaces = spaces
        self._rooms = rooms
        self.routes: OperatorRoutes = {
            "/admin/spaces": actions.look(
                OperatorScope.FLEET_READ, self._page, About("List live spaces, in pages.", SpacePage, query=PAGE_OF_IDS)
            ),
            "/admin/spaces/{}": actions.removal(
                "space_close",
                OperatorScope.FLEET_WRITE,
                self._close,
                About("End a space at once.", None, name="space_id", of_name=ID_SCHEMA, refuses=(404,)),
            ),
        }

    async def _page(self, exchange: Exchange) -> Mapping[str, Any] | None:
        limit, cursor = wanted_limit(exchange, PAGE_SPACES_MAX), exchange.query("cursor")
        if limit is None or (cursor is not None and not is_ulid(cursor)):
            await refuse_page(exchange)
            return None
        page = await self.page(cursor or "", min(limit, PAGE_SPACES_MAX))
        if page is None:
            await exchange.refuse(Code.INTERNAL, "What spaces have cannot be read.", "See the gateway's log.")
        return page

    async def page(self, behind: str, room: int = PAGE_SPACES_MAX) -> Mapping[str, Any] | None:
        """Live spaces behind this id; None when what they have cannot be read."""
        found = self._spaces.live_behind(behind, room + 1)
        shown = found[:room]
        try:
            usages = await self._spaces.store.usages([space.space_id for space in shown])
        except UnreadableError:
            return None
        more = {"nextCursor": shown[-1].space_id} if len(found) > room else {}
        # One that has ended while the disk was asked is left out.
        return {"spaces": [self._shown(s, usages[s.space_id]) for s in shown if s.space_id in usages], **more}

    def _shown(self, space: Space, usage: Usage) -> dict[str, Any]:
        return {
            "space_id": space.space_id,
            "project_id": space.project_id,
            "opened_at_ms": space.opened_at_ms,
            "ends_at_ms": space.ends_at_ms,
            "protocol": space.protocol,
            "encrypted": space.is_encrypted,
            "connections": self._rooms.connections_of(space.space_id),
            "keys": usage.keys,
            "files": usage.files,
            "bytes": usage.kv_bytes + usage.file_bytes,
        }

    async def _close(self, space_id: str) -> Outcome:
        fault = await self._spaces.close(space_id, Ending.CLOSED)
        if fault is None:
            return Done({}, {"space_id": space_id})
        if fault is EchoError.SPACE_NOT_FOUND:
            fix = "GET /admin/spaces lists the ids of all live spaces."
            return Declined("unknown_space", "No live space has this id.", fix, Code.MANIFEST_NOT_FOUND)
        return Declined(
            "not_erased",
            "The space has ended, but the disk did not erase it yet. The gateway goes on trying.",
            "Make room in the data folder; GET /metrics tells how many spaces are not erased yet.",
            Code.INTERNAL,
        )
