"""The safety matrix, tenants, and phase A on both sides of its date."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway.identity.scopes import PHASE_A_END_MS, Denied, authorize, may_connect, needed_scope, scopes_of
from gateway.identity.tokens import Principal, Scope, TokenClass
from schemas.contract import contract
from schemas.errors import Code, envelope
from schemas.projection import Tool, project
from tests.schemas.examples import MANIFEST, NODE_ID

NOW_MS = 1_790_000_000_000
SNAPSHOT, SUBSCRIBE, ECHO = project(MANIFEST)


def principal(*scopes: str, tenant: str = "acme", sub: str = "x") -> Principal:
    return Principal(sub, tenant, TokenClass.AGENT_RUNTIME, frozenset(scopes), "j", 0, NOW_MS * 2)


def scopeless(token_class: TokenClass = TokenClass.AGENT_RUNTIME) -> Principal:
    return Principal(NODE_ID, "acme", token_class, None, "j", 0, NOW_MS * 2)


@pytest.mark.parametrize(
    ("safety_class", "verb", "scope"),
    [
        ("read_only", "invoke", Scope.READ_ONLY),
        ("read_only", "snapshot", Scope.READ_ONLY),
        ("read_only", "subscribe", Scope.READ_ONLY),
        ("reversible", "set", Scope.REVERSIBLE),
        ("reversible", "subscribe", None),
        ("physical_actuation", "invoke", None),
        ("physical_actuation", "subscribe", None),
        ("made_up", "invoke", None),
    ],
)
def test_safety_matrix(safety_class: str, verb: str, scope: Scope | None) -> None:
    assert needed_scope(safety_class, verb) is scope


@pytest.mark.parametrize("tool", [SNAPSHOT, SUBSCRIBE, ECHO], ids=lambda tool: tool.target.verb)
def test_right_scope_and_tenant_may_call(tool: Tool) -> None:
    assert authorize(principal(Scope.READ_ONLY), tool, "acme", NOW_MS) is None


@pytest.mark.parametrize(
    "scopes", [(), (Scope.REVERSIBLE,), (Scope.PHYSICAL_ACTUATION, Scope.DEVICE_CONNECT), ("openid",)]
)
def test_other_scopes_do_not_open_a_read_only_tool(scopes: tuple[str, ...]) -> None:
    denied = authorize(principal(*scopes), ECHO, "acme", NOW_MS)
    assert isinstance(denied, Denied)
    assert denied.scope is Scope.READ_ONLY
    assert "tools:call:read_only" in denied.suggested_fix


def test_physical_actuation_is_denied_to_every_token() -> None:
    denied = authorize(principal(*Scope), replace(ECHO, safety_class="physical_actuation"), "acme", NOW_MS)
    assert isinstance(denied, Denied)
    assert denied.scope is None


def test_tenants_are_compared_to_the_letter() -> None:
    assert authorize(principal(Scope.READ_ONLY, tenant="ACME"), ECHO, "acme", NOW_MS) is not None


def test_scope_is_checked_before_tenant() -> None:
    without, with_scope = (
        authorize(principal(*scopes, tenant="globex"), ECHO, "acme", NOW_MS) for scopes in ((), Scope)
    )
    assert without is not None
    assert without.scope is Scope.READ_ONLY
    assert with_scope is not None
    assert "tenant" in with_scope.message


def test_texts_of_a_denial_fit_the_envelope_as_they_are() -> None:
    for denied in (
        authorize(principal(), ECHO, "acme", NOW_MS),
        authorize(principal(*Scope), ECHO, "globex", NOW_MS),
        authorize(principal(*Scope), replace(ECHO, safety_class="physical_actuation"), "acme", NOW_MS),
    ):
        assert denied is not None
        error = envelope(Code.SAFETY_DENIED, denied.message, denied.suggested_fix)
        assert contract("error@1.0.0").is_valid(error)
        assert (error["message"], error["suggested_fix"]) == (denied.message, denied.suggested_fix)


def test_phase_a_ends_with_the_28th_of_april_2026() -> None:
    assert datetime(2026, 4, 29, tzinfo=UTC).timestamp() * 1000 == PHASE_A_END_MS
    assert scopes_of(scopeless(), PHASE_A_END_MS - 1) == {Scope.READ_ONLY}
    assert scopes_of(scopeless(), PHASE_A_END_MS) == frozenset()
    assert authorize(scopeless(), SUBSCRIBE, "acme", PHASE_A_END_MS - 1) is None
    assert authorize(scopeless(), SUBSCRIBE, "acme", PHASE_A_END_MS) is not None


def test_phase_a_is_for_tokens_without_the_claim_not_for_empty_ones() -> None:
    assert scopes_of(principal(), PHASE_A_END_MS - 1) == frozenset()


def test_phase_a_lets_no_device_connect() -> None:
    assert not may_connect(scopeless(TokenClass.DEVICE_RUNTIME), NODE_ID, PHASE_A_END_MS - 1)


@pytest.mark.parametrize(
    ("scopes", "sub", "may"),
    [
        ((Scope.DEVICE_CONNECT,), NODE_ID, True),
        ((Scope.READ_ONLY,), NODE_ID, False),
        ((Scope.DEVICE_CONNECT,), NODE_ID[:-1] + "z", False),
    ],
)
def test_device_connects_with_its_scope_and_as_itself(scopes: tuple[str, ...], sub: str, may: bool) -> None:
    assert may_connect(principal(*scopes, sub=sub), NODE_ID, NOW_MS) is may
