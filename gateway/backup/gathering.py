"""What of a data folder goes into a backup, taken in the order that makes it one moment: that of the log.

    1. certificates of nodes, then the log, then certificates that have come since: whatever the log names is there
    2. revocations: all that were there at the log's moment, and perhaps a later one
    3. audit, published files, subscriptions of projects and, if they are wanted, spaces (of both rows, then contents,
       then keys), the gateway's keys

A certificate or a published file is durable before the log speaks of it. One that the log has given up meanwhile is
needed all the same: of published files, whoever calls sees to it that none is removed; certificates are read twice. Why
this order, and what a later revocation or a space that ends meanwhile means: docs/adr/0046.

Small files are read here, databases copied (`database_copy`); large files that never change are only listed, and read
when their turn comes. Everything here blocks: it is called in threads.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gateway.backup.database_copy import connect, copy_database, form_of, has_wal
from gateway.backup.member_rules import (
    AUDIT,
    LEAFS,
    LOG,
    PROCESSES,
    PROJECTS,
    REVOKED,
    SITES,
    SPACE_FILES,
    SPACE_KEYS,
    SPACES,
    Part,
    is_known,
    part_of,
)


class BackupError(Exception):
    """A backup cannot be taken, or not be restored; the text says why and what to do."""


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody wants in a backup."""

    spaces: bool = False
    audit: bool = True


@dataclass(frozen=True, slots=True)
class Item:
    """A member to be: its bytes, or where they lie."""

    name: str
    content: bytes | Path


@dataclass(slots=True)
class Gathered:
    wish: Wish
    log_id: str | None = None
    forms: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    items: list[Item] = field(default_factory=list)


def gather(
    folder: Path,
    staging: Path,
    wish: Wish,
    *,
    is_live: bool,
    still_wanted: Callable[[], None] = lambda: None,
    room_left_bytes_min: int = 0,
) -> Gathered:
    """Copies of databases are put into `staging`, which is made if one is needed and is the caller's to remove, also if
    this raises: BackupError, or what `still_wanted` raises."""
    try:
        gathering = _Gathering(folder, staging, wish, is_live, still_wanted)
        gathering.check_room(room_left_bytes_min)
        return gathering.run()
    except OSError as error:
        raise BackupError(f"cannot take a backup of {folder}: {error.strerror}, {error.filename}") from error
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        full = ": make room on the disk of the data folder" if name == "SQLITE_FULL" else ""
        raise BackupError(f"cannot copy a database of {folder} ({name}){full}") from error


class _Gathering:
    def __init__(
        self, folder: Path, staging: Path, wish: Wish, is_live: bool, still_wanted: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._staging = staging
        self._is_live = is_live
        self._still_wanted = still_wanted
        self._gathered = Gathered(wish)
        self._small: dict[str, bytes] = {}

    def check_room(self, room_left_bytes_min: int) -> None:
        """Before anything is copied: a backup must not take the room that calls need."""
        needed = sum(_size(path) + _size(_wal(path)) for path in self._databases() if self._is_copied(path))
        disk = os.statvfs(self._folder)
        room = disk.f_bavail * disk.f_frsize
        if needed and room - needed < room_left_bytes_min:
            raise BackupError(
                f"the disk of {self._folder} has {room} bytes free; copies of its databases take {needed}, and "
                f"{room_left_bytes_min} are to stay free (backup.room_left_bytes_min): make room there"
            )

    def run(self) -> Gathered:
        wish = self._gathered.wish
        self._read_small(LEAFS)
        if (self._folder / LOG).exists():
            self._add_database(LOG, Part.LOG)
        self._read_small(LEAFS)
        for name, content in sorted(self._small.items()):
            self._add(name, content)
        if (self._folder / REVOKED).exists():
            self._add(REVOKED, (self._folder / REVOKED).read_bytes())
        if wish.audit:
            self._add_audit()
        for name in self._names(SITES, 2):
            self._add(name, self._folder / name)
        self._add_spaces(PROJECTS, Part.PROJECTS)
        if wish.spaces:
            self._add_spaces("", Part.SPACES)
        for name in self._names("", 1):
            if part_of(name) is Part.KEYS:
                self._add(name, (self._folder / name).read_bytes())
        self._gathered.left_out = sum(not is_known(name) for name in self._all_names())
        return self._gathered

    # ---- parts -------------------------------------------------------------------------------------------------------

    def _read_small(self, folder: str) -> None:
        for name in self._names(folder, 1):
            if name not in self._small:
                with suppress(FileNotFoundError):  # it is over, and the log will not speak of it, or was read before
                    self._small[name] = (self._folder / name).read_bytes()

    def _add_audit(self) -> None:
        """All but the last file are never written to again, and may be removed meanwhile."""
        for name in self._audits():
            with suppress(FileNotFoundError):
                self._add_database(name, Part.AUDIT)

    def _add_spaces(self, root: str, part: Part) -> None:
        """Keys last: those of a space that ends meanwhile are gone then, and with them all of it."""
        if not (self._folder / root / SPACES).exists():
            return
        self._add_database(f"{root}{SPACES}", part)
        keys = f"{root}{SPACE_FILES}/{SPACE_KEYS}"
        for name in self._names(f"{root}{SPACE_FILES}", 2):
            if not name.startswith(f"{keys}/"):
                self._add(name, self._folder / name)
        for name in self._names(keys, 1):
            with suppress(FileNotFoundError):
                self._add(name, (self._folder / name).read_bytes())

    def _add_database(self, name: str, part: Part) -> None:
        self._still_wanted()
        path = self._folder / name
        if self._is_copied(path):
            copy = self._staging / name.replace("/", "-")
            self._staging.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            copy_database(path, copy, is_live=self._is_live, still_wanted=self._still_wanted)
            path = copy
        elif not path.exists():
            raise FileNotFoundError(path)
        with closing(connect(path, is_live=False)) as connection:
            form, forms = form_of(connection), self._gathered.forms
            forms[part] = max(forms.get(part, form), form)
            if part is Part.LOG:
                ((self._gathered.log_id,),) = connection.execute("SELECT log_id FROM log").fetchall()
        self._add(name, path)

    def _is_copied(self, path: Path) -> bool:
        """Else it is whole where it lies, and stays so. A file that SQLite has open here must not be opened by other
        means: closing it would end SQLite's locks."""
        is_closed_audit = path.parent.name == AUDIT and path != self._last_audit(path.parent)
        return has_wal(path) or (self._is_live and not is_closed_audit)

    def _last_audit(self, audit: Path) -> Path | None:
        names = self._names(audit.relative_to(self._folder).as_posix(), 1)
        return self._folder / names[-1] if names else None

    def _audits(self) -> list[str]:
        return [*self._names(AUDIT, 1), *self._names(PROCESSES, 3)]

    def _add(self, name: str, content: bytes | Path) -> None:
        self._gathered.items.append(Item(name, content))

    # ---- the folder --------------------------------------------------------------------------------------------------

    def _databases(self) -> Iterator[Path]:
        wish = self._gathered.wish
        names = [LOG, f"{PROJECTS}{SPACES}", *(self._audits() if wish.audit else ())]
        names += [SPACES] if wish.spaces else []
        return (self._folder / name for name in names)

    def _names(self, folder: str, depth: int) -> list[str]:
        """The members in this folder that lie so deep, by their names in a backup."""
        pattern = "/".join("*" * depth)
        found = (path.relative_to(self._folder).as_posix() for path in (self._folder / folder).glob(pattern))
        return sorted(name for name in found if part_of(name) is not None)

    def _all_names(self) -> Iterator[str]:
        for place, _, files in os.walk(self._folder):
            for file in files:
                yield (Path(place) / file).relative_to(self._folder).as_posix()


def remove_staging(staging: Path) -> None:
    """Whatever is left of copies. What cannot be removed is in nobody's way until the next backup says so."""
    shutil.rmtree(staging, ignore_errors=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")
