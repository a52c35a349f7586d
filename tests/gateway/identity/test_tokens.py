"""Tokens: what is minted is believed, what is forged, borrowed, late or revoked is not."""

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gateway.identity.tokens import (
    TOKEN_CHARS_MAX,
    VERIFIED_TOKENS_MAX,
    Issuer,
    Principal,
    Scope,
    TokenClass,
    TokenFault,
    Verifier,
    jwks,
    key_id,
    keys_of_jwks,
)

NOW_MS = 1_790_000_000_000
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
KID = key_id(KEY.public_key())
JTI = "01HZXC0000000000000000J000"
AGENT = "agent_6f0c0d9a-1b2c-4d3e-8f90-a1b2c3d4e5f6"
NODE = "01hzx9k3m4p7q8r9s0t1v2w3xy"
ISSUER = Issuer(KEY, issuer="heliograph", audience="gateway")
SCOPES = {
    TokenClass.AGENT_RUNTIME: "tools:call:read_only",
    TokenClass.DEVICE_RUNTIME: "device:connect",
    TokenClass.OPERATOR: "fleet:read",
}
SUBJECTS = {TokenClass.AGENT_RUNTIME: AGENT, TokenClass.DEVICE_RUNTIME: NODE, TokenClass.OPERATOR: "Ada Lovelace"}


def verifier(**changes: Any) -> Verifier:
    settings: dict[str, Any] = {"issuer": "heliograph", "audience": "gateway"} | changes
    return Verifier({KID: KEY.public_key()}, **settings)


def mint(token_class: TokenClass = TokenClass.AGENT_RUNTIME, **changes: Any) -> str:
    settings: dict[str, Any] = {
        "sub": SUBJECTS[token_class],
        "tenant": "acme",
        "scopes": [SCOPES[token_class]],
        "jti": JTI,
        "now_ms": NOW_MS,
        "life_s": 60,
    } | changes
    return ISSUER.mint(token_class=token_class, **settings)


CLAIMS: dict[str, Any] = {
    "iss": "heliograph",
    "aud": "gateway",
    "sub": AGENT,
    "tenant": "acme",
    "token_class": "agent_runtime",
    "scope": "tools:call:read_only",
    "jti": JTI,
    "iat": NOW_MS // 1000,
    "exp": NOW_MS // 1000 + 60,
}


def forged(claims: dict[str, Any], *, kid: str | None = KID, key: Any = KEY, alg: str = "EdDSA") -> str:
    return jwt.encode(claims, key, algorithm=alg, headers={"kid": kid} if kid else None)


def segments(*parts: bytes) -> str:
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def unsigned(header: dict[str, Any]) -> str:
    return segments(json.dumps(header).encode(), json.dumps(CLAIMS).encode(), b"")


@pytest.mark.parametrize("token_class", list(TokenClass))
def test_each_class_is_minted_and_verified(token_class: TokenClass) -> None:
    assert verifier().verify(mint(token_class), token_class, NOW_MS) == Principal(
        sub=SUBJECTS[token_class],
        tenant="acme",
        token_class=token_class,
        scopes=frozenset({SCOPES[token_class]}),
        jti=JTI,
        not_before_ms=0,
        expires_at_ms=NOW_MS + 60_000,
        issued_at_ms=NOW_MS,
    )


@pytest.mark.parametrize("has", list(TokenClass))
@pytest.mark.parametrize("wanted", list(TokenClass))
def test_token_of_one_class_is_no_token_of_another(has: TokenClass, wanted: TokenClass) -> None:
    verdict = verifier().verify(mint(has), wanted, NOW_MS)
    assert isinstance(verdict, Principal) if has is wanted else verdict is TokenFault.WRONG_CLASS


@pytest.mark.parametrize("token", [None, ""])
def test_no_token_is_missing(token: str | None) -> None:
    assert verifier().verify(token, TokenClass.AGENT_RUNTIME, NOW_MS) is TokenFault.MISSING


def test_own_forgery_of_the_tests_would_be_believed() -> None:
    assert isinstance(verifier().verify(forged(CLAIMS), TokenClass.AGENT_RUNTIME, NOW_MS), Principal)


@pytest.mark.parametrize(
    ("token", "fault"),
    [
        (unsigned({"alg": "none"}), TokenFault.WRONG_ALGORITHM),
        (unsigned({"alg": "none", "kid": KID}), TokenFault.WRONG_ALGORITHM),
        (forged(CLAIMS, key=KEY.public_key().public_bytes_raw(), alg="HS256"), TokenFault.WRONG_ALGORITHM),
        (forged(CLAIMS, key=Ed25519PrivateKey.from_private_bytes(b"x" * 32)), TokenFault.BAD_SIGNATURE),
        (forged(CLAIMS, kid="nobody"), TokenFault.UNKNOWN_KEY),
        (forged(CLAIMS, kid=None), TokenFault.UNKNOWN_KEY),
        (forged(CLAIMS | {"iss": "evil"}), TokenFault.WRONG_ISSUER),
        (forged(CLAIMS | {"aud": "another"}), TokenFault.WRONG_AUDIENCE),
        (forged(CLAIMS | {"aud": ["another", "third"]}), TokenFault.WRONG_AUDIENCE),
        (forged(CLAIMS | {"aud": []}), TokenFault.WRONG_AUDIENCE),
        (forged(CLAIMS | {"sub": "agent_x"}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"sub": AGENT + "\n"}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"sub": NODE}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"sub": AGENT, "token_class": "device_runtime"}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"token_class": "root"}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"tenant": ""}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"tenant": "a\x1b[31m"}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"jti": "1"}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"scope": ["tools:call:read_only"]}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"scope": None}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"exp": str(NOW_MS)}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"exp": 1e300}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"exp": -1}), TokenFault.BAD_CLAIMS),
        (forged(CLAIMS | {"nbf": NOW_MS // 1000 + 1}), TokenFault.NOT_YET_VALID),
        (segments(b"[" * 2900, b"{}", b"x"), TokenFault.MALFORMED),
        (segments(b'{"alg":"EdDSA","kid":["a"]}', b"{}", b"x"), TokenFault.MALFORMED),
        (unsigned({"alg": "EdDSA", "kid": KID, "crit": ["x"]}), TokenFault.MALFORMED),
        ("a.b", TokenFault.MALFORMED),
        ("é.é.é", TokenFault.MALFORMED),
        ("\ud800", TokenFault.MALFORMED),
        (forged(CLAIMS | {"filler": "x" * TOKEN_CHARS_MAX}), TokenFault.MALFORMED),
        (forged(CLAIMS | {"iss": "heliograph.evil"}), TokenFault.WRONG_ISSUER),
        (forged(CLAIMS | {"exp": 1e13}), TokenFault.BAD_CLAIMS),
    ],
)  # fmt: skip
def test_bad_token_is_refused_with_its_fault(token: str, fault: TokenFault) -> None:
    assert verifier().verify(token, TokenClass.AGENT_RUNTIME, NOW_MS) is fault


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim != "scope"])
def test_every_claim_but_scope_is_needed(claim: str) -> None:
    token = forged({key: value for key, value in CLAIMS.items() if key != claim})
    assert verifier().verify(token, TokenClass.AGENT_RUNTIME, NOW_MS) is TokenFault.BAD_CLAIMS


def test_scope_claim_may_be_absent_or_empty_and_the_two_differ() -> None:
    absent = verifier().verify(mint(scopes=None), TokenClass.AGENT_RUNTIME, NOW_MS)
    empty = verifier().verify(mint(scopes=[]), TokenClass.AGENT_RUNTIME, NOW_MS)
    assert isinstance(absent, Principal)
    assert isinstance(empty, Principal)
    assert (absent.scopes, empty.scopes) == (None, frozenset())


def test_one_audience_of_several_suffices() -> None:
    token = forged(CLAIMS | {"aud": ["other", "gateway"]})
    assert isinstance(verifier().verify(token, TokenClass.AGENT_RUNTIME, NOW_MS), Principal)


class CountingKeys(dict[str, Any]):
    """Counts how often a signature had to be checked: each check begins by looking up its key."""

    lookups = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(key, default)


def test_token_seen_before_is_not_verified_again() -> None:
    keys = CountingKeys({KID: KEY.public_key()})
    gate = Verifier(keys, issuer="heliograph", audience="gateway")
    token = mint()
    for _ in range(5):
        assert isinstance(gate.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS), Principal)
    assert keys.lookups == 1


@pytest.mark.parametrize("seen_before", [False, True])
def test_expired_token_is_refused_seen_or_not(seen_before: bool) -> None:
    gate, token = verifier(), mint()
    if seen_before:
        gate.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS)
    assert isinstance(gate.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS + 59_999), Principal)
    assert gate.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS + 60_000) is TokenFault.EXPIRED


@pytest.mark.parametrize("token_class", list(TokenClass))
@pytest.mark.parametrize("seen_before", [False, True])
def test_revoked_token_is_refused_seen_or_not(seen_before: bool, token_class: TokenClass) -> None:
    gate, token = verifier(), mint(token_class)
    if seen_before:
        assert isinstance(gate.verify(token, token_class, NOW_MS), Principal)
    gate.revoke(JTI)
    assert gate.verify(token, token_class, NOW_MS) is TokenFault.REVOKED
    other = mint(token_class, jti="01HZXC0000000000000000J001")
    assert isinstance(gate.verify(other, token_class, NOW_MS), Principal)


def test_revocations_known_at_start_count() -> None:
    assert verifier(revoked=[JTI]).verify(mint(), TokenClass.AGENT_RUNTIME, NOW_MS) is TokenFault.REVOKED


def test_principal_that_holds_something_open_can_be_asked_about_again() -> None:
    gate = verifier()
    principal = gate.verify(mint(), TokenClass.AGENT_RUNTIME, NOW_MS)
    assert isinstance(principal, Principal)
    assert gate.still_good(principal, NOW_MS) is None
    assert gate.still_good(principal, NOW_MS + 60_000) is TokenFault.EXPIRED
    gate.revoke(principal.jti)
    assert gate.still_good(principal, NOW_MS) is TokenFault.REVOKED


def test_memory_of_verified_tokens_is_bounded() -> None:
    keys = CountingKeys({KID: KEY.public_key()})
    gate = Verifier(keys, issuer="heliograph", audience="gateway", verified_tokens_max=2)
    first, second, third = (mint(jti=f"01HZXC0000000000000000J00{n}") for n in range(3))
    for token in (first, second, third, third, second, first):
        assert isinstance(gate.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS), Principal)
    assert keys.lookups == 4  # the oldest was forgotten, and verified again


@given(st.text())
def test_any_text_is_refused_without_an_exception(text: str) -> None:
    assert isinstance(verifier().verify(text, TokenClass.AGENT_RUNTIME, NOW_MS), TokenFault)


@given(header=st.binary(max_size=80), payload=st.binary(max_size=80), signature=st.binary(max_size=80))
def test_any_three_segments_are_refused_without_an_exception(header: bytes, payload: bytes, signature: bytes) -> None:
    token = segments(header, payload, signature)
    assert isinstance(verifier().verify(token, TokenClass.AGENT_RUNTIME, NOW_MS), TokenFault)


@given(
    st.dictionaries(st.sampled_from(sorted(CLAIMS)), st.none() | st.integers() | st.text() | st.floats(allow_nan=False))
)
def test_signed_claims_of_any_value_are_judged_without_an_exception(changes: dict[str, Any]) -> None:
    verdict = verifier().verify(segments_signed(CLAIMS | changes), TokenClass.AGENT_RUNTIME, NOW_MS)
    assert isinstance(verdict, Principal | TokenFault)


def segments_signed(claims: dict[str, Any]) -> str:
    head = segments(json.dumps({"alg": "EdDSA", "kid": KID}).encode(), json.dumps(claims).encode())
    return head + "." + segments(KEY.sign(head.encode()))


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": NODE},
        {"tenant": ""},
        {"tenant": "x" * 65},
        {"jti": "x"},
        {"life_s": 0},
        {"life_s": 10**14},
        {"scopes": ["openid"]},
        {"scopes": ["tools:call:read_only device:connect"]},
    ],
)
def test_issuer_mints_nothing_that_would_be_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # each says it in its own words
        mint(**changes)


@pytest.mark.parametrize("sub", ["x" * 129, "x" * 3000, ""])
def test_sub_of_an_operator_is_bounded_as_a_whole(sub: str) -> None:
    with pytest.raises(ValueError, match="sub"):
        mint(TokenClass.OPERATOR, sub=sub)


@pytest.mark.parametrize("sub", [f"x{AGENT}", f"{AGENT}x", f"{AGENT}\n"])
def test_sub_of_an_agent_is_nothing_but_its_id(sub: str) -> None:
    assert verifier().verify(forged(CLAIMS | {"sub": sub}), TokenClass.AGENT_RUNTIME, NOW_MS) is TokenFault.BAD_CLAIMS


def test_token_is_valid_from_the_second_that_it_names() -> None:
    gate, token = verifier(), forged(CLAIMS | {"nbf": NOW_MS // 1000 + 1})
    assert gate.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS + 999) is TokenFault.NOT_YET_VALID
    assert isinstance(gate.verify(token, TokenClass.AGENT_RUNTIME, NOW_MS + 1000), Principal)


def test_scopes_are_separated_by_spaces_and_nothing_else() -> None:
    token = forged(CLAIMS | {"scope": "tools:call:read_only\u2003device:connect"})
    principal = verifier().verify(token, TokenClass.AGENT_RUNTIME, NOW_MS)
    assert isinstance(principal, Principal)
    assert principal.scopes is not None
    assert not principal.scopes & set(Scope)


def test_limits_of_tokens() -> None:
    assert (TOKEN_CHARS_MAX, VERIFIED_TOKENS_MAX) == (4096, 10_000)


def test_published_keys_verify_what_was_minted() -> None:
    document = jwks([KEY.public_key()])
    assert document["keys"][0] | {"x": ""} == {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": "",
        "kid": KID,
        "alg": "EdDSA",
        "use": "sig",
    }
    gate = Verifier(keys_of_jwks(document), issuer="heliograph", audience="gateway")
    assert isinstance(gate.verify(mint(), TokenClass.AGENT_RUNTIME, NOW_MS), Principal)


def test_foreign_keys_of_a_jwks_are_passed_over_and_none_left_is_an_error() -> None:
    rsa = {"kty": "RSA", "kid": "r", "n": "AQAB", "e": "AQAB"}
    document = jwks([KEY.public_key()])
    assert set(keys_of_jwks({"keys": [rsa, *document["keys"]]})) == {KID}
    enc = document["keys"][0] | {"use": "enc"}
    ed448 = document["keys"][0] | {"crv": "Ed448"}
    for foreign in (rsa, enc, ed448):
        with pytest.raises(ValueError, match="no Ed25519 key"):
            keys_of_jwks({"keys": [foreign]})


OKP = {"kty": "OKP", "crv": "Ed25519", "kid": "a"}


@pytest.mark.parametrize("keys", [None, [1], [OKP], [OKP | {"x": 1}], [OKP | {"x": "AA"}]])
def test_document_that_is_no_jwks_is_one_error(keys: Any) -> None:
    with pytest.raises(ValueError, match="no JWKS"):
        keys_of_jwks({"keys": keys})


def test_key_id_is_the_thumbprint_of_rfc_7638() -> None:
    # RFC 8037 appendix A.3
    x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
    keys = keys_of_jwks({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "any", "x": x}]})
    assert key_id(keys["any"]) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@pytest.mark.parametrize(
    ("token_class", "scopes"),
    [
        (TokenClass.AGENT_RUNTIME, ["fleet:read"]),
        (TokenClass.DEVICE_RUNTIME, ["device:connect", "tokens:mint"]),
        (TokenClass.OPERATOR, ["tools:call:read_only"]),
        (TokenClass.OPERATOR, ["fleet:read", "device:connect"]),
        (TokenClass.OPERATOR, []),
        (TokenClass.OPERATOR, None),
    ],
)
def test_scopes_of_another_class_and_operators_without_any_are_not_signed(
    token_class: TokenClass, scopes: list[str] | None
) -> None:
    with pytest.raises(ValueError, match="scope"):
        mint(token_class, scopes=scopes)
