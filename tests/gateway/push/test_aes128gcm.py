"""RFC 8291: the RFC's own vector, and whatever is sealed here is opened by another implementation."""

import os

import http_ece
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, derive_private_key, generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from gateway.push.aes128gcm import MESSAGE_BYTES_MAX, point_of, read_point, seal
from gateway.push.vapid import base64url, base64url_bytes
from schemas.echo import push

BROWSER = generate_private_key(SECP256R1())
POINT = point_of(BROWSER.public_key())
AUTH = os.urandom(16)


def raw(text: str) -> bytes:
    data = base64url_bytes(text)
    assert data is not None
    return data


def test_vector_of_the_rfc() -> None:
    """RFC 8291 §5 and its appendix."""
    own = derive_private_key(int.from_bytes(raw("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")), SECP256R1())
    body = seal(
        b"When I grow up, I want to be a watermelon",
        raw("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
        raw("BTBZMqHH6r4Tts7J_aSIgg"),
        own,
        raw("DGv6ra1nlYgDCS1FRnbzlw"),
    )
    assert base64url(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
        "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@given(st.binary(max_size=MESSAGE_BYTES_MAX) | st.just(bytes(MESSAGE_BYTES_MAX)), st.binary(min_size=16, max_size=16))
def test_another_implementation_opens_what_is_sealed_here(message: bytes, salt: bytes) -> None:
    body = seal(message, POINT, AUTH, generate_private_key(SECP256R1()), salt)
    assert http_ece.decrypt(body, private_key=BROWSER, auth_secret=AUTH, version="aes128gcm") == message


def test_longest_message_fills_what_a_push_service_takes_and_one_byte_more_is_not_sealed() -> None:
    own, salt = generate_private_key(SECP256R1()), bytes(16)
    assert MESSAGE_BYTES_MAX == push.MESSAGE_BYTES_MAX == 3_993
    assert len(seal(bytes(MESSAGE_BYTES_MAX), POINT, AUTH, own, salt)) == 4_096
    with pytest.raises(ValueError, match="too long"):
        seal(bytes(MESSAGE_BYTES_MAX + 1), POINT, AUTH, own, salt)


@pytest.mark.parametrize("auth", [b"", bytes(15), bytes(17)])
def test_keys_that_nobody_has_checked_are_a_mistake_of_ours(auth: bytes) -> None:
    own = generate_private_key(SECP256R1())
    with pytest.raises(ValueError, match="nobody has checked"):
        seal(b"", POINT, auth, own, bytes(16))
    with pytest.raises(ValueError, match="nobody has checked"):
        seal(b"", b"\4" + bytes(64), AUTH, own, bytes(16))


def test_a_point_is_65_bytes_and_on_the_curve() -> None:
    assert read_point(POINT) is not None
    changed = bytes([*POINT[:-1], POINT[-1] ^ 1])
    compressed = bytes([2 + POINT[-1] % 2]) + POINT[1:33]
    for wrong in (b"", POINT[:-1], POINT + b"\0", b"\0" + POINT[1:], b"\2" + POINT[1:], changed, compressed, b"\0"):
        assert read_point(wrong) is None


@given(st.binary(max_size=70))
def test_no_bytes_make_reading_a_point_raise(data: bytes) -> None:
    read_point(data)
