"""Pushing a policy: what an operator is told, for each way that it can end."""

from typing import Any

import pytest
import trio

from actors.engine.kv import NotPut
from gateway.api.actions import Actions, Declined, Done
from gateway.api.admin_policy import PUSH_PATH, AdminPolicy, Push
from gateway.calls.audit import Audit
from gateway.governance.policy.policy import DEFAULT
from gateway.governance.policy.shared_source import Pushed, SharedPolicy
from gateway.governance.policy.text import PolicyFlaw
from gateway.identity.operators import Operators
from gateway.identity.tokens import OperatorScope, Principal, TokenClass, Verifier
from schemas.errors import Code
from tests.actors.engine.processes import Several
from tests.actors.node.harness import now

ADA = Principal("ada", "operators", TokenClass.OPERATOR, frozenset({"policy:write"}), "J", 0, 2**53)


class FakePolicy(SharedPolicy):
    def __init__(self, answer: Pushed | PolicyFlaw | NotPut) -> None:
        super().__init__(Several().process("P").facts)
        self.answer = answer
        self.asked: list[tuple[str, int | None]] = []

    async def push(self, text: str, expected: int | None = None) -> Pushed | PolicyFlaw | NotPut:
        await trio.lowlevel.checkpoint()
        self.asked.append((text, expected))
        return self.answer


def admin_of(policy: SharedPolicy | None) -> AdminPolicy:
    verifier = Verifier({}, issuer="", audience="")
    return AdminPolicy(Actions(Operators(verifier, now, 0), Audit(now), now), policy)


async def pushed(policy: SharedPolicy | None, **request: Any) -> Done | Declined:
    return await admin_of(policy).push(Push(**request), ADA)


def test_the_route_takes_the_scope_of_policies() -> None:
    route = admin_of(None).routes[PUSH_PATH]
    assert (route.method, route.scope) == ("POST", OperatorScope.POLICY_WRITE)


async def test_what_was_pushed_is_told_with_its_revision() -> None:
    policy = FakePolicy(Pushed(7, DEFAULT))
    done = await pushed(policy, text="x", expected_revision=6)
    assert isinstance(done, Done)
    assert done.answer == done.target == {"revision": 7, "policy": DEFAULT.revision, "entries": 1}
    assert policy.asked == [("x", 6)]


@pytest.mark.parametrize(
    ("answer", "reason", "code"),
    [
        (PolicyFlaw(3, "it is broken", "mend it"), "flawed", Code.MANIFEST_INVALID),
        (NotPut.MOVED, "moved", Code.MANIFEST_INVALID),
        (NotPut.FULL, "full", Code.INTERNAL),
        (NotPut.UNREACHABLE, "unreachable", Code.INTERNAL),
    ],
)
async def test_why_it_was_not_taken_is_told(answer: PolicyFlaw | NotPut, reason: str, code: Code) -> None:
    declined = await pushed(FakePolicy(answer), text="x")
    assert isinstance(declined, Declined)
    assert (declined.reason, declined.code) == (reason, code)


async def test_a_gateway_that_is_alone_says_where_its_policy_is() -> None:
    declined = await pushed(None, text="x")
    assert isinstance(declined, Declined)
    assert declined.reason == "policy_file"
