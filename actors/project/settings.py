"""Every limit of projects and their sites, with what happens when it is reached."""

from dataclasses import dataclass

from actors.project.blob_limits import DEFAULT_LIMITS, BlobLimits
from schemas.echo.site_labels import is_suffix


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    site_suffix: str = "localhost"  # sites are at LABEL.SUFFIX; in production, a domain that is not under BASE's
    projects_max: int = 1_000  # the next one is 503 `overloaded`
    spaces_per_project_max: int = 100  # live ones of a project with `multi_space`; one more is 413 `space_full`
    objects_max: int = 1_000  # published files of a project; one more is 413 `space_full`
    object_bytes_max: int = 25 * 1024 * 1024  # of one file; more is 413 `payload_too_large`
    site_bytes_max: int = 256 * 1024 * 1024  # of all files of a project; more is 413 `space_full`
    list_objects_max: int = 1_000  # in one answer, and when nothing is said; who asks for more gets this many
    # ---- uploads of files; what is on its way counts toward the limits above
    uploads_max: int = DEFAULT_LIMITS.uploads_max  # at a time, of all projects; the next one is 503 `overloaded`
    uploads_per_project_max: int = 16  # at a time, by whomever; the next one is 429 `rate_limited`
    uploads_per_address_max: int = 8  # at a time; the next one is 429 `rate_limited`
    upload_buffer_bytes_max: int = DEFAULT_LIMITS.upload_buffer_bytes_max  # held of an upload; then they are written
    upload_threads_max: int = DEFAULT_LIMITS.threads_max  # that write files; the next piece waits for one

    def __post_init__(self) -> None:
        if not is_suffix(self.site_suffix):
            raise ValueError("projects.site_suffix is a hostname in lower case, such as sites.example")
        limits = (self.projects_max, self.spaces_per_project_max, self.objects_max, self.object_bytes_max)
        uploads = (self.uploads_max, self.uploads_per_project_max, self.uploads_per_address_max)
        store = (self.upload_buffer_bytes_max, self.upload_threads_max)
        if min(*limits, self.site_bytes_max, self.list_objects_max, *uploads, *store) < 1:
            raise ValueError("what is in the section projects is at least 1")

    @property
    def blob_limits(self) -> BlobLimits:
        return BlobLimits(
            uploads_max=self.uploads_max,
            upload_buffer_bytes_max=self.upload_buffer_bytes_max,
            threads_max=self.upload_threads_max,
        )
