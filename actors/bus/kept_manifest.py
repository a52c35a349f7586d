"""The bytes in which a manifest is retained, in the log or in a bucket: whose it is, and what was announced.

A gateway among several is told every manifest of the fleet, and serves few of them: what follows from one, its etag and
its tools, is made when somebody asks. What could not be made is found out at once.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.canonical import digest, first_unsafe_number
from schemas.manifest import Accepted
from schemas.projection import Tool, check_projects, project

UNREADABLE_MANIFEST = (msgspec.MsgspecError, LookupError, TypeError, ValueError)
"""What `decode_manifest` raises for bytes that are damaged, or of a newer version."""


class _Kept(msgspec.Struct, frozen=True):
    tenant: str
    manifest: dict[str, Any]


class _Retained(Accepted):
    """Equal to the manifest as it was accepted."""

    __slots__ = ("_etag", "_tools")

    _etag: str | None
    _tools: tuple[Tool, ...] | None

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        object.__setattr__(self, "manifest", manifest)
        object.__setattr__(self, "_etag", None)
        object.__setattr__(self, "_tools", None)

    @property
    def etag(self) -> str:
        if self._etag is None:
            object.__setattr__(self, "_etag", digest(self.manifest))
        assert self._etag is not None
        return self._etag

    @property
    def tools(self) -> tuple[Tool, ...]:
        if self._tools is None:
            object.__setattr__(self, "_tools", project(self.manifest))
        assert self._tools is not None
        return self._tools

    def has_tools_of(self, other: Accepted) -> bool:
        return _says_of_tools(self) == _says_of_tools(other) or super().has_tools_of(other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Accepted):
            return NotImplemented
        return (self.manifest, self.etag, self.tools) == (other.manifest, other.etag, other.tools)

    __hash__ = None  # type: ignore[assignment]  # as of what was accepted, which has a dictionary


def _says_of_tools(accepted: Accepted) -> tuple[Any, Any]:
    return accepted.manifest.get("node_id"), accepted.manifest.get("capabilities")


def encode_manifest(tenant: str, accepted: Accepted) -> bytes:
    return msgspec.json.encode(_Kept(tenant, dict(accepted.manifest)))


def decode_manifest(data: bytes) -> tuple[str, Accepted]:
    """Tenant and manifest. That it was signed was checked before it was kept."""
    kept = msgspec.json.decode(data, type=_Kept)
    unsafe = first_unsafe_number(kept.manifest)
    if unsafe is not None:
        raise ValueError(f"{unsafe} is a number that the canonical form does not have")
    check_projects(kept.manifest)
    accepted = _Retained(kept.manifest)
    accepted.is_expired(accepted.issued_at_ms)
    return kept.tenant, accepted
