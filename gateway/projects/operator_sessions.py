"""The operator over `/mcp`: whoever has the project bearer has the tools of all projects.

The endpoint asks this kind first, so the bearer is never taken for a room's token or an agent's, whatever its form.
It has no agent's identity and no end but a restart with another bearer. A request counts toward the rate of its
address, shared with the project API. Each call leaves one line in the audit. What sessions are and how MCP is spoken
is the endpoint's.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.node.moment import Moment
from gateway.calls.audit import Audit
from gateway.calls.echo_calls import NO_SUCH_TOOL, CallEnd, EchoCalls, Outcome
from gateway.calls.large_call_rules import LongTexts
from gateway.main.session_kind import Caller, LargeShare, SessionLimits, ToolDone, ToolFailed, ToolUnknown
from gateway.net.body_pace_rules import BodyPace
from gateway.net.echo_answers import Refusal
from gateway.net.exchange import Exchange
from gateway.net.rates import address_of
from gateway.net.refusal_form import RefusalForm
from gateway.projects.operator_tools import OperatorTools
from schemas.echo.errors import EchoError
from schemas.echo.project_tools import PROJECT_TOOLS
from schemas.echo.tools import EchoTool

OPERATOR = "operator"  # the one credential of this kind, by name
_NEVER_MS = 2**52  # when it ends
_LONG = LongTexts("system_prompt")
_INSTRUCTIONS = (
    "These tools manage projects: each has a static site on a hostname of its own and a room for what its pages do "
    "live. To publish a site, create a project, ask for an upload URL for each file with echo_project_static_presign, "
    "PUT the bytes there with exactly the headers that it gives, and open the project's url. A result with isError "
    "carries an object: error is a word for programs, message says what is wrong."
)


@dataclass(frozen=True, slots=True)
class OperatorLimits:
    """Of requests to `/mcp` with the project bearer."""

    sessions: SessionLimits  # with one account, the address
    body_bytes_max: int  # of a request; a larger one is 413 `payload_too_large`
    body_pace: BodyPace
    large_max: int  # requests and answers above 64 KiB under way; the next one is 503 `overloaded`


@dataclass(frozen=True, slots=True)
class OperatorCaller:
    address: str

    @property
    def credential_id(self) -> str:
        return OPERATOR

    @property
    def accounts(self) -> tuple[str]:
        return (self.address,)

    @property
    def expires_at_ms(self) -> int:
        return _NEVER_MS


class OperatorSessions:
    name = OPERATOR
    instructions = _INSTRUCTIONS
    scope: str | None = None  # nobody gets the bearer by asking for it

    def __init__(
        self,
        tools: OperatorTools,
        is_bearer: Callable[[str], bool],
        is_project: Callable[[str], bool],
        admit: Callable[[Exchange], Refusal | None],
        limits: OperatorLimits,
        audit: Audit,
        refused: MutableMapping[str, int],
        refusal_form: RefusalForm,
        now: Callable[[], Moment],
        new_id: Callable[[], str],
    ) -> None:
        """`is_bearer` takes as long for a wrong one as for the right one. `admit`: whether an address asks too often.
        `refused` counts refusals by their word."""
        self.limits = limits.sessions
        self.body_bytes_max = limits.body_bytes_max
        self.body_pace = limits.body_pace
        self.large_max = limits.large_max
        self.large_of_accounts_max: tuple[int, ...] = (limits.large_max,)
        self.refusal_form = refusal_form
        self.on_end: Callable[[str], None] = lambda _: None
        self.claims = is_bearer
        self._tools = tools
        self._is_project = is_project
        self._admit = admit
        self._audit = audit
        self._refused = refused
        self._calls = EchoCalls(refused, now, new_id)

    # ---- who asks ----------------------------------------------------------------------------------------------------

    def admit(self, exchange: Exchange, token: str) -> Caller | Refusal | None:  # noqa: ARG002  # it was claimed
        refusal = self._admit(exchange)
        if refusal is None:
            return OperatorCaller(address_of(exchange))
        self._refused[refusal.error.word] += 1
        return refusal

    def takes_large(self, body: bytes) -> bool:
        return _LONG.are_most_of(body)

    def is_good(self, caller: Caller) -> bool:  # noqa: ARG002  # there is one bearer, and it stays
        return True

    def ends_at_ms(self, caller: Caller) -> int:
        return caller.expires_at_ms

    # ---- what it may do ----------------------------------------------------------------------------------------------

    def tools(self, caller: Caller) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002  # whoever it is may use all
        return [tool.listed for tool in PROJECT_TOOLS.values()]

    async def call(
        self,
        caller: Caller,  # noqa: ARG002
        name: str,
        arguments: Any,
        share: LargeShare,
    ) -> ToolDone | ToolFailed | ToolUnknown:
        tool = PROJECT_TOOLS.get(name)
        audit = partial(self._audited, tool, arguments)
        return await self._calls.run(partial(self._outcome, tool, arguments), share, audit)

    async def _outcome(self, tool: EchoTool | None, arguments: Any) -> Outcome:
        if tool is None:
            return NO_SUCH_TOOL
        if not tool.takes(arguments):
            return EchoError.INVALID_PAYLOAD
        return await self._tools.by_name[tool.name](arguments)

    def _audited(self, tool: EchoTool | None, arguments: Any, end: CallEnd) -> None:
        self._audit.project_call(
            self._project_of(end.document, arguments),
            None if tool is None else tool.name,
            end.decision,
            code=end.code,
            correlation_id=end.correlation_id,
            took_s=end.took_s,
        )

    def _project_of(self, *told: Any) -> str | None:
        """Of a project that there is: any other id is the caller's own text."""
        named = [one.get("project_id") for one in told if isinstance(one, Mapping)]
        return next((name for name in named if isinstance(name, str) and self._is_project(name)), None)
