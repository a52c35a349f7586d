"""By which forms the databases of a data folder are written, told from their first bytes, before anybody opens them.

SQLite keeps the form (`user_version`) in its header. While a database has a write-ahead file the header may be of
before; whoever opens it looks again.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from actors.log.sqlite_files import FORM as LOG_FORM
from actors.space.sqlite_space_rows import FORM as SPACES_FORM
from gateway.observe.audit.audit_file import FORM as AUDIT_FORM

_MAGIC = b"SQLite format 3\0"
_FORM_AT = 60  # in the header: https://www.sqlite.org/fileformat.html


class Newer(NamedTuple):
    name: str
    form: int
    known: int  # as far as this version reads


def databases(folder: Path) -> Iterator[tuple[Path, int]]:
    """Those that are there, each with the form up to which this version reads it."""
    for path, known in (
        (folder / "log.sqlite", LOG_FORM),
        (folder / "spaces.sqlite", SPACES_FORM),
        (folder / "projects" / "spaces.sqlite", SPACES_FORM),
        *((path, AUDIT_FORM) for path in sorted((folder / "audit").glob("*.sqlite"))),
        *((path, AUDIT_FORM) for path in sorted(folder.glob("processes/*/audit/*.sqlite"))),
    ):
        if path.is_file():
            yield path, known


def form_of(path: Path) -> int | None:
    """None: it is no database of SQLite's, or has nothing in it yet. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(_FORM_AT + 4)
    if len(head) < _FORM_AT + 4 or not head.startswith(_MAGIC):
        return None
    (form,) = struct.unpack_from(">i", head, _FORM_AT)
    return int(form)


def newer_database(folder: Path) -> Newer | None:
    """The first one that this version does not read because it is too new. Raises OSError."""
    for path, known in databases(folder):
        form = form_of(path)
        if form is not None and form > known:
            return Newer(path.relative_to(folder).as_posix(), form, known)
    return None
