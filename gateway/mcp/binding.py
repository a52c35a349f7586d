"""Our methods on the SDK's low-level server: parameters in, results out, and news in the way of each era.

Clients of the handshake era hear of news on the stream of their session; those of the modern era on the response to
`subscriptions/listen`. Which news there are is `watch.py`'s, and what the methods do `methods.py`'s.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import mcp_types as types
import trio
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
    event_to_notification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from actors.supervision.child import ChildSpec, Kind
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.identity.tokens import Principal
from gateway.mcp.errors import INVALID_PARAMS, RpcError, too_many_listeners
from gateway.mcp.lane import CALLER
from gateway.mcp.methods import Methods
from gateway.mcp.sessions import McpSession, Sessions
from gateway.mcp.views import View
from gateway.mcp.watch import Changed, News, Watch, Watches

# The SDK logs what clients send it, as text: none of that goes into our log.
_silent = logging.getLogger("mcp")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
_silent.setLevel(logging.CRITICAL)

LISTS = frozenset(Changed)

_PARAMS: dict[str, type[types.RequestParams]] = {
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
}

Context = ServerRequestContext[Any, Any]


class _Server(Server[Any]):
    """Says in the handshake what it does: lists that change."""

    def get_capabilities(self, *_: Any, **more: Any) -> types.ServerCapabilities:
        return super().get_capabilities(NotificationOptions(tools_changed=True, resources_changed=True), **more)


class Binding:
    # No method of ours says anything before its result, so an answer is one JSON document, which costs half of what a
    # stream costs. A subclass whose tools report progress, or ask the client back, needs streams.
    streams_answers = False

    def __init__(
        self,
        methods: Methods,
        watches: Watches,
        sessions: Sessions,
        supervisor: Supervisor,
    ) -> None:
        self._methods = methods
        self._watches = watches
        self._sessions = sessions
        self._supervisor = supervisor

    @property
    def view(self) -> View:
        return self._methods.view

    def make_server(self) -> Server[Any]:
        server = _Server(
            "heliograph",
            version=version("heliograph"),
            title="Heliograph",
            instructions=self.view.instructions,
            cache_hints={
                # Private: with another kind of credential the same address has other tools, and says other things.
                "server/discover": CacheHint(ttl_ms=60_000, scope="private"),
                "tools/list": CacheHint(ttl_ms=1000, scope="private"),
                "resources/list": CacheHint(ttl_ms=1000, scope="private"),
                "resources/templates/list": CacheHint(ttl_ms=60_000, scope="public"),
                "resources/read": CacheHint(ttl_ms=0, scope="private"),
            },
            # No tool of ours asks for a parameter in a header; left unset, the SDK would list all tools on each call.
            get_tool_input_schema=lambda _: None,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
        )
        server.middleware.clear()  # of tracing, which writes names that clients send
        for method, params_type in _PARAMS.items():
            server.add_request_handler(method, params_type, self._handler(method))
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)
        return server

    def _handler(self, method: str) -> Callable[[Context, Any], Awaitable[dict[str, Any]]]:
        async def handle(ctx: Context, _: Any) -> dict[str, Any]:
            with translated():
                result = await self._methods.handle(_principal(ctx), method, ctx.params or {})
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                result["resultType"] = "complete"
            return result

        return handle

    # ---- the handshake era ------------------------------------------------------------------------------------------

    async def _initialized(self, ctx: Context, _: Any) -> None:
        """The client is ready to hear of changes."""
        await trio.lowlevel.checkpoint()
        session = self._session(ctx)
        if session is not None and session.watch is None:
            self._start_watch(session, _principal(ctx), ctx.session)

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await trio.lowlevel.checkpoint()
        session = self._session(ctx)
        if session is None:
            raise MCPError(INVALID_PARAMS, "Subscribing needs a session", {"code": "SESSION_NEEDED"})
        watch = session.watch or self._start_watch(session, _principal(ctx), ctx.session)
        with translated():
            if watch is None:
                raise too_many_listeners()
            watch.principal = _principal(ctx)  # of a grant, a newer token than the one that opened the session
            await self._watches.subscribe(watch, str(params.uri))
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        await trio.lowlevel.checkpoint()
        session = self._session(ctx)
        if session is not None and session.watch is not None:
            session.watch.unsubscribe(str(params.uri))
        return types.EmptyResult()

    def _session(self, ctx: Context) -> McpSession | None:
        session_id = ctx.request.headers.get("mcp-session-id") if ctx.request is not None else None
        return self._sessions.find(session_id, _principal(ctx), self.view.path)

    def _start_watch(self, session: McpSession, principal: Principal, channel: ServerSession) -> Watch | None:
        """A task that tells the session's client what its watch has seen, for as long as the watch is open."""
        version = self._methods.tools_version(principal)
        watch = self._watches.open(principal, LISTS, version)
        if watch is None:
            return None
        try:
            handle = self._supervisor.start(
                ChildSpec(
                    name="mcp_notifier",
                    run=lambda: _notify(watch, channel),
                    kind=Kind.TEMPORARY,
                    stage=Stage.STREAMS,
                    on_end=lambda _: watch.close(),
                )
            )
        except SupervisorStoppingError:
            watch.close()
            return None
        # A notifier may hang in a write to a client that does not read: the end of the watch ends it all the same.
        watch.on_close(handle.cancel)
        session.watch = watch
        return watch

    # ---- the modern era ---------------------------------------------------------------------------------------------

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """The response is the stream: what is honored first, then the news, until either side ends it."""
        asked = params.notifications
        lists = {Changed.TOOLS} if asked.tools_list_changed else set()
        lists |= {Changed.RESOURCES} if asked.resources_list_changed else set()
        principal = _principal(ctx)
        watch = self._watches.open(principal, frozenset(lists), self._methods.tools_version(principal))
        if watch is None:
            with translated():
                raise too_many_listeners()
        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        try:
            with translated():
                for uri in asked.resource_subscriptions or ():
                    await self._watches.subscribe(watch, uri)
            honored = types.SubscriptionFilter(
                tools_list_changed=asked.tools_list_changed or None,
                resources_list_changed=asked.resources_list_changed or None,
                resource_subscriptions=asked.resource_subscriptions or None,
            )
            acknowledged = types.SubscriptionsAcknowledgedNotification(
                params=types.SubscriptionsAcknowledgedNotificationParams(notifications=honored, _meta=meta)
            )
            await ctx.session.send_notification(acknowledged, related_request_id=ctx.request_id)
            while news := await watch.next():
                for event in map(_event, news):
                    notification = event_to_notification(event, meta)
                    await ctx.session.send_notification(notification, related_request_id=ctx.request_id)
        finally:
            watch.close()
        return types.SubscriptionsListenResult(_meta=meta)


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except RpcError as error:
        raise MCPError(error.code, error.message, dict(error.data)) from None


async def _notify(watch: Watch, channel: ServerSession) -> None:
    while news := await watch.next():
        for what in news:
            match what:
                case Changed.TOOLS:
                    await channel.send_tool_list_changed()
                case Changed.RESOURCES:
                    await channel.send_resource_list_changed()
                case uri:
                    await channel.send_resource_updated(uri)


def _event(news: News) -> ServerEvent:
    match news:
        case Changed.TOOLS:
            return ToolsListChanged()
        case Changed.RESOURCES:
            return ResourcesListChanged()
        case uri:
            return ResourceUpdated(uri)


def _principal(ctx: Context) -> Principal:
    assert ctx.request is not None
    principal: Principal = ctx.request.scope[CALLER]
    return principal
