"""One upstream: kept connected, its tools known, its calls bounded.

It lives in a task of its own and ends its lives itself: whatever goes wrong in a connection ends that connection, the
tools leave the list, calls under way are told, and after a wait it is tried again. Every wait has a bound. Who may call
what is not known here. What an upstream says of its errors goes neither to an agent nor into the log.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from importlib.metadata import version
from typing import Any

import mcp_types as types
import msgspec
import structlog
import trio
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from actors.supervision.crash_report import first_leaf, report
from gateway.calls.upstreams.child_process import INHERITED, child_process
from gateway.calls.upstreams.http_client import http_client
from gateway.calls.upstreams.life_rules import UpstreamLife, UpstreamState
from gateway.calls.upstreams.reach import REACH, Reach
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.calls.upstreams.tool_rules import UpstreamTool, listed
from gateway.governance.policy.upstream_rules import UpstreamRules, Value

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

PAGES_MAX = 100  # of a list; an upstream that has more is connected anew
SECRET_CHARS_MIN = 8  # of a value that no answer may hold; shorter ones would be found by chance
CLOSE_S_MAX = 2.0  # for taking leave of an upstream


class Trouble(Enum):
    """Why a call has no result."""

    DOWN = auto()
    """It is not connected."""
    LOST = auto()
    """It was lost before the answer."""
    SLOW = auto()
    BUSY = auto()
    """It has as many calls as it may."""
    FAILED = auto()
    """It answered with an error, or with what is no result."""


class EndWord(StrEnum):
    """Why a connection ended, for people to see: closed, and nothing in it is the upstream's own."""

    NO_VARIABLE = "no_variable"  # the policy names a variable that the gateway's environment does not have
    TIMEOUT = "timeout"  # it did not connect, list or check in time
    ENDLESS_LIST = "endless_list"
    LOST = "lost"  # it could not be reached, hung up, or broke the protocol


class _NoVariableError(Exception):
    """The operator's fault: the policy names a variable that the gateway's environment does not have."""


class _EndlessListError(Exception):
    """The upstream's fault: its list has more pages than anybody can want."""


@dataclass(slots=True)
class _Connection:
    client: Client
    calls: set[trio.CancelScope] = field(default_factory=set)
    is_over: bool = False


class Upstream:
    def __init__(
        self,
        rules: UpstreamRules,
        settings: UpstreamSettings,
        environment: Mapping[str, str],
        changed: Callable[[], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.rules = rules
        self.tools: Mapping[str, UpstreamTool] = {}  # by the names that agents know, in order
        self._settings = settings
        self._environment = environment
        self._changed = changed
        self._chance = chance
        self._life = UpstreamLife(settings)
        self._connection: _Connection | None = None
        self._secrets: frozenset[bytes] = frozenset()  # as they look in JSON
        self._told: Sequence[Mapping[str, Any]] = ()
        self._look = trio.Event()
        self.calls = 0
        """That have been passed on, since it began to be kept connected."""
        self.last_end: EndWord | None = None
        """Of the last connection; None: none has ended."""

    @property
    def since_s(self) -> float:
        """For how long its state is what it is; monotonic."""
        return self._life.since_s

    @property
    def state(self) -> UpstreamState:
        return self._life.state

    @property
    def is_up(self) -> bool:
        return self._connection is not None

    @property
    def has_room(self) -> bool:
        return self._connection is None or len(self._connection.calls) < self._settings.calls_max

    def betrays(self, json: bytes) -> bool:
        """Whether it holds a credential that we gave to this upstream."""
        return any(secret in json for secret in self._secrets)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._life.connect(trio.current_time())
            causes: list[dict[str, object]] | None = None
            try:
                await self._live()
            except Exception as exc:
                causes, self.last_end = report(exc), _end_word(exc)
            finally:
                self._leave()
            wait_s = self._life.ended(trio.current_time(), self._chance())
            log.warning("upstream_down", upstream=self.rules.name, causes=causes, next_try_s=round(wait_s, 1))
            await trio.sleep(wait_s)

    async def call(self, tool: UpstreamTool, arguments: Mapping[str, Any], reach: Reach) -> dict[str, Any] | Trouble:
        """The result as MCP has it, or why there is none. `reach` is told when the call has left."""
        connection = self._connection
        if connection is None or not self.has_room:
            return Trouble.DOWN if connection is None else Trouble.BUSY
        answer: dict[str, Any] | Trouble = Trouble.SLOW
        self.calls += 1
        mark = REACH.set(reach)
        try:
            with trio.move_on_after(self.rules.call_timeout_s) as scope:
                connection.calls.add(scope)
                answer = await _call(connection.client, tool.own_name, arguments)
        finally:
            REACH.reset(mark)
            connection.calls.discard(scope)
        if isinstance(answer, Trouble):
            if connection.is_over or answer is Trouble.LOST:
                answer = Trouble.LOST if reach.sent else Trouble.DOWN
            self._look.set()  # is it still there, and is the tool?
        return answer

    # ---- a life -----------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Until the connection ends; how, is the exception."""
        with trio.CancelScope(deadline=trio.current_time() + self.rules.connect_timeout_s) as scope:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._client(stack))
                try:
                    scope.deadline = trio.current_time() + self._settings.list_s_max
                    await self._list(client)
                    scope.deadline = float("inf")
                    self._arrive(client)
                    await self._stay(client, scope)
                finally:
                    scope.deadline = trio.current_time() + CLOSE_S_MAX
        if scope.cancelled_caught:
            raise TimeoutError

    async def _client(self, stack: AsyncExitStack) -> Client:
        rules, settings = self.rules, self._settings
        if rules.url is None:
            inherited = {name: self._environment[name] for name in INHERITED if name in self._environment}
            environment = inherited | self._values(rules.env)
            transport = child_process(rules.command, environment, rules.cwd, settings)
        else:
            http = http_client(self._values(rules.headers), rules.connect_timeout_s, settings)
            await stack.enter_async_context(http)
            transport = streamable_http_client(
                rules.url, http_client=http, max_sse_event_size=settings.message_bytes_max
            )
        return Client(
            transport,
            mode="auto",
            cache=None,
            message_handler=self._on_message,
            client_info=types.Implementation(name="heliograph", version=version("heliograph")),
        )

    def _values(self, named: Sequence[tuple[str, Value]]) -> dict[str, str]:
        """What comes from a variable is a secret, and so is what authorizes us."""
        values: dict[str, str] = {}
        secrets: set[str] = set()
        for name, value in named:
            text = value.read(self._environment)
            if text is None:
                raise _NoVariableError
            values[name] = text
            if value.variable is not None or name.lower() == "authorization":
                secrets |= {text, text.rpartition(" ")[2]}
        kept = (secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN)
        self._secrets = frozenset(msgspec.json.encode(secret)[1:-1] for secret in kept)
        return values

    def _arrive(self, client: Client) -> None:
        self._connection = _Connection(client)
        self._life.came_up(trio.current_time())
        log.info("upstream_up", upstream=self.rules.name, tools=len(self.tools))
        self._changed()

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        self.tools, self._told = {}, ()
        if connection is not None:
            connection.is_over = True
            for scope in connection.calls:
                scope.cancel()
            self._changed()

    async def _stay(self, client: Client, scope: trio.CancelScope) -> None:
        """Look at the tools whenever they may have changed, and now and then."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, client)
            while True:
                with trio.move_on_after(self._settings.check_s):
                    await self._look.wait()
                self._look = trio.Event()
                scope.deadline = trio.current_time() + self._settings.list_s_max
                if await self._list(client):
                    self._changed()
                scope.deadline = float("inf")
                await trio.sleep(self._settings.relist_s_min)

    async def _on_message(self, message: object) -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, types.ToolListChangedNotification):
            self._look.set()

    async def _listen(self, client: Client) -> None:
        """In the modern era news have to be asked for; a stream of them that ends is opened again."""
        capability = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or capability is None or not capability.list_changed:
            return
        while True:
            try:
                async with client.listen(tools_list_changed=True) as news:
                    async for _ in news:
                        self._look.set()
            except (MCPError, RuntimeError, TimeoutError):
                pass
            self._look.set()
            await trio.sleep(self._settings.check_s)

    async def _list(self, client: Client) -> bool:
        """Whether the tools are others than before."""
        told: list[Mapping[str, Any]] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await client.list_tools(cursor=cursor)
            told += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(told) >= self._settings.tools_max:
                break
        else:
            raise _EndlessListError
        told = told[: self._settings.tools_max]
        if told == self._told:
            return False
        tools: dict[str, UpstreamTool] = {}
        for one in told:
            tool = None if self.betrays(msgspec.json.encode(one)) else listed(self.rules, one, self._settings)
            if tool is not None:
                tools[tool.name] = tool
            await trio.lowlevel.checkpoint()  # compiling a thousand schemas would keep everybody else waiting
        if len(tools) < len(told):
            log.warning("upstream_tools_left_out", upstream=self.rules.name, tools=len(told) - len(tools))
        self.tools, self._told = dict(sorted(tools.items())), told
        return True


def _end_word(exc: Exception) -> EndWord:
    words = {
        _NoVariableError: EndWord.NO_VARIABLE,
        _EndlessListError: EndWord.ENDLESS_LIST,
        TimeoutError: EndWord.TIMEOUT,
    }
    return words.get(type(first_leaf(exc)), EndWord.LOST)


async def _call(client: Client, name: str, arguments: Mapping[str, Any]) -> dict[str, Any] | Trouble:
    """Not by `client.call_tool`, which judges the result by Python's regular expressions: those can take for ever."""
    try:
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        result = await client.session.send_request(types.CallToolRequest(params=params), types.CallToolResult)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    except MCPError as error:
        return Trouble.LOST if error.code == types.CONNECTION_CLOSED else Trouble.FAILED
    except Exception:  # whatever it was, there is no result; the upstream's words are dropped here
        return Trouble.FAILED
