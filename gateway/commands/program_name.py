"""How this program can be typed again, for the lines that a command prints to be tried."""

import shutil
from pathlib import Path

NAME = "heliograph"
IN_A_CLONE = f".venv/bin/{NAME}"


def typed(argv0: str, here: Path, path: str | None = None) -> str:
    """By its path below this folder, by its name where the PATH leads to it, else by its whole path."""
    program = Path(argv0)
    if program.name != NAME:  # run as a module, as in a clone
        return IN_A_CLONE
    whole = program if program.is_absolute() else here / program
    found = shutil.which(NAME, path=path)
    if whole.is_relative_to(here):
        return str(whole.relative_to(here))
    return NAME if found is not None and Path(found) == whole else str(whole)
