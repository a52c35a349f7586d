"""What a node signs to renew itself: the very bytes, and that nothing else counts as it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from schemas.canonical import canonical
from schemas.contract import contract
from schemas.renewal import is_signed_by, request_of
from tests.schemas.attested import LEAF, NODE_KEY
from tests.schemas.examples import NODE_ID

NEXT = SigningKey(bytes([9]) * 32).verify_key.encode()
PUBLIC = NODE_KEY.verify_key.encode()


def body(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"node_id": NODE_ID, "kid": LEAF.kid, "public_key": NEXT, "iat": 1, "nonce": bytes(16)}
    return request_of(NODE_KEY, **fields | changes)


def test_what_is_signed_is_a_context_line_and_the_canonical_form_of_four_fields() -> None:
    form = b"heliograph-node-renewal-v1\n" + canonical(
        {"iat": 1, "node_id": NODE_ID, "nonce": "00" * 16, "public_key": NEXT.hex()}
    )
    assert body()["signature"] == NODE_KEY.sign(form).signature.hex()


def test_a_request_fits_its_schema_and_is_signed_by_its_key_alone() -> None:
    assert contract("node.renew.request@1.0.0").is_valid(body())
    assert is_signed_by(PUBLIC, body())
    assert not is_signed_by(NEXT, body())
    assert not is_signed_by(bytes(32), body()), "no key at all"


@pytest.mark.parametrize(
    "change",
    [{"iat": 2}, {"nonce": "01" * 16}, {"public_key": PUBLIC.hex()}, {"node_id": "0" * 26}, {"signature": "00" * 64}],
)
def test_a_request_changed_after_it_was_signed_is_not_signed(change: dict[str, Any]) -> None:
    assert not is_signed_by(PUBLIC, body() | change)


def test_a_signature_over_the_same_fields_without_the_context_does_not_count() -> None:
    fields = {name: body()[name] for name in ("iat", "node_id", "nonce", "public_key")}
    assert not is_signed_by(PUBLIC, body() | {"signature": NODE_KEY.sign(canonical(fields)).signature.hex()})


@given(st.integers(0, 2**53 - 1), st.binary(min_size=16, max_size=32))
def test_whole_numbers_sign_alike_however_json_wrote_them(iat: int, nonce: bytes) -> None:
    signed = body(iat=iat, nonce=nonce)
    assert contract("node.renew.request@1.0.0").is_valid(signed)
    assert is_signed_by(PUBLIC, signed | {"iat": float(iat)})
