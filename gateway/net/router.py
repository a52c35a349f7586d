"""Requests to those who answer them, by path and method; what no route has, and what no route may answer, is told here.

Features bring their routes; which there are, the composition root knows. A path is looked up as it is. One that has
`{}` in it stands for any name there that is one piece of a path, one that ends in `*` for everything that begins so;
of several, the longest.
A `/` that comes percent-encoded separates nothing, and no route has one: `/mcp%2fflat` is 404, not `/mcp/flat`.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, TypeAlias

from gateway.net.exchange import AsgiScope, BadQuery, BodyTooLarge, ClientGone, Exchange, Receive, Send
from gateway.net.refusal_form import FormOf, device_form_only
from gateway.net.refusal_log import RefusalLog

Handler: TypeAlias = Callable[[Exchange], Awaitable[None]]
Route: TypeAlias = tuple[str, Handler]  # a method, and who answers; GET answers HEAD too
Routes: TypeAlias = Mapping[str, Route]

OPEN = ("/healthz", "/readyz", "/metrics", "/schemas", "/.well-known/", "/service/", "/internal/metrics")
"""What a gateway answers also while it does not know which tokens count."""
RETRY_AFTER_S = 2

ANY = "*"  # as a method: the handler looks at it itself
WHOLE = "**"  # the same, and at percent-encoded slashes too: it has a form of its own for every refusal


class RouteTable:
    """What a path leads to. It does not ask who comes, so that a check may stand in front of it."""

    def __init__(self, *features: Routes) -> None:
        self._exact: dict[str, Route] = {}
        for path, route in (item for routes in features for item in routes.items()):
            if path in self._exact:
                raise ValueError(f"two features bring the route {path}")
            self._exact[path] = route
        parts = [(path.partition("{}"), route) for path, route in self._exact.items() if "{}" in path]
        self._named = [(begin, end, route) for (begin, _, end), route in parts]
        below = [(path[:-1], route) for path, route in self._exact.items() if path.endswith("*")]
        self._below = sorted(below, key=lambda item: len(item[0]), reverse=True)

    def find(self, exchange: Exchange) -> Handler:
        """Who answers this request; if nobody else, what says 404 or 405."""
        route = self._exact.get(exchange.path) or self._find_by_part(exchange)
        if route is None or (exchange.has_encoded_slash and route[0] != WHOLE):
            return _no_such_route
        method, handler = route
        if method in (exchange.method, ANY, WHOLE) or (exchange.method, method) == ("HEAD", "GET"):
            return handler
        return partial(Exchange.refuse_method, allowed=method)

    def _find_by_part(self, exchange: Exchange) -> Route | None:
        path = exchange.path
        for begin, end, route in self._named:
            name = path[len(begin) : len(path) - len(end)]
            if path.startswith(begin) and path.endswith(end) and name and "/" not in name:
                exchange.name = name
                return route
        return next((route for begin, route in self._below if path.startswith(begin)), None)


class Router:
    """The ASGI application."""

    def __init__(
        self,
        new_id: Callable[[], str],
        *features: Routes,
        takes_upgrade: Callable[[str], bool] = lambda _: False,
        form_of: FormOf = device_form_only,
        serves: Callable[[], bool] = lambda: True,
    ) -> None:
        """`takes_upgrade`: at which paths a route takes WebSockets too; elsewhere nobody does.

        `form_of`: by path, how what is refused here is said. While it does not serve, because nobody knows which tokens
        count, only what takes none is answered (`OPEN`).
        """
        self._serves = serves
        self._table = RouteTable(*features)
        self._form_of = form_of
        self._new_id = new_id
        self._refusals = RefusalLog()
        self._takes_upgrade = takes_upgrade

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._answer_websocket(scope, receive, send)
        else:
            await self._answer(self._exchange(scope, receive, send))

    def _exchange(self, scope: AsgiScope, receive: Receive, send: Send) -> Exchange:
        return Exchange(scope, receive, send, self._new_id, self._form_of, self._refusals)

    async def _answer(self, exchange: Exchange) -> None:
        if not self._serves() and not exchange.path.startswith(OPEN):
            message = "This gateway is out of touch with the others and does not know which tokens still count."
            fix = "Send the request again, to any gateway; this one serves when it is in touch."
            await exchange.refuse_status(503, message, fix, {b"retry-after": b"%d" % RETRY_AFTER_S})
            return
        try:
            await self._table.find(exchange)(exchange)
        except BodyTooLarge:
            await exchange.refuse_status(413, "The body is larger than this route takes.", "Send less in one request.")
        except BadQuery:
            await exchange.refuse_status(
                400, "The query is malformed or has too many fields.", "Send at most 20 fields, percent-encoded UTF-8."
            )
        except ClientGone:
            return

    async def _answer_websocket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def send_or_refuse(message: MutableMapping[str, Any]) -> None:
            """An answer over HTTP, instead of an upgrade, has names of its own."""
            kind = message["type"]
            await send({**message, "type": f"websocket.{kind}"} if kind.startswith("http.") else message)

        exchange = self._exchange({**scope, "method": "GET"}, receive, send_or_refuse)
        if self._takes_upgrade(exchange.path):
            await self._answer(exchange)
            return
        fix = "Ask without Upgrade. Nodes dial in elsewhere, at the address for devices."
        await exchange.refuse_status(404, "Nothing here speaks WebSocket.", fix)


async def _no_such_route(exchange: Exchange) -> None:
    fix = "Compare the path with the reference; GET /mcp/tools lists what there is to call."
    await exchange.refuse_status(404, "No such route.", fix)
