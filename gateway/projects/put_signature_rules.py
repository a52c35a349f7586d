"""Upload URLs of our own: what is signed in them, and what there is against one. Pure.

    BASE/upload/PROJECT/PATH?e=EXP&n=MAX&s=SIG

The signature is an HMAC-SHA256, in base64url, over the purpose, the project, the path as decoded, the content type, EXP
(Unix seconds) and MAX (bytes), each preceded by its length in four bytes, big endian: no two lists of fields are the
same bytes. Its key is made of `echo.key` and of the project bearer, so that a new bearer voids what was signed before.
A query is taken as it was given out and in no other spelling; so whatever is altered, a byte of the signature or the
order of the fields, does not match.
"""

import base64
import hmac
import re
from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from schemas.echo.site_paths import quoted_path

UPLOAD = "/upload/"
_PURPOSE = "echo-put-v1"
_INFO = b"echo put v1"
_KEY_BYTES = 32
_LENGTH_BYTES = 4
_QUERY = re.compile(rb"e=([1-9][0-9]{0,11})&n=(0|[1-9][0-9]{0,14})&s=([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class PutGrant:
    """What an upload URL lets its holder do: put one file there, until then."""

    project_id: str
    path: str
    content_type: str
    ends_at_s: int
    bytes_max: int

    def is_over(self, now_ms: int) -> bool:
        return now_ms >= 1000 * self.ends_at_s


class PutSignatures:
    __slots__ = ("_key",)

    def __init__(self, echo_key: bytes, bearer_sha256: bytes) -> None:
        self._key = HKDF(SHA256(), _KEY_BYTES, salt=bearer_sha256, info=_INFO).derive(echo_key)

    def target(self, grant: PutGrant) -> str:
        """The path and the query of its URL."""
        query = f"e={grant.ends_at_s}&n={grant.bytes_max}&s={self._sign(grant)}"
        return f"{UPLOAD}{grant.project_id}/{quoted_path(grant.path)}?{query}"

    def grant(self, project_id: str, path: str, content_type: str, query: bytes, now_ms: int) -> PutGrant | None:
        """What the query of such a request lets it do at this moment; None: nothing."""
        found = _QUERY.fullmatch(query)
        if found is None:
            return None
        grant = PutGrant(project_id, path, content_type, int(found[1]), int(found[2]))
        is_signed = hmac.compare_digest(self._sign(grant), found[3].decode())
        return grant if is_signed and not grant.is_over(now_ms) else None

    def _sign(self, grant: PutGrant) -> str:
        fields = (grant.project_id, grant.path, grant.content_type, str(grant.ends_at_s), str(grant.bytes_max))
        signed = b"".join(_with_length(field.encode()) for field in (_PURPOSE, *fields))
        digest = hmac.digest(self._key, signed, "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _with_length(field: bytes) -> bytes:
    return len(field).to_bytes(_LENGTH_BYTES, "big") + field
