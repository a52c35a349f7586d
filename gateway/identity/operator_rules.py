"""What an operator token may do, and what it may mint: pure, with every moment handed in.

Before operators had scopes, their tokens had none and could do everything. Such a token keeps that if it was issued
before the data folder met this rule; one that is issued later has the scopes that it names, and no others.
"""

from collections.abc import Collection
from dataclasses import dataclass

from gateway.identity.tokens import SCOPES_OF_CLASS, AnyScope, OperatorScope, Principal, TokenClass
from schemas.errors import Code

ALL_SCOPES = frozenset(OperatorScope)


def operator_scopes(principal: Principal, since_ms: int) -> frozenset[OperatorScope]:
    """Those that count. `since_ms`: the moment from which on a token without scopes has none.

    To the second, because `iat` knows no less: a token of the very second of that moment is an old one, for nobody
    mints an operator token without scopes after it.
    """
    if principal.token_class is not TokenClass.OPERATOR:
        return frozenset()
    if not principal.scopes:
        return ALL_SCOPES if principal.issued_at_ms // 1000 <= since_ms // 1000 else frozenset()
    return ALL_SCOPES & principal.scopes


@dataclass(frozen=True, slots=True)
class Minter:
    """The operator who asks for a token to be minted."""

    scopes: frozenset[OperatorScope]
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class MintRefused:
    reason: str  # for the audit
    message: str
    suggested_fix: str
    code: Code


def judge_link(words: Collection[str] | None, has: frozenset[OperatorScope]) -> frozenset[OperatorScope] | MintRefused:
    """The scopes that a link to the console gives, if it may: of those that its maker `has`; None: all of them."""
    if words is None:
        return has
    scopes = frozenset(scope for scope in OperatorScope if scope in words)
    if len(scopes) < len(set(words)) or not scopes:
        return MintRefused(
            "scopes",
            "A scope is not one of an operator, or there is none.",
            f"Choose from these: {', '.join(sorted(OperatorScope))}.",
            Code.MANIFEST_INVALID,
        )
    lacking = ", ".join(sorted(scopes - has))
    if lacking:
        return MintRefused(
            "escalation",
            f"The token that asks lacks what the link would give: {lacking}.",
            "Ask for fewer scopes, or let an operator who has these make the link.",
            Code.SAFETY_DENIED,
        )
    return scopes


def needed_to_mint(token_class: TokenClass, scopes: Collection[AnyScope]) -> frozenset[OperatorScope]:
    """What a minter needs: of an operator token every scope that it gets; of a node's token the right to renew nodes,
    which is what such a token does."""
    needed = {OperatorScope.TOKENS_MINT} | ALL_SCOPES.intersection(scopes)
    return frozenset(needed | {OperatorScope.FLEET_WRITE} if token_class is TokenClass.DEVICE_RUNTIME else needed)


def judge_mint(
    token_class: TokenClass, words: Collection[str], ends_at_ms: int, minter: Minter | None
) -> list[AnyScope] | MintRefused:
    """The scopes that a new token gets, if it may be minted. `minter` None: somebody who has the data folder, and with
    it the key that signs tokens; they have every scope, and keep to the same forms."""
    offered = sorted(SCOPES_OF_CLASS[token_class])
    listed = ", ".join(offered)
    scopes = [scope for scope in offered if scope in words]
    if len(scopes) < len(set(words)):
        return MintRefused(
            "scopes",
            f"A scope is not one of a token of class {token_class}.",
            f"Choose from these: {listed}.",
            Code.MANIFEST_INVALID,
        )
    if token_class is TokenClass.OPERATOR and not scopes:
        return MintRefused(
            "scopes",
            "A token of class operator needs at least one scope.",
            f"Choose from these: {listed}.",
            Code.MANIFEST_INVALID,
        )
    if minter is None:
        return scopes
    lacking = ", ".join(sorted(needed_to_mint(token_class, scopes) - minter.scopes))
    if lacking:
        return MintRefused(
            "escalation",
            f"The token that asks lacks what this one would have or needs: {lacking}.",
            "Ask for fewer scopes, or let an operator who has these mint it.",
            Code.SAFETY_DENIED,
        )
    if token_class is TokenClass.OPERATOR and ends_at_ms > minter.expires_at_ms:
        return MintRefused(
            "outlives",
            "An operator token may not outlive the one that mints it.",
            "Ask for a shorter life_s, or let somebody with access to the data folder mint it.",
            Code.SAFETY_DENIED,
        )
    return scopes
