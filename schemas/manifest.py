"""A node's manifest: how it is signed, and whether one that came in is accepted (access.md, "Certificates").

`accept` is a pure function of the manifest, the session it came in, the known certificates, the last one accepted
and the time. The checks run in a fixed order and the first that fails is the answer, because each relies on those
before it: nothing is hashed before it fits its schema, nothing is believed before its signature holds.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from blake3 import blake3
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from schemas.canonical import canonical, digest, first_unsafe_number
from schemas.certificates import KnownCertificates
from schemas.contract import contract
from schemas.ecma import compile_ecma
from schemas.errors import Code
from schemas.projection import Tool, project, tool_names
from schemas.registry import REGISTRY

LIFE_MS_MAX = 24 * 60 * 60 * 1000  # a longer-lived manifest is refused
ISSUED_AHEAD_MS_MAX = 60 * 1000  # one stamped further in the future is refused

_MANIFEST = contract("manifest@1.0.0")
_ATTESTATION = REGISTRY["manifest@1.0.0"].document["properties"]["node_attestation"]["properties"]
_KID = compile_ecma(_ATTESTATION["kid"]["pattern"])
_KINDS = frozenset(REGISTRY["manifest@1.0.0"].document["$defs"]["Capability"]["properties"]["kind"]["enum"])


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Whom a session has proved to be."""

    node_id: str
    tenant: str


@dataclass(frozen=True, slots=True)
class Accepted:
    manifest: Mapping[str, Any]
    etag: str
    tools: tuple[Tool, ...]

    @property
    def issued_at_ms(self) -> int:
        return int(self.manifest["issued_at_ms"])

    def has_tools_of(self, other: "Accepted") -> bool:
        return self.tools == other.tools

    def is_expired(self, wall_ms: int) -> bool:
        return wall_ms >= int(self.manifest["expires_at_ms"])


@dataclass(frozen=True, slots=True)
class Rejected:
    code: Code
    pointer: str
    message: str  # fixed words


def kid_of(manifest: Any) -> str | None:
    """The certificate that a manifest names, whatever else is wrong with it."""
    attestation = manifest.get("node_attestation") if isinstance(manifest, dict) else None
    kid = attestation.get("kid") if isinstance(attestation, dict) else None
    return kid if isinstance(kid, str) and _KID.search(kid) else None


def accept(
    manifest: Any,
    session: NodeIdentity,
    known: KnownCertificates,
    last: Accepted | None,
    now_ms: int,
    fresh_from_ms: int | None = None,
) -> Accepted | Rejected:
    """`last` is the node's last accepted manifest: the same once more is that one, if time has not undone it.

    What is stamped at or after `fresh_from_ms`, the earliest time that this session was told, was made in this session:
    it is not older than the last, though our clock may have stepped back since that one.
    """
    if last is not None and manifest == last.manifest:
        leaf = known.resolve(manifest["node_attestation"]["kid"])
        is_good = leaf is not None and known.vouches_for(leaf, now_ms)
        is_ours = leaf is not None and (leaf.node_id, leaf.tenant) == (session.node_id, session.tenant)
        if is_good and is_ours and not last.is_expired(now_ms):
            return last
    not_before_ms = None if last is None else min(last.issued_at_ms, fresh_from_ms or last.issued_at_ms)
    for refused in _checks(manifest, session, known, not_before_ms, now_ms):
        return refused
    return Accepted(manifest, digest(manifest), project(manifest))


def _checks(
    manifest: Any, session: NodeIdentity, known: KnownCertificates, not_before_ms: int | None, now_ms: int
) -> Iterator[Rejected]:
    """Yields a refusal for each check that fails, in the order of the contract; the first one counts."""
    yield from _shape(manifest)
    yield from _names_and_references(manifest)

    # 1.79e12 is an integer to JSON Schema, and the same number in canonical form.
    issued_at_ms, expires_at_ms = int(manifest["issued_at_ms"]), int(manifest["expires_at_ms"])
    if not 0 < expires_at_ms - issued_at_ms <= LIFE_MS_MAX:
        yield _invalid("/expires_at_ms", "is not within 24 hours after issued_at_ms")
    if expires_at_ms <= now_ms:
        yield _invalid("/expires_at_ms", "has passed")
    if issued_at_ms - now_ms > ISSUED_AHEAD_MS_MAX:
        yield _invalid("/issued_at_ms", "is more than 60 seconds in the future")

    if manifest["node_id"] != session.node_id:
        yield _unattested("/node_id", "is not the node of this session")
    if not_before_ms is not None and issued_at_ms < not_before_ms:
        yield _unattested("/issued_at_ms", "is older than the last manifest accepted")
    yield from _attestation(manifest, session, known, now_ms)


def _shape(manifest: Any) -> Iterator[Rejected]:
    flaw = _MANIFEST.first_flaw(manifest)
    if flaw is not None:
        unknown = _unknown_kind(manifest)
        if unknown is not None:
            yield Rejected(Code.KIND_UNSUPPORTED, unknown, f"{unknown} is not a kind that this gateway supports")
        yield Rejected(Code.MANIFEST_INVALID, flaw.pointer, flaw.words)
    unsafe = first_unsafe_number(manifest)
    if unsafe is not None:
        yield _invalid(unsafe, "is beyond 2^53-1")


def _unknown_kind(manifest: Any) -> str | None:
    """Where the first capability of another kind stands; such a node is newer than us, not broken."""
    capabilities = manifest.get("capabilities") if isinstance(manifest, Mapping) else None
    for index, capability in enumerate(capabilities if isinstance(capabilities, list) else ()):
        kind = capability.get("kind") if isinstance(capability, Mapping) else None
        if isinstance(kind, str) and kind not in _KINDS:
            return f"/capabilities/{index}/kind"
    return None


def _names_and_references(manifest: Mapping[str, Any]) -> Iterator[Rejected]:
    seen = set()
    for index, name in tool_names(manifest):
        if name in seen:
            yield _invalid(f"/capabilities/{index}/cap_id", "projects to a tool name that another capability has")
        seen.add(name)
    for index, capability in enumerate(manifest["capabilities"]):
        schema = REGISTRY.get(capability["schema_ref"])
        # The kind's own schema, or one of its parts: system.echo has parts only.
        if schema is None or not f"{schema.id.partition('@')[0]}.".startswith(f"{capability['kind']}."):
            yield _invalid(f"/capabilities/{index}/schema_ref", "is not a published schema of this kind")


def _attestation(
    manifest: Mapping[str, Any], session: NodeIdentity, known: KnownCertificates, now_ms: int
) -> Iterator[Rejected]:
    attestation = manifest["node_attestation"]
    leaf = known.resolve(attestation["kid"])
    if leaf is None:
        yield _unattested("/node_attestation/kid", "names no certificate that is known here")
    elif not known.vouches_for(leaf, now_ms):
        yield _unattested("/node_attestation/kid", "names a certificate that is not valid now or not of our CA")
    elif (leaf.node_id, leaf.tenant) != (session.node_id, session.tenant):
        yield _unattested("/node_attestation/kid", "names the certificate of another node or tenant")
    else:
        signed = signed_form(manifest)
        if attestation["payload_hash"] != blake3(signed).hexdigest():
            yield _unattested("/node_attestation/payload_hash", "is not the hash of the signed form")
        if not _verifies(attestation["sig"], signed, leaf.public_key):
            yield _unattested("/node_attestation/sig", "is not a signature of this node over the signed form")


def signed_form(manifest: Mapping[str, Any]) -> bytes:
    """What is hashed and signed: the canonical form with `sig` and `payload_hash` empty."""
    blank = manifest["node_attestation"] | {"sig": "", "payload_hash": ""}
    return canonical(dict(manifest) | {"node_attestation": blank})


def sign(manifest: Mapping[str, Any], kid: str, key: SigningKey) -> dict[str, Any]:
    """The manifest with its `node_attestation` filled in (any that it has is replaced)."""
    attestation = {"alg": "Ed25519", "kid": kid, "sig": "", "payload_hash": ""}
    form = signed_form(dict(manifest) | {"node_attestation": attestation})
    attestation["payload_hash"] = blake3(form).hexdigest()
    attestation["sig"] = _base64url(key.sign(form).signature)
    return dict(manifest) | {"node_attestation": attestation}


def _verifies(signature: str, form: bytes, public_key: bytes) -> bool:
    raw = urlsafe_b64decode(signature + "==")
    if _base64url(raw) != signature:  # 86 characters hold 4 bits more than a signature: only one spelling counts
        return False
    try:
        VerifyKey(public_key).verify(form, raw)
    except BadSignatureError:
        return False
    return True


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _invalid(pointer: str, words: str) -> Rejected:
    return Rejected(Code.MANIFEST_INVALID, pointer, f"{pointer} {words}")


def _unattested(pointer: str, words: str) -> Rejected:
    return Rejected(Code.ATTESTATION_FAILED, pointer, f"{pointer} {words}")
