"""Who may use a tool, and what that costs: one way for device calls, upstreams' calls, streams and subscriptions.

The checks, in the order of access.md: the name (whoever looks the tool up), scope and tenant, policy, the tool's own
readiness (a manifest that has expired, an upstream that is away), the arguments' schema, budget, rate, personal data in
the arguments. The capability's limits come later, where the call is made.

Nothing here waits unless the agent's account has to be fetched. Whatever has waited is checked again from the
beginning, and its token too.

Where ledgers may be in other processes, budget and rate are their owners' to check, and whoever passes all else asks
for them as it reserves. Personal data is looked for before that, and told after it: the order of refusals is the same.
"""

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from actors.bus.directory import Directory, NodeRecord
from actors.bus.purse import Account, Granted, Guess, NotGiven, NotNow, Order, SharedPurse
from actors.ledger.ledger import command_key
from actors.ledger.rules import Exceeded
from actors.node.moment import Moment
from gateway.calls.answers import NOT_WRITTEN, TOKEN_ENDED, TOO_LATE, No, Reason, unfit
from gateway.calls.audit import CallRecord
from gateway.governance.denials import Denial, denied_by_owner, over_budget
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import AgentRules, Side
from gateway.identity.scopes import Denied, authorize
from gateway.identity.tokens import Principal
from schemas.contract import Flaw, contract
from schemas.errors import Code
from schemas.projection import Tool, ToolName

OWNER_MS_MAX = 5_000  # for the owner of a ledger to answer; then E_DEADLINE_EXCEEDED
SETTLE_MS = 60_000  # beyond what a call may take; what is not settled by then is charged: who would have is gone
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
    asks_owner: bool = False  # its budget and its rates are still to be asked for, of whoever has the ledger
    blocked: No | None = None  # by what is in its arguments; said once budget and rates have been asked for

    @property
    def is_to_reserve(self) -> bool:
        """Whether there is anything to pay, or to ask."""
        return self.asks_owner or bool(self.price_micros)

    @property
    def has_rates(self) -> bool:
        """Whether any may concern it."""
        return self.asks_owner or (self.rules is not None and bool(self.rules.rates))

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

    @property
    def pays_first(self) -> bool:
        """Whether ledgers may be in other processes, so that a command cannot pay with its own commit."""
        return self.governor is not None and self.governor.purse is None

    async def over_rates_of_kind(self, record: CallRecord, kind_short: str, verb: str) -> No | None:
        """For a call that names a kind and verb and leads to no tool, where rates are counted elsewhere."""
        if self.governor is None or self.governor.shared is None:
            return None
        principal, now_ms = record.principal, self._now().wall_ms
        guess = Guess(principal.tenant, principal.sub, kind_short, verb, now_ms + OWNER_MS_MAX)
        over = await self.governor.shared.guess(guess)
        return None if over is None else No.by(denied_by_owner(over, now_ms))

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
        if governor.purse is None:
            return self._admit_to_ask(governor, rules, target, principal, arguments, now)
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

    def _admit_to_ask(
        self, governor: Governor, rules: AgentRules, target: T, principal: Principal, arguments: Any, now: Moment
    ) -> Admitted[T] | No:
        name = target.name
        labels = governor.labels_of(name) if rules.selects else None
        price_micros = rules.price_of(name, labels)
        asks_owner = bool(price_micros) or any(rate.concerns(name, labels) for rate in rules.rates)
        passed = governor.inspect(rules, Side.ARGUMENTS, arguments, target.takes)
        blocked = No.by(passed) if isinstance(passed, Denial) else None
        if blocked is not None and not asks_owner:
            return blocked
        return Admitted(
            target,
            principal,
            passed if blocked is None else None,
            now.wall_ms,
            rules,
            governor.revision,
            price_micros,
            asks_owner=asks_owner,
            blocked=blocked,
        )

    async def admit(self, principal: Principal, find: Callable[[], T | No], arguments: Any) -> Admitted[T] | No:
        """Whether the principal may use the tool that `find` finds, with these arguments, and at what price.

        A cancelled caller leaves nothing behind but a token of its rate.
        """
        admitted = self.admit_now(principal, find(), arguments, self._now())
        if admitted is None:
            assert self.governor is not None
            assert self.governor.purse is not None
            if not await self.governor.purse.prepare(principal.tenant, principal.sub):
                return NOT_WRITTEN
            if not self.still_good(principal):
                return TOKEN_ENDED
            admitted = self.admit_now(principal, find(), arguments, self._now())
            assert admitted is not None
        return admitted

    def reserve(
        self, admitted: Admitted[Any], key: str, record: CallRecord, ms_max: int = 0, *, at_once: bool = False
    ) -> "Reservation":
        """The price of what has no command of its own, or has none yet. `ms_max` is what it takes at most; what begins
        `at_once`, or not at all, is charged in the same append."""
        return Reservation(self, admitted, key, record, ms_max, self._now, at_once=at_once)


class Reservation:
    """`async with` it, and what it gives is this, or a `No`: the budget does not reach, the log does not take it, or
    the token has ended meanwhile.

    Whatever ends the block, the price is charged if it was `reached` by then, and released if not. Neither is waited
    for. Cancelled before the block begins, it leaves nothing behind: the purse sees to that.
    """

    __slots__ = (
        "_admission",
        "_admitted",
        "_at_once",
        "_is_made",
        "_key",
        "_ms_max",
        "_now",
        "_order",
        "_record",
        "command",
        "price_micros",
        "reached",
    )

    def __init__(
        self,
        admission: Admission,
        admitted: Admitted[Any],
        key: str,
        record: CallRecord,
        ms_max: int,
        now: Callable[[], Moment],
        *,
        at_once: bool,
    ) -> None:
        self._admission = admission
        self._at_once = at_once
        self._admitted = admitted
        self._key = key
        self._record = record
        self._ms_max = ms_max
        self._now = now
        self._is_made = False
        self._order: Order | None = None
        self.price_micros = admitted.price_micros
        """As it was reserved."""
        self.reached = False
        """Set it as soon as what is paid for has happened, or may have."""
        self.command: str | None = None
        """Which it was, if it was one."""

    async def __aenter__(self) -> "Reservation | No":
        admitted, governor = self._admitted, self._admission.governor
        rules, price_micros = admitted.rules, admitted.price_micros
        if governor is not None and rules is not None and price_micros is not None:
            if governor.purse is None:
                no = await self._ask_owner(governor.shared) if admitted.asks_owner else None
                if no is not None:
                    return no
                return self._if_still_good()
            tenant, sub, tool = admitted.principal.tenant, admitted.principal.sub, admitted.target.name
            purse = governor.purse
            reserve = purse.pay if self._at_once else purse.reserve
            reserved = await reserve(tenant, sub, self._key, tool, price_micros, rules.budget, admitted.now_ms)
            if isinstance(reserved, Exceeded):
                return admitted.over_budget(reserved)
            if not reserved:
                return NOT_WRITTEN
            self._is_made = True
        return self._if_still_good()

    def _if_still_good(self) -> "Reservation | No":
        return self if self._admission.still_good(self._admitted.principal) else TOKEN_ENDED

    async def _ask_owner(self, purse: SharedPurse | None) -> No | None:
        assert purse is not None
        admitted, now_ms = self._admitted, self._now().wall_ms
        order = Order(
            admitted.principal.tenant,
            admitted.principal.sub,
            admitted.target.name,
            self._key,
            answer_by_ms=min(now_ms, admitted.now_ms) + OWNER_MS_MAX,
            settle_by_ms=now_ms + OWNER_MS_MAX + self._ms_max + SETTLE_MS,
            reserves=admitted.blocked is None,
        )
        said = await purse.reserve(order)
        if isinstance(said, NotNow):
            return NOT_WRITTEN if said is NotNow.REFUSED else TOO_LATE
        if isinstance(said, NotGiven):
            return No.by(denied_by_owner(said, now_ms))
        self._record.rates = said.rates
        if not isinstance(said, Granted):
            return No.by(denied_by_owner(said, now_ms))
        if admitted.blocked is not None:
            return admitted.blocked
        self.price_micros = said.micros
        self._order = order if said.micros else None
        return None

    async def __aexit__(self, *_: object) -> None:
        governor, order = self._admission.governor, self._order
        if governor is None:
            return
        if order is not None and governor.shared is not None:
            if self.reached:
                governor.shared.charge(order, self.command)
            else:
                governor.shared.release(order)
        elif self._is_made and governor.purse is not None:
            purse, principal = governor.purse, self._admitted.principal
            settle = purse.charge if self.reached else purse.release
            settle(principal.tenant, principal.sub, self._key, self._now().wall_ms)
