"""Every limit of projects and their sites, with what happens when it is reached."""

from dataclasses import dataclass

from schemas.echo.site_labels import is_suffix


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    site_suffix: str = "localhost"  # sites are at LABEL.SUFFIX; in production, a domain that is not under BASE's
    projects_max: int = 1_000  # the next one is 503 `overloaded`
    spaces_per_project_max: int = 100  # live ones of a project with `multi_space`; one more is 413 `space_full`
    objects_max: int = 1_000  # published files of a project; one more is 413 `space_full`
    object_bytes_max: int = 25 * 1024 * 1024  # of one file; more is 413 `payload_too_large`
    site_bytes_max: int = 256 * 1024 * 1024  # of all files of a project; more is 413 `space_full`

    def __post_init__(self) -> None:
        if not is_suffix(self.site_suffix):
            raise ValueError("projects.site_suffix is a hostname in lower case, such as sites.example")
        limits = (self.projects_max, self.spaces_per_project_max, self.objects_max, self.object_bytes_max)
        if min(*limits, self.site_bytes_max) < 1:
            raise ValueError("what is in the section projects is at least 1")
