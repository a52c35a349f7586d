"""What operators may ask a running gateway for, one by one: actions, which change something, and looks, which do not.

Each names the one scope that it takes (None: any operator may), the method and who answers. An action is authenticated,
its body read and decoded; then it is performed and leaves one line in the log, whatever became of it. Operators come
with a token, or through the console with a session. Which actions and looks there are, and under which paths, is for
the modules that bring them (`admin.py` serves them all).
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from actors.node.moment import Moment
from gateway.calls.audit import Audit, Decision, Via
from gateway.identity.authenticator import SPEAKER, NotAdmitted
from gateway.identity.operators import Operators
from gateway.identity.tokens import OperatorScope, Principal
from gateway.net.exchange import BODY_BYTES_MAX, BodyTooLarge, Exchange
from gateway.net.router import Handler
from schemas.errors import Code


@dataclass(frozen=True, slots=True)
class Done:
    answer: Mapping[str, Any]
    target: Mapping[str, Any]  # for the audit: to what, by ids that we made or checked


@dataclass(frozen=True, slots=True)
class Declined:
    reason: str  # for the audit
    message: str
    suggested_fix: str | None = None
    code: Code = Code.MANIFEST_INVALID


Outcome: TypeAlias = Done | Declined
Act: TypeAlias = Callable[[Any, Principal], Outcome | Awaitable[Outcome]]
"""Performs an action: what was asked, decoded, and by whom."""
Remove: TypeAlias = Callable[[str], Awaitable[Outcome]]
"""Removes what has this name."""
Look: TypeAlias = Callable[[Exchange], Awaitable[Mapping[str, Any] | None]]
"""What to answer; None when it has answered already."""


@dataclass(frozen=True, slots=True)
class OperatorRoute:
    """An entry of the table of routes: who may come, and who answers."""

    method: str
    scope: OperatorScope | None  # None: any operator
    handler: Handler


OperatorRoutes: TypeAlias = Mapping[str, OperatorRoute]  # by path, as a router takes it


class Actions:
    def __init__(self, operators: Operators, audit: Audit, now: Callable[[], Moment]) -> None:
        self._operators = operators
        self._audit = audit
        self._now = now

    def action(
        self, name: str, scope: OperatorScope | None, shape: type[Any], act: Act, body_bytes_max: int = BODY_BYTES_MAX
    ) -> OperatorRoute:
        """`shape` is what the body has to decode to."""
        return OperatorRoute("POST", scope, partial(self._perform, name, scope, shape, act, body_bytes_max))

    def removal(self, name: str, scope: OperatorScope, remove: Remove) -> OperatorRoute:
        """An action without a body, on what the path names; done, it is answered with 204."""
        return OperatorRoute("DELETE", scope, partial(self._remove, name, scope, remove))

    def look(self, scope: OperatorScope, look: Look) -> OperatorRoute:
        return OperatorRoute("GET", scope, partial(self._show, scope, look))

    async def _show(self, scope: OperatorScope, look: Look, exchange: Exchange) -> None:
        operators = self._operators.having(scope)
        if await operators.admit(exchange) is None:
            return
        seen = await look(exchange)
        # Once more: the disk may have been long in answering.
        if seen is not None and await operators.admit(exchange) is not None:
            await exchange.json(seen)

    async def _perform(
        self,
        name: str,
        scope: OperatorScope | None,
        shape: type[Any],
        act: Act,
        body_bytes_max: int,
        exchange: Exchange,
    ) -> None:
        async def outcome() -> Outcome | NotAdmitted:
            return await self._outcome(scope, shape, act, body_bytes_max, exchange)

        await self._audited(name, scope, outcome, lambda done: exchange.json(done.answer), exchange)

    async def _remove(self, name: str, scope: OperatorScope, remove: Remove, exchange: Exchange) -> None:
        async def outcome() -> Outcome | NotAdmitted:
            checked = self._operators.having(scope).check(exchange)
            return checked if isinstance(checked, NotAdmitted) else await remove(exchange.name)

        await self._audited(name, scope, outcome, lambda _: exchange.no_content(), exchange)

    async def _audited(
        self,
        name: str,
        scope: OperatorScope | None,
        perform: Callable[[], Awaitable[Outcome | NotAdmitted]],
        answer: Callable[[Done], Awaitable[None]],
        exchange: Exchange,
    ) -> None:
        arrived = self._now()
        operator = await self._operators.any.admit(exchange)
        if operator is None:
            return
        decision, code, reason, target = Decision.ABANDONED, None, None, None
        try:
            outcome = await perform()
            if isinstance(outcome, Done):
                decision, target = Decision.ANSWERED, outcome.target
                await answer(outcome)
                return
            decision, reason = Decision.REFUSED, outcome.reason
            if isinstance(outcome, NotAdmitted):
                code = Code.SAFETY_DENIED
                await self._operators.having(scope).refuse(exchange, outcome)
            else:
                code = outcome.code
                await exchange.refuse(code, outcome.message, outcome.suggested_fix)
        except BodyTooLarge:
            decision, code, reason = Decision.REFUSED, Code.MANIFEST_INVALID, "too_large"
            raise
        finally:
            took_ms = round((self._now().mono_s - arrived.mono_s) * 1000, 1)
            via = Via.HTTP if exchange.extension(SPEAKER) is None else Via.CONSOLE
            self._audit.action(
                operator, name, decision, target=target, code=code, reason=reason, took_ms=took_ms, via=via
            )

    async def _outcome(
        self, scope: OperatorScope | None, shape: type[Any], act: Act, body_bytes_max: int, exchange: Exchange
    ) -> Outcome | NotAdmitted:
        operators = self._operators.having(scope)
        checked = operators.check(exchange)
        if isinstance(checked, NotAdmitted):
            return checked
        body = await exchange.body(body_bytes_max)
        checked = operators.check(exchange)  # once more: the body may have been long in coming
        if isinstance(checked, NotAdmitted):
            return checked
        try:
            request = msgspec.json.decode(body, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Declined("malformed", "The body is not what this route takes.", "Compare it with the reference.")
        outcome = act(request, checked)
        return await outcome if inspect.isawaitable(outcome) else outcome
