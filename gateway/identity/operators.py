"""Who runs the gateway: one authenticator for each of the operators' scopes, and one for any operator at all."""

from collections.abc import Callable
from dataclasses import replace

from actors.node.moment import Moment
from gateway.identity.authenticator import FOR_OPERATORS, Authenticator, RouteKind
from gateway.identity.operator_rules import Minter, operator_scopes
from gateway.identity.tokens import OperatorScope, Principal, Verifier


class Operators:
    def __init__(
        self, verifier: Verifier, now: Callable[[], Moment], since_ms: int, kind: RouteKind = FOR_OPERATORS
    ) -> None:
        """`since_ms`: the moment from which on a token without scopes has none."""
        self._since_ms = since_ms
        self.any = Authenticator(verifier, now, kind)

        def scopes_of(principal: Principal, _: int) -> frozenset[str]:
            return operator_scopes(principal, since_ms)

        self._having = {
            scope: Authenticator(verifier, now, replace(kind, scopes=(scope,), scopes_of=scopes_of))
            for scope in OperatorScope
        }

    def having(self, scope: OperatorScope | None) -> Authenticator:
        """For what takes this scope; None: for what any operator may."""
        return self.any if scope is None else self._having[scope]

    def minter(self, principal: Principal) -> Minter:
        return Minter(operator_scopes(principal, self._since_ms), principal.expires_at_ms)
