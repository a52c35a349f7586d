"""Rooms over `/mcp`: the tools are those of the room, the limits the room's. The token of a room is the credential; in
a space with IAM it is an access token of a member, and what it opens belongs to its grant, with the tokens that follow.

A request counts toward the rate of its address, a call toward that of its room, both shared with REST; a token that no
room has is a guess. Each call leaves one line in the audit. What sessions are and how MCP is spoken is the endpoint's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from actors.grants.grants import Access
from actors.space.iam import SpaceIam
from actors.space.spaces import EchoSpaces
from gateway.calls.audit import Audit
from gateway.calls.echo_calls import NO_SUCH_TOOL, CallEnd, EchoCalls, Failure, Outcome
from gateway.calls.large_call_rules import LongTexts
from gateway.main.session_kind import Caller, LargeShare, SessionLimits, ToolDone, ToolFailed, ToolUnknown
from gateway.net.echo_answers import Refusal
from gateway.net.exchange import Exchange
from gateway.spaces.admission import SpaceAdmission, address_of
from gateway.spaces.refusals import form_of_sessions
from gateway.spaces.room_tools import SHOW_TOKEN, RoomCaller, RoomTools, credential_of, credential_of_grant
from gateway.spaces.settings import EchoSettings
from schemas.echo.errors import EchoError
from schemas.echo.names import IAM_ACCESS, ROOM_TOKEN
from schemas.echo.room_tools import FULL, ROOM_TOOLS, RoomTool

_INSTRUCTIONS = (
    "These tools belong to one echo space: a temporary room with values, files and live messages, shared by everybody "
    "who has its token, and erased at its end. echo_system_prompt tells all about it; echo_space_info has its "
    "addresses, the WebSocket for live messages among them. A result with isError carries an object: error is a word "
    "for programs, message says what is wrong."
)
_LONG = LongTexts("data_base64", "value")


class RoomSessions:
    name = "space"
    instructions = _INSTRUCTIONS
    scope: str | None = FULL

    def __init__(
        self,
        tools: RoomTools,
        admission: SpaceAdmission,
        spaces: EchoSpaces,
        iam: SpaceIam,
        settings: EchoSettings,
        audit: Audit,
        new_id: Callable[[], str],
    ) -> None:
        self.limits = SessionLimits(
            settings.mcp_sessions_max,
            (settings.mcp_sessions_per_space_max, settings.mcp_sessions_per_address_max),
            settings.mcp_session_idle_s_max,
        )
        self.body_bytes_max = settings.mcp_body_bytes
        self.large_max = settings.mcp_large_max
        self.large_of_accounts_max: tuple[int, ...] = (
            settings.mcp_large_per_space_max,
            settings.mcp_large_per_address_max,
        )
        self.on_end: Callable[[str], None] = lambda _: None
        self._tools = tools
        self._admission = admission
        self._spaces = spaces
        self._iam = iam
        self._audit = audit
        self._refused = spaces.counts.requests_refused
        self._calls = EchoCalls(self._refused, spaces.now, new_id)
        self.body_pace = settings.body_pace
        self.refusal_form = form_of_sessions(self._refused)

    def end(self, space_id: str) -> None:
        """The room is over, or has members now, and so all that its token has opened is over too."""
        self.on_end(credential_of(space_id))

    def end_grant(self, space_id: str, grant_id: str) -> None:
        """A member's grant is over, or was without a live access token for too long."""
        self.on_end(credential_of_grant(space_id, grant_id))

    # ---- who asks ----------------------------------------------------------------------------------------------------

    def claims(self, token: str) -> bool:
        return token.startswith((ROOM_TOKEN, IAM_ACCESS))

    def admit(self, exchange: Exchange, token: str) -> Caller | Refusal | None:
        if token.startswith(IAM_ACCESS):
            access = self._admission.admit_member(exchange, token)
            return self._refusal(access) if isinstance(access, Refusal) else self._member(access, exchange)
        found = self._admission.admit_session(exchange, token)
        if isinstance(found, Refusal):
            return self._refusal(found)
        # In a space with IAM its token alone opens nothing.
        return None if found.has_iam else RoomCaller(found, token, address_of(exchange))

    def _member(self, access: Access, exchange: Exchange) -> RoomCaller | None:
        space = self._spaces.get(access.giver)
        if space is None:
            return None
        until_ms = self._iam.opened_until_ms(access)
        return RoomCaller(space, "", address_of(exchange), access.scopes, access, until_ms)

    def _refusal(self, refusal: Refusal) -> Refusal | None:
        self._refused[refusal.error.word] += 1
        return None if refusal.error is EchoError.SPACE_NOT_FOUND else refusal

    def takes_large(self, body: bytes) -> bool:
        return _LONG.are_most_of(body)

    def is_good(self, caller: Caller) -> bool:
        return self.ends_at_ms(caller) > self._spaces.now().wall_ms

    def ends_at_ms(self, caller: Caller) -> int:
        assert isinstance(caller, RoomCaller)
        if caller.access is not None:
            return self._iam.opened_until_ms(caller.access)
        space = self._spaces.get(caller.space.space_id)
        return 0 if space is None or space.has_iam else space.ends_at_ms

    # ---- what it may do ----------------------------------------------------------------------------------------------

    def tools(self, caller: Caller) -> Sequence[Mapping[str, Any]]:
        assert isinstance(caller, RoomCaller)
        return [tool.listed for tool in ROOM_TOOLS.values() if tool.is_open_to(caller.scopes)]

    async def call(
        self, caller: Caller, name: str, arguments: Any, share: LargeShare
    ) -> ToolDone | ToolFailed | ToolUnknown:
        assert isinstance(caller, RoomCaller)
        tool = ROOM_TOOLS.get(name)
        audit = partial(self._audited, caller, None if tool is None else tool.name)
        return await self._calls.run(partial(self._outcome, caller, tool, arguments, share), share, audit)

    def _audited(self, caller: RoomCaller, tool: str | None, end: CallEnd) -> None:
        self._audit.space_call(
            caller.space.space_id,
            tool,
            end.decision,
            member_id=None if caller.access is None else caller.access.member_id,
            code=end.code,
            correlation_id=end.correlation_id,
            took_s=end.took_s,
        )

    async def _outcome(self, caller: RoomCaller, tool: RoomTool | None, arguments: Any, share: LargeShare) -> Outcome:
        over_rate = self._admission.admit_call(caller.space)
        if over_rate is not None:
            return Failure(over_rate.error, over_rate.wait_ms)
        if tool is None:
            return NO_SUCH_TOOL
        if not tool.is_open_to(caller.scopes):
            return Failure(EchoError.INSUFFICIENT_SCOPE)
        if not tool.takes(arguments):
            return Failure(EchoError.INVALID_PAYLOAD)
        if caller.access is not None:
            caller = replace(caller, token=self._spaces.token_of(caller.space) or "")
        if not caller.token and tool.name in SHOW_TOKEN:  # `echo.key` is not the one that sealed it
            return Failure(EchoError.STORAGE_NOT_READY)
        return await self._tools.by_name[tool.name](caller, arguments, share)
