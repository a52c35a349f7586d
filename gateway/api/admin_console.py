"""What operators do about the console: links that sign somebody in, and the passkeys that were made there.

POST /admin/console/link              {"scopes"?, "passkey"?} → {"url", "scopes", "passkey", "expires_at_ms"}; once.
                                      Any operator may. The session has these of the operator's scopes, or all, and ends
                                      with its token. With `passkey`, or without `scopes`, a passkey may be made there
GET  /admin/console/passkeys          all of them
POST /admin/console/passkeys/remove   {"passkey"} → it is over, and its sessions

Where there is no console, no link is made, and the answer says why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import trio

from actors.console.passkey_rules import Trouble
from gateway.api.about import About
from gateway.api.actions import Actions, Declined, Done, OperatorRoutes, Outcome
from gateway.api.answers import ConsoleLinkMade, OperatorPasskeyList, RemovedPasskey
from gateway.identity.operator_rules import MintRefused, judge_link
from gateway.identity.operators import Operators
from gateway.identity.tokens import OperatorScope, Principal
from gateway.net.exchange import Exchange
from schemas.errors import Code

OFF_FIX = "See the reference, page console: where the console is."
_WORDS = {
    Trouble.UNKNOWN: ("No passkey has this id.", "GET /admin/console/passkeys lists them.", Code.MANIFEST_NOT_FOUND),
    Trouble.NOT_WRITTEN: (
        "The log did not take this: nothing has changed.",
        "Make room on the disk, then try again.",
        Code.INTERNAL,
    ),
}


class MadeLink(Protocol):
    @property
    def url(self) -> str: ...

    @property
    def ends_at_ms(self) -> int: ...


class WhyOff(Protocol):
    """Why there is no console."""

    @property
    def word(self) -> str: ...

    @property
    def value(self) -> Any: ...


class ConsoleDoor(Protocol):
    """`gateway.console`, as far as operators' routes are concerned."""

    @property
    def off(self) -> WhyOff | None: ...

    def link(self, principal: Principal, scopes: frozenset[OperatorScope], *, may_register: bool) -> MadeLink:
        """Where there is a console."""

    def passkeys(self) -> Sequence[Mapping[str, Any]]: ...

    async def remove_passkey(self, passkey_id: str, by: str) -> Trouble | None: ...


class ConsoleLinkWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scopes: list[str] | None = None
    passkey: bool | None = None  # None: for oneself, with all scopes; not for a guest, with fewer


class RemovePasskeyWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    passkey: str


class AdminConsole:
    def __init__(self, actions: Actions, operators: Operators, console: ConsoleDoor) -> None:
        self._operators = operators
        self._console = console
        self.routes: OperatorRoutes = {
            "/admin/console/link": actions.action(
                "console_link",
                None,
                ConsoleLinkWish,
                self._link,
                About("Make a link that signs somebody in to the console, once.", ConsoleLinkMade),
            ),
            "/admin/console/passkeys": actions.look(
                OperatorScope.TOKENS_MINT, self._passkeys, About("List the passkeys of operators.", OperatorPasskeyList)
            ),
            "/admin/console/passkeys/remove": actions.action(
                "console_passkey_remove",
                OperatorScope.TOKENS_MINT,
                RemovePasskeyWish,
                self._remove,
                About("Remove an operator's passkey, and what it opened.", RemovedPasskey, refuses=(404,)),
            ),
        }

    def _link(self, request: ConsoleLinkWish, operator: Principal) -> Outcome:
        scopes = judge_link(request.scopes, self._operators.minter(operator).scopes)
        if isinstance(scopes, MintRefused):
            return Declined(scopes.reason, scopes.message, scopes.suggested_fix, scopes.code)
        off = self._console.off
        if off is not None:
            return Declined("console_off", str(off.value), OFF_FIX)
        may_register = request.scopes is None if request.passkey is None else request.passkey
        link = self._console.link(operator, scopes, may_register=may_register)
        given = {"scopes": sorted(map(str, scopes)), "passkey": may_register, "expires_at_ms": link.ends_at_ms}
        return Done({"url": link.url, **given}, given)

    async def _passkeys(self, _: Exchange) -> Mapping[str, Any] | None:
        await trio.lowlevel.checkpoint()
        return {"passkeys": self._console.passkeys()}

    async def _remove(self, request: RemovePasskeyWish, operator: Principal) -> Outcome:
        trouble = await self._console.remove_passkey(request.passkey, operator.sub)
        if trouble is None:
            return Done({"removed": request.passkey}, {"passkey_id": request.passkey})
        return declined(trouble)


def declined(trouble: Trouble) -> Declined:
    message, fix, code = _WORDS[trouble]
    return Declined(trouble.value, message, fix, code)
