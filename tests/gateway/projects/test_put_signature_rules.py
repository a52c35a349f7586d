"""Upload URLs of our own: what was signed is let in until it ends, and nothing else is, by a single byte."""

import base64
import hashlib
import hmac
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.projects.put_signature_rules import PutGrant, PutSignatures

KEY, BEARER = bytes(range(32)), hashlib.sha256(b"a-bearer-of-more-than-32-characters").digest()
SIGNATURES = PutSignatures(KEY, BEARER)
GRANT = PutGrant("01jd0000000000000000000000", "a/b c.html", "text/html; charset=utf-8", 1_790_000_900, 25)
NOW_MS = 1_790_000_000_000


def query_of(grant: PutGrant, signatures: PutSignatures = SIGNATURES) -> bytes:
    return signatures.target(grant).partition("?")[2].encode()


def let_in(grant: PutGrant, query: bytes, now_ms: int = NOW_MS) -> PutGrant | None:
    return SIGNATURES.grant(grant.project_id, grant.path, grant.content_type, query, now_ms)


def test_signature_is_the_one_of_the_documented_construction() -> None:
    prk = hmac.digest(BEARER, KEY, "sha256")
    key = hmac.digest(prk, b"echo put v1\x01", "sha256")
    fields = [
        b"echo-put-v1",
        GRANT.project_id.encode(),
        b"a/b c.html",
        b"text/html; charset=utf-8",
        b"1790000900",
        b"25",
    ]
    signed = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    expected = base64.urlsafe_b64encode(hmac.digest(key, signed, "sha256")).rstrip(b"=").decode()
    assert SIGNATURES.target(GRANT) == (
        f"/upload/01jd0000000000000000000000/a/b%20c.html?e=1790000900&n=25&s={expected}"
    )


def test_what_was_signed_is_let_in_until_it_ends() -> None:
    query = query_of(GRANT)
    assert let_in(GRANT, query) == GRANT
    assert let_in(GRANT, query, 1_790_000_900_000 - 1) == GRANT
    assert let_in(GRANT, query, 1_790_000_900_000) is None
    assert (GRANT.is_over(1_790_000_899_999), GRANT.is_over(1_790_000_900_000)) == (False, True)


@pytest.mark.parametrize(
    "other",
    [
        replace(GRANT, project_id="01jd0000000000000000000001"),
        replace(GRANT, path="a/b c.htm"),
        replace(GRANT, content_type="text/html;charset=utf-8"),
        replace(GRANT, content_type="text/html"),
        replace(GRANT, content_type=""),
        # Fields that together are the same text, cut elsewhere.
        replace(GRANT, path="a/b c.htmltext", content_type="/html; charset=utf-8"),
    ],
)
def test_other_project_path_or_type_does_not_match(other: PutGrant) -> None:
    assert let_in(other, query_of(GRANT)) is None


@pytest.mark.parametrize("other", [replace(GRANT, ends_at_s=1_790_000_901), replace(GRANT, bytes_max=26)])
def test_later_end_or_larger_size_does_not_match(other: PutGrant) -> None:
    signature = query_of(GRANT).rpartition(b"=")[2]
    assert let_in(GRANT, query_of(other).rpartition(b"=")[0] + b"=" + signature) is None


def test_every_other_byte_at_every_place_of_the_query_does_not_match() -> None:
    query = query_of(GRANT)
    for at in range(len(query)):
        for byte in (*b"AQgw01e&=%", query[at] ^ 1):
            changed = query[:at] + bytes([byte]) + query[at + 1 :]
            assert changed == query or let_in(GRANT, changed) is None
        assert let_in(GRANT, query[:at] + query[at + 1 :]) is None


@pytest.mark.parametrize(
    "spell",
    [
        lambda q: q + b"&", lambda q: b"&" + q, lambda q: q + b"&x=1", lambda q: b"x=1&" + q, lambda q: q + b"=",
        lambda q: b"&".join(reversed(q.split(b"&"))), lambda q: q.replace(b"e=", b"e=0"), lambda q: q + b"&" + q,
        lambda q: q.replace(b"n=25", b"n=+25"), lambda q: q.replace(b"n=25", b"n=25&n=25"), lambda q: q[:0],
        lambda q: q.replace(b"e=1", b"e=%31"), lambda q: q.replace(b"n=25", b"n=\xd9\xa2\xd9\xa5"), lambda q: q + b"\n",
    ],
)  # fmt: skip
def test_other_spelling_of_the_same_query_does_not_match(spell: object) -> None:
    assert let_in(GRANT, spell(query_of(GRANT))) is None  # type: ignore[operator]


def test_new_bearer_or_key_voids_what_was_signed() -> None:
    for other in (PutSignatures(KEY, hashlib.sha256(b"another").digest()), PutSignatures(bytes(32), BEARER)):
        assert let_in(GRANT, query_of(GRANT, other)) is None


def test_keys_are_in_no_repr() -> None:
    assert not hasattr(SIGNATURES, "__dict__")
    assert "PutSignatures object" in repr(SIGNATURES)


@given(st.binary(max_size=120))
def test_any_bytes_are_no_query(query: bytes) -> None:
    assert let_in(GRANT, query) is None
