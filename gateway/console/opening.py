"""The console as a whole, joined to a gateway: its routes, what runs for it, and the links that lead to it.

What it shows is handed in as a table of calls, and what operators do as the handler of `/admin`. Where there is no
console, that is said once, and links are refused with the reason.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog
import trio

from actors.console.operator_passkeys import OperatorPasskeys
from actors.console.passkey_rules import Trouble
from actors.node.moment import Moment
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.calls.audit import Audit
from gateway.console.access import ConsoleAccess
from gateway.console.api import ConsoleCall
from gateway.console.dispatch import ConsoleApi
from gateway.console.feeds import Feeds
from gateway.console.origin_rules import ConsoleOff
from gateway.console.pages import CONSOLE, ConsolePages
from gateway.console.settings import ConsoleSettings
from gateway.console.sign_in import SignIn
from gateway.identity.operator_rules import ALL_SCOPES
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from gateway.identity.passkeys.relying_party import RelyingParty, UnfitBaseError
from gateway.identity.tokens import NEVER_MS, OperatorScope, Principal, TokenClass, Verifier
from gateway.net.operation import Operations
from gateway.net.router import Handler, Routes

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

FRAGMENT = "#k="


@dataclass(frozen=True, slots=True)
class ConsoleLink:
    url: str = field(repr=False)  # whoever has it is in, once
    ends_at_ms: int


class Console:
    def __init__(
        self,
        origin: Callable[[], str] | ConsoleOff,
        settings: ConsoleSettings,
        passkeys: OperatorPasskeys,
        ceremonies: Ceremonies,
        is_known_elsewhere: Callable[[bytes], bool],
        verifier: Verifier,
        audit: Audit,
        calls: Iterable[ConsoleCall],
        act: Handler,
        now: Callable[[], Moment],
        new_id: Callable[[], str],
    ) -> None:
        """`is_known_elsewhere`: whether a passkey is of another realm. `act` answers requests under `/admin`."""
        self.routes: Routes = {}
        self.operations: Operations = {}
        self.off = origin if isinstance(origin, ConsoleOff) else None
        self._origin = origin
        self._new_id = new_id
        self.feeds = Feeds(settings)
        self.access = ConsoleAccess(settings, passkeys, verifier, now, self.feeds.end_of)
        self._stop = trio.Event()
        if isinstance(origin, ConsoleOff):
            log.info("console_off", reason=origin.word)
            return
        party = _party_at(origin)
        sign_in = SignIn(self.access, ceremonies, party, is_known_elsewhere, audit, now, new_id)
        api = ConsoleApi(self.access, sign_in, self.feeds, calls, act, audit, settings, origin, now)
        pages = ConsolePages(origin, PASSKEY_SCRIPT, settings, now)
        self.routes = {**pages.routes, **api.routes}
        self.operations = {**pages.operations, **api.operations}

    # ---- as a feature ------------------------------------------------------------------------------------------------

    def start(self, supervisor: Supervisor) -> None:
        """Only so that a stop does not wait for live views."""
        supervisor.start(
            ChildSpec(name="console", run=self._run, kind=Kind.PERMANENT, stage=Stage.STREAMS, ask_stop=self._stop.set)
        )

    async def _run(self) -> None:
        await self._stop.wait()
        self.feeds.stop()
        self.access.end_all()

    def revoke(self, token_id: str) -> None:
        self.access.revoke(token_id)

    # ---- links -------------------------------------------------------------------------------------------------------

    def link(self, principal: Principal, scopes: frozenset[OperatorScope], *, may_register: bool) -> ConsoleLink:
        """For this operator, with these of its scopes; where there is a console. `may_register`: a passkey."""
        assert not isinstance(self._origin, ConsoleOff)
        made = self.access.make_link(principal, scopes, may_register=may_register)
        return ConsoleLink(f"{self._origin()}{CONSOLE}{FRAGMENT}{made.secret}", made.ends_at_ms)

    def link_of_owner(self, sub: str, tenant: str = "operators") -> str | None:
        """For whoever runs the process on its folder, and so has its keys: with every scope. None: there is no console.

        It has an id of its own, by which what it opens can be revoked.
        """
        if self.off is not None:
            return None
        owner = Principal(sub, tenant, TokenClass.OPERATOR, ALL_SCOPES, self._new_id(), 0, NEVER_MS)
        return self.link(owner, ALL_SCOPES, may_register=True).url

    # ---- passkeys, as operators see them elsewhere -------------------------------------------------------------------

    def passkeys(self) -> list[dict[str, Any]]:
        return [self.access.described(one) for one in self.access.passkeys]

    async def remove_passkey(self, passkey_id: str, by: str) -> Trouble | None:
        return await self.access.remove_passkey(passkey_id, by)


def _party_at(origin: Callable[[], str]) -> Callable[[], RelyingParty] | None:
    """None, and a word to the operator, where no browser makes passkeys, as for an IP address."""
    try:
        RelyingParty.of(origin())
    except UnfitBaseError:
        log.info("console_passkeys_off", reason="not_a_domain")
        return None
    return lambda: RelyingParty.of(origin())
