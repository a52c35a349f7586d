"""What operators may do and mint, at every border of the rules."""

from dataclasses import replace

import pytest

from gateway.identity.operator_rules import ALL_SCOPES, Minter, MintRefused, judge_link, judge_mint, operator_scopes
from gateway.identity.tokens import OperatorScope, Principal, Scope, TokenClass
from schemas.errors import Code

SINCE_MS = 1_790_000_000_400  # within a second, as a start is
OF_THAT_SECOND_MS = 1_790_000_000_000
OPERATOR = Principal("ada", "operators", TokenClass.OPERATOR, frozenset(), "J", 0, 2**50, OF_THAT_SECOND_MS)
READ, WRITE, MINT = OperatorScope.FLEET_READ, OperatorScope.FLEET_WRITE, OperatorScope.TOKENS_MINT


@pytest.mark.parametrize("scopes", [None, frozenset()])
@pytest.mark.parametrize(
    ("issued_at_ms", "has"),
    [
        (0, ALL_SCOPES),
        (OF_THAT_SECOND_MS - 1000, ALL_SCOPES),
        (OF_THAT_SECOND_MS, ALL_SCOPES),  # minted in the same second, before the first start
        (OF_THAT_SECOND_MS + 1000, frozenset()),
        (2**53, frozenset()),
    ],
)
def test_operator_without_scopes_has_all_if_the_token_is_old_and_none_if_it_is_new(
    scopes: frozenset[str] | None, issued_at_ms: int, has: frozenset[OperatorScope]
) -> None:
    principal = replace(OPERATOR, scopes=scopes, issued_at_ms=issued_at_ms)
    assert operator_scopes(principal, SINCE_MS) == has


def test_old_token_in_a_folder_that_has_recorded_no_moment_has_no_scopes() -> None:
    assert operator_scopes(OPERATOR, 0) == frozenset()


@pytest.mark.parametrize("issued_at_ms", [0, 2**53])
def test_scopes_that_a_token_names_are_all_it_has_however_old_it_is(issued_at_ms: int) -> None:
    named = replace(OPERATOR, scopes=frozenset({"fleet:read", "tools:call:read_only", "x"}), issued_at_ms=issued_at_ms)
    assert operator_scopes(named, SINCE_MS) == {READ}
    assert operator_scopes(replace(named, scopes=frozenset(Scope)), SINCE_MS) == frozenset()


@pytest.mark.parametrize("token_class", [TokenClass.AGENT_RUNTIME, TokenClass.DEVICE_RUNTIME])
@pytest.mark.parametrize("scopes", [None, frozenset(), frozenset(OperatorScope)])
def test_operators_scopes_give_other_classes_nothing(token_class: TokenClass, scopes: frozenset[str] | None) -> None:
    principal = replace(OPERATOR, token_class=token_class, scopes=scopes, issued_at_ms=0)
    assert operator_scopes(principal, SINCE_MS) == frozenset()


# ---- minting --------------------------------------------------------------------------------------------------------

ENDS_MS = 1_790_000_100_000
OF_ALL = Minter(ALL_SCOPES, ENDS_MS)
WORDS = {
    TokenClass.AGENT_RUNTIME: ["tools:call:read_only"],
    TokenClass.DEVICE_RUNTIME: ["device:connect"],
    TokenClass.OPERATOR: ["fleet:read"],
}


@pytest.mark.parametrize("minter", [OF_ALL, None])
@pytest.mark.parametrize("token_class", list(TokenClass))
def test_each_class_gets_scopes_of_its_own(token_class: TokenClass, minter: Minter | None) -> None:
    assert judge_mint(token_class, WORDS[token_class], ENDS_MS, minter) == WORDS[token_class]


@pytest.mark.parametrize("minter", [OF_ALL, None])
@pytest.mark.parametrize(
    ("token_class", "words"),
    [
        (TokenClass.AGENT_RUNTIME, ["fleet:read"]),
        (TokenClass.AGENT_RUNTIME, ["tools:call:read_only", "fleet:read"]),
        (TokenClass.DEVICE_RUNTIME, ["device:connect", "tokens:mint"]),
        (TokenClass.OPERATOR, ["tools:call:read_only"]),
        (TokenClass.OPERATOR, ["fleet:read", "device:connect"]),
        (TokenClass.OPERATOR, ["MARK"]),
        (TokenClass.OPERATOR, [""]),
        (TokenClass.OPERATOR, []),
    ],
)
def test_scopes_of_another_class_and_operators_without_any_are_refused_with_the_list(
    token_class: TokenClass, words: list[str], minter: Minter | None
) -> None:
    refused = judge_mint(token_class, words, 0, minter)
    assert isinstance(refused, MintRefused)
    assert (refused.reason, refused.code) == ("scopes", Code.MANIFEST_INVALID)
    assert WORDS[token_class][0] in refused.suggested_fix
    assert "MARK" not in str(refused)


@pytest.mark.parametrize("token_class", [TokenClass.AGENT_RUNTIME, TokenClass.DEVICE_RUNTIME])
def test_agents_and_devices_may_have_no_scopes(token_class: TokenClass) -> None:
    assert judge_mint(token_class, [], 0, OF_ALL) == []


@pytest.mark.parametrize("lacking", list(OperatorScope))
def test_operator_gives_no_scope_that_it_lacks(lacking: OperatorScope) -> None:
    minter = Minter(ALL_SCOPES - {lacking}, ENDS_MS)
    refused = judge_mint(TokenClass.OPERATOR, list(OperatorScope), ENDS_MS, minter)
    assert isinstance(refused, MintRefused)
    assert (refused.reason, refused.code) == ("escalation", Code.SAFETY_DENIED)
    assert refused.message.endswith(f": {lacking}.")


@pytest.mark.parametrize(
    ("token_class", "has", "may"),
    [
        (TokenClass.OPERATOR, {MINT}, False),  # of fleet:read
        (TokenClass.OPERATOR, {MINT, READ}, True),
        (TokenClass.OPERATOR, {READ, WRITE}, False),  # without tokens:mint nobody mints
        (TokenClass.AGENT_RUNTIME, {MINT}, True),
        (TokenClass.AGENT_RUNTIME, ALL_SCOPES - {MINT}, False),
        (TokenClass.DEVICE_RUNTIME, {MINT}, False),  # it would renew a node
        (TokenClass.DEVICE_RUNTIME, {MINT, WRITE}, True),
    ],
)
def test_what_a_minter_needs(token_class: TokenClass, has: set[OperatorScope], may: bool) -> None:
    judged = judge_mint(token_class, WORDS[token_class], ENDS_MS, Minter(frozenset(has), ENDS_MS))
    assert isinstance(judged, MintRefused) is not may


@pytest.mark.parametrize("token_class", list(TokenClass))
def test_only_an_operator_token_may_not_outlive_the_one_that_mints_it(token_class: TokenClass) -> None:
    judged = judge_mint(token_class, WORDS[token_class], ENDS_MS + 1000, OF_ALL)
    if token_class is TokenClass.OPERATOR:
        assert isinstance(judged, MintRefused)
        assert (judged.reason, judged.code) == ("outlives", Code.SAFETY_DENIED)
    else:
        assert judged == WORDS[token_class]
    assert judge_mint(token_class, WORDS[token_class], ENDS_MS + 1000, None) == WORDS[token_class]


# ---- links to the console --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "has", "given"),
    [
        (None, {READ, WRITE}, {READ, WRITE}),
        (None, set(), set()),
        (["fleet:read"], {READ, WRITE}, {READ}),
        (["fleet:read", "fleet:read"], {READ}, {READ}),
        (list(OperatorScope), ALL_SCOPES, ALL_SCOPES),
    ],
)
def test_link_gives_scopes_that_its_maker_has(
    words: list[str] | None, has: set[OperatorScope], given: set[OperatorScope]
) -> None:
    assert judge_link(words, frozenset(has)) == frozenset(given)


@pytest.mark.parametrize(
    ("words", "reason", "code"),
    [
        ([], "scopes", Code.MANIFEST_INVALID),
        (["fleet:fly"], "scopes", Code.MANIFEST_INVALID),
        (["fleet:read", "tools:call:read_only"], "scopes", Code.MANIFEST_INVALID),
        (["fleet:read", "tokens:mint"], "escalation", Code.SAFETY_DENIED),
    ],
)
def test_link_gives_no_other_scopes(words: list[str], reason: str, code: Code) -> None:
    refused = judge_link(words, frozenset({READ, WRITE}))
    assert isinstance(refused, MintRefused)
    assert (refused.reason, refused.code) == (reason, code)
