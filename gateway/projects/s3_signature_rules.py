"""AWS Signature Version 4 for S3: upload URLs, and requests of our own. Pure.

An upload URL signs the host, the content type and the length of what is to be put there, and leaves its content open
(`UNSIGNED-PAYLOAD`). It is, byte for byte, the one that botocore makes. Requests of our own have no body, and are
signed by headers. Nothing but what is needed here: static keys, one PUT, and HEAD, GET and DELETE without a query.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNSIGNED = "UNSIGNED-PAYLOAD"
_NO_BODY = hashlib.sha256(b"").hexdigest()
_SERVICE, _REQUEST = "s3", "aws4_request"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class S3Keys:
    access_key: str
    secret_key: str = field(repr=False)
    region: str


@dataclass(frozen=True, slots=True)
class S3Place:
    """Where the objects of a bucket are."""

    origin: str  # scheme and host, with the bucket in it if that is how it is addressed
    host: str  # as the header has it
    folder: str  # what keys are below of

    @classmethod
    def of(cls, endpoint: str, bucket: str, *, is_virtual: bool) -> "S3Place":
        parts = urlsplit(endpoint)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        name = f"{bucket}.{host}" if is_virtual else host
        has_port = parts.port not in (None, _DEFAULT_PORTS[parts.scheme])
        in_header = f"{name}:{parts.port}" if has_port else name
        return cls(f"{parts.scheme}://{in_header}", in_header, "/" if is_virtual else f"/{bucket}/")

    def path(self, key: str) -> str:
        """Of an object; without a key, of the bucket."""
        return quote(self.folder + key, safe="/~") if key else self.folder.rstrip("/") or "/"


def presigned_put(place: S3Place, keys: S3Keys, key: str, content_type: str, size: int, now_s: int, life_s: int) -> str:
    """The URL to which exactly as many bytes of that type may be put, for as long."""
    stamp, path = _stamp(now_s), place.path(key)
    headers = {"content-length": str(size), "content-type": content_type, "host": place.host}
    fields = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{keys.access_key}/{_scope(stamp, keys)}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(life_s),
        "X-Amz-SignedHeaders": ";".join(headers),
    }
    query = "&".join(f"{name}={quote(value, safe='~')}" for name, value in fields.items())
    signature = _signature("PUT", path, query, headers, _UNSIGNED, stamp, keys)
    return f"{place.origin}{path}?{query}&X-Amz-Signature={signature}"


def signed_headers(place: S3Place, keys: S3Keys, method: str, key: str, now_s: int) -> dict[str, str]:
    """All headers of a request of our own that has neither a query nor a body."""
    stamp = _stamp(now_s)
    headers = {"host": place.host, "x-amz-content-sha256": _NO_BODY, "x-amz-date": stamp}
    signature = _signature(method, place.path(key), "", headers, _NO_BODY, stamp, keys)
    credential = f"{keys.access_key}/{_scope(stamp, keys)}"
    said = f"{_ALGORITHM} Credential={credential}, SignedHeaders={';'.join(headers)}, Signature={signature}"
    return {**headers, "authorization": said}


def _signature(
    method: str, path: str, query: str, headers: Mapping[str, str], payload: str, stamp: str, keys: S3Keys
) -> str:
    """`headers` and `query` are in order already."""
    canonical = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in headers.items())
    request = "\n".join((method, path, query, canonical, ";".join(headers), payload))
    scope = _scope(stamp, keys)
    signed = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, signed.encode(), "sha256").hex()


def _scope(stamp: str, keys: S3Keys) -> str:
    return f"{stamp[:8]}/{keys.region}/{_SERVICE}/{_REQUEST}"


def _stamp(now_s: int) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
