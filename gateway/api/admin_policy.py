"""Another policy for several gateways, from an operator.

POST /admin/policy/push   {"text", "expected_revision"} → {"revision", "policy", "entries"}

`revision` counts what was put, and is the one that a push may name as the one that it replaces; left out, that is the
one that holds at the gateway that is asked. `policy` is the policy's own. A gateway that is alone reads a file, and
takes none here.
"""

from typing import Annotated

import msgspec

from actors.engine.kv import NotPut
from gateway.api.about import About
from gateway.api.actions import Actions, Declined, Done, OperatorRoutes, Outcome
from gateway.api.answers import PushedPolicy
from gateway.governance.policy.shared_source import SHARED_BYTES_MAX, Pushed, SharedPolicy
from gateway.governance.policy.text import PolicyFlaw
from gateway.identity.tokens import OperatorScope, Principal
from schemas.errors import Code

PUSH_PATH = "/admin/policy/push"
PUSH_BYTES_MAX = 2 * SHARED_BYTES_MAX  # a text as JSON, with what has to be escaped
_REVISION_MAX = 2**53

_ALONE = Declined(
    "policy_file",
    "This gateway reads its policy from a file.",
    "Change the file that governance.policy names: the gateway reads it again by itself.",
)
_NOT_PUT = {
    NotPut.MOVED: Declined(
        "moved",
        "Another policy was pushed meanwhile, or this gateway has not heard of it yet.",
        "See which one holds, then push again.",
    ),
    NotPut.FULL: Declined(
        "full", "The engine has no room for it.", "Make room in NATS, then push again.", Code.INTERNAL
    ),
    NotPut.UNREACHABLE: Declined(
        "unreachable",
        "NATS did not answer: it may have been taken, or may be yet.",
        "See which policy holds, then push again.",
        Code.INTERNAL,
    ),
}


class Push(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    expected_revision: Annotated[int, msgspec.Meta(ge=0, le=_REVISION_MAX)] | None = None


class AdminPolicy:
    def __init__(self, actions: Actions, policy: SharedPolicy | None) -> None:
        """`policy`: None where it is a file's."""
        self._policy = policy
        self.routes: OperatorRoutes = {
            "/admin/policy/push": actions.action(
                "push_policy",
                OperatorScope.POLICY_WRITE,
                Push,
                self.push,
                About("Put another policy in force at several gateways.", PushedPolicy),
                PUSH_BYTES_MAX,
            )
        }

    async def push(self, request: Push, _: Principal) -> Outcome:
        if self._policy is None:
            return _ALONE
        pushed = await self._policy.push(request.text, request.expected_revision)
        match pushed:
            case PolicyFlaw():
                return Declined("flawed", f"This is no policy: {pushed.words}.", "Correct it, then push again.")
            case Pushed(revision=revision, policy=policy):
                said = {"revision": revision, "policy": policy.revision, "entries": len(policy.entries)}
                return Done(said, said)
            case _:
                return _NOT_PUT[pushed]
