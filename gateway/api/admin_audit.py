"""`GET /admin/audit`: what the kept audit has, filtered, newest first; or upwards from a line, for whoever follows.

?agent ?tool ?node ?reason ?decision ?event ?tenant     exactly so
?since ?until     RFC 3339, a day, or how long ago
?before ?after    a line's id: go on downwards, or upwards, from there
?limit            lines in one answer

A search takes half a second at most and then answers with what it has: `next` says where to go on, null that there is
no more at present.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.api.about import About
from gateway.api.actions import Actions, OperatorRoutes
from gateway.api.answers import AuditPage
from gateway.identity.tokens import OperatorScope
from gateway.net.exchange import Exchange
from gateway.net.operation import Schema
from gateway.net.query_rules import read_fields
from gateway.observe.audit.audit_store import AuditStore
from gateway.observe.audit.query_rules import FILTERS, TEXT_CHARS_MAX, TIME_RULE, BadAuditQuery, read_query
from schemas.errors import Code

_TEXT = {"type": "string", "maxLength": TEXT_CHARS_MAX}
_TIME = {"type": "string", "description": TIME_RULE}
_NUMBER = {"type": "integer", "minimum": 0}
_QUERY: Mapping[str, Schema] = {
    **dict.fromkeys(FILTERS, _TEXT),
    **dict.fromkeys(("since", "until"), _TIME),
    **dict.fromkeys(("before", "after", "limit"), _NUMBER),
}


class AdminAudit:
    def __init__(self, actions: Actions, store: AuditStore, wall_ms: Callable[[], int]) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self.routes: OperatorRoutes = {
            "/admin/audit": actions.look(
                OperatorScope.FLEET_READ, self._page, About("Search the kept audit.", AuditPage, query=_QUERY)
            )
        }

    async def _page(self, exchange: Exchange) -> Mapping[str, Any] | None:
        pairs = read_fields(exchange.scope["query_string"])
        fields = dict(pairs)
        try:
            if len(fields) != len(pairs):
                raise BadAuditQuery("A filter is given once.")
            query = read_query(fields, self._wall_ms())
        except BadAuditQuery as bad:
            await exchange.refuse(Code.MANIFEST_INVALID, str(bad), "Compare the query with the operators' reference.")
            return None
        found = await self._store.search(query)
        return {"lines": [line.shown() for line in found.lines], "next": found.place}
