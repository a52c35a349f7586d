"""The bytes in which a manifest is retained, in the log or in a bucket: whose it is, and what was announced."""

from typing import Any

import msgspec

from schemas.canonical import digest
from schemas.manifest import Accepted
from schemas.projection import project

UNREADABLE_MANIFEST = (msgspec.MsgspecError, LookupError, TypeError, ValueError)
"""What `decode_manifest` raises for bytes that are damaged, or of a newer version."""


class _Kept(msgspec.Struct, frozen=True):
    tenant: str
    manifest: dict[str, Any]


def encode_manifest(tenant: str, accepted: Accepted) -> bytes:
    return msgspec.json.encode(_Kept(tenant, dict(accepted.manifest)))


def decode_manifest(data: bytes) -> tuple[str, Accepted]:
    """Tenant and manifest. That it was signed was checked before it was kept."""
    kept = msgspec.json.decode(data, type=_Kept)
    accepted = Accepted(kept.manifest, digest(kept.manifest), project(kept.manifest))
    accepted.is_expired(accepted.issued_at_ms)
    return kept.tenant, accepted
