"""Our signatures are botocore's, byte for byte: of upload URLs, and of requests of our own."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import botocore.auth
import botocore.session
import pytest
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.projects.s3_signature_rules import S3Keys, S3Place, presigned_put, signed_headers

BUCKET, SECRET = "a-bucket", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = S3Keys("AKIDEXAMPLE/+=", SECRET, "eu-central-1")
PLACES = [
    ("http://127.0.0.1:9000", False),
    ("https://s3.eu-central-1.amazonaws.com", False),
    ("https://s3.eu-central-1.amazonaws.com", True),
    ("http://[::1]:9000", False),
    ("https://minio.example:8443", True),
]
# One that botocore takes for its own default, and leaves out.
DROPPED = "application/x-www-form-urlencoded; charset=utf-8"

_session = botocore.session.Session()
_clients: dict[tuple[str, bool], Any] = {}


def client(endpoint: str, is_virtual: bool) -> Any:
    """Made once each: it takes long."""
    if (endpoint, is_virtual) not in _clients:
        style = {"addressing_style": "virtual" if is_virtual else "path"}
        _clients[endpoint, is_virtual] = _session.create_client(
            "s3",
            region_name=KEYS.region,
            endpoint_url=endpoint,
            aws_access_key_id=KEYS.access_key,
            aws_secret_access_key=KEYS.secret_key,
            config=Config(signature_version="s3v4", s3=style),
        )
    return _clients[endpoint, is_virtual]


@contextmanager
def botocore_at(now_s: int) -> Iterator[None]:
    """Its clock, which is nowhere to be handed in."""
    at = datetime.fromtimestamp(now_s, UTC).replace(tzinfo=None)
    with patch.object(botocore.auth, "get_current_datetime", lambda: at):
        yield


OBJECT_KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60).filter(
    lambda key: not key.startswith("/")
)
TYPES = st.from_regex(r"[a-z]{1,10}/[a-z0-9.+-]{1,20}(; ?[a-z]{1,8}=[\x20-\x7e]{0,20}[\x21-\x7e])?", fullmatch=True)
TIMES_S = st.integers(0, 4_102_444_800)


@pytest.mark.parametrize(("endpoint", "is_virtual"), PLACES)
@given(key=OBJECT_KEYS, content_type=TYPES, size=st.integers(0, 10**12), now_s=TIMES_S, life_s=st.integers(1, 604_800))
@example(key="p/é x~+%2F", content_type="text/html; charset=utf-8", size=5, now_s=1_790_000_000, life_s=900)
@example(key="01jd/01je", content_type="text/html;  charset=utf-8", size=0, now_s=0, life_s=1)
def test_upload_url_is_the_one_that_botocore_makes(
    endpoint: str, is_virtual: bool, key: str, content_type: str, size: int, now_s: int, life_s: int
) -> None:
    place = S3Place.of(endpoint, BUCKET, is_virtual=is_virtual)
    wish = {"Bucket": BUCKET, "Key": key, "ContentType": content_type, "ContentLength": size}
    with botocore_at(now_s):
        expected = client(endpoint, is_virtual).generate_presigned_url("put_object", Params=wish, ExpiresIn=life_s)
    assert presigned_put(place, KEYS, key, content_type, size, now_s, life_s) == expected


def test_type_that_botocore_leaves_out_is_signed_by_us_all_the_same() -> None:
    place = S3Place.of(PLACES[0][0], BUCKET, is_virtual=False)
    url = presigned_put(place, KEYS, "k", DROPPED, 1, 0, 900)
    assert "X-Amz-SignedHeaders=content-length%3Bcontent-type%3Bhost" in url
    assert url != presigned_put(place, KEYS, "k", "text/plain", 1, 0, 900)


@pytest.mark.parametrize("method", ["HEAD", "GET", "DELETE"])
@pytest.mark.parametrize(("endpoint", "is_virtual"), PLACES)
@given(key=OBJECT_KEYS | st.just(""), now_s=TIMES_S)
def test_headers_of_our_own_requests_are_those_that_botocore_signs(
    endpoint: str, is_virtual: bool, method: str, key: str, now_s: int
) -> None:
    place = S3Place.of(endpoint, BUCKET, is_virtual=is_virtual)
    ours = signed_headers(place, KEYS, method, key, now_s)
    request = AWSRequest(method, place.origin + place.path(key))
    signer = botocore.auth.S3SigV4Auth(Credentials(KEYS.access_key, KEYS.secret_key), "s3", KEYS.region)
    with botocore_at(now_s):
        signer.add_auth(request)
    theirs = {name.lower(): value for name, value in request.headers.items()}
    assert ours == {**theirs, "host": place.host}


def test_secret_is_in_no_repr() -> None:
    assert SECRET not in repr(KEYS)


@pytest.mark.parametrize(
    ("endpoint", "is_virtual", "origin", "host", "path"),
    [
        ("https://s3.example", False, "https://s3.example", "s3.example", "/a-bucket/k"),
        ("https://s3.example:443", False, "https://s3.example", "s3.example", "/a-bucket/k"),
        ("http://s3.example:80", True, "http://a-bucket.s3.example", "a-bucket.s3.example", "/k"),
        ("https://s3.example:8443", True, "https://a-bucket.s3.example:8443", "a-bucket.s3.example:8443", "/k"),
        ("http://[::1]:9000", False, "http://[::1]:9000", "[::1]:9000", "/a-bucket/k"),
    ],
)
def test_place_of_an_object(endpoint: str, is_virtual: bool, origin: str, host: str, path: str) -> None:
    place = S3Place.of(endpoint, BUCKET, is_virtual=is_virtual)
    assert (place.origin, place.host, place.path("k")) == (origin, host, path)
    assert place.path("") == ("/" if is_virtual else "/a-bucket")
