"""A data folder made of a backup: all of it, or nothing.

    DIR/restoring/     the files as they are read; each gets its place once all of them are there and verified

A backup is read twice: to see that it is whole and of a form that this version knows, before anything is written; then
to write it. A folder that has `restoring` and no ca.crt is half restored: no gateway starts there, and no command
takes it for a folder. ca.crt gets its place last, as at a first start. Everything here blocks.
"""

import fcntl
import gzip
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from actors.log.sqlite_files import FORM as LOG_FORM
from actors.log.sqlite_files import sync_folder
from actors.space.sqlite_space_rows import FORM as SPACES_FORM
from gateway.backup.archive import Pieces, opened, read, verified
from gateway.backup.database_copy import connect, form_of
from gateway.backup.gathering import BackupError
from gateway.backup.manifest_rules import Manifest, NotRestorable, broken, judge
from gateway.backup.member_rules import LOG, Part, part_of
from gateway.main.data_folder import CA_FILE, RESTORING
from gateway.observe.audit.audit_file import FORM as AUDIT_FORM

FORMS_MAX: Mapping[str, int] = {
    Part.LOG: LOG_FORM,
    Part.AUDIT: AUDIT_FORM,
    Part.PROJECTS: SPACES_FORM,
    Part.SPACES: SPACES_FORM,
}
"""Of databases, as far as this version reads them."""
LOCK = "lock"


def check(file: Path) -> Manifest:
    """Read all of a backup. Raises BackupError unless it could be restored."""
    return verified(file, FORMS_MAX)


def restore(file: Path, folder: Path) -> Manifest:
    """Raises BackupError, and then nothing is left in the folder but what was there."""
    manifest = check(file)
    with _empty(folder):
        staging = folder / RESTORING
        staging.mkdir(mode=0o700)
        sync_folder(folder)
        try:
            _write(file, staging)
            _look_into(staging / LOG, manifest)
            _give_places(staging, folder)
        except BaseException:
            if not (folder / CA_FILE).exists():
                _remove_all(folder)
            raise
    return manifest


@contextmanager
def _empty(folder: Path) -> Iterator[None]:
    """A folder with nothing in it, nobody else's until the end of the block, and gone again if it was made in vain."""
    is_made = False
    try:
        missing = [place for place in folder.parents if not place.exists()]
        is_made = _made(folder)
        _refuse_filled(folder)  # before a lock is put beside what somebody has there
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BackupError(f"{folder} is in use by another process") from None
            _refuse_filled(folder)  # by somebody who had it between the two
            try:
                for place in (folder, *missing) if is_made else ():
                    with suppress(PermissionError):  # a folder in which we may make files, and not look
                        sync_folder(place.parent)
                yield
            finally:
                if is_made and not (folder / CA_FILE).exists():
                    shutil.rmtree(folder, ignore_errors=True)  # while it is ours
        finally:
            os.close(fd)
    except OSError as error:
        raise BackupError(f"cannot restore into {folder} ({error.strerror}, {error.filename})") from error
    finally:
        if is_made:
            with suppress(OSError):  # somebody else has it by now
                folder.rmdir()


def _made(folder: Path) -> bool:
    """Whether it was not there before us. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder.is_dir():
            return False
        raise
    return True


def _refuse_filled(folder: Path) -> None:
    if any(not _is_no_content(path) for path in folder.iterdir()):
        raise BackupError(f"{folder} is not empty: a backup is restored into an empty folder, or into a new one")


def _is_no_content(path: Path) -> bool:
    """Our lock, and what a file system makes for itself in the root of a new volume."""
    return path.name == LOCK or (path.name == "lost+found" and path.is_dir())


def _write(file: Path, staging: Path) -> None:
    """All members, durable; what is written is held against the manifest once more: the file may be another by now."""

    def take(name: str, pieces: Pieces) -> None:
        if part_of(name) is None:
            raise BackupError(broken("it has a file that no backup has").why)
        for folder in reversed(Path(name).parents):
            (staging / folder).mkdir(mode=0o700, exist_ok=True)
        fd = os.open(staging / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as target:
            for piece in pieces:
                target.write(piece)
            target.flush()
            os.fsync(fd)

    def take_or_tell(name: str, pieces: Pieces) -> None:
        try:
            take(name, pieces)
        except gzip.BadGzipFile:
            raise
        except OSError as error:  # of this disk, not of that which the backup is read from
            raise BackupError(f"cannot restore into {staging.parent} ({error.strerror})") from error

    with opened(file) as source:
        found, seen = read(source, take_or_tell)
    judged = judge(found, seen, FORMS_MAX)
    if isinstance(judged, NotRestorable):
        raise BackupError(judged.why)
    for place, _, __ in os.walk(staging):
        sync_folder(Path(place))


def _look_into(log: Path, manifest: Manifest) -> None:
    """A log that SQLite cannot read, or of another form than was said, is found now and not at the next start."""
    if not log.exists():
        return
    try:
        with closing(connect(log, is_live=False)) as connection:
            is_whole = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
            is_as_said = is_whole and form_of(connection) == manifest.forms.get(Part.LOG)
    except sqlite3.Error:
        is_as_said = False
    if not is_as_said:
        raise BackupError(broken("its log was damaged before it was copied").why)


def _give_places(staging: Path, folder: Path) -> None:
    for path in sorted(staging.iterdir(), key=lambda path: path.name == CA_FILE):
        if path.name == CA_FILE:
            sync_folder(folder)
        path.rename(folder / path.name)
    sync_folder(folder)
    staging.rmdir()


def _remove_all(folder: Path) -> None:
    for path in folder.iterdir():
        if _is_no_content(path):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
