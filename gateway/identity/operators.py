"""Who runs the gateway: one authenticator for each of the operators' scopes, and one for any operator at all."""

from collections.abc import Callable

from actors.node.moment import Moment
from gateway.identity.authenticator import FOR_OPERATORS, Authenticator
from gateway.identity.tokens import OperatorScope, Verifier


class Operators:
    def __init__(self, verifier: Verifier, now: Callable[[], Moment]) -> None:
        self.any = Authenticator(verifier, now, FOR_OPERATORS)
        self._having = dict.fromkeys(OperatorScope, self.any)  # until tokens carry scopes, every operator has them all

    def having(self, scope: OperatorScope) -> Authenticator:
        """For what takes this scope."""
        return self._having[scope]
