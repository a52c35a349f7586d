"""RFC 8785: the form that is hashed and signed."""

import math

import pytest
import rfc8785
from blake3 import blake3

from schemas.canonical import INTEGER_MAX, canonical, digest, first_unsafe_number


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        (
            {"\u20ac": 1, "\r": 2, "1": 3, "\U0001f600": 4, "\ufb33": 5},
            '{"\\r":2,"1":3,"€":1,"😀":4,"\ufb33":5}'.encode(),
        ),
        ([1.0, 1e21, 0.1, 1e-7, -0.0, 333333333.33333329], b"[1,1e+21,0.1,1e-7,0,333333333.3333333]"),
        ('\u2028/<\\"\x0f', b'"\xe2\x80\xa8/<\\\\\\"\\u000f"'),
    ],
)
def test_form_is_that_of_rfc_8785(value: object, form: bytes) -> None:
    assert canonical(value) == form


def test_digest_is_blake3_of_the_form_and_blind_to_the_order_of_keys() -> None:
    assert digest({"b": 1, "a": 2.0}) == blake3(b'{"a":2,"b":1}').hexdigest() == digest({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": [INTEGER_MAX, -INTEGER_MAX, 0.5, True, "x", None]}, None),
        ({"a": [0, {"b": INTEGER_MAX + 1}]}, "/a/1/b"),
        ([-INTEGER_MAX - 1], "/0"),
        ({"a": 1e300}, "/a"),
        ({"a": math.inf}, "/a"),
        ({"a": math.nan}, "/a"),
    ],
)
def test_number_that_the_form_cannot_hold_is_found(value: object, pointer: str | None) -> None:
    assert first_unsafe_number(value) == pointer


def test_integer_beyond_the_safe_range_has_no_form() -> None:
    with pytest.raises(rfc8785.CanonicalizationError):
        canonical({"a": INTEGER_MAX + 1})
