"""The root CA and the certificates it gives to nodes (RFC-0001 decision 1).

One Ed25519 leaf a node: subject CN is its `node_id`, O its tenant. A manifest names its leaf by `kid`, the SHA-256 of
the DER bytes. Keys and clocks come from the caller.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

CA_DAYS = 3650
LEAF_DAYS = 365
TENANT_CHARS_MAX = 64  # X.509's bound for O


def _at(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms // 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class CertificateError(ValueError):
    """The bytes are no certificate of the form above: a mistake of whoever configured them."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A node's certificate, with what is asked of it."""

    kid: str
    node_id: str
    tenant: str
    public_key: bytes
    not_before_ms: int
    not_after_ms: int
    certificate: x509.Certificate

    @classmethod
    def from_der(cls, der: bytes) -> "Leaf":
        try:
            return cls._read(x509.load_der_x509_certificate(der))
        except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
            raise CertificateError("not a certificate of a node") from error

    @classmethod
    def _read(cls, certificate: x509.Certificate) -> "Leaf":
        key = certificate.public_key()
        if not isinstance(key, Ed25519PublicKey):
            raise CertificateError("not an Ed25519 key")
        return cls(
            kid=certificate.fingerprint(SHA256()).hex(),
            node_id=_only(certificate.subject, NameOID.COMMON_NAME),
            tenant=_only(certificate.subject, NameOID.ORGANIZATION_NAME),
            public_key=key.public_bytes_raw(),
            not_before_ms=_ms(certificate.not_valid_before_utc),
            not_after_ms=_ms(certificate.not_valid_after_utc),
            certificate=certificate,
        )

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


def _only(subject: x509.Name, oid: x509.ObjectIdentifier) -> str:
    values = [attribute.value for attribute in subject.get_attributes_for_oid(oid)]
    if len(values) != 1 or not isinstance(values[0], str):
        raise CertificateError("the subject needs exactly one CN and one O")
    return values[0]


class KnownCertificates:
    """The leafs that a gateway knows, by `kid`, and the CA that must have issued them."""

    def __init__(self, ca: x509.Certificate, leafs: Iterable[Leaf] = ()) -> None:
        self.ca = ca
        self._leafs: dict[str, Leaf] = {}
        self._of_node: dict[str, dict[str, Leaf]] = {}
        self._tenants: dict[str, frozenset[str]] = {}  # by node: asked at each connect
        for leaf in leafs:
            self.learn(leaf)

    def __iter__(self) -> Iterator[Leaf]:
        return iter(tuple(self._leafs.values()))

    def learn(self, leaf: Leaf) -> None:
        self._leafs[leaf.kid] = leaf
        self._of_node.setdefault(leaf.node_id, {})[leaf.kid] = leaf
        self._tenants[leaf.node_id] = self.tenants_of(leaf.node_id) | {leaf.tenant}

    def forget(self, leaf: Leaf) -> None:
        """It counts no more; the tenant that its node belongs to does not change by that. Idempotent."""
        self._leafs.pop(leaf.kid, None)
        self._of_node.get(leaf.node_id, {}).pop(leaf.kid, None)

    def leafs_of(self, node_id: str) -> tuple[Leaf, ...]:
        return tuple(self._of_node.get(node_id, {}).values())

    def resolve(self, kid: str) -> Leaf | None:
        return self._leafs.get(kid)

    def tenants_of(self, node_id: str) -> frozenset[str]:
        """The tenants that a node has, or had, certificates of: mostly one, none for one that was never enrolled."""
        return self._tenants.get(node_id, frozenset())

    def vouches_for(self, leaf: Leaf, now_ms: int) -> bool:
        """Whether the CA issued it and both certificates are valid now."""
        ca_from, ca_to = _ms(self.ca.not_valid_before_utc), _ms(self.ca.not_valid_after_utc)
        if not (leaf.not_before_ms <= now_ms <= leaf.not_after_ms and ca_from <= now_ms <= ca_to):
            return False
        try:
            leaf.certificate.verify_directly_issued_by(self.ca)
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True


class CertificateAuthority:
    """Issues leafs. `make` starts a new one; load an old one by its key and certificate."""

    def __init__(self, key: Ed25519PrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def make(cls, key: Ed25519PrivateKey, now_ms: int, *, days: int = CA_DAYS) -> "CertificateAuthority":
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Heliograph node CA")])
        builder = _builder(name, name, key.public_key(), now_ms, days).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        return cls(key, builder.sign(key, None))

    def issue(
        self, node_id: str, tenant: str, public_key: Ed25519PublicKey, now_ms: int, *, days: int = LEAF_DAYS
    ) -> Leaf:
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, node_id),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, tenant),
            ]
        )
        builder = _builder(subject, self.certificate.subject, public_key, now_ms, days).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        return Leaf.from_der(builder.sign(self._key, None).public_bytes(Encoding.DER))


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: Ed25519PublicKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    start = _at(now_ms)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=days))
    )
