"""What is on its way to the sites of projects: how much of it there is, and whether there is room for more. Pure.

Uploads count from their first byte, so that those which come at the same time cannot pass a limit together. One that
replaces an object needs room only for what it is larger by; what it replaces stays until it is published.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from actors.project.site import SiteObject
from schemas.echo.errors import EchoError


class SiteLimits(Protocol):
    """Settings of projects, as far as they bound what is published."""

    @property
    def objects_max(self) -> int: ...

    @property
    def object_bytes_max(self) -> int: ...

    @property
    def site_bytes_max(self) -> int: ...

    @property
    def uploads_per_project_max(self) -> int: ...

    @property
    def uploads_per_address_max(self) -> int: ...


class SiteUsage(Protocol):
    """What a site has published."""

    @property
    def objects_count(self) -> int: ...

    @property
    def objects_bytes(self) -> int: ...

    def object(self, path: str) -> SiteObject | None: ...


@dataclass(eq=False, slots=True)
class Coming:
    """One upload. `address` is None of one that we fetch ourselves."""

    project_id: str
    path: str
    bytes_max: int
    address: str | None = None
    size: int = field(default=0)


class ComingUploads:
    """Those of all projects that are under way."""

    def __init__(self, limits: SiteLimits) -> None:
        self._limits = limits
        self._of_projects: dict[str, list[Coming]] = {}
        self._of_addresses: Counter[str] = Counter()

    def begin(self, coming: Coming, site: SiteUsage) -> EchoError | None:
        """What there is against it; else it is among them until `end`."""
        others = self._of_projects.get(coming.project_id, [])
        if coming.address is not None and (
            self._of_addresses[coming.address] >= self._limits.uploads_per_address_max
            or sum(other.address is not None for other in others) >= self._limits.uploads_per_project_max
        ):
            return EchoError.RATE_LIMITED
        new_paths = {one.path for one in (coming, *others) if site.object(one.path) is None}
        if coming.path in new_paths and site.objects_count + len(new_paths) > self._limits.objects_max:
            return EchoError.SPACE_FULL
        self._of_projects.setdefault(coming.project_id, []).append(coming)
        if coming.address is not None:
            self._of_addresses[coming.address] += 1
        return None

    def grow(self, coming: Coming, more_bytes: int, site: SiteUsage) -> EchoError | None:
        """What there is against as many bytes more; else they count."""
        if coming.size + more_bytes > min(coming.bytes_max, self._limits.object_bytes_max):
            return EchoError.PAYLOAD_TOO_LARGE
        replaced = site.object(coming.path)
        under_way = sum(other.size for other in self._of_projects[coming.project_id])
        present = site.objects_bytes - (0 if replaced is None else replaced.size)
        if present + under_way + more_bytes > self._limits.site_bytes_max:
            return EchoError.SPACE_FULL
        coming.size += more_bytes
        return None

    def fault_at_end(self, coming: Coming, site: SiteUsage) -> EchoError | None:
        """What there is against publishing it: the object that it was to replace may have gone meanwhile."""
        replaced = site.object(coming.path)
        present = site.objects_bytes - (0 if replaced is None else replaced.size)
        is_over = present + coming.size > self._limits.site_bytes_max
        is_over |= replaced is None and site.objects_count >= self._limits.objects_max
        return EchoError.SPACE_FULL if is_over else None

    def end(self, coming: Coming) -> None:
        """It is published, or nothing is left of it."""
        others = self._of_projects[coming.project_id]
        others.remove(coming)
        if not others:
            del self._of_projects[coming.project_id]
        if coming.address is not None:
            self._of_addresses[coming.address] -= 1
            if not self._of_addresses[coming.address]:
                del self._of_addresses[coming.address]

    def __len__(self) -> int:
        return sum(map(len, self._of_projects.values()))
