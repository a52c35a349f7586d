"""Writing a file that nobody else may read, whole or not at all: keys, certificates, tokens."""

import os
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Never readable by others, not even for a moment, and never half written."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    new.replace(path)
