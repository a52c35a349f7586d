"""The files of a folder that make a site: found, named as they will be published, and hashed.

Nothing outside of the folder is read but the `.gitignore` files of its repository: links are not followed.
"""

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gateway.commands.gitignore_rules import IgnoreFile, is_ignored
from gateway.commands.parsing import CommandError
from gateway.commands.site_plan_rules import Skip, Upload, site_path, skip_by_name

FILES_MAX = 10_000  # that are not left out; more is refused: it is not the folder that was meant
FILE_BYTES_MAX = 1024**3  # of one; more is refused, and every instance takes less
IGNORE_BYTES_MAX = 1024 * 1024  # of a .gitignore; more is refused
_IGNORE_FILE = ".gitignore"
_REPOSITORY = ".git"
_NO_RULES = (errno.ENOENT, errno.ELOOP, errno.EISDIR)
SECRETS = ("token.key", "ca.key")  # by which a data folder is known; their module takes long to import
PIECE_BYTES = 64 * 1024


@dataclass(slots=True)
class SiteFolder:
    uploads: list[Upload] = field(default_factory=list)
    skipped: Counter[Skip] = field(default_factory=Counter)  # a folder that is left out counts once


def repository_of(folder: Path) -> Path | None:
    """The nearest folder above, or this one, that is a git repository."""
    return next((one for one in (folder, *folder.parents) if (one / _REPOSITORY).exists()), None)


def root_of(folder: Path) -> Path:
    """Where the rules of a site begin: at its repository, else one folder above."""
    return repository_of(folder) or folder.parent


def read_folder(folder: Path) -> SiteFolder:
    """Raises CommandError."""
    found = SiteFolder()
    if _is_data_folder(folder):
        raise CommandError(f"{folder} is the data folder of a gateway, with its keys: give the folder of the site")
    try:
        top, names = _ignored_above(folder)
        _walk(folder, names, (), top, found)
    except OSError as error:
        raise CommandError(f"cannot read {error.filename}: {error.strerror}") from None
    _refuse_doubles(found.uploads)
    return found


def _ignored_above(folder: Path) -> tuple[list[tuple[int, IgnoreFile]], tuple[bytes, ...]]:
    """The rules of the repository from its root down to the folder, and the names that lead there.

    That they ignore the folder itself does not matter: whoever names it wants it, such as the output of a build.
    """
    root = root_of(folder)
    names = folder.relative_to(root).parts
    above = [(depth, rules) for depth in range(len(names)) if (rules := _rules(root.joinpath(*names[:depth])))]
    return above, tuple(map(os.fsencode, names))


def _rules(folder: Path) -> IgnoreFile | None:
    try:
        with opened(folder / _IGNORE_FILE) as file:  # git does not follow a link there either
            content = file.read(IGNORE_BYTES_MAX + 1)
    except OSError as error:
        if error.errno in _NO_RULES:
            return None
        raise
    if len(content) > IGNORE_BYTES_MAX:
        raise CommandError(f"{folder / _IGNORE_FILE} is larger than {IGNORE_BYTES_MAX >> 20} MiB")
    return IgnoreFile(content)


def _walk(
    folder: Path,
    above: tuple[bytes, ...],
    names: tuple[str, ...],
    files: Sequence[tuple[int, IgnoreFile]],
    found: SiteFolder,
) -> None:
    """`above` leads from the root of the rules to the site, `names` from there to this folder."""
    rules = _rules(folder)
    if rules is not None:
        files = [*files, (len(above) + len(names), rules)]
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        inner, is_folder = (*names, entry.name), entry.is_dir(follow_symlinks=False)
        skip = skip_by_name(entry.name, at_top=not names, is_folder=is_folder)
        if skip is None and is_ignored(files, (*above, *map(os.fsencode, inner)), is_folder=is_folder):
            skip = Skip.IGNORED
        if skip is None and entry.is_symlink():
            skip = Skip.LINK
        if skip is None and not is_folder and not entry.is_file(follow_symlinks=False):
            skip = Skip.SPECIAL
        if skip is None and is_folder and _is_data_folder(folder / entry.name):
            skip = Skip.DATA
        if skip is not None:
            found.skipped[skip] += 1
        elif is_folder:
            _walk(folder / entry.name, above, inner, files, found)
        else:
            found.uploads.append(_upload(folder / entry.name, inner))
            if len(found.uploads) > FILES_MAX:
                raise CommandError(f"there are more than {FILES_MAX} files: give the folder that holds the site alone")


def _is_data_folder(folder: Path) -> bool:
    return all((folder / name).exists() for name in SECRETS)


def _upload(file: Path, names: tuple[str, ...]) -> Upload:
    path = site_path(names)
    if path is None:
        raise CommandError(
            f"{'/'.join(names)} cannot be published: a path is UTF-8 of at most 512 bytes, without backslashes and "
            "control characters; rename it, or leave it out with .gitignore"
        )
    size, sha256 = hashed(file)
    return Upload(path, size, sha256, file)


def hashed(file: Path) -> tuple[int, str]:
    """Its size and its SHA-256."""
    digest, size = hashlib.sha256(), 0
    with opened(file) as content:
        while piece := content.read(PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
            if size > FILE_BYTES_MAX:
                raise CommandError(f"{file} is larger than any instance takes: leave it out with .gitignore")
    return size, digest.hexdigest()


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """Not through a link that somebody has put there meanwhile."""
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as content:
        yield content


def _refuse_doubles(uploads: list[Upload]) -> None:
    for path, count in Counter(one.path for one in uploads).items():
        if count > 1:
            raise CommandError(f"two files would be published as {path}: their names differ in how accents are written")
