"""Tokens: JWTs signed with Ed25519 (RFC-0003). Mint, verify, revoke; nothing here reads a clock or a file.

A token that has been verified once is remembered, so that the next use costs a dictionary lookup; expiry and
revocation are checked on every use all the same.

A token from OAuth names its grant, `gid`. What it opens belongs to the grant: it outlives the token, and ends when
whoever keeps grants says so. Where there are no grants of ours (tokens from elsewhere), the claim means nothing.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from schemas.certificates import TENANT_CHARS_MAX
from schemas.ecma import compile_ecma
from schemas.registry import REGISTRY

ALGORITHM = "EdDSA"
TOKEN_CHARS_MAX: int = REGISTRY["node.wire.auth@2.2.0"].document["properties"]["token"]["maxLength"]
VERIFIED_TOKENS_MAX = 10_000  # more in use: the one verified longest ago is verified again
NEVER_MS = 2**53  # no clock says when

_ULID = compile_ecma(REGISTRY["node.wire.envelope@2.2.0"].document["properties"]["msg_id"]["pattern"])
_NODE_ID = compile_ecma(REGISTRY["manifest@1.0.0"].document["properties"]["node_id"]["pattern"])


class TokenClass(StrEnum):
    AGENT_RUNTIME = "agent_runtime"
    DEVICE_RUNTIME = "device_runtime"
    OPERATOR = "operator"


class Scope(StrEnum):
    """Closed (RFC-0003 §4). Other words in a token's `scope` grant nothing."""

    READ_ONLY = "tools:call:read_only"
    REVERSIBLE = "tools:call:reversible"
    PHYSICAL_ACTUATION = "tools:call:physical_actuation"
    DEVICE_CONNECT = "device:connect"


class OperatorScope(StrEnum):
    """Closed too, and ours: for the class `operator` alone, as those of RFC-0003 are for agents and devices alone."""

    FLEET_READ = "fleet:read"  # nodes, log, metrics, audit
    FLEET_WRITE = "fleet:write"  # enroll, name, tag, renew, revoke, forget nodes
    TOKENS_MINT = "tokens:mint"  # mint and revoke tokens
    POLICY_WRITE = "policy:write"
    SPEND_READ = "spend:read"  # ledgers


AnyScope: TypeAlias = Scope | OperatorScope
SCOPES_OF_CLASS: Mapping[TokenClass, frozenset[AnyScope]] = {
    TokenClass.AGENT_RUNTIME: frozenset(Scope),
    TokenClass.DEVICE_RUNTIME: frozenset(Scope),
    TokenClass.OPERATOR: frozenset(OperatorScope),
}

AGENT_ID = re.compile(r"agent_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_SUBJECT_OF_CLASS = {
    TokenClass.AGENT_RUNTIME: AGENT_ID,
    TokenClass.DEVICE_RUNTIME: _NODE_ID,
    TokenClass.OPERATOR: re.compile(r"[ -~]{1,128}\Z"),
}
TENANT = re.compile(rf"[ -~]{{1,{TENANT_CHARS_MAX}}}\Z")


class TokenFault(StrEnum):
    """Why a token was refused: for the audit line. The caller is told only that it needs a valid one."""

    MISSING = "missing"
    MALFORMED = "malformed"
    WRONG_ALGORITHM = "wrong_algorithm"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    BAD_CLAIMS = "bad_claims"
    WRONG_ISSUER = "wrong_issuer"
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_CLASS = "wrong_class"
    NOT_YET_VALID = "not_yet_valid"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNKNOWN = "unknown"  # looked up, not signed, and nobody has it


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a token speaks for."""

    sub: str
    tenant: str
    token_class: TokenClass
    scopes: frozenset[str] | None  # None: the token has no `scope` claim
    jti: str
    not_before_ms: int
    expires_at_ms: int
    issued_at_ms: int = NEVER_MS  # what has no date is not old
    gid: str | None = None  # the grant that the token is of
    token_expires_at_ms: int = NEVER_MS  # of such a token, whose `expires_at_ms` is for what it opened: never

    @property
    def credential_id(self) -> str:
        """What it opens belongs to the token, or to its grant, of which there will be others."""
        return self.gid or self.jti

    @property
    def accounts(self) -> tuple[tuple[str, str]]:
        """What it opens is counted by the agent."""
        return ((self.tenant, self.sub),)


_Seconds = Annotated[float, msgspec.Meta(ge=0, le=2**53 / 1000)]  # as milliseconds still exact


class _Claims(msgspec.Struct, frozen=True):
    iss: str
    aud: str | list[str]
    sub: str
    tenant: str
    token_class: TokenClass
    jti: str
    iat: _Seconds
    exp: _Seconds
    nbf: _Seconds = 0
    scope: str | msgspec.UnsetType = msgspec.UNSET
    gid: str | msgspec.UnsetType = msgspec.UNSET


# ---- keys ----------------------------------------------------------------------------------------------------------


def _jwk(public_key: Ed25519PublicKey) -> dict[str, str]:
    return {"crv": "Ed25519", "kty": "OKP", "x": jwt.utils.base64url_encode(public_key.public_bytes_raw()).decode()}


def key_id(public_key: Ed25519PublicKey) -> str:
    """The key's RFC 7638 thumbprint."""
    form = json.dumps(_jwk(public_key), sort_keys=True, separators=(",", ":")).encode()
    return jwt.utils.base64url_encode(hashlib.sha256(form).digest()).decode()


def jwks(public_keys: Iterable[Ed25519PublicKey]) -> dict[str, list[dict[str, str]]]:
    """The document of `/.well-known/jwks.json`."""
    return jwks_of({key_id(key): key for key in public_keys})


def jwks_of(public_keys: Mapping[str, Ed25519PublicKey]) -> dict[str, list[dict[str, str]]]:
    """The same of keys that have their `kid` from elsewhere."""
    return {"keys": [_jwk(key) | {"kid": kid, "alg": ALGORITHM, "use": "sig"} for kid, key in public_keys.items()]}


def keys_of_jwks(document: Mapping[str, Any]) -> dict[str, Ed25519PublicKey]:
    """The Ed25519 keys of a deployment's own JWKS, by `kid`; keys of other types are not ours to use."""
    try:
        keys = {
            str(jwk["kid"]): Ed25519PublicKey.from_public_bytes(jwt.utils.base64url_decode(jwk["x"]))
            for jwk in document["keys"]
            if (jwk.get("kty"), jwk.get("crv"), jwk.get("use", "sig")) == ("OKP", "Ed25519", "sig") and "kid" in jwk
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError("this is no JWKS: it needs a list `keys` of objects, each Ed25519 key with its `x`") from error
    if not keys:
        raise ValueError("the JWKS has no Ed25519 key with a kid: add one with kty OKP and crv Ed25519")
    return keys


# ---- mint ----------------------------------------------------------------------------------------------------------


class Issuer:
    def __init__(self, key: Ed25519PrivateKey, *, issuer: str, audience: str) -> None:
        self._key = key
        self._kid = key_id(key.public_key())
        self._issuer = issuer
        self._audience = audience

    def mint(
        self,
        *,
        sub: str,
        tenant: str,
        token_class: TokenClass,
        scopes: Collection[AnyScope] | None,
        jti: str,
        now_ms: int,
        life_s: int,
        gid: str | None = None,
        resource: str | None = None,
    ) -> str:
        """A signed token. `scopes=None` leaves the claim out. What no verifier would take is refused here, and so are
        scopes that grant a class nothing, and an operator without any. `resource` is an audience beside ours."""
        if not _SUBJECT_OF_CLASS[token_class].match(sub):
            raise ValueError(f"this sub is not one that a token of class {token_class} has")
        if not TENANT.match(tenant) or not _ULID.search(jti) or not _ULID.search(gid or jti) or life_s <= 0:
            raise ValueError("a token needs a tenant of 1 to 64 printable characters, a ULID as jti and a life")
        if not SCOPES_OF_CLASS[token_class].issuperset(scopes or ()):
            raise ValueError(f"a scope is not one of a token of class {token_class}")
        if token_class is TokenClass.OPERATOR and not scopes:
            raise ValueError("an operator token needs a scope")
        claims: dict[str, object] = {
            "iss": self._issuer,
            "aud": self._audience if resource is None else [resource, self._audience],
            "sub": sub,
            "tenant": tenant,
            "token_class": token_class.value,
            "jti": jti,
            "iat": now_ms // 1000,
            "exp": now_ms // 1000 + life_s,
        }
        if scopes is not None:
            claims["scope"] = " ".join(sorted(scopes))
        if gid is not None:
            claims["gid"] = gid
        try:
            msgspec.convert(claims, _Claims)
        except msgspec.ValidationError:
            raise ValueError("a token cannot live that long") from None
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"kid": self._kid})


# ---- verify --------------------------------------------------------------------------------------------------------


class Verifier:
    def __init__(
        self,
        keys: Mapping[str, Ed25519PublicKey],
        *,
        issuer: str,
        audience: str,
        revoked: Iterable[str] = (),
        verified_tokens_max: int = VERIFIED_TOKENS_MAX,
    ) -> None:
        self.keys = keys
        self._issuer = issuer
        self._audience = audience
        self._revoked = set(revoked)
        self._verified: dict[str, Principal] = {}
        self._verified_tokens_max = verified_tokens_max
        self._grants: Container[str] | None = None
        self._is_our_resource: Callable[[str], bool] = lambda _: False

    def know_grants(self, standing: Container[str], is_our_resource: Callable[[str], bool]) -> None:
        """From here on the grants of tokens are ours: one that is not among these has ended, and a token of a grant is
        for us alone if every resource that it names is ours."""
        self._grants = standing
        self._verified.clear()
        self._is_our_resource = is_our_resource

    def adopt(self, keys: Mapping[str, Ed25519PublicKey]) -> None:
        """From here on these keys count, and no others: what was verified by one that is gone is not remembered."""
        self.keys = keys
        self._verified.clear()

    def revoke(self, token_id: str) -> None:
        """From here on every token with this `jti` or `gid` is refused. The set grows with what operators revoke, and
        only so."""
        self._revoked.add(token_id)

    def is_revoked(self, token_id: str) -> bool:
        return token_id in self._revoked

    def ends_at_ms(self, jti: str) -> int | None:
        """When the token of this id is over by itself; None: it was not verified here lately, so nobody knows."""
        for principal in self._verified.values():
            if principal.jti == jti:
                return min(principal.expires_at_ms, principal.token_expires_at_ms)
        return None

    def verify(self, token: str | None, wanted: TokenClass, now_ms: int) -> Principal | TokenFault:
        if not token:
            return TokenFault.MISSING
        principal = self._verified.get(token)
        if principal is None:
            judged = self._judge(token)
            if isinstance(judged, TokenFault):
                return judged
            principal = judged
            self._remember(token, principal)
        if now_ms >= principal.token_expires_at_ms:
            return TokenFault.EXPIRED
        return self.still_good(principal, now_ms) or (
            principal if principal.token_class is wanted else TokenFault.WRONG_CLASS
        )

    def still_good(self, principal: Principal, now_ms: int) -> TokenFault | None:
        """What time and revocation say of a principal: on every use, and for what it holds open, which may be the
        grant's and not the token's."""
        if principal.jti in self._revoked:
            return TokenFault.REVOKED
        if principal.gid is not None and self._is_over(principal.gid):
            return TokenFault.REVOKED
        if now_ms >= principal.expires_at_ms:
            return TokenFault.EXPIRED
        if now_ms < principal.not_before_ms:
            return TokenFault.NOT_YET_VALID
        return None

    def _is_over(self, gid: str) -> bool:
        return gid in self._revoked or (self._grants is not None and gid not in self._grants)

    def _remember(self, token: str, principal: Principal) -> None:
        if len(self._verified) >= self._verified_tokens_max:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = principal

    def _judge(self, token: str) -> Principal | TokenFault:
        """All that does not depend on the time: form, algorithm, key, signature and claims."""
        if len(token) > TOKEN_CHARS_MAX:
            return TokenFault.MALFORMED
        try:
            header = jwt.get_unverified_header(token)
            key = self.keys.get(header.get("kid", ""))
            if header.get("alg") != ALGORITHM:
                return TokenFault.WRONG_ALGORITHM
            if key is None:
                return TokenFault.UNKNOWN_KEY
            payload = jwt.PyJWS(algorithms=[ALGORITHM]).decode(token, key, algorithms=[ALGORITHM])
            claims = msgspec.json.decode(payload, type=_Claims)
        except jwt.InvalidSignatureError:
            return TokenFault.BAD_SIGNATURE
        except msgspec.MsgspecError:
            return TokenFault.BAD_CLAIMS
        except (jwt.PyJWTError, ValueError, RecursionError):  # the last two: a header made to upset its parser
            return TokenFault.MALFORMED
        return self._principal(claims)

    def _principal(self, claims: _Claims) -> Principal | TokenFault:
        if claims.iss != self._issuer:
            return TokenFault.WRONG_ISSUER
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
        if self._audience not in audiences:
            return TokenFault.WRONG_AUDIENCE
        gid = None if claims.gid is msgspec.UNSET or self._grants is None else claims.gid
        if gid is not None and not all(one == self._audience or self._is_our_resource(one) for one in audiences):
            return TokenFault.WRONG_AUDIENCE
        well_formed = (
            _SUBJECT_OF_CLASS[claims.token_class].match(claims.sub)
            and TENANT.match(claims.tenant)
            and _ULID.search(claims.jti)
            and (gid is None or (_ULID.search(gid) and claims.token_class is TokenClass.AGENT_RUNTIME))
        )
        if not well_formed:
            return TokenFault.BAD_CLAIMS
        expires_at_ms = int(claims.exp * 1000)
        return Principal(
            sub=claims.sub,
            tenant=claims.tenant,
            token_class=claims.token_class,
            scopes=None if claims.scope is msgspec.UNSET else frozenset(filter(None, claims.scope.split(" "))),
            jti=claims.jti,
            not_before_ms=int(claims.nbf * 1000),
            expires_at_ms=expires_at_ms if gid is None else NEVER_MS,
            issued_at_ms=int(claims.iat * 1000),
            gid=gid,
            token_expires_at_ms=NEVER_MS if gid is None else expires_at_ms,
        )
