"""What is on its way to the sites of projects: how much of it there is, and whether there is room for more. Pure.

Uploads count from their first byte, so that those which come at the same time cannot pass a limit together. One that
replaces a file needs room for no more than it is larger by, though the old one stays until the new one is published.
That a site is within its limits is looked at once more when an upload is published (`project_rules.publish`).
"""

from collections import Counter
from dataclasses import dataclass

from actors.project.project_rules import Project
from actors.project.settings import ProjectSettings
from schemas.echo.errors import EchoError


@dataclass(eq=False, slots=True)
class Coming:
    """One upload."""

    project_id: str
    path: str
    bytes_max: int
    address: str | None  # None: we fetch it ourselves, and it takes nobody's place
    size: int = 0


class ComingUploads:
    """Those of all projects that are under way."""

    def __init__(self, settings: ProjectSettings) -> None:
        self._settings = settings
        self._of_projects: dict[str, list[Coming]] = {}
        self._of_addresses: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._of_projects.values()))

    def begin(self, coming: Coming, project: Project) -> EchoError | None:
        """What there is against it; else it is among them until `end`."""
        others = self._of_projects.get(coming.project_id, [])
        if coming.address is not None and (
            self._of_addresses[coming.address] >= self._settings.uploads_per_address_max
            or sum(other.address is not None for other in others) >= self._settings.uploads_per_project_max
        ):
            return EchoError.RATE_LIMITED
        new_paths = {one.path for one in (coming, *others) if project.object(one.path) is None}
        if coming.path in new_paths and len(project.objects) + len(new_paths) > self._settings.objects_max:
            return EchoError.SPACE_FULL
        self._of_projects.setdefault(coming.project_id, []).append(coming)
        if coming.address is not None:
            self._of_addresses[coming.address] += 1
        return None

    def grow(self, coming: Coming, more_bytes: int, project: Project) -> EchoError | None:
        """What there is against as many bytes more; else they count."""
        if coming.size + more_bytes > min(coming.bytes_max, self._settings.object_bytes_max):
            return EchoError.PAYLOAD_TOO_LARGE
        replaced = project.object(coming.path)
        kept_bytes = project.size_bytes - (0 if replaced is None else replaced.size)
        coming_bytes = sum(one.size for one in self._of_projects[coming.project_id])
        if kept_bytes + coming_bytes + more_bytes > self._settings.site_bytes_max:
            return EchoError.SPACE_FULL
        coming.size += more_bytes
        return None

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
