"""The section `[projects]`: the limits of projects (`actors/project/settings.py`), and those of their routes."""

from dataclasses import dataclass

from actors.project.settings import ProjectSettings


@dataclass(frozen=True, slots=True)
class ProjectsSettings(ProjectSettings):
    # ---- uploads; every other body has `door.body_s_max`
    presign_s: int = 900  # life of an upload URL; then it is 403 `signature_mismatch`
    upload_bytes_per_s_min: int = 16 * 1024  # slower, beyond `upload_free_s`, is 400 `invalid_payload`; 0: none
    upload_idle_s_max: float = 10.0  # without a byte of it; then 400 `invalid_payload`, and the connection is closed
    upload_free_s: float = 20.0  # spent waiting for it, before its rate counts
