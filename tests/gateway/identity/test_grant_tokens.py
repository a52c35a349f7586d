"""Tokens that name a grant: whom they are for, how long they are good, and what of theirs is good for longer."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.identity.tokens import (
    NEVER_MS,
    Issuer,
    OperatorScope,
    Principal,
    Scope,
    TokenClass,
    TokenFault,
    Verifier,
    key_id,
)

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
ISSUER = Issuer(KEY, issuer="test", audience="ours")
NOW_MS = 1_790_000_000_000
JTI, GID = "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW"
OURS = "https://gw.example/mcp"
AGENT = TokenClass.AGENT_RUNTIME


def token(**changes: Any) -> str:
    fields: dict[str, Any] = {
        "sub": "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6",
        "tenant": "acme",
        "token_class": AGENT,
        "scopes": [Scope.READ_ONLY],
        "jti": JTI,
        "now_ms": NOW_MS,
        "life_s": 600,
        "gid": GID,
        "resource": OURS,
    } | changes
    return ISSUER.mint(**fields)


def verifier(*standing: str) -> tuple[Verifier, set[str]]:
    one, grants = Verifier({key_id(KEY.public_key()): KEY.public_key()}, issuer="test", audience="ours"), set(standing)
    one.know_grants(grants, lambda resource: resource == OURS)
    return one, grants


def principal(one: Verifier, text: str, now_ms: int = NOW_MS) -> Principal:
    found = one.verify(text, AGENT, now_ms)
    assert isinstance(found, Principal), found
    return found


def test_what_it_opens_is_the_grants_and_ends_by_no_clock() -> None:
    one, _ = verifier(GID)
    found = principal(one, token())
    assert (found.credential_id, found.jti, found.expires_at_ms) == (GID, JTI, NEVER_MS)
    other = principal(one, token(jti="01ARZ3NDEKTSV4RRFFQ69G5FAX"))
    assert (other.credential_id, other.accounts) == (found.credential_id, found.accounts)


def test_token_ends_with_its_life_and_what_it_opened_does_not() -> None:
    one, _ = verifier(GID)
    text = token()
    found = principal(one, text, NOW_MS + 599_999)
    assert one.verify(text, AGENT, NOW_MS + 600_000) is TokenFault.EXPIRED
    assert one.still_good(found, NOW_MS + 600_000) is None


def test_with_its_grant_both_end_also_of_a_token_that_was_verified_before() -> None:
    one, grants = verifier(GID)
    text = token()
    found = principal(one, text)
    grants.clear()
    assert one.verify(text, AGENT, NOW_MS) is TokenFault.REVOKED
    assert one.still_good(found, NOW_MS) is TokenFault.REVOKED
    grants.add(GID)
    assert isinstance(one.verify(text, AGENT, NOW_MS), Principal)


@pytest.mark.parametrize("revoked", [JTI, GID])
def test_revocation_takes_the_tokens_id_or_the_grants(revoked: str) -> None:
    one, _ = verifier(GID)
    text = token()
    found = principal(one, text)
    one.revoke(revoked)
    assert one.verify(text, AGENT, NOW_MS) is TokenFault.REVOKED
    assert one.still_good(found, NOW_MS) is TokenFault.REVOKED


@pytest.mark.parametrize("resource", ["https://other.example/mcp", "https://gw.example/mcp/", "HTTPS://gw.example/mcp"])
def test_token_for_an_endpoint_that_is_not_ours_has_the_wrong_audience(resource: str) -> None:
    one, _ = verifier(GID)
    assert one.verify(token(resource=resource), AGENT, NOW_MS) is TokenFault.WRONG_AUDIENCE


def test_token_of_our_endpoint_alone_has_not_our_audience() -> None:
    foreign = Issuer(KEY, issuer="test", audience=OURS)
    one, _ = verifier(GID)
    text = foreign.mint(
        sub="agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6", tenant="acme", token_class=AGENT, scopes=[Scope.READ_ONLY],
        jti=JTI, now_ms=NOW_MS, life_s=600, gid=GID,
    )  # fmt: skip
    assert one.verify(text, AGENT, NOW_MS) is TokenFault.WRONG_AUDIENCE


@pytest.mark.parametrize(
    ("token_class", "sub", "scopes"),
    [
        (TokenClass.OPERATOR, "ops", [OperatorScope.FLEET_READ]),
        (TokenClass.DEVICE_RUNTIME, "01hzx3k8q2v7n4t9r6w5y1c0ba", [Scope.DEVICE_CONNECT]),
    ],
)
def test_only_agents_have_grants(token_class: TokenClass, sub: str, scopes: list[Any]) -> None:
    one, _ = verifier(GID)
    text = token(token_class=token_class, sub=sub, scopes=scopes)
    assert one.verify(text, token_class, NOW_MS) is TokenFault.BAD_CLAIMS


def test_grant_is_a_ulid() -> None:
    with pytest.raises(ValueError, match="ULID"):
        token(gid="grant-1")


def test_where_grants_are_not_ours_the_claim_means_nothing() -> None:
    one = Verifier({key_id(KEY.public_key()): KEY.public_key()}, issuer="test", audience="ours")
    found = principal(one, token(resource="https://theirs.example/mcp"))
    assert (found.credential_id, found.gid, found.expires_at_ms) == (JTI, None, NOW_MS + 600_000)
    assert one.verify(token(), AGENT, NOW_MS + 600_000) is TokenFault.EXPIRED


def test_token_without_a_grant_is_judged_as_ever() -> None:
    one, _ = verifier()
    found = principal(one, token(gid=None, resource=None))
    assert (found.credential_id, found.expires_at_ms) == (JTI, NOW_MS + 600_000)
    assert isinstance(one.verify(token(gid=None, resource="https://other.example"), AGENT, NOW_MS), Principal)


def test_token_that_was_verified_before_grants_were_known_is_judged_again() -> None:
    one = Verifier({key_id(KEY.public_key()): KEY.public_key()}, issuer="test", audience="ours")
    text = token()
    assert principal(one, text).credential_id == JTI
    one.know_grants(set(), lambda resource: resource == OURS)
    assert one.verify(text, AGENT, NOW_MS) is TokenFault.REVOKED
