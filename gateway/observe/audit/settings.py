"""The section `[audit]`: how much of the audit is kept, and for how long."""

from dataclasses import dataclass
from typing import Annotated

import msgspec


@dataclass(frozen=True, slots=True)
class AuditSettings:
    enabled: bool = True  # without it lines go to the log alone, and GET /admin/audit is 404
    keep_days: Annotated[int, msgspec.Meta(ge=1)] = 30  # then a line is removed, with all others of its file
    # Of all files together; then the oldest file is removed, however young its lines are.
    bytes_max: Annotated[int, msgspec.Meta(ge=1024 * 1024)] = 1024**3
    file_bytes_max: Annotated[int, msgspec.Meta(ge=64 * 1024)] = 64 * 1024**2  # then the next file is begun
    queue_lines_max: int = 65_536  # that wait to be written; the next one is lost: counted, and told in the log
    write_s: Annotated[float, msgspec.Meta(ge=0)] = 0.25  # for which lines are collected, to be written together
