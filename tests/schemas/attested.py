"""A small world of certificates for the tests: a CA, a node with its leaf, and manifests signed by it."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.signing import SigningKey

from schemas.certificates import CertificateAuthority, KnownCertificates, Leaf
from schemas.manifest import NodeIdentity, sign
from tests.schemas.examples import MANIFEST, NODE_ID

NOW_MS = 1_790_000_000_000
TENANT = "acme"
SESSION = NodeIdentity(NODE_ID, TENANT)


def private_key(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


CA = CertificateAuthority.make(private_key(1), NOW_MS)
NODE_KEY = SigningKey(bytes([2]) * 32)


def leaf(
    node_id: str = NODE_ID,
    tenant: str = TENANT,
    *,
    now_ms: int = NOW_MS,
    days: int = 365,
    ca: CertificateAuthority = CA,
) -> Leaf:
    return ca.issue(node_id, tenant, private_key(2).public_key(), now_ms, days=days)


LEAF = leaf()


def known(*leafs: Leaf) -> KnownCertificates:
    return KnownCertificates(CA.certificate, leafs or (LEAF,))


def signed(*, by: Leaf = LEAF, key: SigningKey = NODE_KEY, **changes: Any) -> dict[str, Any]:
    fresh = {"issued_at_ms": NOW_MS, "expires_at_ms": NOW_MS + 3_600_000}
    return sign(MANIFEST | fresh | changes, by.kid, key)
