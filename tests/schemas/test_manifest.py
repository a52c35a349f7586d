"""Whether a manifest is accepted: every rule, at its border, in its order."""

import copy
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from schemas.canonical import INTEGER_MAX, canonical, digest
from schemas.certificates import CertificateAuthority, CertificateError, KnownCertificates, Leaf
from schemas.errors import Code
from schemas.manifest import (
    ISSUED_AHEAD_MS_MAX,
    LIFE_MS_MAX,
    Accepted,
    NodeIdentity,
    Rejected,
    accept,
    sign,
    signed_form,
)
from schemas.projection import project
from schemas.registry import REGISTRY
from tests.schemas.attested import CA, LEAF, NODE_KEY, NOW_MS, SESSION, TENANT, known, leaf, private_key, signed
from tests.schemas.examples import ECHO_CAPABILITY, METRICS_CAPABILITY, NODE_ID
from tests.schemas.mutations import mutants

OTHER_NODE = "01hzx9k3m4p7q8r9s0t1v2w3xz"


def judge(manifest: Any, *, last: int | None = None, now_ms: int = NOW_MS, session: NodeIdentity = SESSION) -> Any:
    """`last` is when the manifest accepted before was issued."""
    before = None if last is None else Accepted({"issued_at_ms": last, "expires_at_ms": last + 1}, "etag", ())
    return accept(manifest, session, known(), before, now_ms)


def refused(verdict: Any) -> tuple[Code, str]:
    assert isinstance(verdict, Rejected), verdict
    assert verdict.message.isascii()
    return verdict.code, verdict.pointer


def test_good_manifest_is_accepted_with_its_etag_and_tools() -> None:
    manifest = signed()
    assert judge(manifest) == Accepted(manifest, digest(manifest), project(manifest))


def test_signed_form_has_both_fields_empty() -> None:
    form = json.loads(signed_form(signed()))
    assert form["node_attestation"] == {"alg": "Ed25519", "kid": LEAF.kid, "sig": "", "payload_hash": ""}


def test_etag_covers_the_signature_too() -> None:
    manifest = signed()
    assert digest(manifest) != manifest["node_attestation"]["payload_hash"]


# ---- 1. schema -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"manifest_version": "1.0.0"}, "/manifest_version"),
        ({"node_id": NODE_ID.upper()}, "/node_id"),
        ({"node_id": NODE_ID + "\n"}, "/node_id"),
        ({"capabilities": []}, "/capabilities"),
        ({"capabilities": [ECHO_CAPABILITY] * 257}, "/capabilities"),
        ({"surprise": 1}, ""),
        ({"issued_at_ms": 1_699_999_999_999}, "/issued_at_ms"),
        ({"issued_at_ms": "1"}, "/issued_at_ms"),
    ],
)
def test_manifest_that_does_not_fit_its_schema_is_invalid(change: dict[str, Any], pointer: str) -> None:
    assert refused(judge(signed() | change)) == (Code.MANIFEST_INVALID, pointer)


@pytest.mark.parametrize("value", [None, 1, "x", [], {}])
def test_what_is_no_manifest_at_all_is_invalid(value: Any) -> None:
    assert refused(judge(value))[0] is Code.MANIFEST_INVALID


def test_unknown_kind_is_unsupported_even_where_more_is_wrong() -> None:
    newer = {"cap_id": "pin", "kind": "gpio.pin", "verbs": ["toggle"]}
    verdict = judge(signed(capabilities=[ECHO_CAPABILITY, newer]))
    assert refused(verdict) == (Code.KIND_UNSUPPORTED, "/capabilities/1/kind")


def test_kind_that_is_no_string_is_invalid() -> None:
    verdict = judge(signed(capabilities=[ECHO_CAPABILITY | {"kind": 7}]))
    assert refused(verdict) == (Code.MANIFEST_INVALID, "/capabilities/0/kind")


@pytest.mark.parametrize(
    ("capability", "pointer"),
    [
        (METRICS_CAPABILITY | {"safety_class": "reversible"}, "/capabilities/0/safety_class"),
        (METRICS_CAPABILITY | {"verbs": ["snapshot", "set"]}, "/capabilities/0/verbs/1"),
        (METRICS_CAPABILITY | {"verbs": ["snapshot", "snapshot"]}, "/capabilities/0/verbs"),
        (METRICS_CAPABILITY | {"verbs": []}, "/capabilities/0/verbs"),
        (METRICS_CAPABILITY | {"cap_id": "a" * 19}, "/capabilities/0/cap_id"),
        (METRICS_CAPABILITY | {"constraints": {"rate_limit_rps": 0}}, "/capabilities/0/constraints/rate_limit_rps"),
        (METRICS_CAPABILITY | {"constraints": {"rate_limit_rps": 1001}}, "/capabilities/0/constraints/rate_limit_rps"),
        (METRICS_CAPABILITY | {"constraints": {}}, "/capabilities/0/constraints/rate_limit_rps"),
        (ECHO_CAPABILITY | {"safety_class": "physical_actuation"}, "/capabilities/0/safety_class"),
        (ECHO_CAPABILITY | {"verbs": ["snapshot"]}, "/capabilities/0/verbs/0"),
        (ECHO_CAPABILITY | {"constraints": {"rate_limit_rps": 50.5}}, "/capabilities/0/constraints/rate_limit_rps"),
        (
            ECHO_CAPABILITY | {"constraints": {"rate_limit_rps": 1, "deadline_ms_default": 5001}},
            "/capabilities/0/constraints/deadline_ms_default",
        ),
    ],
)
def test_clamps_of_both_kinds_hold(capability: dict[str, Any], pointer: str) -> None:
    assert refused(judge(signed(capabilities=[capability]))) == (Code.MANIFEST_INVALID, pointer)


@pytest.mark.parametrize(
    "capability",
    [
        METRICS_CAPABILITY | {"constraints": {"rate_limit_rps": 1000, "deadline_ms_default": 30000}},
        ECHO_CAPABILITY | {"constraints": {"rate_limit_rps": 50, "deadline_ms_default": 5000}},
    ],
)
def test_clamps_leave_their_borders_free(capability: dict[str, Any]) -> None:
    assert isinstance(judge(signed(capabilities=[capability])), Accepted)


def test_integer_that_has_no_canonical_form_is_invalid() -> None:
    manifest = signed()
    manifest["capabilities"] = [
        ECHO_CAPABILITY | {"constraints": {"rate_limit_rps": 1, "max_concurrency": INTEGER_MAX + 1}}
    ]
    assert refused(judge(manifest)) == (Code.MANIFEST_INVALID, "/capabilities/0/constraints/max_concurrency")


# ---- 2. names and references ---------------------------------------------------------------------------------------


def test_two_capabilities_of_one_name_are_invalid() -> None:
    twice = [METRICS_CAPABILITY, METRICS_CAPABILITY | {"verbs": ["subscribe"]}]
    assert refused(judge(signed(capabilities=twice))) == (Code.MANIFEST_INVALID, "/capabilities/1/cap_id")


def test_one_cap_id_may_serve_two_kinds_or_two_verbs() -> None:
    apart = [
        METRICS_CAPABILITY | {"verbs": ["snapshot"]},
        METRICS_CAPABILITY | {"verbs": ["subscribe"]},
        ECHO_CAPABILITY | {"cap_id": "metrics"},
    ]
    assert isinstance(judge(signed(capabilities=apart)), Accepted)


@pytest.mark.parametrize(
    ("schema_ref", "good"),
    [
        ("mcp://schemas/system.echo.invoke.input@1.0.0", True),
        ("mcp://schemas/system.echo.invoke.output@1.0.0", True),
        ("mcp://schemas/system.echo.invoke.input@1.0.1", False),
        ("mcp://schemas/system.metrics@1.0.0", False),
        ("mcp://schemas/system.echoes@1.0.0", False),
        ("mcp://schemas/node.wire.auth@2.2.0", False),
        ("mcp://schemas/error@1.0.0", False),
    ],
)
def test_schema_ref_must_be_published_for_the_kind(schema_ref: str, good: bool) -> None:
    verdict = judge(signed(capabilities=[ECHO_CAPABILITY | {"schema_ref": schema_ref}]))
    if good:
        assert isinstance(verdict, Accepted)
    else:
        assert refused(verdict) == (Code.MANIFEST_INVALID, "/capabilities/0/schema_ref")


# ---- 3. times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("life_ms", "good"), [(-1, False), (0, False), (1, True), (LIFE_MS_MAX, True), (LIFE_MS_MAX + 1, False)]
)
def test_life_is_more_than_nothing_and_at_most_a_day(life_ms: int, good: bool) -> None:
    verdict = judge(signed(expires_at_ms=NOW_MS + life_ms))
    assert isinstance(verdict, Accepted) if good else refused(verdict) == (Code.MANIFEST_INVALID, "/expires_at_ms")


def test_a_day_is_86_400_000_ms() -> None:
    assert LIFE_MS_MAX == 86_400_000


@pytest.mark.parametrize(("late_ms", "good"), [(-1, True), (0, False), (1, False)])
def test_manifest_expires_at_its_instant(late_ms: int, good: bool) -> None:
    verdict = judge(signed(), now_ms=NOW_MS + 3_600_000 + late_ms)
    assert isinstance(verdict, Accepted) if good else refused(verdict) == (Code.MANIFEST_INVALID, "/expires_at_ms")


@pytest.mark.parametrize(("ahead_ms", "good"), [(ISSUED_AHEAD_MS_MAX, True), (ISSUED_AHEAD_MS_MAX + 1, False)])
def test_manifest_may_be_issued_a_minute_ahead(ahead_ms: int, good: bool) -> None:
    verdict = judge(signed(issued_at_ms=NOW_MS + ahead_ms))
    assert isinstance(verdict, Accepted) if good else refused(verdict) == (Code.MANIFEST_INVALID, "/issued_at_ms")


# ---- 4. the session's node, not older ------------------------------------------------------------------------------


def test_manifest_of_another_node_is_not_attested() -> None:
    assert refused(judge(signed(node_id=OTHER_NODE))) == (Code.ATTESTATION_FAILED, "/node_id")


@pytest.mark.parametrize(("last", "good"), [(None, True), (NOW_MS - 1, True), (NOW_MS, True), (NOW_MS + 1, False)])
def test_manifest_older_than_the_last_accepted_is_refused(last: int | None, good: bool) -> None:
    verdict = judge(signed(), last=last)
    assert isinstance(verdict, Accepted) if good else refused(verdict) == (Code.ATTESTATION_FAILED, "/issued_at_ms")


@pytest.mark.parametrize(("fresh_from_ms", "good"), [(NOW_MS, True), (NOW_MS + 1, False), (None, False)])
def test_manifest_made_in_this_session_is_not_older_though_our_clock_stepped_back(
    fresh_from_ms: int | None, good: bool
) -> None:
    last = Accepted({"issued_at_ms": NOW_MS + 30_000, "expires_at_ms": NOW_MS + 60_000}, "etag", ())
    verdict = accept(signed(), SESSION, known(), last, NOW_MS, fresh_from_ms)
    assert isinstance(verdict, Accepted) is good


def test_the_same_manifest_once_more_is_the_one_that_is_known_without_being_judged() -> None:
    manifest = signed()
    last = Accepted(manifest, "etag", ())
    assert accept(dict(manifest), SESSION, known(), last, NOW_MS) is last


@pytest.mark.parametrize("what", ["expired", "of another tenant", "by a certificate that is not known"])
def test_the_same_manifest_is_judged_again_when_it_may_have_lost_its_worth(what: str) -> None:
    manifest = signed()
    last = Accepted(manifest, "etag", ())
    now_ms = manifest["expires_at_ms"] if what == "expired" else NOW_MS
    session = NodeIdentity(NODE_ID, "globex") if what == "of another tenant" else SESSION
    certificates = KnownCertificates(CA.certificate, []) if what.startswith("by") else known()
    assert isinstance(accept(manifest, session, certificates, last, now_ms), Rejected)


# ---- 5. certificate ------------------------------------------------------------------------------------------------

KID = (Code.ATTESTATION_FAILED, "/node_attestation/kid")


def test_unknown_kid_is_refused() -> None:
    stranger = leaf()
    assert stranger.kid != LEAF.kid
    assert refused(judge(signed(by=stranger))) == KID


@pytest.mark.parametrize("now_ms", [NOW_MS - 1, NOW_MS + 24 * 3_600_000 + 1])
def test_certificate_must_be_valid_now(now_ms: int) -> None:
    short = leaf(days=1)
    manifest = signed(by=short, issued_at_ms=now_ms, expires_at_ms=now_ms + 1000)
    assert refused(accept(manifest, SESSION, known(short), None, now_ms)) == KID
    assert isinstance(accept(signed(by=short), SESSION, known(short), None, NOW_MS), Accepted)


def test_certificate_must_be_issued_by_our_ca() -> None:
    impostor = leaf(ca=CertificateAuthority.make(private_key(9), NOW_MS))
    assert refused(accept(signed(by=impostor), SESSION, known(impostor), None, NOW_MS)) == KID


def test_certificate_is_worth_nothing_once_the_ca_has_expired() -> None:
    brief = CertificateAuthority.make(private_key(1), NOW_MS, days=1)
    own = leaf(ca=brief)
    later = NOW_MS + 2 * 86_400_000
    manifest = signed(by=own, issued_at_ms=later, expires_at_ms=later + 1000)
    assert refused(accept(manifest, SESSION, KnownCertificates(brief.certificate, [own]), None, later)) == KID


@pytest.mark.parametrize("other", [leaf(node_id=OTHER_NODE), leaf(tenant="globex")], ids=["node", "tenant"])
def test_certificate_must_be_for_this_node_and_tenant(other: Any) -> None:
    assert refused(accept(signed(by=other), SESSION, known(other), None, NOW_MS)) == KID


def test_session_of_another_tenant_cannot_use_the_nodes_certificate() -> None:
    assert refused(judge(signed(), session=NodeIdentity(NODE_ID, "globex"))) == KID


def test_name_that_only_begins_like_the_kind_is_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = replace(REGISTRY["system.metrics@1.0.0"], id="system.metricsplus@1.0.0")
    monkeypatch.setitem(REGISTRY._schemas, twin.id, twin)  # noqa: SLF001
    verdict = judge(signed(capabilities=[METRICS_CAPABILITY | {"schema_ref": twin.uri}]))
    assert refused(verdict) == (Code.MANIFEST_INVALID, "/capabilities/0/schema_ref")


def test_integers_spelt_as_floats_are_the_same_manifest() -> None:
    echo = ECHO_CAPABILITY | {"constraints": {"rate_limit_rps": 10.0, "max_concurrency": 4.0}}
    verdict = judge(signed(issued_at_ms=float(NOW_MS), capabilities=[echo]), last=NOW_MS)
    assert isinstance(verdict, Accepted)
    assert repr(verdict.tools[0].constraints["max_concurrency"]) == "4"


def test_ca_that_is_not_valid_yet_vouches_for_nobody() -> None:
    later = CertificateAuthority.make(private_key(1), NOW_MS + 1000)
    own = leaf(ca=later)
    assert refused(accept(signed(by=own), SESSION, KnownCertificates(later.certificate, [own]), None, NOW_MS)) == KID


def test_certificates_last_a_year_those_of_the_ca_ten() -> None:
    day_ms = 86_400_000
    assert LEAF.not_after_ms - LEAF.not_before_ms == 365 * day_ms
    assert (CA.certificate.not_valid_after_utc - CA.certificate.not_valid_before_utc).days == 3650


def test_leaf_is_no_ca() -> None:
    constraints = LEAF.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca


@pytest.mark.parametrize("der", [b"", b"garbage", LEAF.der[:-1], LEAF.der + b"x"])
def test_bytes_that_are_no_certificate_are_one_error(der: bytes) -> None:
    with pytest.raises(CertificateError):
        Leaf.from_der(der)


def test_damaged_certificate_is_one_error_or_another_certificate() -> None:
    for position in range(len(LEAF.der)):
        damaged = LEAF.der[:position] + bytes([LEAF.der[position] ^ 0x55]) + LEAF.der[position + 1 :]
        try:
            read = Leaf.from_der(damaged)
        except CertificateError:
            continue
        assert read.kid != LEAF.kid
        assert not known().vouches_for(read, NOW_MS)


def test_certificate_with_two_names_is_refused() -> None:
    name = x509.NameAttribute(NameOID.COMMON_NAME, NODE_ID)
    subject = x509.Name([name, name, x509.NameAttribute(NameOID.ORGANIZATION_NAME, TENANT)])
    twice = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(CA.certificate.subject)
        .public_key(private_key(2).public_key())
        .serial_number(1)
        .not_valid_before(CA.certificate.not_valid_before_utc)
        .not_valid_after(CA.certificate.not_valid_after_utc)
        .sign(private_key(1), None)
    )
    with pytest.raises(CertificateError):
        Leaf.from_der(twice.public_bytes(Encoding.DER))


def test_known_certificates_tell_a_nodes_tenants() -> None:
    assert known().tenants_of(NODE_ID) == {TENANT}
    assert known().tenants_of(OTHER_NODE) == frozenset()


def test_certificate_of_the_ca_itself_attests_no_node() -> None:

    with pytest.raises(CertificateError):
        Leaf.from_der(CA.certificate.public_bytes(Encoding.DER))


# ---- 6. hash and signature -----------------------------------------------------------------------------------------


def attested(manifest: dict[str, Any], **changes: str) -> dict[str, Any]:
    return manifest | {"node_attestation": manifest["node_attestation"] | changes}


def test_wrong_payload_hash_is_refused() -> None:
    verdict = judge(attested(signed(), payload_hash="0" * 64))
    assert refused(verdict) == (Code.ATTESTATION_FAILED, "/node_attestation/payload_hash")


def test_signature_of_another_key_is_refused() -> None:
    verdict = judge(signed(key=SigningKey(bytes([3]) * 32)))
    assert refused(verdict) == (Code.ATTESTATION_FAILED, "/node_attestation/sig")


def test_signature_has_one_spelling_only() -> None:
    manifest = signed()
    sig = manifest["node_attestation"]["sig"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = sig[:-1] + alphabet[alphabet.index(sig[-1]) + 1]  # differs in bits that base64 throws away
    assert refused(judge(attested(manifest, sig=twin))) == (Code.ATTESTATION_FAILED, "/node_attestation/sig")


# ---- the order, and anything at all --------------------------------------------------------------------------------


def test_first_rule_that_fails_is_the_answer() -> None:
    """A manifest wrong in every way, mended one rule at a time, meets the rules in the order of the contract."""
    manifest = signed(key=SigningKey(bytes([3]) * 32))
    broken = attested(manifest, payload_hash="0" * 64, kid="0" * 64) | {
        "node_id": OTHER_NODE,
        "issued_at_ms": NOW_MS + 120_000,
        "expires_at_ms": NOW_MS - 1,
        "capabilities": [ECHO_CAPABILITY | {"kind": "gpio"}, ECHO_CAPABILITY],
        "manifest_version": "0",
    }
    same_twice = [ECHO_CAPABILITY | {"schema_ref": "mcp://schemas/error@1.0.0"}, ECHO_CAPABILITY]
    steps: list[tuple[dict[str, Any], tuple[Code, str]]] = [
        ({}, (Code.KIND_UNSUPPORTED, "/capabilities/0/kind")),
        ({"capabilities": same_twice}, (Code.MANIFEST_INVALID, "/manifest_version")),
        ({"manifest_version": "1.1.0"}, (Code.MANIFEST_INVALID, "/capabilities/1/cap_id")),
        ({"capabilities": same_twice[:1]}, (Code.MANIFEST_INVALID, "/capabilities/0/schema_ref")),
        ({"capabilities": [ECHO_CAPABILITY]}, (Code.MANIFEST_INVALID, "/expires_at_ms")),
        ({"expires_at_ms": NOW_MS + 180_000}, (Code.MANIFEST_INVALID, "/issued_at_ms")),
        ({"issued_at_ms": NOW_MS}, (Code.ATTESTATION_FAILED, "/node_id")),
        ({"node_id": NODE_ID}, (Code.ATTESTATION_FAILED, "/issued_at_ms")),
    ]
    for change, expected in steps:
        broken |= change
        assert refused(judge(broken, last=NOW_MS + 1)) == expected
    assert refused(judge(broken)) == KID
    broken = attested(broken, kid=LEAF.kid)
    assert refused(judge(broken)) == (Code.ATTESTATION_FAILED, "/node_attestation/payload_hash")
    broken = sign(broken, LEAF.kid, SigningKey(bytes([3]) * 32))
    assert refused(judge(broken)) == (Code.ATTESTATION_FAILED, "/node_attestation/sig")
    assert isinstance(judge(sign(broken, LEAF.kid, NODE_KEY)), Accepted)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_changed_manifest_is_refused_without_echoing_it(seed: int) -> None:
    rng = random.Random(seed)
    original = signed()
    for _ in range(10):
        manifest = mutants(original, rng)
        verdict = judge(copy.deepcopy(manifest))
        if isinstance(verdict, Accepted):
            assert canonical(manifest) == canonical(original)  # 1 spelt as 1.0 is the same manifest
        else:
            assert verdict.code in (Code.MANIFEST_INVALID, Code.KIND_UNSUPPORTED, Code.ATTESTATION_FAILED)
            assert "\n" not in verdict.message


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_signed_manifest_of_any_content_is_judged_without_an_exception(seed: int) -> None:
    rng = random.Random(seed)
    base = mutants({key: value for key, value in signed().items() if key != "node_attestation"}, rng)
    if isinstance(base, dict):
        try:
            manifest = sign(base, LEAF.kid, NODE_KEY)
        except ValueError:  # a number without a canonical form
            return
        assert isinstance(judge(manifest), Accepted | Rejected)


def test_leaf_names_its_node_and_tenant() -> None:
    assert (LEAF.node_id, LEAF.tenant) == (NODE_ID, TENANT)
    assert known().resolve(LEAF.kid) == LEAF
    assert known().resolve("0" * 64) is None
