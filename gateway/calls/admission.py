"""Who may use a tool, and what that costs: one way for device calls, upstreams' calls, streams and subscriptions.

The checks, in the order of access.md: the name (whoever looks the tool up), scope and tenant, policy, the tool's own
readiness (a manifest that has expired, an upstream that is away), the arguments' schema, budget, rate, personal data in
the arguments. The capability's limits come later, where the call is made.

Nothing here waits unless the agent's account has to be fetched. Whatever has waited is checked again from the
beginning, and its token too.
"""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from actors.bus.directory import Directory, NodeRecord
from actors.bus.purse import Account
from actors.ledger.ledger import command_key
from actors.ledger.rules import Exceeded
from actors.node.moment import Moment
from gateway.calls.answers import NOT_WRITTEN, TOKEN_ENDED, No, Reason, unfit
from gateway.governance.denials import Denial, over_budget
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import AgentRules, Side
from gateway.identity.scopes import Denied, authorize
from gateway.identity.tokens import Principal
from schemas.contract import Flaw, contract
from schemas.errors import Code
from schemas.projection import Tool, ToolName

_EXPIRED = No(
    Code.MANIFEST_INVALID,
    "The node's manifest has expired.",
    "Wait until the node has announced itself again, or tell its operator.",
)


class Target(Protocol):
    """A tool that somebody asks for. What its checks say is its own, their order is not."""

    @property
    def name(self) -> str:
        """As the policy knows it."""

    def denied(self, principal: Principal, wall_ms: int) -> Denied | None:
        """By scope or tenant."""

    def unready(self, wall_ms: int) -> No | None:
        """Why it cannot be used now."""

    def flaw(self, arguments: Any) -> Flaw | None:
        """Where the arguments do not fit its schema."""

    def takes(self, arguments: Any) -> bool:
        """Whether they fit."""


T = TypeVar("T", bound=Target)


class DeviceTarget(msgspec.Struct, frozen=True):
    """A device's tool."""

    tool: Tool
    record: NodeRecord
    streaming: bool  # whether the caller takes a stream

    @property
    def name(self) -> str:
        return self.tool.name

    def denied(self, principal: Principal, wall_ms: int) -> Denied | None:
        return authorize(principal, self.tool, self.record.tenant, wall_ms)

    def unready(self, wall_ms: int) -> No | None:
        if self.tool.target.verb == "subscribe" and not self.streaming:
            return No(Code.BAD_REQUEST)
        return _EXPIRED if self.record.is_expired(wall_ms) else None

    def flaw(self, arguments: Any) -> Flaw | None:
        return contract(self.tool.input_id).first_flaw(arguments)

    def takes(self, arguments: Any) -> bool:
        return self.tool.takes(arguments)


class Admitted(msgspec.Struct, Generic[T], frozen=True):
    """What may go on, for whom, and at what price. Ungoverned, it has neither rules nor a price."""

    target: T
    principal: Principal
    arguments: Any  # with what the policy redacts taken out
    now_ms: int
    rules: AgentRules | None = None
    policy: str | None = None  # the revision that it was judged by
    price_micros: int | None = None
    account: Account | None = None

    def hold(self, node_id: str, msg_id: str) -> Exceeded | None:
        """Set the price of this command aside; checked once more, for others may have spent meanwhile."""
        if self.account is None or self.rules is None or self.price_micros is None:
            return None
        key, rules = command_key(node_id, msg_id), self.rules
        return self.account.hold(key, self.target.name, self.price_micros, rules.budget, self.now_ms)

    def over_budget(self, exceeded: Exceeded) -> No:
        return No.by(over_budget(exceeded, self.price_micros or 0, self.now_ms))


class Admission:
    """Without a governor nothing is limited by policy, and nothing costs anything."""

    def __init__(
        self,
        directory: Directory,
        now: Callable[[], Moment],
        governor: Governor | None = None,
        still_good: Callable[[Principal], bool] = lambda _: True,
    ) -> None:
        """`still_good` says whether a principal's token is neither revoked nor expired by now."""
        self.governor = governor
        self.still_good = still_good
        self._directory = directory
        self._now = now

    @property
    def revision(self) -> str | None:
        """Of the policy that was last judged by."""
        return None if self.governor is None else self.governor.revision

    def device(self, target: ToolName | Code, *, streaming: bool = False) -> DeviceTarget | No:
        """The tool of a device that a name points at."""
        if isinstance(target, Code):
            return No(target)
        record = self._directory.find(target.node_id)
        refusal = Code.MANIFEST_NOT_FOUND
        for tool in () if record is None else record.tools:
            if tool.target.cap_id == target.cap_id and tool.target.kind == target.kind:
                if tool.target.verb == target.verb:
                    assert record is not None
                    return DeviceTarget(tool, record, streaming)
                refusal = Code.VERB_UNSUPPORTED
        return No(refusal)

    def admit_now(self, principal: Principal, target: T | No, arguments: Any, now: Moment) -> Admitted[T] | No | None:
        """As `admit`; None when the agent's account is not at hand, and nothing has been decided."""
        if isinstance(target, No):
            return target
        denied = target.denied(principal, now.wall_ms)
        if denied is not None:
            reason = Reason.TENANT if denied.is_of_another_tenant else Reason.SCOPE
            return No(Code.SAFETY_DENIED, denied.message, denied.suggested_fix, reason=reason)
        governor, name = self.governor, target.name
        rules = None if governor is None else governor.authorize(principal, name)
        if isinstance(rules, Denial):
            return No.by(rules)
        unready = target.unready(now.wall_ms)
        if unready is not None:
            return unready
        flaw = target.flaw(arguments)
        if flaw is not None:
            return unfit(flaw)
        if governor is None or rules is None:
            return Admitted(target, principal, arguments, now.wall_ms)
        account = governor.purse.account(principal.tenant, principal.sub)
        if account is None:
            return None
        labels = governor.labels_of(name) if rules.selects else None
        price_micros = rules.price_of(name, labels)
        limit = governor.over_limits(account, principal.sub, rules, name, price_micros, now, labels)
        if limit is not None:
            return No.by(limit)
        passed = governor.inspect(rules, Side.ARGUMENTS, arguments, target.takes)
        if isinstance(passed, Denial):
            return No.by(passed)
        return Admitted(target, principal, passed, now.wall_ms, rules, governor.revision, price_micros, account)

    async def admit(self, principal: Principal, find: Callable[[], T | No], arguments: Any) -> Admitted[T] | No:
        """Whether the principal may use the tool that `find` finds, with these arguments, and at what price.

        A cancelled caller leaves nothing behind but a token of its rate.
        """
        admitted = self.admit_now(principal, find(), arguments, self._now())
        if admitted is None:
            assert self.governor is not None
            if not await self.governor.purse.prepare(principal.tenant, principal.sub):
                return NOT_WRITTEN
            if not self.still_good(principal):
                return TOKEN_ENDED
            admitted = self.admit_now(principal, find(), arguments, self._now())
            assert admitted is not None
        return admitted

    def reserve(self, admitted: Admitted[Any], key: str) -> "Reservation":
        """The price of what has no command of its own."""
        return Reservation(self, admitted, key, self._now)


class Reservation:
    """`async with` it, and what it gives is this, or a `No`: the budget does not reach, the log does not take it, or
    the token has ended meanwhile.

    Whatever ends the block, the price is charged if it was `reached` by then, and released if not. Neither is waited
    for. Cancelled before the block begins, it leaves nothing behind: the purse sees to that.
    """

    __slots__ = ("_admission", "_admitted", "_is_made", "_key", "_now", "reached")

    def __init__(self, admission: Admission, admitted: Admitted[Any], key: str, now: Callable[[], Moment]) -> None:
        self._admission = admission
        self._admitted = admitted
        self._key = key
        self._now = now
        self._is_made = False
        self.reached = False
        """Set it as soon as what is paid for has happened, or may have."""

    async def __aenter__(self) -> "Reservation | No":
        admitted, governor = self._admitted, self._admission.governor
        rules, price_micros = admitted.rules, admitted.price_micros
        if governor is not None and rules is not None and price_micros is not None:
            tenant, sub, tool = admitted.principal.tenant, admitted.principal.sub, admitted.target.name
            reserved = await governor.purse.reserve(
                tenant, sub, self._key, tool, price_micros, rules.budget, admitted.now_ms
            )
            if isinstance(reserved, Exceeded):
                return admitted.over_budget(reserved)
            if not reserved:
                return NOT_WRITTEN
            self._is_made = True
        return self if self._admission.still_good(admitted.principal) else TOKEN_ENDED

    async def __aexit__(self, *_: object) -> None:
        if self._is_made and self._admission.governor is not None:
            purse, principal = self._admission.governor.purse, self._admitted.principal
            settle = purse.charge if self.reached else purse.release
            settle(principal.tenant, principal.sub, self._key, self._now().wall_ms)
