"""The section `[backup]`: what a backup of a running gateway may take."""

from dataclasses import dataclass
from typing import Annotated

import msgspec


@dataclass(frozen=True, slots=True)
class BackupSettings:
    # On the disk of the data folder, where databases are copied to first; a backup that would leave less is refused.
    room_left_bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 256 * 1024**2
    download_s_max: Annotated[float, msgspec.Meta(gt=0)] = 3600.0  # for one to be fetched; then the connection ends
