"""What a site is to those who serve it: the objects of a project by path, and their bytes by hash.

An object is published by one event, after its bytes are durable under their SHA-256: a reader sees the old one or the
new one, never half. Paths lie in the log alone; there is no file path that anybody could traverse.
"""

from typing import Protocol

import msgspec


class SiteObject(msgspec.Struct, frozen=True):
    """One published file."""

    path: str  # without a slash at its beginning, as `schemas/echo/site_paths.py` has it
    sha256: str  # hex, of the content; the strong ETag
    size: int
    content_type: str  # as uploaded; empty: by the table of those who serve it
    updated_at_ms: int


class Site(Protocol):
    """A project that is there, as of now."""

    @property
    def project_id(self) -> str: ...

    def object(self, path: str) -> SiteObject | None: ...

    def has_folder(self, path: str) -> bool:
        """Whether objects lie below this path, which has no slash at its end."""


class SiteDirectory(Protocol):
    """Which sites there are. Looking one up waits for nothing and costs a dictionary or two."""

    def site(self, label: str) -> Site | None:
        """By the label of its hostname, in lower case."""


class ContentReader(Protocol):
    """Where the bytes of published objects lie."""

    def open(self, sha256: str) -> int:
        """A descriptor to read them from, for the caller to close; it stays good though the object is replaced or
        deleted meanwhile. Raises OSError: the disk does not have what it should."""
