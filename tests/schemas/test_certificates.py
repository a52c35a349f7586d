"""The certificates that a gateway knows: which tenants a node has certificates of."""

from dataclasses import replace

from schemas.certificates import KnownCertificates
from tests.schemas.attested import CA, LEAF, TENANT
from tests.schemas.examples import NODE_ID


class WatchedId(str):
    """A node's id that counts how often one is compared with another."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        WatchedId.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_tenants_of_a_node_are_found_without_a_look_at_other_nodes() -> None:
    others = [replace(LEAF, kid=f"{n:064x}", node_id=WatchedId(f"{n:026}")) for n in range(500)]
    certificates = KnownCertificates(CA.certificate, others[:250])
    for other in others[250:]:
        certificates.learn(other)
    certificates.learn(LEAF)
    WatchedId.comparisons = 0
    assert certificates.tenants_of(NODE_ID) == {TENANT}
    assert certificates.tenants_of(others[0].node_id) == {TENANT}
    assert certificates.tenants_of("nobody") == frozenset()
    assert WatchedId.comparisons <= 1


def test_node_with_certificates_of_two_tenants_has_both() -> None:
    certificates = KnownCertificates(CA.certificate, [LEAF])
    certificates.learn(replace(LEAF, kid="0" * 64, tenant="globex"))
    certificates.learn(LEAF)
    assert certificates.tenants_of(NODE_ID) == {TENANT, "globex"}
